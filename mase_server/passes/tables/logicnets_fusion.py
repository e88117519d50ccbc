"""logicnets_fusion_transform_pass: small layers as truth tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.selection import Selection
from mase_server.passes.tables.functional import look_up
from mase_server.passes.tables.layers import Layer, Table, UnfitError, layer
from mase_server.passes.weighted import require_values, weighted

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"max_bits": 12, "only": ()})


@transform
def logicnets_fusion_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Take each linear layer on few rounded inputs together with what follows it, as one truth table for each neuron.

    max_bits: of an address; a neuron that reads 4 inputs of 3 bits needs 12.  only: nodes and modules to work on;
    without it, the whole graph.
    The inputs have to be rounded to fixed point, and few enough weights of each neuron may differ from zero: quantise
    and prune first. Batch norms (in eval mode), activations, numbers that are added or multiplied and roundings that
    follow are in the table too. The table has what the layer gives for every combination of codes; where weights are
    rounded too, sums are exact, and so is the graph. It does not learn any more.
    Gives {"fused": {node: {"inputs": read by a neuron, "entries": of its table, "neurons", "with": names of the nodes
    that are in it}}, "kept": node: why it stays}.  ValueError for an unknown name, and for weights without values.
    Source: `chop.passes.graph.transforms.utils.logicnets_fusion`.

    >>> layer = nn.Linear(3, 2)
    >>> weight = nn.init.constant_(layer.weight, 0.5)
    >>> graph = MaseGraph(nn.Sequential(layer, nn.ReLU()), {"input": torch.randn(5, 3)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(3,1)"})
    >>> graph, found = passes.logicnets_fusion_transform_pass(graph)
    >>> [found["fused"]["_1"][key] for key in ("inputs", "entries", "neurons")]
    [3, 512, 2]
    """
    given = options("logicnets_fusion_transform_pass", pass_args, _DEFAULTS)
    selection = Selection.of(given["only"])
    facts, model = dict(graph.facts), graph.module
    fused: dict[str, dict[str, Any]] = {}
    kept: dict[str, str] = {}
    for found in weighted(graph.fx_graph, model, selection):
        require_values("logicnets_fusion", found, found.weight(model))
        try:
            chosen = layer(found, facts, model)
            table = chosen.table(model, int(given["max_bits"]))
        except UnfitError as error:
            kept[found.node.name] = str(error)
            continue
        names = [node.name for node in chosen.chain]
        inputs, entries = table.inputs.shape[1], table.values.shape[1]
        last = _put(graph, chosen, table)
        fused[last.name] = {"inputs": inputs, "entries": entries, "neurons": len(table.inputs), "with": names}
    return graph, {"fused": fused, "kept": kept}


def _put(graph: MaseGraph, chosen: Layer, table: Table) -> fx.Node:
    """The table in place of a layer. Its last node stays, and so does what it is called; a rounding behind that stays
    too, which changes nothing any more, but tells the format."""
    chain, nodes = chosen.chain, graph.fx_graph
    last = chain[-2] if format_text(chain[-1]) is not None else chain[-1]
    names = {"inputs": f"{last.name}_table_inputs", "values": f"{last.name}_table"}
    for part, name in names.items():
        graph.module.register_buffer(name, getattr(table, part))
    with nodes.inserting_before(last):
        parts = [nodes.get_attr(names[part]) for part in ("inputs", "values")]
    sources = last.all_input_nodes
    last.op, last.target = "call_function", look_up
    last.args, last.kwargs = (chosen.product.data, *parts, chosen.format), {}
    for source in sources:
        _erase(source)
    return last


def _erase(node: fx.Node) -> None:
    """A node that nobody uses, and what only it used."""
    if not node.users and node.op != "placeholder" and not node._erased:
        sources = node.all_input_nodes
        node.graph.erase_node(node)
        for source in sources:
            _erase(source)


PASS = Pass(
    name="logicnets_fusion",
    title="Make small layers truth tables",
    kind="transform",
    function=logicnets_fusion_transform_pass,
    arguments=(Argument("max_bits", "integer", "bits of a table's address", 12, minimum=1, maximum=20),),
    needs=frozenset({"weights"}),
    selects=True,
)
