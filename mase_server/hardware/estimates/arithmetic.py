"""What computes: roundings, sums, products."""

from __future__ import annotations

from mase_server.hardware.estimates import storage
from mase_server.hardware.estimates.cost import Cost, luts, multiplications
from mase_server.hardware.estimates.streams import counter
from mase_server.hardware.timing.parameters import Given, clog2


def requantise(width: int, fraction: int, width_out: int, fraction_out: int, relu: bool = False) -> Cost:
    """`fixed_requantise` of one number: rounding where bits are dropped, saturation where the rest does not fit."""
    dropped = max(0, fraction - fraction_out)
    above = width - dropped + max(0, fraction_out - fraction) - width_out
    return luts(1.5 * max(0, above) + (2 * width_out if above >= 0 else 0) + dropped)


def of_cast(given: Given) -> Cost:
    """`fixed_cast`"""
    return _rounding(given, given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PRECISION_1"])


def _rounding(given: Given, width: int, fraction: int) -> Cost:
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    return requantise(width, fraction, *out, bool(given.get("RELU"))) * given["DATA_IN_0_PARALLELISM_DIM_0"] + luts(3)


def of_add(given: Given) -> Cost:
    """`fixed_add`: sums are carry chains."""
    fractions = given["DATA_IN_0_PRECISION_1"], given["DATA_IN_1_PRECISION_1"]
    fraction = max(fractions)
    widths = (given[f"DATA_IN_{index}_PRECISION_0"] + fraction - own for index, own in enumerate(fractions))
    return _rounding(given, max(widths) + 1, fraction)


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
    control = counter(beats) + counter(beats * passes) + counter(passes) + luts(4 * clog2(places + 1) + 10)
    results = storage.fifo(lanes_out * given["DATA_OUT_0_PRECISION_0"], places)
    return control + results + mac(given, size) * lanes_out + multiplications(lanes * lanes_out)


def mac(given: Given, size: int) -> Cost:
    """One lane of `fixed_mac` but for its multipliers: sums are carry chains, a rounding is left."""
    weight = "WEIGHT" if "WEIGHT_PRECISION_0" in given else "DATA_IN_1"
    product = given["DATA_IN_0_PRECISION_0"] + given[f"{weight}_PRECISION_0"]
    fraction = given["DATA_IN_0_PRECISION_1"] + given[f"{weight}_PRECISION_1"]
    longest = max(fraction, given["BIAS_PRECISION_1"] if given.get("HAS_BIAS") else 0)
    width = product + clog2(size) + longest - fraction
    if given.get("HAS_BIAS"):
        width = max(width, given["BIAS_PRECISION_0"] + longest - given["BIAS_PRECISION_1"] + 1)
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    return requantise(width, longest, *out, bool(given.get("RELU"))) + luts(width if given.get("HAS_BIAS") else 0)


def linear_core(given: Given, size: int, lanes: int) -> Cost:
    """`fixed_linear_core`: with the weights and biases."""
    outs, lanes_out = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    weights = storage.rom(lanes * lanes_out * given["WEIGHT_PRECISION_0"], size // lanes * (outs // lanes_out))
    biases = storage.rom(lanes_out * given["BIAS_PRECISION_0"], outs // lanes_out) if given["HAS_BIAS"] else Cost()
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
