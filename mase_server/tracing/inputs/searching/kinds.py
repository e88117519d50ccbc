"""Changes of kind that an error suggests: element types, plain numbers, missing options."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from mase_server.dtypes import SHORT
from mase_server.tracing.inputs.library.huggingface import LABEL_NAMES
from mase_server.tracing.inputs.searching.choices import choices_of
from mase_server.tracing.inputs.searching.failures import Failed, is_check
from mase_server.tracing.inputs.searching.operands import MOST_RANK, OPERANDS, compare_elementwise, list_operands
from mase_server.tracing.inputs.searching.singles import list_scalar_values
from mase_server.tracing.inputs.searching.trees import Path, iterate_tensor_specs, put_member, shape_of
from mase_server.tracing.inputs.searching.words import apply_words, count_bins, read_message
from mase_server.tracing.inputs.spec import DEFAULT_BELOW, ConstantSpec, Dim, Inputs, TensorSpec
from mase_server.tracing.recording.rules import OutOfRangeError

Match = re.Match[str]

#: The longest list that is made for a forward that compares its length.
MAX_MEMBERS = 12


def _propose_plain_values(failed: Failed, match: Match) -> Iterator[Inputs]:
    """A number, a flag or a word where a tensor was given."""
    for path, _ in failed.suspects():
        parameter = inspect.signature(failed.model.forward).parameters.get(str(path[-1]))
        kind = parameter.annotation if parameter is not None else None
        for value in list_scalar_values(str(path[-1]), kind):
            yield put_member(failed.inputs, path, ConstantSpec(value))


def _another_plain(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Another value for a number, a flag or a word that the failing statements read."""
    for path, spec in failed.specs.items():
        if isinstance(spec, ConstantSpec):
            others = [value for value in list_scalar_values(str(path[-1])) if value != spec.value]
            yield from (put_member(failed.inputs, path, ConstantSpec(value)) for value in others)


