"""resharding_transform_pass: inserts conversions of layouts into the graph, and Distributed runs it on a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.func import functional_call

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.number_formats import MOVES, operator_of
from mase_server.ops.types import Kwargs
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Result, complete_options
from mase_server.passes.sharding.autosharding import KEY, autosharding_analysis_pass
from mase_server.passes.sharding.functional import is_distributed, reshard, torch_placements
from mase_server.passes.sharding.rules import needs_whole, parse_layout

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


Plan = Mapping[str, Mapping[str, Any]]

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"plan": None, "mesh_shape": (1, 2)})


@transform(
    "Put transfers between devices into the graph",
    arguments=(
        Argument("plan", "map", "as autosharding gives it; without it, the plan in the metadata"),
        Argument("mesh_shape", "texts", "devices along each axis, if there is no plan", ("1", "2")),
    ),
    menu=False,
)
def resharding_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Put `reshard(x, "S(1),R")` into the graph wherever a tensor is needed in another layout than it has.

    plan: as autosharding_analysis_pass gives it; without it, the plan in the metadata, else a new one for
    mesh_shape.
    On whole tensors, in a process of its own, the graph's results do not change; on a mesh of devices
    `mase_server.passes.sharding.resharding.Distributed` runs it on split ones. A tensor that several users need in one
    layout is converted once.
    Gives {"resharded": {name of the new node: [from, to]}}.  ValueError for a plan of another graph.
    Source: `chop.passes.graph.transforms.resharding_transform_pass`.

    >>> model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    >>> graph = MaseGraph(model, {"input": torch.randn(64, 512)})
    >>> graph, _ = passes.autosharding_analysis_pass(graph, {"mesh_shape": (1, 4), "flops": 1e9})
    >>> graph, found = passes.resharding_transform_pass(graph)
    >>> found["resharded"]
    {'reshard': ['R,P', 'R,R']}
    """
    given = complete_options("resharding_transform_pass", pass_args, _DEFAULTS)
    plan: Plan = given["plan"] or _plan_from_metadata(graph) or _make_plan(graph, given["mesh_shape"])
    nodes = {node.name: node for node in graph.fx_graph.nodes}
    if unknown := [name for name in plan if name not in nodes]:
        raise ValueError(f"resharding: the plan names {unknown[0]!r}, which is no node of this graph")
    return graph, {"resharded": _Rewriter(graph, plan).run()}


def _plan_from_metadata(graph: MaseGraph) -> dict[str, Mapping[str, Any]]:
    """The plan in the metadata."""
    found = {node.name: metadata_of(node, graph.module)["software"].get(KEY) for node in graph.fx_graph.nodes}
    return {name: plan for name, plan in found.items() if plan is not None}


def _make_plan(graph: MaseGraph, mesh_shape: Any) -> Plan:
    found: Plan = autosharding_analysis_pass(graph, {"mesh_shape": mesh_shape})[1]["plan"]
    return found


class _Rewriter:
    def __init__(self, graph: MaseGraph, plan: Plan) -> None:
        self.graph, self.plan, self.facts = graph, plan, dict(graph.facts)
        first = next(iter(plan.values()))["output"]
        self.whole = ",".join("R" for _ in parse_layout(first))
        self.made: dict[tuple[fx.Node, str], fx.Node] = {}
        self.found: dict[str, list[str]] = {}

    def run(self) -> dict[str, list[str]]:
        """Insert the missing conversions; return the new nodes with their layouts."""
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


# Running a planned graph on a mesh of devices: each process runs the whole graph on its parts.


