"""From a recording to an executable fx graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.amp import autocast_mode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import PythonCode

from mase_server.ir.guarded import set_guards
from mase_server.ir.targets import require_writable
from mase_server.ops.paths import attribute as attribute
from mase_server.ops.paths import writable_path
from mase_server.ops.types import TensorType
from mase_server.tracing.calls import Call, Constant, Look, Ref, Run, references
from mase_server.tracing.guards import SizeGuards, check_value, describe_look, place_of, size_guards
from mase_server.tracing.probe import MismatchError, Probed, merge
from mase_server.tracing.scope import Scope
from mase_server.tracing.symbols import Atom, Expr

CreateNode = Callable[[str, Any, tuple[Any, ...], dict[str, Any]], fx.Node]


def used_calls(run: Run) -> list[bool]:
    """Which calls become nodes: all but helpers, attributes and templates that nothing uses."""
    used = [False] * len(run.calls)
    for source in references([look.arguments for look in run.looks]):
        used[source] = True
    for index in range(len(run.calls) - 1, -1, -1):
        call = run.calls[index]
        if not (call.helper or call.kind == "get_attr"):
            used[index] = True
        if used[index]:
            for source in references((call.args, call.kwargs)):
                used[source] = True
    return used


class GraphBuilder:
    """Builds the fx graph of a recording; generic in its symbols where probing found them.

    `nodes[i]` is the node of call `i`, None where it was dropped. Each node's meta has `scope` (Scope), `call` (index)
    and `value` (the description of its result).  create_node: makes nodes of `graph`, as fx's does.  enter: is told the
    scope of each node before it is made.
    """

    def __init__(
        self,
        run: Run,
        probed: Probed | None = None,
        create_node: CreateNode | None = None,
        enter: Callable[[Scope], None] | None = None,
    ) -> None:
        self.run = run
        self.graph = fx.Graph()
        self._create = create_node or self.graph.create_node
        self._enter = enter
        self._generic = probed if probed is not None and probed.generic else None
        self.nodes: list[fx.Node | None] = [None] * len(run.calls)
        self._sizes: dict[str, fx.Node] = {}
        self._casting: torch.dtype | None = None
        self._context: fx.Node | None = None
        self._sources = _symbol_sources(self._generic) if self._generic else {}

    def build(self) -> fx.Graph:
        """The finished graph."""
        looks = self.looks()[::-1]
        for index, used in enumerate(used_calls(self.run)):
            self._look_again(looks, index)
            if used:
                call = self.run.calls[index]
                if not call.helper:
                    self._cast(call.cast if call.kind != "output" else None)
                self.nodes[index] = self._node(index, call)
        set_guards(self.graph, self._size_guards())
        return self.graph

    def guards(self) -> list[str]:
        """The texts of the graph's guards; the graph need not be built."""
        looks = [describe_look(look.asked, seen, place_of(look.stack)) for look, seen in self.looks()]
        return [*self._size_guards().texts(), *looks]

    def _size_guards(self) -> SizeGuards:
        if self._generic is None:
            return size_guards(self.run, [self.run], lambda sizes: None)
        generic = self._generic
        return size_guards(self.run, generic.runs, generic.fitter.fit, generic.points[0], generic.fixed)

    def looks(self) -> list[tuple[Look, Any]]:
        """The looks at values that the graph repeats, and what has to be seen, in order.

        One that saw other things at other sizes, and led to the same graph there, does not matter.
        """
        runs = self._generic.runs if self._generic is not None else [self.run]
        kept = []
        alike = all(len(run.looks) == len(self.run.looks) for run in runs)
        for index, look in enumerate(self.run.looks):
            found = [run.looks[index] for run in runs] if alike else [look]
            try:
                seen = merge([each.seen for each in found], self._generic.fitter, runs) if self._generic else look.seen
            except MismatchError:
                continue
            kept.append((look, seen))
        return kept

    def _look_again(self, looks: list[tuple[Look, Any]], index: int) -> None:
        while looks and looks[-1][0].after <= index:
            look, seen = looks.pop()
            self._cast(None)
            given = look.asked, self._argument(look.arguments), self._argument(seen), place_of(look.stack)
            self._create("call_function", check_value, given, {})

    def _cast(self, dtype: torch.dtype | None) -> None:
        """Enter and leave autocast where the recorded forward did, with the nodes that torch.export uses."""
        if dtype == self._casting:
            return
        if self._context is not None:
            self._create("call_function", autocast_mode._exit_autocast, (self._context,), {})
            self._context = None
        if dtype is not None:
            given = ("cpu", dtype, True, None)
            self._context = self._create("call_function", autocast_mode._enter_autocast, given, {})
        self._casting = dtype

    def _node(self, index: int, call: Call) -> fx.Node:
        path, kind = self.run.scopes[call.scope]
        scope = Scope(path, kind if path else None)
        if self._enter is not None:
            self._enter(scope)
        args, kwargs = call.args, call.kwargs
        if self._generic is not None and index in self._generic.arguments:
            args, kwargs = self._generic.arguments[index]
        target = call.target
        if isinstance(target, Constant):
            name = target.name
            target = name if call.kind == "get_attr" else _Named(name, self.run.constants[name])
        node = self._create(call.kind, target, self._argument(args), self._argument(kwargs))
        node.meta.update(scope=scope, call=index, value=call.value)
        return node

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self.nodes[value.index]
        if isinstance(value, Expr):
            return self._expression(value)
        if isinstance(value, Constant):
            return self._create("get_attr", value.name, (), {})
        if isinstance(value, list | tuple):
            items = [self._argument(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {key: self._argument(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*(self._argument(item) for item in (value.start, value.stop, value.step)))
        return value

    def _expression(self, expr: Expr) -> Any:
        total: Any = expr.constant
        for factor, atoms in expr.terms:
            product: Any = factor
            for atom in atoms:
                product = self._apply(operator.mul, product, self._atom(atom)) if product != 1 else self._atom(atom)
            total = self._apply(operator.add, total, product) if total != 0 else product
        return total

    def _atom(self, atom: Atom) -> fx.Node:
        node = self._size(atom.symbol)
        if atom.offset:
            node = self._apply(operator.add, node, atom.offset)
        return node if atom.divisor == 1 else self._apply(operator.floordiv, node, atom.divisor)

    def _apply(self, function: Callable[..., Any], first: Any, second: Any) -> fx.Node:
        return self._create("call_function", function, (first, second), {})

    def _size(self, symbol: str) -> fx.Node:
        found = self._sizes.get(symbol)
        if found is None:
            index, dimension = self._sources[symbol]
            source = self.nodes[index]
            if source is None:
                source = self.nodes[index] = self._node(index, self.run.calls[index])
            found = self._sizes[symbol] = self._create("call_method", "size", (source, dimension), {})
        return found


class _Named:
    """A callable object as the target of a node, under an attribute-like name that generated code can use."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def underlying(target: Any) -> Any:
    """The callable behind a node's target, without the name that generated code calls it by."""
    return target._function if isinstance(target, _Named) else target


def _symbol_sources(probed: Probed) -> dict[str, tuple[int, int]]:
    """symbol -> (call, dimension) of an input tensor whose size it is."""
    found: dict[str, tuple[int, int]] = {}
    for index, calls in enumerate(zip(*(run.calls for run in probed.runs), strict=True)):
        if calls[0].kind != "placeholder" and not calls[0].helper:
            continue
        shapes = [call.value.shape for call in calls if isinstance(call.value, TensorType)]
        if len(shapes) != len(calls):
            continue
        for dimension, sizes in enumerate(zip(*shapes, strict=True)):
            for symbol in probed.fitter.symbols:
                if symbol not in found and list(sizes) == [point[symbol] for point in probed.points]:
                    found[symbol] = (index, dimension)
    return found


class _Compiled(_LazyGraphModule):
    """A GraphModule whose code is made when it is wanted; ir.targets.UnwritableName where there can be none."""

    def _real_recompile(self) -> PythonCode:
        require_writable(self.graph)
        return super()._real_recompile()


def executable(graph: fx.Graph, root: nn.Module, constants: dict[str, Any]) -> fx.GraphModule:
    """A GraphModule over the root's own modules and parameters; the root itself is not changed.

    Targets of the graph that cannot be written as code are renamed.
    """
    targets: dict[str, Any] = {}
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            path = node.target
            if path not in names:
                names[path] = path if path in constants else writable_path(root, path)
                targets[names[path]] = constants[path] if path in constants else attribute(root, path)
            if names[path] != path:
                node.target = names[path]
    module = _Compiled(targets, graph, type(root).__name__)
    module.training = root.training
    return module


def compiled(module: fx.GraphModule) -> fx.GraphModule:
    """The same module with the code of its graph; making that is slow, so it waits until somebody wants it."""
    _LazyGraphModule.force_recompile(module)
    return module
