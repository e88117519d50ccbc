"""quantize_module_transform_pass: layers of a module in number formats, with no graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mase_server.arguments import Argument
from mase_server.formats import quantise
from mase_server.ir.graph import MaseGraph
from mase_server.passes.declaration import Pass
from mase_server.passes.gptq.running import Chosen
from mase_server.passes.gptq.transform import gptq_transform_pass
from mase_server.passes.module.choosing import Choice, Modules
from mase_server.passes.module.rounding import parameter_formats, round_data, round_parameters
from mase_server.passes.module.weights import chosen_weights
from mase_server.passes.quantize import quantize_transform_pass


def quantize_module_transform_pass(
    network: Any, pass_args: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """Round parameters, inputs and outputs of a module's layers to number formats, in place.

    network: the module, whose layers keep their classes and names; the state of a rounded parameter is under
    `parametrizations`, as torch's own have it.  A MaseGraph is quantised as a graph.
    by: type (MASE's operators) | name (paths) | regex_name.  default: for layers that compute and that nothing else
    names.  only: paths, which cover all below.  Every other key is one of what `by` says, with a configuration or
    format as quantize_transform_pass has it.
    gptq: True, or {"data", "samples", "damping", "block", "act_order"}: weights of linear and convolution layers are
    chosen as gptq_transform_pass does; where rounding such a weight again would change it, it is stored as it is.
    Gives {"quantised": {path: {"weight", "bias", ..., "data_in", "data_out": format}}, "gptq": {path: {"error",
    "rounding_error"}}, "inputs": what gptq ran on, in words, "unused": keys that matched nothing}.
    ValueError for pass_args that cannot be read, and for recurrent and attention layers, which only graphs can round.
    Source: `chop.passes.module.transforms.quantize.quantize_module_transform_pass`.

    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> config = {"config": {"name": "integer", "weight_width": 8, "weight_frac_width": 4}}
    >>> model, found = passes.quantize_module_transform_pass(model, {"by": "type", "linear": config})
    >>> found["quantised"], bool((model[0].weight * 16 == (model[0].weight * 16).round()).all())
    ({'0': {'weight': 'integer(8,4)'}}, True)
    """
    given = dict(pass_args or {})
    if isinstance(network, MaseGraph):
        return _on_graph(network, given)
    modules = Modules(given)
    choices = modules.of(network)
    weights, words = chosen_weights(network, choices, given["gptq"]) if given.get("gptq") else ({}, None)
    found = {choice.path: _quantise(choice, weights.get(f"{choice.path}.weight")) for choice in choices}
    errors = {path.removesuffix(".weight"): _errors(chosen) for path, chosen in weights.items()}
    return network, {"quantised": found, "gptq": errors, "inputs": words, "unused": modules.unused}


def _quantise(choice: Choice, chosen: Chosen | None) -> dict[str, str]:
    formats = parameter_formats(choice.module, choice.config)
    if chosen is not None:
        formats["weight"] = chosen.format
    found = {name: str(format) for name, format in formats.items()}
    if chosen is not None and not _put(choice.module, chosen):
        del formats["weight"]
    data, output = round_data(choice.module, choice.config)
    round_parameters(choice.module, formats)
    return found | {name: text for name, text in (("data_in", data), ("data_out", output)) if text is not None}


def _put(layer: nn.Module, chosen: Chosen) -> bool:
    """Store a chosen weight; would it stay the same when it is rounded?"""
    with torch.no_grad():
        layer.get_parameter("weight").copy_(chosen.weight)
        return bool((quantise(chosen.weight, str(chosen.format)) == chosen.weight).all())


def _errors(chosen: Chosen) -> dict[str, float]:
    return {"error": chosen.error, "rounding_error": chosen.rounding_error}


def _on_graph(graph: MaseGraph, given: dict[str, Any]) -> tuple[MaseGraph, dict[str, Any]]:
    gptq, found = given.pop("gptq", None), dict[str, Any]()
    if gptq:
        graph, found = gptq_transform_pass(graph, {**given, **(gptq if isinstance(gptq, Mapping) else {})})
    graph, quantised = quantize_transform_pass(graph, given)
    return graph, {**quantised, "gptq": found.get("layers", {}), "inputs": found.get("inputs")}


PASS = Pass(
    name="quantize_module",
    title="Quantise layers",
    kind="transform",
    function=quantize_module_transform_pass,
    arguments=(
        Argument("by", "choice", "what further keys are", "type", choices=("type", "name", "regex_name")),
        Argument("default", "format", "of all layers that compute and that nothing else names"),
        Argument("gptq", "boolean", "choose weights on the example inputs, as gptq does", False),
    ),
    others=Argument("", "format", "the format, or MASE's configuration, of an operator, layer or expression"),
    needs=frozenset({"weights", "data"}),
    selects=True,
    menu=False,
)
