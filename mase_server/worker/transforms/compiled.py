"""What PyTorch's compilers make of a model: Dynamo's graphs and breaks, ATen operators, Inductor's code, exports.

It runs in a fork of the trace child, on the model with its weights and the example inputs. The recording of shapes has
added calls to the person's functions; Dynamo would compile these too, so each function gets its plain code back first.
Breaks and recompilations are those that PyTorch logs (`TORCH_LOGS=graph_breaks,recompiles`), read from its loggers.
"""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import linecache
import logging
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from traceback import StackSummary
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn

from mase_server import system
from mase_server.protocol.answers.models import Compiled, GraphBreak, Kernel, Recompile
from mase_server.protocol.records import Edit, Fix
from mase_server.protocol.request import VIEWS as MODULES
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.importing import standins
from mase_server.tracing.importing.importer import find_functions, owns, restore_plain_code
from mase_server.tracing.importing.source import decode_source, read_source
from mase_server.tracing.inputs.spec import MapSpec, SequenceSpec, Spec, TensorSpec, inputs_at, outside_modes
from mase_server.tracing.models.constructions import places_of
from mase_server.tracing.models.found import call_arguments
from mase_server.tracing.models.real import SEED, Real
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.positions import resolve_mark
from mase_server.tracing.recording.values import Rebuild, holds_tensor, tensors_of
from mase_server.worker.proof import apply_edits
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.break_fixes import BreakScene, Candidate
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.pipeline import Applied, Pipeline
from mase_server.worker.transforms.runs import Subject, answer_on_meta, list_namespaces, raise_stopped, run_steps

#: How `torch.export` may take the sizes that vary, the best way first.
_SIZES_OF_EXPORT = ("named sizes", "sizes that torch chooses", "fixed sizes")
#: What is told of sizes that an exported program does not take.
_REFUSES = "refuses "
#: How often the ranges of sizes are taken from what the exporter proposes.
_REFINEMENTS = 2
#: The devices for which Inductor writes Triton.
_GPUS = ("cuda", "xpu")
#: From here on the largest size is no limit.
_ENDLESS = 1 << 31
#: Other sizes at which a compiled or exported model is run; each may cost a compilation.
_SIZES = 2
#: The bytes of all tensors of a forward at other sizes, at most.
_LARGEST_RUN = 2 << 30
#: After this time no more edits are tried; what was found until then is told.
_MENDING_SECONDS = 30.0
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
_FRAME = re.compile(r'^ *File "(?P<file>.+?)", line (?P<line>\d+), in (?P<name>\S+)', re.MULTILINE)
_RECOMPILE = re.compile(r"Recompiling function (?P<name>\S+) in (?P<file>.+):(?P<line>\d+)")
#: An argument of a function that passes on all that it is given.
_GIVEN = re.compile(r"args\[(?P<index>\d+)\]|kwargs\['(?P<name>\w+)'\]")
#: A guard that failed, the number of its compilation before it; where PyTorch has noted it, its line follows.
_FAILED = re.compile(r"^\s*- (?=\d+/\d+)(?:(?P<compilation>[\d/_]+): )?", re.MULTILINE)
_NOTED = re.compile(r"\s{2,}# .*? in \S+(?: (?P<hint>\(HINT: .*\)))?$")
_SIZE = re.compile(
    r"tensor '(?P<name>.+)' size mismatch at index (?P<index>\d+)\. expected (?P<old>\d+), actual (?P<new>\d+)"
)
#: A guard that leaves out the largest size alone, as a mask of that size does where it is cut.
_TOP = re.compile(
    r"in the specified range (?P<name>\w+) <= (?P<size>\d+) satisfy the generated guard .* != (?P=size)\b"
)
#: A result whose class the exporter does not know.
_UNKNOWN = re.compile(r"Found <class '([\w.]+)'> in output, which is not a known type")
#: Where the name of a layer's class has words, as in LayerNorm and LeakyReLU.
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
#: The name of what runs after a graph break.
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")
#: An argument as a guard names it.
_LOCAL = re.compile(r"L\['(\w+)'\]")
#: Lines of a reason that are for PyTorch's own developers, or about where to read more.
_FOR_DEVELOPERS = re.compile(r"\n+\s*(Developer debug context:|For more details about|Note: ).*", re.DOTALL)
#: What colours a message in a terminal.
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
#: Where an object lies in memory, which is new in each run.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ATTEMPT = re.compile(r"^Encountered graph break when attempting to trace .*?\n+")


#: Takes a graph and its example inputs, returns what runs in its place.
_Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass(slots=True)
class Launch:
    """A call of a kernel in Inductor's code. sources: (file, line, name) of the operations that it computes.

    reads, writes: bytes of the buffers that it needs or leaves, each once.
    """

    name: str
    sources: list[tuple[str, int, str]]
    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Code:
    """Inductor's code of one graph. launches: each with the number of the line from which the code prepares it."""

    text: str
    launches: list[tuple[int, Launch]]


