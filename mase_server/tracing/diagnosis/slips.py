"""Slips that Python itself refuses: a misspelt name, a pair that was not unpacked, a missing `super().__init__()`.

A table of patterns of exception texts; each row looks at the frame where it happened, whose variables still have
their values, and reports what they really are.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from mase_server.protocol.records import Edit, Fix
from mase_server.tracing.diagnosis import scenes
from mase_server.tracing.diagnosis.failure import Complaint
from mase_server.tracing.diagnosis.scenes import Scene, get_raw_position
from mase_server.tracing.importing.source import list_nodes, parse_file
from mase_server.tracing.recording.values import tensor_type

Told = tuple[Complaint, list[Fix]]
_Slip = Callable[[Scene, re.Match[str]], Told | None]

_TABLE: list[tuple[type[BaseException], re.Pattern[str], _Slip]] = []


def explain_slip(scene: Scene) -> Told | None:
    """Explain a slip and its fix; None for an unknown exception."""
    text = str(scene.error)
    for kind, pattern, explainer in _TABLE:
        match = pattern.search(text) if isinstance(scene.error, kind) else None
        found = explainer(scene, match) if match is not None else None
        if found is not None:
            return found
    return None


def _register_slip(kind: type[BaseException], pattern: str) -> Callable[[_Slip], _Slip]:
    """Register for exceptions of a kind whose text matches a pattern."""

    def register(explainer: _Slip) -> _Slip:
        _TABLE.append((kind, re.compile(pattern), explainer))
        return explainer

    return register


# Names.

#: Names that everybody gives a module -> the import.
_USUAL_IMPORTS = {
    "np": "import numpy as np",
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "plt": "import matplotlib.pyplot as plt",
    "pd": "import pandas as pd",
    "math": "import math",
    "os": "import os",
}


@_register_slip(NameError, r"name '(\w+)' is not defined")
def _explain_undefined_name(scene: Scene, match: re.Match[str]) -> Told | None:
    name, frame = match[1], scene.frame
    if frame is None:
        return None
    text = f"The name `{name}` is not defined here"
    receiver = frame.f_locals.get("self")
    if isinstance(receiver, nn.Module) and name in _list_attribute_names(receiver):
        return _build_explanation(
            "name-error", f"{text}. The model has it: `self.{name}`.", _fix_name(scene, name, f"self.{name}")
        )
    if (line := _find_import(frame, name)) is not None:
        return _build_explanation("missing-package", f"{text}: its import in line {line} of the file failed.", None)
    if name in _USUAL_IMPORTS:
        return _build_explanation("name-error", f"{text}: `{_USUAL_IMPORTS[name]}` is missing.", None)
    near = find_closest_name(name, [*frame.f_locals, *frame.f_globals, *vars(builtins)])
    if near is None:
        return _build_explanation("name-error", f"{text}: define or import it.", None)
    return _build_explanation("name-error", f"{text}. Did you mean `{near}`?", _fix_name(scene, name, near))


def _find_import(frame: FrameType, name: str) -> int | None:
    """The line in which the file of a running function imports a name for all of it, such as an extension that is not
    built."""
    try:
        tree = parse_file(frame.f_code.co_filename)
    except (OSError, SyntaxError, ValueError):
        return None
    nodes = list_nodes(tree)
    inside = {inner for node in nodes if isinstance(node, ast.FunctionDef | ast.Lambda) for inner in ast.walk(node)}
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) and node not in inside)
    return next((node.lineno for node in imports if name in (each.asname or each.name for each in node.names)), None)


def _fix_name(scene: Scene, old: str, new: str) -> Fix | None:
    here = scene.here()
    if here is None:
        return None
    found = [
        node for node in scenes.nodes_in(here[0].tree, get_raw_position(scene.frames[0])) if isinstance(node, ast.Name)
    ]
    named = [node for node in found if node.id == old]
    return here[0].change(here[0].edit(named[0], new)) if named else None


@_register_slip(TypeError, r"got an unexpected keyword argument '(\w+)'")
def _explain_keyword(scene: Scene, match: re.Match[str]) -> Told | None:
    call, name = _find_failed_call(scene), match[1]
    if call is None or scene.frame is None:
        return None
    given = next((keyword for keyword in call.keywords if keyword.arg == name), None)
    callee = _value_of(call.func, scene.frame)
    near = find_closest_name(name, _parameter_names(callee)) if callee is not None else None
    if given is None or near is None:
        return None
    here = scene.here()
    assert here is not None
    line, column, _, _ = here[0].places.span(given)  # type: ignore[arg-type]
    edit: Edit = {
        "file": here[0].path, "line": line, "column": column, "end_line": line, "end_column": column + len(name),
        "new_text": near,
    }  # fmt: skip
    text = f"{ast.unparse(call.func)} takes no argument `{name}`. Did you mean `{near}`?"
    return _build_explanation("type-error", text, here[0].change(edit))


def _parameter_names(callee: Any) -> list[str]:
    """Every keyword that a callable or a class's constructors take."""
    if isinstance(callee, nn.Module):
        callee = callee.forward
    functions = [vars(base).get("__init__") for base in callee.__mro__] if isinstance(callee, type) else [callee]
    found: dict[str, None] = {}
    for function in functions:
        try:
            found |= dict.fromkeys(inspect.signature(function).parameters)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
    return [name for name in found if name not in ("self", "args", "kwargs")]


