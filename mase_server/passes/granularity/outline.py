"""Outlining and inlining: consecutive nodes of a graph as a module of their own, and back."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.facts import map_nodes
from mase_server.passes.error.measuring import GIVES
from mase_server.passes.granularity.regions import Region
from mase_server.tracing.scope import Scope

#: Where an outlined module holds what is not its own: a parameter that it shares with another module.
OUTER = "outer"


class Outline:
    """One region as a module.

    outputs: its nodes that others use.  module: what it computes.
    """

    def __init__(self, region: Region, model: nn.Module) -> None:
        self.region = region
        inside = set(region.nodes)
        self.outputs = [node for node in region.nodes if any(user not in inside for user in node.users)]
        self._prefix = f"{region.path}."
        self._held: dict[str, Any] = {}
        self._model = model
        graph = self._graph()
        self.module = fx.GraphModule(self._held, graph, region.kind)
        # Not train(): that would change the modules inside, which are the person's own.
        self.module.training = model.training

    @property
    def inputs(self) -> list[fx.Node]:
        """The nodes that it takes now, in order: what another region gives has changed once that one was put."""
        inside = set(self.region.nodes)
        sources = (source for node in self.region.nodes for source in node.all_input_nodes)
        return _unique(source for source in sources if source not in inside and source.op != "get_attr")

    def _graph(self) -> fx.Graph:
        graph = fx.Graph()
        made = {node: graph.placeholder(f"input_{index}") for index, node in enumerate(self.inputs)}
        for node in self.region.nodes:
            for source in node.all_input_nodes:
                if source not in made:
                    made[source] = self._copied(graph, source, made)
            if node not in made:
                made[node] = self._copied(graph, node, made)
        results = tuple(made[node] for node in self.outputs)
        graph.output(results[0] if len(results) == 1 else results)
        return graph

    def _copied(self, graph: fx.Graph, node: fx.Node, made: Mapping[fx.Node, fx.Node]) -> fx.Node:
        target = node.target
        if node.op in ("get_attr", "call_module"):
            target = self._own(str(target))
            self._held[target] = attribute(self._model, str(node.target))
        args, kwargs = (map_nodes(part, made.__getitem__) for part in (node.args, node.kwargs))
        copy = graph.create_node(node.op, target, args, kwargs)
        copy.meta = {key: value for key, value in node.meta.items() if key != "mase"}
        copy.meta.setdefault(GIVES, node.name)
        return copy

    def _own(self, path: str) -> str:
        return path.removeprefix(self._prefix) if path.startswith(self._prefix) else f"{OUTER}.{path}"

    @property
    def key(self) -> tuple[Any, ...]:
        """Two outlines with one key are calls of the same module."""
        return self.region.path, self.module.code, tuple((name, id(held)) for name, held in self._held.items())

    def put(self, graph: fx.Graph, target: str, parent: Scope) -> fx.Node:
        """The call of the module at this path, in place of the region's nodes."""
        with graph.inserting_before(self.region.nodes[0]):
            call = graph.create_node("call_module", target, tuple(self.inputs))
        call.meta["scope"] = parent
        if len(self.outputs) == 1:
            call.meta.update(_known(self.outputs[0]))
            self.outputs[0].replace_all_uses_with(call)
        else:
            self._unpack(graph, call)
        sources = _unique(source for node in self.region.nodes for source in node.all_input_nodes)
        for node in reversed(self.region.nodes):
            graph.erase_node(node)
        for source in sources:
            if source.op == "get_attr" and not source.users and source not in self.region.nodes:
                graph.erase_node(source)
        return call

    def _unpack(self, graph: fx.Graph, call: fx.Node) -> None:
        inside = {*self.region.nodes}
        after = call
        for index, node in enumerate(self.outputs):
            with graph.inserting_after(after):
                after = graph.call_function(operator.getitem, (call, index))
            after.meta.update(_known(node), scope=call.meta["scope"])
            for user in [user for user in node.users if user not in inside]:
                user.replace_input_with(node, after)


def inline(model: nn.Module, call: fx.Node, inner: fx.GraphModule, given: Mapping[str, Any], inside: str) -> None:
    """Put the nodes of a module in place of its call. given: what its inputs are, by name; inside: the path that its
    nodes' scopes are relative to, "" where they are absolute."""
    graph, path = call.graph, str(call.target)
    made: dict[fx.Node, Any] = {}
    for node in inner.graph.nodes:
        if node.op == "placeholder":
            made[node] = given[str(node.target)] if str(node.target) in given else node.args[0]
            continue
        args, kwargs = (map_nodes(part, made.__getitem__) for part in (node.args, node.kwargs))
        if node.op == "output":
            _replace(call, args[0])
            break
        target = node.target
        if node.op in ("get_attr", "call_module"):
            target = _absolute(model, path, str(target))
        with graph.inserting_before(call):
            copy = made[node] = graph.create_node(node.op, target, args, kwargs)
        copy.meta = _moved(node.meta, inside)
    graph.erase_node(call)


def _replace(call: fx.Node, result: Any) -> None:
    """What used the call uses its result, and takes parts of it directly."""
    if isinstance(result, fx.Node):
        result.meta.update(_known(call))
        call.replace_all_uses_with(result)
        return
    for user in list(call.users):
        if user.target is operator.getitem and isinstance(part := result[user.args[1]], fx.Node):
            user.replace_all_uses_with(part)
            user.graph.erase_node(user)
        else:
            user.args, user.kwargs = (
                map_nodes(given, lambda node: result if node is call else node) for given in (user.args, user.kwargs)
            )


def _absolute(model: nn.Module, path: str, name: str) -> str:
    """The path in the model of what an inlined module calls by this name."""
    if name.startswith(f"{OUTER}."):
        outer = name.removeprefix(f"{OUTER}.")
        try:
            if attribute(model, outer) is attribute(model, f"{path}.{name}"):
                return outer
        except AttributeError:
            pass
    return f"{path}.{name}"


def _moved(meta: Mapping[str, Any], inside: str) -> dict[str, Any]:
    if not inside:
        return {key: value for key, value in meta.items() if key != "mase"}
    found, scope = {"value": meta.get("value")}, meta.get("scope")
    if scope is not None:
        path = ".".join(filter(None, (inside, scope.module_path)))
        found["scope"] = Scope(path, scope.module_type)
    return found


def _known(node: fx.Node) -> dict[str, Any]:
    """What stays true of a result that another node now gives."""
    kept: dict[str, Any] = {key: node.meta[key] for key in ("call", "value") if key in node.meta}
    return {**kept, GIVES: node.meta.get(GIVES, node.name)}


def _unique(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    return list(dict.fromkeys(nodes))