def _out_of_range(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Whole numbers below what they index."""
    error = failed.error
    known = isinstance(error, OutOfRangeError)
    for path in failed.sources(error.index) if isinstance(error, OutOfRangeError) else list(failed.specs):
        spec = failed.specs[path]
        if not isinstance(spec, TensorSpec) or spec.dtype.startswith("b"):
            continue
        if spec.dtype.startswith("f"):  # features of which some columns are cast to indices
            yield from [put_member(failed.inputs, path, replace(spec, fill="zeros"))] * known
            continue
        if isinstance(error, OutOfRangeError):
            yield from (put_member(failed.inputs, path, each) for each in _iterate_within_bound(spec, error))
        if not known or spec.fill != "lengths":
            yield put_member(failed.inputs, path, replace(spec, fill="zeros", argument=None))


def _iterate_within_bound(spec: TensorSpec, error: OutOfRangeError) -> Iterator[TensorSpec]:
    if spec.fill == "lengths":
        yield replace(spec, argument=max(1, error.bound - 1))
    elif spec.fill in ("below", ""):
        had = spec.argument if isinstance(spec.argument, int) else error.largest + 1
        # An offset may be added to the input.
        yield replace(spec, fill="below", argument=max(1, min(error.bound, had - error.largest + error.bound - 1)))
        yield replace(spec, fill="below", argument=max(1, error.bound))


def _propose_indices(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Integers in place of other values, below the size that they index as far as it is known."""
    bound = _find_index_bound(failed)
    for path, spec in failed.suspects():
        if spec.dtype == "i64":
            continue
        whole = TensorSpec("i64", spec.dims, "below", bound)
        flat = [TensorSpec("i64", dims, "below", bound) for dims in (("B", "T"), ("B",)) if len(spec.dims) > len(dims)]
        # Features never are indices: a tensor of several dimensions is replaced by a smaller one.
        is_features = len(spec.dims) > 2 or isinstance(spec.dims[-1] if spec.dims else None, int)
        ordered = [*flat, whole] if is_features else [whole, *flat]
        yield from (put_member(failed.inputs, path, each) for each in ordered)


def _find_index_bound(failed: Failed) -> int:
    name, args = failed.trail.name, failed.trail.args
    if name == "one_hot":
        return max(2, int(failed.trail.kwargs.get("num_classes") or (args[1] if len(args) > 1 else 2)))
    size = None
    if name == "embedding" and len(args) > 1:
        size = _get_size(args[1], 0)
    elif name in ("gather", "index_select") and len(args) > 1:
        size = _get_size(*args[:2])
    elif name == "getitem":
        size = _get_size(next(iter(list_operands(failed.trail)), None), 0)
    return DEFAULT_BELOW if size is None else size


def _get_size(value: Any, at: Any) -> int | None:
    """The size of a tensor's dimension; None where it has no such dimension, or is none."""
    fits = isinstance(value, torch.Tensor) and isinstance(at, int) and -value.dim() <= at < value.dim()
    return int(value.shape[at]) if fits else None


def _propose_floats(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Floats where whole numbers were given."""
    for path, spec in failed.suspects():
        if not spec.dtype.startswith("f"):
            yield put_member(failed.inputs, path, TensorSpec("f32", spec.dims, "ones" if spec.dtype == "bool" else ""))


def propose_element_types(failed: Failed) -> Iterator[Inputs]:
    """The type of the other operand, where one is computed in 16 bits or in 64 and the other is not."""
    if not re.search(r"type|Half|Double", failed.text):
        return
    operands = [each for each in list_operands(failed.trail) if each.dtype.is_floating_point]
    for one, other in itertools.permutations(operands, 2):
        had, wanted = (SHORT[str(each.dtype).removeprefix("torch.")] for each in (one, other))
        for path in failed.sources(one) if had != wanted else ():
            spec = failed.specs.get(path)
            if isinstance(spec, TensorSpec) and spec.dtype == had:
                yield put_member(failed.inputs, path, replace(spec, dtype=wanted))


def _propose_spectra(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Complex numbers where real ones were given: a spectrum."""
    for path, spec in failed.suspects():
        if spec.dtype.startswith("f"):
            bins = count_bins(failed.model) if len(spec.dims) > 2 else None
            for dims in ((*spec.dims[:-1], bins), (*spec.dims[:-2], bins, spec.dims[-2])) if bins is not None else ():
                yield put_member(failed.inputs, path, TensorSpec("c64", dims))
            yield put_member(failed.inputs, path, TensorSpec("c64", spec.dims))


def _propose_masks(failed: Failed, match: Match) -> Iterator[Inputs]:
    """True or false where numbers were given."""
    yield from (
        put_member(failed.inputs, path, TensorSpec("bool", spec.dims, spec.fill if spec.fill == "causal" else "ones"))
        for path, spec in failed.suspects()
        if spec.dtype != "bool"
    )


def _propose_lengths(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Lengths of a batch's sequences, longest first."""
    args, kwargs = failed.trail.args, failed.trail.kwargs
    batch_first = kwargs.get("batch_first") is True or args[-1:] == (True,)
    known = _get_size(args[0] if args else kwargs.get("input"), 1 if batch_first else 0)
    length = "T" if known is None else known
    for path, _ in failed.suspects():
        symbol = "T" if shape_of(failed.inputs, TensorSpec("f32", ("T",))) == (length,) else length
        yield put_member(failed.inputs, path, TensorSpec("i64", ("B",), "lengths", symbol))


def propose_equal(failed: Failed) -> Iterator[Inputs]:
    """Whole numbers that are all the same, for a check that compares them: `assert (labels[a] == labels[b]).all()`."""
    step = failed.clue.last()
    if step is None or not is_check(failed.error) or not _COMPARED.search(ast.unparse(step.node)):
        return
    read = {failed.place(value) for _, value, _ in failed.read()}
    for path, spec in iterate_tensor_specs(failed.inputs):
        if path in read and spec.dtype == "i64" and spec.fill in ("", "below"):
            yield put_member(failed.inputs, path, replace(spec, fill="zeros", argument=None))


#: A comparison of all values of tensors.
_COMPARED = re.compile(r"==.*\.all\(|\ball\(.*==|\b(equal|allclose)\(")


#: Errors that a parameter may cause by not being there.
_ABSENT = re.compile(r"NoneType|^AssertionError|^ValueError|\bNone\b")


def _propose_wanted(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Optional parameters that the failing statements read and that were not given."""
    clue = failed.clue
    if not (is_check(failed.error) or _ABSENT.search(failed.text)):
        return
    names = [name for name in clue.culprits if clue.arguments[name] is None and name not in LABEL_NAMES]
    for name in names[:2]:
        if name not in failed.inputs.entries:
            for choice in choices_of(failed.model, name)[:4]:
                yield Inputs({**failed.inputs.entries, name: choice.spec}, failed.inputs.sizes)


Row = tuple[str, Callable[[Failed, Match], Iterator[Inputs]]]

#: Pattern of `Type: message` -> what could be changed. Every row that fits is asked, in order.
ROWS: tuple[Row, ...] = (
    (
        r"^OutOfRangeError|index out of range in self|out of bounds for dimension|Class values must be smaller",
        _out_of_range,
    ),
    (
        r"single element can be converted|interpreted as an integer|be tuple of ints|invalid combination of arguments"
        r"|Boolean value of Tensor|__bool__\(\)|must be (?:int|float|str|bool|Number)|slice indices|unhashable"
        r"|cannot be converted to Scalar",
        _propose_plain_values,
    ),
    (r"lengths. (?:argument|array)|[Ll]ength of all samples", _propose_lengths),
    (
        r"Expected tensor for argument #\d 'indices'|applicable to index tensor|used as indices must be"
        r"|Expected dtype int|Categorical|log_prob|[Ee]xpected .*\bLong\b",
        _propose_indices,
    ),
    (
        r"one type,|same dtype|could not infer output dtype|implemented for '(?:Long|Bool)|can't be cast|Found dtype",
        _propose_floats,
    ),
    (r"with a bool tensor|type torch.bool|Promotion of int", _propose_floats),
    (r"non-complex dtype|only supported for complex|complex-valued input|[Ee]xpected a complex", _propose_spectra),
    (
        r"predicate to be bool|boolean masks|only implemented on integer and Boolean|dtype (?:torch\.)?[Bb]ool",
        _propose_masks,
    ),
    (r"", _propose_wanted),
    (r"^(?:ValueError|NotImplementedError|AssertionError|KeyError|UnboundLocalError|RuntimeError)", _another_plain),
)


# Changes of the number of dimensions that an error suggests.

#: From one number of dimensions to another: the source of each new dimension, a place or a symbol.
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


def change_rank(spec: TensorSpec, count: int) -> Iterator[TensorSpec]:
    """The same tensor with `count` dimensions: channels stay, and variable dimensions are added or removed."""
    for layout in LAYOUTS.get((len(spec.dims), count), ()):
        dims: list[Dim] = []
        for source in layout:
            dims.append(source if isinstance(source, str) else (spec.dims[source] if source < len(spec.dims) else 1))
        yield replace(spec, dims=tuple(dims))


def _with_time(failed: Failed) -> Iterator[Inputs]:
    """All rows of features at once as sequences, and indices with them."""
    changed = failed.inputs
    alike = [
        (path, spec)
        for path, spec in iterate_tensor_specs(failed.inputs)
        if spec.dims[:1] == ("B",) and len(spec.dims) < 3
    ]
    for path, spec in alike if len(alike) > 1 else ():
        if spec.dtype == "f32" and len(spec.dims) == 2 and isinstance(spec.dims[1], int):
            changed = put_member(changed, path, replace(spec, dims=("B", "T", spec.dims[1])))
        elif spec.dims == ("B",) and spec.fill == "below":
            changed = put_member(changed, path, replace(spec, dims=("B", "T")))
    yield changed


def _without_time(failed: Failed) -> Iterator[Inputs]:
    """All sequences at once become one value for each sample."""
    changed = failed.inputs
    alike = [
        (path, spec)
        for path, spec in iterate_tensor_specs(failed.inputs)
        if spec.dims[:2] == ("B", "T") and len(spec.dims) < 4
    ]
    for path, spec in alike if len(alike) > 1 else ():
        changed = put_member(changed, path, replace(spec, dims=("B", *spec.dims[2:])))
    yield changed


def _change_all_ranks(failed: Failed, pairs: list[tuple[Path, TensorSpec]], count: int) -> Iterator[Inputs]:
    if any(len(spec.dims) < count for _, spec in pairs) and count > 2:
        yield from _with_time(failed)
    if any(len(spec.dims) > count for _, spec in pairs):
        yield from _without_time(failed)
    for path, spec in pairs:
        if len(spec.dims) != count:
            yield from (put_member(failed.inputs, path, each) for each in change_rank(spec, count))


def _match_unpacking(failed: Failed, match: Match) -> Iterator[Inputs]:
    """`b, t, c = x.shape`: as many dimensions as there are names."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                reads = [each for each in ast.walk(node.value) if isinstance(each, ast.Name | ast.Attribute)]
                held = [value for each in reads if isinstance(value := step.value(each), torch.Tensor)]
                sources = [path for value in held if (path := failed.place(value)) is not None] or [
                    path for value in held for path in failed.sources(value)
                ]
                pairs = [(path, spec) for path in sources if isinstance(spec := failed.specs[path], TensorSpec)]
                yield from _change_all_ranks(failed, pairs, _count_unpacked(node))


def _count_unpacked(node: ast.Assign) -> int:
    """The number of dimensions, by an assignment from `x.shape` or from a part of it."""
    target, value = node.targets[0], node.value
    count = len(target.elts) if isinstance(target, ast.Tuple) else 0
    match value:
        case ast.Subscript(slice=ast.Slice(lower=ast.Constant(value=int(skipped)), upper=None)) if skipped > 0:
            return count + skipped
        case ast.Subscript(slice=ast.Slice(upper=ast.UnaryOp(operand=ast.Constant(value=int(left))))):
            return count + left
    return count


def _match_told_ranks(failed: Failed, match: Match) -> Iterator[Inputs]:
    """The numbers of dimensions in the message, the last one, which has a batch, first."""
    counts = [int(group) for group in reversed(match.groups()) if group]
    for count in counts:
        yield from _change_all_ranks(failed, failed.suspects(), count)


def _match_convolved_ranks(failed: Failed, match: Match) -> Iterator[Inputs]:
    """One dimension more for a convolution that took a batch for one sample."""
    wanted = re.search(r"conv\D*(\d)d$", failed.trail.name)
    for tensor in itertools.islice(list_operands(failed.trail), int(wanted is not None)):
        for path in failed.sources(tensor) if wanted and tensor.dim() == int(wanted[1]) + 1 else ():
            spec = failed.specs.get(path)
            # An index is convolved once it is embedded, in as many dimensions more.
            if isinstance(spec, TensorSpec) and spec.dtype.startswith("f"):
                yield from _change_all_ranks(failed, [(path, spec)], len(spec.dims) + 1)


def _match_resized_ranks(failed: Failed, match: Match) -> Iterator[Inputs]:
    """A map with as many sides as the size that it is resized to; a mask has those of the images, if there are any."""
    more = match[2].count(",") - match[1].count(",")
    sides = any({"H", "W"} <= set(spec.dims) for _, spec in iterate_tensor_specs(failed.inputs))
    for path, spec in failed.suspects():
        count = len(spec.dims) + more
        if sides and (spec.dtype, count) == ("bool", 3):
            yield put_member(failed.inputs, path, TensorSpec("bool", ("B", "H", "W"), "ones"))
        yield from _change_all_ranks(failed, [(path, spec)], count)


def _match_compared_ranks(failed: Failed, match: Match) -> Iterator[Inputs]:
    """`if len(shape) == 4`, `x.dim() in (3, 4)`: the numbers of dimensions that the failing functions ask for."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.function):
            match node:
                case ast.Compare(left=held, ops=[ast.Eq() | ast.NotEq() | ast.In()], comparators=[other]):
                    if _RANK.search(ast.unparse(held)):
                        counts = [each.value for each in ast.walk(other) if isinstance(each, ast.Constant)]
                        for count in (each for each in counts if type(each) is int and 0 < each < 6):
                            yield from _change_all_ranks(failed, failed.suspects(), count)


def _add_dimension(failed: Failed, match: Match) -> Iterator[Inputs]:
    """One more dimension, or as many as were asked for."""
    suspects = failed.suspects()
    wanted = int(match[2]) + 1 if match.lastindex and match.lastindex > 1 else 0
    for path, spec in suspects:
        counts = dict.fromkeys([max(wanted, len(spec.dims) + 1), len(spec.dims) + 1])
        for count in counts:
            yield from (put_member(failed.inputs, path, each) for each in change_rank(spec, count))


def _propose_maps(failed: Failed, match: Match) -> Iterator[Inputs]:
    """`size[2], size[3]` of a row for each sample: an image of scores, and of labels, instead of one."""
    changed = failed.inputs
    for path, spec in iterate_tensor_specs(failed.inputs):
        if spec.dims[:1] == ("B",) and len(spec.dims) <= 2 and not {"H", "W"} & set(spec.dims):
            changed = put_member(changed, path, replace(spec, dims=(*spec.dims, "H", "W")))
    yield changed


def _one_less(failed: Failed, match: Match) -> Iterator[Inputs]:
    """One dimension less, so that the added tensor fits."""
    for path, spec in failed.suspects():
        yield from _change_all_ranks(failed, [(path, spec)], len(spec.dims) - 1)


def _match_repeats(failed: Failed, match: Match) -> Iterator[Inputs]:
    """`x.unsqueeze(1).repeat(1, n, 1)`: as many dimensions less as were too many for the repeats."""
    tensor, *repeats = failed.trail.args
    count = len(repeats[0]) if isinstance(repeats[0], list | tuple) else len(repeats)
    yield from _change_sources(failed, tensor, count - tensor.dim())


def _match_counts(failed: Failed, match: Match) -> Iterator[Inputs]:
    """As many dimensions more as a call counts too few in one of its tensors, which may be a stack of several."""
    operands = list(list_operands(failed.trail))
    at = int(match.groupdict().get("at") or 0)
    if at < len(operands):
        yield from _change_sources(failed, operands[at], int(match["wanted"]) - int(match["had"]))


def _change_sources(failed: Failed, tensor: torch.Tensor, more: int) -> Iterator[Inputs]:
    """So many dimensions more for an input that a tensor was computed from."""
    for path in failed.sources(tensor):
        spec = failed.specs.get(path)
        if isinstance(spec, TensorSpec):
            yield from _change_all_ranks(failed, [(path, spec)], len(spec.dims) + more)


def _as_indexed(failed: Failed, match: Match) -> Iterator[Inputs]:
    """An index, or a mask, with as many dimensions as the tensor that it selects from."""
    met = list(list_operands(failed.trail))
    for other in met[1:]:
        path, spec = failed.place(other), failed.leaf(other)
        if path is not None and spec is not None:
            yield from _change_all_ranks(failed, [(path, spec)], met[0].dim())


def _drop_dimensions(failed: Failed, match: Match) -> Iterator[Inputs]:
    """Two or three dimensions instead of more."""
    for count in (2, 3):
        yield from _change_all_ranks(failed, failed.suspects(), count)


def propose_matrices(failed: Failed) -> Iterator[Inputs]:
    """`x.T @ x`: rows of features, where more dimensions are transposed than a matrix has."""
    pairs = ((step, node) for step in reversed(failed.clue.steps) for node in ast.walk(step.node))
    for step, node in pairs:
        value = step.value(node.value) if isinstance(node, ast.Attribute) and node.attr == "T" else None
        if not isinstance(value, torch.Tensor) or value.dim() < 3:
            continue
        for path in failed.sources(value):
            spec = failed.specs[path]
            if isinstance(spec, TensorSpec) and (count := len(spec.dims) + 2 - value.dim()) > 0:
                known = (each.spec for each in (choices_of(failed.model, str(path[0])) if len(path) == 1 else ()))
                alike = (each for each in known if isinstance(each, TensorSpec) and each.dtype == spec.dtype)
                for each in (*(other for other in alike if len(other.dims) == count), *change_rank(spec, count)):
                    yield put_member(failed.inputs, path, each)


def level_ranks(failed: Failed) -> Iterator[Inputs]:
    """Tensors that are broadcast together get the same number of dimensions."""
    if OPERANDS.get(failed.trail.name) is compare_elementwise:
        yield from _as_the_others(failed)


def _as_the_others(failed: Failed, match: Match | None = None) -> Iterator[Inputs]:
    """Tensors that are joined or indexed get the same number of dimensions: their sources get fewer or more."""
    met = list(list_operands(failed.trail))
    pairs = ((one, other) for one in met for other in met if one.dim() != other.dim())
    for one, other in sorted(pairs, key=lambda pair: pair[0].dim() < pair[1].dim()):
        for path in failed.sources(one):
            spec = failed.specs.get(path)
            if isinstance(spec, TensorSpec) and 0 < (count := len(spec.dims) + other.dim() - one.dim()) <= MOST_RANK:
                yield from _change_all_ranks(failed, [(path, spec)], count)


#: The number of dimensions, as code asks for it.
_RANK = re.compile(r"\.(ndim|dim\(\)|ndimension\(\))$|^len\([\w.]*(shape|size\(\)|dims)\)$")
_DIGITS = r"(\d)-?D"
RANKS: tuple[Row, ...] = (
    (r"values to unpack", _match_unpacking),
    (r"Number of dimensions of tensors must match", _as_the_others),
    (r"Invalid channel dimensions|to have \d+ channels, but got", _match_convolved_ranks),
    (r"spatial dimensions of \[([\d, ]+)\] and output size of \D*([\d, ]+)\]", _match_resized_ranks),
    (r"^(?:UnboundLocal|Assertion|Value|NotImplemented|Runtime|Type)Error", _match_compared_ranks),
    (rf"{_DIGITS}[^\d]*(?:or {_DIGITS})?[^\d]*(?:input|tensor|to conv|but got|instead)", _match_told_ranks),
    (r"Padding size \d is not supported for \dD input", _drop_dimensions),
    (r"t\(\) expects a tensor with <= 2 dimensions", _one_less),
    (r"repeat dims can not be smaller", _match_repeats),
    (r"number of sizes provided \((\d)\) must be greater", _one_less),
    (r"supposed to be a vector", lambda failed, match: _change_all_ranks(failed, failed.suspects(), 1)),
    (r"(?:must be|should be) (?:an? )?(\d)-?D", _match_told_ranks),
    (r"but got input of size|mode needs (\d)D", _match_told_ranks),
    (r"input\.dim\(\) = (?P<had>\d) is not equal to len\(dims\) = (?P<wanted>\d)", _match_counts),
    (r"expected (\d) dims", _match_told_ranks),
    (r"equation \((?P<wanted>\d)\).*dimensions \((?P<had>\d)\) for operand (?P<at>\d)", _match_counts),
    (r"too many indices", _as_indexed),
    (r"(expected to be in range of \[-\d, \d\], but got) (\d)|too many indices", _add_dimension),
    (r"[Nn]umber of dimensions|same number of dimensions|tuple index out of range", _as_the_others),
    (r"tuple index out of range", _propose_maps),
    (r"tuple index out of range|Got (\d)D input", _add_dimension),
)


def _match_told_shape(failed: Failed, match: Match) -> Iterator[Inputs]:
    """A check of the forward's own that says which shape it wants."""
    pairs = [(path, spec) for path, spec in iterate_tensor_specs(failed.inputs)]
    named = [(path, spec) for path, spec in pairs if re.search(rf"\b{re.escape(str(path[-1]))}\b", failed.text)]
    together = failed.inputs
    changes: list[Inputs] = []
    for path, spec in named or (failed.suspects() or pairs)[:2]:
        told = read_message(failed.model, str(failed.error), str(path[-1]))
        found = list(apply_words(told, failed.model, [spec])) if told is not None else []
        changes += [put_member(failed.inputs, path, each) for each in found]
        together = put_member(together, path, found[0]) if found else together
    yield from [together, *changes] if len(named) > 1 else [*changes, together]


#: What a check of the forward's own says if it tells a shape.
_TELLING = r"^(?:Value|Assertion|Runtime|Type)Error: .*\b(?:must|should|[Ee]xpect\w*)\b"


def propose_told_shape(failed: Failed) -> Iterator[Inputs]:
    """The shape that a check of the forward's own tells, unless it failed with that."""
    if is_check(failed.error) and (match := re.search(_TELLING, failed.text)) is not None:
        yield from (each for each in _match_told_shape(failed, match) if each != failed.inputs)


#: A check of the forward's own that says a shape or a number of dimensions; nothing else is likelier.
TOLD_RANKS: tuple[Row, ...] = (
    (_TELLING, _match_told_shape),
    (r"(?:must|should) (?:have|be) (\d) dim", _match_told_ranks),
)
