"""What PyTorch's compilers make of a model: Dynamo's graphs and breaks, ATen operators, the exported program.

It runs in a fork of the trace child, on the model with its weights and the example inputs. The recording of shapes has
added calls to the person's functions; Dynamo would compile these too, so each function gets its plain code back first.
Breaks and recompilations are those that PyTorch logs (`TORCH_LOGS=graph_breaks,recompiles`), read from its loggers.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from mase_server.protocol.answers.models import Compiled, GraphBreak, Recompile
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.importing.importer import owns, restore_plain_code
from mase_server.tracing.inputs.spec import MapSpec, SequenceSpec, Spec, TensorSpec, inputs_at, outside_modes
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.models.real import Real
from mase_server.tracing.recording.values import Rebuild, holds_tensor
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.runs import Subject, answer_on_meta

#: How `torch.export` may take the sizes that vary, the best way first.
_SIZES_OF_EXPORT = ("named sizes", "sizes that torch chooses", "fixed sizes")
#: How often the ranges of sizes are taken from what the exporter proposes.
_REFINEMENTS = 2
#: From here on the largest size is no limit.
_ENDLESS = 1 << 31
#: Other sizes at which a compiled or exported model is run; each may cost a compilation.
_SIZES = 2
_BREAKS = "torch._dynamo.symbolic_convert.__graph_breaks"
_RECOMPILES = "torch._dynamo.guards.__recompiles"
#: A line of a graph's text that tells the source of the operations below it.
_SOURCE = re.compile(r"^\s*# File: (.+?):(\d+) in \S+, code: ")
_BREAK = re.compile(
    r"Graph break(?: \(.*?\))? in user code at (?P<file>[^\n]+):(?P<line>\d+)\n(?:Graph Break )?Reason: (?P<reason>.*?)"
    r"(?:\n+User code traceback:\n(?P<trace>.*))?\Z",
    re.DOTALL,
)
_FRAME = re.compile(r'^ *File "(?P<file>.+?)", line (?P<line>\d+), in ', re.MULTILINE)
_RECOMPILE = re.compile(r"Recompiling function (?P<name>\S+) in (?P<file>.+):(?P<line>\d+)")
#: A guard that leaves out the largest size alone, as a mask of that size does where it is cut.
_TOP = re.compile(
    r"in the specified range (?P<name>\w+) <= (?P<size>\d+) satisfy the generated guard .* != (?P=size)\b"
)
#: Lines of a reason that are for PyTorch's own developers, or about where to read more.
_FOR_DEVELOPERS = re.compile(r"\n+\s*(Developer debug context:|For more details about|Note: ).*", re.DOTALL)
_ATTEMPT = re.compile(r"^Encountered graph break when attempting to trace .*?\n+")


#: Takes a graph and its example inputs, returns what runs in its place.
_Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass(slots=True)
class Captured:
    """What was compiled. graphs: of Dynamo or ATen, in order.  logged: messages of PyTorch, by logger."""

    graphs: list[fx.GraphModule] = field(default_factory=list)
    logged: dict[str, list[str]] = field(default_factory=lambda: {_BREAKS: [], _RECOMPILES: []})


def send_compiled(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Send a `Compiled` of the model as it is written, without passes. name: the view.

    On meta, only check whether there is enough memory for weights.
    """
    subject = Subject.of(live, ask.model, real)
    if ask.name not in VIEWS:
        raise AskError(f"there is no view {ask.name!r}; there are {', '.join(VIEWS)}")
    if real is None:
        return answer_on_meta(subject, ask, send)
    workspace = live.request.folder
    forwards = (getattr(type(module).forward, "__globals__", {}) for module in real.model.modules())
    restore_plain_code(live.request.path, list({id(each): each for each in forwards}.values()))
    # Its surroundings are not those of `as_program`, whose substitutes Dynamo would compile.
    with guard_program(live.request.scratch), outside_modes(), torch.no_grad():
        made = VIEWS[ask.name](subject, real.model, workspace)
    return send({"value": made})