@dataclass(slots=True)
class Captured:
    """What was compiled. graphs: of Dynamo or ATen, in order.  results: of each run.  whole: no more graphs are kept.
    logged: messages of PyTorch, by logger.  guards: (compilation, name) -> the stack that asked for a value.
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


def send_compiled(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Send a `Compiled` of the model as it is written, or with its steps unless `original`. name: the view.

    On meta, only check whether there is enough memory for weights.
    """
    subject = Subject.of(live, ask.model, real)
    if ask.name not in VIEWS:
        raise AskError(f"there is no view {ask.name!r}; there are {', '.join(VIEWS)}")
    if real is None:
        return answer_on_meta(subject, ask, send)
    scene = Scene.of(subject, ask, send)
    namespaces = list_namespaces(real.model)
    restore_plain_code(live.request.path, namespaces)
    main = ModuleType("__main__")  # where Dynamo looks for the globals of the file
    main.__dict__.update(*[each for each in namespaces if each.get("__name__") == "__main__"][:1])
    # Its surroundings are not those of `as_program`, whose substitutes Dynamo would compile.
    with guard_program(live.request.scratch), outside_modes(), torch.no_grad(), patch.dict(sys.modules, __main__=main):
        known = set(sys.modules)
        gc.set_threshold(50_000, 20, 1_000)  # compilers make many objects, and the process ends with the answer
        _construct_plainly()
        _learn_again()
        for function in (standins.rearrange, standins.reduce, standins.repeat, standins.einsum):
            torch._dynamo.allow_in_graph(function)  # type: ignore[no-untyped-call]  # as einops does, for which they stand
        made = VIEWS[ask.name](scene)
        if scene.further and ask.name == "dynamo":
            made["breaks"] = _Mender(scene, made["breaks"]).mend_all()
        send({"event": "imported", "modules": list(list_libraries(known, scene.workspace))})
    return send({"value": made})


def _construct_plainly() -> None:
    """Have Dynamo and Python construct modules as if no construction had been recorded; no `__new__` can be removed."""
    from torch._dynamo.variables.user_defined import UserDefinedClassVariable

    def construct(kind: type[nn.Module], *args: Any, **kwargs: Any) -> Any:
        return object.__new__(kind)

    is_standard: Any = UserDefinedClassVariable.is_standard_new
    UserDefinedClassVariable.is_standard_new = lambda variable: (  # type: ignore[method-assign, assignment]
        getattr(variable.value, "__new__", None) is construct or is_standard(variable)
    )
    nn.Module.__new__ = staticmethod(construct)  # type: ignore[assignment]


def _learn_again() -> None:
    """Have Dynamo learn the functions of Python and torch, beside what it knows.

    Where the recorded forward used it, it learned them while the recorder stood in for some. What it was told to allow,
    to leave out or to trace in another way stays: nobody tells it again.
    """
    from torch._dynamo import trace_rules
    from torch._dynamo.variables.builtin import BuiltinVariable

    for learned in vars(trace_rules).values():
        if isinstance(learned, trace_rules.FunctionIdSet) and learned.function_ids is not None:
            learned.function_ids |= {*learned.lazy_initializer()} - trace_rules._polyfilled_function_ids()
    rules = trace_rules.get_torch_obj_rule_map()
    trace_rules.clear_lru_cache()
    again = trace_rules.get_torch_obj_rule_map()
    again.update({**rules, **again})
    BuiltinVariable._constant_fold_functions.cache_clear()


def list_libraries(known: Collection[str], workspace: str) -> Iterator[str]:
    """The loaded modules beside the known ones that have a file outside of the workspace, in the order of their import.

    In another order, some that import each other fail, and leave Inductor without its lowerings.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in known and file and not owns(workspace, file):
            yield name


def import_for_view(view: str) -> None:
    """Import what a view needs, without starting a thread or a process."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    for name in MODULES.get(view, ()):
        import_module(name)


# Dynamo and ATen: the graphs that a backend is given.


def _show_dynamo(scene: Scene) -> Compiled:
    return _show_graphs("dynamo", lambda keep: keep, scene)


def _show_aten(scene: Scene) -> Compiled:
    from torch._dynamo.backends.common import aot_autograd

    return _show_graphs("aten", lambda keep: aot_autograd(fw_compiler=keep), scene)


