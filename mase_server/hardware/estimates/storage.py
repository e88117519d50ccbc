"""The cost of components that store, split or join streams: memories, fifos, rings, forks and converters.

The numbers are Yosys's for single components over widths and depths (`benchmarks/estimates.py --fit`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

from mase_server.hardware.timing.streams import MOST_DISTRIBUTED
from mase_server.hardware.timing.times import Given, clog2

# The cost of a component.

#: The number of four-input tables that a carry cell, and a cell of distributed memory, replace in an ECP5.
_OF_CARRY, _OF_CELL = 2, 4


@dataclass(frozen=True, slots=True)
class Cost:
    """Multipliers of 18 bits; cells of an ECP5 as Yosys counts them; bits of weights, buffers and tables.

    logic: four-input tables (LUT4).  carries: pairs of bits of a sum (CCU2C).  cells: distributed memory of 16 words of
    four bits (TRELLIS_DPR16X4).  rams: words and bits of a word of each `ram`.
    """

    multipliers: float = 0
    logic: float = 0
    carries: float = 0
    cells: float = 0
    memory_bits: float = 0
    rams: tuple[tuple[int, int], ...] = ()

    @property
    def luts(self) -> float:
        """All cells in units of four-input tables."""
        return self.logic + _OF_CARRY * self.carries + _OF_CELL * self.cells

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.multipliers + other.multipliers,
            self.logic + other.logic,
            self.carries + other.carries,
            self.cells + other.cells,
            self.memory_bits + other.memory_bits,
            self.rams + other.rams,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(
            self.multipliers * times,
            self.logic * times,
            self.carries * times,
            self.cells * times,
            self.memory_bits * times,
            self.rams * round(times),
        )

    __rmul__ = __mul__


def logic_cost(number: float) -> Cost:
    """The cost of tables only."""
    return Cost(logic=number)


def sums_cost(*widths: int) -> Cost:
    """The cost of sums, differences and comparisons of the given widths; short ones become tables."""
    return Cost(carries=sum((width + 1) // 2 for width in widths if width >= _SHORTEST_SUM))


_SHORTEST_SUM = 5


def multiplications_cost(number: float, *widths: int) -> Cost:
    """The cost of multipliers only. widths: of the factors; wider ones than a multiplier's take several."""
    return Cost(multipliers=number * prod(max(1, -(-(width - 1) // _MULTIPLIER)) for width in widths))


#: Bits of a multiplier's factors; one bit more becomes tables.
_MULTIPLIER = 18


#: Cells of distributed memory that one block memory must replace to be used.
_MOST_CELLS = 25
#: Tables that a read-only memory may take for each block memory that it would otherwise need.
_MOST_TABLES = 160
_BLOCK_WIDTH, _BLOCK_BITS, _BLOCK_DEPTH = 36, 18432, 2048
#: The share of tables that remains after synthesis has merged common parts.
_SHARED = 0.6
#: The number of words that one table can select from.
_MOST_CHOSEN = 128


def memory_cost(width: int, depth: int) -> Cost:
    """`ram`; registers if it has at most two words."""
    banks, rams = -(-depth // 16), ((depth, width),) if width else ()
    kept = Cost(memory_bits=width * depth, rams=rams)
    if depth <= 2:
        return kept + logic_cost(width * (depth - 1))
    cells = -(-width // 4) * banks
    if cells > _MOST_CELLS * _count_blocks(width, depth):
        return kept + logic_cost(0.9 * width + 16)
    return kept + Cost(logic=0.75 * width * (banks - 1), cells=cells)


def rom_cost(width: int, depth: int, tables: int | None = None) -> Cost:
    """A read-only memory. tables: the number that its words take, if known; else as many as random words take."""
    if not stands_in_tables(width, depth):
        deep = -(-depth // _BLOCK_DEPTH)
        return Cost(logic=(0.7 * width + 3) * deep if deep > 1 else 0, memory_bits=width * depth)
    random = width * max(1, depth / 16) if depth > 4 else width / 2
    chosen = 2 * width if depth > _MOST_CHOSEN else 0
    return Cost(logic=_SHARED * (random if tables is None else tables) + chosen, memory_bits=width * depth)


def stands_in_tables(width: int, depth: int) -> bool:
    """Is a read-only memory made of tables rather than block memory?"""
    return width * depth <= 16 * _MOST_TABLES * _count_blocks(width, depth)


def _count_blocks(width: int, depth: int) -> int:
    return max(-(-width // _BLOCK_WIDTH), -(-width * depth // _BLOCK_BITS))


def skid_buffer(width: int) -> Cost:
    """Two beats of registers."""
    return logic_cost(width + 4)


def fifo_cost(width: int, depth: int) -> Cost:
    """`fifo` of `depth` beats; a beat goes round distributed memory if that is empty, none goes round block memory."""
    address, count = clog2(depth), clog2(depth + 1)
    passed = 0 if depth > MOST_DISTRIBUTED else width
    memory = memory_cost(width, depth)
    if depth <= MOST_DISTRIBUTED:
        memory = replace(memory, rams=())
    elif not memory.cells:
        memory = replace(memory, logic=6)
    return memory + logic_cost(passed + 6 + 4 * address) + sums_cost(count, count, address, address)


def repeat_buffer(width: int, length: int, passes: int, depth: int | None = None) -> Cost:
    """Vectors of `length` beats, each of them repeated several times."""
    depth = depth or 2 * length
    address, count, index = clog2(depth), clog2(depth + 1), clog2(length)
    control = logic_cost(12 + 5.5 * address) + sums_cost(address, address, count, count, count, index, clog2(passes))
    return memory_cost(width, depth) + control


def bank_buffer(width: int, rows: int, beats: int, banks: int) -> Cost:
    """Two matrices of rows, several of which are read at once."""
    depth = 2 * -(-rows // banks) * beats
    return (
        memory_cost(width, depth) * banks
        + logic_cost(14 + 3 * clog2(depth) + 3 * (banks - 1))
        + sums_cost(clog2(depth))
    )


def line_taps(width: int, length: int, number: int, dilation: int) -> Cost:
    """Lines of `length` beats, several of them at once; a line of one beat is in registers."""
    kept, address = (number - 1) * dilation * width, clog2(length)
    if length == 1:
        return logic_cost(10)
    return memory_cost(kept, length) + logic_cost(10 + 5 * address) + sums_cost(address, address + 1)


def of_fifo(given: Given) -> Cost:
    """`fifo`"""
    return fifo_cost(given["DATA_WIDTH"], given["DEPTH"])


def of_skid_buffer(given: Given) -> Cost:
    """`skid_buffer`"""
    return skid_buffer(given["DATA_WIDTH"])


def of_swap_buffer(given: Given) -> Cost:
    """`swap_buffer`: to transpose several elements a beat, it must select among them."""
    bits, lanes = given["DATA_IN_0_PRECISION_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    rows, banks = given["ROWS"], given["DATA_OUT_0_PARALLELISM_DIM_0"] if given["TRANSPOSE"] else 1
    words = given["COLUMNS"] // lanes if given["TRANSPOSE"] else given["COLUMNS"] * given["BEATS"]
    address = clog2(rows // banks * words)
    chosen = logic_cost(bits * banks * (lanes - 1)) if given["TRANSPOSE"] else Cost()
    return (
        bank_buffer(bits * lanes, rows, words, banks)
        + chosen
        + logic_cost(15 + 4 * address)
        + sums_cost(address, address)
    )


def of_repeat_buffer(given: Given) -> Cost:
    """`repeat_buffer`"""
    return repeat_buffer(given["DATA_WIDTH"], given["LENGTH"], given["COUNT"], given.get("DEPTH"))


def of_stream_gather(given: Given) -> Cost:
    """`stream_gather`: the block, and the position of each beat in it."""
    depth, beats = given["DEPTH"], given["COUNT"]
    places = rom_cost(max(1, clog2(depth)), beats, given.get("FILE"))
    return (
        bank_buffer(given["DATA_WIDTH"], depth, 1, 1) + places + logic_cost(3 * clog2(beats)) + sums_cost(clog2(beats))
    )


def of_embedding(given: Given) -> Cost:
    """`embedding`"""
    lanes = given["DATA_OUT_0_PARALLELISM_DIM_0"]
    words = given["NUM_EMBEDDINGS"] * given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // lanes
    return (
        rom_cost(given["DATA_OUT_0_PRECISION_0"] * lanes, words, given.get("FILE"))
        + logic_cost(2 * clog2(words))
        + sums_cost(clog2(words))
    )


def of_constant_stream(given: Given) -> Cost:
    """`constant_stream`"""
    address = clog2(given["DEPTH"])
    return rom_cost(given["DATA_WIDTH"], given["DEPTH"], given.get("FILE")) + logic_cost(address) + sums_cost(address)


def of_fixed_table(given: Given) -> Cost:
    """`fixed_table`: one table for each lane."""
    one = rom_cost(given["DATA_OUT_0_PRECISION_0"], 2 ** given["DATA_IN_0_PRECISION_0"], given.get("FILE"))
    return one * given["DATA_IN_0_PARALLELISM_DIM_0"] + logic_cost(1)


# Components that split and join streams.


def counter_cost(steps: int) -> Cost:
    """`loop_counter`"""
    return logic_cost(1.7 * clog2(steps)) + sums_cost(clog2(steps))


def of_fork(given: Given) -> Cost:
    """`stream_fork`"""
    return logic_cost(4 * given["COUNT"] - 3)


def of_concat(given: Given) -> Cost:
    """`stream_concat`: it selects one of two beats."""
    return (
        logic_cost(given["DATA_WIDTH"] + 3)
        + counter_cost(given["DATA_IN_0_BEATS"])
        + counter_cost(given["DATA_IN_1_BEATS"])
    )


def of_split(given: Given) -> Cost:
    """`stream_split`"""
    return logic_cost(3) + counter_cost(given["DATA_OUT_0_BEATS"]) + counter_cost(given["DATA_OUT_1_BEATS"])


def of_split_in_turn(given: Given) -> Cost:
    """`round_robin_split`"""
    return logic_cost(1.7 * given["COUNT"] + 1) + counter_cost(given["BEATS"])


def of_merge_in_turn(given: Given) -> Cost:
    """`round_robin_merge`: it selects one of the beats."""
    count = given["COUNT"]
    return logic_cost((0.7 * count - 0.3) * (given["DATA_WIDTH"] + 1) + count) + counter_cost(given["BEATS"])


def of_width_converter(given: Given) -> Cost:
    """`width_converter`: it shifts wide beats out, which costs more tables the more narrow beats they contain."""
    before, after = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    common, bits = gcd(before, after), given["DATA_IN_0_PRECISION_0"]
    split, gather = before // common, after // common
    narrower = logic_cost(_OF_SHIFTED.get(clog2(split + 1), 1) * before * bits + 5) if split > 1 else Cost()
    wider = logic_cost(1 + 2.2 * clog2(gather + 1)) if gather > 1 else Cost()
    return narrower + wider


#: Tables for each shifted bit by the width of the counter that selects: Yosys makes wide ones of short counters.
_OF_SHIFTED = {2: 1.2, 3: 2, 4: 4}
