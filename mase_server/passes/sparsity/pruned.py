"""add_pruning_metadata: how sparse a pruned graph is, in its masks and in what its layers get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, fx

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, SAMPLES
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.prune.functional import sparsify
from mase_server.passes.selection import Selection
from mase_server.passes.sparsity.counting import Zeros, data_name, inputs_from, software_entry, zeros_in
from mase_server.passes.weighted import Weighted, is_mask, weighted

_DEFAULTS: Mapping[str, Any] = {"dummy_in": None, "data": None, "samples": None, "add_value": False, "only": None}


@analysis
def add_pruning_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Write how sparse weights and activations of a pruned graph are into `software.args.$name.sparsity`.

    dummy_in, or data and samples: what the graph is run on, for activations.  add_value: write the mask of a weight
    into `software.args.weight.mask_value`, too.  only: nodes, layers or scopes, instead of all.
    Gives {layer: {"weight_sparsity": share that its mask takes, "activation_sparsity": share of zeros in what it gets,
    where that was pruned}} for each pruned layer.  ValueError where nothing is pruned.
    Source: `chop.passes.graph.analysis.pruning.add_pruning_metadata_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(8, 4)), {"input": torch.randn(1, 8)}, add_metadata_args={})
    >>> graph, _ = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5}, "activation": {"sparsity": 0.25}})
    >>> passes.add_pruning_metadata_analysis_pass(graph)[1]
    {'0': {'weight_sparsity': 0.5, 'activation_sparsity': 0.25}}
    """
    given = options("add_pruning_metadata_analysis_pass", pass_args, _DEFAULTS)
    layers = weighted(graph.fx_graph, graph.module, Selection.of(given["only"]))
    sparse = {layer.node: source for layer in layers if (source := _sparse(layer)) is not None}
    layers = [layer for layer in layers if is_mask(layer.user) or layer.node in sparse]
    if not layers:
        raise ValueError("add_pruning_metadata: nothing is pruned here; run prune_transform_pass first")
    activations = zeros_in(graph, inputs_from(given, graph), sparse.values()) if sparse else {}
    found: dict[str, dict[str, float]] = {}
    for layer in layers:
        own = found.setdefault(layer.path.removesuffix(".weight"), {})
        if is_mask(layer.user):
            own["weight_sparsity"] = _weight(layer, graph, given["add_value"])
        if layer.node in sparse:
            own["activation_sparsity"] = activations[sparse[layer.node]].share
            entry = software_entry(layer.node, graph, data_name(layer.node, graph, layer.data))
            entry["sparsity"] = own["activation_sparsity"]
    return graph, found


def _sparse(layer: Weighted) -> fx.Node | None:
    """What makes the layer's input sparse, perhaps with a rounding between."""
    behind = (layer.data, *layer.data.all_input_nodes[:1])
    return next((node for node in behind if node.target is sparsify), None)


def _weight(layer: Weighted, graph: MaseGraph, add_value: bool) -> float:
    mask: Tensor = attribute(graph.module, str(layer.user.all_input_nodes[1].target))
    entry = software_entry(layer.node, graph, layer.name)
    entry["sparsity"] = Zeros.of([mask]).share
    if add_value:
        entry["mask_value"] = mask
    return float(entry["sparsity"])


PASS = Pass(
    "add_pruning_metadata",
    "Measure how sparse a pruned model is",
    "analysis",
    add_pruning_metadata_analysis_pass,
    (DATA, SAMPLES, Argument("add_value", "boolean", "write masks into the metadata, too", False)),
    needs=frozenset({"weights", "data", "metadata"}),
    selects=True,
)