def _show_joint(scene: Scene) -> Compiled:
    """In training mode, with gradients: each joint graph, and the forward and the backward that it is cut into."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def make_backend(keep: _Compiler) -> Any:
        def cut(joint: fx.GraphModule, inputs: Any, **options: Any) -> Any:
            keep_part("joint", fx.GraphModule(joint, copy.deepcopy(joint.graph)), inputs)
            return min_cut_rematerialization_partition(joint, inputs, **options)

        def keep_part(part: str, graph: fx.GraphModule, inputs: Any) -> Any:
            graph.meta["part"] = part
            return keep(graph, inputs)

        return aot_autograd(
            fw_compiler=partial(keep_part, "forward"), bw_compiler=partial(keep_part, "backward"), partition_fn=cut
        )

    scene.model.train()
    with torch.enable_grad():
        shown = _show_graphs("joint", make_backend, scene, trains=True)
    return shown if "joint" in shown["text"] else {**shown, "text": "# No result depends on a parameter."}


def _show_graphs(
    view: str,
    backend_of: Callable[[_Compiler], Any],
    scene: Scene,
    trains: bool = False,
) -> Compiled:
    return _write_record(view, _compile_graphs(backend_of, scene, trains), scene)


def _compile_graphs(backend_of: Callable[[_Compiler], Any], scene: Scene, trains: bool = False) -> Captured:
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
                name = _LOCAL.sub(r"\1", guard.name)
                captured.guards.setdefault((compilation, name), guard.user_stack)

    backend = backend_of(keep)
    torch._dynamo.reset()
    # PyTorch would empty the processor's caches to measure how fast each function's guards are.
    with _listen(captured.logged), patch("torch._dynamo.guards.profile_guard_manager", create=True, return_value=0.0):
        compiled = torch._dynamo.optimize(compile_graph, guard_export_fn=note_guards)(scene.model)
        try:
            for run in _list_runs(scene):
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
    for found in _FRAME.finditer(trace) if places else ():
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
    found = _FRAME.search(frame)
    assert found is not None
    return found["file"], int(found["line"])


def _run_backward(results: Any) -> None:
    """Compute the gradients of the sum of all results."""
    tensors = [each for each in Rebuild.of(results).tensors if each.requires_grad]
    if tensors:
        torch.stack([each.abs().sum().float() for each in tensors]).sum().backward()  # type: ignore[no-untyped-call]


def _list_runs(scene: Scene) -> Iterator[Callable[[Callable[..., Any]], Any]]:
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
    return _other_sizes(scene.subject) if scene.further else ()


def _other_sizes(subject: Subject) -> list[dict[str, int]]:
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


# Inductor: the code that it would build.


class _CodeTaken(Exception):
    pass


def _show_inductor(scene: Scene) -> Compiled:
    """The code of `TORCH_LOGS=output_code`, for the GPU where there is one, taken before any of it is built."""
    device = None if scene.device == "cpu" else _find_gpu()
    if device is not None:
        shown, failure = _make_code(scene, device)
        if failure is None:
            return shown
        why = f"{device.type} none could be made: {_first_paragraph(failure)}"  # such as a GPU without Triton
        return _make_code(scene, None, f"# This is the code for the CPU: for {why}")[0]
    return _make_code(scene, None)[0]


def _find_gpu() -> torch.device | None:
    """The device of this interpreter for which Inductor writes Triton."""
    accelerator: Any = getattr(torch, "accelerator", None)
    device = accelerator.current_accelerator() if accelerator is not None and accelerator.is_available() else None
    return device if device is not None and device.type in _GPUS else None


def _make_code(scene: Scene, device: torch.device | None, note: str = "") -> tuple[Compiled, Exception | None]:
    """The code below a note, and why none could be made for the device."""
    import torch._functorch.config
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    codes, failures = list[Code](), list[Exception]()
    # Products are padded or not by their times on the device.
    settings = {"fx_graph_cache": False, "compile_threads": 1} | ({"shape_padding": False} if device else {})

    def make_backend(keep: _Compiler) -> _Compiler:
        compile_graph: Any = partial(compile_fx, inner_compile=partial(_take_code, keep, codes, scene.workspace))

        def compile_for_device(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            assert device is not None
            try:
                compile_graph(*_move_graph(graph, inputs, device))
            except Exception as error:  # noqa: BLE001 - whatever Inductor lacks for the device
                failures.append(error)
            return graph.forward

        return compile_graph if device is None else compile_for_device

    with (
        # Triton's code tells of its other settings, such as that of its cache for tuning.
        config.patch(settings),
        torch._functorch.config.patch(enable_autograd_cache=False),
        # It would build programs to see which of the processor's instructions the compiler knows.
        patch("torch._inductor.cpu_vec_isa.VecISA.check_build", lambda isa, code: True),
        patch("torch._inductor.cpp_builder.get_cpp_compiler", lambda: "g++"),
        patch("torch._functorch.aot_autograd.AOT_COUNTER", itertools.count(), create=True),
        _compute_once(),
    ):
        shown = _show_graphs("inductor", make_backend, scene)
    return _write_codes(shown, codes, scene.workspace, [note] if note else []), next(iter(failures), None)


def _move_graph(graph: fx.GraphModule, inputs: Sequence[Any], device: torch.device) -> tuple[fx.GraphModule, list[Any]]:
    """A graph of Dynamo's and its inputs as they were if the model and its inputs were on a device, without memory."""
    from torch._guards import TracingContext
    from torch.utils._pytree import tree_map_only

    mode: Any = TracingContext.get().fake_mode

    def move(tensor: torch.Tensor) -> torch.Tensor:
        known = mode.from_tensor(tensor)  # as Dynamo traced it, with the sizes that vary
        return torch.empty_strided(known.size(), known.stride(), dtype=known.dtype, device=device)

    moved = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    for node in moved.graph.nodes:
        node.args, node.kwargs = tree_map_only(torch.device, lambda _: device, (node.args, node.kwargs))
    moved.recompile()
    with mode:
        return moved, tree_map_only(torch.Tensor, move, list(inputs))


@contextmanager
def _compute_once() -> Iterator[None]:
    """Spare Inductor what it computes again for each kernel or by general algebra."""
    from torch._inductor.codegen import cpp
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler

    find_stride: Any = getattr(cpp, "stride_at_vec_range", None)
    fill: Any = DtypePropagationOpsHandler.__init__

    def find_linear_stride(index: Any, var: Any, vec_length: int | None = None) -> Any:
        """The step of an index as its variable grows by one: of a sum of multiples of variables, its factor."""
        import sympy  # type: ignore[import-untyped]

        stride = sympy.S.Zero
        for term in sympy.Add.make_args(index):
            factor, rest = term.as_coeff_Mul()
            if not (term.is_Integer or rest.is_Symbol):
                return find_stride(index, var, vec_length)
            stride += factor if rest == var else 0
        return stride

    def fill_once(handler: Any, *args: Any) -> None:
        if not vars(handler):  # there is one handler, which each kernel makes again
            fill(handler, *args)

    with (
        patch.object(cpp, "stride_at_vec_range", find_linear_stride, create=True),
        patch.object(DtypePropagationOpsHandler, "__init__", fill_once),
    ):
        yield


