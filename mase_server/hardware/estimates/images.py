"""What goes over images with windows."""

from __future__ import annotations

from mase_server.hardware.estimates import storage
from mase_server.hardware.estimates.arithmetic import linear_core
from mase_server.hardware.estimates.cost import Cost, logic, multiplications, sums
from mase_server.hardware.estimates.streams import counter
from mase_server.hardware.timing.parameters import Given, clog2
from mase_server.hardware.timing.windows import Images


def of_conv2d(given: Given) -> Cost:
    """`fixed_conv2d`"""
    taps = given.get("WEIGHT_PARALLELISM_DIM_1", 1), given.get("WEIGHT_PARALLELISM_DIM_0", 1)
    groups, lanes = given["GROUPS"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // groups // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    images = Images.of(given, groups=groups, passes=passes)
    width = lanes * given["DATA_IN_0_PRECISION_0"]
    windows = sliding_window(width, images) if taps == (1, 1) else parallel_window(width, images, taps)
    size = images.kernel[0] * images.kernel[1] * given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // groups
    return padding(width, images) + windows + linear_core(given, size, lanes * taps[0] * taps[1])


def of_padding(given: Given) -> Cost:
    """`image_padding`"""
    return padding(given["DATA_IN_0_PARALLELISM_DIM_0"] * given["DATA_IN_0_PRECISION_0"], Images.bordered(given))


def padding(width: int, images: Images) -> Cost:
    """`image_padding`, where there is a border."""
    if not any(images.border):
        return Cost()
    bits = clog2(images.columns + 1), clog2(images.rows + 1)
    return logic(width + max(10, 7.5 * sum(bits) - 40)) + sums(*bits) + counter(images.beats)


def sliding_window(width: int, images: Images) -> Cost:
    """`sliding_window`: a ring of pixels, whose addresses are sums modulo its depth."""
    bits = clog2(2 * images.depth)
    return storage.memory(width, images.depth) + logic(80 + 5 * bits) + Cost(carries=7 * bits - 8)


def parallel_window(width: int, images: Images, taps: tuple[int, int]) -> Cost:
    """`parallel_window`"""
    rows, columns = images.kernel
    column, (_, wide) = rows * width, images.reach
    found = storage.line_taps(width, images.columns * images.beats, rows, images.dilation[0])
    found += storage.fifo(column, images.spare * images.beats + 2)
    if taps[1] == 1:
        return found + sliding_window(column, images.line)
    group = images.beats // images.groups
    found += storage.line_taps(column, images.beats, columns, images.dilation[1])
    ahead = (wide - 1) * images.beats // images.passes if images.passes > 1 else 0
    return found + storage.repeat_buffer(columns * column, group, images.passes, 2 * group + ahead)


def reduce(width: int, lanes: int, beats: int, count: int, maximum: bool) -> Cost:
    """`fixed_reduce`: elements of so many bits, so many positions."""
    bits = width if maximum else width + clog2(count)
    return storage.memory(lanes * bits, beats) + lanes * (logic(1.2 * bits) + sums(bits)) + counter(count) + logic(6)


def of_reduce(given: Given) -> Cost:
    """`fixed_reduce`"""
    width, lanes = given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    return reduce(width, lanes, given["BEATS"], given["COUNT"], bool(given["MAXIMUM"]))


def of_mean(given: Given) -> Cost:
    """`fixed_mean`"""
    return mean(given, given["DIVISOR"]) * given["DATA_IN_0_PARALLELISM_DIM_0"]


def of_max_pool2d(given: Given) -> Cost:
    """`fixed_max_pool2d`"""
    return _pool(given, maximum=True)


def of_average_pool2d(given: Given) -> Cost:
    """`fixed_average_pool2d`"""
    lanes, count = given["DATA_IN_0_PARALLELISM_DIM_0"], given["KERNEL_HEIGHT"] * given["KERNEL_WIDTH"]
    return _pool(given, maximum=False) + mean(given, count) * lanes


def mean(given: Given, divisor: int) -> Cost:
    """One lane of `fixed_mean`: the reciprocal and the remainder are products, but with powers of two."""
    width = given["DATA_IN_0_PRECISION_0"] + clog2(divisor)
    if divisor & (divisor - 1) == 0:
        return Cost(logic=18, carries=1.4 * width)
    return multiplications(2) + Cost(logic=30, carries=2.3 * width)


def _pool(given: Given, maximum: bool) -> Cost:
    images, lanes = Images.of(given), given["DATA_IN_0_PARALLELISM_DIM_0"]
    bits, count = given["DATA_IN_0_PRECISION_0"], images.kernel[0] * images.kernel[1]
    whole = not maximum and images.kernel == (images.rows, images.columns)
    windows = Cost() if whole else sliding_window(lanes * bits, images) + storage.skid_buffer(lanes * bits)
    return padding(lanes * bits, images) + windows + reduce(bits, lanes, images.beats, count, maximum)
