"""Two graphs run side by side on the same inputs, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.formats import parse
from mase_server.ir.check import tensors_of
from mase_server.ir.number_formats import format_text
from mase_server.ir.propagate import preserved
from mase_server.ir.values import changes_its_input
from mase_server.passes.error.running import Run, copied
from mase_server.passes.error.sums import Error, Sums

#: Key of a node's meta: the name of the node of the original whose value a node gives, where that is not its own name.
GIVES = "gives"
#: The same, of a node that a pass wrote as several: the name of that node.
PART_OF = "part_of"

Pairs = dict[fx.Node, tuple[str, fx.Node]]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of a transformed graph against its original on the same inputs.

    nodes: by the name that a node has in both.  local: the same, with every node computed from the original's values:
    the error that it adds by itself; empty unless asked for.  outputs: by where the tensor is, e.g. "output.logits",
    in tuples, maps and model outputs; caches and other objects are not looked into.  output: all of these as one
    vector.  saturated: the share of saturated values by node, see `_Saturation`; saturation: of all, None for no format
    that has a range.
    """

    nodes: Mapping[str, Error]
    local: Mapping[str, Error]
    outputs: Mapping[str, Error]
    output: Error
    saturated: Mapping[str, float] = field(default_factory=dict)
    saturation: float | None = None


def measure(
    original: fx.GraphModule, transformed: fx.GraphModule, *feeds: Sequence[Any], local: bool = False
) -> Errors:
    """The error of every floating-point value that two graphs have in common, over all given inputs.

    feeds: what the placeholders get, in order, for each run (see `Knowledge.feed`).  A node's value is what its users
    get of it: rounded, where all of them get it rounded to one format. Nodes are matched by name, or by `meta["gives"]`
    of the transformed one. Both graphs run at the same pace, so that only values in use are in memory; what they change
    in their modules, and random numbers, are as before afterwards.  Raises what either graph raises.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> original = original_of(graph)
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(16,12)"})
    >>> errors = measure(original, graph.model, graph.knowledge.feed(graph.arguments))
    >>> errors.output.sqnr > 60
    True
    """
    pairs = _pairs(original.graph, transformed.graph)
    wanted = frozenset(other for _, other in pairs.values())
    copies = any(changes_its_input(node, transformed) for node in transformed.graph.nodes)
    whole, alone, outputs, saturation = _Named(), _Named(), _Named(), _Saturation()
    with preserved(original), preserved(transformed), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for values in feeds:
            follower = _Follower(Run(transformed, values, saturation.see), wanted, copies, whole)
            forced = _Follower(Run(transformed, values), wanted, copies, alone) if local else None
            last = _beside(Run(original, values), follower, forced, pairs)
            outputs.add_parts(last, follower.rest())
    shares = saturation.shares, saturation.share
    return Errors(whole.errors(), alone.errors(), outputs.errors(), outputs.total(), *shares)


def _beside(original: Run, follower: _Follower, forced: _Follower | None, pairs: Pairs) -> Any:
    """Run the original, and the others up to the same values each time; gives the original's output."""
    value: Any = None
    while original.done < len(original.order):
        node, value = original.step()
        if node in pairs:
            name, other = pairs[node]
            follower.meet(name, other, value)
            if forced is not None:
                forced.meet(name, other, value)
                forced.force(other, value)
    return value


class _Named(dict[str, Sums]):
    """Sums by name."""

    def add(self, name: str, reference: Any, value: Any) -> None:
        """Two values; what has no floating-point tensor is left out."""
        theirs, ours = _floating(reference), _floating(value)
        if not theirs:
            return
        sums = self.setdefault(name, Sums())
        sums.known = sums.known and theirs.keys() == ours.keys()
        for path in theirs.keys() & ours.keys():
            sums.add(theirs[path], ours[path])

    def add_parts(self, reference: Any, value: Any) -> None:
        """Two outputs, tensor by tensor."""
        ours = _floating(value)
        for path, tensor in _floating(reference).items():
            self.add(path, tensor, ours.get(path))

    def errors(self) -> dict[str, Error]:
        """Each one's error."""
        return {name: sums.error() for name, sums in self.items()}

    def total(self) -> Error:
        """The error of all together."""
        return Sums(
            sum(sums.signal for sums in self.values()),
            sum(sums.noise for sums in self.values()),
            max((sums.largest for sums in self.values()), default=0.0),
            all(sums.known for sums in self.values()),
        ).error()