def find_closest_name(name: str, names: list[str]) -> str | None:
    """The name that was probably meant."""
    others = [other for other in dict.fromkeys(names) if other != name and not other.startswith("__")]
    # Short names have to agree more closely: `ort` is not `sorted`.
    found = [other for other in others if other.lower() == name.lower()][:1]
    found = found or difflib.get_close_matches(name, others, n=1, cutoff=0.6 if len(name) > 4 else 0.75)
    if not found and len(name) == 2:
        found = [other for other in others if other in (name[0], name[1])][:1]
    return found[0] if found else None


# Constructors.


@_register_slip(
    AttributeError, r"before Module\.__init__\(\) call|object has no attribute '_(modules|parameters|buffers)'"
)
def _no_super(scene: Scene, match: re.Match[str]) -> Told | None:
    text = "The model is not set up yet: call `super().__init__()` first in `__init__`."
    place = next(((frame, at) for frame, at in _find_incomplete_constructors(scene)), None)
    if place is None:
        return None
    function, file = place
    body = function.body
    first = body[1] if len(body) > 1 and ast.get_docstring(function) is not None else body[0]
    line, column, _, _ = file.places.span(first)
    edit = file.insert(line, column, "super().__init__()\n" + " " * column)
    return _build_explanation("constructor-error", text, scenes.make_fix("Insert `super().__init__()`", edit))


def _find_incomplete_constructors(scene: Scene) -> Iterator[tuple[scenes.Function, scenes.File]]:
    """The constructors around the innermost frame that never call `super().__init__`."""
    here, function = scene.here(), scene.function()
    if here is not None and function is not None and function.name == "__init__":
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        if not any(scenes.last_name(call.func) == "__init__" for call in calls):
            yield function, here[0]


@_register_slip(TypeError, r"must be tuple of ints|object cannot be interpreted as an integer|must be int, not float")
def _explain_float(scene: Scene, match: re.Match[str]) -> Told | None:
    """A size that is a float because of a `/`."""
    call, frame = _find_failed_call(scene), scene.frame
    for node in [] if call is None else [*call.args, *(keyword.value for keyword in call.keywords)]:
        if frame is None or type(value := _value_of(node, frame)) is not float:
            continue
        assert call is not None
        text = f"`{ast.unparse(node)}` is {value!r}, a float, but {ast.unparse(call.func)} takes a whole number"
        here, source = scene.here(), _source_of(scene, node)
        if here is None or source is None or not isinstance(source.value, ast.BinOp):
            return _build_explanation("type-error", f"{text}.", None)
        fix = None
        if isinstance(source.value.op, ast.Div):
            left, right = here[0].source(source.value.left), here[0].source(source.value.right)
            fix = here[0].change(here[0].edit(source.value, f"{left} // {right}"))
            text += f": `/` gives a float, `//` a whole number (line {source.lineno})"
        return _build_explanation("type-error", f"{text}.", fix)
    return None


