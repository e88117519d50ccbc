"""Which processes each component of `rtl/` is, from the parameters of an instance: one row a component."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd

from mase_server.hardware.timing import products, rows, streams, windows
from mase_server.hardware.timing.parameters import Given, NormWidths, clog2
from mase_server.hardware.timing.times import Link, Process, Queue, Times
from mase_server.hardware.timing.windows import Images


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance stands: the streams that it reads and gives, and the samples that are sent so far."""

    queue: Queue
    links: tuple[Link, ...]
    outs: tuple[Link, ...]
    samples: Times

    def link(self) -> Link:
        """A stream inside."""
        return Link(self.queue)

    def times(self) -> Times:
        """Something that happens inside."""
        return Times(self.queue)


Timing = Callable[[Given, Place], Iterable[Process]]


def _fifo(depth: Callable[[Given], int]) -> Timing:
    def timing(given: Given, place: Place) -> Iterable[Process]:
        yield streams.fifo(place.links[0], place.outs[0], depth(given))

    return timing


def _pipeline(stages: int) -> Timing:
    def timing(given: Given, place: Place) -> Iterable[Process]:
        return streams.pipeline(place.links[0], place.outs[0], stages)

    return timing


def _elementwise(given: Given, place: Place) -> Iterable[Process]:
    both = place.link()
    yield streams.joined(place.links, both)
    yield from streams.pipeline(both, place.outs[0], 2)


def _fork(given: Given, place: Place) -> Iterable[Process]:
    yield streams.fork(place.links[0], place.outs)


