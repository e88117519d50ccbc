"""Passes on modules themselves, without a graph."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mase_server.formats import NumberFormat, Open, quantise
from mase_server.ir.graph import MaseGraph
from mase_server.ops.table import NAMES, op_info
from mase_server.passes.data import load, raw_batches
from mase_server.passes.declaration import Findings, PassArguments, Result, declare
from mase_server.passes.gptq import Chosen, Options, choose_weights, gptq_transform_pass
from mase_server.passes.quantize import quantize_transform_pass
from mase_server.passes.quantize.calibration import Method, of_tensor
from mase_server.passes.quantize.config import COMPUTES, Config, suggest_key
from mase_server.passes.weighted import expose_weight, find_weighted, require_values
from mase_server.protocol.arguments import Argument
from mase_server.suggestions import suggest
from mase_server.tracing.inputs.spec import InputValues
from mase_server.tracing.recording.values import fields_of


@declare(
    "Quantise layers",
    "transform",
    arguments=(
        Argument(
            "by",
            "choice",
            "what the other names refer to: operator types, names or patterns",
            "type",
            choices=("type", "name", "regex_name"),
        ),
        Argument("default", "format", "the format of all other layers that compute"),
        Argument("gptq", "boolean", "choose weights on the example inputs, as gptq does", False),
    ),
    others=Argument("", "format", "the format, or MASE's configuration, of an operator, layer or expression"),
    needs={"weights", "data"},
    selects=True,
    menu=False,
)
def quantize_module_transform_pass(network: Any, pass_args: Mapping[str, Any] | None = None) -> tuple[Any, Findings]:
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
    found = {choice.path: _quantise_layer(choice, weights.get(f"{choice.path}.weight")) for choice in choices}
    errors = {path.removesuffix(".weight"): _chosen_errors(chosen) for path, chosen in weights.items()}
    return network, {"quantised": found, "gptq": errors, "inputs": words, "unused": modules.unused}


def _quantise_layer(choice: Choice, chosen: Chosen | None) -> dict[str, str]:
    formats = parameter_formats(choice.module, choice.config)
    if chosen is not None:
        formats["weight"] = chosen.format
    found = {name: str(format) for name, format in formats.items()}
    if chosen is not None and not _store_weight(choice.module, chosen):
        del formats["weight"]
    data, output = round_data(choice.module, choice.config)
    round_parameters(choice.module, formats)
    return found | {name: text for name, text in (("data_in", data), ("data_out", output)) if text is not None}


def _store_weight(layer: nn.Module, chosen: Chosen) -> bool:
    """Store a chosen weight; return whether rounding leaves it unchanged."""
    with torch.no_grad():
        layer.get_parameter("weight").copy_(chosen.weight)
        return bool((quantise(chosen.weight, str(chosen.format)) == chosen.weight).all())


def _chosen_errors(chosen: Chosen) -> dict[str, float]:
    return {"error": chosen.error, "rounding_error": chosen.rounding_error}


def _on_graph(graph: MaseGraph, given: PassArguments) -> Result:
    gptq, found = given.pop("gptq", None), Findings()
    if gptq:
        graph, found = gptq_transform_pass(graph, {**given, **(gptq if isinstance(gptq, Mapping) else {})})
    graph, quantised = quantize_transform_pass(graph, given)
    return graph, {**quantised, "gptq": found.get("layers", {}), "inputs": found.get("inputs")}


# The modules to quantise, by type, name or expression, and those that cannot be quantised.

WAYS = ("type", "name", "regex_name")
#: Keys of pass_args that name no modules.
_OWN = frozenset({"by", "default", "gptq", "only"})
#: Modules that read their parameters other than through attributes, or hand all of them to one kernel.
_WHOLE = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


@dataclass(frozen=True, slots=True)
class Choice:
    """One module, and its configuration."""

    path: str
    module: nn.Module
    config: Config


class Modules:
    """The choice of modules. ValueError for pass_args that cannot be read, and for modules that cannot be quantised."""

    def __init__(self, pass_args: Mapping[str, Any]) -> None:
        self.way = pass_args.get("by") or "type"
        if self.way not in WAYS:
            raise ValueError(f"quantize_module: by is {self.way!r}, expected one of {', '.join(WAYS)}")
        default = pass_args.get("default")
        self.default = None if default is None else Config.of(default)
        self.entries = {str(key): Config.of(value) for key, value in pass_args.items() if key not in _OWN}
        if self.way == "type" and (unknown := [key for key in self.entries if key not in NAMES]):
            raise ValueError(f"quantize_module: it takes no {unknown[0]!r}{suggest_key(unknown[0], _OWN)}")
        only = pass_args.get("only") or ()
        self.only = (only,) if isinstance(only, str) else tuple(only)
        self.used: set[str] = set()

    def of(self, network: nn.Module) -> list[Choice]:
        """Every module that has a configuration, each once."""
        found, inside = [], [path for path, module in network.named_modules() if isinstance(module, _WHOLE)]
        for path, module in network.named_modules():
            config = self._config(path, module)
            if config is None or not self._is_selected(path) or parametrize.is_parametrized(module):
                continue
            if isinstance(module, _WHOLE):
                raise ValueError(
                    f"quantize_module: {path} is {type(module).__name__}, whose parameters are used all at once; "
                    "quantize_transform_pass on its graph rounds them"
                )
            if not any(path.startswith(f"{whole}.") for whole in inside):
                found.append(Choice(path, module, config))
        return found

    @property
    def unused(self) -> list[str]:
        """Keys that matched no module."""
        return [key for key in self.entries if key not in self.used]

    def _config(self, path: str, module: nn.Module) -> Config | None:
        operator = operator_of(module)
        names = {"type": operator, "name": path}
        if self.way == "regex_name":
            key = next((key for key in self.entries if re.match(key, path)), None)
        else:
            key = names[self.way] if names[self.way] in self.entries else None
        if key is not None:
            self.used.add(key)
            return self.entries[key]
        return self.default if operator in COMPUTES and not isinstance(module, _WHOLE) else None

    def _is_selected(self, path: str) -> bool:
        return not self.only or any(text in ("", path) or path.startswith(f"{text}.") for text in self.only)


def operator_of(module: nn.Module) -> str:
    """MASE's name of a module's operator; GPT-2's kind of layer is linear, too."""
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return "linear"
    return op_info("call_module", module, module).mase_op


