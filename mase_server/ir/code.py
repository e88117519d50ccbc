"""A graph as readable Python, to look at and to compare with the same graph after passes."""

from __future__ import annotations

import inspect
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from mase_server.dtypes import SHORT
from mase_server.formats import quantise
from mase_server.ir.build import attribute, underlying_callable
from mase_server.tracing.diagnosis.failure import write_repr
from mase_server.tracing.recording.values import Rebuild
from mase_server.visible import reveal

#: Longer calls are written with one argument on each line.
WIDTH = 110
_HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
_SIZES = frozenset({operator.add, operator.sub, operator.mul, operator.floordiv})


def code_of(module: fx.GraphModule, name: str) -> str:
    """The graph of a module as a class with this name: its layers, and its forward with a comment for each scope.

    Nodes have the names of their results, so two graphs with the same nodes have the same lines. If all users of a
    value take it rounded, the rounded value keeps its name. The text is Python, but is not meant to be run.
    """
    return "\n".join(_Printer(module, name).lines()) + "\n"


class _Printer:
    def __init__(self, module: fx.GraphModule, name: str) -> None:
        # A model's name may be an expression: nets['small'], Net.training_step.
        self.module, self.name = module, re.sub(r"\W+", "_", name).strip("_") or "Model"
        self.texts: dict[fx.Node, str] = {}
        #: Kinds of nodes whose values have names.
        self.named: set[fx.Node] = set()
        self.imports: dict[str, str] = {}
        for node in module.graph.nodes:
            if node.op == "call_function":
                target = underlying_callable(node.target)
                for each in target.classes() if isinstance(target, Rebuild) else (target,):
                    self._note_import(each)

    def lines(self) -> Iterator[str]:
        """The whole text, line by line."""
        body = list(self._body_lines())
        yield from _HEADER.splitlines()
        yield from [""] * bool(self.imports)
        yield from (f"from {home} import {name}" for name, home in sorted(self.imports.items()))
        yield from ("", "", f"class {self.name}(nn.Module):", "    def __init__(self):", "        super().__init__()")
        yield from (f"        {line}" for line in self._layer_lines())
        inputs = [self._input_parameter(node) for node in self.module.graph.nodes if node.op == "placeholder"]
        yield from ("", f"    def forward({', '.join(['self', *inputs])}):")
        yield from (f"        {line}" if line else "" for line in body)

    # Layers and inputs.

    def _layer_lines(self) -> Iterator[str]:
        """The layers and values that the forward uses, once each, in the order of their first use."""
        seen: set[str] = set()
        for node in self.module.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            path = str(node.target)
            value = attribute(self.module, path)
            owner, _, _ = path.rpartition(".")
            if not isinstance(value, nn.Module) and owner and (found := self._layer_at_path(owner)) is not None:
                path, value = owner, found
            if path not in seen:
                seen.add(path)
                yield reveal(f"{path_text(path)} = {_construction_text(value)}")

    def _layer_at_path(self, path: str) -> nn.Module | None:
        """The torch layer at a path."""
        found = attribute(self.module, path)
        known = isinstance(found, nn.Module) and type(found).__module__.startswith("torch.nn.modules")
        return found if known and write_repr(found).count("\n") == 0 else None

    def _input_parameter(self, node: fx.Node) -> str:
        text = self.texts[node] = str(node.target).lstrip("*")
        return f"{text}={python_literal(node.args[0])}" if node.args else text

    # The forward.

    def _body_lines(self) -> Iterator[str]:
        scope = ""
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self._input_parameter(node)
                continue
            where = node.meta.get("scope") if "call" in node.meta else None
            line = list(self._statement_lines(node))
            if line and where is not None and where.module_path != scope and node.op != "output":
                scope = where.module_path
                kind = getattr(where.module_type, "__name__", "")
                yield from ("", reveal(f"# {scope} ({kind})")) if scope else ("",)
            yield from line

    def _statement_lines(self, node: fx.Node) -> Iterator[str]:
        if node.op == "output":
            given = node.args[0]
            several = isinstance(given, tuple) and len(given) > 1
            yield from _wrap_call("return ", ", ".join(map(self._show, given)) if several else self._show(given))  # type: ignore[arg-type]
        elif node.op == "get_attr":
            self.texts[node] = path_text(str(node.target))
        else:
            text = call_text(node, self._show)
            if self._is_inside(node):
                self.texts[node] = text
                return
            name = self.texts[node] = self._result_name(node)
            self.named.add(node)
            yield from _wrap_call("" if _tells_nothing(node) else f"{name} = ", text)

    def _is_inside(self, node: fx.Node) -> bool:
        """Is a node written inside its user's expression? Arithmetic on sizes is, and so is rounding a value with other
        users."""
        if len(node.users) != 1:
            return False
        if node.target is quantise:
            return not self._takes_place(node)
        return node.op == "call_function" and node.target in _SIZES and "call" not in node.meta

    def _takes_place(self, node: fx.Node) -> bool:
        """Does a rounding replace its source for all users? It then takes the source's name."""
        source = node.args[0]
        return isinstance(source, fx.Node) and source in self.named and len(source.users) == 1

    def _result_name(self, node: fx.Node) -> str:
        if node.target is not quantise:
            return f"{node.name}_" if node.name in self.imports else node.name  # a local would hide the function
        source = node.args[0]
        if self._takes_place(node):
            return self.texts[source] if isinstance(source, fx.Node) else node.name
        return f"{source.name}_rounded" if isinstance(source, fx.Node) and self._is_first(node) else f"{node.name}_"

    def _is_first(self, node: fx.Node) -> bool:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return next(iter(user for user in source.users if user.target is quantise)) is node

    def _note_import(self, target: Any) -> None:
        module = getattr(target, "__module__", None) or ""
        name = getattr(target, "__name__", "")
        if callable(target) and "." not in name_text(target) and module not in ("", "builtins", "_operator"):
            self.imports[name] = "mase_server.formats" if module.startswith("mase_server.formats") else module

    def _show(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.texts[value]
        if isinstance(value, tuple):
            return f"({', '.join(map(self._show, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._show, value))}]"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{key!r}: {self._show(item)}' for key, item in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self._show, (value.start, value.stop, value.step)))})"
        return python_literal(value)


def _tells_nothing(node: fx.Node) -> bool:
    """Is it a statement without a result?"""
    return node.target is operator.setitem


def _construction_text(value: Any) -> str:
    """The call that constructs a layer; for any other value, a description."""
    if isinstance(value, nn.Module):
        text = write_repr(value)
        text = text if "\n" not in text else f"{type(value).__name__}(...)"
        return f"nn.{text}" if type(value).__module__.startswith("torch.nn.modules") else text
    kind = "nn.Parameter" if isinstance(value, nn.Parameter) else type(value).__name__
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"...  # {kind}"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"...  # {kind}, {SHORT.get(dtype, dtype)}[{', '.join(map(str, shape))}]"


def _wrap_call(start: str, text: str) -> Iterator[str]:
    """One line; a call that is too long has one line for each argument."""
    if len(start) + len(text) <= WIDTH or not text.endswith((")", "]")):
        yield start + text
        return
    opening = _find_opening_bracket(text)
    yield start + text[: opening + 1]
    yield from (f"    {part}," for part in _split_at_commas(text[opening + 1 : -1]))
    yield text[-1]


def _find_opening_bracket(text: str) -> int:
    """The position of the bracket that the last character closes."""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += (text[position] in ")]}") - (text[position] in "([{")
        if depth == 0:
            return position
    return 0


def _split_at_commas(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    if text[start:].strip():
        yield text[start:].strip()


# Python expressions for what graph nodes compute, as a person would write them.

Show = Callable[[Any], str]

_INFIX: Mapping[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=",
}  # fmt: skip
#: Tensor methods that are written as operators.
_METHODS: Mapping[str, str] = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@", "pow": "**", "floor_divide": "//",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=",
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__matmul__": "@",
    "__pow__": "**", "__and__": "&", "__or__": "|", "__xor__": "^", "__mod__": "%",
}  # fmt: skip
_PREFIX: Mapping[Any, str] = {operator.neg: "-", operator.invert: "~", operator.not_: "not "}
#: Modules that short names come from, in order of preference.
_HOMES: tuple[tuple[str, Any], ...] = (("F", F), ("torch", torch))


def path_text(path: str) -> str:
    """A dotted path as Python: blocks.0.attn is self.blocks[0].attn."""
    text = "self"
    for part in path.split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part)
        text += f".{part}" if plain else f"[{part}]" if part.isdecimal() else f"[{part!r}]"
    return text


