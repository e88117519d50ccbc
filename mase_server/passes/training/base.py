"""training_base_pass: quantisation-aware training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.arguments import Argument
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Pass
from mase_server.passes.quantize.transform import PASS as QUANTIZE
from mase_server.passes.quantize.transform import quantize_transform_pass
from mase_server.passes.training.gradients import chosen, round_gradients
from mase_server.passes.training.modes import follow_mode


@transform
def training_base_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Make the graph train with number formats in the forward pass and, where wanted, in the gradients.

    pass_args: as those of quantize_transform_pass. A configuration may also be {"config": {"forward": {"name":
    "integer", "data_in_width": 8, ...}, "backward": {"name": "integer", "output_grad_width": 8, ...}}} or {"forward":
    "fixed(8,4)", "backward": "fixed(16,12)"}: backward gives the formats of gradients, output_grad of that which comes
    to an operator's result, data_in, weight and bias of those that it gives on.
    Gradients go straight through roundings, and the model's own parameters learn: `graph.model.train()`, then
    `loss.backward()` and an optimizer over `graph.model.parameters()`. Dropout follows train() and eval() also where
    it is a function, as batch norm does.  Gives what quantize_transform_pass gives, {"gradients": nodes whose gradients
    are rounded, "modes": nodes that follow the mode}.  ValueError for pass_args that cannot be read.
    Source: `chop.passes.graph.transforms.training.training_base_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> wanted = {"linear": {"forward": "fixed(8,4)", "backward": "fixed(16,12)"}}
    >>> graph, found = passes.training_base_pass(graph, {"by": "type", **wanted})
    >>> graph.model(torch.ones(3, 4)).sum().backward()
    >>> found["gradients"], graph.module.get_parameter("0.weight").grad.shape
    (['_0'], torch.Size([2, 4]))
    """
    forward, backward = {}, {}
    for key, entry in (pass_args or {}).items():
        forward[key], gradient = _parts(entry)
        if gradient is not None:
            backward[key] = gradient
    modes = follow_mode(graph)
    settings: dict[str, Any] = {key: forward[key] for key in ("by", "only") if key in forward}
    nodes = chosen(graph, {**settings, **backward}) if backward else []
    graph, found = quantize_transform_pass(graph, forward)
    return graph, {**found, "gradients": round_gradients(graph, nodes), "modes": modes}


def _parts(entry: Any) -> tuple[Any, Any]:
    """What a configuration says of the forward pass, and of gradients; the latter None where it does not say."""
    inner = entry.get("config", entry) if isinstance(entry, Mapping) else None
    if not isinstance(inner, Mapping) or not {"forward", "backward"} & set(inner):
        return entry, None
    for key in inner:
        if key not in ("forward", "backward", "name"):
            raise ValueError(f"training_base: a configuration has forward and backward, not {key!r}: {entry!r:.120}")
    return _plain(inner.get("forward")), _plain(inner["backward"]) if inner.get("backward") else None


def _plain(part: Any) -> Any:
    """One direction as quantize has it, without MASE's name of the pass; nothing is a configuration with no name."""
    if part is None:
        return {"config": {"name": None}}
    if not isinstance(part, Mapping):
        return part
    if part.get("pass", "quantize") != "quantize":
        raise ValueError(f"training_base: pass is {part['pass']!r}; quantize is what there is")
    return {"config": {key: value for key, value in part.items() if key != "pass"}}


PASS = Pass(
    "training_base",
    "Train with number formats",
    "transform",
    training_base_pass,
    QUANTIZE.arguments,
    others=Argument(
        "", "format", "the format of an operator, node, expression or scope, or formats forward and backward"
    ),
    needs=QUANTIZE.needs,
    selects=True,
)
