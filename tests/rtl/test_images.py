"""Borders, windows, convolution and pooling of images that come as rows, columns, channels."""

from dataclasses import replace
from fractions import Fraction

import torch
from hypothesis import strategies as st
from torch.nn import functional

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Affine, Windows, average_pool2d, conv2d, max_pool2d
from tests.rtl.bench import Bench, Case
from tests.rtl.designs import (
    conv_case,
    dilation,
    image_sizes,
    image_stream,
    kernel_parameters,
    kernel_sizes,
    precision,
    stream,
)
from tests.rtl.draws import drawn, generator, integers

IMAGES = 3


def pixels(number, width, shape):
    return integers(width, IMAGES, *shape, generator=generator(number))


@st.composite
def borders(draw):
    lanes = draw(st.integers(1, 3))
    shape = lanes * draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return draw(st.integers(2, 9)), shape, lanes, tuple(draw(st.integers(0, 3)) for _ in range(4)), draw(st.booleans())


def padding(number, width, shape, lanes, border, lowest):
    left, right, top, bottom = border
    values = pixels(number, width, shape)
    expected = functional.pad(values, border, value=-(1 << (width - 1)) if lowest else 0)
    parameters = {
        **image_sizes(width, shape, lanes),
        **{"LEFT": left, "RIGHT": right, "TOP": top, "BOTTOM": bottom, "LOWEST": int(lowest)},
    }
    into, out = image_stream(values, width, lanes), image_stream(expected, width, lanes)
    return Case("image_padding", parameters, {"data_in_0": into}, {"data_out_0": out})


def test_padding_puts_a_border_around_every_image():
    Bench([padding(number, *draw) for number, draw in enumerate(drawn(borders()))]).check_all()


@st.composite
def kernels(draw):
    """A kernel of rows and columns, its strides and dilation, and an image that it fits into."""
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    strides = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rows, columns = Windows(kernel, dilation=dilation).reach
    return kernel, strides, dilation, (rows + draw(st.integers(0, 5)), columns + draw(st.integers(0, 5)))


@st.composite
def windows(draw):
    kernel, strides, dilation, size = draw(kernels())
    place = Windows(kernel, strides, (0, 0), dilation)
    lanes, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    channels = lanes * groups * draw(st.integers(1, 2))
    return (channels, *size), lanes, place, groups, draw(st.integers(1, 3)), draw(st.integers(0, 9))


def window_order(values, place, groups, count):
    """All windows by plain loops: windows, groups, repetitions, kernel rows, kernel columns, channels."""
    found = []
    _, channels, height, width = values.shape
    each = channels // groups
    (tall, wide), (row_step, column_step) = place.reach, place.dilation
    for image in values:
        for row in range(0, height - tall + 1, place.stride[0]):
            for column in range(0, width - wide + 1, place.stride[1]):
                for group in range(groups):
                    part = image[group * each : (group + 1) * each, row : row + tall, column : column + wide]
                    found += [part[:, ::row_step, ::column_step].permute(1, 2, 0).reshape(-1)] * count
    return torch.cat(found)


def window(number, shape, lanes, place, groups, count, spare):
    values = pixels(number, 8, shape)
    expected = window_order(values, place, groups, count)
    parameters = {
        **image_sizes(8, shape, lanes),
        **kernel_sizes(place),
        **dilation(place),
        **{"GROUPS": groups, "COUNT": count, "SPARE": spare},
    }
    out = stream(expected, 8, lanes)
    return Case("sliding_window", parameters, {"data_in_0": image_stream(values, 8, lanes)}, {"data_out_0": out})


def test_windows_come_one_after_another_each_as_often_as_wanted():
    Bench([window(number, *draw) for number, draw in enumerate(drawn(windows()))]).check_all()


FORMATS = st.builds(FixedPoint, st.integers(2, 10), st.integers(-2, 9))
WIDE = st.builds(FixedPoint, st.integers(2, 20), st.integers(-2, 14))


@st.composite
def placed(draw):
    """Windows, with a border of at most half a window as torch wants it, and the size of an image."""
    kernel, stride, _, _ = draw(kernels())
    size = kernel[0] + draw(st.integers(0, 5)), kernel[1] + draw(st.integers(0, 5))
    padding = draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2))
    return Windows(kernel, stride, padding), size


