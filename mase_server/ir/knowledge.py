"""The types, values and costs of a MaseGraph's nodes for one set of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from mase_server.ir.annotate import Annotator, graph_summary
from mase_server.ir.build import GraphBuilder, guards_of
from mase_server.ir.facts import Facts, call_of, recorded_facts
from mase_server.ir.feeding import feed_placeholders, flatten_arguments, name_arguments
from mase_server.ir.propagate import MetaValues, Values, propagate_facts
from mase_server.ir.recording import Recording, example_inputs
from mase_server.ir.session import Snapshot
from mase_server.ops.table import Cost, by_scope, cost_of
from mase_server.ops.types import TensorType
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.values import holds_tensor
from mase_server.tracing.symbols.probing import Probed

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph


class Knowledge:
    """Types of the results of a graph's nodes, on the inputs that were given last."""

    def __init__(self, graph: MaseGraph, other: Knowledge | None = None) -> None:
        """other: the knowledge of the graph that this one is a copy of; its inputs are taken over."""
        self._graph = graph
        self._arguments: Mapping[str, Any] | None = None if other is None else other._arguments
        self._facts: tuple[Snapshot, Facts] | None = None
        self._annotated: tuple[bool, bool] = (False, False) if other is None else other._annotated

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Inputs by parameter name."""
        if self._arguments is None:
            recording = self._graph.recording
            self._arguments = (
                recording.arguments if recording else example_inputs(self._graph.root, self._graph.given, None)
            )
        return self._arguments

    def named(self, dummy_in: Any) -> Mapping[str, Any]:
        """Inputs by parameter name: the given ones with the fixed cf_args, or those used last.

        Raises ValueError for a name that forward does not have.
        """
        if dummy_in is None:
            return self.arguments
        fixed = {name: value for name, value in self._graph.given.items() if not holds_tensor(value)}
        return {**fixed, **name_arguments(dummy_in, self._graph.root)}

    def feed(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The values of the placeholders for these arguments."""
        return feed_placeholders(self._graph.fx_graph, flatten_arguments(arguments, self._graph.root))

    def propagate(self, dummy_in: Any = None) -> None:
        """Compute the types anew. An unchanged graph that does not hold for the inputs is recorded again."""
        graph, given = self._graph, self.named(dummy_in)
        if dummy_in is not None and (not graph.is_recorded or self._needs_recording(given)):
            graph.record(given)
        self._arguments = given
        module, recording = graph.module, graph.recording
        if recording is not None and recording.arguments is given and not graph.modified:
            facts = recorded_facts(module.graph, recording.run, module)
        else:
            facts = propagate_facts(module, self.feed(given))
        self._facts = (Snapshot.of(module.graph), facts)

    def _needs_recording(self, given: Mapping[str, Any]) -> bool:
        recording = self._graph.recording
        if recording is None or self._graph.modified:
            return False
        return not recording.covers(given, flatten_arguments(given, self._graph.root))

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
        """Write the metadata again as last time."""
        self.annotate(None, *self._annotated)

    def costs(self) -> dict[str, Cost]:
        """FLOPs and bytes by node name."""
        return _node_costs(self._graph.module, self.facts)

    def scope_costs(self) -> dict[str, Cost]:
        """FLOPs and bytes by module path, each with everything below it."""
        costs = self.costs()
        return by_scope((_scope_of_node(node), costs[node.name]) for node in self._graph.fx_graph.nodes)


def _node_costs(module: fx.GraphModule, facts: Facts) -> dict[str, Cost]:
    return {node.name: _node_cost(node, module, facts) for node in module.graph.nodes}


def _node_cost(node: fx.Node, module: fx.GraphModule, facts: Facts) -> Cost:
    """The cost of one call; for a module that is itself a graph, the cost of its nodes."""
    call = call_of(node, facts, module)
    if not isinstance(call.module, fx.GraphModule):
        return cost_of(call)
    inner = propagate_facts(call.module, [_example_on_meta(value) for value in (*call.args, *call.kwargs.values())])
    return sum(_node_costs(call.module, inner).values(), Cost())


def _example_on_meta(fact: Any) -> Any:
    if isinstance(fact, tuple | list):
        return type(fact)(_example_on_meta(item) for item in fact)
    if not isinstance(fact, TensorType):
        return fact
    return torch.empty(fact.shape, dtype=getattr(torch, fact.dtype), device="meta")


def _scope_of_node(node: fx.Node) -> str:
    """The path of the module that a node belongs to; for a leaf module its own path."""
    if node.op == "call_module":
        return str(node.target)
    scope = node.meta.get("scope")
    return "" if scope is None else str(scope.module_path)


# The recording behind a graph.


class Recorded:
    """The part of a MaseGraph that reads its recording."""

    @property
    def recording(self) -> Recording | None:
        """The recording that the graph was built from; None for a GraphModule that was given."""
        raise NotImplementedError

    def _must_be_recorded(self) -> Recording:
        if self.recording is None:
            raise ValueError("this MaseGraph was made from a GraphModule: there is no recording of it")
        return self.recording

    @property
    def run(self) -> Run:
        """The recording of the model's forward."""
        return self._must_be_recorded().run

    @property
    def builder(self) -> GraphBuilder:
        """The builder of the recorded graph."""
        return self._must_be_recorded().builder

    @property
    def probed(self) -> Probed | None:
        """The result of probing; None if there was none."""
        return None if self.recording is None else self.recording.probed

    @property
    def generic(self) -> bool:
        """Does the graph hold for all sizes of its symbols?"""
        return self.probed is not None and self.probed.generic

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols that may vary, with their sizes in the recorded run; a symbol that a guard holds to one size is
        left out."""
        if self.probed is None or not self.probed.generic:
            return {}
        points, guards = self.probed.points, guards_of(self.builder.graph).guards
        held = {name for guard in guards if guard.names <= points[0].keys() for name in guard.names
                if not all(guard.holds(point) for point in points)}  # fmt: skip
        return {name: size for name, size in self.probed.symbols.items() if name not in held}
