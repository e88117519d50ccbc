"""Which layouts every tensor of a graph may have, and what each choice costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ops.types import TensorType
from mase_server.passes.sharding.layouts import Layout, Mesh
from mase_server.passes.sharding.rules import Call, Rule, call, needs_whole, rules_of, tensor_of


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to do a node's work on a mesh.  seconds: computing, on each device.  bytes: of parameters, on each."""

    output: Layout
    inputs: tuple[Layout, ...]
    parameters: Mapping[str, Layout]
    seconds: float
    bytes: float


@dataclass(slots=True)
class Choice:
    """A node and what it can do."""

    call: Call
    strategies: list[Strategy]


@dataclass(slots=True)
class Transfer:
    """The costs of bringing a node's result from each of its layouts into each of those that one user wants."""

    source: fx.Node
    user: fx.Node
    place: int
    pairs: list[tuple[Layout, Layout, float]] = field(default_factory=list)


class Problem:
    """The choices of one graph.

    splits_data: may dimensions that differ from run to run (batch, length) be split?  memory: bytes of parameters that
    a device may hold, None for any.
    """

    def __init__(self, graph: MaseGraph, mesh: Mesh, splits_data: bool, memory: float | None) -> None:
        self.graph, self.mesh, self.memory = graph, mesh, memory
        self._free = (lambda node, dim: True) if splits_data else _fixed_dimensions(graph)
        self._splits_data = splits_data
        self.choices: dict[fx.Node, Choice] = {}
        facts, costs = graph.facts, graph.costs()
        for node in graph.fx_graph.nodes:
            found = call(node, facts, graph.module) if node.op != "output" else None
            if found is not None:
                self.choices[node] = Choice(found, list(self._strategies(found, costs[node.name].flops)))
        self.transfers = list(self._transfers())

    def _strategies(self, found: Call, flops: int) -> Iterator[Strategy]:
        rules = [rule for rule in self._rules(found) if self._is_allowed(found, rule)]
        seen = set()
        # Along an axis of one device there is nothing to split.
        for chosen in product(*(rules if devices > 1 else rules[:1] for devices in self.mesh.shape)):
            strategy = self._strategy(found, chosen, flops)
            key = (strategy.output, strategy.inputs, tuple(strategy.parameters.items()))
            if key not in seen and self._fits(found, strategy):
                seen.add(key)
                yield strategy

    def _rules(self, found: Call) -> list[Rule]:
        is_free = found.node.op == "get_attr" or (found.node.op == "placeholder" and self._splits_data)
        if is_free:
            return [Rule("R", ()), *(Rule(dim, ()) for dim in range(found.rank))]
        return rules_of(found, self.graph.facts)

    def _is_allowed(self, found: Call, rule: Rule) -> bool:
        split = [(found.node, rule.output), *zip(found.inputs, rule.inputs, strict=True)]
        return all(not isinstance(place, int) or self._free(node, place) for node, place in split)

    def _strategy(self, found: Call, chosen: Sequence[Rule], flops: int) -> Strategy:
        layer = found.layer
        names = [] if layer is None else [name for name, _ in layer.named_parameters()]
        parameters = {name: tuple(rule.parameters.get(name, "R") for rule in chosen) for name in names}
        parts = math.prod(n for rule, n in zip(chosen, self.mesh.shape, strict=True) if rule.is_split)
        output = tuple(rule.output for rule in chosen)
        return Strategy(
            output,
            tuple(zip(*(rule.inputs for rule in chosen), strict=True)) if found.inputs else (),
            parameters,
            flops / parts / self.mesh.flops,
            self._bytes(found, output, parameters),
        )

    def _bytes(self, found: Call, output: Layout, parameters: Mapping[str, Layout]) -> float:
        if found.node.op == "get_attr":
            value = attribute(self.graph.module, str(found.node.target))
            return found.result.nbytes / self.mesh.parts(output) if isinstance(value, nn.Parameter) else 0.0
        sizes = {} if found.layer is None else dict(found.layer.named_parameters())
        return sum(
            each.numel() * each.element_size() / self.mesh.parts(parameters[name]) for name, each in sizes.items()
        )

    def _fits(self, found: Call, strategy: Strategy) -> bool:
        """Is everything that is split divided evenly?"""
        layer = {} if found.layer is None else dict(found.layer.named_parameters())
        tensors = [(found.result.shape, strategy.output)]
        tensors += [(tensor.shape, layout) for tensor, layout in zip(found.types, strategy.inputs, strict=True)]
        tensors += [(tuple(layer[name].shape), layout) for name, layout in strategy.parameters.items()]
        return all(self.mesh.fits(layout, shape) for shape, layout in tensors)

    def _transfers(self) -> Iterator[Transfer]:
        whole = self.mesh.whole()
        for node, choice in self.choices.items():
            for place, source in enumerate(choice.call.inputs):
                wanted = dict.fromkeys(strategy.inputs[place] for strategy in choice.strategies)
                yield self._transfer(source, node, place, list(wanted))
        for node in self.graph.fx_graph.nodes:
            if node.op == "output" or needs_whole(node, self.graph.facts):
                for source in node.all_input_nodes:
                    if source in self.choices:
                        yield self._transfer(source, node, 0, [whole])

    def _transfer(self, source: fx.Node, user: fx.Node, place: int, wanted: list[Layout]) -> Transfer:
        given = dict.fromkeys(strategy.output for strategy in self.choices[source].strategies)
        size = whole_type(self.graph.facts[source])
        pairs = [(one, other, self.mesh.seconds(size, one, other)) for one in given for other in wanted]
        return Transfer(source, user, place, pairs)


