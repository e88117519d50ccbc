"""What a model needs before it can become hardware: the passes that its own pipeline has not applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mase_server.building import Build
from mase_server.hardware.composed import COMPUTING
from mase_server.hardware.kinds import KINDS
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import number_formats, operator_of
from mase_server.ops.table import NAMES
from mase_server.passes.arguments import Result
from mase_server.passes.attention.attention_swap import attention_swap_transform_pass
from mase_server.passes.fusion.conv_bn_fusion import conv_bn_fusion_transform_pass
from mase_server.passes.fusion.norm_fusion import norm_fusion_transform_pass
from mase_server.passes.fusion.norm_to_conv import norm_to_conv_transform_pass
from mase_server.passes.fusion.remove_dropout import remove_dropout_transform_pass
from mase_server.passes.fusion.remove_loss import remove_loss_transform_pass
from mase_server.passes.granularity.lower_granularity import lower_granularity_transform_pass
from mase_server.passes.quantize.config import COMPUTES
from mase_server.passes.quantize.transform import quantize_transform_pass
from mase_server.steps import Step

_Transform = Callable[[MaseGraph, Mapping[str, Any]], Result]

#: Pass, its arguments, its function, and what it says that it did; in the order in which they make sense.
_STRUCTURE: tuple[tuple[str, dict[str, Any], _Transform, str], ...] = (
    ("remove_dropout", {}, remove_dropout_transform_pass, "removed"),
    ("remove_loss", {}, remove_loss_transform_pass, "removed"),
    ("lower_granularity", {}, lower_granularity_transform_pass, "lowered"),
    ("norm_fusion", {}, norm_fusion_transform_pass, "fused"),
    ("attention_swap", {"to": "eager"}, attention_swap_transform_pass, "swapped"),
    ("conv_bn_fusion", {}, conv_bn_fusion_transform_pass, "fused"),
    ("norm_to_conv", {}, norm_to_conv_transform_pass, "made"),
)

#: Further operators whose results hardware rounds, which a default of quantize leaves as they are.
_FURTHER = (
    frozenset(name for kind in ("table", "reduce", "linear", "matmul") for name in KINDS[kind].rules) | COMPUTING
) & NAMES - COMPUTES - {"amax"}
#: Of these, what keeps the format of its operand, but for the lowest number: formats that a person chose stay there.
_KEEPS = frozenset({"neg", "abs"})


def prepare(graph: MaseGraph, build: Build) -> tuple[MaseGraph, list[str], str | None]:
    """The graph fit for hardware, the steps that made it so, as texts, and on what open formats were calibrated.

    What the graph is rounded to already stays; `build.precision` is for operators that nobody has rounded.
    ValueError for a precision that is no format.
    """
    steps, calibrated = [], None
    for name, arguments, function, key in _STRUCTURE:
        graph, found = function(graph, arguments)
        if found[key]:
            graph.propagate()
            steps.append(Step(name, arguments))
    if (wanted := _quantisation(graph, build)) is not None:
        graph, found = quantize_transform_pass(graph, wanted)
        calibrated = found["calibrated"]
        graph.propagate()
        steps.append(Step("quantize", wanted))
    return graph, [str(step) for step in steps], calibrated


def _quantisation(graph: MaseGraph, build: Build) -> dict[str, Any] | None:
    """The arguments of quantize; None where every operator is rounded."""
    formats = number_formats(graph.fx_graph, graph.module)
    named = {node: operator_of(node, graph.module) for node in graph.fx_graph.nodes if node.op.startswith("call")}
    computing = [node for node, operator in named.items() if operator in COMPUTES | _FURTHER]
    unrounded = [node for node in computing if node not in formats]
    whole = len(unrounded) == len(computing)
    wanted = [node for node in unrounded if whole or named[node] not in _KEEPS]
    if not wanted:
        return None
    further = sorted({named[node] for node in wanted} - COMPUTES)
    arguments: dict[str, Any] = {"default": build.precision, **dict.fromkeys(further, build.precision)}
    if build.data:
        arguments["data"] = build.data
    return arguments if whole else {**arguments, "only": [node.name for node in wanted]}