def _take_code(
    keep: _Compiler, codes: list[Code], workspace: str, graph: fx.GraphModule, inputs: Sequence[Any], **options: Any
) -> Any:
    """Have Inductor write the code of a graph of ATen operators; the graph itself runs in its place."""
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering

    count, cores = len(codes), system.count_cores()
    runs = copy.deepcopy(graph.graph)
    for node in runs.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default  # to Inductor a view of any strides is one
    run = keep(fx.GraphModule(graph, runs), inputs)

    def write(lowering: Any) -> Any:
        made = lowering.codegen()  # in older versions the two parts, later two objects that have them
        text, places = made if isinstance(made[0], str) else (made[0].value, made[0].line_map)
        launches = [(number, launch) for number, launch in places if isinstance(launch, Launch)]
        for (_, launch), (_, user) in reversed(list(itertools.pairwise(launches))):
            launch.sources = launch.sources or user.sources  # Inductor's own, such as the seeds of a dropout
        codes.append(Code(text, launches))
        raise _CodeTaken

    with ExitStack() as stack:
        stack.enter_context(patch.object(GraphLowering, "compile_to_module", write))
        # This process has one thread; what is built runs in one with as many as there are cores.
        stack.enter_context(patch.object(torch, "get_num_threads", lambda: cores))
        stack.enter_context(_note_launches(workspace))
        try:
            compile_fx_inner(graph, inputs, **options)
        except Exception:  # Inductor wraps what is raised inside of it
            if len(codes) == count:
                raise
    return make_boxed_func(run)


@contextmanager
def _note_launches(workspace: str) -> Iterator[None]:
    """Have Inductor's wrapper note at each call of a kernel what it computes, where it notes lines for its profiles."""
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.virtualized import V

    call_library = Scheduler.codegen_extern_call
    call: Any = PythonWrapperCodegen.generate_kernel_call
    defined: dict[str, Any] = {}
    launches: dict[str, Launch] = {}

    def note_nodes(define: Any) -> Any:
        def define_kernel(scheduling: Any, code: str, nodes: Any, *args: Any, **kwargs: Any) -> Any:
            name = define(scheduling, code, nodes, *args, **kwargs)
            # A schedule of Triton has marks between its nodes, where loops begin and end.
            defined[name] = [node for node in nodes if hasattr(node, "get_nodes")]
            return name

        return define_kernel

    def call_kernel(wrapper: Any, name: str, *args: Any, **kwargs: Any) -> None:
        wrapper.enter_context(_describe_launch(name, defined.get(name, ()), workspace))
        call(wrapper, name, *args, **kwargs)

    def call_extern(scheduler: Any, node: Any) -> None:
        overload = getattr(node.node, "op_overload", None)
        name = getattr(node.node, "python_kernel_name", None) or (f"torch.ops.{overload}" if overload else None)
        if name is not None:
            launches[node.get_name()] = _describe_launch(name, [node], workspace)
            wrapper: Any = V.graph.wrapper_code
            wrapper.enter_context(launches[node.get_name()])
        else:  # one of several results
            for access in node.read_writes.reads:
                if (launch := launches.get(access.name)) is not None:
                    launch.writes += sum(_sum_bytes(node.read_writes.writes).values())
        call_library(scheduler, node)

    with (
        patch.object(CppScheduling, "define_kernel", note_nodes(CppScheduling.define_kernel)),
        patch.object(TritonScheduling, "define_kernel", note_nodes(TritonScheduling.define_kernel)),
        patch.object(PythonWrapperCodegen, "generate_kernel_call", call_kernel),
        patch.object(Scheduler, "codegen_extern_call", call_extern),
    ):
        yield


def _describe_launch(name: str, scheduled: Sequence[Any], workspace: str) -> Launch:
    """What a kernel computes for these nodes of Inductor's scheduler."""
    nodes = [node for group in scheduled for node in group.get_nodes()]
    reads = _sum_bytes({each for node in nodes for each in node.read_writes.reads})
    writes = _sum_bytes({each for node in nodes for each in node.read_writes.writes})
    origins = {origin for node in nodes if node.node is not None for origin in _list_origins(node.node)}
    return Launch(
        name,
        list(dict.fromkeys(_find_sources(origins, workspace))),
        sum(size for read, size in reads.items() if read not in writes),
        sum(size for write, size in writes.items() if _is_used_outside(write, nodes)),
    )


def _is_used_outside(buffer: str, nodes: Sequence[Any]) -> bool:
    from torch._inductor.virtualized import V

    return any(user.node not in nodes for user in V.graph.scheduler.name_to_buf[buffer].users)


def _list_origins(buffer: Any) -> Iterable[fx.Node]:
    """The operations that a buffer computes; one of a library computes one, and Inductor lists what it takes, too."""
    from torch._inductor.ir import ExternKernel

    one = getattr(buffer, "origin_node", None) if isinstance(buffer, ExternKernel) else None
    return buffer.origins if one is None else (one,)


def _sum_bytes(accesses: Iterable[Any]) -> dict[str, int]:
    """The bytes of each buffer that are accessed, at most its size; of a table, at most one element in each turn."""
    from torch._inductor.dependencies import StarDep, WeakDep
    from torch._inductor.virtualized import V

    found: dict[str, int] = {}
    for access in accesses:
        if isinstance(access, WeakDep):
            continue  # only the order of two kernels
        size, turns = access.numbytes_hint(), math.prod(getattr(access, "size", ()))
        if access.is_indirect() and isinstance(turns, int):
            size = min(size, turns * V.graph.get_dtype(access.name).itemsize)
        found[access.name] = found.get(access.name, 0) + size
    return {name: min(size, StarDep(name).numbytes_hint()) for name, size in found.items()}


