"""The error of a transformed graph against its original.

Both graphs run at one pace, node by node, so that only values in use are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from mase_server.formats import parse
from mase_server.ir.build import GraphBuilder, build_graph_module
from mase_server.ir.feeding import tensors_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.number_formats import format_text
from mase_server.ir.propagate import changes_its_input, preserve_model
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, SAMPLES, load
from mase_server.passes.declaration import Result, complete_options
from mase_server.protocol.arguments import Argument
from mase_server.tracing.recording.values import Rebuild, holds_tensor

# Running a graph step by step, beside another one.


class Run(fx.Interpreter):
    """One run of a graph that can pause after any node while another graph runs.

    Values are dropped after their last use; random numbers and autocast are the run's own.  see: is called with each
    node and its value, before anything can change the value in place.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        values: Sequence[Any],
        see: Callable[[fx.Node, Any], None] = lambda node, value: None,
    ) -> None:
        super().__init__(module)
        self.see = see
        self.env = {}
        self.args_iter = iter([copy_tensors(value) for value in values])
        self.order: list[fx.Node] = list(module.graph.nodes)
        self.done = 0
        self._state = _State()

    def step(self) -> tuple[fx.Node, Any]:
        """Run the next node; return it and its value."""
        node = self.order[self.done]
        outside = self._state.exchanged()
        try:
            value = self.env[node] = self.run_node(node)
            self.see(node, value)
        finally:
            self._state = outside.exchanged()
        for last in self.user_to_last_uses.get(node, []):
            self.env.pop(last, None)
        self.done += 1
        return node, value


class _State:
    """Random numbers and autocast of one run."""

    def __init__(self) -> None:
        self.random = torch.get_rng_state()
        self.enabled, self.dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        self.cached = torch.is_autocast_cache_enabled()

    def exchanged(self) -> _State:
        """Replace the present state by this one; return the former."""
        before = _State()
        torch.set_rng_state(self.random)
        torch.set_autocast_enabled("cpu", self.enabled)
        torch.set_autocast_dtype("cpu", self.dtype)
        torch.set_autocast_cache_enabled(self.cached)
        return before


def copy_tensors(value: Any) -> Any:
    """The same value with copies of its tensors."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return Rebuild.of(value).changed(lambda tensor: tensor.detach().clone()) if holds_tensor(value) else value


# The error of values against a reference: its sums, and the figures made from them.

#: Elements that are widened to float64 at a time.
CHUNK = 1 << 20


class Error(NamedTuple):
    """How far values y are from a reference x.

    sqnr: signal to quantisation noise, 10 * log10(sum(x**2) / sum((x - y)**2)) in dB; infinite where nothing differs;
    None where the reference is all zero and they differ, and where something is not finite.
    max_error: the largest |x - y|; None where something is not finite.
    Infinities and NaN that are the same in both are left out.
    """

    sqnr: float | None
    max_error: float | None


@dataclass(slots=True)
class Sums:
    """The sums from which an `Error` is computed, over any number of tensors."""

    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    known: bool = True

    def add(self, reference: Tensor, values: Tensor) -> None:
        """Add two tensors of one shape; tensors of different shapes make the error unknown."""
        if reference.shape != values.shape or reference.is_meta or values.is_meta:
            self.known = False
            return
        for x, y in zip(_split_into_chunks(reference), _split_into_chunks(values), strict=True):
            self._add(x, y)

    def _add(self, x: Tensor, y: Tensor) -> None:
        difference = x - y
        signal, noise = float(torch.dot(x, x)), float(torch.dot(difference, difference))
        if not (math.isfinite(signal) and math.isfinite(noise)):
            same = (x == y) | (x.isnan() & y.isnan())
            difference = difference.masked_fill(same, 0.0)
            x = x.masked_fill(same & ~x.isfinite(), 0.0)
            signal, noise = float(torch.dot(x, x)), float(torch.dot(difference, difference))
        self.signal, self.noise = self.signal + signal, self.noise + noise
        self.largest = max(self.largest, float(difference.abs().max()))
        self.known = self.known and math.isfinite(signal) and math.isfinite(noise)

    def error(self) -> Error:
        """The error of everything that was added."""
        if not self.known:
            return Error(None, None)
        if self.noise == 0:
            return Error(math.inf, 0.0)
        return Error(10 * math.log10(self.signal / self.noise) if self.signal else None, self.largest)


def _split_into_chunks(tensor: Tensor) -> Iterator[Tensor]:
    flat = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    if flat.numel():
        yield from (part.double() for part in torch.split(flat.reshape(-1), CHUNK))


# The graph from which a transformed one was made.


def original_of(graph: MaseGraph) -> fx.GraphModule:
    """The graph as it was recorded, with the same names of nodes, over the model's own parameters.

    ValueError for a graph that was not recorded here.
    """
    recording = graph.recording
    if recording is None:
        name = type(graph.root).__name__
        raise ValueError(f"{name} was given as a graph, so its original is not known: keep a copy, and pass that")
    built = GraphBuilder(recording.run, recording.probed).build()
    return build_graph_module(built, graph.root, recording.run.constants)


#: A key of a node's meta: the name of the original's node whose value the node gives, if that differs from its own
#: name.
GIVES = "gives"
#: The same for a node that a pass split into several: the name of the original node.
PART_OF = "part_of"

Pairs = dict[fx.Node, tuple[str, fx.Node]]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of a transformed graph against its original on the same inputs.

    nodes: by the name that a node has in both.  local: the error that each node adds by itself, computed from the
    original's values; empty unless asked for.  outputs: by the path of the tensor, e.g. "output.logits", in tuples,
    maps and model outputs; caches and other objects are left out.  output: all of these as one vector.  saturated:
    the share of saturated values by node, see `_Saturation`; saturation: of all values, None if no format has a
    range.
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

    feeds: the values of the placeholders, in order, for each run (see `Knowledge.feed`).  A node's value is what its
    users read: the rounded one, if all of them round it to one format. Nodes are matched by name, or by
    `meta["gives"]` of the transformed one. Both graphs run side by side, so that only values in use are in memory.
    Afterwards their modules and the random numbers are as before.  Raises what either graph raises.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> original = original_of(graph)
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(16,12)"})
    >>> errors = measure(original, graph.model, graph.knowledge.feed(graph.arguments))
    >>> errors.output.sqnr > 60
    True
    """
    pairs = _pair_nodes(original.graph, transformed.graph)
    wanted = frozenset(other for _, other in pairs.values())
    copies = any(changes_its_input(node, transformed) for node in transformed.graph.nodes)
    whole, alone, outputs, saturation = _Named(), _Named(), _Named(), _Saturation()
    with preserve_model(original), preserve_model(transformed), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for values in feeds:
            follower = _Follower(Run(transformed, values, saturation.see), wanted, copies, whole)
            forced = _Follower(Run(transformed, values), wanted, copies, alone) if local else None
            last = _run_side_by_side(Run(original, values), follower, forced, pairs)
            outputs.add_parts(last, follower.rest())
    shares = saturation.shares, saturation.share
    return Errors(whole.errors(), alone.errors(), outputs.errors(), outputs.total(), *shares)