class Distributed(fx.Interpreter):
    """Runs a graph on a mesh, with its tensors split as autosharding_analysis_pass planned.

    graph: after resharding_transform_pass.  mesh: of the planned shape. Parameters are split when they are first
    used. Operators work on each device's part, which the plan has made independent of the others; torch's DTensor
    does transfers and views. `run` takes whole inputs and returns whole outputs. ValueError for a graph without a
    plan.
    """

    def __init__(self, graph: MaseGraph, mesh: DeviceMesh) -> None:
        super().__init__(graph.model)
        self.mesh = mesh
        self._plans = {node: node.meta["mase"]["software"].get(KEY) for node in graph.fx_graph.nodes}
        if not any(self._plans.values()):
            raise ValueError("the graph has no plan of how to split it: run autosharding_analysis_pass first")
        self._held: dict[tuple[str, str], Tensor] = {}
        self._node: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        """Run one node on split tensors."""
        from torch.distributed.tensor.experimental import implicit_replication

        self._node = n
        with implicit_replication():
            return super().run_node(n)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Split a whole input as planned."""
        value = super().placeholder(target, args, kwargs)
        return fx.node.map_aggregate(value, lambda item: self._split(item, self._layout()))

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Split a parameter or buffer as planned."""
        value = super().get_attr(target, args, kwargs)
        return self._kept(str(target), value, self._layout()) if isinstance(value, Tensor) else value

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Call a layer with its parameters split as planned."""
        layer = attribute(self.module, str(target))
        planned: Mapping[str, str] = (self._plan() or {}).get("parameters", {})
        own = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
        split = {name: self._kept(f"{target}.{name}", each, planned.get(name)) for name, each in own.items()}
        local = {name: each.to_local() for name, each in split.items()}
        return self._called(
            lambda *given, **named: functional_call(layer, split, given, named),
            lambda *given, **named: functional_call(layer, local, given, named),
            args, kwargs,
        )  # fmt: skip

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Call a function of split tensors."""
        return self._called(target, target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Call a method of a split tensor."""

        def method(value: Any, *rest: Any, **named: Any) -> Any:
            return getattr(value, str(target))(*rest, **named)

        return self._called(method, method, args, kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Return the outputs, whole."""
        return fx.node.map_aggregate(super().output(target, args, kwargs), _full_tensor_of)

    def _called(self, on_split: Callable[..., Any], on_parts: Callable[..., Any], args: Any, kwargs: Kwargs) -> Any:
        if self._is_independent():
            return self._by_parts(on_parts, args, kwargs)
        try:
            found = on_split(*args, **kwargs)
        except RuntimeError as error:
            if "view size is not compatible" not in str(error):
                raise
            # Its parts have other strides in memory than torch assumes from the whole.
            args, kwargs = fx.node.map_aggregate((args, kwargs), _make_contiguous)
            found = on_split(*args, **kwargs)
        return found if self._plan() is None else reshard(found, self._layout())

    def _is_independent(self) -> bool:
        """Is the present node's work on one device's part independent of the others, and of the size of the whole?"""
        node, plan = self._node, self._plan()
        if node is None or plan is None or not node.op.startswith("call_"):
            return False
        operator = operator_of(node, self.module)
        if operator == "linear":
            # Each device may add only its part of the bias.
            return "P" not in plan["output"]
        is_split = "S" in "".join([*plan["inputs"], plan["output"]])
        return node.target is not reshard and not (is_split and operator in MOVES)

    def _by_parts(self, on_parts: Callable[..., Any], args: Any, kwargs: Kwargs) -> Any:
        """Work on each device's part alone; the plan says how the results are parts."""
        parts = fx.node.map_aggregate((args, kwargs), _local_part)
        return fx.node.map_aggregate(on_parts(*parts[0], **parts[1]), self._joined)

    def _plan(self) -> Mapping[str, Any] | None:
        return None if self._node is None else self._plans.get(self._node)

    def _layout(self) -> str:
        return str((self._plan() or {}).get("output", ",".join("R" * self.mesh.ndim)))

    def _kept(self, name: str, value: Tensor, layout: str | None) -> Any:
        layout = layout or ",".join("R" * self.mesh.ndim)
        if (name, layout) not in self._held:
            self._held[name, layout] = self._split(value.detach(), layout)
        return self._held[name, layout]

    def _split(self, value: Any, layout: str) -> Any:
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value, self.mesh, torch_placements(layout)) if isinstance(value, Tensor) else value

    def _joined(self, value: Any) -> Any:
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(value, self.mesh, torch_placements(self._layout())) if _is_plain(value) else value


def _make_contiguous(value: Any) -> Any:
    """The same split tensor, with each part contiguous in the order of its dimensions."""
    if not is_distributed(value):
        return value
    strides = torch.empty(value.shape, device="meta").stride()
    local = value.to_local().contiguous()
    return type(value).from_local(local, value.device_mesh, value.placements, shape=value.shape, stride=strides)


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and not is_distributed(value)


def _local_part(value: Any) -> Any:
    return value.to_local() if is_distributed(value) else value


def _full_tensor_of(value: Any) -> Any:
    return value.full_tensor() if is_distributed(value) else value
