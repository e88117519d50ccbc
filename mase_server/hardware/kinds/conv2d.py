"""Convolution, pooling and borders of images: `fixed_conv2d`, `fixed_max_pool2d`, `fixed_average_pool2d`,
`image_padding`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Windows
from mase_server.hardware.design import (
    Design,
    Dots,
    Fold,
    Operation,
    Stream,
    find_divisors,
    row_major,
)
from mase_server.hardware.functional import integer_average_pool2d, integer_conv2d, integer_max_pool2d
from mase_server.hardware.held import Floating, Held, Later, Moved, NoHardware, Unrounded, Whole, node_of
from mase_server.hardware.kinds.kind import Kind, Rule, Settings, folds_of_means, image_order, image_size
from mase_server.hardware.kinds.linear import at_pace_of_weights, product_formats, rows_at_a_time, weight_parameters
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.verilog import Parameters, Tap, precision_parameters, stream_ports

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


# Windows over images, as layers are called with them. A sample of [channels, length] is an image of one row.


def by_pixels(lowering: Lowering, unrounded: object, out: Stream) -> Stream:
    """Results that are images flow pixel by pixel."""
    return Stream(out.format, out.shape, row_major(image_order(out.shape)))


def pixels_of(lowering: Lowering, given: Mapping[str, Any]) -> str:
    """The operation that gives the image read by a node, pixel by pixel. NoHardware for a tensor that is no image."""
    return pixels_of_stream(lowering, lowering.whole(node_of(given["data_in_0"])))


def pixels_of_stream(lowering: Lowering, name: str) -> str:
    """The operation that gives an image pixel by pixel."""
    shape = lowering.stream(name).shape
    if len(shape) not in (2, 3):
        raise NoHardware(f"it has {list(shape)} a sample, an image is [channels, rows, columns]")
    return in_order(lowering, name, image_order(shape))


def image_parameters(design: Design, operation: Operation, lanes: int, windows: Windows) -> Parameters:
    """Parameters of a component with windows: the sizes of its image, channels first, and the windows."""
    channels, height, width = image_size(design.operations[operation.inputs[0]].out.shape)
    (kernel_height, kernel_width), (stride_height, stride_width) = windows.kernel, windows.stride
    rows, columns = windows.padding
    return {
        "DATA_IN_0_TENSOR_SIZE_DIM_0": channels,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": width,
        "DATA_IN_0_TENSOR_SIZE_DIM_2": height,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "KERNEL_HEIGHT": kernel_height,
        "KERNEL_WIDTH": kernel_width,
        "STRIDE_HEIGHT": stride_height,
        "STRIDE_WIDTH": stride_width,
        "PADDING_TOP": rows,
        "PADDING_BOTTOM": rows,
        "PADDING_LEFT": columns,
        "PADDING_RIGHT": columns,
        "SPARE": count_spare_pixels(design, operation, windows),
    }


def count_spare_pixels(design: Design, operation: Operation, windows: Windows) -> int:
    """Pixels to hold besides a window's own, so that an equally fast source never waits.

    At least as many as from a window's first pixel to its last: when the last window of an image begins, that much
    of the next image may have arrived. At least the rows between two windows. And one row more, because no rate is
    quite even.
    """
    width = image_size(design.operations[operation.inputs[0]].out.shape)[2] + 2 * windows.padding[1]
    return max((windows.reach[0] - 1) * width + windows.reach[1], windows.stride[0] * width) + width


def arrival_cycles(design: Design, operation: Operation, lanes: int, windows: Windows) -> int:
    """Cycles in which an image and its border arrive."""
    channels, height, width = image_size(design.operations[operation.inputs[0]].out.shape)
    rows, columns = windows.padding
    return (height + 2 * rows) * (width + 2 * columns) * channels // lanes


def reach_of_windows(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A window needs pixels up to its last one, which may be in the border."""
    channels, height, width = image_size(design.operations[operation.inputs[0]].out.shape)
    filters, rows, columns = image_size(operation.out.shape)
    windows: Windows = operation.options["windows"]
    kernel_rows, kernel_columns = windows.reach
    (row_step, column_step), (above, left) = windows.stride, windows.padding
    row = torch.arange(rows)[:, None] * row_step + kernel_rows - 1 - above
    column = torch.arange(columns) * column_step + kernel_columns - 1 - left
    # Pixels right of a row are needed by the row's end at the latest, pixels below the image by its end.
    last = torch.where(row < 0, -1, row * width + column.clamp(-1, width - 1))
    pixels = last.clamp(0, height * width - 1)
    return (((pixels + 1) * channels - 1).reshape(-1).repeat_interleave(filters),)