# Values that are no tensors.


@dataclass(frozen=True, slots=True)
class _Culprit:
    """A value in a failed expression that should be a tensor: its source text, and its value."""

    node: ast.expr
    value: Any


@_register_slip(
    TypeError, r"must be Tensor, not|unsupported operand type|can't multiply sequence|NoneType|expected Tensor as"
)
@_register_slip(TypeError, r"received an invalid combination of arguments|must be tuple of Tensors|argument 'input'")
@_register_slip(AttributeError, r"object has no attribute")
def _no_tensor(scene: Scene, match: re.Match[str]) -> Told | None:
    for culprit in _find_culprits(scene):
        name = ast.unparse(culprit.node)
        if culprit.value is None:
            return _explain_none(scene, culprit, name)
        if isinstance(culprit.value, tuple) and hasattr(culprit.value, "values"):
            return _named_pair(scene, culprit, name)
        if isinstance(culprit.value, tuple) and any(
            isinstance(item, torch.Tensor) for item in _flatten_items(culprit.value)
        ):
            return _explain_tuple(scene, culprit, name)
        if isinstance(culprit.value, nn.Module):
            text = f"`{name}` is the layer {type(culprit.value).__name__} itself, not what it gives: call it."
            return _build_explanation("forward-error", text, None)
    return None


def _find_culprits(scene: Scene) -> Iterator[_Culprit]:
    """The names in the failed expression whose values are None, tuples or modules."""
    here, frame = scene.here(), scene.frame
    if here is None or frame is None:
        return
    nodes: list[ast.expr] = []
    match here[1]:
        case ast.BinOp(left=left, right=right):
            nodes = [left, right]
        case ast.Call(func=ast.Attribute(value=receiver), args=args, keywords=keywords):
            owner = _value_of(receiver, frame)
            nodes = [*args, *(keyword.value for keyword in keywords)]
            nodes += [receiver] if not isinstance(owner, nn.Module | ModuleType) else []
        case ast.Call(args=args, keywords=keywords):
            nodes = [*args, *(keyword.value for keyword in keywords)]
        case ast.Attribute(value=value) | ast.Subscript(value=value):
            nodes = [value]
    for node in nodes:
        found = _value_of(node, frame)
        # A module whose own attribute is missing has another slip.
        owner = isinstance(found, nn.Module) and isinstance(here[1], ast.Attribute)
        if not owner and (found is None or isinstance(found, tuple | nn.Module)):
            yield _Culprit(node, found)


