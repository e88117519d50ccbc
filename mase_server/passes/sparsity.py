"""Passes on the sparsity of weights and activations, and on the movement of weights in training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.feeding import feed_placeholders, flatten_arguments
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import SoftwareEntry, metadata_of
from mase_server.ir.propagate import preserve_model, visit_for_real
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, MOST, SAMPLES, Data, fit_batch, function_of, load, raw_batches, read_content
from mase_server.passes.declaration import Argument, Result, Selection, complete_options
from mase_server.passes.prune.functional import sparsify
from mase_server.passes.report.report_graph import format_table
from mase_server.passes.weighted import MASK, PRUNED, Weighted, find_weighted, is_mask, require_values

_DEFAULTS: Mapping[str, Any] = {"dummy_in": None, "data": None, "samples": None, "add_meta": True, "only": None}


@analysis(
    "Count zeros in weights and activations",
    arguments=(DATA, SAMPLES, Argument("add_meta", "boolean", "write the findings into the metadata", True)),
    needs={"weights", "data", "metadata"},
    selects=True,
)
def add_natural_sparsity_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Count the zeros in the weights of linear and convolution layers, and in their inputs.

    dummy_in, or data and samples: the data that the graph runs on.  add_meta: write `natural_sparsity` into
    `software.args.$name`.  only: nodes, layers or scopes, instead of all.
    Gives {"$layer_weight", "$layer_activation": (elements, share of zeros), "avg_weight", "avg_activation": shares over
    all elements, "inputs": the source of the data, in words, "report": text}.
    MASE gives shares of non-zero elements under these names.  ValueError for weights on meta.
    Source: `chop.passes.graph.analysis.pruning.add_natural_sparsity_metadata_analysis_pass`.

    >>> model, x = nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), torch.tensor([[-1.0, 1.0, -2.0, 2.0]])
    >>> graph = MaseGraph(model, {"input": x}, add_metadata_args={})
    >>> graph, found = passes.add_natural_sparsity_metadata_analysis_pass(graph)
    >>> found["1_activation"], found["avg_weight"]
    ((4, 0.5), 0.0)
    """
    given = complete_options("add_natural_sparsity_metadata_analysis_pass", pass_args, _DEFAULTS)
    layers = find_weighted(graph.fx_graph, graph.module, Selection.of(given["only"]))
    for layer in layers:
        require_values("add_natural_sparsity_metadata", layer, layer.weight(graph.module))
    data = inputs_from(given, graph)
    activations = zeros_in(graph, data, (layer.data for layer in layers))
    weights = {layer.path: Zeros.of([layer.weight(graph.module)]) for layer in layers}
    found: dict[str, tuple[int, float]] = {}
    for layer in layers:
        name, own, got = layer.path.removesuffix(".weight"), weights[layer.path], activations[layer.data]
        found |= {f"{name}_weight": (own.count, own.share), f"{name}_activation": (got.count, got.share)}
        if given["add_meta"]:
            software_entry(layer.node, graph, layer.name)["natural_sparsity"] = own.share
            software_entry(layer.node, graph, data_name(layer.node, graph, layer.data))["natural_sparsity"] = got.share
    average = {"avg_weight": weights.values(), "avg_activation": [activations[layer.data] for layer in layers]}
    shares = {name: Zeros.together(parts).share for name, parts in average.items()}
    return graph, {**found, **shares, "inputs": data.words, "report": _sparsity_report(found)}


def _sparsity_report(found: Mapping[str, tuple[int, float]]) -> str:
    rows = [(" ".join(name.rsplit("_", 1)), f"{count:,}", f"{share:.2%}") for name, (count, share) in found.items()]
    return format_table(("tensor", "elements", "zeros"), rows)


# Counting zeros in weights and in the values of a run.