# Roundings attached to a layer: of its parameters, its inputs, and its outputs.


class Rounded(nn.Module):
    """A parameter in a number format, as torch's parametrizations have it; the gradient goes straight through."""

    def __init__(self, format: NumberFormat) -> None:
        super().__init__()
        self.format = format

    def forward(self, values: Tensor) -> Tensor:
        """The nearest values."""
        return self.format.quantise(values)

    def extra_repr(self) -> str:
        """The format."""
        return str(self.format)


class RoundedInputs:
    """A forward hook that rounds a layer's floating-point inputs to a number format."""

    def __init__(self, format: NumberFormat) -> None:
        self.format = format

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs that the layer gets instead."""
        return tuple(_round_if_floating(value, self.format) for value in inputs)


class RoundedOutput:
    """A forward hook that rounds a layer's output to a number format."""

    def __init__(self, format: NumberFormat) -> None:
        self.format = format

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """The output that the layer gives instead."""
        return _round_if_floating(output, self.format)


def _round_if_floating(value: Any, format: NumberFormat) -> Any:
    return format.quantise(value) if isinstance(value, Tensor) and value.is_floating_point() else value


def parameter_formats(layer: nn.Module, config: Config) -> dict[str, NumberFormat]:
    """The formats of a layer's own parameters; open ones are chosen from the values."""
    found = {}
    for name, parameter in layer.named_parameters(recurse=False):
        format = config.format_of("bias" if "bias" in name else "weight")
        if format is not None:
            found[name] = close_format(format, parameter)
    return found


def close_format(format: NumberFormat, values: Tensor) -> NumberFormat:
    """The format for a parameter. ValueError for an open format and a parameter on meta."""
    if not isinstance(format, Open):
        return format
    if values.is_meta:
        raise ValueError(f"quantize_module: {format} is chosen by the values of a weight, which is on meta")
    with torch.no_grad():
        return of_tensor(format, values, Method())


def round_parameters(layer: nn.Module, formats: dict[str, NumberFormat]) -> None:
    """Round parameters at every read."""
    for name, format in formats.items():
        parametrize.register_parametrization(layer, name, Rounded(format))


def round_data(layer: nn.Module, config: Config) -> tuple[str | None, str | None]:
    """Round a layer's inputs and output; return both formats. ValueError for formats whose choice needs data."""
    data, output = config.format_of("data_in_0"), config.format_of("data_out")
    for format in (data, output):
        if isinstance(format, Open):
            raise ValueError(
                f"quantize_module: {format} for data has to be chosen on data, which quantize does on a graph; "
                "write the parameter, or give formats for weights alone"
            )
    if data is not None:
        layer.register_forward_pre_hook(RoundedInputs(data))
    if output is not None:
        layer.register_forward_hook(RoundedOutput(output))
    return (None if data is None else str(data)), (None if output is None else str(output))


# GPTQ for the layers of a module, by way of its graph.

_OPTIONS = ("damping", "block", "act_order")


def chosen_weights(network: nn.Module, choices: Sequence[Choice], given: Any) -> tuple[dict[str, Chosen], str]:
    """The weights of layers by path, and the inputs that they were chosen on, in words. The network is not changed.

    given: True, or {"data", "samples", "damping", "block", "act_order"} as in gptq_transform_pass; a first batch
    of data is the example that the network is recorded on.  ValueError for anything else, and for weights on meta.
    """
    settings: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    for key in settings:
        if key not in (known := ("data", "samples", *_OPTIONS)):
            raise ValueError(f"quantize_module: gptq has no {key!r}{suggest(key, known, 'it takes')}")
    data = settings.get("data")
    batches = None if data is None else list(raw_batches(data))
    graph = MaseGraph(network, _name_batch(network, batches[0]) if batches else None)
    formats = {f"{choice.path}.weight": choice.config.format_of("weight") for choice in choices}
    layers = [each for each in find_weighted(graph.fx_graph, graph.module) if formats.get(each.path) is not None]
    for layer in layers:
        require_values("gptq", layer, layer.weight(graph.module))
    opened = [expose_weight(layer, graph.module) for layer in layers]
    wanted = {layer.node: format for layer in opened if (format := formats[layer.path]) is not None}
    options = Options(**{key: settings[key] for key in _OPTIONS if settings.get(key) is not None})
    loaded = load(graph, batches, settings.get("samples"))
    return choose_weights(graph, wanted, opened, loaded, options), loaded.words


def _name_batch(network: nn.Module, batch: Any) -> InputValues:
    """A batch by the names of forward's parameters, without entries that forward does not take."""
    parameters = list(inspect.signature(network.forward).parameters)
    fields = None if isinstance(batch, Tensor | tuple | list) else fields_of(batch)
    if fields is not None:
        return {str(name): value for name, value in fields.items() if str(name) in parameters}
    items = batch if isinstance(batch, tuple | list) else (batch,)
    required = [
        name for name, each in inspect.signature(network.forward).parameters.items() if each.default is each.empty
    ]
    return dict(zip(required or parameters, items, strict=False))
