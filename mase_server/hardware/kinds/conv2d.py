"""Convolution of images: `fixed_conv2d`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx

from mase_server.hardware.arithmetic import Windows
from mase_server.hardware.design import Design, Operation
from mase_server.hardware.folds import Fold, divisors
from mase_server.hardware.functional import integer_conv2d
from mase_server.hardware.held import Held, NoHardware, Unrounded
from mase_server.hardware.kinds.images import arrival, by_pixels, image_parameters, pixels_of, reach_of_windows, spare
from mase_server.hardware.kinds.kind import Kind
from mase_server.hardware.kinds.linear import weights
from mase_server.hardware.kinds.settings import Settings, image_size
from mase_server.hardware.wiring import Parameters, Tap, precision, streams

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _conv2d(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = pixels_of(lowering, given)
    settings, constants = Settings.of(lowering, node, given), lowering.weights(given, "weight")
    if settings.one_row:
        constants["weight"] = constants["weight"].moved(lambda weight: weight[:, :, None])
    rows, columns = constants["weight"].shape[2:]
    options = {"windows": settings.windows((rows, columns), 1), "groups": int(settings.get("groups", 1))}
    return Unrounded("conv2d", (source,), node, constants, {**options, "relu": False})


def _norm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    raise NoHardware("a batch norm has none of its own; apply conv_bn_fusion and norm_to_conv before quantize")


def _node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, bias, formats = maker.weights(operation)
    windows, options = operation.options["windows"], operation.options
    places = astuple(windows)
    given = source, weight, bias, formats, places, options["groups"], options["relu"]
    return maker.call(operation, integer_conv2d, *given)


def _folds(design: Design, operation: Operation) -> Iterator[Fold]:
    shape, options = operation.constants["weight"].shape, operation.options
    windows, groups = options["windows"], options["groups"]
    filters, channels, *_ = shape
    for taps, par_in, par_out in product(_taps(windows.kernel), divisors(channels), divisors(filters // groups)):
        steps = prod(shape) // (prod(taps) * par_in * par_out)
        cycles = max(prod(operation.out.shape[1:]) * steps, arrival(design, operation, par_in, windows))
        yield Fold(par_in, par_out, cycles, prod(taps) * par_in * par_out, taps)


def _taps(kernel: tuple[int, int]) -> list[tuple[int, int]]:
    """Rows and columns of a kernel that can be worked on at once: one pixel, a column, all."""
    return list(dict.fromkeys([(1, 1), (kernel[0], 1), kernel]))


def filters(weight: Tensor, taps: tuple[int, int], par_in: int) -> Tensor:
    """Filters [filters, channels, rows, columns] as [filters, elements], as the elements of a window come.

    Beats: rows and columns that do not come at once, channels.  In a beat: columns, rows, PAR_IN channels.
    """
    count, channels, rows, columns = weight.shape
    split = weight.reshape(count, channels // par_in, par_in, rows // taps[0], taps[0], columns // taps[1], taps[1])
    return split.permute(0, 3, 5, 1, 6, 4, 2).flatten(1)


def _build(builder: Builder, operation: Operation) -> Tap:
    fold, before = builder.folding.folds[operation.name], builder.design.operations[operation.inputs[0]].out
    windows: Windows = operation.options["windows"]
    source = _ahead(builder, operation, builder.read(operation, fold.par_in))
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    parameters: Parameters = {
        **precision("DATA_IN_0", before.format),
        **image_parameters(builder.design, operation, fold.par_in, windows),
        "SPARE": _spare(builder.design, operation, fold),
        "DILATION_HEIGHT": windows.dilation[0],
        "DILATION_WIDTH": windows.dilation[1],
        "GROUPS": operation.options["groups"],
        "WEIGHT_PARALLELISM_DIM_0": fold.taps[1],
        "WEIGHT_PARALLELISM_DIM_1": fold.taps[0],
        **weights(builder, operation, fold, lambda weight: filters(weight, fold.taps, fold.par_in)),
    }
    builder.instance(f"{operation.name}_i", "fixed_conv2d", parameters, streams(source, to), operation.name)
    return to


def _spare(design: Design, operation: Operation, fold: Fold) -> int:
    """Pixels that wait beside a window; columns, where those come at once."""
    windows: Windows = operation.options["windows"]
    if fold.taps == (1, 1):
        return spare(design, operation, windows)
    passes = operation.out.shape[0] // operation.options["groups"] // fold.par_out
    steps = passes * (windows.kernel[1] // fold.taps[1])
    # While the first rows of an image come, which end no window, this many columns keep the multipliers busy.
    return -(-_rows_before(design, operation) * windows.stride[1] // steps) if steps > windows.stride[1] else 0


def _ahead(builder: Builder, operation: Operation, source: Tap) -> Tap:
    """The pixels behind room for those that come while the last windows of an image wait for the multipliers."""
    if builder.folding.folds[operation.name].taps == (1, 1) or not (ahead := _rows_before(builder.design, operation)):
        return source
    beats = builder.design.operations[operation.inputs[0]].out.shape[0] // source.lanes
    to = builder.wires(f"{operation.name}_ahead", source.lanes, source.bits)
    parameters: Parameters = {"DATA_WIDTH": source.width, "DEPTH": ahead * beats}
    builder.instance(f"{operation.name}_ahead_i", "fifo", parameters, streams(source, to), operation.name)
    return to


def _rows_before(design: Design, operation: Operation) -> int:
    """Pixels of an image that come before the last row of the first windows, and of rows between windows."""
    windows: Windows = operation.options["windows"]
    _, _, width = image_size(design.operations[operation.inputs[0]].out.shape)
    return max(windows.reach[0] - 1, windows.stride[0] - 1) * (width + 2 * windows.padding[1])


_RULES = {
    **dict.fromkeys(("conv1d", "conv2d"), _conv2d),
    **dict.fromkeys(("batch_norm", "batch_norm1d", "batch_norm2d"), _norm),
}

KIND = Kind("conv2d", _node, _build, _RULES, by_pixels, _folds, reach_of_windows)
