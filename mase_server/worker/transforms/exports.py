"""The program that `torch.export` makes of a model, as it is and as ONNX, with the sizes that it takes."""

from __future__ import annotations

import copy
import inspect
import itertools
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from mase_server.protocol.answers.models import Compiled
from mase_server.tracing.importing.importer import owns
from mase_server.tracing.inputs.spec import MapSpec, SequenceSpec, Spec, TensorSpec, inputs_at
from mase_server.tracing.recording.state import SEED
from mase_server.tracing.recording.values import Rebuild, holds_tensor
from mase_server.worker.transforms.ask import AskError
from mase_server.worker.transforms.captures import (
    FRAME,
    LOCAL,
    Scene,
    are_equal,
    count_operations,
    find_place,
    list_other_sizes,
    read_first_paragraph,
    shorten_sources,
    write_graph,
)
from mase_server.worker.transforms.runs import Subject

#: How `torch.export` may take the sizes that vary, the best way first.
_SIZES_OF_EXPORT = ("named sizes", "sizes that torch chooses", "fixed sizes")
#: What is told of sizes that an exported program does not take.
_REFUSES = "refuses "
#: How often the ranges of sizes are taken from what the exporter proposes.
_REFINEMENTS = 2
#: From here on the largest size is no limit.
_ENDLESS = 1 << 31
#: A guard that leaves out the largest size alone, as a mask of that size does where it is cut.
_TOP = re.compile(
    r"in the specified range (?P<name>\w+) <= (?P<size>\d+) satisfy the generated guard .* != (?P=size)\b"
)
#: A result whose class the exporter does not know.
_UNKNOWN = re.compile(r"Found <class '([\w.]+)'> in output, which is not a known type")


def show_export(scene: Scene) -> Compiled:
    """`torch.export`, first without and then with Python's bytecode (`strict`), each with the sizes that may vary.

    An exported program is run at the file's inputs and at other sizes, and compared with the model.
    """
    program, notes = _find_export(scene)
    if program is None:
        return _refuse_export("export", notes, scene.workspace)
    graph = write_graph(program.graph_module, scene.workspace)
    told = _name_sizes("\n".join([*(f"# {note}" for note in notes), "", graph]), program, scene)
    text, lines = shorten_sources(told, scene.workspace)
    return _make_export_record("export", text, lines, count_operations(program.graph_module))


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
            problems.append(f"{mode}: {read_first_paragraph(error)}{find_place(error, scene.workspace)}")
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


def show_onnx(scene: Scene) -> Compiled:
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
            program, notes = None, [f"not converted to ONNX: {read_first_paragraph(cause)}"]
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
        frames = list(FRAME.finditer(node.metadata_props.get("pkg.torch.onnx.stack_trace", "")))
        for frame in ([frame for frame in frames if owns(scene.workspace, frame["file"])] or frames)[-1:]:
            if (frame["file"], frame["line"]) != place:
                place = frame["file"], frame["line"]
                code = linecache.getline(frame["file"], int(frame["line"])).strip()
                parts += ["", f"# File: {frame['file']}:{frame['line']} in {frame['name']}, code: {code}"]
        parts.append(str(node))
    text, lines = shorten_sources(_name_sizes("\n".join(parts), program, scene), scene.workspace)
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
    text, lines = shorten_sources("".join(f"# {note}\n" for note in notes), workspace)
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
    for other in (None, *(() if shapes is None else list_other_sizes(scene.subject))):
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
        yield "guard: " + LOCAL.sub(r"\1", guard)


def _tell_rounding(found: Any, expected: Any, where: str) -> str:
    """ "" for the same bits, else the largest difference; raises if it is more than that of rounding."""
    if are_equal(found, expected):
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
