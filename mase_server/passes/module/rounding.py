"""Roundings that stand on a layer: of its parameters, of what it gets, and of what it gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mase_server.formats import NumberFormat, Open
from mase_server.passes.quantize.config import Config
from mase_server.passes.quantize.methods import Method, of_tensor


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
    """A forward hook: the floating-point tensors that a layer gets, in a number format."""

    def __init__(self, format: NumberFormat) -> None:
        self.format = format

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs that the layer gets instead."""
        return tuple(_rounded(value, self.format) for value in inputs)


class RoundedOutput:
    """A forward hook: what a layer gives, in a number format."""

    def __init__(self, format: NumberFormat) -> None:
        self.format = format

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """The output that the layer gives instead."""
        return _rounded(output, self.format)


def _rounded(value: Any, format: NumberFormat) -> Any:
    return format.quantise(value) if isinstance(value, Tensor) and value.is_floating_point() else value


def parameter_formats(layer: nn.Module, config: Config) -> dict[str, NumberFormat]:
    """The formats of a layer's own parameters; those left to data are chosen by their values."""
    found = {}
    for name, parameter in layer.named_parameters(recurse=False):
        format = config.format_of("bias" if "bias" in name else "weight")
        if format is not None:
            found[name] = closed(format, parameter)
    return found


def closed(format: NumberFormat, values: Tensor) -> NumberFormat:
    """The format for a parameter. ValueError where data are to choose, and it is on meta."""
    if not isinstance(format, Open):
        return format
    if values.is_meta:
        raise ValueError(f"quantize_module: {format} is chosen by the values of a weight, which is on meta")
    with torch.no_grad():
        return of_tensor(format, values, Method())


def round_parameters(layer: nn.Module, formats: dict[str, NumberFormat]) -> None:
    """Round parameters wherever they are read."""
    for name, format in formats.items():
        parametrize.register_parametrization(layer, name, Rounded(format))


def round_data(layer: nn.Module, config: Config) -> tuple[str | None, str | None]:
    """Round what the layer gets and gives; both formats. ValueError for formats that data would have to choose."""
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
