"""A graph whose roundings can be set to one of several formats, or left out, from run to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.formats import NumberFormat, Open, parse
from mase_server.ir.check import tensors_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.propagate import preserved
from mase_server.passes.data import Data
from mase_server.passes.error.running import copied
from mase_server.passes.error.sums import Sums
from mase_server.passes.mixed_precision.search import Choice
from mase_server.passes.quantize.calibration import Closed, calibrate
from mase_server.passes.quantize.methods import Method, of_tensor
from mase_server.passes.quantize.rewriting import Rounding


@dataclass(frozen=True, slots=True)
class Knob:
    """One unit. texts: for each level, the format of each of its roundings.  elements: that they round together."""

    name: str
    texts: tuple[Mapping[fx.Node, str], ...]
    elements: int


def knobs_of(
    graph: MaseGraph, roundings: Iterable[Rounding], levels: Sequence[NumberFormat], values: Closings
) -> list[Knob]:
    """A knob for each node that owns roundings, in order."""
    owned: dict[fx.Node, list[Rounding]] = {}
    for each in roundings:
        owned.setdefault(each.owner, []).append(each)
    facts = graph.facts
    return [
        Knob(
            owner.name,
            tuple({each.node: values.text(each.value, level) for each in own} for level in levels),
            sum(prod(facts[each.node].shape) for each in own),
        )
        for owner, own in owned.items()
    ]


class Closings:
    """What every level's format is for each value, chosen by data."""

    def __init__(self, levels: Sequence[NumberFormat], method: Method) -> None:
        self.open = [level for level in levels if isinstance(level, Open)]
        self.method = method
        self.closed: Closed = {}

    def find(self, graph: MaseGraph, nodes: Iterable[fx.Node], data: Data) -> None:
        """Run the graph, before it is rewritten."""
        if self.open:
            self.closed = calibrate(graph, dict.fromkeys(nodes, self.open), data, self.method)

    def text(self, value: fx.Node | Tensor, level: NumberFormat) -> str:
        """The format of one value at one level."""
        if not isinstance(level, Open):
            return str(level)
        return str(self.closed[value, level] if isinstance(value, fx.Node) else of_tensor(level, value, self.method))


class Trials:
    """Runs a graph with its knobs at given levels and compares its outputs with those that nothing is rounded for."""

    def __init__(self, module: fx.GraphModule, knobs: Sequence[Knob], feeds: Iterable[Sequence[Any]]) -> None:
        self.module, self.knobs, self.feeds = module, knobs, [list(values) for values in feeds]
        self.random = torch.get_rng_state()
        self.references = [self._run(values, {}) for values in self.feeds]
        self._known: dict[tuple[int | None, ...], Sums] = {}

    def measured(self, choice: Sequence[int | None]) -> Sums:
        """Of the outputs, where None leaves a unit as it is."""
        key = tuple(choice)
        if key not in self._known:
            self._known[key] = self._measured(key)
        return self._known[key]

    def _measured(self, choice: tuple[int | None, ...]) -> Sums:
        texts: dict[fx.Node, str | None] = {}
        for knob, level in zip(self.knobs, choice, strict=True):
            texts |= {} if level is None else knob.texts[level]
        sums = Sums()
        for values, reference in zip(self.feeds, self.references, strict=True):
            for path, tensor in self._run(values, texts).items():
                sums.add(reference[path], tensor)
        return sums

    def noise(self, choice: Choice | Sequence[int | None]) -> float:
        """The squared error of the outputs for each unit of their power; infinite where something is not finite."""
        sums = self.measured(choice)
        return sums.noise / (sums.signal or 1.0) if sums.known else float("inf")

    def _run(self, values: Sequence[Any], texts: Mapping[fx.Node, str | None]) -> dict[str, Tensor]:
        with preserved(self.module), torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random)
            out = _Set(self.module, self._all(), texts).run(*map(copied, values), enable_io_processing=False)
        return {path: tensor.detach().clone() for path, tensor in tensors_of(out).items() if tensor.is_floating_point()}

    def _all(self) -> frozenset[fx.Node]:
        return frozenset(node for knob in self.knobs for node in knob.texts[0])


class _Set(fx.Interpreter):
    """Runs a graph in which some roundings round to a given text, or not at all."""

    def __init__(self, module: fx.GraphModule, nodes: frozenset[fx.Node], texts: Mapping[fx.Node, str | None]) -> None:
        super().__init__(module)
        self.nodes, self.texts = nodes, texts

    def run_node(self, n: fx.Node) -> Any:
        """One node."""
        if n not in self.nodes:
            return super().run_node(n)
        (source,) = n.all_input_nodes
        text, value = self.texts.get(n), self.env[source]
        return value if text is None else parse(text).round(value)
