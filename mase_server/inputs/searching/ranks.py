"""Changes of the number of dimensions that an error suggests."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from mase_server.inputs.searching.failed import Failed
from mase_server.inputs.searching.operands import OPERANDS, elementwise
from mase_server.inputs.searching.tracking import operands
from mase_server.inputs.searching.trees import Path, put, tensors
from mase_server.inputs.spec import Dim, Inputs, TensorSpec

Changes = Iterator[Inputs]
Match = re.Match[str]

#: From one number of dimensions to another: where each new dimension comes from, a place or a symbol.
LAYOUTS: dict[tuple[int, int], tuple[tuple[int | str, ...], ...]] = {
    (1, 2): ((0, "T"), (0, 1)),
    (1, 3): ((0, "T", 1),),
    (2, 1): ((0,), (1,)),
    (2, 3): ((0, "T", 1), (0, 1, "L")),
    (2, 4): ((0, 1, "H", "W"), (0, "H", "W", 1)),
    (2, 5): ((0, 1, "D", "H", "W"),),
    (3, 1): ((0,),),
    (3, 2): ((0, 2), (0, 1)),
    (3, 4): ((0, "H", "W", 2), (0, 2, "H", "W"), (0, 1, "H", "W"), (0, 1, "S", 2)),
    (3, 5): ((0, 2, "D", "H", "W"), (0, 1, "D", "H", "W")),
    (4, 1): ((0,),),
    (4, 2): ((0, 1), (0, 3)),
    (4, 3): ((0, "T", 1), (0, 1, 2), (0, 2, 3), (1, 2, 3)),
    (4, 5): ((0, "T", 1, 2, 3), (0, 1, "D", 2, 3)),
    (5, 4): ((0, 1, 3, 4), (0, 2, 3, 4)),
    (5, 3): ((0, 2, 1), (0, 1, 2)),
}


def reranked(spec: TensorSpec, count: int) -> Iterator[TensorSpec]:
    """The same tensor with so many dimensions: its channels kept, and what varies given or taken."""
    for layout in LAYOUTS.get((len(spec.dims), count), ()):
        dims: list[Dim] = []
        for source in layout:
            dims.append(source if isinstance(source, str) else (spec.dims[source] if source < len(spec.dims) else 1))
        yield replace(spec, dims=tuple(dims))


def _with_time(failed: Failed) -> Changes:
    """All rows of features at once as sequences, and indices with them."""
    changed = failed.inputs
    alike = [(path, spec) for path, spec in tensors(failed.inputs) if spec.dims[:1] == ("B",) and len(spec.dims) < 3]
    for path, spec in alike if len(alike) > 1 else ():
        if spec.dtype == "f32" and len(spec.dims) == 2 and isinstance(spec.dims[1], int):
            changed = put(changed, path, replace(spec, dims=("B", "T", spec.dims[1])))
        elif spec.dims == ("B",) and spec.fill == "below":
            changed = put(changed, path, replace(spec, dims=("B", "T")))
    yield changed


def _without_time(failed: Failed) -> Changes:
    """All sequences at once as what each sample has one of."""
    changed = failed.inputs
    alike = [
        (path, spec) for path, spec in tensors(failed.inputs) if spec.dims[:2] == ("B", "T") and len(spec.dims) < 4
    ]
    for path, spec in alike if len(alike) > 1 else ():
        changed = put(changed, path, replace(spec, dims=("B", *spec.dims[2:])))
    yield changed


def _all(failed: Failed, pairs: list[tuple[Path, TensorSpec]], count: int) -> Changes:
    if any(len(spec.dims) < count for _, spec in pairs) and count > 2:
        yield from _with_time(failed)
    if any(len(spec.dims) > count for _, spec in pairs):
        yield from _without_time(failed)
    for path, spec in pairs:
        if len(spec.dims) != count:
            yield from (put(failed.inputs, path, each) for each in reranked(spec, count))


def _unpacked(failed: Failed, match: Match) -> Changes:
    """`b, t, c = x.shape`: as many dimensions as there are names."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                names = [each for each in ast.walk(node.value) if isinstance(each, ast.Name)]
                held = [(failed.place(step.value(each)), step.value(each)) for each in names]
                sources = [path for path, _ in held if path] or [
                    path for _, value in held if isinstance(value, torch.Tensor) for path in failed.sources(value)
                ]
                pairs = [(path, spec) for path in sources if isinstance(spec := failed.specs[path], TensorSpec)]
                yield from _all(failed, pairs, _unpacks(node))


