"""A graph as readable Python: to be looked at, and to be compared with the same graph after passes."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx, nn

from mase_server.dtypes import SHORT
from mase_server.formats import quantise
from mase_server.ir.build import attribute, underlying
from mase_server.ir.expressions import call_text, literal, name_text, path_text
from mase_server.visible import reveal

#: Longer lines have one argument a line.
WIDTH = 110
_HEADER = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
_SIZES = frozenset({operator.add, operator.sub, operator.mul, operator.floordiv})


def code_of(module: fx.GraphModule, name: str) -> str:
    """The graph of a module as a class of this name: its layers, and its forward with a comment for each scope.

    Nodes have the names of their results, so that two graphs with the same nodes have the same lines.  A value that is
    only used rounded keeps its name. The text is Python, but it is not meant to be run.
    """
    return "\n".join(_Printer(module, name).lines()) + "\n"


class _Printer:
    def __init__(self, module: fx.GraphModule, name: str) -> None:
        # A model may be called by an expression: nets['small'], Net.training_step.
        self.module, self.name = module, re.sub(r"\W+", "_", name).strip("_") or "Model"
        self.texts: dict[fx.Node, str] = {}
        #: Nodes whose values have a name.
        self.named: set[fx.Node] = set()
        self.imports: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """The whole text, line by line."""
        body = list(self._body())
        yield from _HEADER.splitlines()
        yield from [""] * bool(self.imports)
        yield from (f"from {home} import {name}" for name, home in sorted(self.imports.items()))
        yield from ("", "", f"class {self.name}(nn.Module):", "    def __init__(self):", "        super().__init__()")
        yield from (f"        {line}" for line in self._layers())
        inputs = [self._input(node) for node in self.module.graph.nodes if node.op == "placeholder"]
        yield from ("", f"    def forward({', '.join(['self', *inputs])}):")
        yield from (f"        {line}" if line else "" for line in body)

    # Layers and inputs

    def _layers(self) -> Iterator[str]:
        """What the forward calls or reads, once each, in the order of its first use."""
        seen: set[str] = set()
        for node in self.module.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            path = str(node.target)
            value = attribute(self.module, path)
            owner, _, _ = path.rpartition(".")
            if not isinstance(value, nn.Module) and owner and (found := self._layer(owner)) is not None:
                path, value = owner, found
            if path not in seen:
                seen.add(path)
                yield reveal(f"{path_text(path)} = {_made(value)}")

    def _layer(self, path: str) -> nn.Module | None:
        """The layer of torch at a path."""
        found = attribute(self.module, path)
        known = isinstance(found, nn.Module) and type(found).__module__.startswith("torch.nn.modules")
        return found if known and repr(found).count("\n") == 0 else None

    def _input(self, node: fx.Node) -> str:
        text = self.texts[node] = str(node.target).lstrip("*")
        return f"{text}={literal(node.args[0])}" if node.args else text

    # The forward

    def _body(self) -> Iterator[str]:
        scope = ""
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self._input(node)
                continue
            where = node.meta.get("scope") if "call" in node.meta else None
            line = list(self._statement(node))
            if line and where is not None and where.module_path != scope and node.op != "output":
                scope = where.module_path
                kind = getattr(where.module_type, "__name__", "")
                yield from ("", reveal(f"# {scope} ({kind})")) if scope else ("",)
            yield from line

    def _statement(self, node: fx.Node) -> Iterator[str]:
        if node.op == "output":
            given = node.args[0]
            several = isinstance(given, tuple) and len(given) > 1
            yield from _wrapped("return ", ", ".join(map(self._show, given)) if several else self._show(given))  # type: ignore[arg-type]
        elif node.op == "get_attr":
            self.texts[node] = path_text(str(node.target))
        else:
            self._import(underlying(node.target))
            text = call_text(node, self._show)
            if self._is_inside(node):
                self.texts[node] = text
                return
            name = self.texts[node] = self._name(node)
            self.named.add(node)
            yield from _wrapped("" if _tells_nothing(node) else f"{name} = ", text)

    def _is_inside(self, node: fx.Node) -> bool:
        """Is a node written where it is used? Roundings of what else is used too, and arithmetic on sizes."""
        if len(node.users) != 1:
            return False
        if node.target is quantise:
            return not self._takes_place(node)
        return node.op == "call_function" and node.target in _SIZES and "call" not in node.meta

    def _takes_place(self, node: fx.Node) -> bool:
        """Does a rounding stand for its source everywhere? It then has its name."""
        source = node.args[0]
        return isinstance(source, fx.Node) and source in self.named and len(source.users) == 1

    def _name(self, node: fx.Node) -> str:
        if node.target is not quantise:
            return node.name
        source = node.args[0]
        if self._takes_place(node):
            return self.texts[source] if isinstance(source, fx.Node) else node.name
        return f"{source.name}_rounded" if isinstance(source, fx.Node) and self._is_first(node) else f"{node.name}_"

    def _is_first(self, node: fx.Node) -> bool:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return next(iter(user for user in source.users if user.target is quantise)) is node

    def _import(self, target: Any) -> None:
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
        return literal(value)


def _tells_nothing(node: fx.Node) -> bool:
    """Is it a statement without a result?"""
    return node.target is operator.setitem


def _made(value: Any) -> str:
    """A layer as it is made; of anything else, what it is."""
    if isinstance(value, nn.Module):
        text = repr(value) if "\n" not in repr(value) else f"{type(value).__name__}(...)"
        return f"nn.{text}" if type(value).__module__.startswith("torch.nn.modules") else text
    kind = "nn.Parameter" if isinstance(value, nn.Parameter) else type(value).__name__
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"...  # {kind}"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"...  # {kind}, {SHORT.get(dtype, dtype)}[{', '.join(map(str, shape))}]"


def _wrapped(start: str, text: str) -> Iterator[str]:
    """One line, or, where that is too long and a call, one for each argument."""
    if len(start) + len(text) <= WIDTH or not text.endswith((")", "]")):
        yield start + text
        return
    opening = _opening(text)
    yield start + text[: opening + 1]
    yield from (f"    {part}," for part in _parts(text[opening + 1 : -1]))
    yield text[-1]


def _opening(text: str) -> int:
    """Where the bracket opens that closes at the end."""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += (text[position] in ")]}") - (text[position] in "([{")
        if depth == 0:
            return position
    return 0


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    if text[start:].strip():
        yield text[start:].strip()
