"""Changes of structure that an error suggests: dicts, records, lists and tuples, and their members."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from mase_server.tracing.inputs.library.images import as_array
from mase_server.tracing.inputs.searching.choices import Record, guesses_for, halve_scales, makes_tensor, new_guesses
from mase_server.tracing.inputs.searching.failures import Failed
from mase_server.tracing.inputs.searching.trees import Path, iterate_tensor_specs, put_member
from mase_server.tracing.inputs.spec import Inputs, MapSpec, SequenceSpec, Spec, TensorSpec
from mase_server.tracing.models.clues import Step

Changes = Iterator[Inputs]
Match = re.Match[str]

#: The longest list that is made for a forward that compares its length.
MAX_MEMBERS = 12


def _propose_containers(failed: Failed, match: Match) -> Changes:
    """A container with the keys, attributes or members that the failing statement reads from an input."""
    for node, value, step in failed.read():
        path = failed.place(value)
        if path is None:
            continue
        keys = _read_from(ast.unparse(node), step) | _looked_up(ast.unparse(node), step)
        held = failed.specs[path]
        have = dict(held.items) if isinstance(held, MapSpec) else {}
        lacked = [key for key in keys if key not in have]
        if lacked:
            yield put_member(failed.inputs, path, _make_map_spec(failed, path, have, lacked, any(keys.values())))


def _read_from(text: str, step: Step) -> dict[str, bool]:
    """String keys (False) and attributes that no tensor has (True) that a function reads from this expression."""
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
    """Keys that a statement looks up by name (`sparse[name]`), with their values at the failure or in a loop."""
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


def _make_map_spec(failed: Failed, path: Path, have: dict[str, Spec], keys: list[str], attributes: bool) -> MapSpec:
    name = str(path[0]) if len(path) == 1 else ""
    made = {key: guesses_for(failed.model, name, key, failed.inputs)[0] for key in keys}
    held = failed.specs.get(path)
    build = held.build if isinstance(held, MapSpec) and held.build else None
    return MapSpec(tuple({**have, **made}.items()), Record if attributes else build)


def _missing_key(failed: Failed, match: Match) -> Changes:
    """A missing key: of the present dict, else of any."""
    for path, spec in failed.specs.items():
        if isinstance(spec, MapSpec) and match[1] not in dict(spec.items):
            yield put_member(failed.inputs, path, _make_map_spec(failed, path, dict(spec.items), [match[1]], False))


def _propose_spread(failed: Failed, match: Match) -> Changes:
    """`f(**batch)`: a dict with the callee's required arguments."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.node):
            if not isinstance(node, ast.Call):
                continue
            for keyword in node.keywords:
                path = failed.place(step.value(keyword.value)) if keyword.arg is None else None
                if path is not None:
                    names = _wanted_by(step.value(node.func))
                    yield put_member(failed.inputs, path, _make_map_spec(failed, path, {}, names, False))


def _wanted_by(function: Any) -> list[str]:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in parameters if each.default is each.empty and each.kind in plain]


def _missing_arguments(failed: Failed, match: Match) -> Changes:
    """`f(**batch)` if the dict lacks required arguments; a constant module's own parameters are not ours."""
    names = re.findall(r"'(\w+)'", match[1])
    for path, spec in failed.specs.items():
        if isinstance(spec, MapSpec):
            yield put_member(failed.inputs, path, _make_map_spec(failed, path, dict(spec.items), names, False))


def _propose_unpacked(failed: Failed, match: Match) -> Changes:
    """`a, (b, c) = pair`: as many values as there are names."""
    for step in reversed(failed.clue.steps):
        for node in ast.walk(step.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
                path = failed.place(step.value(node.value))
                if path is not None:
                    yield put_member(failed.inputs, path, _like_targets(failed, node.targets[0], path))


def _like_targets(failed: Failed, target: ast.expr, path: Path) -> Spec:
    if isinstance(target, ast.Tuple | ast.List):
        return SequenceSpec(tuple(_like_targets(failed, each, ()) for each in target.elts))
    name = target.id if isinstance(target, ast.Name) else ""
    return new_guesses(failed.model, name, failed.inputs)[0]


def _propose_longer_lists(failed: Failed, match: Match) -> Changes:
    """Lists with one member more, or with as many as the forward has layers in a list."""
    for path, spec in failed.specs.items():
        if isinstance(spec, SequenceSpec) and spec.items:
            yield put_member(failed.inputs, path, replace(spec, items=(*spec.items, spec.items[-1])))


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
                yield put_member(failed.inputs, path, SequenceSpec(halve_scales((member,) * count), is_list=True))


def _as_sequence(failed: Failed, match: Match) -> Changes:
    """Several tensors where one was given."""
    for path, spec in failed.suspects():
        yield put_member(failed.inputs, path, SequenceSpec((spec, spec)))


def _as_tensor(failed: Failed, match: Match) -> Changes:
    """One tensor where several were given."""
    for path, spec in failed.specs.items():
        if isinstance(spec, SequenceSpec) and spec.items and isinstance(spec.items[0], TensorSpec):
            yield put_member(failed.inputs, path, spec.items[0])


def _as_arrays(failed: Failed, match: Match) -> Changes:
    """numpy arrays for the tensors that the failing statement names, and for all that a forward makes tensors of."""
    named = {node.id for node, _, _ in failed.read() if isinstance(node, ast.Name)}
    changed = failed.inputs
    for path, spec in iterate_tensor_specs(failed.inputs):
        if path[0] in named or (len(path) == 1 and makes_tensor(failed.model, str(path[0]))):
            changed = put_member(changed, path, SequenceSpec((spec,), build=as_array))
    yield changed


Row = tuple[str, Callable[[Failed, Match], Changes]]

#: Pattern of `Type: message` -> what could be changed. Every row that fits is asked, in order.
ROWS: tuple[Row, ...] = (
    (r"^KeyError: '(\w+)'", _missing_key),
    (
        r"invalid data type 'str'|must be integers or slices, not str|object has no attribute|not subscriptable"
        r"|only integers, slices",
        _propose_containers,
    ),
    (r"^AssertionError|^ValueError", _as_many),
    (r"after \*\* must be a mapping", _propose_spread),
    (r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)", _missing_arguments),
    (r"values to unpack", _propose_unpacked),
    (r"(?:list|tuple) index out of range|argument 2 is shorter|not enough values", _propose_longer_lists),
    (
        r"must be tuple of Tensors, not Tensor|has no len|iteration over a 0-d|'Tensor' object is not iterable"
        r"|^ValueError: step must be greater than zero",
        _as_sequence,
    ),
    (
        r"must be Tensor, not (?:list|tuple)|'(?:list|tuple)' object has no attribute"
        r"|invalid combination of arguments - got \((?:list|tuple)\b",
        _as_tensor,
    ),
    (r"numpy|np\.ndarray", _as_arrays),
)