@dataclass(slots=True)
class Zeros:
    """Elements seen, and how many of them were zero."""

    count: int = 0
    zeros: int = 0

    def add(self, value: Any) -> None:
        """Count a tensor's elements; other objects have none."""
        if isinstance(value, Tensor):
            self.count += value.numel()
            self.zeros += value.numel() - int(torch.count_nonzero(value))

    @property
    def share(self) -> float:
        """The share of zeros; 0 if nothing was seen."""
        return self.zeros / self.count if self.count else 0.0

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Zeros:
        """The zeros of some tensors together."""
        made = cls()
        for tensor in tensors:
            made.add(tensor)
        return made

    @classmethod
    def together(cls, parts: Iterable[Zeros]) -> Zeros:
        """The sum of counts."""
        kept = list(parts)
        return cls(sum(part.count for part in kept), sum(part.zeros for part in kept))


def zeros_of_pruned(graph: MaseGraph) -> dict[fx.Node, Zeros]:
    """The share of each pruned product's weight that pruning took away, by its node; masks without values are left
    out."""
    found = {}
    for layer in find_weighted(graph.fx_graph, graph.module):
        path = str(layer.user.all_input_nodes[1].target) if layer.masked else layer.path
        taken: Tensor = attribute(graph.module, path)
        if path.endswith((MASK, PRUNED)) and not taken.is_meta:
            found[layer.node] = Zeros.of([taken])
    return found


def inputs_from(given: Mapping[str, Any], graph: MaseGraph) -> Data:
    """The data to run on: MASE's `dummy_in`, one batch by name, or `data` as for all passes."""
    data = given["data"] if given["dummy_in"] is None else [dict(graph.knowledge.named(given["dummy_in"]))]
    return load(graph, data, given["samples"])


def zeros_in(graph: MaseGraph, data: Data, nodes: Iterable[fx.Node]) -> dict[fx.Node, Zeros]:
    """The zeros in the results of nodes over all batches. The graph runs for real, and is restored afterwards."""
    found = {node: Zeros() for node in nodes}

    def visit(node: fx.Node, value: Any) -> None:
        if node in found:
            found[node].add(value)

    for values in data.feeds(graph) if found else ():
        visit_for_real(graph.module, values, visit)
    return found


def software_entry(node: fx.Node, graph: MaseGraph, name: str) -> SoftwareEntry:
    """The place in a node's software metadata for an argument."""
    arguments = metadata_of(node, graph.module)["software"].setdefault("args", {})
    found: SoftwareEntry = arguments.setdefault(name, {"stat": {}})
    return found


def data_name(node: fx.Node, graph: MaseGraph, source: fx.Node) -> str:
    """MASE's name of the argument that a node gets from another one."""
    arguments = metadata_of(node, graph.module)["common"].get("args", {})
    named = (name for name, entry in arguments.items() if isinstance(entry, dict) and entry.get("from") is source)
    return next(named, "data_in_0")


# add_pruning_metadata: the sparsity of a pruned graph, in its masks and in the inputs of its layers.

_ANALYSIS_DEFAULTS: Mapping[str, Any] = {
    "dummy_in": None,
    "data": None,
    "samples": None,
    "add_value": False,
    "only": None,
}