def _run_side_by_side(original: Run, follower: _Follower, forced: _Follower | None, pairs: Pairs) -> Any:
    """Run the original, and the others up to each of its values in turn; return the original's output."""
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
        """Add two values; those without a floating-point tensor are left out."""
        theirs, ours = _floating_tensors(reference), _floating_tensors(value)
        if not theirs:
            return
        sums = self.setdefault(name, Sums())
        sums.known = sums.known and theirs.keys() == ours.keys()
        for path in theirs.keys() & ours.keys():
            sums.add(theirs[path], ours[path])

    def add_parts(self, reference: Any, value: Any) -> None:
        """Add two outputs, tensor by tensor."""
        ours = _floating_tensors(value)
        for path, tensor in _floating_tensors(reference).items():
            self.add(path, tensor, ours.get(path))

    def errors(self) -> dict[str, Error]:
        """The error of each."""
        return {name: sums.error() for name, sums in self.items()}

    def total(self) -> Error:
        """The error of all together; unknown if there is nothing to compare."""
        return Sums(
            sum(sums.signal for sums in self.values()),
            sum(sums.noise for sums in self.values()),
            max((sums.largest for sums in self.values()), default=0.0),
            bool(self) and all(sums.known for sums in self.values()),
        ).error()


class _Saturation:
    """Saturated values, counted while a graph runs, by the layer or operator that they belong to.

    A value is saturated if it is above the highest or below the lowest value of its format; NaN is not. Formats
    whose range depends on the data, such as scaled integers, never saturate, and are not counted.
    """

    def __init__(self) -> None:
        #: Name -> [saturated values, all values].
        self._counts: dict[str, list[int]] = {}

    def see(self, node: fx.Node, value: Any) -> None:
        """Note the value of a node, which is counted once for each rounding of it."""
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
        """By the name of the node: the share of its parameters and results, from 0 to 1."""
        return {name: outside / total for name, (outside, total) in self._counts.items() if total}

    @property
    def share(self) -> float | None:
        """The share of all values; None if none was rounded to a format with a range."""
        outside, total = map(sum, zip(*self._counts.values(), strict=True)) if self._counts else (0, 0)
        return outside / total if total else None


def _owner(rounding: fx.Node, source: fx.Node) -> str:
    """The owner of a rounded value: the node that computes it; for parameters, inputs and rounded values, the
    reader."""
    if source.op in ("get_attr", "placeholder") or format_text(source) is not None:
        source = next(iter(rounding.users), source)
    return str(source.meta.get(GIVES, source.name))