def call_text(node: fx.Node, show: Show) -> str:
    """The expression of a node that calls something. show: gives the text of an argument."""
    if node.op == "call_module":
        return f"{path_text(str(node.target))}({_arguments_text(node, None, show)})"
    if node.op == "call_method":
        first, *rest = node.args
        if (infix := _METHODS.get(str(node.target))) is not None and len(rest) == 1 and not node.kwargs:
            return f"{_bracket_if_needed(show(first))} {infix} {_bracket_if_needed(show(rest[0]))}"
        return f"{_bracket_if_needed(show(first))}.{node.target}({_join_arguments(rest, node.kwargs, show)})"
    target = underlying_callable(node.target)
    if isinstance(target, Rebuild):
        return target.written([show(part) for part in node.args[0]], python_literal)  # type: ignore[union-attr]
    if target in _SPECIAL:
        return _SPECIAL[target](node, show)
    if target in _INFIX and len(node.args) == 2:
        one, other = node.args
        return f"{_bracket_if_needed(show(one))} {_INFIX[target]} {_bracket_if_needed(show(other))}"
    if target in _PREFIX:
        return f"{_PREFIX[target]}{_bracket_if_needed(show(node.args[0]))}"
    return f"{name_text(target)}({_arguments_text(node, target, show)})"


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


