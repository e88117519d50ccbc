"""gptq_transform_pass: weights on the grid of a number format, chosen on data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx, nn

from mase_server.arguments import Argument
from mase_server.formats import NumberFormat, parse, quantise
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result
from mase_server.passes.completing import transform
from mase_server.passes.data import DATA, SAMPLES, load
from mase_server.passes.declaration import Pass
from mase_server.passes.gptq.running import Chosen, choose
from mase_server.passes.gptq.solver import Options
from mase_server.passes.quantize.config import OWN, WAYS, Chooser
from mase_server.passes.selection import Selection
from mase_server.passes.weighted import Weighted, exposed, require_values, weighted, without_weight

#: What is taken where neither the arguments nor roundings in the graph name a format.
USUAL = "mxint(4)"
_OPTIONS = ("damping", "block", "act_order")


@transform
def gptq_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Round the weights of linear and convolution layers so that their outputs change little on data.

    by, default, only and further keys: which layers, and in which formats, as quantize_transform_pass has them; of a
    configuration weight_... counts. Without any format, weights that are rounded already keep theirs, and all take
    mxint(4) where none are.  data, samples: what the graph is run on (see `data.load`).
    damping: share of the Hessian's mean diagonal that is added to it.  block: columns that are finished before the rest
    hears of them, which changes nothing but the time.  act_order: columns that matter most go first.
    Layers come in the graph's order, each on the inputs that the layers before it give by then; of very many inputs of
    one run, some that are spread evenly are heard. Pruned elements stay zero. No row gets worse than by plain rounding.
    The new weights are parameters of the graph's module; the model's own stay as they were.
    Gives {"layers": by node {"format", "error", "rounding_error": mean squared change of an output by this and by plain
    rounding}, "left": nodes whose weight is no parameter, "inputs": on what, in words}.
    ValueError for pass_args that cannot be read, formats without a grid, and weights on meta.
    Source: Frantar et al., GPTQ, 2022; MASE's module-level quantisation with `gptq`.

    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False))
    >>> _ = nn.init.constant_(model[0].weight, 0.3)
    >>> graph = MaseGraph(model, {"input": torch.tensor([[1.0, 1.0], [2.0, 2.0]])})
    >>> graph, found = passes.gptq_transform_pass(graph, {"default": "fixed(4,1)"})
    >>> graph.module.get_parameter("_0_gptq_weight").tolist()  # plain rounding would give 0.5 twice
    [[0.5, 0.0]]
    """
    given = dict(pass_args or {})
    options = Options(**{key: given.pop(key) for key in _OPTIONS if given.get(key) is not None})
    only = Selection.of(given.get("only"))
    layers = weighted(graph.fx_graph, graph.module, only)
    left = [node.name for node in without_weight(graph.fx_graph, graph.module, only)]
    formats = _formats(layers, given, graph)
    chosen = [layer for layer in layers if layer.node in formats]
    for layer in chosen:
        require_values("gptq", layer, layer.weight(graph.module))
    data = load(graph, given.get("data"), given.get("samples"))
    opened = [exposed(layer, graph.module) for layer in chosen]
    found = choose(graph, formats, opened, data, options)
    names = {layer.path: f"{layer.node.name}_gptq_weight" for layer in reversed(opened)}
    for path, name in names.items():
        graph.module.register_parameter(name, nn.Parameter(found[path].weight))
    for layer in opened:
        _put(layer, found[layer.path], names[layer.path])
    told = {layer.node.name: _told(found[layer.path]) for layer in opened}
    return graph, {"layers": told, "left": left, "inputs": data.words}


def _formats(layers: Sequence[Weighted], given: Mapping[str, Any], graph: MaseGraph) -> dict[fx.Node, NumberFormat]:
    """The format of each layer's weight that has one."""
    named = given.get("default") is not None or any(key not in OWN for key in given)
    present = {layer.node: parse(text) for layer in layers if (text := layer.rounded_to) is not None}
    if present and not named:
        return present
    chooser = Chooser(given if named else {**given, "default": USUAL}, graph.module)
    configs = {layer.node: chooser.of(layer.node) for layer in layers}
    found = {node: None if config is None else config.format_of("weight") for node, config in configs.items()}
    return {node: format for node, format in found.items() if format is not None}


def _put(layer: Weighted, chosen: Chosen, name: str) -> None:
    """Give the node its new weight, of this name; rounded, where that leaves it as it is."""
    node, before, graph = layer.node, layer.argument, layer.node.graph
    with graph.inserting_before(node):
        weight = graph.get_attr(name)
        if bool((chosen.format.round(chosen.weight) == chosen.weight).all()):
            weight = graph.call_function(quantise, (weight, str(chosen.format)))
    weight.meta["scope"] = node.meta.get("scope")
    node.replace_input_with(before, weight)
    _drop(before)


def _drop(node: fx.Node) -> None:
    """Take a node that nobody uses out of the graph, and what was only for it."""
    sources = node.all_input_nodes
    if not node.users and node.op != "placeholder":
        node.graph.erase_node(node)
        for source in sources:
            _drop(source)


def _told(chosen: Chosen) -> dict[str, Any]:
    return {"format": str(chosen.format), "error": chosen.error, "rounding_error": chosen.rounding_error}


PASS = Pass(
    name="gptq",
    title="Round weights on data (GPTQ)",
    kind="transform",
    function=gptq_transform_pass,
    arguments=(
        Argument("by", "choice", "what further keys are", "type", choices=WAYS),
        Argument("default", "format", "of all weights that nothing else names"),
        DATA,
        SAMPLES,
        Argument("damping", "number", "share of the Hessian's mean diagonal that is added to it", 0.01, minimum=0),
        Argument("block", "integer", "columns that are finished before the rest hears of them", 128, minimum=1),
        Argument("act_order", "boolean", "columns that matter most go first", False),
    ),
    others=Argument("", "format", "the format, or MASE's configuration, of an operator, node, expression or scope"),
    needs=frozenset({"weights", "data"}),
    selects=True,
)
