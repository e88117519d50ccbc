"""What computes: roundings, sums, products."""

from __future__ import annotations

from mase_server.hardware.estimates import storage
from mase_server.hardware.estimates.cost import Cost, logic, multiplications, sums
from mase_server.hardware.estimates.streams import counter
from mase_server.hardware.timing.parameters import Given, clog2

#: Tables for each bit that is saturated, by how many bits above have to be alike: (up to so many, tables).
_OF_SATURATED = ((1, 0.0), (3, 1.0), (5, 2.3), (7, 4.5), (9, 4.5), (11, 7.0), (64, 8.0))


def requantise(width: int, fraction: int, width_out: int, fraction_out: int) -> Cost:
    """`fixed_requantise` of one number: rounding where bits are dropped, saturation where the rest does not fit."""
    dropped = max(0, fraction - fraction_out)
    rounded = max(width - fraction + fraction_out, 1) + (1 if dropped else 0)
    alike = max(0, rounded - width_out) + 1
    each = next(tables for most, tables in _OF_SATURATED if alike <= most)
    return logic(each * width_out + dropped / 2) + (sums(rounded) if dropped else Cost())


def of_cast(given: Given) -> Cost:
    """`fixed_cast`"""
    return _rounding(given, given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PRECISION_1"])


def _rounding(given: Given, width: int, fraction: int) -> Cost:
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    return requantise(width, fraction, *out) * given["DATA_IN_0_PARALLELISM_DIM_0"] + logic(3)


def of_add(given: Given) -> Cost:
    """`fixed_add`: sums are carry chains."""
    fractions = given["DATA_IN_0_PRECISION_1"], given["DATA_IN_1_PRECISION_1"]
    fraction = max(fractions)
    widths = (given[f"DATA_IN_{index}_PRECISION_0"] + fraction - own for index, own in enumerate(fractions))
    width = max(widths) + 1
    return _rounding(given, width, fraction) + sums(width) * given["DATA_IN_0_PARALLELISM_DIM_0"]


def of_multiply(given: Given) -> Cost:
    """`fixed_multiply`"""
    width = given["DATA_IN_0_PRECISION_0"] + given["DATA_IN_1_PRECISION_0"]
    fraction = given["DATA_IN_0_PRECISION_1"] + given["DATA_IN_1_PRECISION_1"]
    return _rounding(given, width, fraction) + multiplications(given["DATA_IN_0_PARALLELISM_DIM_0"])


def dot_core(given: Given, size: int, lanes: int) -> Cost:
    """`fixed_dot_core` on vectors of so many elements, so many at once."""
    lanes_out, beats = given["DATA_OUT_0_PARALLELISM_DIM_0"], size // lanes
    passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // lanes_out
    places = -(-(8 + clog2(lanes)) // beats) + 1
    steps = counter(beats) + counter(beats * passes) + counter(passes)
    control = steps + logic(4 * clog2(places + 1) + 10) + sums(clog2(beats * passes))
    results = storage.fifo(lanes_out * given["DATA_OUT_0_PRECISION_0"], places)
    return control + results + mac(given, size, lanes) * lanes_out


def mac(given: Given, size: int, lanes: int) -> Cost:
    """One lane of `fixed_mac`: products, the sums of a tree and of the beats, where these start, and the rounding."""
    weight = "WEIGHT" if "WEIGHT_PRECISION_0" in given else "DATA_IN_1"
    product = given["DATA_IN_0_PRECISION_0"] + given[f"{weight}_PRECISION_0"]
    fraction = given["DATA_IN_0_PRECISION_1"] + given[f"{weight}_PRECISION_1"]
    longest = max(fraction, given["BIAS_PRECISION_1"] if given.get("HAS_BIAS") else 0)
    width = product + clog2(size) + longest - fraction
    if given.get("HAS_BIAS"):
        width = max(width, given["BIAS_PRECISION_0"] + longest - given["BIAS_PRECISION_1"] + 1)
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    rounding = requantise(width, longest, *out)
    return rounding + logic(0.8 * width) + sums(width, *_tree(product, lanes)) + multiplications(lanes)


def _tree(width: int, count: int) -> list[int]:
    """The widths of the sums of an `adder_tree`."""
    found = []
    for level in range(clog2(count)):
        below = -(-count >> level) if level else count
        found += [width + level + 1] * (below // 2)
    return found


def linear_core(given: Given, size: int, lanes: int) -> Cost:
    """`fixed_linear_core`: with the weights and biases."""
    outs, lanes_out = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    width, beats = lanes * lanes_out * given["WEIGHT_PRECISION_0"], size // lanes * (outs // lanes_out)
    weights, biases = storage.rom(width, beats, given.get("WEIGHT_FILE")), Cost()
    if given["HAS_BIAS"]:
        biases = storage.rom(lanes_out * given["BIAS_PRECISION_0"], outs // lanes_out, given.get("BIAS_FILE"))
    return dot_core(given, size, lanes) + weights + biases


def of_linear(given: Given) -> Cost:
    """`fixed_linear`"""
    size, lanes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    width = lanes * given["DATA_IN_0_PRECISION_0"]
    ahead = storage.repeat_buffer(width, size // lanes, passes) if passes > 1 else storage.skid_buffer(width)
    return ahead + linear_core(given, size, lanes)


def of_matmul(given: Given) -> Cost:
    """`fixed_matmul`"""
    size, lanes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    columns, lanes_out = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    passes, beats = columns // lanes_out, size // lanes
    row = storage.repeat_buffer(lanes * given["DATA_IN_0_PRECISION_0"], beats, passes)
    matrix = storage.bank_buffer(lanes * given["DATA_IN_1_PRECISION_0"], columns, beats, lanes_out)
    steps = counter(given["DATA_IN_0_TENSOR_SIZE_DIM_1"] * beats * passes)
    return row + matrix + steps + dot_core(given, size, lanes)