class _Saturation:
    """Values counted while a graph runs, by the layer or operator whose they are.

    A value is saturated if it is above the highest or below the lowest that its format holds; NaN is not. Formats whose
    range the data decide, as scaled integers, never saturate, and are not counted.
    """

    def __init__(self) -> None:
        #: Name -> [saturated values, all values].
        self._counts: dict[str, list[int]] = {}

    def see(self, node: fx.Node, value: Any) -> None:
        """The value of a node: it is counted once for each rounding of it."""
        for user in node.users:
            text = format_text(user)
            limits = None if text is None or user.all_input_nodes[:1] != [node] else parse(text).range
            if limits is None:
                continue
            counts = self._counts.setdefault(_owner(user, node), [0, 0])
            for tensor in tensors_of(value).values():
                if tensor.is_floating_point() and not tensor.is_meta:
                    outside = (tensor > limits.highest) | (tensor < limits.lowest)
                    counts[0] += int(outside.sum())
                    counts[1] += tensor.numel()

    @property
    def shares(self) -> dict[str, float]:
        """By the name of the node: of a layer's parameters and of what it gives, from 0 to 1."""
        return {name: outside / total for name, (outside, total) in self._counts.items() if total}

    @property
    def share(self) -> float | None:
        """Of all values together; None where none was rounded to a format with a range."""
        outside, total = map(sum, zip(*self._counts.values(), strict=True)) if self._counts else (0, 0)
        return outside / total if total else None


def _owner(rounding: fx.Node, source: fx.Node) -> str:
    """Whose value is rounded: what computes it; of parameters, inputs and what was rounded already, who reads them."""
    if source.op in ("get_attr", "placeholder") or format_text(source) is not None:
        source = next(iter(rounding.users), source)
    return str(source.meta.get(GIVES, source.name))


class _Follower:
    """A run of the transformed graph that follows the original's.

    wanted: nodes whose values are compared.  copies: values may be written to after they are made.
    """

    def __init__(self, run: Run, wanted: frozenset[fx.Node], copies: bool, sums: _Named) -> None:
        self.run, self.wanted, self.copies, self.sums = run, wanted, copies, sums
        self._held: dict[fx.Node, Any] = {}

    def meet(self, name: str, node: fx.Node, reference: Any) -> None:
        """Run up to the node, unless it has run already, and compare its value."""
        while node not in self._held:
            done, value = self.run.step()
            if done in self.wanted:
                self._held[done] = copied(value) if self.copies and done is not node else value
        self.sums.add(name, reference, self._held.pop(node))

    def force(self, node: fx.Node, reference: Any) -> None:
        """Go on with the reference's value, where that has the same form and is no part of another tensor."""
        mine, theirs = tensors_of(self.run.env.get(node)), tensors_of(reference)
        alike = mine.keys() == theirs.keys() and all(_alike(mine[path], theirs[path]) for path in mine)
        if mine and alike and not (self.copies and any(tensor._is_view() for tensor in mine.values())):
            self.run.env[node] = copied(reference) if self.copies else reference

    def rest(self) -> Any:
        """The output, after running what is left."""
        value: Any = None
        while self.run.done < len(self.run.order):
            _, value = self.run.step()
        return value


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _floating(value: Any) -> dict[str, Tensor]:
    found = tensors_of(value)
    return {path: tensor for path, tensor in found.items() if tensor.is_floating_point() or tensor.is_complex()}


def _pairs(original: fx.Graph, transformed: fx.Graph) -> Pairs:
    """The node that has the original's value -> its name, and the node that has the transformed one's."""
    calls = [node for node in transformed.nodes if node.op.startswith("call_")]
    named = {str(node.meta.get(GIVES, node.name)): node for node in calls}
    places = {node: place for graph in (original, transformed) for place, node in enumerate(graph.nodes)}
    return {
        _seen(node, places): (node.name, _seen(named[node.name], places))
        for node in original.nodes
        if node.name in named and node.op.startswith("call_") and format_text(node) is None
    }


def _seen(node: fx.Node, places: Mapping[fx.Node, int]) -> fx.Node:
    """The rounding through which all users get a node's value, if they get it in one format; else the node."""
    texts = {format_text(user) for user in node.users}
    one = len(texts) == 1 and None not in texts
    return min(node.users, key=lambda user: places[user]) if one else node
