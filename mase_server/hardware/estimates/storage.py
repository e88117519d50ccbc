"""What stores take: memories, fifos, rings.

The numbers are those of Yosys for single components over widths and depths (`benchmarks/estimates.py --fit`).
"""

from __future__ import annotations

from mase_server.hardware.estimates.cost import Cost, logic, sums
from mase_server.hardware.timing.parameters import Given, clog2

#: Cells of distributed memory that one block memory has to take the place of.
_MOST_CELLS = 25
#: Tables that a word of a read-only memory may take for each block memory that it would need instead.
_MOST_TABLES = 160
_BLOCK_WIDTH, _BLOCK_BITS, _BLOCK_DEPTH = 36, 18432, 2048
#: What is left of them when synthesis has found what they have in common.
_SHARED = 0.6
#: Words that a table is chosen from without another one.
_MOST_CHOSEN = 128


def memory(width: int, depth: int) -> Cost:
    """Bits that are written and read. Registers where there are no more than two words."""
    banks, bits = -(-depth // 16), width * depth
    if depth <= 2:
        return Cost(logic=width * (depth - 1), memory_bits=bits)
    cells = -(-width // 4) * banks
    if cells > _MOST_CELLS * _blocks(width, depth):
        return Cost(logic=0.9 * width + 16, memory_bits=bits)
    return Cost(logic=0.75 * width * (banks - 1), cells=cells, memory_bits=bits)


def rom(width: int, depth: int, tables: int | None = None) -> Cost:
    """Words that are read. tables: how many they take, where that is known; as many as random words otherwise."""
    if not stands_in_tables(width, depth):
        deep = -(-depth // _BLOCK_DEPTH)
        return Cost(logic=(0.7 * width + 3) * deep if deep > 1 else 0, memory_bits=width * depth)
    random = width * max(1, depth / 16) if depth > 4 else width / 2
    chosen = 2 * width if depth > _MOST_CHOSEN else 0
    return Cost(logic=_SHARED * (random if tables is None else tables) + chosen, memory_bits=width * depth)


def stands_in_tables(width: int, depth: int) -> bool:
    """Does a read-only memory stand in tables rather than in block memory?"""
    return width * depth <= 16 * _MOST_TABLES * _blocks(width, depth)


def _blocks(width: int, depth: int) -> int:
    return max(-(-width // _BLOCK_WIDTH), -(-width * depth // _BLOCK_BITS))


def skid_buffer(width: int) -> Cost:
    """Two beats of registers."""
    return logic(width + 4)


def fifo(width: int, depth: int) -> Cost:
    """So many beats; what is written where a block memory reads goes round it."""
    address, count = clog2(depth), clog2(depth + 1)
    passed = logic(0.8 * width + 3 * address) if depth > _MOST_DISTRIBUTED else Cost()
    return memory(width, depth) + passed + logic(6 + 4 * address) + sums(count, count, address, address)


_MOST_DISTRIBUTED = 32


def repeat_buffer(width: int, length: int, passes: int, depth: int | None = None) -> Cost:
    """Vectors of so many beats, each of them given several times."""
    depth = depth or 2 * length
    address, count, index = clog2(depth), clog2(depth + 1), clog2(length)
    control = logic(12 + 5.5 * address) + sums(address, address, count, count, count, index, clog2(passes))
    return memory(width, depth) + control


def bank_buffer(width: int, rows: int, beats: int, banks: int) -> Cost:
    """Two matrices of rows, several of which are read at once."""
    depth = 2 * rows * beats // banks
    return memory(width, depth) * banks + logic(14 + 3 * clog2(depth) + 3 * (banks - 1)) + sums(clog2(depth))


def line_taps(width: int, length: int, number: int, dilation: int) -> Cost:
    """Lines of so many beats, several of them at once; a line of one beat in registers."""
    kept, address = (number - 1) * dilation * width, clog2(length)
    if length == 1:
        return logic(10)
    return memory(kept, length) + logic(10 + 5 * address) + sums(address, address + 1)


def of_fifo(given: Given) -> Cost:
    """`fifo`"""
    return fifo(given["DATA_WIDTH"], given["DEPTH"])


def of_skid_buffer(given: Given) -> Cost:
    """`skid_buffer`"""
    return skid_buffer(given["DATA_WIDTH"])


def of_swap_buffer(given: Given) -> Cost:
    """`swap_buffer`: what comes several elements a beat is chosen from when it is transposed."""
    bits, lanes = given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    rows, banks = given["ROWS"], given["DATA_OUT_0_PARALLELISM_DIM_0"] if given["TRANSPOSE"] else 1
    words = given["COLUMNS"] // lanes if given["TRANSPOSE"] else given["COLUMNS"] * given["BEATS"]
    address = clog2(rows // banks * words)
    chosen = logic(bits * banks * (lanes - 1)) if given["TRANSPOSE"] else Cost()
    return bank_buffer(bits * lanes, rows, words, banks) + chosen + logic(15 + 4 * address) + sums(address, address)


def of_repeat_buffer(given: Given) -> Cost:
    """`repeat_buffer`"""
    return repeat_buffer(given["DATA_WIDTH"], given["LENGTH"], given["COUNT"], given.get("DEPTH"))


def of_stream_gather(given: Given) -> Cost:
    """`stream_gather`: the block, and where each beat of it stands."""
    depth, beats = given["DEPTH"], given["COUNT"]
    places = rom(max(1, clog2(depth)), beats, given.get("FILE"))
    return bank_buffer(given["DATA_WIDTH"], depth, 1, 1) + places + logic(3 * clog2(beats)) + sums(clog2(beats))


def of_embedding(given: Given) -> Cost:
    """`embedding`"""
    lanes = given["DATA_OUT_0_PARALLELISM_DIM_0"]
    words = given["NUM_EMBEDDINGS"] * given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // lanes
    return (
        rom(given["DATA_OUT_0_PRECISION_0"] * lanes, words, given.get("FILE"))
        + logic(2 * clog2(words))
        + sums(clog2(words))
    )


def of_constant_stream(given: Given) -> Cost:
    """`constant_stream`"""
    address = clog2(given["DEPTH"])
    return rom(given["DATA_WIDTH"], given["DEPTH"], given.get("FILE")) + logic(address) + sums(address)


def of_fixed_table(given: Given) -> Cost:
    """`fixed_table`: a table a lane."""
    one = rom(given["DATA_OUT_0_PRECISION_0"], 2 ** given["DATA_IN_0_PRECISION_0"], given.get("FILE"))
    return one * given["DATA_IN_0_PARALLELISM_DIM_0"] + logic(1)