# Dynamo and ATen: the graphs that a backend is given.


def _show_dynamo(subject: Subject, model: nn.Module, workspace: str) -> Compiled:
    return _show_graphs("dynamo", lambda keep: keep, subject, model, workspace)


def _show_aten(subject: Subject, model: nn.Module, workspace: str) -> Compiled:
    from torch._dynamo.backends.common import aot_autograd

    return _show_graphs("aten", lambda keep: aot_autograd(fw_compiler=keep), subject, model, workspace)


def _show_graphs(
    view: str, backend_of: Callable[[_Compiler], Any], subject: Subject, model: nn.Module, workspace: str
) -> Compiled:
    """Compile the model, run it as its file does and at other sizes, and keep what PyTorch logs meanwhile.

    backend_of: makes a backend from a function that is given each graph.
    """
    import torch._dynamo

    captured = Captured()

    def keep(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        captured.graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    with _listen(captured.logged):
        compiled = torch._dynamo.optimize(backend_of(keep))(model)
        args, kwargs = call_arguments(model, subject.example.arguments)
        compiled(*args, **kwargs)
        count = len(captured.graphs)
        for sizes in _other_sizes(subject):
            args, kwargs = call_arguments(model, inputs_at(subject.traced.session.inputs, sizes))
            compiled(*args, **kwargs)
    del captured.graphs[count:]
    return _write_record(view, captured, workspace)


def _other_sizes(subject: Subject) -> list[Mapping[str, int]]:
    probed = subject.traced.probed
    return [] if probed is None or not probed.symbols else list(probed.points[1 : 1 + _SIZES])


@contextmanager
def _listen(logged: Mapping[str, list[str]]) -> Iterator[None]:
    """Keep the messages of these loggers, and be silent otherwise."""
    from torch._logging._internal import set_logs

    set_logs(all=logging.CRITICAL, graph_breaks=True, recompiles=True)
    handlers = {name: _Keeper(messages) for name, messages in logged.items()}
    for name, handler in handlers.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        set_logs()


class _Keeper(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


# The record of what was captured.


def _write_record(view: str, captured: Captured, workspace: str) -> Compiled:
    texts = [f"# Graph {number}\n{_write_graph(graph, workspace)}" for number, graph in enumerate(captured.graphs, 1)]
    text, lines = _shorten_sources("\n\n".join(texts) or "# No operation was captured.", workspace)
    breaks = {(one["file"], one["line"], one["reason"]): one for one in _read_breaks(captured, workspace)}
    return {
        "view": view,
        "text": text,
        "lines": lines,
        "graphs": len(captured.graphs),
        "operations": sum(map(_count_operations, captured.graphs)),
        "breaks": list(breaks.values()),
        "recompiles": [_read_recompile(message) for message in captured.logged[_RECOMPILES]],
        "problem": "",
    }


def _write_graph(graph: fx.GraphModule, workspace: str) -> str:
    """The graph as Python, each operation below the line of the workspace that called for it."""
    for node in graph.graph.nodes:
        frames = list(_FRAME.finditer(node.stack_trace or ""))
        own = [place for place, frame in enumerate(frames) if owns(workspace, frame["file"])]
        if own and own[-1] + 1 < len(frames):
            node.stack_trace = node.stack_trace[: frames[own[-1] + 1].start()]
    return graph.print_readable(print_output=False).strip()


def _count_operations(graph: fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)


def _shorten_sources(text: str, workspace: str) -> tuple[str, list[tuple[int, str, int]]]:
    """The text with paths from the workspace, and [line of the text, file, line of the file] for each of its lines."""
    shown: list[str] = []
    lines: list[tuple[int, str, int]] = []
    place: tuple[str, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
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


def _read_breaks(captured: Captured, workspace: str) -> Iterator[GraphBreak]:
    for message in captured.logged[_BREAKS]:
        found = _BREAK.search(message)
        if found is None:
            yield {"file": "", "line": 0, "reason": message.strip(), "explanation": "", "hints": []}
            continue
        frames = [(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(found["trace"] or "")]
        own = [frame for frame in [*frames, (found["file"], int(found["line"]))] if owns(workspace, frame[0])]
        file, line = own[-1] if own else (found["file"], int(found["line"]))
        if not own and "duplicate graph break" in message:
            continue  # in a library; it is told where the person's code called it first
        reason, explanation, hints = _read_reason(found["reason"])
        yield {"file": file, "line": line, "reason": reason, "explanation": explanation, "hints": hints}


def _read_reason(text: str) -> tuple[str, str, list[str]]:
    """What is not supported, why, and what PyTorch proposes."""
    told = _FOR_DEVELOPERS.sub("", _ATTEMPT.sub("", text.strip()))
    parts = re.split(r"\n\s*(Explanation|Hint): ", told)
    named = list(zip(parts[1::2], (" ".join(part.split()) for part in parts[2::2]), strict=True))
    explanation = next((part for name, part in named if name == "Explanation"), "")
    hints = [part for name, part in named if name == "Hint" and "report an issue" not in part]
    return " ".join(parts[0].split()), explanation, hints


def _read_recompile(message: str) -> Recompile:
    found = _RECOMPILE.search(message)
    reasons = [line.strip().removeprefix("- ") for line in message.split("\n") if line.strip().startswith("- ")]
    place = ("", 0, "") if found is None else (found["file"], int(found["line"]), found["name"])
    return {"file": place[0], "line": place[1], "function": place[2], "reason": "; ".join(reasons) or message.strip()}


# The exported program.


def _show_export(subject: Subject, model: nn.Module, workspace: str) -> Compiled:
    """`torch.export`, first without and then with Python's bytecode (`strict`), each with the sizes that may vary.

    What is exported is run at the file's inputs and at other sizes, and compared with the model.
    """
    problems: list[str] = []
    for strict, sizes in itertools.product((False, True), _SIZES_OF_EXPORT if _varying(subject) else ("fixed sizes",)):
        mode = f"exported with strict={strict}, {sizes}"
        try:
            program, told = _export(subject, model, strict, sizes)
        except Exception as error:  # noqa: BLE001 - whatever the exporter raises is the answer
            problems.append(f"{mode}: {_first_paragraph(error)}")
            continue
        notes = [mode, *told, *(f"not {problem}" for problem in problems)]
        graph = _write_graph(program.graph_module, workspace)
        text, lines = _shorten_sources("\n".join([*(f"# {note}" for note in notes), "", graph]), workspace)
        operations = _count_operations(program.graph_module)
        return _make_export_record(text, lines, operations)
    return _make_export_record("".join(f"# not {problem}\n" for problem in problems), [], 0, "\n".join(problems))


def _make_export_record(text: str, lines: list[tuple[int, str, int]], operations: int, problem: str = "") -> Compiled:
    return {
        "view": "export", "text": text, "lines": lines, "graphs": int(not problem), "operations": operations,
        "breaks": [], "recompiles": [], "problem": problem,
    }  # fmt: skip


def _export(subject: Subject, model: nn.Module, strict: bool, sizes: str) -> tuple[Any, list[str]]:
    """The exported program, and what to tell of it; raises whatever the exporter raises, or for another result."""
    from torch._dynamo.exc import UserError
    from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes

    # A slice of a larger tensor, as files often pass, would tie the sizes to its strides.
    own = {
        name: Rebuild.of(value).changed(torch.Tensor.contiguous) if holds_tensor(value) else value
        for name, value in subject.example.arguments.items()
    }
    args, kwargs = call_arguments(model, own)
    shapes = None if sizes == "fixed sizes" else _list_dynamic_shapes(subject, sizes)
    for attempt in range(_REFINEMENTS + 1):
        try:
            program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=strict)
            break
        except UserError as error:  # it tells the ranges in which the sizes may vary
            proposed, _, _ = str(error).partition("\n\nThe error above")
            if attempt == _REFINEMENTS or shapes is None:
                raise
            if (top := _TOP.search(proposed)) is not None:
                shapes = _exchange_dim(shapes, torch.export.Dim(top["name"], max=int(top["size"]) - 1))
            elif "Suggested fixes:" in proposed:
                shapes = refine_dynamic_shapes_from_suggested_fixes(proposed, shapes)
            else:
                raise
    notes, run = _write_shapes(shapes), program.module()
    for other in (None, *(() if shapes is None else _other_sizes(subject))):
        args, kwargs = call_arguments(model, own if other is None else inputs_at(subject.traced.session.inputs, other))
        torch.testing.assert_close(run(*args, **kwargs), model(*args, **kwargs), equal_nan=True)
        where = ", ".join(f"{name}={other[name]}" for name in _varying(subject)) if other else "the file's inputs"
        notes.append(f"equal to the model at {where}")
    return program, notes


def _exchange_dim(shapes: Any, new: Any) -> Any:
    """The same shapes with `new` in place of the dimension of its name."""
    if isinstance(shapes, Mapping):
        return {key: _exchange_dim(part, new) for key, part in shapes.items()}
    if isinstance(shapes, tuple):
        return tuple(_exchange_dim(part, new) for part in shapes)
    return new if getattr(shapes, "__name__", None) == new.__name__ else shapes


def _varying(subject: Subject) -> tuple[str, ...]:
    return () if subject.traced.probed is None else tuple(subject.traced.probed.symbols)


def _list_dynamic_shapes(subject: Subject, sizes: str) -> Any:
    """The `dynamic_shapes` of `torch.export`: the dimensions whose symbols may vary, each with its name."""
    named = sizes == "named sizes"
    dims = {name: torch.export.Dim(name) if named else torch.export.Dim.AUTO for name in _varying(subject)}

    def shape(spec: Spec) -> Any:
        if isinstance(spec, TensorSpec):
            return {place: dims[dim] for place, dim in enumerate(spec.dims) if isinstance(dim, str) and dim in dims}
        if isinstance(spec, SequenceSpec):
            return tuple(map(shape, spec.items))
        return {key: shape(item) for key, item in spec.items} if isinstance(spec, MapSpec) else None

    return {name: shape(spec) for name, spec in subject.traced.session.inputs.entries.items()}


def _write_shapes(shapes: Any) -> list[str]:
    """The code that exports with these shapes, to be copied."""
    dims: dict[str, str] = {}

    def write(part: Any) -> str:
        if isinstance(part, torch.export.Dim):
            ends = {"min": part.min if part.min > 2 else None, "max": part.max if part.max < _ENDLESS else None}
            told = "".join(f", {name}={end}" for name, end in ends.items() if end is not None)
            dims[part.__name__] = f"{part.__name__} = torch.export.Dim({part.__name__!r}{told})"
            return part.__name__
        if isinstance(part, Mapping):
            return f"{{{', '.join(f'{key!r}: {write(each)}' for key, each in part.items())}}}"
        if isinstance(part, tuple | list):
            return f"({', '.join(map(write, part))},)"
        return "torch.export.Dim.AUTO" if part is torch.export.Dim.AUTO else repr(part)

    if shapes is None:
        return []
    text = f"dynamic_shapes={write(shapes)}"
    return [*dims.values(), text]


def _first_paragraph(error: Exception) -> str:
    text = str(error).strip().split("\n\n")[0]
    return " ".join(f"{type(error).__name__}: {text}".split())


_View = Callable[[Subject, nn.Module, str], Compiled]
#: The views by their names.
VIEWS: dict[str, _View] = {"dynamo": _show_dynamo, "aten": _show_aten, "export": _show_export}