@st.composite
def convolutions(draw):
    kernel, stride, dilation, size = draw(kernels())
    padding = draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2))
    windows = Windows(kernel, stride, padding, dilation)
    lanes, groups = (draw(st.integers(1, 3)), draw(st.integers(1, 3))), draw(st.integers(1, 3))
    channels = lanes[0] * groups * draw(st.integers(1, 2))
    filters = lanes[1] * groups * draw(st.integers(1, 2))
    bias = draw(st.one_of(st.none(), WIDE))
    formats = Affine(draw(FORMATS), draw(FORMATS), bias, draw(WIDE), draw(st.booleans()), draw(st.booleans()))
    return windows, (channels, *size), filters, groups, lanes, formats


@st.composite
def convolutions_at_once(draw):
    """As above, with columns or all of a kernel at once."""
    found = draw(convolutions().filter(lambda found: found[0].kernel != (1, 1)))
    rows, columns = found[0].kernel
    return *found, draw(st.sampled_from([(rows, 1), (rows, columns)]))


@st.composite
def convolutions_in_pieces(draw):
    """As above, with a half of each column or window at once."""
    found = draw(convolutions().filter(lambda found: 4 in found[0].kernel))
    rows, columns = found[0].kernel
    halves = [(2, 1)] * (rows == 4) + [(rows, 2)] * (columns == 4)
    return *found, draw(st.sampled_from(halves))


@st.composite
def convolutions_of_groups(draw):
    """As above, with the channels of several groups in a beat: one or two of each, as in depthwise layers."""
    found = draw(st.one_of(convolutions(), convolutions_at_once(), convolutions_in_pieces()))
    windows, (_, *size), _, _, _, formats = found[:6]
    channels, filters, at_once = draw(st.sampled_from((1, 1, 2))), draw(st.integers(1, 2)), draw(st.integers(2, 4))
    groups, lanes = at_once * draw(st.integers(1, 2)), (channels * at_once, filters * at_once)
    return windows, (channels * groups, *size), filters * groups, groups, lanes, formats, *found[6:]


