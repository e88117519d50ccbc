"""The processes of each component of `rtl/`, from the parameters of an instance: one row for each component."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd, prod

from mase_server.hardware.memories import place_regions
from mase_server.hardware.networks import count_digits
from mase_server.hardware.timing import products, streams, windows
from mase_server.hardware.timing.products import Engine, Reader
from mase_server.hardware.timing.streams import offer_beats, take_all_beats
from mase_server.hardware.timing.times import (
    Given,
    Link,
    NormWidths,
    Process,
    Queue,
    Times,
    beat_of_serial_mean,
    clog2,
    run_processes,
)
from mase_server.hardware.timing.windows import Images
from mase_server.hardware.verilog import Instance, Netlist, read_parameters


@dataclass(frozen=True, slots=True)
class Place:
    """The streams that an instance reads and gives, the samples that have been sent so far, and the engine that it
    shares, one of its own for an instance without; turn: its number among those that share it."""

    queue: Queue
    links: tuple[Link, ...]
    outs: tuple[Link, ...]
    samples: Times
    engine: Engine
    turn: int

    def link(self) -> Link:
        """A stream inside the instance."""
        return Link(self.queue)

    def times(self) -> Times:
        """The times of an event inside the instance."""
        return Times(self.queue)


Timing = Callable[[Given, Place], Iterable[Process]]


def _fifo_timing(depth: Callable[[Given], int]) -> Timing:
    def timing(given: Given, place: Place) -> Iterable[Process]:
        yield streams.fifo_process(place.links[0], place.outs[0], depth(given))

    return timing


def _pipeline_timing(stages: int) -> Timing:
    def timing(given: Given, place: Place) -> Iterable[Process]:
        return streams.pipeline_processes(place.links[0], place.outs[0], stages)

    return timing


def _elementwise_timing(stages: int) -> Timing:
    def timing(given: Given, place: Place) -> Iterable[Process]:
        both = place.link()
        yield streams.join_beats(place.links, both)
        yield from streams.pipeline_processes(both, place.outs[0], stages)

    return timing


def _multiply_timing(given: Given, place: Place) -> Iterable[Process]:
    if not given["SERIAL"]:
        return _elementwise_timing(3)(given, place)
    both = place.link()
    return streams.join_beats(place.links, both), *_serial_processes(both, given["DATA_IN_1_PRECISION_0"] + 1, place)


def _fork_timing(given: Given, place: Place) -> Iterable[Process]:
    yield streams.fork_beats(place.links[0], place.outs)


def _concat_timing(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_IN_0_BEATS"], given["DATA_IN_1_BEATS"]
    yield streams.concat_beats(place.links, beats, place.outs[0])


def _split_timing(given: Given, place: Place) -> Iterable[Process]:
    yield streams.split_beats(place.links[0], place.outs, (given["DATA_OUT_0_BEATS"], given["DATA_OUT_1_BEATS"]))


def _split_in_turn_timing(given: Given, place: Place) -> Iterable[Process]:
    yield streams.split_beats(place.links[0], place.outs, (given["BEATS"],) * given["COUNT"])


def _merge_in_turn_timing(given: Given, place: Place) -> Iterable[Process]:
    yield streams.concat_beats(place.links, (given["BEATS"],) * given["COUNT"], place.outs[0])


def _width_converter_timing(given: Given, place: Place) -> Iterable[Process]:
    before, after = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    return _convert_width(place.links[0], place.outs[0], before, after, place)


def _convert_width(source: Link, out: Link, before: int, after: int, place: Place) -> Iterable[Process]:
    """A stream of beats of so many elements as beats of others. They differ."""
    common = gcd(before, after)
    if before > common:
        between = place.link() if after > common else out
        yield streams.narrow_beats(source, between, before // common)
        source = between
    if after > common:
        yield streams.widen_beats(source, out, after // common)


def _constant_timing(given: Given, place: Place) -> Iterable[Process]:
    yield streams.offer_beats(place.outs[0], given["DEPTH"], place.samples, first=1)


def _embedding_timing(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    yield streams.rows_of_table(place.links[0], place.outs[0], beats)


def _linear_timing(given: Given, place: Place) -> Iterable[Process]:
    sizes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_OUT_0_TENSOR_SIZE_DIM_0"]
    lanes = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    return _linear_processes(place.links[0], place.outs[0], sizes, lanes, place)


def _constant_linear_timing(given: Given, place: Place) -> Iterable[Process]:
    digits = count_digits(given["DATA_IN_0_PRECISION_0"], bool(given["DATA_IN_0_SIGNED"]), given["DIGIT_WIDTH"])
    source, stages = place.links[0], given["SUM_LATENCY"] + 2
    if digits > 1:
        source = place.link()
        yield streams.register_process(place.links[0], source, digits)
    yield from streams.pipeline_processes(source, place.outs[0], stages)


def _mxint_linear_timing(given: Given, place: Place) -> Iterable[Process]:
    sizes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_OUT_0_TENSOR_SIZE_DIM_0"]
    lanes, mantissas = (given["DATA_IN_0_PARALLELISM_DIM_0"], given[_OUT]), place.link()
    yield from streams.pipeline_processes(place.links[0], mantissas, 2)
    yield from _linear_processes(mantissas, place.outs[0], sizes, lanes, place, aligned=1)


def _linear_processes(
    source: Link, out: Link, sizes: tuple[int, int], lanes: tuple[int, int], place: Place, aligned: int = 0
) -> Iterable[Process]:
    """`fixed_linear`. sizes, lanes: of a vector and of its results.  aligned: registers for exponents."""
    length, passes, bursts = sizes[0] // lanes[0], sizes[1] // lanes[1], place.link()
    if passes > 1:
        yield from products.repeat_vectors(source, bursts, length, passes)
    else:
        yield products.read_once(source, bursts, length)
    yield products.dot_products(bursts, out, length, clog2(lanes[0]) + aligned)


def _recurrent_timing(given: Given, place: Place) -> Iterable[Process]:
    """A linear layer of the last result, with an engine or without, gates that take turns, and the way back."""
    units, lanes, gates = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"], given[_OUT], 4 if given["LSTM"] else 3
    ins, outs = given["HIDDEN_PARALLELISM_DIM_0"], given["GATES_PARALLELISM_DIM_0"]
    vector, some, both, turns, results, back = (place.link() for _ in range(6))
    kept = some if outs == gates * lanes else place.link()
    hidden = back if ins == lanes else place.link()
    yield products.feed_back(back, vector, units // ins)
    if "ENGINE_SUM_WIDTH" in given:
        wide, layer = place.link(), {**given, "DATA_OUT_0_TENSOR_SIZE_DIM_0": gates * units, _OUT: outs}
        yield streams.widen_beats(vector, wide, given["ENGINE_PARALLELISM_DIM_0"] // ins, units // ins)
        yield from _shared_timing(wide, layer, units, 1, replace(place, outs=(some,)))
    else:
        yield from _linear_processes(vector, some, (units, gates * units), (ins, outs), place)
    yield from () if kept is some else _convert_width(some, kept, outs, gates * lanes, place)
    yield streams.join_beats((place.links[0], kept), both)
    if given["SERIAL"]:
        yield streams.beats_one_by_one(both, results, gates - 1, 14 + 2 * (given["DATA_OUT_0_PRECISION_0"] + 1))
    else:
        yield streams.delay_beats(both, turns, gates - 1)
        yield from streams.pipeline_processes(turns, results, 14)
    yield streams.fork_beats(results, (hidden, place.outs[0]))
    yield from () if hidden is back else _convert_width(hidden, back, lanes, ins, place)


def _shared_timing(
    wide: Link, given: Given, length: int, groups: int, place: Place, matrices: Link | None = None
) -> Iterable[Process]:
    """The results of vectors in beats of the engine; length: elements of a vector.  matrices: the rows of the matrices
    that a matrix of vectors is multiplied with, in such beats."""
    lanes, outs = given["ENGINE_PARALLELISM_DIM_0"], given["ENGINE_PARALLELISM_DIM_1"]
    results, beats, lanes_out = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // groups, -(-length // lanes), given[_OUT]
    bursts, turns, given_back, passes = place.link(), place.link(), place.link(), -(-results // outs)
    place.engine.turns[place.turn] = turns, beats
    yield from products.repeat_whole_vectors(wide, bursts, beats, passes)
    if matrices is not None:
        ends, done, ready = place.times(), place.times(), bursts
        bursts, sizes = place.link(), (beats, given["DATA_IN_0_TENSOR_SIZE_DIM_1"] * passes)
        yield products.fill_banks(matrices, ends, done, results * beats)
        yield products.gate_bursts(ready, bursts, ends, done, sizes)
    yield products.take_turns(bursts, turns, given_back, beats, clog2(lanes))
    yield streams.narrow_beats(given_back, place.outs[0], outs // lanes_out, results // lanes_out)


_OUT = "DATA_OUT_0_PARALLELISM_DIM_0"


def _shared_vectors_timing(given: Given, place: Place) -> Iterable[Process]:
    """`shared_linear`, and with a second stream `shared_matmul`."""
    length, lanes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["DATA_IN_0_PARALLELISM_DIM_0"]
    ratio, wide = given["ENGINE_PARALLELISM_DIM_0"] // lanes, [place.link() for _ in place.links]
    for link, widened in zip(place.links, wide, strict=True):
        yield streams.widen_beats(link, widened, ratio, length // lanes)
    yield from _shared_timing(wide[0], given, length, 1, place, *wide[1:])


def _turns_timing(given: Given, place: Place) -> Iterable[Process]:
    """Its layers want it in turn (`Engine`, `Reader`)."""
    return ()


def _streamed_timing(vectors: Link, given: Given, length: int, place: Place) -> Iterable[Process]:
    """Vectors of `length` beats with weights from outside, the second stream."""
    rows, lanes, outs = given["ROWS"], given["DATA_IN_0_PARALLELISM_DIM_0"], given[_OUT]
    passes, bits = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // outs, lanes * outs * given["WEIGHT_PRECISION_0"]
    words, repeated, both, width = place.link(), place.link(), place.link(), given["BUS_WIDTH"]
    if bits <= width:
        yield streams.narrow_beats(place.links[1], words, width // bits, length * passes)
    else:
        yield streams.widen_beats(place.links[1], words, -(-bits // width))
    if rows > 1:
        tile = place.link()
        yield from _repeated(words, tile, length, rows, place)
        words = tile
    if passes > 1:
        yield from _repeated(vectors, repeated, rows * length, passes, place)
    else:
        yield streams.fifo_process(vectors, repeated, 2)
    yield streams.join_beats((repeated, words), both)
    if rows == 1 or passes == 1:
        yield products.dot_products_of_beats(both, place.outs[0], length, clog2(lanes))
        return
    results, ends, done = place.link(), place.times(), place.times()
    yield products.dot_products_of_beats(both, results, length, clog2(lanes))
    yield products.fill_banks(results, ends, done, rows * passes)
    yield products.give_swapped(place.outs[0], ends, done, rows * passes)


def _repeated(link: Link, out: Link, length: int, passes: int, place: Place, depth: int = 0) -> Iterable[Process]:
    """`repeat_buffer`."""
    freed = place.times()
    yield streams.fill_ring(link, freed, depth or 2 * length)
    yield products.beat_by_beat(link, out, freed, length, passes)


def _streamed_linear_timing(given: Given, place: Place) -> Iterable[Process]:
    length = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    return _streamed_timing(place.links[0], given, length, place)


def _streamed_conv2d_timing(given: Given, place: Place) -> Iterable[Process]:
    images, ended, vectors = Images.of(given), place.times(), place.link()
    source, processes = _add_padding(images, place)
    yield from processes
    yield windows.fill_pixel_ring(source, ended, images)
    yield windows.beats_of_windows(source, vectors, ended, images)
    yield from _streamed_timing(vectors, given, len(images.places), place)


def _matmul_timing(given: Given, place: Place) -> Iterable[Process]:
    lanes, columns = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_TENSOR_SIZE_DIM_0"]
    length, passes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // lanes, columns // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    rows_ready, bursts, ends, done = place.link(), place.link(), place.times(), place.times()
    yield from products.repeat_vectors(place.links[0], rows_ready, length, passes)
    yield products.fill_banks(place.links[1], ends, done, columns * length)
    sizes = length, given["DATA_IN_0_TENSOR_SIZE_DIM_1"] * passes
    yield products.gate_bursts(rows_ready, bursts, ends, done, sizes)
    yield products.dot_products(bursts, place.outs[0], length, clog2(lanes))


def _repeat_buffer_timing(given: Given, place: Place) -> Iterable[Process]:
    return _repeated(place.links[0], place.outs[0], given["LENGTH"], given["COUNT"], place, given.get("DEPTH", 0))


def _gather_timing(given: Given, place: Place) -> Iterable[Process]:
    ends, done = place.times(), place.times()
    yield products.fill_banks(place.links[0], ends, done, given["DEPTH"])
    yield products.give_swapped(place.outs[0], ends, done, given["COUNT"])


def _swap_buffer_timing(given: Given, place: Place) -> Iterable[Process]:
    ends, done = place.times(), place.times()
    words = given["ROWS"] * given["COLUMNS"] * given["BEATS"]
    before, after = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    yield products.fill_banks(place.links[0], ends, done, words // before if given["TRANSPOSE"] else words)
    yield products.give_swapped(place.outs[0], ends, done, words // after if given["TRANSPOSE"] else words)


def _add_padding(images: Images, place: Place) -> tuple[Link, list[Process]]:
    """The pixels with their border."""
    if not any(images.border):
        return place.links[0], []
    framed = place.link()
    return framed, [windows.pad_pixels(place.links[0], framed, images)]


def _conv2d_timing(given: Given, place: Place) -> Iterable[Process]:
    taps = given.get("WEIGHT_PARALLELISM_DIM_1", 1), given.get("WEIGHT_PARALLELISM_DIM_0", 1)
    images, bursts = Images.convolved(given), place.link()
    source, processes = _add_padding(images, place)
    yield from processes
    if taps == (1, 1):
        ended = place.times()
        yield windows.fill_pixel_ring(source, ended, images)
        yield windows.bursts_of_windows(source, bursts, ended, images)
    else:
        yield from _at_once(images, taps, source, bursts, place)
    pieces, kernel = images.pieces(taps), images.kernel[0] // taps[0] * (images.kernel[1] // taps[1])
    lanes = given["DATA_IN_0_PARALLELISM_DIM_0"] * images.groups // given["GROUPS"] * taps[0] * taps[1]
    length = kernel * images.beats // images.groups
    if pieces == 1:
        yield products.dot_products(bursts, place.outs[0], length, clog2(lanes))
        return
    beats = place.link()
    yield streams.narrow_beats(bursts, beats, pieces)
    yield products.dot_products_of_beats(beats, place.outs[0], length, clog2(lanes))


def _shared_conv2d_timing(given: Given, place: Place) -> Iterable[Process]:
    groups, ended, wide = given["GROUPS"], place.times(), place.link()
    images = Images.of(given, groups=groups)
    source, processes = _add_padding(images, place)
    yield from processes
    yield windows.fill_pixel_ring(source, ended, images)
    ratio = given["ENGINE_PARALLELISM_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    yield windows.vectors_of_windows(source, wide, ended, images, ratio)
    length = images.kernel[0] * images.kernel[1] * given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // groups
    yield from _shared_timing(wide, given, length, groups, place)


def _at_once(images: Images, taps: tuple[int, int], source: Link, bursts: Link, place: Place) -> Iterable[Process]:
    """`parallel_window`: columns of windows, or whole ones; beat by beat, if they are taken in pieces."""
    columns, waiting, (_, wide) = place.link(), place.link(), images.reach
    in_pieces = images.pieces(taps) > 1
    window = images.kernel[0], images.stride[0], images.dilation[0]
    yield windows.give_taps(source, columns, images.columns * images.beats, images.rows, window)
    yield streams.fifo_process(columns, waiting, images.spare * images.beats + 2)
    if taps[1] == 1:
        line, ended = images.line, place.times()
        yield windows.fill_pixel_ring(waiting, ended, line)
        yield (windows.beats_of_windows if in_pieces else windows.bursts_of_windows)(waiting, bursts, ended, line)
        return
    whole, group = place.link(), images.beats // images.groups
    window = images.kernel[1], images.stride[1], images.dilation[1]
    yield windows.give_taps(waiting, whole, images.beats, images.columns, window)
    ahead = (wide - 1) * images.beats // images.passes if images.passes > 1 else 0
    if in_pieces:
        yield from _repeated(whole, bursts, group, images.passes, place, 2 * group + ahead)
    else:
        yield from products.repeat_vectors(whole, bursts, group, images.passes, 2 * group + ahead)


def _max_pool(given: Given, place: Place) -> Iterable[Process]:
    images = Images.of(given)
    source, processes = _add_padding(images, place)
    yield from processes
    yield from _reduced_window_processes(images, source, place.outs[0], place)


def _average_pool(given: Given, place: Place) -> Iterable[Process]:
    images, sums = Images.of(given), place.link()
    source, processes = _add_padding(images, place)
    yield from processes
    if images.kernel == (images.rows, images.columns):
        yield windows.reduced_image(source, sums, images)
    else:
        yield from _reduced_window_processes(images, source, sums, place)
    count = prod(images.kernel)
    sum_width = given["DATA_IN_0_PRECISION_0"] + clog2(count)
    yield from _mean_processes(given, sums, sum_width, count, images.beats, place)


def _mean_timing(given: Given, place: Place) -> Iterable[Process]:
    width, divisor = given["DATA_IN_0_PRECISION_0"], given["DIVISOR"]
    return _mean_processes(given, place.links[0], width, divisor, given["WAITING"], place)


def _mean_processes(
    given: Given, sums: Link, width: int, divisor: int, waiting: int, place: Place
) -> Iterable[Process]:
    """`fixed_mean`. width: bits of the sums.  waiting: beats of them that may wait."""
    if not given["SERIAL"] or divisor & (divisor - 1) == 0:
        yield from streams.pipeline_processes(sums, place.outs[0], 4)
        return
    shift, turns = given["DATA_OUT_0_PRECISION_1"] - given["DATA_IN_0_PRECISION_1"], place.link()
    yield streams.fifo_process(sums, turns, waiting)
    yield from _serial_processes(turns, beat_of_serial_mean(width, shift, divisor), place)


def _serial_processes(source: Link, beat: int, place: Place) -> Iterable[Process]:
    """Products bit by bit, each beat in so many cycles, and two registers behind them."""
    multiplied = place.link()
    yield streams.register_process(source, multiplied, beat)
    yield from streams.pipeline_processes(multiplied, place.outs[0], 2)


def _border_timing(given: Given, place: Place) -> Iterable[Process]:
    yield windows.pad_pixels(place.links[0], place.outs[0], Images.bordered(given))


def _reduced_window_processes(images: Images, source: Link, out: Link, place: Place) -> Iterable[Process]:
    ended, kept, registered = place.times(), place.link(), place.link()
    yield windows.fill_pixel_ring(source, ended, images)
    yield windows.reduced_windows(source, kept, ended, images)
    # The registers are in front of the comparison or sum; that makes no difference here.
    yield streams.register_process(kept, registered)
    yield streams.fifo_process(registered, out, 2)


def _reduce_timing(given: Given, place: Place) -> Iterable[Process]:
    yield windows.reduced_image(place.links[0], place.outs[0], Images(given["COUNT"], 1, given["BEATS"]))


def _top_k_timing(given: Given, place: Place) -> Iterable[Process]:
    moved = place.link()
    yield from streams.pipeline_processes(place.links[0], moved, 3)
    beats = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    yield windows.last_of_rows(moved, place.outs[0], beats)


def _row_statistic_processes(link: Link, beats: int, place: Place) -> tuple[Link, list[Process]]:
    out = place.link()
    return out, [products.pass_rows(link, out, beats), products.number_rows(link, out, beats)]


def _blocks_timing(given: Given, place: Place) -> Iterable[Process]:
    beats = given["BLOCK_SIZE"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    largest, processes = _row_statistic_processes(place.links[0], beats, place)
    yield from processes
    yield from streams.pipeline_processes(largest, place.outs[0], 5)


def _floats_timing(given: Given, place: Place) -> Iterable[Process]:
    source = place.links[0]
    if given["BLOCK_SIZE"]:
        source, processes = _row_statistic_processes(
            source, given["BLOCK_SIZE"] // given["DATA_IN_0_PARALLELISM_DIM_0"], place
        )
        yield from processes
    yield from streams.pipeline_processes(source, place.outs[0], 6)


def _softmax_timing(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    largest, processes = _row_statistic_processes(place.links[0], beats, place)
    yield from processes
    power = place.link()
    yield from streams.pipeline_processes(largest, power, 2)
    summed, processes = _row_statistic_processes(power, beats, place)
    yield from processes
    yield from streams.pipeline_processes(summed, place.outs[0], given["DATA_OUT_0_PRECISION_1"] + 3)


def _norm_timing(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    widths, source = NormWidths.of(given), place.links[0]
    size, serial = given["DATA_IN_0_TENSOR_SIZE_DIM_0"], given["SERIAL"]
    if given["MEAN"]:
        row, processes = _row_statistic_processes(source, beats, place)
        yield from processes
        if serial and size & (size - 1):
            scaled = place.link()
            yield streams.register_process(row, scaled, clog2(size) + 2)
            row = scaled
        source = place.link()
        yield streams.register_process(row, source)
    rooted, divided = place.link(), widths.quotient + 3
    yield products.root_rows(source, rooted, beats, widths.root, given["ROOTS"], widths.centred if serial else 0)
    if serial and given["HAS_WEIGHT"]:
        normal, weighed = place.link(), place.link()
        yield from streams.pipeline_processes(rooted, normal, divided)
        yield streams.register_process(normal, weighed, given["WEIGHT_PRECISION_0"] + 1)
        yield from streams.pipeline_processes(weighed, place.outs[0], 3)
    else:
        yield from streams.pipeline_processes(rooted, place.outs[0], divided + 5)


#: By the name of the module.
TIMINGS: Mapping[str, Timing] = {
    "axi_reader": _turns_timing,
    "constant_linear": _constant_linear_timing,
    "constant_stream": _constant_timing,
    "embedding": _embedding_timing,
    "fifo": _fifo_timing(lambda given: given["DEPTH"]),
    "fixed_add": _elementwise_timing(2),
    "fixed_average_pool2d": _average_pool,
    "fixed_cast": _pipeline_timing(1),
    "fixed_conv2d": _conv2d_timing,
    "fixed_engine": _turns_timing,
    "fixed_linear": _linear_timing,
    "fixed_matmul": _matmul_timing,
    "fixed_max_pool2d": _max_pool,
    "fixed_multiply": _multiply_timing,
    "fixed_norm": _norm_timing,
    "fixed_mean": _mean_timing,
    "fixed_recurrent": _recurrent_timing,
    "fixed_reduce": _reduce_timing,
    "fixed_softmax": _softmax_timing,
    "fixed_table": _pipeline_timing(2),
    "fixed_top_k": _top_k_timing,
    "image_padding": _border_timing,
    "minifloat_cast": _floats_timing,
    "mxint_cast": _blocks_timing,
    "mxint_linear": _mxint_linear_timing,
    "repeat_buffer": _repeat_buffer_timing,
    "round_robin_merge": _merge_in_turn_timing,
    "round_robin_split": _split_in_turn_timing,
    "shared_conv2d": _shared_conv2d_timing,
    "shared_linear": _shared_vectors_timing,
    "shared_matmul": _shared_vectors_timing,
    "shared_recurrent": _recurrent_timing,
    "skid_buffer": _fifo_timing(lambda given: 2),
    "stream_concat": _concat_timing,
    "stream_fork": _fork_timing,
    "stream_gather": _gather_timing,
    "stream_split": _split_timing,
    "streamed_conv2d": _streamed_conv2d_timing,
    "streamed_linear": _streamed_linear_timing,
    "swap_buffer": _swap_buffer_timing,
    "width_converter": _width_converter_timing,
}


# A netlist in time: samples follow each other as fast as they are accepted, and results are taken at once.
#
# Times are simulated, one event for each beat, and agree with Verilator cycle by cycle. Designs of more than 200,000
# beats a sample are followed in groups instead (`estimates.estimating`), within two percent where nothing is shared.

_SAMPLES, _MOST_SAMPLES = 6, 40


@dataclass(slots=True)
class Running:
    """A netlist whose beats move. links: by the expression of their valid wire.

    results: for each output its stream and the beats of a sample.
    """

    links: dict[str, Link] = field(default_factory=dict)
    inputs: list[Link] = field(default_factory=list)
    results: list[tuple[Link, int]] = field(default_factory=list)
    queue: Queue = field(default_factory=deque)
    engines: dict[str, Engine] = field(default_factory=dict)
    reader: Reader | None = None
    samples: Times = field(init=False)

    def __post_init__(self) -> None:
        self.samples = Times(self.queue)

    def send(self, samples: int) -> None:
        """Send `samples` more samples, and let everything move that can."""
        for _ in range(samples):
            self.samples.add(0)
        while True:
            run_processes(self.queue)
            # All that earlier bursts cause is known now, so that the earliest of the next ones is, too.
            ready = [(begin, each) for each in self._shared() if (begin := each.begins()) is not None]
            if not ready:
                return
            min(ready, key=lambda each: each[0])[1].grant()

    def _shared(self) -> Iterator[Engine | Reader]:
        yield from self.engines.values()
        if self.reader is not None:
            yield self.reader

    def ends(self) -> list[int]:
        """The times at which the last beat of each result moved."""
        whole = min(len(link.taken) // beats for link, beats in self.results)
        return [max(link.taken[(sample + 1) * beats - 1] for link, beats in self.results) for sample in range(whole)]

    @property
    def begins(self) -> int:
        """The time at which the first beat entered."""
        return min((link.taken[0] for link in self.inputs if link.taken), default=0)

    def link(self, valid: str) -> Link:
        """The stream with a valid wire."""
        return self.links.setdefault(valid, Link(self.queue))


def prepare_run(made: Netlist, beats_in: Sequence[int], beats_out: Sequence[int]) -> Running:
    """A netlist, ready to run. beats_in, beats_out: of a sample at each input and output."""
    found = Running()
    for tap, beats in zip(made.inputs, beats_in, strict=True):
        found.inputs.append(found.link(tap.valid))
        found.queue.append(offer_beats(found.inputs[-1], beats, found.samples))
    for instance in made.instances:
        found.queue.extend(_processes_of_instance(found, instance))
    if made.regions:
        links = [found.link(f"weights_valid[{index}]") for index in range(len(made.regions))]
        sizes = [beats for _, beats in place_regions(made.regions, made.port)]
        # The memory of simulations counts in parts of 1024.
        found.reader = Reader(links, sizes, round(made.pace * 1024) / 1024)
    for tap in made.dropped:
        found.queue.append(take_all_beats(found.link(tap.valid)))
    for tap, beats in zip(made.outputs, beats_out, strict=True):
        found.results.append((found.link(tap.valid), beats))
        found.queue.append(take_all_beats(found.link(tap.valid)))
    return found


def _processes_of_instance(found: Running, instance: Instance) -> Iterator[Process]:
    numbers = read_parameters(instance)
    links, outs = (tuple(map(found.link, valid_wires(instance, way))) for way in ("in", "out"))
    engine = found.engines.setdefault(instance.ports.get("engine_total", ""), Engine())
    turn = re.search(r"\[(\d+)\]$", instance.ports.get("engine_request", ""))
    place = Place(found.queue, links, outs, found.samples, engine, int(turn[1]) if turn else 0)
    yield from TIMINGS[instance.module](numbers, place)


#: The streams whose handshakes are vectors.
_IN_VECTORS = {("out", each) for each in ("axi_reader", "round_robin_split", "stream_fork")} | {
    ("in", "round_robin_merge")
}


def valid_wires(instance: Instance, way: str) -> list[str]:
    """The valid wires of all streams of an instance, "in" or "out"."""
    ports = sorted(name for name in instance.ports if re.fullmatch(rf"data_{way}_\d+_valid", name))
    found = [instance.ports[name] for name in ports]
    if (way, instance.module) in _IN_VECTORS:
        count = instance.parameters["COUNT"]
        assert isinstance(count, int)
        return [f"{found[0]}[{index}]" for index in range(count)]
    return found


def run_until_steady(found: Running, counted: tuple[int, int], copies: int = 1) -> tuple[float, int] | None:
    """Cycles from one result to the next, once they are constant, and from the first beat in to the last beat of the
    first result. None if nothing moves any more. counted: with engines the samples of a copy that are followed, and
    those of them at either end that do not count.  copies: of the design, whose results may come close together."""
    if any(engine.turns for engine in found.engines.values()):
        # All samples decide who is served first, so all are sent at once. The last ones find engines idle.
        count, edge = counted
        found.send(count * copies)
        ends = found.ends()
        middle = ends[edge * copies : len(ends) - edge * copies : copies]
        whole = len(ends) == len(found.samples)
        return ((middle[-1] - middle[0]) / (len(middle) - 1) / copies, ends[0] - found.begins) if whole else None
    found.send(_SAMPLES * copies)
    while True:
        ends = found.ends()
        if len(ends) < len(found.samples):
            return None
        apart = [after - before for before, after in zip(ends, ends[copies:], strict=False)]
        # A buffer that one sample fills delays those that enter once it is under way: as many as fly at a time.
        latency = ends[0] - found.begins
        flying = copies * max(3, latency // max(1, min(apart)))
        steady = len(apart) >= flying and len(set(apart[-flying:])) == 1
        if steady or len(ends) >= max(_MOST_SAMPLES * copies, 4 * flying):
            later = apart[-1:] if steady else apart[len(apart) // 2 :]
            return sum(later) / len(later) / copies, latency
        found.send(len(found.samples))