def whole_type(fact: Any) -> TensorType:
    """The type of a result; of several tensors, one with the bytes of them all."""
    first = tensor_of(fact)
    assert first is not None
    if not isinstance(fact, tuple):
        return first
    return TensorType(first.dtype, (sum(item.numel for item in fact if isinstance(item, TensorType)),))


def _fixed_dimensions(graph: MaseGraph) -> Callable[[fx.Node, int], bool]:
    """Is a dimension of a node's result one that the model has, and not one that the inputs have? Where a node was not
    recorded, or the model was recorded at one size only, all of them are."""
    probed = graph.probed

    def fixed(node: fx.Node, dim: int) -> bool:
        index = node.meta.get("call")
        if probed is None or index is None:
            return True
        values = [getattr(run.calls[index].value, "items", (run.calls[index].value,))[0] for run in probed.runs]
        shapes = [value.shape for value in values if isinstance(value, TensorType)]
        return len({shape[dim] for shape in shapes if dim < len(shape)}) <= 1

    return fixed


@dataclass(frozen=True, slots=True)
class Solution:
    """What was chosen.  computing, transferring: seconds.  bytes: of parameters on each device.  is_best: was it proved
    that there is none better?"""

    chosen: Mapping[fx.Node, Strategy]
    computing: float
    transferring: float
    bytes: float
    is_best: bool


def evaluated(problem: Problem, chosen: Mapping[fx.Node, Strategy], is_best: bool) -> Solution:
    """What choices cost."""
    whole = problem.mesh.whole()
    moved: dict[tuple[fx.Node, Layout], float] = {}
    for transfer in problem.transfers:
        target = chosen[transfer.user].inputs[transfer.place] if transfer.user in chosen else whole
        size = whole_type(problem.graph.facts[transfer.source])
        seconds = problem.mesh.seconds(size, chosen[transfer.source].output, target)
        moved[transfer.source, target] = seconds
    return Solution(
        chosen,
        sum(strategy.seconds for strategy in chosen.values()),
        sum(moved.values()),
        sum(strategy.bytes for strategy in chosen.values()),
        is_best,
    )
