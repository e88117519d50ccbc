"""Python expressions for what nodes of a graph compute, as a person would write them."""

from __future__ import annotations

import inspect
import keyword
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from mase_server.ir.build import underlying
from mase_server.tracing.rebuild import Rebuild

Show = Callable[[Any], str]

_INFIX: Mapping[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=",
}  # fmt: skip
#: Methods of tensors that are written between their operands.
_METHODS: Mapping[str, str] = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**", "floor_divide": "//",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=",
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__matmul__": "@",
    "__pow__": "**", "__and__": "&", "__or__": "|", "__xor__": "^", "__mod__": "%",
}  # fmt: skip
_PREFIX: Mapping[Any, str] = {operator.neg: "-", operator.invert: "~", operator.not_: "not "}
#: Where short names come from, in this order.
_HOMES: tuple[tuple[str, Any], ...] = (("F", F), ("torch", torch))


def path_text(path: str) -> str:
    """A dotted path as Python: blocks.0.attn is self.blocks[0].attn."""
    text = "self"
    for part in path.split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part)
        text += f".{part}" if plain else f"[{part}]" if part.isdecimal() else f"[{part!r}]"
    return text


def call_text(node: fx.Node, show: Show) -> str:
    """The expression of a node that calls something. show: the text of an argument."""
    if node.op == "call_module":
        return f"{path_text(str(node.target))}({_arguments(node, None, show)})"
    if node.op == "call_method":
        first, *rest = node.args
        if (infix := _METHODS.get(str(node.target))) is not None and len(rest) == 1 and not node.kwargs:
            return f"{_bracketed(show(first))} {infix} {_bracketed(show(rest[0]))}"
        return f"{_bracketed(show(first))}.{node.target}({_listed(rest, node.kwargs, show)})"
    target = underlying(node.target)
    if isinstance(target, Rebuild):
        return target.written([show(part) for part in node.args[0]], literal)  # type: ignore[union-attr]
    if target in _SPECIAL:
        return _SPECIAL[target](node, show)
    if target in _INFIX and len(node.args) == 2:
        one, other = node.args
        return f"{_bracketed(show(one))} {_INFIX[target]} {_bracketed(show(other))}"
    if target in _PREFIX:
        return f"{_PREFIX[target]}{_bracketed(show(node.args[0]))}"
    return f"{name_text(target)}({_arguments(node, target, show)})"


def name_text(target: Any) -> str:
    """A short name for a callable: F.linear, torch.cat, quantise."""
    name = str(getattr(target, "__name__", type(target).__name__))
    for short, home in _HOMES:
        if getattr(home, name, None) is target:
            return f"{short}.{name}"
    module = getattr(target, "__module__", None) or ""
    if module.startswith("mase_server.") or not module.startswith("torch"):
        return name
    return f"{module}.{name}"


def literal(value: Any) -> str:
    """A plain value as Python."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return repr(str(value))
    if value is ...:
        return "..."
    if isinstance(value, nn.Module | type) or callable(value):
        return name_text(value)
    text = repr(value)
    return text if "\n" not in text and len(text) <= 200 else f"<{type(value).__name__}>"


def _getitem(node: fx.Node, show: Show) -> str:
    source, index = node.args
    parts = [_index(part, show) for part in (index if isinstance(index, tuple) else (index,))]
    return f"{_bracketed(show(source))}[{', '.join(parts)}]"


def _index(part: Any, show: Show) -> str:
    if not isinstance(part, slice):
        return show(part)
    start, stop, step = ("" if each is None else show(each) for each in (part.start, part.stop, part.step))
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def _setitem(node: fx.Node, show: Show) -> str:
    source, index, value = node.args
    parts = [_index(part, show) for part in (index if isinstance(index, tuple) else (index,))]
    return f"{_bracketed(show(source))}[{', '.join(parts)}] = {show(value)}"


def _getattr(node: fx.Node, show: Show) -> str:
    source, name = node.args[:2]
    return f"{_bracketed(show(source))}.{name}"


_SPECIAL: Mapping[Any, Callable[[fx.Node, Show], str]] = {
    operator.getitem: _getitem,
    operator.setitem: _setitem,
    getattr: _getattr,
}


def _arguments(node: fx.Node, target: Any, show: Show) -> str:
    """All arguments but those by name that are what the callable takes anyway."""
    defaults = _defaults(target)
    named = {key: value for key, value in node.kwargs.items() if not _is_default(key, value, defaults)}
    return _listed(node.args, named, show)


def _defaults(target: Any) -> Mapping[str, Any]:
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return {}
    return {name: each.default for name, each in parameters.items()}


def _is_default(key: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    if value is None:
        return defaults.get(key) is None
    default = defaults.get(key, inspect.Parameter.empty)
    return type(value) is type(default) and bool(value == default)


def _listed(args: Any, kwargs: Mapping[str, Any], show: Show) -> str:
    return ", ".join([*map(show, args), *(f"{key}={show(value)}" for key, value in kwargs.items())])


def _bracketed(text: str) -> str:
    """A part of a larger expression."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == " " and depth == 0:
            return f"({text})"
        if letter == "-" and position == 0:
            return f"({text})"
    return text
