"""torch.nn's transformers: modules of many operators, which are quantised one by one."""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import operator_of
from mase_server.passes.granularity.lower_granularity import lower_granularity_transform_pass
from mase_server.passes.quantize.config import Chooser
from mase_server.passes.selection import Selection, path_of

COMPOSED = frozenset(
    {
        "transformer", "transformer_encoder", "transformer_encoder_layer", "transformer_decoder",
        "transformer_decoder_layer",
    }
)  # fmt: skip


def take_apart(graph: MaseGraph, chooser: Chooser, only: Iterable[str] | None) -> None:
    """Put the operators of composed modules in their place, where these are to be quantised, or something in them."""
    selected = Selection.of(only)
    wanted = [node.name for node in graph.fx_graph.nodes if _is_wanted(node, graph, chooser, selected)]
    if wanted:
        lower_granularity_transform_pass(graph, {"only": wanted})


def _is_wanted(node: fx.Node, graph: MaseGraph, chooser: Chooser, selected: Selection) -> bool:
    if node.op != "call_module" or operator_of(node, graph.module) not in COMPOSED:
        return False
    path = path_of(node)
    inside = any(text.startswith(f"{path}.") for text in selected.only)
    return (selected.covers(node) or inside) and chooser.reaches(path)