def _find_sources(origins: Iterable[fx.Node], workspace: str) -> Iterator[tuple[str, int, str]]:
    """The line of the workspace, else the innermost one, that called for each operation, or for what it takes.

    Each with the name of the function or operator that was called there.
    """
    origins = sorted(origins)
    traced = [node for node in origins if node.stack_trace]
    for node in traced or [each for origin in origins for each in origin.all_input_nodes if each.stack_trace]:
        frames = [(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(node.stack_trace or "")]
        own = [frame for frame in frames if owns(workspace, frame[0])]
        called = (node.meta.get("source_fn_stack") or [("", node.target)])[-1][1]
        name = str(getattr(called, "__name__", called))
        name = _WORDS.sub("_", name).lower() if isinstance(called, type) else name
        yield from ((*frame, name) for frame in (own or frames)[-1:])


def _write_codes(shown: Compiled, codes: Sequence[Code], workspace: str, text: list[str]) -> Compiled:
    """The record with the codes below a text: of each kernel, what defines it and calls it belongs to its sources."""
    kernels: dict[str, list[Launch]] = {}
    lines: list[tuple[int, str, int]] = []
    for number, code in enumerate(codes, 1):
        start, own = len(text), code.text.split("\n")
        ends = [*(place for place, _ in code.launches), len(own) + 1][1:]  # without a launch, none
        for (place, launch), end in zip(code.launches, ends, strict=True):
            name = launch.name if len(codes) == 1 else f"{launch.name} (graph {number})"
            kernels.setdefault(name, []).append(launch)
            lines += [
                (start + line, *source[:2])
                for line in (*_find_definition(own, launch.name), *_find_call(own, launch.name, place, end))
                for source in launch.sources
            ]
        text += own
    return {
        **shown,
        "text": "\n".join([*text, *re.findall(r"^# Running .*", shown["text"], re.MULTILINE)]) or shown["text"],
        "lines": sorted(set(lines)),
        "kernels": [_make_kernel(name, launches) for name, launches in kernels.items()],
    }


def _find_definition(text: Sequence[str], name: str) -> range:
    start = next((number for number, line in enumerate(text, 1) if line.startswith(f"{name} = ")), None)
    if start is None:
        return range(0)
    end = next(number for number, line in enumerate(text[start:], start + 1) if line.startswith("'''"))
    return range(start, end + 1)


def _find_call(text: Sequence[str], name: str, start: int, end: int) -> range:
    """From the line that prepares it to the line that calls it."""
    forms = f"{name}(", f"{name}.run("
    call = next((number for number in range(start, end) if any(form in text[number - 1] for form in forms)), start)
    return range(start, call + 1)


def _make_kernel(name: str, launches: Sequence[Launch]) -> Kernel:
    return {
        "name": name,
        "lines": sorted({source[:2] for launch in launches for source in launch.sources}),
        "operations": list(dict.fromkeys(source for launch in launches for source in launch.sources)),
        "calls": len(launches),
        "reads_bytes": sum(launch.reads for launch in launches),
        "writes_bytes": sum(launch.writes for launch in launches),
    }


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
    texts = [f"{title}\n{_write_graph(graph, workspace)}" for title, graph in zip(titles, captured.graphs, strict=True)]
    if captured.failure is not None:
        texts.append(f"# Running {'it' if len(texts) == 1 else 'them'} fails: {_first_paragraph(captured.failure)}")
    whole = [graph for graph in captured.graphs if graph.meta.get("part", "joint") == "joint"]
    text, lines = _shorten_sources("\n\n".join(texts) or "# No operation was captured.", workspace)
    breaks = {(one["file"], one["line"], one["reason"]): one for one in _read_breaks(captured, workspace)}
    return {
        "view": view,
        "text": text,
        "lines": lines,
        "graphs": len(whole),
        "operations": sum(map(_count_operations, whole)),
        "breaks": list(breaks.values()),
        "recompiles": [_read_recompile(message, captured, scene) for message in captured.logged[_RECOMPILES]],
        "sizes": list(_list_sizes(scene)),
        "kernels": [],
        "problem": "",
        "place": None,
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


def _read_breaks(captured: Captured, workspace: str) -> Iterator[GraphBreak]:
    for message in captured.logged[_BREAKS]:
        found = _BREAK.search(message)
        if found is None:
            yield _make_break("", 0, message.strip())
            continue
        frames = [(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(found["trace"] or "")]
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
    """What is not supported, why, and what PyTorch proposes."""
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
    frames = [(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(trace)]
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


# Edits after which a break is gone.


@dataclass(slots=True)
class _Mender:
    """Tries edits: the model's functions get the code of the edited text, and it is compiled and run again."""

    scene: Scene
    breaks: Sequence[GraphBreak]
    functions: dict[str, list[FunctionType]] = field(default_factory=dict)
    plain: list[Any] = field(default_factory=list)

    def mend_all(self) -> list[GraphBreak]:
        """The breaks, each with the first edit after which it is gone while the results are the same bits."""
        end = time.monotonic() + _MENDING_SECONDS
        return [
            {**each, "fix": self._find_fix(each)}
            if owns(self.scene.workspace, each["file"]) and time.monotonic() < end
            else each
            for each in self.breaks
        ]

    def _find_fix(self, found: GraphBreak) -> Fix | None:
        text = decode_source(read_source(found["file"]))
        if found["file"] not in self.functions:
            namespaces = list_namespaces(self.scene.model)
            self.functions[found["file"]] = find_functions(found["file"], namespaces)
        for candidate in BreakScene(found["file"], text, found["line"]).list_candidates():
            try:
                if self._is_gone(found, text, candidate) and self._is_right_on_both_sides(found, text, candidate):
                    return {"title": candidate.title, "preferred": True, "edits": candidate.edits}
            except Exception:  # noqa: BLE001 - whatever an edit breaks, it is not offered
                continue
        return None

    def _is_gone(self, found: GraphBreak, text: str, candidate: Candidate) -> bool:
        with self._edited(found["file"], text, candidate.edits):
            again = _compile_graphs(lambda keep: keep, self.scene)
        lines = _list_old_lines(text, candidate.edits)
        left = {
            (each["file"], lines[each["line"] - 1] if each["file"] == found["file"] else each["line"])
            for each in _read_breaks(again, self.scene.workspace)
        }
        known = {(each["file"], each["line"]) for each in self.breaks}
        return left <= known - {(found["file"], found["line"])} and _are_equal(again.results, self._run_plainly())

    def _is_right_on_both_sides(self, found: GraphBreak, text: str, candidate: Candidate) -> bool:
        if candidate.opposite is None:
            return True
        results = []
        for edits in candidate.opposite:
            with self._edited(found["file"], text, edits):
                results.append([run(self.scene.model) for run in _list_runs(self.scene)])
        return _are_equal(*results)

    def _run_plainly(self) -> list[Any]:
        if not self.plain:
            self.plain += [run(self.scene.model) for run in _list_runs(self.scene)]
        return self.plain

    @contextmanager
    def _edited(self, path: str, text: str, edits: Sequence[Edit]) -> Iterator[None]:
        sources = (text, apply_edits(text, edits))
        versions = dict(_pair_codes(*(compile(each, path, "exec", dont_inherit=True) for each in sources)))
        before = [(function, function.__code__) for function in self.functions[path]]
        for function, code in before:
            new = versions.get(code)
            if new is not None and new.co_freevars == code.co_freevars:
                function.__code__ = new
        try:
            yield
        finally:
            for function, code in before:
                function.__code__ = code


def _pair_codes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Each function's code before an edit with that after it: of one name, in order."""
    groups: list[dict[str, list[CodeType]]] = []
    for code in (old, new):
        group: dict[str, list[CodeType]] = {}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                group.setdefault(constant.co_name, []).append(constant)
        groups.append(group)
    for name, codes in groups[0].items():
        for before, after in zip(codes, groups[1].get(name, ()), strict=False):
            yield before, after
            yield from _pair_codes(before, after)


def _list_old_lines(text: str, edits: Sequence[Edit]) -> list[int]:
    """Of each line of the edited text, the line of the text as it was."""
    lines = list(range(1, text.count("\n") + 2))
    for edit in sorted(edits, key=lambda edit: edit["line"], reverse=True):
        lines[edit["line"] - 1 : edit["end_line"]] = [edit["line"]] * (edit["new_text"].count("\n") + 1)
    return lines


def _are_equal(found: Any, expected: Any) -> bool:
    try:
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    except (AssertionError, TypeError, ValueError):
        return False
    return True


# The exported program.


def _show_export(scene: Scene) -> Compiled:
    """`torch.export`, first without and then with Python's bytecode (`strict`), each with the sizes that may vary.

    What is exported is run at the file's inputs and at other sizes, and compared with the model.
    """
    program, notes = _find_export(scene)
    if program is None:
        return _refuse_export("export", notes, scene.workspace)
    graph = _write_graph(program.graph_module, scene.workspace)
    told = _name_sizes("\n".join([*(f"# {note}" for note in notes), "", graph]), program, scene)
    text, lines = _shorten_sources(told, scene.workspace)
    return _make_export_record("export", text, lines, _count_operations(program.graph_module))


class _Flat(nn.Module):
    """A model whose result is the list of its tensors, since `torch.export` does not know all that can hold them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

        def forward(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
            return list(Rebuild.of(model(*args, **kwargs)).tensors)

        forward.__signature__ = inspect.signature(model.forward)  # type: ignore[attr-defined]
        self.forward = forward


def _find_export(scene: Scene) -> tuple[Any, list[str]]:
    """The program that refuses the fewest other sizes and equals the model, with what to tell of it; None, and why not.

    The first one of these; one for fixed sizes only if there is no other.
    """
    problems, found = list[str](), list[tuple[int, Any, list[str]]]()
    for strict, sizes in itertools.product(
        (False, True), _SIZES_OF_EXPORT if _varying(scene.subject) and not scene.fixed else ("fixed sizes",)
    ):
        mode = f"exported with strict={strict}, {sizes}"
        if found and (sizes == "fixed sizes" or not found[0][0]):
            break
        try:
            program, told = _export(scene, strict, sizes)
        except Exception as error:  # noqa: BLE001 - whatever the exporter raises is the answer
            problems.append(f"{mode}: {_first_paragraph(error)}{_find_place(error, scene.workspace)}")
            if isinstance(scene.model, _Flat) or (holder := _UNKNOWN.search(problems[-1])) is None:
                continue
            flat = replace(scene, model=_Flat(scene.model))
            program, notes = _find_export(flat)
            holds = f"its result is the list of its tensors: register {holder[1]} with torch.utils._pytree to keep it"
            return program, [*notes, holds] if program is not None else notes
        found.append((sum(note.startswith(_REFUSES) for note in told), program, [mode, *told]))
    notes = [f"not {problem}" for problem in problems]
    _, program, told = min(found, key=lambda each: each[0], default=(0, None, []))
    return program, [*told, *notes]


def _show_onnx(scene: Scene) -> Compiled:
    """`torch.onnx.export` of the exported program, as text; weights are told by their names and shapes."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise AskError(
            f"ONNX needs {' and '.join(missing)} in the interpreter of the model: pip install onnx onnxscript", "pass"
        )
    program, notes = _find_export(scene)
    if program is not None:
        try:
            converted: Any = torch.onnx.export(program, dynamo=True, verbose=False)
        except Exception as error:  # noqa: BLE001 - whatever the exporter raises is the answer
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            program, notes = None, [f"not converted to ONNX: {_first_paragraph(cause)}"]
    if program is None:
        return _refuse_export("onnx", notes, scene.workspace)
    graph = converted.model.graph
    for weight in graph.initializers.values():
        weight.const_value = None  # its values are not told
    operators = ", ".join(f"{name or 'ai.onnx'} {version}" for name, version in converted.model.opset_imports.items())
    parts = [*(f"# {note}" for note in notes), f"# operators: {operators}", ""]
    for kind, values in {"input": graph.inputs, "weight": graph.initializers.values(), "output": graph.outputs}.items():
        parts += [f"{kind} {value}" for value in values]
    place = None
    for node in graph:
        frames = list(_FRAME.finditer(node.metadata_props.get("pkg.torch.onnx.stack_trace", "")))
        for frame in ([frame for frame in frames if owns(scene.workspace, frame["file"])] or frames)[-1:]:
            if (frame["file"], frame["line"]) != place:
                place = frame["file"], frame["line"]
                code = linecache.getline(frame["file"], int(frame["line"])).strip()
                parts += ["", f"# File: {frame['file']}:{frame['line']} in {frame['name']}, code: {code}"]
        parts.append(str(node))
    text, lines = _shorten_sources(_name_sizes("\n".join(parts), program, scene), scene.workspace)
    return _make_export_record("onnx", text, lines, len(graph))


def _name_sizes(text: str, program: Any, scene: Scene) -> str:
    """The text of an exported program with the file's names of sizes (`T`) in place of torch's (`s77`)."""
    from torch.utils import _pytree

    given, names = scene.subject.example.arguments, dict[str, str]()
    dims = _find_dims(scene.subject, given)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for placeholder, leaf in zip(
        program.graph_signature.user_inputs, _pytree.tree_leaves(scene.feed(given)), strict=False
    ):
        for size, name in zip(getattr(values.get(placeholder), "shape", ()), dims.get(id(leaf), ()), strict=False):
            if not isinstance(size, torch.SymInt) or str(size) in values:
                continue
            parts = [str(part) for part in size.node.expr.free_symbols]
            # Of a size that has to be a multiple, torch's own name is that of its part: `2*_H`.
            named = {str(size): str(name)} if str(size) in parts else dict.fromkeys(parts, f"_{name}")
            names = named | names
    return re.sub(r"\bs\d+\b", lambda found: names.get(found[0], found[0]), text)


def _find_dims(subject: Subject, given: Mapping[str, Any]) -> dict[int, Sequence[int | str]]:
    """The named sizes of the tensors in arguments, by the id of each."""
    return {
        id(tensor): spec.dims
        for name, entry in subject.traced.session.inputs.entries.items()
        for tensor, spec in zip(Rebuild.of(given[name]).tensors, _list_tensor_specs(entry), strict=False)
        if len(tensor.shape) == len(spec.dims)
    }


def _list_tensor_specs(spec: Spec) -> list[TensorSpec]:
    if isinstance(spec, TensorSpec):
        return [spec]
    items = (
        spec.items
        if isinstance(spec, SequenceSpec)
        else [item for _, item in spec.items]
        if isinstance(spec, MapSpec)
        else []
    )
    return [tensor for item in items for tensor in _list_tensor_specs(item)]


def _refuse_export(view: str, notes: Sequence[str], workspace: str) -> Compiled:
    text, lines = _shorten_sources("".join(f"# {note}\n" for note in notes), workspace)
    problem = "\n".join(line.removeprefix("# ") for line in text.splitlines())
    return {
        **_make_export_record(view, text, lines, 0),
        "graphs": 0,
        "problem": problem,
        "place": next((each[1:] for each in lines), None),
    }


def _make_export_record(view: str, text: str, lines: list[tuple[int, str, int]], operations: int) -> Compiled:
    return {
        "view": view, "text": text, "lines": lines, "graphs": 1, "operations": operations,
        "breaks": [], "recompiles": [], "sizes": [], "kernels": [], "problem": "", "place": None,
    }  # fmt: skip


def _export(scene: Scene, strict: bool, sizes: str) -> tuple[Any, list[str]]:
    """The exported program, and what to tell of it; raises whatever the exporter raises, or for another result."""
    from torch._dynamo.exc import UserError
    from torch.export.dynamic_shapes import refine_dynamic_shapes_from_suggested_fixes

    # A slice of a larger tensor, as files often pass, would tie the sizes to its strides.
    own = {
        name: Rebuild.of(value).changed(torch.Tensor.contiguous) if holds_tensor(value) else value
        for name, value in scene.subject.example.arguments.items()
    }
    args, kwargs = scene.feed(own)
    shapes = None if sizes == "fixed sizes" else _list_dynamic_shapes(scene.subject, own, sizes)
    for attempt in range(_REFINEMENTS + 1):
        try:
            program = torch.export.export(scene.model, args, kwargs, dynamic_shapes=shapes, strict=strict)
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
    notes, run = [*_write_shapes(shapes), *_list_conditions(program)], program.module()
    for other in (None, *(() if shapes is None else _other_sizes(scene.subject))):
        given = own if other is None else inputs_at(scene.subject.traced.session.inputs, other)
        where = ", ".join(f"{name}={other[name]}" for name in _varying(scene.subject)) if other else "the file's inputs"
        try:
            found = _run_once(run, scene, given)
        except (AssertionError, RuntimeError) as error:
            if other is None or "Guard failed" not in str(error):
                raise
            notes.append(f"{_REFUSES}{where}: {' '.join(str(error).split())}")
            continue
        rounding = _tell_rounding(found, _run_once(scene.model, scene, given), where)
        notes.append(f"equal to the model{rounding} at {where}")
    return program, notes


def _run_once(call: Callable[..., Any], scene: Scene, given: Mapping[str, Any]) -> Any:
    """The result for copies of the inputs, and what became of these: a model may write into them."""
    args, kwargs = scene.feed(copy.deepcopy(dict(given)))
    torch.manual_seed(SEED)
    return call(*args, **kwargs), args, kwargs


def _list_conditions(program: Any) -> Iterator[str]:
    """The ranges of its dynamic dimensions, and its guards on inputs where this version of torch keeps them."""
    for symbol, bounds in program.range_constraints.items():
        if not symbol.is_Symbol:  # a multiple of another one
            continue
        largest = f" and at most {bounds.upper}" if bounds.upper < _ENDLESS else ""
        yield f"{symbol} is at least {bounds.lower}{largest}"
    for guard in getattr(program, "_guards_code", None) or ():
        yield "guard: " + _LOCAL.sub(r"\1", guard)


def _tell_rounding(found: Any, expected: Any, where: str) -> str:
    """ "" for the same bits, else the largest difference; raises if it is more than that of rounding."""
    if _are_equal(found, expected):
        return ""
    differs = f"the exported program differs from the model at {where}: "
    torch.testing.assert_close(found, expected, equal_nan=True, msg=lambda told: differs + " ".join(told.split()))
    pairs = zip(*(Rebuild.of(each).tensors for each in (found, expected)), strict=True)
    largest = max(
        (float((one.double() - other.double()).abs().nan_to_num().max()) for one, other in pairs if one.numel()),
        default=0.0,
    )
    return f" but for rounding, by {largest:.0e}"


def _exchange_dim(shapes: Any, new: Any) -> Any:
    """The same shapes with `new` in place of the dimension of its name."""
    from torch.utils import _pytree

    return _pytree.tree_map(lambda dim: new if getattr(dim, "__name__", None) == new.__name__ else dim, shapes)


def _varying(subject: Subject) -> tuple[str, ...]:
    return () if subject.traced.probed is None else tuple(subject.traced.probed.symbols)


def _list_dynamic_shapes(subject: Subject, given: Mapping[str, Any], sizes: str) -> Any:
    """The `dynamic_shapes` of `torch.export`: the dimensions whose symbols may vary, each with its name."""
    from torch.utils import _pytree

    named = sizes == "named sizes"
    varying = {name: torch.export.Dim(name) if named else torch.export.Dim.AUTO for name in _varying(subject)}
    dims = _find_dims(subject, given)

    def shape(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return None
        return {place: varying[dim] for place, dim in enumerate(dims.get(id(leaf), ())) if dim in varying}

    return {name: _pytree.tree_map(shape, given[name]) for name in subject.traced.session.inputs.entries}


def _write_shapes(shapes: Any) -> list[str]:
    """The code that exports with these shapes, to be copied."""
    dims: dict[str, str] = {}

    def write(part: Any) -> str:
        if isinstance(part, torch.export.Dim) and (root := getattr(part, "root", None)) is not None:
            write(root)
            return part.__name__  # `2*_H`, an expression
        if isinstance(part, torch.export.Dim):
            ends = {"min": part.min if part.min > 2 else None, "max": part.max if part.max < _ENDLESS else None}
            told = "".join(f", {name}={end}" for name, end in ends.items() if end is not None)
            dims[part.__name__] = f"{part.__name__} = torch.export.Dim({part.__name__!r}{told})"
            return part.__name__
        if isinstance(part, Mapping):
            return f"{{{', '.join(f'{key!r}: {write(each)}' for key, each in part.items())}}}"
        if isinstance(part, list):
            return f"[{', '.join(map(write, part))}]"
        if isinstance(part, tuple):
            return f"({', '.join(map(write, part))},)"
        return "torch.export.Dim.AUTO" if part is torch.export.Dim.AUTO else repr(part)

    if shapes is None:
        return []
    text = f"dynamic_shapes={write(shapes)}"
    return [*dims.values(), text]


def _find_place(error: Exception, workspace: str) -> str:
    """` (file:line)` of the innermost line of the workspace that an error tells or passed through; "" without one."""
    traced = "".join(traceback.format_tb(error.__traceback__))
    for text in (str(error), traced):
        own = [frame for frame in _FRAME.finditer(text) if owns(workspace, frame["file"])]
        if own:
            return f" ({own[-1]['file']}:{own[-1]['line']})"
    return ""


def _first_paragraph(error: BaseException) -> str:
    text = _COLOURS.sub("", str(error)).strip().split("\n\n")[0]
    return " ".join(f"{type(error).__name__}: {text}".split())


_View = Callable[[Scene], Compiled]
#: The views by their names.
VIEWS: dict[str, _View] = {
    "dynamo": _show_dynamo, "aten": _show_aten, "joint": _show_joint, "inductor": _show_inductor,
    "export": _show_export, "onnx": _show_onnx,
}  # fmt: skip
