"""The code that Inductor would build for a model, and the kernels of each line of the source."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import fx

from mase_server import system
from mase_server.protocol.answers.models import Compiled, Kernel
from mase_server.tracing.importing.importer import owns
from mase_server.worker.transforms.captures import FRAME, Compiler, Scene, read_first_paragraph, show_graphs

#: The devices for which Inductor writes Triton.
_GPUS = ("cuda", "xpu")
#: Where the name of a layer's class has words, as in LayerNorm and LeakyReLU.
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")


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


class _CodeTaken(Exception):
    pass


def show_inductor(scene: Scene) -> Compiled:
    """The code of `TORCH_LOGS=output_code`, for the GPU where there is one, taken before any of it is built."""
    device = None if scene.device == "cpu" else _find_gpu()
    if device is not None:
        shown, failure = _make_code(scene, device)
        if failure is None:
            return shown
        why = f"{device.type} none could be made: {read_first_paragraph(failure)}"  # such as a GPU without Triton
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

    def make_backend(keep: Compiler) -> Compiler:
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
        shown = show_graphs("inductor", make_backend, scene)
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
    keep: Compiler, codes: list[Code], workspace: str, graph: fx.GraphModule, inputs: Sequence[Any], **options: Any
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
    """The launch of a kernel that computes these nodes of Inductor's scheduler."""
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
        frames = [(frame["file"], int(frame["line"])) for frame in FRAME.finditer(node.stack_trace or "")]
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