def _concat(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_IN_0_BEATS"], given["DATA_IN_1_BEATS"]
    yield streams.concat(place.links, beats, place.outs[0])


def _split(given: Given, place: Place) -> Iterable[Process]:
    yield streams.split(place.links[0], place.outs, (given["DATA_OUT_0_BEATS"], given["DATA_OUT_1_BEATS"]))


def _width(given: Given, place: Place) -> Iterable[Process]:
    before, after = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    common = gcd(before, after)
    source = place.links[0]
    if before > common:
        between = place.link() if after > common else place.outs[0]
        yield streams.narrower(source, between, before // common)
        source = between
    if after > common:
        yield streams.wider(source, place.outs[0], after // common)


def _constant(given: Given, place: Place) -> Iterable[Process]:
    yield streams.source(place.outs[0], given["DEPTH"], place.samples, first=1)


def _embedding(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    yield streams.rows_of_table(place.links[0], place.outs[0], beats)


def _linear(given: Given, place: Place) -> Iterable[Process]:
    lanes, bursts = given["DATA_IN_0_PARALLELISM_DIM_0"], place.link()
    length = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // lanes
    passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    if passes > 1:
        yield from products.repeats(place.links[0], bursts, length, passes)
    else:
        yield products.once(place.links[0], bursts, length)
    yield products.dot_products(bursts, place.outs[0], length, clog2(lanes))


def _matmul(given: Given, place: Place) -> Iterable[Process]:
    lanes, columns = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_TENSOR_SIZE_DIM_0"]
    length, passes = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // lanes, columns // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    rows_ready, bursts, ends, done = place.link(), place.link(), place.times(), place.times()
    yield from products.repeats(place.links[0], rows_ready, length, passes)
    yield products.banks(place.links[1], ends, done, columns * length)
    sizes = length, given["DATA_IN_0_TENSOR_SIZE_DIM_1"] * passes
    yield products.gated(rows_ready, bursts, ends, done, sizes)
    yield products.dot_products(bursts, place.outs[0], length, clog2(lanes))


def _repeat(given: Given, place: Place) -> Iterable[Process]:
    length, passes = given["LENGTH"], given["COUNT"]
    freed, depth = place.times(), given.get("DEPTH", 2 * length)
    yield streams.ring(place.links[0], freed, depth)
    yield products.beat_by_beat(place.links[0], place.outs[0], freed, length, passes)


def _gather(given: Given, place: Place) -> Iterable[Process]:
    ends, done = place.times(), place.times()
    yield products.banks(place.links[0], ends, done, given["DEPTH"])
    yield products.swapped(place.outs[0], ends, done, given["COUNT"])


def _swap(given: Given, place: Place) -> Iterable[Process]:
    ends, done = place.times(), place.times()
    words = given["ROWS"] * given["COLUMNS"] * given["BEATS"]
    before, after = given["DATA_IN_0_PARALLELISM_DIM_0"], given["DATA_OUT_0_PARALLELISM_DIM_0"]
    yield products.banks(place.links[0], ends, done, words // before if given["TRANSPOSE"] else words)
    yield products.swapped(place.outs[0], ends, done, words // after if given["TRANSPOSE"] else words)


def _padded(images: Images, place: Place) -> tuple[Link, list[Process]]:
    """The pixels with their border."""
    if not any(images.border):
        return place.links[0], []
    framed = place.link()
    return framed, [windows.padded(place.links[0], framed, images)]


def _conv2d(given: Given, place: Place) -> Iterable[Process]:
    groups, taps = given["GROUPS"], (given.get("WEIGHT_PARALLELISM_DIM_1", 1), given.get("WEIGHT_PARALLELISM_DIM_0", 1))
    passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // groups // given["DATA_OUT_0_PARALLELISM_DIM_0"]
    images, bursts = Images.of(given, groups=groups, passes=passes), place.link()
    source, processes = _padded(images, place)
    yield from processes
    if taps == (1, 1):
        ended = place.times()
        yield windows.pixels(source, ended, images)
        yield windows.bursts_of_windows(source, bursts, ended, images)
    else:
        yield from _at_once(images, taps, source, bursts, place)
    kernel = images.kernel[0] // taps[0] * (images.kernel[1] // taps[1])
    lanes = given["DATA_IN_0_PARALLELISM_DIM_0"] * taps[0] * taps[1]
    yield products.dot_products(bursts, place.outs[0], kernel * images.beats // groups, clog2(lanes))


def _at_once(images: Images, taps: tuple[int, int], source: Link, bursts: Link, place: Place) -> Iterable[Process]:
    """`parallel_window`: columns of windows, or whole ones."""
    columns, waiting, (_, wide) = place.link(), place.link(), images.reach
    window = images.kernel[0], images.stride[0], images.dilation[0]
    yield windows.taps(source, columns, images.columns * images.beats, images.rows, window)
    yield streams.fifo(columns, waiting, images.spare * images.beats + 2)
    if taps[1] == 1:
        line, ended = images.line, place.times()
        yield windows.pixels(waiting, ended, line)
        yield windows.bursts_of_windows(waiting, bursts, ended, line)
        return
    whole, group = place.link(), images.beats // images.groups
    window = images.kernel[1], images.stride[1], images.dilation[1]
    yield windows.taps(waiting, whole, images.beats, images.columns, window)
    ahead = (wide - 1) * images.beats // images.passes if images.passes > 1 else 0
    yield from products.repeats(whole, bursts, group, images.passes, 2 * group + ahead)


def _max_pool(given: Given, place: Place) -> Iterable[Process]:
    images = Images.of(given)
    source, processes = _padded(images, place)
    yield from processes
    yield from _reduced(images, source, place.outs[0], place)


def _average_pool(given: Given, place: Place) -> Iterable[Process]:
    images, sums = Images.of(given), place.link()
    source, processes = _padded(images, place)
    yield from processes
    if images.kernel == (images.rows, images.columns):
        yield windows.reduced_image(source, sums, images)
    else:
        yield from _reduced(images, source, sums, place)
    yield from streams.pipeline(sums, place.outs[0], 3)


def _border(given: Given, place: Place) -> Iterable[Process]:
    yield windows.padded(place.links[0], place.outs[0], Images.bordered(given))


def _reduced(images: Images, source: Link, out: Link, place: Place) -> Iterable[Process]:
    ended, kept = place.times(), place.link()
    yield windows.pixels(source, ended, images)
    yield windows.reduced_windows(source, kept, ended, images)
    # The registers stand before what compares or sums; that makes no difference here.
    yield streams.fifo(kept, out, 2)


def _reduce(given: Given, place: Place) -> Iterable[Process]:
    yield windows.reduced_image(place.links[0], place.outs[0], Images(given["COUNT"], 1, given["BEATS"]))


def _statistic(link: Link, beats: int, place: Place) -> tuple[Link, list[Process]]:
    out = place.link()
    return out, [rows.filling(link, out, beats), rows.numbered(link, out, beats)]


def _softmax(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    largest, processes = _statistic(place.links[0], beats, place)
    yield from processes
    power = place.link()
    yield streams.register(largest, power)
    summed, processes = _statistic(power, beats, place)
    yield from processes
    yield from streams.pipeline(summed, place.outs[0], given["DATA_OUT_0_PRECISION_1"] + 2)


def _norm(given: Given, place: Place) -> Iterable[Process]:
    beats = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
    widths, source = NormWidths.of(given), place.links[0]
    if given["MEAN"]:
        row, processes = _statistic(source, beats, place)
        yield from processes
        source = place.link()
        yield streams.register(row, source)
    rooted = place.link()
    yield rows.rooted(source, rooted, beats, widths.root)
    yield from streams.pipeline(rooted, place.outs[0], widths.quotient + 3)


#: By the name of the module.
TIMINGS: Mapping[str, Timing] = {
    "constant_stream": _constant,
    "embedding": _embedding,
    "fifo": _fifo(lambda given: given["DEPTH"]),
    "fixed_add": _elementwise,
    "fixed_average_pool2d": _average_pool,
    "fixed_cast": _pipeline(1),
    "fixed_conv2d": _conv2d,
    "fixed_linear": _linear,
    "fixed_matmul": _matmul,
    "fixed_max_pool2d": _max_pool,
    "fixed_multiply": _elementwise,
    "fixed_norm": _norm,
    "fixed_mean": _pipeline(3),
    "fixed_reduce": _reduce,
    "fixed_softmax": _softmax,
    "fixed_table": _pipeline(1),
    "image_padding": _border,
    "repeat_buffer": _repeat,
    "skid_buffer": _fifo(lambda given: 2),
    "stream_concat": _concat,
    "stream_fork": _fork,
    "stream_gather": _gather,
    "stream_split": _split,
    "swap_buffer": _swap,
    "width_converter": _width,
}