def _explain_none(scene: Scene, culprit: _Culprit, name: str) -> Told:
    text = f"`{name}` is None here"
    source = _source_of(scene, culprit.node)
    made = source.value if source is not None else None
    if isinstance(made, ast.Call) and scene.frame is not None:
        module = _value_of(made.func, scene.frame)
        if isinstance(module, nn.Module):
            text += f": the forward of {type(module).__name__} (`{ast.unparse(made.func)}`) returns nothing"
            return _build_explanation("type-error", f"{text}.", _fix_missing_return(scene, module))
    function = scene.function()
    defaults = [] if function is None else [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
    if name in defaults:
        text += f": it is an argument that may be left out. Ask `if {name} is not None` first"
    return _build_explanation("type-error", f"{text}.", None)


def _fix_missing_return(scene: Scene, module: nn.Module) -> Fix | None:
    """`return` inserted before the last expression of a forward that returns nothing."""
    code = type(module).forward.__code__
    file = scene.file(code.co_filename)
    function = scenes.function_at(file.tree, code.co_firstlineno + 1)
    if function is None or any(isinstance(node, ast.Return) for node in ast.walk(function)):
        return None
    last = function.body[-1]
    if not isinstance(last, ast.Expr):
        return None
    line, column, _, _ = file.places.span(last)
    return scenes.make_fix("Insert `return`", file.insert(line, column, "return "))


def _named_pair(scene: Scene, culprit: _Culprit, name: str) -> Told:
    kind = type(culprit.value).__name__
    text = f"`{name}` is the pair (values, indices) that {kind} gives along a dimension: take `.values`."
    here, source = scene.here(), _source_of(scene, culprit.node)
    made = culprit.node if source is None else source.value
    return _build_explanation(
        "type-error", text, None if here is None else scenes.convert_operand(here[0], made, "values")
    )


def _explain_tuple(scene: Scene, culprit: _Culprit, name: str) -> Told:
    here, source = scene.here(), _source_of(scene, culprit.node)
    parts = ", ".join(map(_describe_kind, culprit.value))
    text = f"`{name}` is a tuple ({parts}), not one tensor"
    if source is None or here is None:
        return _build_explanation("type-error", f"{text}: take it apart.", None)
    rest = "_" if len(culprit.value) == 2 else "*_"
    text += f": it was assigned what `{ast.unparse(source.value)}` gives (line {source.lineno})"
    target = source.targets[0]
    edit = here[0].edit(target, f"{name}, {rest}")
    taken = here[0].change(edit)
    return _build_explanation("type-error", f"{text}. Take it apart: `{name}, {rest} = ...`.", taken)


def _source_of(scene: Scene, node: ast.expr) -> ast.Assign | None:
    """The only assignment of a name before the line where it is used, in the same function."""
    here, function = scene.here(), scene.function()
    if here is None or not isinstance(node, ast.Name):
        return None
    found = scenes.find_assignments(function or here[0].tree, node.id, scene.frames[0].line)
    return found[-1] if found else None


# Unpacking.


@_register_slip(ValueError, r"(?:too many|not enough) values to unpack \(expected (\d+)(?:, got (\d+))?\)")
def _explain_unpacking(scene: Scene, match: re.Match[str]) -> Told | None:
    here, frame = scene.here(), scene.frame
    if here is None or frame is None:
        return None
    statement = _find_statement(here[0].tree, scene.frames[0].line)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Tuple):
        return None
    targets, value = statement.targets[0].elts, statement.value
    tensor = _find_sized_tensor(value, frame)
    if tensor is not None:
        count, thing = tensor.dim(), f"the {tensor.dim()} sizes of {_describe_shape_source(value, tensor)}"
        fix = _fix_targets(here[0], statement.targets[0], targets, count)
        return _build_explanation("type-error", f"{len(targets)} names are given {thing}.", fix)
    rows = _value_of(value, frame)
    if isinstance(rows, torch.Tensor):
        name = ast.unparse(value)
        text = f"`{name}` {_describe_kind(rows).removeprefix('tensor ')} is taken apart into {len(targets)} names"
        return _build_explanation("type-error", f"{text}, but has {len(rows)} rows.", None)
    if isinstance(value, ast.Call) and scenes.last_name(value.func) == "chunk":
        method = isinstance(value.func, ast.Attribute) and _value_of(value.func.value, frame) is not torch
        fix = scenes.set_option(here[0], value, "chunks", 0 if method else 1, len(targets))
        text = f"{len(targets)} names are given another number of chunks by `{ast.unparse(value)}`."
        return _build_explanation("type-error", text, fix)
    got = f", but there are {match[2]}" if match[2] else ", but there are more"
    text = f"`{ast.unparse(value)}` is taken apart into {len(targets)} names{got}."
    return _build_explanation("type-error", text, None)