def _lower_conv2d(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = pixels_of(lowering, given)
    settings, constants = Settings.of(lowering, node, given), lowering.weights(given, "weight")
    if settings.one_row:
        constants["weight"] = constants["weight"].moved(lambda weight: weight[:, :, None])
    rows, columns = constants["weight"].shape[2:]
    options = {"windows": settings.windows((rows, columns), 1), "groups": int(settings.get("groups", 1))}
    return Unrounded("conv2d", (source,), node, constants, {**options, "relu": False})


def _refuse_batch_norm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    raise NoHardware("a batch norm has none of its own; apply conv_bn_fusion and norm_to_conv before quantize")


def _conv2d_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, bias, formats = maker.weights(operation)
    windows, options = operation.options["windows"], operation.options
    places = astuple(windows)
    given = source, weight, bias, formats, places, options["groups"], options["relu"]
    return maker.call(operation, integer_conv2d, *given)


def _conv2d_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    shape, options = operation.constants["weight"].shape, operation.options
    windows, groups = options["windows"], options["groups"]
    filters, channels, *_ = shape
    of_group = product(find_divisors(channels), find_divisors(filters // groups))
    of_groups = ((channels * each, filters // groups * each) for each in find_divisors(groups) if each > 1)
    for (par_in, par_out), taps in product(
        (*of_group, *of_groups), _possible_taps(windows.kernel) if "streamed" not in options else [(1, 1)]
    ):
        multipliers = prod(taps) * min(par_in, channels) * par_out
        steps = prod(shape) // multipliers
        cycles = max(prod(operation.out.shape[1:]) * steps, arrival_cycles(design, operation, par_in, windows))
        yield at_pace_of_weights(operation, Fold(par_in, par_out, cycles, multipliers, taps))


def _conv2d_dots(design: Design, operation: Operation) -> Dots:
    """Every window is a vector for each group."""
    filters, channels, *kernel = operation.constants["weight"].shape
    groups, windows = operation.options["groups"], prod(operation.out.shape[1:])
    length = channels * prod(kernel)
    feed = max(windows * groups * length, arrival_cycles(design, operation, 1, operation.options["windows"]))
    return Dots(product_formats(design, operation), windows * groups, length, filters // groups, channels, feed)


def _conv2d_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """As any window's; weights from outside are read for several windows, which all have to be there."""
    (reach,), rows = reach_of_windows(design, operation), rows_at_a_time(operation)
    groups = reach.reshape(-1, rows * operation.out.shape[0])
    return (groups[:, -1:].expand_as(groups).reshape(-1),)


def _possible_taps(kernel: tuple[int, int]) -> list[tuple[int, int]]:
    """Rows and columns of a kernel that can be processed at once: pieces of a column, or whole columns."""
    rows, columns = kernel
    return [(each, 1) for each in find_divisors(rows)] + [(rows, each) for each in find_divisors(columns) if each > 1]


def arrange_filters(weight: Tensor, taps: tuple[int, int], par_in: int) -> Tensor:
    """Filters [filters, channels, rows, columns] as [filters, elements], in the order of a window's elements.

    Beats of single pixels: rows, columns, channels.  Of a column: columns, channels, pieces of it.  Of more: channels,
    pieces of the window.  Within a beat: columns, rows, PAR_IN channels, or all of a group, if a beat has several.
    """
    count, channels, rows, columns = weight.shape
    par_in = min(par_in, channels)
    split = weight.reshape(count, channels // par_in, par_in, rows // taps[0], taps[0], columns // taps[1], taps[1])
    beats = (3, 5, 1) if taps == (1, 1) else (1, 5, 3) if taps[1] > 1 else (5, 1, 3)
    return split.permute(0, *beats, 6, 4, 2).flatten(1)


def _build_conv2d(builder: Builder, operation: Operation) -> Tap:
    fold, before = builder.folding.folds[operation.name], builder.design.operations[operation.inputs[0]].out
    windows: Windows = operation.options["windows"]
    source = _read_ahead(builder, operation, builder.read(operation, fold.par_in))
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    parameters: Parameters = {
        **precision_parameters("DATA_IN_0", before.format),
        **image_parameters(builder.design, operation, fold.par_in, windows),
        "SPARE": _spare_pixels_of_fold(builder.design, operation, fold),
        "DILATION_HEIGHT": windows.dilation[0],
        "DILATION_WIDTH": windows.dilation[1],
        "GROUPS": operation.options["groups"],
        **weight_parameters(builder, operation, fold, lambda weight: arrange_filters(weight, fold.taps, fold.par_in)),
    }
    ports = stream_ports(source, to)
    if engine := builder.engine_of(operation, parameters):
        builder.instance(f"{operation.name}_i", "shared_conv2d", parameters, {**ports, **engine}, operation.name)
        return to
    if weights := builder.weights_of(operation):
        del parameters["GROUPS"]
        builder.instance(f"{operation.name}_i", "streamed_conv2d", parameters, {**ports, **weights}, operation.name)
        return to
    parameters |= {"WEIGHT_PARALLELISM_DIM_0": fold.taps[1], "WEIGHT_PARALLELISM_DIM_1": fold.taps[0]}
    builder.instance(f"{operation.name}_i", "fixed_conv2d", parameters, ports, operation.name)
    return to


def _spare_pixels_of_fold(design: Design, operation: Operation, fold: Fold) -> int:
    """Pixels to hold besides a window's own; columns, if columns are processed at once."""
    windows: Windows = operation.options["windows"]
    if fold.taps == (1, 1):
        return count_spare_pixels(design, operation, windows)
    passes = max(operation.out.shape[0] // operation.options["groups"] // fold.par_out, 1)
    steps = passes * (windows.kernel[1] // fold.taps[1])
    # The first rows of an image end no window: meanwhile this many columns keep the multipliers busy.
    return -(-_rows_before(design, operation) * windows.stride[1] // steps) if steps > windows.stride[1] else 0


def _read_ahead(builder: Builder, operation: Operation, source: Tap) -> Tap:
    """A fifo for the pixels that arrive while the last windows of an image wait for the multipliers."""
    if builder.folding.folds[operation.name].taps == (1, 1) or not (ahead := _rows_before(builder.design, operation)):
        return source
    beats = builder.design.operations[operation.inputs[0]].out.shape[0] // source.lanes
    to = builder.wires(f"{operation.name}_ahead", source.lanes, source.bits)
    parameters: Parameters = {"DATA_WIDTH": source.width, "DEPTH": ahead * beats}
    builder.instance(f"{operation.name}_ahead_i", "fifo", parameters, stream_ports(source, to), operation.name)
    return to


def _rows_before(design: Design, operation: Operation) -> int:
    """Pixels of an image before the last row of its first windows, and of the rows between windows."""
    windows: Windows = operation.options["windows"]
    _, _, width = image_size(design.operations[operation.inputs[0]].out.shape)
    return max(windows.reach[0] - 1, windows.stride[0] - 1) * (width + 2 * windows.padding[1])


_RULES = {
    **dict.fromkeys(("conv1d", "conv2d"), _lower_conv2d),
    **dict.fromkeys(("batch_norm", "batch_norm1d", "batch_norm2d"), _refuse_batch_norm),
}

CONV2D_KIND = Kind(
    "conv2d",
    _conv2d_node,
    _build_conv2d,
    _RULES,
    by_pixels,
    _conv2d_folds,
    _conv2d_reach,
    dots=_conv2d_dots,
)


# Maximum and mean of windows: `fixed_max_pool2d`, `fixed_average_pool2d`.

#: (lowering, node, arguments, image) -> the image, and the windows on it.
_Found = Callable[["Lowering", fx.Node, Mapping[str, Any], str], tuple[str, Windows]]


def _max_pool_rule(found: _Found) -> Rule:
    """The maximum of windows is the same before and after rounding, so a later rounding may decide the format."""

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


def _lower_average_pool(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source, windows = _pool_windows(lowering, node, given, pixels_of(lowering, given), lowest=False)
    settings = Settings.of(lowering, node, given)
    if windows.padding != (0, 0) and not settings.get("count_include_pad", True):
        raise NoHardware("count_include_pad=False divides by another number at the border; pad with zeros instead")
    if settings.get("divisor_override") is not None:
        raise NoHardware("divisor_override has no hardware; scale the result instead")
    return Unrounded("pool2d", (source,), node, options={"windows": windows, "mean": True})


def _lower_adaptive_pool(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source, windows = _adaptive_windows(lowering, node, given, pixels_of(lowering, given))
    return Unrounded("pool2d", (source,), node, options={"windows": windows, "mean": True})


def _adaptive_windows(lowering: Lowering, node: fx.Node, given: Mapping[str, Any], source: str) -> tuple[str, Windows]:
    """An image, and windows of one size that give the node's result."""
    _, *size = image_size(lowering.stream(source).shape)
    _, *count = image_size(lowering.sample(node))
    return source, _equal_windows(size, count)


def _equal_windows(size: list[int], count: list[int]) -> Windows:
    """Windows of one size that cover an image. NoHardware if the sizes do not divide."""
    rows, columns = count
    if size[0] % rows or size[1] % columns:
        raise NoHardware(f"{size} is no multiple of {[rows, columns]}, so its windows overlap differently everywhere")
    kernel = size[0] // rows, size[1] // columns
    return Windows(kernel, kernel)


def _pool_windows(
    lowering: Lowering, node: fx.Node, given: Mapping[str, Any], source: str, *, lowest: bool = True
) -> tuple[str, Windows]:
    """The image and the windows on it. lowest: pixels beyond the border are never the result."""
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
        source = pad_image(lowering, source, (0, max(beyond[1], 0), 0, max(beyond[0], 0)), lowest=True)
    return source, windows


def _pool2d_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    windows = operation.options["windows"]
    places = astuple(windows)
    if not operation.options["mean"]:
        return maker.call(operation, integer_max_pool2d, source, places)
    formats = maker.format_in(operation), str(operation.out.format)
    return maker.call(operation, integer_average_pool2d, source, *formats, places)


def _pool2d_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    channels, *windows = image_size(operation.out.shape)
    count = prod(operation.options["windows"].kernel)
    for lanes in find_divisors(channels):
        looked_at = prod(windows) * count * channels // lanes
        cycles = max(looked_at, arrival_cycles(design, operation, lanes, operation.options["windows"]))
        if operation.options["mean"]:
            yield from folds_of_means(design, operation, count, lanes, cycles)
        else:
            yield Fold(lanes, lanes, cycles, 0)


def _build_pool2d(builder: Builder, operation: Operation) -> Tap:
    fold, out = builder.folding.folds[operation.name], operation.out.format
    source, before = builder.read(operation, fold.par_in), builder.design.operations[operation.inputs[0]].out
    to = builder.wires(f"{operation.name}_cast", fold.par_out, out.width)
    parameters: Parameters = image_parameters(builder.design, operation, fold.par_in, operation.options["windows"])
    module = "fixed_average_pool2d" if operation.options["mean"] else "fixed_max_pool2d"
    if operation.options["mean"]:
        parameters |= precision_parameters("DATA_IN_0", before.format) | precision_parameters("DATA_OUT_0", out)
        parameters["SERIAL"] = int(fold.serial)
    else:
        parameters["DATA_IN_0_PRECISION_0"] = before.format.width
    builder.instance(f"{operation.name}_i", module, parameters, stream_ports(source, to), operation.name)
    # The channels of a result follow one another once the window's last pixel is read, then there is a pause: if a
    # reader with fewer lanes takes them meanwhile, the next window need not wait.
    waits = operation.out.size // builder.lanes_wanted(operation) - operation.out.size // fold.par_out
    too_slow = fold.cycles + waits > builder.folding.interval
    return builder.skid(operation, to, burst=operation.out.shape[0] // fold.par_out if too_slow else 0)


_POOL2D_RULES = {
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _max_pool_rule(_pool_windows)),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), _lower_average_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), _lower_adaptive_pool),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), _max_pool_rule(_adaptive_windows)),
}

POOL2D_KIND = Kind("pool2d", _pool2d_node, _build_pool2d, _POOL2D_RULES, by_pixels, _pool2d_folds, reach_of_windows)


# A border around images: `image_padding`.

#: Pixels left, right, above and below.
Border = tuple[int, int, int, int]


def _lower_pad(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    border = _find_border(lowering, node, source)
    held = lowering.held[source]
    if isinstance(held, Whole):
        return Whole(pad_image(lowering, held.operation, border, nodes=(node.name,)))

    def finish(format: FixedPoint) -> Whole:
        return Whole(pad_image(lowering, lowering.rounded(source, format), border, nodes=(node.name,)))

    return Later(finish)


def _find_border(lowering: Lowering, node: fx.Node, source: fx.Node) -> Border:
    """The border, found by running the node on distinct numbers. NoHardware for any other than zeros around an
    image."""
    shape = lowering.facts[source].shape
    numbers = torch.arange(1, prod(shape) + 1).reshape(shape)
    known = {each: lowering.values(each) for each in node.all_input_nodes if each is not source}
    padded = lowering.evaluated(
        node, {source: numbers, **{each: value for each, value in known.items() if value is not None}}
    )
    first = (padded == 1).nonzero()
    before = first[0].tolist() if len(first) else []
    inside = tuple(slice(start, start + size) for start, size in zip(before, shape, strict=False))
    if not before or not torch.equal(padded[inside], numbers):
        raise NoHardware(f"its result is not {list(shape)} with a border; zeros around an image have hardware")
    padded[inside] = 0
    if padded.any():
        raise NoHardware("its border is not zero; only zeros have hardware")
    after = [size - start - length for size, start, length in zip(padded.shape, before, shape, strict=True)]
    rows = (before[2], after[2]) if len(shape) == 4 else (0, 0)
    if sum(before) + sum(after) != sum(rows) + before[-1] + after[-1] or len(shape) not in (3, 4):
        raise NoHardware("it pads other dimensions than the rows and columns of an image")
    return before[-1], after[-1], *rows


def pad_image(
    lowering: Lowering, name: str, border: Border, *, lowest: bool = False, nodes: tuple[str, ...] = ()
) -> str:
    """The operation that gives an image with a border. lowest: the border has the lowest integer, which never is a
    maximum."""
    source = pixels_of_stream(lowering, name)
    before = lowering.stream(source)
    left, right, top, bottom = border
    channels, rows, columns = image_size(before.shape)
    size = channels, rows + top + bottom, columns + left + right
    shape = size if len(before.shape) == 3 else (channels, size[2])
    out = Stream(before.format, shape, row_major(image_order(shape)))
    options = {"border": border, "lowest": lowest}
    return lowering.insert(
        Operation(nodes[0] if nodes else f"{name}_pad", "pad", (source,), out, nodes, options=options)
    )


def _pad_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    left, right, top, bottom = operation.options["border"]
    border = (left, right) if len(operation.out.shape) == 2 else (left, right, top, bottom)
    fill = operation.out.format.integers[0] if operation.options["lowest"] else 0
    return maker.call(operation, functional.pad, source, border, "constant", fill)


def _build_pad(builder: Builder, operation: Operation) -> Tap:
    before = builder.design.operations[operation.inputs[0]].out
    channels, rows, columns = image_size(before.shape)
    lanes = builder.lanes_wanted(operation)
    source = builder.read(operation, lanes if channels % lanes == 0 else 1)
    to = builder.wires(f"{operation.name}_bordered", source.lanes, source.bits)
    left, right, top, bottom = operation.options["border"]
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": source.bits,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": channels,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": columns,
        "DATA_IN_0_TENSOR_SIZE_DIM_2": rows,
        "DATA_IN_0_PARALLELISM_DIM_0": source.lanes,
        **{"LEFT": left, "RIGHT": right, "TOP": top, "BOTTOM": bottom, "LOWEST": int(operation.options["lowest"])},
    }
    builder.instance(f"{operation.name}_i", "image_padding", parameters, stream_ports(source, to), operation.name)
    return builder.skid(operation, to)


def _pad_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A pixel needs itself; the border needs the pixels before it, and always the first one, which starts the image."""
    before = design.operations[operation.inputs[0]].out
    channels, rows, columns = image_size(before.shape)
    left, _, top, _ = operation.options["border"]
    _, height, width = image_size(operation.out.shape)
    row, column = torch.arange(height)[:, None] - top, torch.arange(width) - left
    last = (row * columns + column.clamp(-1, columns - 1)).clamp(0, rows * columns - 1)
    return ((last.reshape(-1, 1) * channels + torch.arange(channels)).reshape(-1),)


PAD_KIND = Kind("pad", _pad_node, _build_pad, {"pad": _lower_pad}, reach=_pad_reach)
