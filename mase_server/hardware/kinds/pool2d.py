"""The largest and the mean of windows: `fixed_max_pool2d`, `fixed_average_pool2d`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from math import prod
from typing import TYPE_CHECKING, Any

from torch import fx

from mase_server.hardware.arithmetic import Windows
from mase_server.hardware.design import Design, Operation
from mase_server.hardware.folds import Fold, divisors, products_of_mean
from mase_server.hardware.functional import integer_average_pool2d, integer_max_pool2d
from mase_server.hardware.held import Floating, Held, Later, Moved, NoHardware, Unrounded, Whole, node_of
from mase_server.hardware.kinds.images import (
    arrival,
    by_pixels,
    image_parameters,
    pixels_of,
    pixels_of_stream,
    reach_of_windows,
)
from mase_server.hardware.kinds.kind import Kind, Rule
from mase_server.hardware.kinds.pad import padded
from mase_server.hardware.kinds.settings import Settings, image_size
from mase_server.hardware.wiring import Parameters, Tap, precision, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


#: (lowering, node, arguments, image) -> the image that windows look at, and where they lie.
_Found = Callable[["Lowering", fx.Node, Mapping[str, Any], str], tuple[str, Windows]]


def _largest(found: _Found) -> Rule:
    """The largest of windows is the same before and after a rounding, so it may wait for one."""

    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        source = node_of(given["data_in_0"])

        def made(name: str) -> Whole:
            image, windows = found(lowering, node, given, pixels_of_stream(lowering, name))
            unrounded = Unrounded("pool2d", (image,), node, options={"windows": windows, "mean": False})
            return lowering.add(unrounded, lowering.stream(image).format)

        if isinstance(lowering.held[source], Floating | Moved | Later | Unrounded):
            return Later(lambda format: made(lowering.rounded(source, format)))
        return made(lowering.whole(source))

    return rule


def _average(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source, windows = _windows(lowering, node, given, pixels_of(lowering, given), lowest=False)
    settings = Settings.of(lowering, node, given)
    if windows.padding != (0, 0) and not settings.get("count_include_pad", True):
        raise NoHardware("count_include_pad=False divides by another number at the border; pad with zeros instead")
    if settings.get("divisor_override") is not None:
        raise NoHardware("divisor_override has no hardware; scale the result instead")
    return Unrounded("pool2d", (source,), node, options={"windows": windows, "mean": True})


def _adaptive(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source, windows = _adapted(lowering, node, given, pixels_of(lowering, given))
    return Unrounded("pool2d", (source,), node, options={"windows": windows, "mean": True})


def _adapted(lowering: Lowering, node: fx.Node, given: Mapping[str, Any], source: str) -> tuple[str, Windows]:
    """An image and the windows of one size that a node has."""
    _, *size = image_size(lowering.stream(source).shape)
    _, *count = image_size(lowering.sample(node))
    return source, _equal(size, count)


def _equal(size: list[int], count: list[int]) -> Windows:
    """Windows of one size that cover an image. NoHardware where there are none."""
    rows, columns = count
    if size[0] % rows or size[1] % columns:
        raise NoHardware(f"{size} is no multiple of {[rows, columns]}, so its windows overlap differently everywhere")
    kernel = size[0] // rows, size[1] // columns
    return Windows(kernel, kernel)


def _windows(
    lowering: Lowering, node: fx.Node, given: Mapping[str, Any], source: str, *, lowest: bool = True
) -> tuple[str, Windows]:
    """What they look at, and where they lie. lowest: what is beyond the border is never the result."""
    settings = Settings.of(lowering, node, given)
    kernel = settings.pair("kernel_size")
    windows = settings.windows(kernel, kernel)
    if windows.dilation != (1, 1):
        raise NoHardware(f"dilation {windows.dilation} has no hardware; windows without gaps have")
    (_, *size), (_, *count) = image_size(lowering.stream(source).shape), image_size(lowering.sample(node))
    beyond = [
        (number - 1) * stride + reach - length - 2 * padding
        for number, stride, reach, length, padding in zip(
            count, windows.stride, windows.reach, size, windows.padding, strict=True
        )
    ]
    if max(beyond) > 0 and not lowest:
        raise NoHardware("ceil_mode divides by fewer elements beyond the border; pad the image instead")
    if max(beyond) > 0:
        source = padded(lowering, source, (0, max(beyond[1], 0), 0, max(beyond[0], 0)), lowest=True)
    return source, windows


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    windows = operation.options["windows"]
    places = astuple(windows)
    if not operation.options["mean"]:
        return maker.call(operation, integer_max_pool2d, source, places)
    formats = maker.format_in(operation), str(operation.out.format)
    return maker.call(operation, integer_average_pool2d, source, *formats, places)


def _folds(design: Design, operation: Operation) -> Iterator[Fold]:
    channels, *windows = image_size(operation.out.shape)
    kernel = operation.options["windows"].kernel
    products = products_of_mean(prod(kernel)) if operation.options["mean"] else 0
    for lanes in divisors(channels):
        looked_at = prod(windows) * prod(kernel) * channels // lanes
        cycles = max(looked_at, arrival(design, operation, lanes, operation.options["windows"]))
        yield Fold(lanes, lanes, cycles, products * lanes)


def _build(builder: Builder, operation: Operation) -> Tap:
    fold, out = builder.folding.folds[operation.name], operation.out.format
    source, before = builder.read(operation, fold.par_in), builder.design.operations[operation.inputs[0]].out
    to = builder.wires(f"{operation.name}_cast", fold.par_out, out.width)
    parameters: Parameters = image_parameters(builder.design, operation, fold.par_in, operation.options["windows"])
    module = "fixed_average_pool2d" if operation.options["mean"] else "fixed_max_pool2d"
    if operation.options["mean"]:
        parameters |= precision("DATA_IN_0", before.format) | precision("DATA_OUT_0", out)
    else:
        parameters["DATA_IN_0_PRECISION_0"] = before.format.width
    builder.instance(f"{operation.name}_i", module, parameters, streams(source, to), operation.name)
    return builder.skid(operation, to)


_RULES = {
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _largest(_windows)),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), _average),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _adaptive),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), _largest(_adapted)),
}

KIND = Kind("pool2d", _node, _build, _RULES, by_pixels, _folds, reach_of_windows)
