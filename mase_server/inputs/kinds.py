"""Changes of kind that an error suggests: containers, element types, plain numbers, options that are wanted."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from mase_server.inputs.choices import Record, choices_of, guesses_for, halving, new_guesses
from mase_server.inputs.clues import Step
from mase_server.inputs.failed import Failed
from mase_server.inputs.huggingface import LABEL_NAMES
from mase_server.inputs.scalars import scalars
from mase_server.inputs.spec import ConstantSpec, Inputs, MapSpec, SequenceSpec, Spec, TensorSpec
from mase_server.inputs.tracking import operands
from mase_server.inputs.trees import Path, put, shape_of
from mase_server.tracing.bounds import OutOfRangeError

Changes = Iterator[Inputs]
Match = re.Match[str]

#: The longest list that is made for a forward that compares its length.
MAX_MEMBERS = 12


def _parts(failed: Failed, match: Match) -> Changes:
    """A container with the keys, attributes or members that the failing statement reads from something handed over."""
    for node, value, step in failed.read():
        path = failed.place(value)
        if path is None:
            continue
        keys = _read_from(ast.unparse(node), step) | _looked_up(ast.unparse(node), step)
        held = failed.specs[path]
        have = dict(held.items) if isinstance(held, MapSpec) else {}
        lacked = [key for key in keys if key not in have]
        if lacked:
            yield put(failed.inputs, path, _mapped(failed, path, have, lacked, any(keys.values())))


def _read_from(text: str, step: Step) -> dict[str, bool]:
    """String keys (False) and attributes no tensor has (True) that a function reads from what it writes so."""
    found: dict[str, bool] = {}
    asked = {inner.func for inner in ast.walk(step.function) if isinstance(inner, ast.Call)}
    for node in ast.walk(step.function):
        match node:
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(key))) if ast.unparse(owner) == text:
                found.setdefault(key, False)
            case ast.Attribute(value=owner, attr=key) if node not in asked and ast.unparse(owner) == text:
                if not hasattr(torch.Tensor, key) and not hasattr(dict, key):
                    found.setdefault(key, True)
    return found


def _looked_up(text: str, step: Step) -> dict[str, bool]:
    """Keys of names that a statement looks up (`sparse[name]`), as they are when it fails or as a loop names them."""
    items = [
        node for node in ast.walk(step.node) if isinstance(node, ast.Subscript) and ast.unparse(node.value) == text
    ]
    found: list[Any] = [step.value(node.slice) for node in items]
    names = {node.slice.id for node in items if isinstance(node.slice, ast.Name)}
    for loop in (node for node in ast.walk(step.node) if isinstance(node, ast.comprehension)):
        targets = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
        match loop.iter:
            case ast.Call(func=ast.Attribute(value=table)) | (ast.Name() | ast.Attribute() as table) if targets & names:
                held = step.value(table)
                found += list(held.keys() if isinstance(held, dict | torch.nn.ModuleDict) else held or ())
    return {key: False for key in found if isinstance(key, str)}


def _mapped(failed: Failed, path: Path, have: dict[str, Spec], keys: list[str], attributes: bool) -> MapSpec:
    name = str(path[0]) if len(path) == 1 else ""
    made = {key: guesses_for(failed.model, name, key, failed.inputs)[0] for key in keys}
    held = failed.specs.get(path)
    build = held.build if isinstance(held, MapSpec) and held.build else None
    return MapSpec(tuple({**have, **made}.items()), Record if attributes else build)


def _missing_key(failed: Failed, match: Match) -> Changes:
    """A key that was asked for: of the dict at hand, else of any."""
    for path, spec in failed.specs.items():
        if isinstance(spec, MapSpec) and match[1] not in dict(spec.items):
            yield put(failed.inputs, path, _mapped(failed, path, dict(spec.items), [match[1]], False))


def _spread(failed: Failed, match: Match) -> Changes:
    """`f(**batch)`: a dict with what the callee has to be given."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.node):
            if not isinstance(node, ast.Call):
                continue
            for keyword in node.keywords:
                path = failed.place(step.value(keyword.value)) if keyword.arg is None else None
                if path is not None:
                    names = _wanted_by(step.value(node.func))
                    yield put(failed.inputs, path, _mapped(failed, path, {}, names, False))


def _wanted_by(function: Any) -> list[str]:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in parameters if each.default is each.empty and each.kind in plain]


