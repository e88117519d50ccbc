"""Changes of kind that an error suggests: element types, plain numbers, options that are wanted."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from mase_server.inputs.generate import DEFAULT_BELOW
from mase_server.inputs.library.huggingface import LABEL_NAMES
from mase_server.inputs.searching.choices import choices_of
from mase_server.inputs.searching.failed import Failed
from mase_server.inputs.searching.scalars import scalars
from mase_server.inputs.searching.tracking import operands
from mase_server.inputs.searching.trees import put, shape_of
from mase_server.inputs.spec import ConstantSpec, Inputs, TensorSpec
from mase_server.tracing.errors.bounds import OutOfRangeError

Changes = Iterator[Inputs]
Match = re.Match[str]

#: The longest list that is made for a forward that compares its length.
MAX_MEMBERS = 12


def _plain(failed: Failed, match: Match) -> Changes:
    """A number, a flag or a word where a tensor was given."""
    for path, _ in failed.suspects():
        parameter = inspect.signature(failed.model.forward).parameters.get(str(path[-1]))
        kind = parameter.annotation if parameter is not None else None
        for value in scalars(str(path[-1]), kind):
            yield put(failed.inputs, path, ConstantSpec(value))


def _another_plain(failed: Failed, match: Match) -> Changes:
    """Another value for a number, a flag or a word that the failing statements read."""
    for path, spec in failed.specs.items():
        if isinstance(spec, ConstantSpec):
            others = [value for value in scalars(str(path[-1])) if value != spec.value]
            yield from (put(failed.inputs, path, ConstantSpec(value)) for value in others)


def _out_of_range(failed: Failed, match: Match) -> Changes:
    """Whole numbers below what they index."""
    error = failed.error
    known = isinstance(error, OutOfRangeError)
    for path in failed.sources(error.index) if isinstance(error, OutOfRangeError) else list(failed.specs):
        spec = failed.specs[path]
        if not isinstance(spec, TensorSpec) or spec.dtype.startswith(("f", "b")):
            continue
        if isinstance(error, OutOfRangeError):
            yield from (put(failed.inputs, path, each) for each in _within(spec, error))
        if not known or spec.fill != "lengths":
            yield put(failed.inputs, path, replace(spec, fill="zeros", argument=None))


def _within(spec: TensorSpec, error: OutOfRangeError) -> Iterator[TensorSpec]:
    if spec.fill == "lengths":
        yield replace(spec, argument=max(1, error.bound - 1))
    elif spec.fill in ("below", ""):
        had = spec.argument if isinstance(spec.argument, int) else error.largest + 1
        # An offset may be added to what was handed over.
        yield replace(spec, fill="below", argument=max(1, min(error.bound, had - error.largest + error.bound - 1)))
        yield replace(spec, fill="below", argument=max(1, error.bound))


def _indices(failed: Failed, match: Match) -> Changes:
    """Whole numbers where other values were given, below what they index as far as that can be seen."""
    bound = _bound(failed)
    for path, spec in failed.suspects():
        if spec.dtype == "i64":
            continue
        whole = TensorSpec("i64", spec.dims, "below", bound)
        flat = [TensorSpec("i64", dims, "below", bound) for dims in (("B", "T"), ("B",)) if len(spec.dims) > len(dims)]
        # Features never are indices: a tensor of several dimensions stands for something smaller.
        is_features = len(spec.dims) > 2 or isinstance(spec.dims[-1] if spec.dims else None, int)
        ordered = [*flat, whole] if is_features else [whole, *flat]
        yield from (put(failed.inputs, path, each) for each in ordered)


def _bound(failed: Failed) -> int:
    name, args = failed.trail.name, failed.trail.args
    if name == "one_hot":
        return max(2, int(failed.trail.kwargs.get("num_classes") or (args[1] if len(args) > 1 else 2)))
    size = None
    if name == "embedding" and len(args) > 1:
        size = _size(args[1], 0)
    elif name in ("gather", "index_select") and len(args) > 1:
        size = _size(*args[:2])
    elif name == "getitem":
        size = _size(next(iter(operands(failed.trail)), None), 0)
    return DEFAULT_BELOW if size is None else size


def _size(value: Any, at: Any) -> int | None:
    """The size of a tensor's dimension; None where it has no such dimension, or is none."""
    fits = isinstance(value, torch.Tensor) and isinstance(at, int) and -value.dim() <= at < value.dim()
    return int(value.shape[at]) if fits else None


def _floats(failed: Failed, match: Match) -> Changes:
    """Floats where whole numbers were given."""
    for path, spec in failed.suspects():
        if not spec.dtype.startswith("f"):
            yield put(failed.inputs, path, TensorSpec("f32", spec.dims, "ones" if spec.dtype == "bool" else ""))


def _mask(failed: Failed, match: Match) -> Changes:
    """True or false where numbers were given."""
    yield from (
        put(failed.inputs, path, TensorSpec("bool", spec.dims, spec.fill if spec.fill == "causal" else "ones"))
        for path, spec in failed.suspects()
        if spec.dtype != "bool"
    )


def _lengths(failed: Failed, match: Match) -> Changes:
    """Lengths of a batch's sequences, longest first."""
    args, kwargs = failed.trail.args, failed.trail.kwargs
    batch_first = kwargs.get("batch_first") is True or args[-1:] == (True,)
    known = _size(args[0] if args else kwargs.get("input"), 1 if batch_first else 0)
    length = "T" if known is None else known
    for path, _ in failed.suspects():
        symbol = "T" if shape_of(failed.inputs, TensorSpec("f32", ("T",))) == (length,) else length
        yield put(failed.inputs, path, TensorSpec("i64", ("B",), "lengths", symbol))


def _wanted(failed: Failed, match: Match) -> Changes:
    """Optional parameters that the failing statements read and that were not given."""
    clue = failed.clue
    names = [name for name in clue.culprits if clue.arguments[name] is None and name not in LABEL_NAMES]
    for name in names[:2]:
        if name not in failed.inputs.entries:
            for choice in choices_of(failed.model, name)[:4]:
                yield Inputs({**failed.inputs.entries, name: choice.spec}, failed.inputs.sizes)


Row = tuple[str, Callable[[Failed, Match], Changes]]

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
        _plain,
    ),
    (r"lengths. (?:argument|array)|[Ll]ength of all samples", _lengths),
    (
        r"Expected tensor for argument #\d 'indices'|applicable to index tensor|used as indices must be"
        r"|Expected dtype int|Categorical|log_prob|[Ee]xpected .*\bLong\b",
        _indices,
    ),
    (
        r"one type,|same dtype|could not infer output dtype|implemented for '(?:Long|Bool)|can't be cast|Found dtype",
        _floats,
    ),
    (r"with a bool tensor|type torch.bool|Promotion of int", _floats),
    (r"predicate to be bool|boolean masks|only implemented on integer and Boolean|dtype (?:torch\.)?[Bb]ool", _mask),
    (r"NoneType|^AssertionError|^ValueError|\bNone\b", _wanted),
    (r"^(?:ValueError|NotImplementedError|AssertionError|KeyError|UnboundLocalError|RuntimeError)", _another_plain),
)
