"""resharding_transform_pass: what brings tensors from one layout into another, put into the graph."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.sharding.autosharding import KEY, autosharding_analysis_pass
from mase_server.passes.sharding.functional import reshard
from mase_server.passes.sharding.layouts import parse
from mase_server.passes.sharding.rules import needs_whole

Plan = Mapping[str, Mapping[str, Any]]

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"plan": None, "mesh_shape": (1, 2)})


@transform
def resharding_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Put `reshard(x, "S(1),R")` into the graph wherever a tensor is wanted in another layout than it is given in.

    plan: as autosharding_analysis_pass gives it; without it the one that it left in the metadata, else it is run for
    mesh_shape.
    On whole tensors, in a process of its own, the graph computes what it did; on a mesh of devices
    `mase_server.passes.sharding.distributed.Distributed` runs it on split ones. A tensor that several users want in one
    layout is brought into it once.
    Gives {"resharded": {name of the new node: [from, to]}}.  ValueError for a plan of another graph.
    Source: `chop.passes.graph.transforms.resharding_transform_pass`.

    >>> model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    >>> graph = MaseGraph(model, {"input": torch.randn(64, 512)})
    >>> graph, _ = passes.autosharding_analysis_pass(graph, {"mesh_shape": (1, 4), "flops": 1e9})
    >>> graph, found = passes.resharding_transform_pass(graph)
    >>> found["resharded"]
    {'reshard': ['R,P', 'R,R']}
    """
    given = options("resharding_transform_pass", pass_args, _DEFAULTS)
    plan: Plan = given["plan"] or _left(graph) or _made(graph, given["mesh_shape"])
    nodes = {node.name: node for node in graph.fx_graph.nodes}
    if unknown := [name for name in plan if name not in nodes]:
        raise ValueError(f"resharding: the plan speaks of {unknown[0]!r}, which is no node of this graph")
    return graph, {"resharded": _Rewriter(graph, plan).run()}


def _left(graph: MaseGraph) -> dict[str, Mapping[str, Any]]:
    """The plan in the metadata."""
    found = {node.name: metadata_of(node, graph.module)["software"].get(KEY) for node in graph.fx_graph.nodes}
    return {name: plan for name, plan in found.items() if plan is not None}


def _made(graph: MaseGraph, mesh_shape: Any) -> Plan:
    found: Plan = autosharding_analysis_pass(graph, {"mesh_shape": mesh_shape})[1]["plan"]
    return found


class _Rewriter:
    def __init__(self, graph: MaseGraph, plan: Plan) -> None:
        self.graph, self.plan, self.facts = graph, plan, dict(graph.facts)
        first = next(iter(plan.values()))["output"]
        self.whole = ",".join("R" for _ in parse(first))
        self.made: dict[tuple[fx.Node, str], fx.Node] = {}
        self.found: dict[str, list[str]] = {}

    def run(self) -> dict[str, list[str]]:
        """Put in what is missing; the new nodes with their layouts."""
        for node in list(self.graph.fx_graph.nodes):
            planned = self.plan.get(node.name)
            if planned is not None:
                metadata_of(node, self.graph.module)["software"][KEY] = planned
                self._bring(node, planned["inputs"])
            elif node.op == "output" or needs_whole(node, self.facts):
                plan = {"inputs": [], "output": self.whole, "parameters": {}}
                metadata_of(node, self.graph.module)["software"][KEY] = plan
                self._bring(node, None)
        return self.found

    def _bring(self, node: fx.Node, wanted: list[str] | None) -> None:
        sources = [source for source in node.all_input_nodes if source.name in self.plan]
        layouts = [self.whole] * len(sources) if wanted is None else wanted
        if len(layouts) != len(sources):
            raise ValueError(
                f"resharding: the plan has {len(layouts)} inputs for {node.name!r}, which takes {len(sources)}"
            )
        for source, layout in zip(sources, layouts, strict=True):
            if layout != (given := self.plan[source.name]["output"]):
                node.replace_input_with(source, self._resharded(source, given, layout))

    def _resharded(self, source: fx.Node, given: str, layout: str) -> fx.Node:
        if (source, layout) not in self.made:
            after = source
            while after.next.op == "placeholder":
                after = after.next
            with self.graph.fx_graph.inserting_after(after):
                made = self.graph.fx_graph.call_function(reshard, (source, layout))
            made.meta["scope"] = source.meta.get("scope")
            plan = {"inputs": [given], "output": layout, "parameters": {}}
            metadata_of(made, self.graph.module)["software"][KEY] = plan
            self.made[source, layout] = made
            self.found[made.name] = [given, layout]
        return self.made[source, layout]


PASS = Pass(
    name="resharding",
    title="Put transfers between devices into the graph",
    kind="transform",
    function=resharding_transform_pass,
    arguments=(
        Argument("plan", "map", "as autosharding gives it; the one that it left in the metadata without it"),
        Argument("mesh_shape", "texts", "devices along each axis, where no plan is there", ("1", "2")),
    ),
    menu=False,
)