def _unpacks(node: ast.Assign) -> int:
    """How many dimensions there are by an assignment from `x.shape` or from a part of it."""
    target, value = node.targets[0], node.value
    count = len(target.elts) if isinstance(target, ast.Tuple) else 0
    match value:
        case ast.Subscript(slice=ast.Slice(lower=ast.Constant(value=int(skipped)), upper=None)) if skipped > 0:
            return count + skipped
        case ast.Subscript(slice=ast.Slice(upper=ast.UnaryOp(operand=ast.Constant(value=int(left))))):
            return count + left
    return count


def _told(failed: Failed, match: Match) -> Changes:
    """The numbers of dimensions that the message wants, the last one first: that with a batch."""
    counts = [int(group) for group in reversed(match.groups()) if group]
    for count in counts:
        yield from _all(failed, failed.suspects(), count)


def _more(failed: Failed, match: Match) -> Changes:
    """One dimension more, or as many as were asked for."""
    suspects = failed.suspects()
    wanted = int(match[2]) + 1 if match.lastindex and match.lastindex > 1 else 0
    for path, spec in suspects:
        counts = dict.fromkeys([max(wanted, len(spec.dims) + 1), len(spec.dims) + 1])
        for count in counts:
            yield from (put(failed.inputs, path, each) for each in reranked(spec, count))


def _one_less(failed: Failed, match: Match) -> Changes:
    """One dimension less, so that what is added to it fits."""
    for path, spec in failed.suspects():
        yield from _all(failed, [(path, spec)], len(spec.dims) - 1)


def _as_indexed(failed: Failed, match: Match) -> Changes:
    """An index, or a mask, of as many dimensions as what it is for."""
    met = list(operands(failed.trail))
    for other in met[1:]:
        path, spec = failed.place(other), failed.leaf(other)
        if path is not None and spec is not None:
            yield from _all(failed, [(path, spec)], met[0].dim())


def _fewer(failed: Failed, match: Match) -> Changes:
    """Two or three dimensions instead of more."""
    for count in (2, 3):
        yield from _all(failed, failed.suspects(), count)


def leveled(failed: Failed) -> Changes:
    """What is broadcast has as many dimensions as each other."""
    if OPERANDS.get(failed.trail.name) is elementwise:
        yield from _of_as_many(failed)


def _as_the_others(failed: Failed, match: Match) -> Changes:
    yield from _of_as_many(failed)


def _of_as_many(failed: Failed) -> Changes:
    """Tensors that are joined or indexed have as many dimensions as each other: what they came from, more or less."""
    met = list(operands(failed.trail))
    for one, other in ((one, other) for one in met for other in met if one.dim() != other.dim()):
        for path in failed.sources(one):
            spec = failed.specs.get(path)
            if isinstance(spec, TensorSpec):
                yield from _all(failed, [(path, spec)], len(spec.dims) + other.dim() - one.dim())


Row = tuple[str, Callable[[Failed, Match], Changes]]

_DIGITS = r"(\d)-?D"
ROWS: tuple[Row, ...] = (
    (r"values to unpack", _unpacked),
    (rf"{_DIGITS}[^\d]*(?:or {_DIGITS})?[^\d]*(?:input|tensor|to conv|but got|instead)", _told),
    (r"Padding size \d is not supported for \dD input", _fewer),
    (r"t\(\) expects a tensor with <= 2 dimensions", _one_less),
    (r"number of sizes provided \((\d)\) must be greater", _one_less),
    (r"supposed to be a vector", lambda failed, match: _all(failed, failed.suspects(), 1)),
    (r"(?:must be|should be) (?:an? )?(\d)-?D", _told),
    (r"but got input of size|mode needs (\d)D", _told),
    (r"len\(dims\) = (\d)", _told),
    (r"expected (\d) dims", _told),
    (r"equation \((\d)\)", _told),
    (r"too many indices", _as_indexed),
    (r"(expected to be in range of \[-\d, \d\], but got) (\d)|too many indices", _more),
    (r"[Nn]umber of dimensions|same number of dimensions|tuple index out of range", _as_the_others),
    (r"tuple index out of range|Got (\d)D input", _more),
)
