"""What stores take: memories, fifos, rings."""

from __future__ import annotations

from mase_server.hardware.estimates.cost import Cost, luts
from mase_server.hardware.timing.parameters import Given, clog2


def memory(width: int, depth: int) -> Cost:
    """Bits that are read and written."""
    return Cost(memory_bits=width * depth)


def rom(width: int, depth: int) -> Cost:
    """Words that are read."""
    return Cost(memory_bits=width * depth)


def skid_buffer(width: int) -> Cost:
    """Two beats of registers."""
    return luts(width + 4)


def fifo(width: int, depth: int) -> Cost:
    """So many beats."""
    return luts(5 * clog2(depth + 1)) + memory(width, depth)


def repeat_buffer(width: int, length: int, passes: int, depth: int | None = None) -> Cost:
    """Vectors of so many beats, each of them given several times."""
    depth = depth or 2 * length
    return luts(8 * clog2(depth + 1) + 3 * clog2(passes)) + memory(width, depth)


def bank_buffer(width: int, rows: int, beats: int, banks: int) -> Cost:
    """Two matrices of rows, several of which are read at once."""
    return luts(8 * clog2(2 * rows * beats)) + memory(width, 2 * rows * beats)


def line_taps(width: int, length: int, number: int, dilation: int) -> Cost:
    """Lines of so many beats, several of them at once."""
    kept = (number - 1) * dilation * width
    return luts(4 * clog2(length + 1)) + (memory(kept, length) if length > 1 else Cost())


def of_fifo(given: Given) -> Cost:
    """`fifo`"""
    return fifo(given["DATA_WIDTH"], given["DEPTH"])


def of_skid_buffer(given: Given) -> Cost:
    """`skid_buffer`"""
    return skid_buffer(given["DATA_WIDTH"])


def of_swap_buffer(given: Given) -> Cost:
    """`swap_buffer`"""
    bits, lanes = given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    rows, banks = given["ROWS"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    if given["TRANSPOSE"]:
        chosen = luts(bits * banks * (lanes - 1))
        return bank_buffer(bits * lanes, rows, given["COLUMNS"] // lanes, banks) + chosen
    return bank_buffer(bits * lanes, rows, given["COLUMNS"] * given["BEATS"], 1)


def of_embedding(given: Given) -> Cost:
    """`embedding`"""
    lanes = given["DATA_OUT_0_PARALLELISM_DIM_0"]
    words = given["NUM_EMBEDDINGS"] * given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // lanes
    return rom(given["DATA_OUT_0_PRECISION_0"] * lanes, words) + luts(3 * clog2(words))


def of_constant_stream(given: Given) -> Cost:
    """`constant_stream`"""
    return rom(given["DATA_WIDTH"], given["DEPTH"]) + luts(3 * clog2(given["DEPTH"] + 1))


def of_fixed_table(given: Given) -> Cost:
    """`fixed_table`: a table a lane."""
    one = rom(given["DATA_OUT_0_PRECISION_0"], 2 ** given["DATA_IN_0_PRECISION_0"])
    return one * given["DATA_IN_0_PARALLELISM_DIM_0"] + luts(3)
