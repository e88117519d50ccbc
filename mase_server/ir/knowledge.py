"""What a MaseGraph knows for one set of inputs: types, values and costs of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from mase_server.ir.annotate import Annotator, graph_summary
from mase_server.ir.facts import Facts, call_of, recorded_facts
from mase_server.ir.feeding import feed, flattened, named
from mase_server.ir.propagate import propagated
from mase_server.ir.recording import examples
from mase_server.ir.state import Snapshot
from mase_server.ir.values import MetaValues, Values
from mase_server.ops.cost import Cost, by_scope, cost_of
from mase_server.ops.types import TensorType
from mase_server.tracing.values import holds_tensor

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph


class Knowledge:
    """Types of the results of a graph's nodes, on the inputs that were given last."""

    def __init__(self, graph: MaseGraph, other: Knowledge | None = None) -> None:
        """other: of the graph that this one is a copy of; its inputs are taken."""
        self._graph = graph
        self._arguments: Mapping[str, Any] | None = None if other is None else other._arguments
        self._facts: tuple[Snapshot, Facts] | None = None
        self._annotated: tuple[bool, bool] = (False, False) if other is None else other._annotated

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Inputs by parameter name."""
        if self._arguments is None:
            recording = self._graph.recording
            self._arguments = recording.arguments if recording else examples(self._graph.root, self._graph.given, None)
        return self._arguments

    def named(self, dummy_in: Any) -> Mapping[str, Any]:
        """Inputs by parameter name: the given ones with what cf_args fix, or those used last.

        Raises ValueError for a name that forward does not have.
        """
        if dummy_in is None:
            return self.arguments
        fixed = {name: value for name, value in self._graph.given.items() if not holds_tensor(value)}
        return {**fixed, **named(dummy_in, self._graph.root)}

    def feed(self, arguments: Mapping[str, Any]) -> list[Any]:
        """What the placeholders get of these arguments."""
        return feed(self._graph.fx_graph, flattened(arguments, self._graph.root))

    def propagate(self, dummy_in: Any = None) -> None:
        """Find the types anew. A graph that was not changed is recorded again where it does not hold for the inputs."""
        graph, given = self._graph, self.named(dummy_in)
        if dummy_in is not None and (not graph.is_recorded or self._needs_recording(given)):
            graph.record(given)
        self._arguments = given
        module, recording = graph.module, graph.recording
        if recording is not None and recording.arguments is given and not graph.modified:
            facts = recorded_facts(module.graph, recording.run, module)
        else:
            facts = propagated(module, self.feed(given))
        self._facts = (Snapshot.of(module.graph), facts)

    def _needs_recording(self, given: Mapping[str, Any]) -> bool:
        recording = self._graph.recording
        if recording is None or self._graph.modified:
            return False
        return not recording.covers(given, flattened(given, self._graph.root))

    @property
    def facts(self) -> Facts:
        """The type of every node's result."""
        if self._facts is None or not self._facts[0].holds(self._graph.fx_graph):
            self.propagate()
        assert self._facts is not None
        return self._facts[1]

    def annotate(self, dummy_in: Any, add_value: bool, force_device_meta: bool) -> None:
        """Write the common metadata of every node and of the graph."""
        self._annotated = (add_value, force_device_meta)
        self.propagate(dummy_in)
        module = self._graph.module
        facts, arguments = self.facts, self.arguments
        values = MetaValues(facts) if force_device_meta else Values(module, lambda: self.feed(arguments))
        Annotator(module, facts, self._graph.custom_ops, values if add_value else None).annotate()
        self._graph.meta["mase"]["common"] = graph_summary(module)

    def annotate_again(self) -> None:
        """Write it as it was written last."""
        self.annotate(None, *self._annotated)

    def costs(self) -> dict[str, Cost]:
        """FLOPs and bytes by node name."""
        return _costs(self._graph.module, self.facts)

    def scope_costs(self) -> dict[str, Cost]:
        """FLOPs and bytes by module path, each with everything below it."""
        costs = self.costs()
        return by_scope((_scope(node), costs[node.name]) for node in self._graph.fx_graph.nodes)


def _costs(module: fx.GraphModule, facts: Facts) -> dict[str, Cost]:
    return {node.name: _cost(node, module, facts) for node in module.graph.nodes}


def _cost(node: fx.Node, module: fx.GraphModule, facts: Facts) -> Cost:
    """The cost of one call; of a module that is a graph itself, that of its nodes."""
    call = call_of(node, facts, module)
    if not isinstance(call.module, fx.GraphModule):
        return cost_of(call)
    inner = propagated(call.module, [_example(value) for value in (*call.args, *call.kwargs.values())])
    return sum(_costs(call.module, inner).values(), Cost())


def _example(fact: Any) -> Any:
    if isinstance(fact, tuple | list):
        return type(fact)(_example(item) for item in fact)
    if not isinstance(fact, TensorType):
        return fact
    return torch.empty(fact.shape, dtype=getattr(torch, fact.dtype), device="meta")


def _scope(node: fx.Node) -> str:
    """The path of the module that a node belongs to; a leaf module's own path."""
    if node.op == "call_module":
        return str(node.target)
    scope = node.meta.get("scope")
    return "" if scope is None else str(scope.module_path)
