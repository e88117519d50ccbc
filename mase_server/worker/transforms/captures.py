"""A model to compile, what Dynamo captured of it, and the record that a view is: its text with the lines of the source.

Breaks and recompilations are those that PyTorch logs (`TORCH_LOGS=graph_breaks,recompiles`), read from its loggers.
"""

from __future__ import annotations

import copy
import linecache
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from traceback import StackSummary
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn

from mase_server.protocol.answers.models import Compiled, GraphBreak, Recompile
from mase_server.tracing.importing.importer import owns
from mase_server.tracing.importing.source import decode_source, read_source
from mase_server.tracing.inputs.spec import TensorSpec, inputs_at
from mase_server.tracing.models.constructions import places_of
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.positions import resolve_mark
from mase_server.tracing.recording.state import SEED
from mase_server.tracing.recording.values import Rebuild, tensors_of
from mase_server.worker.transforms.ask import Ask
from mase_server.worker.transforms.break_fixes import BreakScene
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.pipeline import Applied, Pipeline
from mase_server.worker.transforms.runs import Subject, raise_stopped, run_steps

#: Other sizes at which a compiled or exported model is run; each may cost a compilation.
_SIZES = 2
#: The bytes of all tensors of a forward at other sizes, at most.
_LARGEST_RUN = 2 << 30
_BREAKS = "torch._dynamo.symbolic_convert.__graph_breaks"
_RECOMPILES = "torch._dynamo.guards.__recompiles"
#: A line of a graph's text that tells the source of the operations below it.
_SOURCE = re.compile(r"^\s*# File: (.+?):(\d+) in \S+, code: ")
_REFUSED = re.compile(r"^# not exported .* \((.+):(\d+)\)$")
_BREAK = re.compile(
    r"Graph break(?: \(.*?\))? in user code at (?P<file>[^\n]+):(?P<line>\d+)\n(?:Graph Break )?Reason: (?P<reason>.*?)"
    r"(?:\n+User code traceback:\n(?P<trace>.*))?\Z",
    re.DOTALL,
)
FRAME = re.compile(r'^ *File "(?P<file>.+?)", line (?P<line>\d+), in (?P<name>\S+)', re.MULTILINE)
_RECOMPILE = re.compile(r"Recompiling function (?P<name>\S+) in (?P<file>.+):(?P<line>\d+)")
#: An argument of a function that passes on all that it is given.
_GIVEN = re.compile(r"args\[(?P<index>\d+)\]|kwargs\['(?P<name>\w+)'\]")
#: A guard that failed, the number of its compilation before it; where PyTorch has noted it, its line follows.
_FAILED = re.compile(r"^\s*- (?=\d+/\d+)(?:(?P<compilation>[\d/_]+): )?", re.MULTILINE)
_NOTED = re.compile(r"\s{2,}# .*? in \S+(?: (?P<hint>\(HINT: .*\)))?$")
_SIZE = re.compile(
    r"tensor '(?P<name>.+)' size mismatch at index (?P<index>\d+)\. expected (?P<old>\d+), actual (?P<new>\d+)"
)
#: The name of what runs after a graph break.
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")
#: An argument as a guard names it.
LOCAL = re.compile(r"L\['(\w+)'\]")
#: Lines of a reason that are for PyTorch's own developers, or about where to read more.
_FOR_DEVELOPERS = re.compile(r"\n+\s*(Developer debug context:|For more details about|Note: ).*", re.DOTALL)
#: What colours a message in a terminal.
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
#: Where an object lies in memory, which is new in each run.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ATTEMPT = re.compile(r"^Encountered graph break when attempting to trace .*?\n+")
#: Takes a graph and its example inputs, returns what runs in its place.
Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass(slots=True)
class Captured:
    """The outcome of a compilation. graphs: of Dynamo or ATen, in order.  results: of each run.  whole: no more graphs
    are kept.  logged: messages of PyTorch, by logger.  guards: (compilation, name) -> the stack that asked for a value.
    failure: what running them raised."""

    graphs: list[fx.GraphModule] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    whole: bool = False
    failure: Exception | None = None
    logged: dict[str, list[str]] = field(default_factory=lambda: {_BREAKS: [], _RECOMPILES: []})
    guards: dict[tuple[str, str], StackSummary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scene:
    """A model with values, to compile. workspace: a folder.  further: run it at other sizes, and mend its breaks?

    feed: the arguments and keyword arguments of the model for those of the file.  places: (file, line) of generated
    code -> the frame that it stands for, as a stack trace tells it.  fixed: does it hold for the file's sizes alone?
    device: "cpu" for code for the CPU, also where there is a GPU.
    """

    subject: Subject
    model: nn.Module
    workspace: str
    further: bool
    feed: Callable[[Mapping[str, Any]], tuple[tuple[Any, ...], Mapping[str, Any]]]
    places: Mapping[tuple[str, int], str] = field(default_factory=dict)
    fixed: bool = False
    device: str = ""

    @classmethod
    def of(cls, subject: Subject, ask: Ask, send: Send) -> Scene:
        """The model as it is written, or the graph of its passes at the inputs of the file alone."""
        model, workspace = subject.model, subject.live.request.folder
        if ask.original:
            return cls(subject, model, workspace, ask.further, partial(call_arguments, model), device=ask.device)
        applied = run_steps(subject, Pipeline(ask.steps, subject.known()), send, real=True)
        raise_stopped(applied.stopped)
        graph, knowledge = applied.graph, applied.graph.knowledge
        plain = fx.GraphModule(graph.model, graph.fx_graph)
        plain.graph.set_codegen(fx.graph.CodeGen())  # the recorded graph's checks its sizes
        plain.recompile()
        places = _map_lines(applied, plain)
        return cls(
            subject, plain, workspace, False, lambda given: (tuple(knowledge.feed(given)), {}), places, True, ask.device
        )


def show_graphs(view: str, backend_of: Callable[[Compiler], Any], scene: Scene, trains: bool = False) -> Compiled:
    """The record of the graphs that a backend is given; see `compile_graphs`."""
    return _write_record(view, compile_graphs(backend_of, scene, trains), scene)


def compile_graphs(backend_of: Callable[[Compiler], Any], scene: Scene, trains: bool = False) -> Captured:
    """Compile the model, run it as its file does and at other sizes, and keep what PyTorch logs meanwhile.

    backend_of: makes a backend from a function that is given each graph.  trains: run the backward, too.
    """
    import torch._dynamo
    from torch._guards import CompileContext

    captured = Captured()

    def keep(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        captured.graphs.append(graph)
        return graph.forward

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        caller = _find_caller(scene.workspace)
        for node in graph.graph.nodes:
            if trace := _place_frames(node.stack_trace or caller, scene.places):
                node.stack_trace = trace
        return graph.forward if captured.whole else backend(graph, inputs)

    def note_guards(guards: Iterable[Any]) -> None:
        compilation = str(CompileContext.current_compile_id())
        for guard in guards:
            if guard.user_stack:
                name = LOCAL.sub(r"\1", guard.name)
                captured.guards.setdefault((compilation, name), guard.user_stack)

    backend = backend_of(keep)
    torch._dynamo.reset()
    # PyTorch would empty the processor's caches to measure how fast each function's guards are.
    with _listen(captured.logged), patch("torch._dynamo.guards.profile_guard_manager", create=True, return_value=0.0):
        compiled = torch._dynamo.optimize(compile_graph, guard_export_fn=note_guards)(scene.model)
        try:
            for run in list_runs(scene):
                captured.results.append(run(compiled))
                if trains and not captured.whole:
                    _run_backward(captured.results[-1])
                captured.whole = True
        except Exception as error:  # what was captured can be shown
            if not captured.graphs:
                raise
            captured.failure = error
    return captured


def _map_lines(applied: Applied, module: fx.GraphModule) -> dict[tuple[str, int], str]:
    """The source of each line of a graph's code; that of what a pass inserted is its neighbour's."""
    calls = applied.recording.run.calls
    stacks = {node.name: calls[call].stack for call, node in applied.nodes().items()}
    known: dict[fx.Node, str | None] = {}
    for node in module.graph.nodes:
        if stack := stacks.get(node.name):
            place = resolve_mark(stack[0])
            known[node] = f'File "{place.file}", line {place.line}, in {place.function.rpartition(".")[2]}'
        else:
            known[node] = next(filter(None, map(known.get, node.all_input_nodes)), None)
    for node in reversed(module.graph.nodes):  # such as the rounding of a weight
        known[node] = known[node] or next(filter(None, map(known.get, node.users)), None)
    frames = [*known.values()]
    code = module.forward.__code__
    return {
        (code.co_filename, code.co_firstlineno + line): frame
        for line, index in module._lineno_map.items()
        if index is not None and (frame := frames[index]) is not None
    }


def _place_frames(trace: str, places: Mapping[tuple[str, int], str]) -> str:
    """A stack trace that ends with the source of the generated code, if it passes through some."""
    for found in FRAME.finditer(trace) if places else ():
        if (frame := places.get((found["file"], int(found["line"])))) is not None:
            return f"  {frame}\n    {linecache.getline(*_read_frame(frame)).strip()}\n"
    return trace


def _find_caller(workspace: str) -> str:
    """The innermost line of the workspace that runs now, as a stack trace: a library's code has none of its own."""
    for frame, line in traceback.walk_stack(None):
        if owns(workspace, frame.f_code.co_filename):
            place = f'File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
            return f"  {place}\n    {linecache.getline(frame.f_code.co_filename, line).strip()}\n"
    return ""


def _read_frame(frame: str) -> tuple[str, int]:
    found = FRAME.search(frame)
    assert found is not None
    return found["file"], int(found["line"])


def _run_backward(results: Any) -> None:
    """Compute the gradients of the sum of all results."""
    tensors = [each for each in Rebuild.of(results).tensors if each.requires_grad]
    if tensors:
        torch.stack([each.abs().sum().float() for each in tensors]).sum().backward()  # type: ignore[no-untyped-call]


def list_runs(scene: Scene) -> Iterator[Callable[[Callable[..., Any]], Any]]:
    """The calls of the model, with new inputs each: those of its file, then other sizes. Each gives its inputs, too."""
    spec = scene.subject.traced.session.inputs
    for sizes in (None, *_list_sizes(scene)):
        given = copy.deepcopy(scene.subject.example.arguments) if sizes is None else inputs_at(spec, sizes, seed=SEED)
        args, kwargs = scene.feed(given)

        def run(call: Callable[..., Any], args: Any = args, kwargs: Any = kwargs) -> Any:
            torch.manual_seed(SEED)
            return call(*args, **kwargs), args, kwargs

        yield run


def _list_sizes(scene: Scene) -> Sequence[dict[str, int]]:
    return list_other_sizes(scene.subject) if scene.further else ()


def list_other_sizes(subject: Subject) -> list[dict[str, int]]:
    """Other sizes of the dimensions that may vary, at which a compiled or exported model is run, by their names."""
    probed = subject.traced.probed
    if probed is None or not probed.symbols:
        return []
    first, *others = ({name: point[name] for name in probed.symbols} for point in probed.points)
    light = [other for other, run in zip(others, probed.runs[1:], strict=True) if _count_bytes(run) <= _LARGEST_RUN]
    # The sizes that were traced may be large, since that costs no memory; then the first symbol varies alone.
    name = next(iter(first))
    others = light or [first | {name: other[name]} for other in others]
    return [other for place, other in enumerate(others) if other not in (first, *others[:place])][:_SIZES]


def _count_bytes(run: Run) -> int:
    """The bytes of all tensors that a forward made."""
    tensors = (tensor for call in run.calls for tensor in tensors_of(call.value))
    return sum(tensor.nbytes for tensor in tensors)


@contextmanager
def _listen(logged: Mapping[str, list[str]]) -> Iterator[None]:
    """Keep the messages of these loggers, and be silent otherwise, and after that."""
    from torch._logging._internal import set_logs

    set_logs(all=logging.CRITICAL, graph_breaks=True, recompiles=True)
    handlers = {name: _Keeper(messages) for name, messages in logged.items()}
    for name, handler in handlers.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    yield


class _Keeper(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


# The record of what was captured.


def _write_record(view: str, captured: Captured, scene: Scene) -> Compiled:
    workspace = scene.workspace
    titles: list[str] = []
    for graph in captured.graphs:  # of training there are several parts, the backwards in the opposite order
        part = f", {graph.meta['part']}" if "part" in graph.meta else ""
        titles.append(f"# Graph {1 + sum(title.endswith(part) for title in titles)}{part}")
    texts = [f"{title}\n{write_graph(graph, workspace)}" for title, graph in zip(titles, captured.graphs, strict=True)]
    if captured.failure is not None:
        texts.append(f"# Running {'it' if len(texts) == 1 else 'them'} fails: {read_first_paragraph(captured.failure)}")
    whole = [graph for graph in captured.graphs if graph.meta.get("part", "joint") == "joint"]
    text, lines = shorten_sources("\n\n".join(texts) or "# No operation was captured.", workspace)
    breaks = {(one["file"], one["line"], one["reason"]): one for one in read_breaks(captured, workspace)}
    return {
        "view": view,
        "text": text,
        "lines": lines,
        "graphs": len(whole),
        "operations": sum(map(count_operations, whole)),
        "breaks": list(breaks.values()),
        "recompiles": [_read_recompile(message, captured, scene) for message in captured.logged[_RECOMPILES]],
        "sizes": list(_list_sizes(scene)),
        "kernels": [],
        "problem": "",
        "place": None,
    }


def write_graph(graph: fx.GraphModule, workspace: str) -> str:
    """The graph as Python, each operation below the line of the workspace that called for it."""
    for node in graph.graph.nodes:
        frames = list(FRAME.finditer(node.stack_trace or ""))
        own = [place for place, frame in enumerate(frames) if owns(workspace, frame["file"])]
        if own and own[-1] + 1 < len(frames):
            node.stack_trace = node.stack_trace[: frames[own[-1] + 1].start()]
    return graph.print_readable(print_output=False).strip()


def count_operations(graph: fx.GraphModule) -> int:
    """The number of calls in a graph."""
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)


def shorten_sources(text: str, workspace: str) -> tuple[str, list[tuple[int, str, int]]]:
    """The text with paths from the workspace, and [line of the text, file, line of the file] for each of its lines."""
    shown: list[str] = []
    lines: list[tuple[int, str, int]] = []
    place: tuple[str, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if (refused := _REFUSED.match(line)) is not None:
            lines.append((number, refused[1], int(refused[2])))
            line = line.replace(refused[1], os.path.relpath(refused[1], workspace), 1)
        if (found := _SOURCE.match(line)) is not None:
            place = found[1], int(found[2])
            if owns(workspace, found[1]):
                line = line.replace(found[1], os.path.relpath(found[1], workspace), 1)
        elif not line.strip() or line.startswith(("class ", "# Graph")):
            place = None
        if place is not None:
            lines.append((number, *place))
        shown.append(line)
    return "\n".join(shown), lines


def read_breaks(captured: Captured, workspace: str) -> Iterator[GraphBreak]:
    """The graph breaks that PyTorch logged, each at the person's line that it told or was called from."""
    for message in captured.logged[_BREAKS]:
        found = _BREAK.search(message)
        if found is None:
            yield _make_break("", 0, message.strip())
            continue
        frames = [(frame["file"], int(frame["line"])) for frame in FRAME.finditer(found["trace"] or "")]
        own = [frame for frame in [*frames, (found["file"], int(found["line"]))] if owns(workspace, frame[0])]
        file, line = own[-1] if own else (found["file"], int(found["line"]))
        if not own and "duplicate graph break" in message:
            continue  # in a library; it is told where the person's code called it first
        reason, explanation, hints = _read_reason(found["reason"])
        yield _make_break(file, line, reason, explanation, hints)


def _make_break(file: str, line: int, reason: str, explanation: str = "", hints: Sequence[str] = ()) -> GraphBreak:
    column, advice = 0, hints[0] if hints else ""
    with suppress(OSError, SyntaxError, ValueError, IndexError):
        scene = BreakScene(file, decode_source(read_source(file)), line)
        column, advice = scene.column, scene.advise(f"{reason} {explanation}", hints)
    return {
        "file": file, "line": line, "column": column, "reason": reason, "explanation": explanation,
        "hints": list(hints), "advice": advice, "fix": None,
    }  # fmt: skip


def _read_reason(text: str) -> tuple[str, str, list[str]]:
    """The unsupported thing, why, and what PyTorch proposes."""
    told = _ADDRESS.sub("", _FOR_DEVELOPERS.sub("", _ATTEMPT.sub("", text.strip())))
    parts = re.split(r"\n\s*(Explanation|Hint): ", told)
    named = list(zip(parts[1::2], (" ".join(part.split()) for part in parts[2::2]), strict=True))
    explanation = next((part for name, part in named if name == "Explanation"), "")
    hints = [part for name, part in named if name == "Hint" and "report an issue" not in part]
    return " ".join(parts[0].split()), explanation, hints


def _read_recompile(message: str, captured: Captured, scene: Scene) -> Recompile:
    """The guards that failed, the latest compilation's first; its line, and the size or value that it asked for."""
    head = _RECOMPILE.search(message)
    file, line, function = ("", 0, "") if head is None else (head["file"], int(head["line"]), head["name"])
    function = _RESUMED.sub(r"\1 from line \2 on", function)
    parts = _FAILED.split(message)[1:]
    failed = [each.strip().split("\n") for each in parts[1::2]] or [[message.strip()]]
    reasons = [_NOTED.sub(r" \g<hint>", told[0]).strip() for told in failed]
    size, sought = reasons[0].partition(" (HINT: ")[0], ""
    trace = "\n".join(each.strip().removeprefix("- ") for each in failed[0][1:])
    # A library's model is called through functions that pass on what they are given.
    wrapped = str(parts[0]).startswith("0/") and not owns(scene.workspace, file) if parts else False
    session = scene.subject.traced.session
    if (found := _SIZE.match(size)) is not None:
        sought = found["name"]
        given = _GIVEN.fullmatch(sought) if wrapped else None
        shown = sought if given is None else given["name"] or list(session.inputs.entries)[int(given["index"])]
        spec = session.inputs.entries.get(shown)
        dims = spec.dims if isinstance(spec, TensorSpec) else ()
        index = int(found["index"])
        named = f" ({dims[index]})" if index < len(dims) and isinstance(dims[index], str) else ""
        size = f"{shown}.shape[{index}]{named}: {found['old']}, then {found['new']}"
        trace = "".join(captured.guards.get((str(parts[0]), sought), StackSummary()).format())
    frames = [(frame["file"], int(frame["line"])) for frame in FRAME.finditer(trace)]
    own = [frame for frame in frames if owns(scene.workspace, frame[0])]
    made = places_of(session.model).get(id(session.model)) if wrapped else None
    if made is not None and not own:
        function, own = "forward", [made[:2]]
    file, line = (own or frames or [(file, line)])[-1]
    code = linecache.getline(file, line)
    column = max(code.find(sought), len(code) - len(code.lstrip())) if code.strip() else 0
    return {
        "file": file, "line": line, "column": column, "function": function, "reason": "; ".join(reasons), "size": size,
    }  # fmt: skip


def are_equal(found: Any, expected: Any) -> bool:
    """Are all tensors of two results equal, bit by bit?"""
    try:
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    except (AssertionError, TypeError, ValueError):
        return False
    return True


def find_place(error: Exception, workspace: str) -> str:
    """` (file:line)` of the innermost line of the workspace that an error tells or passed through; "" without one."""
    traced = "".join(traceback.format_tb(error.__traceback__))
    for text in (str(error), traced):
        own = [frame for frame in FRAME.finditer(text) if owns(workspace, frame["file"])]
        if own:
            return f" ({own[-1]['file']}:{own[-1]['line']})"
    return ""


def read_first_paragraph(error: BaseException) -> str:
    """The class of an error and the first paragraph of its text, as one line without colours."""
    text = _COLOURS.sub("", str(error)).strip().split("\n\n")[0]
    return " ".join(f"{type(error).__name__}: {text}".split())
