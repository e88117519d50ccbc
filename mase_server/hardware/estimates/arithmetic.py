"""The cost of components that compute: roundings, sums, products, windows, softmax and norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch.nn import functional

from mase_server.hardware.estimates import storage
from mase_server.hardware.estimates.storage import (
    Cost,
    counter_cost,
    logic_cost,
    multiplications_cost,
    stands_in_tables,
    sums_cost,
)
from mase_server.hardware.memories import Words
from mase_server.hardware.networks import count_digits
from mase_server.hardware.timing.times import Given, NormWidths, clog2
from mase_server.hardware.timing.windows import Images
from mase_server.hardware.verilog import Instance, Memory, read_parameters

#: Tables for each bit that saturates, by the number of upper bits that must be equal: (up to so many, tables).
_OF_SATURATED = ((1, 0.0), (3, 1.0), (5, 2.3), (7, 4.5), (9, 4.5), (11, 7.0), (64, 8.0))


def requantise_cost(width: int, fraction: int, width_out: int, fraction_out: int) -> Cost:
    """`fixed_requantise` of one number: rounding if bits are dropped, saturation if the range shrinks."""
    dropped = max(0, fraction - fraction_out)
    rounded = max(width - fraction + fraction_out, 1) + (1 if dropped else 0)
    alike = max(0, rounded - width_out) + 1
    each = next(tables for most, tables in _OF_SATURATED if alike <= most)
    return logic_cost(each * width_out + dropped / 2) + (sums_cost(rounded) if dropped else Cost())


def of_cast(given: Given) -> Cost:
    """`fixed_cast`"""
    return _rounding_cost(given, given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PRECISION_1"])


def _rounding_cost(given: Given, width: int, fraction: int) -> Cost:
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    return requantise_cost(width, fraction, *out) * given["DATA_IN_0_PARALLELISM_DIM_0"] + logic_cost(3)


def of_add(given: Given) -> Cost:
    """`fixed_add`: sums are carry chains."""
    fractions = given["DATA_IN_0_PRECISION_1"], given["DATA_IN_1_PRECISION_1"]
    fraction = max(fractions)
    widths = (given[f"DATA_IN_{index}_PRECISION_0"] + fraction - own for index, own in enumerate(fractions))
    width = max(widths) + 1
    return _rounding_cost(given, width, fraction) + sums_cost(width) * given["DATA_IN_0_PARALLELISM_DIM_0"]


def of_multiply(given: Given) -> Cost:
    """`fixed_multiply`"""
    width = given["DATA_IN_0_PRECISION_0"] + given["DATA_IN_1_PRECISION_0"]
    fraction = given["DATA_IN_0_PRECISION_1"] + given["DATA_IN_1_PRECISION_1"]
    product = _product_cost(given, given["DATA_IN_0_PRECISION_0"], given["DATA_IN_1_PRECISION_0"])
    return _rounding_cost(given, width, fraction) + product * given["DATA_IN_0_PARALLELISM_DIM_0"]


def dot_core(given: Given, size: int, lanes: int) -> Cost:
    """`fixed_dot_core` on vectors of `size` elements, `lanes` at once."""
    lanes_out, beats = given["DATA_OUT_0_PARALLELISM_DIM_0"], size // lanes
    passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // lanes_out
    places = -(-(9 + clog2(lanes)) // beats) + 1
    steps = counter_cost(beats) + counter_cost(beats * passes) + counter_cost(passes)
    control = steps + logic_cost(4 * clog2(places + 1) + 10) + sums_cost(clog2(beats * passes))
    results = storage.fifo_cost(lanes_out * given["DATA_OUT_0_PRECISION_0"], places)
    return control + results + mac_cost(given, size, lanes) * lanes_out


def mac_cost(given: Given, size: int, lanes: int) -> Cost:
    """One lane of `fixed_mac`: products, the sums of the tree and of the beats, their start, and the rounding."""
    weight = "WEIGHT" if "WEIGHT_PRECISION_0" in given else "DATA_IN_1"
    product = given["DATA_IN_0_PRECISION_0"] + given[f"{weight}_PRECISION_0"]
    fraction = given["DATA_IN_0_PRECISION_1"] + given[f"{weight}_PRECISION_1"]
    longest = max(fraction, given["BIAS_PRECISION_1"] if given.get("HAS_BIAS") else 0)
    width = product + clog2(size) + longest - fraction
    if given.get("HAS_BIAS"):
        width = max(width, given["BIAS_PRECISION_0"] + longest - given["BIAS_PRECISION_1"] + 1)
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    rounding = requantise_cost(width, longest, *out)
    return (
        rounding
        + logic_cost(0.8 * width)
        + sums_cost(width, *_adder_tree_widths(product, lanes))
        + multiplications_cost(lanes, given["DATA_IN_0_PRECISION_0"], given[f"{weight}_PRECISION_0"])
    )


def _adder_tree_widths(width: int, count: int) -> list[int]:
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
    weights, biases = storage.rom_cost(width, beats, given.get("WEIGHT_FILE")), Cost()
    if given["HAS_BIAS"]:
        biases = storage.rom_cost(lanes_out * given["BIAS_PRECISION_0"], outs // lanes_out, given.get("BIAS_FILE"))
    return dot_core(given, size, lanes) + weights + biases


def of_linear(given: Given) -> Cost:
    """`fixed_linear`"""
    size, lanes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    width = lanes * given["DATA_IN_0_PRECISION_0"]
    ahead = storage.repeat_buffer(width, size // lanes, passes) if passes > 1 else storage.skid_buffer(width)
    return ahead + linear_core(given, size, lanes)


def of_constant_linear(given: Given) -> Cost:
    """`constant_linear` with its network: carry chains, the last sum and the rounding of each result, and the choice of
    digits."""
    ins, outs = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_OUT_0_TENSOR_SIZE_DIM_0"]
    total, fraction = given["TOTAL_WIDTH"], given["TOTAL_FRACTION"]
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    rounded = replace(requantise_cost(total, fraction, *out), carries=0)
    digits = count_digits(given["DATA_IN_0_PRECISION_0"], bool(given["DATA_IN_0_SIGNED"]), given["DIGIT_WIDTH"])
    chosen = logic_cost(ins * given["DIGIT_WIDTH"] * (digits - 1) + 10) if digits > 1 else Cost()
    return Cost(carries=given["NETWORK_CELLS"]) + (sums_cost(total) + rounded) * outs + chosen


def of_mxint_linear(given: Given) -> Cost:
    """`mxint_linear`: a layer of mantissas, a shift for each number of a beat, and one for the sum of each lane."""
    lanes, outs, mantissa = given[_IN], given[_OUT], given["MANTISSA_WIDTH"]
    most, weight = given["DATA_IN_0_PRECISION_0"] - mantissa, given["WEIGHT_PRECISION_0"]
    exponents, product = most + given["WEIGHT_EXPONENTS"], mantissa + weight + clog2(lanes)
    moved = logic_cost(2 * clog2(most + 1) * mantissa * lanes + given["DATA_IN_0_PRECISION_0"] * lanes)
    shifted = logic_cost(2 * clog2(exponents + 1) * (product + exponents / 2)) * outs
    return of_linear({**given, "DATA_IN_0_PRECISION_0": mantissa}) + moved + shifted


def of_engine(given: Given) -> Cost:
    """`fixed_engine`: a selection of what its layers send, products and sums."""
    lanes, outs, width = (
        given[name] for name in ("DATA_IN_0_PARALLELISM_DIM_0", "DATA_OUT_0_PARALLELISM_DIM_0", "SUM_WIDTH")
    )
    factors = given["DATA_IN_0_PRECISION_0"], given["WEIGHT_PRECISION_0"]
    product, selected = sum(factors), lanes * factors[0] + lanes * outs * factors[1]
    each = multiplications_cost(lanes, *factors) + logic_cost(0.4 * width)
    each += sums_cost(width, *_adder_tree_widths(product, lanes))
    # A table of four inputs selects from two layers.
    return each * outs + logic_cost(selected * (given["COUNT"] // 2) + 4 * given["COUNT"])


def of_streamed_linear(given: Given) -> Cost:
    """`streamed_linear`"""
    width = given["DATA_IN_0_PARALLELISM_DIM_0"] * given["DATA_IN_0_PRECISION_0"]
    return streamed_core(given, given["DATA_IN_0_TENSOR_SIZE_DIM_0"], width)


def of_streamed_conv2d(given: Given) -> Cost:
    """`streamed_conv2d`"""
    images, width = Images.of(given), given["DATA_IN_0_PARALLELISM_DIM_0"] * given["DATA_IN_0_PRECISION_0"]
    size = images.kernel[0] * images.kernel[1] * given["DATA_IN_0_TENSOR_SIZE_DIM_0"]
    return padding_cost(width, images) + sliding_window(width, images) + streamed_core(given, size, width)


def streamed_core(given: Given, size: int, width: int) -> Cost:
    """Vectors of `size` elements, in beats of `width` bits, with weights from outside: two tiles of words, the vectors
    that share them, and their results in another order."""
    lanes, lanes_out, rows = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"], given["ROWS"]
    beats, passes = size // lanes, given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // lanes_out
    word, port, out = (
        lanes * lanes_out * given["WEIGHT_PRECISION_0"],
        given["BUS_WIDTH"],
        given["DATA_OUT_0_PRECISION_0"],
    )
    found = dot_core(given, size, lanes) + logic_cost(2 * max(word, port) + 10)
    found += storage.repeat_buffer(word, beats, rows) if rows > 1 else Cost()
    found += storage.repeat_buffer(width, rows * beats, passes) if passes > 1 else storage.skid_buffer(width)
    if rows > 1 and passes > 1:
        found += storage.bank_buffer(lanes_out * out, passes, rows, 1) + logic_cost(15 + 4 * clog2(passes * rows))
    if given["HAS_BIAS"]:
        found += storage.rom_cost(lanes_out * given["BIAS_PRECISION_0"], passes, given.get("BIAS_FILE"))
    return found


def of_reader(given: Given) -> Cost:
    """`axi_reader`: a fifo of four bursts for each region, and the choice of the next one."""
    each = storage.fifo_cost(given["BUS_WIDTH"], 64) + logic_cost(60) + sums_cost(32, 32, 7)
    return each * given["COUNT"] + logic_cost(150) + sums_cost(64)


def of_shared_linear(given: Given) -> Cost:
    """`shared_linear`"""
    return _shared_cost(given, given["DATA_IN_0_TENSOR_SIZE_DIM_0"], 1)


def of_shared_matmul(given: Given) -> Cost:
    """`shared_matmul`: as `shared_linear`, with rows of the second operand in place of weights."""
    lanes, outs, columns = given["ENGINE_PARALLELISM_DIM_0"], given["ENGINE_PARALLELISM_DIM_1"], given[_COLUMNS]
    length, bits = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_1_PRECISION_0"]
    beats = -(-length // lanes)
    steps = counter_cost(given["DATA_IN_0_TENSOR_SIZE_DIM_1"] * beats * -(-columns // outs))
    rows = storage.of_width_converter({"DATA_IN_0_PRECISION_0": bits, _IN: given[_IN], _OUT: lanes})
    return _shared_cost(given, length, 1) + rows + storage.bank_buffer(lanes * bits, columns, beats, outs) + steps


def _shared_cost(given: Given, length: int, groups: int) -> Cost:
    """`shared_core` on vectors of `length` elements, with memories of constant weights: its buffers and roundings."""
    lanes, outs = given["ENGINE_PARALLELISM_DIM_0"], given["ENGINE_PARALLELISM_DIM_1"]
    results, weight = given[_COLUMNS] // groups, "WEIGHT" if "WEIGHT_PRECISION_0" in given else "DATA_IN_1"
    beats, passes = -(-length // lanes), -(-results // outs)
    places, words = (9 + clog2(lanes) + beats) // beats + 2, groups * passes * beats
    fraction = given["DATA_IN_0_PRECISION_1"] + given[f"{weight}_PRECISION_1"]
    width, longest = given["DATA_IN_0_PRECISION_0"] + given[f"{weight}_PRECISION_0"] + clog2(beats * lanes), fraction
    weights = biases = Cost()
    if weight == "WEIGHT":
        weights = storage.rom_cost(lanes * outs * given["WEIGHT_PRECISION_0"], words, given.get("WEIGHT_FILE"))
    if given.get("HAS_BIAS"):
        longest = max(fraction, given["BIAS_PRECISION_1"])
        width = max(width + longest - fraction, given["BIAS_PRECISION_0"] + longest - given["BIAS_PRECISION_1"]) + 1
        biases = storage.rom_cost(outs * given["BIAS_PRECISION_0"], groups * passes, given.get("BIAS_FILE"))
        biases += sums_cost(width) * outs
    bits, bits_out = given["DATA_IN_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_0"]
    rounding = requantise_cost(width, longest, bits_out, given["DATA_OUT_0_PRECISION_1"]) * outs
    converted = {"DATA_IN_0_PRECISION_0": bits, _IN: given[_IN], _OUT: lanes}
    converted_out = {"DATA_IN_0_PRECISION_0": bits_out, _IN: outs, _OUT: given[_OUT]}
    streams = storage.of_width_converter(converted) + storage.of_width_converter(converted_out)
    memory = storage.repeat_buffer(lanes * bits, beats, passes) + storage.fifo_cost(outs * bits_out, places)
    control = counter_cost(beats) + counter_cost(words) + logic_cost(4 * clog2(places + 1) + 10)
    return streams + memory + weights + biases + rounding + control


_IN, _OUT = "DATA_IN_0_PARALLELISM_DIM_0", "DATA_OUT_0_PARALLELISM_DIM_0"
_COLUMNS = "DATA_OUT_0_TENSOR_SIZE_DIM_0"


def of_matmul(given: Given) -> Cost:
    """`fixed_matmul`"""
    size, lanes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    columns, lanes_out = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    passes, beats = columns // lanes_out, size // lanes
    row = storage.repeat_buffer(lanes * given["DATA_IN_0_PRECISION_0"], beats, passes)
    matrix = storage.bank_buffer(lanes * given["DATA_IN_1_PRECISION_0"], columns, beats, lanes_out)
    steps = counter_cost(given["DATA_IN_0_TENSOR_SIZE_DIM_1"] * beats * passes)
    return row + matrix + steps + dot_core(given, size, lanes)


def of_recurrent(given: Given) -> Cost:
    """`fixed_recurrent`: a linear layer of the last result, the way to it and back, and a `recurrent_cell`;
    `shared_recurrent`, whose layer has no multipliers."""
    units, lanes, gates = given[_COLUMNS], given[_OUT], 4 if given["LSTM"] else 3
    ins, outs = given["HIDDEN_PARALLELISM_DIM_0"], given["GATES_PARALLELISM_DIM_0"]
    part, hidden = given["DATA_IN_0_PRECISION_0"], given["HIDDEN_PRECISION_0"]
    layer = {
        **{name: each for name, each in given.items() if name.startswith(("WEIGHT", "HAS_BIAS", "BIAS", "ENGINE"))},
        **dict(zip(("DATA_IN_0_PRECISION_0", "DATA_IN_0_PRECISION_1"), _format_of(given, "HIDDEN"), strict=True)),
        **dict(zip(("DATA_OUT_0_PRECISION_0", "DATA_OUT_0_PRECISION_1"), _format_of(given, "DATA_IN_0"), strict=True)),
        **{"DATA_IN_0_TENSOR_SIZE_DIM_0": units, _IN: ins, _COLUMNS: gates * units, _OUT: outs},
    }
    to_units = storage.of_width_converter({"DATA_IN_0_PRECISION_0": part, _IN: outs, _OUT: gates * lanes})
    back = storage.of_width_converter({"DATA_IN_0_PRECISION_0": hidden, _IN: lanes, _OUT: ins})
    steps = counter_cost(units // ins) + 2 * counter_cost(given["DATA_OUT_0_TENSOR_SIZE_DIM_1"])
    control = steps + 2 * counter_cost(units // lanes) + logic_cost(ins * hidden + 20)
    products = of_shared_linear(layer) if "ENGINE_SUM_WIDTH" in given else of_linear(layer)
    return products + to_units + back + control + lanes * _cell_cost(given, units // lanes)


def _cell_cost(given: Given, words: int) -> Cost:
    """One lane of `recurrent_cell`, and of the rounding on the way back: tables, products, roundings, the state."""
    is_lstm, argument = bool(given["LSTM"]), given["ARGUMENT_WIDTH"]
    (part, fraction), (unit, of_unit) = _format_of(given, "DATA_IN_0"), _format_of(given, "DATA_OUT_0")
    state, of_state = _format_of(given, "CELL" if is_lstm else "DATA_OUT_0")
    tables = storage.rom_cost(unit, 1 << argument, given.get("SIGMOID_FILE"))
    tables += storage.rom_cost(unit, 1 << argument, given.get("TANH_FILE")) * (2 if is_lstm else 1)
    found = tables + storage.memory_cost(state, words) + logic_cost(4 * part + state)
    found += requantise_cost(unit, of_unit, *_format_of(given, "HIDDEN")) + sums_cost(part + 1)
    found += requantise_cost(part + 1, fraction, argument, argument - 4)
    if not is_lstm:
        sums = sums_cost(part + unit + 1, unit + 1, 2 * unit + 2)
        sums += _product_cost(given, part, unit) + _product_cost(given, unit + 1, unit)
        tanh = requantise_cost(part + unit + 1, fraction + of_unit, argument, argument - 3)
        return found + sums + tanh + requantise_cost(2 * unit + 2, 2 * of_unit, unit, of_unit)
    most = max(of_unit, of_state)
    total = max(unit + state + most - of_state, 2 * unit + most - of_unit) + 1
    found += _product_cost(given, state, unit) + 2 * _product_cost(given, unit, unit)
    found += sums_cost(total) + requantise_cost(total, of_unit + most, state, of_state)
    found += requantise_cost(part + 1, fraction, argument, argument - 3)
    found += requantise_cost(state, of_state, argument, argument - 3)
    return found + requantise_cost(2 * unit, 2 * of_unit, unit, of_unit)


def _format_of(given: Given, name: str) -> tuple[int, int]:
    return given[f"{name}_PRECISION_0"], given[f"{name}_PRECISION_1"]


# Components that move windows over images.


def of_conv2d(given: Given) -> Cost:
    """`fixed_conv2d`"""
    taps = given.get("WEIGHT_PARALLELISM_DIM_1", 1), given.get("WEIGHT_PARALLELISM_DIM_0", 1)
    images, lanes = Images.convolved(given), given["DATA_IN_0_PARALLELISM_DIM_0"]
    width = lanes * given["DATA_IN_0_PRECISION_0"]
    windows = sliding_window(width, images) if taps == (1, 1) else parallel_window(width, images, taps)
    size = images.kernel[0] * images.kernel[1] * given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["GROUPS"]
    of_group = lanes * images.groups // given["GROUPS"]
    return padding_cost(width, images) + windows + linear_core(given, size, of_group * taps[0] * taps[1])


def of_shared_conv2d(given: Given) -> Cost:
    """`shared_conv2d`"""
    groups, width = given["GROUPS"], given[_IN] * given["DATA_IN_0_PRECISION_0"]
    images = Images.of(given, groups=groups)
    length = images.kernel[0] * images.kernel[1] * given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // groups
    return padding_cost(width, images) + sliding_window(width, images) + _shared_cost(given, length, groups)


def of_padding(given: Given) -> Cost:
    """`image_padding`"""
    return padding_cost(given["DATA_IN_0_PARALLELISM_DIM_0"] * given["DATA_IN_0_PRECISION_0"], Images.bordered(given))


def padding_cost(width: int, images: Images) -> Cost:
    """`image_padding`, if there is a border."""
    if not any(images.border):
        return Cost()
    bits = clog2(images.columns + 1), clog2(images.rows + 1)
    return logic_cost(width + max(10, 7.5 * sum(bits) - 40)) + sums_cost(*bits) + counter_cost(images.beats)


def sliding_window(width: int, images: Images) -> Cost:
    """`sliding_window`: a ring of pixels, with addresses that are sums modulo its depth."""
    bits = clog2(2 * images.depth)
    return storage.memory_cost(width, images.depth) + logic_cost(80 + 5 * bits) + Cost(carries=7 * bits - 8)


def parallel_window(width: int, images: Images, taps: tuple[int, int]) -> Cost:
    """`parallel_window`"""
    rows, columns = images.kernel
    column, (_, wide) = rows * width, images.reach
    found = storage.line_taps(width, images.columns * images.beats, rows, images.dilation[0])
    found += storage.fifo_cost(column, images.spare * images.beats + 2)
    split = {"DATA_IN_0_PRECISION_0": taps[0] * taps[1] * width, _IN: images.pieces(taps), _OUT: 1}
    found += storage.of_width_converter(split)
    if taps[1] == 1:
        return found + sliding_window(column, images.line)
    group = images.beats // images.groups
    found += storage.line_taps(column, images.beats, columns, images.dilation[1])
    ahead = (wide - 1) * images.beats // images.passes if images.passes > 1 else 0
    return found + storage.repeat_buffer(columns * column, group, images.passes, 2 * group + ahead)


#: Beats of `fixed_reduce` that need no memory.
_OF_REGISTERS = 2


def reduce_cost(width: int, lanes: int, beats: int, count: int, maximum: bool, index: bool = False) -> Cost:
    """`fixed_reduce`: elements of `width` bits, `count` positions. index: is their number kept with them?"""
    bits, number = width if maximum else width + clog2(count), clog2(count) + 1 if index else 0
    kept = lanes * (bits + number)
    memory = replace(storage.memory_cost(kept, beats), rams=((beats - 1, kept),) if beats > _OF_REGISTERS else ())
    return (
        memory
        + lanes * (logic_cost(1.2 * bits + number) + sums_cost(bits))
        + counter_cost(count)
        + logic_cost(6 + number)
    )


def of_reduce(given: Given) -> Cost:
    """`fixed_reduce`"""
    width, lanes = given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    maximum, index = bool(given["MAXIMUM"]), bool(given.get("INDEX"))
    return reduce_cost(width, lanes, given["BEATS"], given["COUNT"], maximum, index)


def of_top_k(given: Given) -> Cost:
    """`fixed_top_k`: each lane is compared with every place, every other lane and the beat before; a place selects
    among the lanes and the places before it, as far as elements move."""
    width, size, lanes = (
        given[f"DATA_IN_0_{name}"] for name in ("PRECISION_0", "TENSOR_SIZE_DIM_0", "PARALLELISM_DIM_0")
    )
    places, number = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"], clog2(size) + 1 if given["INDEX"] else 0
    compared = lanes * places + lanes * (lanes - 1) // 2 + lanes**2
    before = sum(min(place, lanes) + 1 for place in range(places))
    chosen = (before + lanes * places) * (width + number + 1)
    ranked = (1.2 if lanes == 1 else 5.4 * lanes) * before
    return (
        compared * sums_cost(width + 1)
        + logic_cost(0.77 * chosen + ranked + 3)
        + sums_cost(number - clog2(lanes))
        + counter_cost(size // lanes)
    )


def of_mean(given: Given) -> Cost:
    """`fixed_mean`"""
    return mean_cost(given, given["DATA_IN_0_PRECISION_0"], given["DIVISOR"], given["WAITING"])


def of_max_pool2d(given: Given) -> Cost:
    """`fixed_max_pool2d`"""
    return _pool_cost(given, maximum=True)


def of_average_pool2d(given: Given) -> Cost:
    """`fixed_average_pool2d`"""
    count, beats = given["KERNEL_HEIGHT"] * given["KERNEL_WIDTH"], Images.of(given).beats
    sums = given["DATA_IN_0_PRECISION_0"] + clog2(count)
    return _pool_cost(given, maximum=False) + mean_cost(given, sums, count, beats)


def mean_cost(given: Given, width: int, divisor: int, waiting: int) -> Cost:
    """`fixed_mean`: products with the reciprocal, except with powers of two. width: of the sums.  waiting: beats."""
    lanes = given["DATA_IN_0_PARALLELISM_DIM_0"]
    if divisor & (divisor - 1) == 0:
        return Cost(logic=12, carries=0.85 * width) * lanes
    if given["SERIAL"]:
        products = _product_cost(given, width + 4, width + 3) * lanes + storage.fifo_cost(lanes * (width + 3), waiting)
    else:
        products = multiplications_cost(lanes)
    return products + Cost(logic=15, carries=1.8 * width) * lanes


def _pool_cost(given: Given, maximum: bool) -> Cost:
    images, lanes = Images.of(given), given["DATA_IN_0_PARALLELISM_DIM_0"]
    bits, count = given["DATA_IN_0_PRECISION_0"], images.kernel[0] * images.kernel[1]
    whole = not maximum and images.kernel == (images.rows, images.columns)
    windows = Cost() if whole else sliding_window(lanes * bits, images) + storage.skid_buffer(lanes * bits)
    return padding_cost(lanes * bits, images) + windows + reduce_cost(bits, lanes, images.beats, count, maximum)


# Components that work on whole rows: softmax and norms.


def row_reduce(width: int, lanes: int, beats: int, maximum: bool) -> Cost:
    """`fixed_row_reduce`"""
    bits = width if maximum else width + clog2(beats)
    combined = (lanes - 1) * (logic_cost(1.2 * bits) if maximum else Cost()) + (lanes - 1) * sums_cost(
        bits + clog2(lanes)
    )
    return reduce_cost(width, lanes, 1, beats, maximum) + combined + logic_cost(3)


def row_statistic(width: int, lanes: int, beats: int, reduced: int, maximum: bool) -> Cost:
    """`row_statistic`. width: of an element; reduced: of the number that it reduces for each."""
    out = reduced if maximum else reduced + clog2(beats) + clog2(lanes)
    kept = storage.fifo_cost(width * lanes, 2 * beats + 4) + storage.skid_buffer(out)
    return kept + row_reduce(reduced, lanes, beats, maximum) + logic_cost(8) + counter_cost(beats)


def divide_cost(denominator: int, quotient: int) -> Cost:
    """`fixed_divide`: for each bit, a subtraction that may be undone."""
    logic_of_all = logic_cost(0.85 * quotient * (denominator + 1) + denominator)
    return logic_of_all + Cost(carries=quotient * ((denominator + 2) // 2) + 0.7 * denominator)


def of_softmax(given: Given) -> Cost:
    """`fixed_softmax`"""
    size, lanes, bits = (
        given[f"DATA_IN_0_{name}"] for name in ("TENSOR_SIZE_DIM_0", "PARALLELISM_DIM_0", "PRECISION_0")
    )
    beats, power, masks = size // lanes, given["EXP_FRACTION"] + 1, Cost()
    if given.get("HAS_MASK"):
        masks = storage.rom_cost(lanes, given["MASK_BEATS"], given.get("MASK_FILE")) + lanes * logic_cost(bits)
        masks += counter_cost(given["MASK_BEATS"])
    marked = bits + given.get("HAS_MASK", 0)
    largest = row_statistic(marked, lanes, beats, marked, maximum=True)
    total = row_statistic(power, lanes, beats, power + 1, maximum=False)
    tables = storage.rom_cost(power, 2**bits, given.get("FILE")) * lanes
    quotients = divide_cost(power + 1 + clog2(beats) + clog2(lanes), given["DATA_OUT_0_PRECISION_1"] + 1) * lanes
    return masks + largest + total + tables + quotients


def of_blocks(given: Given) -> Cost:
    """`mxint_cast`: the largest magnitude of a block, and in each lane two shifts and a rounding."""
    lanes, width, mantissa = (
        given[name] for name in ("DATA_IN_0_PARALLELISM_DIM_0", "DATA_IN_0_PRECISION_0", "MANTISSA_WIDTH")
    )
    most = width + 1 - mantissa
    largest = row_statistic(width, lanes, given["BLOCK_SIZE"] // lanes, width + 1, maximum=True)
    shifted = logic_cost(clog2(most + 1) * (2 * width + 1) / 2)
    rounded = requantise_cost(width + 1, most, mantissa, 0) + sums_cost(mantissa, mantissa)
    return largest + logic_cost(2 * width) + (shifted + rounded + sums_cost(width + 1)) * lanes


def of_floats(given: Given) -> Cost:
    """`minifloat_cast`: in each lane a magnitude, the place of its first bit, two shifts and a rounding; of a block the
    largest magnitude."""
    lanes, width, mantissa, out = (
        given[name]
        for name in (
            "DATA_IN_0_PARALLELISM_DIM_0", "DATA_IN_0_PRECISION_0", "MANTISSA_WIDTH", "DATA_OUT_0_PRECISION_0",
        )
    )  # fmt: skip
    top = min(max(width - mantissa, given["TOP_LOWEST"]), given["TOP_HIGHEST"])
    most = min(width, max(width - mantissa, top - given["SPAN"], 0), top)
    shifted = logic_cost(clog2(most + 1) * (width + out) / 2)
    rounded = requantise_cost(mantissa + most + 1, most, mantissa + 2, 0) + sums_cost(mantissa)
    each = sums_cost(width) + logic_cost(2 * width + _OF_CHOICE) + shifted + rounded
    block = given["BLOCK_SIZE"]
    largest = row_statistic(width, lanes, block // lanes, width + 1, maximum=True) + logic_cost(2 * width)
    return each * lanes + (largest if block else Cost())


#: Tables that choose a lane's step, and find whether its number is beyond the highest.
_OF_CHOICE = 110


def of_norm(given: Given) -> Cost:
    """`fixed_norm`"""
    size, lanes, bits = (
        given[f"DATA_IN_0_{name}"] for name in ("TENSOR_SIZE_DIM_0", "PARALLELISM_DIM_0", "PRECISION_0")
    )
    beats, widths = size // lanes, NormWidths.of(given)
    found = storage.fifo_cost(lanes * widths.centred, 2 * beats + widths.root + 6) + storage.skid_buffer(widths.root)
    if given["MEAN"]:
        found += row_statistic(bits, lanes, beats, bits, maximum=False)
        found += _product_cost(given, bits, clog2(size) + 1) * (0 if size & (size - 1) == 0 else lanes)
    found += _product_cost(given, widths.centred, widths.centred) * lanes
    found += row_reduce(2 * widths.centred, lanes, beats, maximum=False) + root_cost(widths.root, size) * given["ROOTS"]
    for name in ("WEIGHT", "BIAS"):
        if given[f"HAS_{name}"]:
            found += storage.rom_cost(lanes * given[f"{name}_PRECISION_0"], beats, given.get(f"{name}_FILE"))
    if given["HAS_WEIGHT"]:
        found += _product_cost(given, widths.quotient + 1, given["WEIGHT_PRECISION_0"]) * lanes
    return found + _results_cost(given, widths) * lanes


def _product_cost(given: Given, width: int, other: int) -> Cost:
    """A product: a multiplier, or an addition for each bit of the second factor."""
    if not given["SERIAL"]:
        return multiplications_cost(1, width, other)
    return sums_cost(width + 1) + logic_cost(2 * width + other + 6) + counter_cost(other)


def root_cost(width: int, count: int) -> Cost:
    """`fixed_root`"""
    bits = 2 * width + clog2(count + 1) + 1
    return Cost(logic=90 + 1.3 * bits, carries=1.83 * bits)


def _results_cost(given: Given, widths: NormWidths) -> Cost:
    """The quotient of one lane, its product, and the rounding."""
    quotients = divide_cost(widths.root, widths.quotient)
    weight = (given["WEIGHT_PRECISION_0"], given["WEIGHT_PRECISION_1"]) if given["HAS_WEIGHT"] else (1, 0)
    out = given["DATA_OUT_0_PRECISION_0"], given["DATA_OUT_0_PRECISION_1"]
    product, fraction = widths.quotient + 1 + weight[0], given["NORM_FRACTION"] + weight[1]
    signs = logic_cost(widths.centred + widths.quotient) + sums_cost(widths.centred, widths.quotient)
    return quotients + signs + sums_cost(product) + requantise_cost(product, fraction, *out)


# The tables of a read-only memory that is not in block memory: they depend on its content.

#: Bits above which a memory's content is taken as random.
_MOST_BITS = 1 << 18
#: Functions of four bits that need no table: constants, and copies of one bit.
_NONE = torch.tensor([0x0000, 0xFFFF, 0xAAAA, 0xCCCC, 0xF0F0, 0xFF00])
_WORDS = 16


def fill_parameters(instance: Instance, memories: Mapping[str, Memory]) -> Given:
    """The parameters of an instance as numbers; one that names a file becomes the number of tables for the file's
    words."""
    found = dict(read_parameters(instance))
    for name, value in instance.parameters.items():
        memory = memories.get(value) if isinstance(value, str) else None
        if memory is not None and isinstance(memory.words, Words) and _is_looked_at(memory):
            found[name] = count_tables(memory.words)
    if instance.network is not None:
        found["NETWORK_CELLS"] = sum((width + 1) // 2 for width in instance.network.widths)
    return found


def _is_looked_at(memory: Memory) -> bool:
    width, depth = memory.width, len(memory.words)
    return stands_in_tables(width, depth) and width * depth <= _MOST_BITS


def count_tables(words: Words) -> int:
    """Tables with four address bits: one for every sixteen words of each bit, unless it copies the bit below it."""
    rows = words.make()
    bits = (rows[..., None] >> torch.arange(words.width)) & 1
    is_copy = (bits[..., 1:] == bits[..., :-1]).all(0)
    columns = bits.permute(1, 2, 0)[functional.pad(~is_copy, (1, 0), value=True)]
    blocks = functional.pad(columns, (0, -columns.shape[1] % _WORDS)).reshape(-1, _WORDS)
    codes = (blocks << torch.arange(_WORDS)).sum(1)
    if len(words) <= _WORDS:
        codes = torch.unique(codes)
    return int((~torch.isin(codes, _NONE)).sum())