def _missing_arguments(failed: Failed, match: Match) -> Changes:
    """`f(**batch)` where the dict lacks what the callee needs; a constant module's own parameters are not ours."""
    names = re.findall(r"'(\w+)'", match[1])
    for path, spec in failed.specs.items():
        if isinstance(spec, MapSpec):
            yield put(failed.inputs, path, _mapped(failed, path, dict(spec.items), names, False))


def _unpacked(failed: Failed, match: Match) -> Changes:
    """`a, (b, c) = pair`: as many values as there are names."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
                path = failed.place(step.value(node.value))
                if path is not None:
                    yield put(failed.inputs, path, _like_targets(failed, node.targets[0], path))


def _like_targets(failed: Failed, target: ast.expr, path: Path) -> Spec:
    if isinstance(target, ast.Tuple | ast.List):
        return SequenceSpec(tuple(_like_targets(failed, each, ()) for each in target.elts))
    name = target.id if isinstance(target, ast.Name) else ""
    return new_guesses(failed.model, name, failed.inputs)[0]


def _longer(failed: Failed, match: Match) -> Changes:
    """Lists with one member more, or with as many as the forward has layers in a list."""
    for path, spec in failed.specs.items():
        if isinstance(spec, SequenceSpec) and spec.items:
            yield put(failed.inputs, path, replace(spec, items=(*spec.items, spec.items[-1])))


def _as_many(failed: Failed, match: Match) -> Changes:
    """`len(inputs) == len(self.widths)`: a list of as many maps, each half as large as the one before."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.node):
            match node:
                case ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[held]), comparators=[other]):
                    path, count = failed.place(step.value(held)), step.value(other)
                case _:
                    continue
            if path is not None and isinstance(count, int) and 0 < count <= MAX_MEMBERS:
                spec = failed.specs[path]
                member = spec.items[0] if isinstance(spec, SequenceSpec) and spec.items else spec
                yield put(failed.inputs, path, SequenceSpec(halving((member,) * count), is_list=True))


def _as_sequence(failed: Failed, match: Match) -> Changes:
    """Several tensors where one was given."""
    for path, spec in failed.suspects():
        yield put(failed.inputs, path, SequenceSpec((spec, spec)))


def _as_tensor(failed: Failed, match: Match) -> Changes:
    """One tensor where several were given."""
    for path, spec in failed.specs.items():
        if isinstance(spec, SequenceSpec) and spec.items and isinstance(spec.items[0], TensorSpec):
            yield put(failed.inputs, path, spec.items[0])


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
        ordered = [*flat, whole] if isinstance(spec.dims[-1], int) or len(spec.dims) > 2 else [whole, *flat]
        yield from (put(failed.inputs, path, each) for each in ordered)


def _bound(failed: Failed) -> int:
    name, args = failed.trail.name, failed.trail.args
    if name == "one_hot":
        return max(2, int(failed.trail.kwargs.get("num_classes") or (args[1] if len(args) > 1 else 2)))
    if name == "embedding" and len(args) > 1:
        return int(args[1].shape[0])
    if name in ("gather", "index_select") and len(args) > 1 and isinstance(args[1], int):
        return int(args[0].shape[args[1]])
    tensor = next(iter(operands(failed.trail)), None)
    return int(tensor.shape[0]) if name == "getitem" and tensor is not None and tensor.dim() else 2


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
    length = failed.trail.args[0].shape[1 if failed.trail.args[-1] is True else 0] if failed.trail.args else "T"
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
    (r"^KeyError: '(\w+)'", _missing_key),
    (
        r"invalid data type 'str'|must be integers or slices, not str|object has no attribute|not subscriptable"
        r"|only integers, slices",
        _parts,
    ),
    (r"^AssertionError|^ValueError", _as_many),
    (r"after \*\* must be a mapping", _spread),
    (r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)", _missing_arguments),
    (r"values to unpack", _unpacked),
    (r"(?:list|tuple) index out of range|argument 2 is shorter|not enough values", _longer),
    (
        r"must be tuple of Tensors, not Tensor|has no len|iteration over a 0-d|'Tensor' object is not iterable",
        _as_sequence,
    ),
    (r"must be Tensor, not (?:list|tuple)|'(?:list|tuple)' object has no attribute", _as_tensor),
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
    (r"with a bool tensor|type torch.bool", _floats),
    (r"predicate to be bool|boolean masks|only implemented on integer and Boolean|dtype (?:torch\.)?[Bb]ool", _mask),
    (r"NoneType|^AssertionError|^ValueError|\bNone\b", _wanted),
    (r"^(?:ValueError|NotImplementedError|AssertionError|KeyError|UnboundLocalError|RuntimeError)", _another_plain),
)