def _find_sized_tensor(node: ast.expr, frame: FrameType) -> torch.Tensor | None:
    """`x` in `x.shape` and `x.size()`."""
    node = node.func if isinstance(node, ast.Call) and not node.args else node
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "size"):
        found = _value_of(node.value, frame)
        return found if isinstance(found, torch.Tensor) else None
    return None


def _fix_targets(file: scenes.File, whole: ast.Tuple, targets: list[ast.expr], count: int) -> Fix | None:
    """`_` added or removed at the end, if only such names are concerned."""
    texts = [ast.unparse(target) for target in targets]
    changed = texts[:count] + ["_"] * (count - len(texts))
    if texts[-1] != "_" or any(text != "_" for text in texts[count:]):
        return None
    new = ", ".join(changed)
    return file.change(file.edit(whole, new))


def _describe_shape_source(node: ast.expr, tensor: torch.Tensor) -> str:
    with torch._C.DisableTorchFunction():
        kind = tensor_type(tensor)
    inner = node.func if isinstance(node, ast.Call) else node
    name = ast.unparse(inner.value) if isinstance(inner, ast.Attribute) else "the value"
    return f"`{name}` {list(kind.shape)}"


# Operators.


@_register_slip(RuntimeError, r"Subtraction, the `-` operator, with a bool tensor is not supported")
@_register_slip(TypeError, r"~ \(operator\.invert\) is only implemented on integer and Boolean")
def _explain_boolean_mask(scene: Scene, match: re.Match[str]) -> Told | None:
    here = scene.here()
    if here is None:
        return None
    match here[1]:
        case ast.BinOp(left=ast.Constant(value=1), right=right):
            name = here[0].source(right)
            text = f"`{name}` is a mask of booleans, which cannot be subtracted: its opposite is `~{name}`."
            return _build_explanation("dtype-mismatch", text, here[0].change(here[0].edit(here[1], f"~{name}")))
        case ast.UnaryOp(operand=operand):
            name = here[0].source(operand)
            text = f"`~` needs a mask of booleans (or integers), but `{name}` holds floats (f32): `{name}.bool()`."
            return _build_explanation("dtype-mismatch", text, scenes.convert_operand(here[0], operand, "bool()"))
    return None


# Reading the frame.


class _Unknown:
    """A value that cannot be looked up without running code."""


_UNKNOWN = _Unknown()


def _value_of(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, or of its plain attributes; `_UNKNOWN` for an expression that would have to run."""
    match node:
        case ast.Name(id=name):
            for table in (frame.f_locals, frame.f_globals):
                if name in table:
                    return table[name]
        case ast.Attribute(value=value, attr=attribute):
            owner = _value_of(value, frame)
            if isinstance(owner, nn.Module | ModuleType):
                try:
                    return getattr(owner, attribute)
                except Exception:  # noqa: BLE001 - `__getattr__` may be the person's own
                    return _UNKNOWN
        case ast.Constant(value=value):
            return value
    return _UNKNOWN


def _find_failed_call(scene: Scene) -> ast.Call | None:
    here = scene.here()
    return here[1] if here is not None and isinstance(here[1], ast.Call) else None


def _find_statement(tree: ast.Module, line: int) -> ast.stmt | None:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno == line]
    return found[-1] if found else None


def _flatten_items(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, tuple | list):
            yield from _flatten_items(item)
        else:
            yield item


def _describe_kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return f"tensor {list(value.shape)}"
    return f"({', '.join(map(_describe_kind, value))})" if isinstance(value, tuple) else type(value).__name__


def _list_attribute_names(thing: Any) -> list[str]:
    try:
        return [name for name in dir(thing) if not name.startswith("_")]
    except Exception:  # noqa: BLE001 - user code, and nn.Module's own before its __init__ ran
        return []


def _build_explanation(code: str, text: str, fix: Fix | None) -> Told:
    return Complaint(code, text), [fix] if fix is not None else []
