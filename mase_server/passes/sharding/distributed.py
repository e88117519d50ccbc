"""Running a planned graph on a mesh of devices, each process of which runs the whole graph on its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.func import functional_call

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import MOVES, operator_of
from mase_server.passes.sharding.autosharding import KEY
from mase_server.passes.sharding.functional import is_distributed, placements, reshard

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Distributed(fx.Interpreter):
    """Runs a graph on a mesh, its tensors split as autosharding_analysis_pass planned.

    graph: one that went through resharding_transform_pass.  mesh: of the planned shape. Parameters are split when they
    are first used. Operators work on each device's part, which the plan has made independent of the others; transfers
    and views are torch's DTensor's. `run` takes whole inputs and gives whole outputs.
    ValueError for a graph without a plan.
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
        """One node, on split tensors."""
        from torch.distributed.tensor.experimental import implicit_replication

        self._node = n
        with implicit_replication():
            return super().run_node(n)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A whole input, split as planned."""
        value = super().placeholder(target, args, kwargs)
        return fx.node.map_aggregate(value, lambda item: self._split(item, self._layout()))

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A parameter or buffer, split as planned."""
        value = super().get_attr(target, args, kwargs)
        return self._kept(str(target), value, self._layout()) if isinstance(value, Tensor) else value

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A layer with its parameters split as planned."""
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

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of split tensors."""
        return self._called(target, target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A method of a split tensor."""

        def method(value: Any, *rest: Any, **named: Any) -> Any:
            return getattr(value, str(target))(*rest, **named)

        return self._called(method, method, args, kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The outputs, whole."""
        return fx.node.map_aggregate(super().output(target, args, kwargs), _whole)

    def _called(
        self, on_split: Callable[..., Any], on_parts: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        if self._is_independent():
            return self._by_parts(on_parts, args, kwargs)
        try:
            found = on_split(*args, **kwargs)
        except RuntimeError as error:
            if "view size is not compatible" not in str(error):
                raise
            # Its parts lie otherwise in memory than torch believes of the whole.
            args, kwargs = fx.node.map_aggregate((args, kwargs), _contiguous)
            found = on_split(*args, **kwargs)
        return found if self._plan() is None else reshard(found, self._layout())

    def _is_independent(self) -> bool:
        """Is the present node's work on one device's part independent of the others, and of the size of the whole?"""
        node, plan = self._node, self._plan()
        if node is None or plan is None or not node.op.startswith("call_"):
            return False
        operator = operator_of(node, self.module)
        if operator == "linear":
            # Of the bias, each device may add its part only.
            return "P" not in plan["output"]
        is_split = "S" in "".join([*plan["inputs"], plan["output"]])
        return node.target is not reshard and not (is_split and operator in MOVES)

    def _by_parts(self, on_parts: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """On each device's part alone; the plan says what the results are parts of."""
        parts = fx.node.map_aggregate((args, kwargs), _part)
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

        return distribute_tensor(value, self.mesh, placements(layout)) if isinstance(value, Tensor) else value

    def _joined(self, value: Any) -> Any:
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(value, self.mesh, placements(self._layout())) if _is_plain(value) else value


def _contiguous(value: Any) -> Any:
    """The same split tensor, each part of it in the order of its dimensions."""
    if not is_distributed(value):
        return value
    strides = torch.empty(value.shape, device="meta").stride()
    local = value.to_local().contiguous()
    return type(value).from_local(local, value.device_mesh, value.placements, shape=value.shape, stride=strides)


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and not is_distributed(value)


def _part(value: Any) -> Any:
    return value.to_local() if is_distributed(value) else value


def _whole(value: Any) -> Any:
    return value.full_tensor() if is_distributed(value) else value