def python_literal(value: Any) -> str:
    """A plain value as a Python literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return repr(str(value))
    if value is ...:
        return "..."
    if isinstance(value, nn.Module | type) or callable(value):
        return name_text(value)
    text = write_repr(value)
    return text if "\n" not in text and len(text) <= 200 else f"<{type(value).__name__}>"


def _getitem_text(node: fx.Node, show: Show) -> str:
    source, index = node.args
    parts = [_index_text(part, show) for part in (index if isinstance(index, tuple) else (index,))]
    return f"{_bracket_if_needed(show(source))}[{', '.join(parts)}]"


def _index_text(part: Any, show: Show) -> str:
    if not isinstance(part, slice):
        return show(part)
    start, stop, step = ("" if each is None else show(each) for each in (part.start, part.stop, part.step))
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def _setitem_text(node: fx.Node, show: Show) -> str:
    source, index, value = node.args
    parts = [_index_text(part, show) for part in (index if isinstance(index, tuple) else (index,))]
    return f"{_bracket_if_needed(show(source))}[{', '.join(parts)}] = {show(value)}"


def _getattr_text(node: fx.Node, show: Show) -> str:
    source, name = node.args[:2]
    return f"{_bracket_if_needed(show(source))}.{name}"


_SPECIAL: Mapping[Any, Callable[[fx.Node, Show], str]] = {
    operator.getitem: _getitem_text,
    operator.setitem: _setitem_text,
    getattr: _getattr_text,
}


def _arguments_text(node: fx.Node, target: Any, show: Show) -> str:
    """All arguments except keyword arguments that equal the callable's default."""
    defaults = _default_values(target)
    named = {key: value for key, value in node.kwargs.items() if not _is_default(key, value, defaults)}
    return _join_arguments(node.args, named, show)


def _default_values(target: Any) -> Mapping[str, Any]:
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


def _join_arguments(args: Any, kwargs: Mapping[str, Any], show: Show) -> str:
    return ", ".join([*map(show, args), *(f"{key}={show(value)}" for key, value in kwargs.items())])


def _bracket_if_needed(text: str) -> str:
    """Bracket an expression if it needs it as part of a larger one."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == " " and depth == 0:
            return f"({text})"
        if letter == "-" and position == 0:
            return f"({text})"
    return text