class _Follower:
    """A run of the transformed graph that follows the original's.

    wanted: nodes whose values are compared.  copies: may values be written to after they are made?
    """

    def __init__(self, run: Run, wanted: frozenset[fx.Node], copies: bool, sums: _Named) -> None:
        self.run, self.wanted, self.copies, self.sums = run, wanted, copies, sums
        self._held: dict[fx.Node, Any] = {}

    def meet(self, name: str, node: fx.Node, reference: Any) -> None:
        """Run up to the node, unless it has run already, and compare its value."""
        while node not in self._held:
            done, value = self.run.step()
            if done in self.wanted:
                self._held[done] = copy_tensors(value) if self.copies and done is not node else value
        self.sums.add(name, reference, self._held.pop(node))

    def force(self, node: fx.Node, reference: Any) -> None:
        """Continue with the reference's value if it has the same form and is no part of another tensor."""
        mine, theirs = tensors_of(self.run.env.get(node)), tensors_of(reference)
        alike = mine.keys() == theirs.keys() and all(_has_same_form(mine[path], theirs[path]) for path in mine)
        if mine and alike and not (self.copies and any(tensor._is_view() for tensor in mine.values())):
            self.run.env[node] = copy_tensors(reference) if self.copies else reference

    def rest(self) -> Any:
        """Run the remaining nodes; return the output."""
        value: Any = None
        while self.run.done < len(self.run.order):
            _, value = self.run.step()
        return value


def _has_same_form(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _floating_tensors(value: Any) -> dict[str, Tensor]:
    found = tensors_of(value)
    return {path: tensor for path, tensor in found.items() if tensor.is_floating_point() or tensor.is_complex()}


def _pair_nodes(original: fx.Graph, transformed: fx.Graph) -> Pairs:
    """The node that has the original's value -> its name, and the node that has the transformed one's."""
    calls = [node for node in transformed.nodes if node.op.startswith("call_")]
    named = {str(node.meta.get(GIVES, node.name)): node for node in calls}
    places = {node: place for graph in (original, transformed) for place, node in enumerate(graph.nodes)}
    return {
        _node_seen_by_users(node, places): (node.name, _node_seen_by_users(named[node.name], places))
        for node in original.nodes
        if node.name in named and node.op.startswith("call_") and format_text(node) is None
    }


def _node_seen_by_users(node: fx.Node, places: Mapping[fx.Node, int]) -> fx.Node:
    """The rounding through which all users read a node's value, if they use one format; else the node."""
    texts = {format_text(user) for user in node.users}
    one = len(texts) == 1 and None not in texts
    return min(node.users, key=lambda user: places[user]) if one else node


# measure_error: the cost of a transform, node by node.

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"original": None, "data": None, "samples": None, "local": False})


@analysis(
    "Measure the error against the original",
    arguments=(
        DATA,
        SAMPLES,
        Argument("local", "boolean", "also measure the error that each node adds by itself", False),
    ),
    needs={"weights", "data"},
)
def measure_error_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Run a transformed graph beside its original and tell how far every value is from what it was.

    original: a MaseGraph or GraphModule; the graph as it was recorded without it.  data, samples: see `data.load`.
    local: also the error that each node adds by itself, to what the original gives it.

    Writes `software.results.data_out_0.stat.error` of every node that both have. An error is the signal to noise
    ratio in dB, 10 * log10(sum(x**2) / sum((x - y)**2)), infinite where nothing differs, and the largest |x - y|; each
    is None where it is not known.  Gives {"output": (sqnr, max_error) of all outputs together, "outputs": by where the
    tensor is, "nodes": by name, "local": the same, "saturated": by name the share of values outside of what their
    formats hold, "saturation": of all of them, "inputs": on what}.  ValueError for what is not known, and for data
    that do not fit.

    >>> _ = torch.manual_seed(0)
    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(16,10)"})
    >>> graph, found = passes.measure_error_analysis_pass(graph)
    >>> 50 < found["output"].sqnr < 100, found["inputs"]
    (True, 'the example inputs')
    """
    given = complete_options("measure_error_analysis_pass", pass_args, _DEFAULTS)
    data = load(graph, given["data"], given["samples"])
    found = measure(
        _original_module(graph, given["original"]), graph.model, *data.feeds(graph), local=bool(given["local"])
    )
    for node in graph.nodes:
        _write_error(node, graph, found)
    plain = {name: dict(getattr(found, name)) for name in ("nodes", "local", "outputs")}
    saturation = {"saturated": dict(found.saturated), "saturation": found.saturation}
    return graph, {"output": found.output, **plain, **saturation, "inputs": data.words}


def _original_module(graph: MaseGraph, original: Any) -> fx.GraphModule:
    if original is None:
        return original_of(graph)
    found = original.model if isinstance(original, MaseGraph) else original
    if not isinstance(found, fx.GraphModule):
        raise ValueError(f"measure_error: original is a {type(original).__name__}, expected a MaseGraph or GraphModule")
    return found


def _write_error(node: fx.Node, graph: MaseGraph, found: Errors) -> None:
    """Write the error into the node's metadata; for a rounded node, the error of the value that its users read."""
    error = found.nodes.get(str(node.meta.get(GIVES, node.name)))
    if error is None or not node.op.startswith("call_"):
        return
    results = metadata_of(node, graph.module)["software"].setdefault("results", {})
    results.setdefault("data_out_0", {}).setdefault("stat", {})["error"] = error._asdict()
