"""Cases of components that compute: their parameters, streams and memories, from integers and number formats."""

from mase_server.hardware.kinds.conv2d import arrange_filters
from mase_server.hardware.memories import pack_rows, words_of_bias, words_of_weight
from tests.rtl.bench import Case, Stream


def precision(prefix, format):
    """MASE's two parameters of a fixed-point format."""
    return {f"{prefix}_PRECISION_0": format.width, f"{prefix}_PRECISION_1": format.fraction_width}


def stream(integers, width, lanes):
    """Tensors in row-major order, `lanes` elements a beat."""
    return Stream(lanes * width, pack_rows(integers.reshape(-1, lanes), width))


def linear_parameters(formats, ins, outs, lanes_in, lanes_out):
    bias = formats.bias or formats.weight
    return {
        **precision("DATA_IN_0", formats.data),
        **precision("WEIGHT", formats.weight),
        **precision("BIAS", bias),
        **precision("DATA_OUT_0", formats.out),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": ins,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes_in,
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": outs,
        "DATA_OUT_0_PARALLELISM_DIM_0": lanes_out,
        "HAS_BIAS": int(formats.bias is not None),
        "FLOOR": int(formats.floor),
        "RELU": int(formats.relu),
    }


def linear_memories(formats, weight, bias, lanes_in, lanes_out):
    width = formats.weight.width
    memories = {"WEIGHT_FILE": (width * lanes_in * lanes_out, words_of_weight(weight, width, lanes_in, lanes_out))}
    if bias is not None:
        width = formats.bias.width
        memories["BIAS_FILE"] = (width * lanes_out, words_of_bias(bias, width, lanes_out))
    return memories


def linear_case(values, weight, bias, formats, lanes, expected):
    """`fixed_linear` on vectors [count, in]; lanes: elements of a beat at the input and the output."""
    lanes_in, lanes_out = lanes
    outs, ins = weight.shape
    return Case(
        "fixed_linear",
        linear_parameters(formats, ins, outs, lanes_in, lanes_out),
        {"data_in_0": stream(values, formats.data.width, lanes_in)},
        {"data_out_0": stream(expected, formats.out.width, lanes_out)},
        linear_memories(formats, weight, bias, lanes_in, lanes_out),
    )


def image_sizes(width, shape, lanes):
    """MASE's parameters of an image of (channels, height, width)."""
    names = (f"DATA_IN_0_TENSOR_SIZE_DIM_{dim}" for dim in (0, 2, 1))
    return {
        "DATA_IN_0_PRECISION_0": width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        **dict(zip(names, shape, strict=True)),
    }


def image_stream(values, width, lanes):
    """Images [count, channels, height, width] as rows, columns, channels."""
    return stream(values.permute(0, 2, 3, 1), width, lanes)


def kernel_sizes(windows):
    names = ("KERNEL_HEIGHT", "KERNEL_WIDTH", "STRIDE_HEIGHT", "STRIDE_WIDTH")
    return dict(zip(names, (*windows.kernel, *windows.stride), strict=True))


def kernel_parameters(windows):
    """A `Windows` with the same border on both sides."""
    rows, columns = windows.padding
    borders = {"PADDING_TOP": rows, "PADDING_BOTTOM": rows, "PADDING_LEFT": columns, "PADDING_RIGHT": columns}
    return {**kernel_sizes(windows), **borders}


def dilation(windows):
    return {"DILATION_HEIGHT": windows.dilation[0], "DILATION_WIDTH": windows.dilation[1]}


def conv_case(values, weight, bias, formats, windows, groups, lanes, expected, taps=(1, 1)):
    """`fixed_conv2d` on images [count, channels, height, width]; taps: rows and columns of the kernel at once."""
    lanes_in, lanes_out = lanes
    at_once = taps[0] * taps[1] * min(lanes_in, weight.shape[1])  # a beat may have the channels of several groups
    linear = linear_parameters(formats, 0, weight.shape[0], lanes_in, lanes_out)
    parameters = {**linear, **image_sizes(formats.data.width, values.shape[1:], lanes_in)}
    parameters |= {**kernel_parameters(windows), **dilation(windows)}
    return Case(
        "fixed_conv2d",
        {
            **parameters,
            "GROUPS": groups,
            "WEIGHT_PARALLELISM_DIM_1": taps[0],
            "WEIGHT_PARALLELISM_DIM_0": taps[1],
        },
        {"data_in_0": image_stream(values, formats.data.width, lanes_in)},
        {"data_out_0": image_stream(expected, formats.out.width, lanes_out)},
        linear_memories(formats, arrange_filters(weight, taps, lanes_in), bias, at_once, lanes_out),
    )