def convolution(number, windows, shape, filters, groups, lanes, formats, taps=(1, 1)):
    random = generator(number)
    values = integers(formats.data.width, IMAGES, *shape, generator=random)
    weight = integers(formats.weight.width, filters, shape[0] // groups, *windows.kernel, generator=random)
    bias = None if formats.bias is None else integers(formats.bias.width, filters, generator=random)
    expected = conv2d(values, weight, bias, formats, windows, groups)
    return conv_case(values, weight, bias, formats, windows, groups, lanes, expected, taps)


def test_convolution_is_the_arithmetic_of_conv2d():
    Bench([convolution(number, *draw) for number, draw in enumerate(drawn(convolutions()))]).check_all()


def test_convolution_of_several_positions_at_once_is_the_same_arithmetic():
    cases = [convolution(number, *draw) for number, draw in enumerate(drawn(convolutions_at_once()))]
    assert {case.parameters["WEIGHT_PARALLELISM_DIM_0"] > 1 for case in cases} == {True, False}
    Bench(cases).check_all()


def test_so_is_that_of_pieces_of_columns_and_windows():
    cases = [convolution(number, *draw) for number, draw in enumerate(drawn(convolutions_in_pieces()))]
    assert {case.parameters["WEIGHT_PARALLELISM_DIM_0"] for case in cases} == {1, 2}
    Bench(cases).check_all()


def test_so_is_that_of_several_groups_at_once():
    cases = [convolution(number, *draw) for number, draw in enumerate(drawn(convolutions_of_groups()))]
    taps = {
        (case.parameters["WEIGHT_PARALLELISM_DIM_1"], case.parameters["WEIGHT_PARALLELISM_DIM_0"]) for case in cases
    }
    assert len(taps) > 1
    Bench(cases).check_all()


PLAIN = Affine(FixedPoint(8, 4), FixedPoint(8, 6), FixedPoint(16, 10), FixedPoint(8, 4), relu=True)


def test_an_image_takes_as_many_cycles_as_its_folding_says():
    cases, wanted = [], []
    for lanes, stride in (((1, 1), 1), ((2, 2), 1), ((2, 4), 1), ((4, 4), 2)):
        windows = Windows((3, 3), (stride, stride), (1, 1))
        cases.append(convolution(1, windows, (4, 12, 12), 8, 1, lanes, PLAIN))
        wanted.append((12 // stride) ** 2 * 9 * (4 // lanes[0]) * (8 // lanes[1]))
    for result, cycles in zip(Bench(cases).run(), wanted, strict=True):
        assert result.fine
        # What is not overlapped: the first rows have to arrive before the first window is whole.
        assert cycles <= result.last_cycle / IMAGES <= 1.05 * cycles + 40, (result.case, cycles, result.last_cycle)


@st.composite
def pools(draw):
    windows, size = draw(placed())
    lanes = draw(st.integers(1, 3))
    return windows, (lanes * draw(st.integers(1, 3)), *size), lanes, draw(FORMATS), draw(FORMATS)


def max_pool(number, windows, shape, lanes, data, _):
    values = pixels(number, data.width, shape)
    parameters = {**image_sizes(data.width, shape, lanes), **kernel_parameters(windows)}
    into = image_stream(values, data.width, lanes)
    out = image_stream(max_pool2d(values, windows), data.width, lanes)
    return Case("fixed_max_pool2d", parameters, {"data_in_0": into}, {"data_out_0": out})


def average_pool(number, windows, shape, lanes, data, out_format):
    values = pixels(number, data.width, shape)
    parameters = {
        **image_sizes(data.width, shape, lanes),
        **precision("DATA_IN_0", data),
        **precision("DATA_OUT_0", out_format),
        **kernel_parameters(windows),
        "SERIAL": number % 2,
    }
    out = image_stream(average_pool2d(values, data, out_format, windows), out_format.width, lanes)
    into = image_stream(values, data.width, lanes)
    return Case("fixed_average_pool2d", parameters, {"data_in_0": into}, {"data_out_0": out})


def test_max_pooling_is_its_arithmetic():
    Bench([max_pool(number, *draw) for number, draw in enumerate(drawn(pools()))]).check_all()


def test_average_pooling_is_its_arithmetic():
    Bench([average_pool(number, *draw) for number, draw in enumerate(drawn(pools()))]).check_all()


def test_the_mean_of_a_whole_image_needs_no_memory_of_it():
    data = FixedPoint(8, 4)
    sizes = [(6, 5, 5), (4, 7, 7), (8, 4, 4)]
    Bench([average_pool(n, Windows(size[1:]), size, 2, data, data) for n, size in enumerate(sizes)]).check_all()


BORDER = {"PADDING_LEFT": 2, "PADDING_RIGHT": 0, "PADDING_TOP": 0, "PADDING_BOTTOM": 1}


def bordered(values, lowest=0):
    return functional.pad(values, tuple(BORDER.values()), value=lowest)


def with_border(case, expected, width, lanes):
    """The case of windows without a border, with another one on each side."""
    outs = {"data_out_0": image_stream(expected, width, lanes)}
    return replace(case, parameters={**case.parameters, **BORDER}, outputs=outs)


def test_borders_may_differ_from_side_to_side():
    place, shape, data = Windows((2, 2), (1, 2)), (2, 5, 4), PLAIN.data
    values = pixels(1, 8, shape)
    weight, bias = (integers(width, *size, generator=generator(1)) for width, size in ((8, (4, 2, 2, 2)), (16, (4,))))
    convolved = conv2d(bordered(values), weight, bias, PLAIN, place)
    largest, means = (max_pool2d(bordered(values, -128), place), average_pool2d(bordered(values), data, data, place))
    cases = [conv_case(values, weight, bias, PLAIN, place, 1, (2, 2), convolved, taps) for taps in ((1, 1), (2, 2))]
    pools = (make(1, place, shape, 2, data, data) for make in (max_pool, average_pool))
    expected = (convolved, convolved, largest, means)
    Bench([with_border(*each, 8, 2) for each in zip((*cases, *pools), expected, strict=True)]).check_all()


def mean_case(divisor, width, out, serial=False):
    """All sums of `width` bits with 2 bits after the point; Python's fractions round half to even."""
    sums = range(-(1 << (width - 1)), 1 << (width - 1))
    low, high = out.integers
    exact = (round(Fraction(total, divisor) * Fraction(2) ** (out.fraction_width - 2)) for total in sums)
    parameters = {
        **precision("DATA_IN_0", FixedPoint(width, 2)),
        **precision("DATA_OUT_0", out),
        "DATA_IN_0_PARALLELISM_DIM_0": 1,
        "DIVISOR": divisor,
        "SERIAL": int(serial),
        "WAITING": divisor,
    }
    into = stream(torch.tensor(sums), width, 1)
    wanted = stream(torch.tensor([min(max(value, low), high) for value in exact]), out.width, 1)
    return Case("fixed_mean", parameters, {"data_in_0": into}, {"data_out_0": wanted})


def test_every_sum_is_divided_and_rounded_as_a_fraction():
    divisors, outs = (1, 2, 3, 6, 7, 10, 12, 49), (FixedPoint(8, 2), FixedPoint(7, 0), FixedPoint(10, 4))
    Bench([mean_case(divisor, width, out) for divisor in divisors for width in (8, 9) for out in outs]).check_all()
    Bench([mean_case(divisor, 8, out, serial=True) for divisor in divisors for out in outs]).check_all()
