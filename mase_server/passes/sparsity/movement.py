"""add_movement_metadata: how far each weight moves in training, which pruning by movement reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn

from mase_server.ir.feeding import feed, flattened
from mase_server.ir.graph import MaseGraph
from mase_server.ir.propagate import preserved
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, SAMPLES, load
from mase_server.passes.data.batches import MOST, fitted, raw_batches
from mase_server.passes.data.files import content
from mase_server.passes.data.functions import function_of
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.report.tables import table
from mase_server.passes.selection import Selection
from mase_server.passes.sparsity.counting import software_entry
from mase_server.passes.weighted import Weighted, require_values, weighted

_DEFAULTS: Mapping[str, Any] = {
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


@analysis
def add_movement_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Write how far each weight moves in training into `software.args.weight.stat.movement`, as pruning reads it.

    checkpoints: state dicts of a training or files of them, in order, the present weights being its end.  Without them
    the graph is trained, and its weights are then as they were: steps: how many; data, samples: batches, over and over;
    loss: a function of outputs and batch that gives a scalar (or its text "file.py:function"), without which the
    outputs have to hold a `loss`; learning_rate: of plain gradient descent.
    only: nodes, layers or scopes, instead of all.  The score is the sum of |change| over the steps.
    Gives {"movement": mean score by layer, "steps": how many, "report": text}.
    ValueError without a loss, for a checkpoint that lacks a weight, and for weights on meta.
    Source: MASE's movement pruning, which adds the same up while its trainer runs.

    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False))
    >>> before = {"0.weight": model[0].weight + torch.tensor([[0.5, -0.25]])}
    >>> graph = MaseGraph(model, {"input": torch.randn(1, 2)}, add_metadata_args={})
    >>> graph, found = passes.add_movement_metadata_analysis_pass(graph, {"checkpoints": [before]})
    >>> round(found["movement"]["0"], 3)
    0.375
    """
    given = options("add_movement_metadata_analysis_pass", pass_args, _DEFAULTS)
    layers = weighted(graph.fx_graph, graph.module, Selection.of(given["only"]))
    weights = {layer.path: layer.weight(graph.module) for layer in layers}
    for layer in layers:
        require_values("add_movement_metadata", layer, weights[layer.path])
    movement = Movement(weights)
    if given["checkpoints"]:
        _saved(given["checkpoints"], weights, movement)
    else:
        _trained(graph, weights, given, movement)
    for layer in layers:
        _write(layer, graph, movement.scores[layer.path])
    means = {path.removesuffix(".weight"): float(score.mean()) for path, score in movement.scores.items()}
    report = table(("layer", "mean movement"), [(path, f"{mean:.4g}") for path, mean in means.items()])
    return graph, {"movement": means, "steps": movement.steps, "report": report}


def _write(layer: Weighted, graph: MaseGraph, score: Tensor) -> None:
    entry = software_entry(layer.node, graph, layer.name)
    entry.setdefault("stat", {})["movement"] = score


def _saved(checkpoints: Sequence[State | str], weights: State, movement: Movement) -> None:
    for index, given in enumerate(checkpoints):
        state = content(given, "checkpoints") if isinstance(given, str) else given
        if not isinstance(state, Mapping):
            raise ValueError(f"add_movement_metadata: checkpoint {index} is a {type(state).__name__}, no state dict")
        for path, weight in weights.items():
            if not isinstance(found := state.get(path), Tensor) or found.shape != weight.shape:
                raise ValueError(f"add_movement_metadata: checkpoint {index} has no {path} of {list(weight.shape)}")
        movement.take(state)
    movement.take(weights)


def _trained(graph: MaseGraph, weights: State, given: Mapping[str, Any], movement: Movement) -> None:
    """Take the weights before each step and after the last one; afterwards they are what they were."""
    batches, model = _batches(graph, given), graph.model
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    before = [parameter.detach().clone() for parameter in parameters]
    with preserved(graph.module), torch.enable_grad():
        try:
            movement.take(weights)
            for values, raw in islice(cycle(batches), int(given["steps"])):
                _step(parameters, _loss(model(*values), raw, given["loss"]), given["learning_rate"])
                movement.take(weights)
        finally:
            with torch.no_grad():
                for parameter, content in zip(parameters, before, strict=True):
                    parameter.copy_(content)


def _batches(graph: MaseGraph, given: Mapping[str, Any]) -> Sequence[tuple[list[Any], Any]]:
    """What the graph gets, and beside it the whole batch, which may hold more, such as targets."""
    if given["data"] is None:
        pairs: list[tuple[Any, Any]] = [(batch, batch) for batch in load(graph, None, given["samples"]).batches]
    else:
        raw = list(islice(raw_batches(given["data"]), given["samples"] or MOST))
        pairs = [(fitted(graph, each), each) for each in raw]
    if not pairs:
        raise ValueError(f"add_movement_metadata: data has no batch: {given['data']!r:.80}")
    return [(feed(graph.fx_graph, flattened(batch, graph.root)), each) for batch, each in pairs]


def _loss(outputs: Any, batch: Any, function: Loss | str | None) -> Tensor:
    if function is not None:
        called: Loss = function_of(function) if isinstance(function, str) else function
        return called(outputs, batch)
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if not isinstance(found, Tensor):
        raise ValueError(
            "add_movement_metadata: the outputs hold no loss; give a function of outputs and batch, e.g. "
            'loss="train.py:loss", with data that it fits, or checkpoints of a training'
        )
    return found


def _step(parameters: Sequence[nn.Parameter], loss: Tensor, rate: float) -> None:
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.sub_(gradient, alpha=rate)


PASS = Pass(
    "add_movement_metadata",
    "Score weights by their movement in training",
    "analysis",
    add_movement_metadata_analysis_pass,
    (
        DATA,
        SAMPLES,
        Argument("loss", "text", 'a function of outputs and batch that gives a scalar, "file.py:function"'),
        Argument("learning_rate", "number", "of plain gradient descent", 0.01, minimum=0),
        Argument("steps", "integer", "steps of training", 10, minimum=1),
        Argument("checkpoints", "texts", "files of state dicts of a training, in order, in place of training here"),
    ),
    needs=frozenset({"weights", "data", "metadata"}),
    selects=True,
)