@analysis(
    "Measure how sparse a pruned model is",
    arguments=(DATA, SAMPLES, Argument("add_value", "boolean", "write masks into the metadata, too", False)),
    needs={"weights", "data", "metadata"},
    selects=True,
)
def add_pruning_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Write the sparsity of a pruned graph's weights and activations into `software.args.$name.sparsity`.

    dummy_in, or data and samples: the data that the graph runs on, for activations.  add_value: write the mask of a
    weight into `software.args.weight.mask_value`, too.  only: nodes, layers or scopes, instead of all.
    Gives {layer: {"weight_sparsity": share that its mask takes, "activation_sparsity": share of zeros in its input,
    if that was pruned}} for each pruned layer.  ValueError if nothing is pruned.
    Source: `chop.passes.graph.analysis.pruning.add_pruning_metadata_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(8, 4)), {"input": torch.randn(1, 8)}, add_metadata_args={})
    >>> graph, _ = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5}, "activation": {"sparsity": 0.25}})
    >>> passes.add_pruning_metadata_analysis_pass(graph)[1]
    {'0': {'weight_sparsity': 0.5, 'activation_sparsity': 0.25}}
    """
    given = complete_options("add_pruning_metadata_analysis_pass", pass_args, _ANALYSIS_DEFAULTS)
    layers = find_weighted(graph.fx_graph, graph.module, Selection.of(given["only"]))
    sparse = {layer.node: source for layer in layers if (source := _find_sparsifier(layer)) is not None}
    layers = [layer for layer in layers if is_mask(layer.user) or layer.node in sparse]
    if not layers:
        raise ValueError("add_pruning_metadata: nothing is pruned here; run prune_transform_pass first")
    activations = zeros_in(graph, inputs_from(given, graph), sparse.values()) if sparse else {}
    found: dict[str, dict[str, float]] = {}
    for layer in layers:
        own = found.setdefault(layer.path.removesuffix(".weight"), {})
        if is_mask(layer.user):
            own["weight_sparsity"] = _write_weight_sparsity(layer, graph, given["add_value"])
        if layer.node in sparse:
            own["activation_sparsity"] = activations[sparse[layer.node]].share
            entry = software_entry(layer.node, graph, data_name(layer.node, graph, layer.data))
            entry["sparsity"] = own["activation_sparsity"]
    return graph, found


def _find_sparsifier(layer: Weighted) -> fx.Node | None:
    """The node that makes the layer's input sparse, perhaps with a rounding between."""
    behind = (layer.data, *layer.data.all_input_nodes[:1])
    return next((node for node in behind if node.target is sparsify), None)


def _write_weight_sparsity(layer: Weighted, graph: MaseGraph, add_value: bool) -> float:
    mask: Tensor = attribute(graph.module, str(layer.user.all_input_nodes[1].target))
    entry = software_entry(layer.node, graph, layer.name)
    entry["sparsity"] = Zeros.of([mask]).share
    if add_value:
        entry["mask_value"] = mask
    return float(entry["sparsity"])


# add_movement_metadata: the movement of each weight in training, which pruning by movement reads.

_MOVEMENT_DEFAULTS: Mapping[str, Any] = {
    "checkpoints": None, "data": None, "samples": None, "loss": None, "learning_rate": 0.01, "steps": 10, "only": None,
}  # fmt: skip

#: Weights by path, at one time of a training.
State = Mapping[str, Tensor]
Loss = Callable[[Any, Any], Tensor]


class Movement:
    """Sums up |change| of weights over the states of a training. scores: by path.  steps: changes so far."""

    def __init__(self, weights: State) -> None:
        self.scores = {path: torch.zeros_like(weight, requires_grad=False) for path, weight in weights.items()}
        self.steps = -1
        self._before: dict[str, Tensor] = {}

    def take(self, state: State) -> None:
        """Take the next state, of which only these weights count."""
        for path, score in self.scores.items():
            weight = state[path].detach().to(score)
            if path in self._before:
                score += (weight - self._before[path]).abs()
            self._before[path] = weight.clone()
        self.steps += 1


@analysis(
    "Score weights by their movement in training",
    arguments=(
        DATA,
        SAMPLES,
        Argument("loss", "text", 'a function of outputs and batch that gives a scalar, "file.py:function"'),
        Argument("learning_rate", "number", "the step size of plain gradient descent", 0.01, minimum=0),
        Argument("steps", "integer", "steps of training", 10, minimum=1),
        Argument("checkpoints", "texts", "files of state dicts of a training, in order, instead of training here"),
    ),
    needs={"weights", "data", "metadata"},
    selects=True,
)
def add_movement_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Write the movement of each weight in training into `software.args.weight.stat.movement`, as pruning reads it.

    checkpoints: state dicts of a training or files of them, in order, the present weights being its end.  Without them
    the graph is trained, and its weights are restored afterwards: steps: their number; data, samples: batches,
    repeated; loss: a function of outputs and batch that gives a scalar (or its text "file.py:function"), without which
    the outputs have to hold a `loss`; learning_rate: of plain gradient descent.
    only: nodes, layers or scopes, instead of all.  The score is the sum of |change| over the steps.
    Gives {"movement": mean score by layer, "steps": how many, "report": text}.
    ValueError without a loss, for a checkpoint that lacks a weight, and for weights on meta.
    Source: MASE's movement pruning, which sums up the same while its trainer runs.

    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False))
    >>> before = {"0.weight": model[0].weight + torch.tensor([[0.5, -0.25]])}
    >>> graph = MaseGraph(model, {"input": torch.randn(1, 2)}, add_metadata_args={})
    >>> graph, found = passes.add_movement_metadata_analysis_pass(graph, {"checkpoints": [before]})
    >>> round(found["movement"]["0"], 3)
    0.375
    """
    given = complete_options("add_movement_metadata_analysis_pass", pass_args, _MOVEMENT_DEFAULTS)
    layers = find_weighted(graph.fx_graph, graph.module, Selection.of(given["only"]))
    weights = {layer.path: layer.weight(graph.module) for layer in layers}
    for layer in layers:
        require_values("add_movement_metadata", layer, weights[layer.path])
    movement = Movement(weights)
    if given["checkpoints"]:
        _measure_saved_weights(given["checkpoints"], weights, movement)
    else:
        _measure_training(graph, weights, given, movement)
    for layer in layers:
        _write_movement(layer, graph, movement.scores[layer.path])
    means = {path.removesuffix(".weight"): float(score.mean()) for path, score in movement.scores.items()}
    report = format_table(("layer", "mean movement"), [(path, f"{mean:.4g}") for path, mean in means.items()])
    return graph, {"movement": means, "steps": movement.steps, "report": report}


def _write_movement(layer: Weighted, graph: MaseGraph, score: Tensor) -> None:
    entry = software_entry(layer.node, graph, layer.name)
    entry.setdefault("stat", {})["movement"] = score


def _measure_saved_weights(checkpoints: Sequence[State | str], weights: State, movement: Movement) -> None:
    for index, given in enumerate(checkpoints):
        state = read_content(given, "checkpoints") if isinstance(given, str) else given
        if not isinstance(state, Mapping):
            raise ValueError(f"add_movement_metadata: checkpoint {index} is a {type(state).__name__}, no state dict")
        for path, weight in weights.items():
            if not isinstance(found := state.get(path), Tensor) or found.shape != weight.shape:
                raise ValueError(f"add_movement_metadata: checkpoint {index} has no {path} of {list(weight.shape)}")
        movement.take(state)
    movement.take(weights)


def _measure_training(graph: MaseGraph, weights: State, given: Mapping[str, Any], movement: Movement) -> None:
    """Take the weights before each step and after the last one; then restore them."""
    batches, model = _training_batches(graph, given), graph.model
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    before = [parameter.detach().clone() for parameter in parameters]
    with preserve_model(graph.module), torch.enable_grad():
        try:
            movement.take(weights)
            for values, raw in islice(cycle(batches), int(given["steps"])):
                _take_gradient_step(
                    parameters, _compute_loss(model(*values), raw, given["loss"]), given["learning_rate"]
                )
                movement.take(weights)
        finally:
            with torch.no_grad():
                for parameter, content in zip(parameters, before, strict=True):
                    parameter.copy_(content)


def _training_batches(graph: MaseGraph, given: Mapping[str, Any]) -> Sequence[tuple[list[Any], Any]]:
    """The graph's inputs, each with the whole batch, which may hold more, such as targets."""
    if given["data"] is None:
        pairs: list[tuple[Any, Any]] = [(batch, batch) for batch in load(graph, None, given["samples"]).batches]
    else:
        raw = list(islice(raw_batches(given["data"]), given["samples"] or MOST))
        pairs = [(fit_batch(graph, each), each) for each in raw]
    if not pairs:
        raise ValueError(f"add_movement_metadata: data has no batch: {given['data']!r:.80}")
    return [(feed_placeholders(graph.fx_graph, flatten_arguments(batch, graph.root)), each) for batch, each in pairs]


def _compute_loss(outputs: Any, batch: Any, function: Loss | str | None) -> Tensor:
    if function is not None:
        called: Loss = function_of(function) if isinstance(function, str) else function
        return called(outputs, batch)
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if not isinstance(found, Tensor):
        raise ValueError(
            "add_movement_metadata: the outputs hold no loss; give a function of outputs and batch, e.g. "
            'loss="train.py:loss", with matching data, or checkpoints of a training'
        )
    return found


def _take_gradient_step(parameters: Sequence[nn.Parameter], loss: Tensor, rate: float) -> None:
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.sub_(gradient, alpha=rate)
