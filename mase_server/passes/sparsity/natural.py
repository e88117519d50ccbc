"""add_natural_sparsity_metadata: zeros that are there by themselves, in weights and in what layers get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, SAMPLES
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.report.tables import table
from mase_server.passes.selection import Selection
from mase_server.passes.sparsity.counting import Zeros, data_name, inputs_from, software_entry, zeros_in
from mase_server.passes.weighted import require_values, weighted

_DEFAULTS: Mapping[str, Any] = {"dummy_in": None, "data": None, "samples": None, "add_meta": True, "only": None}


@analysis
def add_natural_sparsity_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Count the zeros in the weights of linear and convolution layers, and in what these get.

    dummy_in, or data and samples: what the graph is run on.  add_meta: write `natural_sparsity` into
    `software.args.$name`.  only: nodes, layers or scopes, instead of all.
    Gives {"$layer_weight", "$layer_activation": (elements, share of zeros), "avg_weight", "avg_activation": shares over
    all elements, "inputs": what it was run on, in words, "report": text}.
    MASE gives shares of what is not zero under these names.  ValueError for weights on meta.
    Source: `chop.passes.graph.analysis.pruning.add_natural_sparsity_metadata_analysis_pass`.

    >>> model, x = nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), torch.tensor([[-1.0, 1.0, -2.0, 2.0]])
    >>> graph = MaseGraph(model, {"input": x}, add_metadata_args={})
    >>> graph, found = passes.add_natural_sparsity_metadata_analysis_pass(graph)
    >>> found["1_activation"], found["avg_weight"]
    ((4, 0.5), 0.0)
    """
    given = options("add_natural_sparsity_metadata_analysis_pass", pass_args, _DEFAULTS)
    layers = weighted(graph.fx_graph, graph.module, Selection.of(given["only"]))
    for layer in layers:
        require_values("add_natural_sparsity_metadata", layer, layer.weight(graph.module))
    data = inputs_from(given, graph)
    activations = zeros_in(graph, data, (layer.data for layer in layers))
    weights = {layer.path: Zeros.of([layer.weight(graph.module)]) for layer in layers}
    found: dict[str, Any] = {}
    for layer in layers:
        name, own, got = layer.path.removesuffix(".weight"), weights[layer.path], activations[layer.data]
        found |= {f"{name}_weight": (own.count, own.share), f"{name}_activation": (got.count, got.share)}
        if given["add_meta"]:
            software_entry(layer.node, graph, layer.name)["natural_sparsity"] = own.share
            software_entry(layer.node, graph, data_name(layer.node, graph, layer.data))["natural_sparsity"] = got.share
    average = {"avg_weight": weights.values(), "avg_activation": [activations[layer.data] for layer in layers]}
    shares = {name: Zeros.together(parts).share for name, parts in average.items()}
    return graph, {**found, **shares, "inputs": data.words, "report": _report(found)}


def _report(found: Mapping[str, tuple[int, float]]) -> str:
    rows = [(" ".join(name.rsplit("_", 1)), f"{count:,}", f"{share:.2%}") for name, (count, share) in found.items()]
    return table(("tensor", "elements", "zeros"), rows)


PASS = Pass(
    "add_natural_sparsity_metadata",
    "Count zeros in weights and activations",
    "analysis",
    add_natural_sparsity_metadata_analysis_pass,
    (DATA, SAMPLES, Argument("add_meta", "boolean", "write what is found into the metadata", True)),
    needs=frozenset({"weights", "data", "metadata"}),
    selects=True,
)
