"""Borders, windows, convolution and pooling of images that come as rows, columns, channels."""

import torch
from hypothesis import strategies as st
from torch.nn import functional

from tests.rtl.bench import Bench, Case
from tests.rtl.designs import image_sizes, image_stream, stream
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
    """A kernel of rows and columns, its strides, and an image that it fits into."""
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    strides = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return kernel, strides, (kernel[0] + draw(st.integers(0, 5)), kernel[1] + draw(st.integers(0, 5)))


@st.composite
def windows(draw):
    kernel, strides, size = draw(kernels())
    lanes, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    channels = lanes * groups * draw(st.integers(1, 2))
    return (channels, *size), lanes, kernel, strides, groups, draw(st.integers(1, 3)), draw(st.integers(0, 9))


def window_order(values, kernel, strides, groups, count):
    """All windows by plain loops over a picture: windows, groups, repetitions, kernel rows, kernel columns, channels."""
    found = []
    _, channels, height, width = values.shape
    each = channels // groups
    for image in values:
        for row in range(0, height - kernel[0] + 1, strides[0]):
            for column in range(0, width - kernel[1] + 1, strides[1]):
                for group in range(groups):
                    part = image[group * each : (group + 1) * each, row : row + kernel[0], column : column + kernel[1]]
                    found += [part.permute(1, 2, 0).reshape(-1)] * count
    return torch.cat(found)


def window(number, shape, lanes, kernel, strides, groups, count, spare):
    values = pixels(number, 8, shape)
    expected = window_order(values, kernel, strides, groups, count)
    parameters = {
        **image_sizes(8, shape, lanes),
        **{"KERNEL_HEIGHT": kernel[0], "KERNEL_WIDTH": kernel[1]},
        **{"STRIDE_HEIGHT": strides[0], "STRIDE_WIDTH": strides[1]},
        **{"GROUPS": groups, "COUNT": count, "SPARE": spare},
    }
    out = stream(expected, 8, lanes)
    return Case("sliding_window", parameters, {"data_in_0": image_stream(values, 8, lanes)}, {"data_out_0": out})


def test_windows_come_one_after_another_each_as_often_as_wanted():
    Bench([window(number, *draw) for number, draw in enumerate(drawn(windows()))]).check_all()
