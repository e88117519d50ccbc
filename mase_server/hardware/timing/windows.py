"""The times at which windows of images are ready: borders, rings of pixels, columns of windows at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from mase_server.hardware.timing.times import Given, Link, Process, Times


@dataclass(frozen=True, slots=True)
class Images:
    """Images that arrive pixel by pixel, and their windows. Sizes include the border; beats: of a pixel.

    border: rows and columns before and after the image, as (top, bottom, left, right).
    """

    rows: int
    columns: int
    beats: int
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    passes: int = 1
    spare: int = 0

    @classmethod
    def of(cls, given: Given, groups: int = 1, passes: int = 1) -> Images:
        """The images of an instance with windows."""
        border = (given["PADDING_TOP"], given["PADDING_BOTTOM"], given["PADDING_LEFT"], given["PADDING_RIGHT"])
        width, height = given["DATA_IN_0_TENSOR_SIZE_DIM_1"], given["DATA_IN_0_TENSOR_SIZE_DIM_2"]
        return cls(
            height + border[0] + border[1],
            width + border[2] + border[3],
            given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"],
            border,
            (given["KERNEL_HEIGHT"], given["KERNEL_WIDTH"]),
            (given["STRIDE_HEIGHT"], given["STRIDE_WIDTH"]),
            (given.get("DILATION_HEIGHT", 1), given.get("DILATION_WIDTH", 1)),
            groups,
            passes,
            given.get("SPARE", width * given["STRIDE_HEIGHT"]),
        )

    @classmethod
    def convolved(cls, given: Given) -> Images:
        """The images of a `fixed_conv2d`; groups whose channels come in one beat count as one."""
        channels = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["GROUPS"]
        groups = given["GROUPS"] // max(given["DATA_IN_0_PARALLELISM_DIM_0"] // channels, 1)
        passes = given["DATA_OUT_0_TENSOR_SIZE_DIM_0"] // groups // given["DATA_OUT_0_PARALLELISM_DIM_0"]
        return cls.of(given, groups, passes)

    @classmethod
    def bordered(cls, given: Given) -> Images:
        """The images of an `image_padding` alone."""
        border = given["TOP"], given["BOTTOM"], given["LEFT"], given["RIGHT"]
        beats = given["DATA_IN_0_TENSOR_SIZE_DIM_0"] // given["DATA_IN_0_PARALLELISM_DIM_0"]
        rows, columns = given["DATA_IN_0_TENSOR_SIZE_DIM_2"], given["DATA_IN_0_TENSOR_SIZE_DIM_1"]
        return cls(rows + border[0] + border[1], columns + border[2] + border[3], beats, border)

    @property
    def line(self) -> Images:
        """The same, row by row, for windows whose rows arrive at once, as `parallel_window` moves over columns."""
        sizes = (1, self.kernel[1]), (1, self.stride[1]), (1, self.dilation[1])
        return Images(1, self.columns, self.beats, (0, 0, 0, 0), *sizes, self.groups, self.passes, self.reach[1])

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns from a window's first to its last pixel."""
        return (self.kernel[0] - 1) * self.dilation[0] + 1, (self.kernel[1] - 1) * self.dilation[1] + 1

    def pieces(self, taps: tuple[int, int]) -> int:
        """The beats into which a column, or a whole window, is split for so many rows and columns at once."""
        if taps == (1, 1):
            return 1
        return self.kernel[0] // taps[0] if taps[1] == 1 else self.kernel[1] // taps[1]

    @property
    def size(self) -> int:
        """Beats of an image."""
        return self.rows * self.columns * self.beats

    @property
    def depth(self) -> int:
        """Beats that the ring of `sliding_window` holds."""
        tall, wide = self.reach
        return ((tall - 1) * self.columns + wide + self.spare) * self.beats

    @property
    def origins(self) -> list[int]:
        """The first beats of an image's windows."""
        (tall, wide), (down, right) = self.reach, self.stride
        return [
            (row * self.columns + column) * self.beats
            for row in range(0, self.rows - tall + 1, down)
            for column in range(0, self.columns - wide + 1, right)
        ]

    @property
    def places(self) -> list[int]:
        """Beats from the first of a window to each of its own, in their order: each group of channels in all passes."""
        rows, columns = (range(0, each, apart) for each, apart in zip(self.reach, self.dilation, strict=True))
        pixels = [(row * self.columns + column) * self.beats for row in rows for column in columns]
        size = self.beats // self.groups
        groups = (range(start, start + size) for start in range(0, self.beats, size) for _ in range(self.passes))
        return [pixel + beat for group in groups for pixel in pixels for beat in group]

    @property
    def last(self) -> int:
        """Beats from the first of a window's first pixel to the first of its last pixel."""
        tall, wide = self.reach
        return ((tall - 1) * self.columns + wide - 1) * self.beats

    @property
    def inside(self) -> list[bool]:
        """For each pixel: is it in the image, not in the border?"""
        top, bottom, left, right = self.border
        return [
            top <= row < self.rows - bottom and left <= column < self.columns - right
            for row in range(self.rows)
            for column in range(self.columns)
        ]


def pad_pixels(link: Link, out: Link, images: Images) -> Process:
    """The pixels of images with their border; the border waits for an image's first pixel."""
    inside, came = images.inside, 0
    for image in count():
        begun = False
        for pixel in inside:
            for _ in range(images.beats):
                number = len(out.offered)
                offered = out.taken[number - 1] + 1 if number else 0
                if pixel or not begun:
                    while len(link.offered) <= came:
                        yield link.offered
                    offered = max(offered, link.there(came))
                out.offered.add(offered)
                while len(out.taken) <= number:
                    yield out.taken
                if pixel:
                    begun = True
                    link.take(out.taken[number])
                    came += 1
        assert came == (image + 1) * sum(inside) * images.beats


def fill_pixel_ring(link: Link, ended: Times, images: Images) -> Process:
    """The filling of `sliding_window`'s ring: a window that ends frees the places of its first pixels."""
    origins, window = images.origins, 0
    for index in count():
        ready = 0
        while _origin_of_window(images, origins, window) <= index - images.depth:
            window += 1
        if window:
            while len(ended) < window:
                yield ended
            ready = ended[window - 1] + 1
        while len(link.offered) <= index:
            yield link.offered
        link.take(ready)


def _origin_of_window(images: Images, origins: list[int], window: int) -> int:
    image, at = divmod(window, len(origins))
    return image * images.size + origins[at]


def bursts_of_windows(link: Link, bursts: Link, ended: Times, images: Images) -> Process:
    """`bursts` bursts for each window and group of channels, as the ring gets their pixels."""
    origins, group = images.origins, images.beats // images.groups
    length = images.kernel[0] * images.kernel[1] * group
    for window in count():
        origin = _origin_of_window(images, origins, window)
        for at in range(images.groups):
            needed = origin + images.last + (at + 1) * group - 1
            for number in range(images.passes):
                while len(bursts.taken) < len(bursts.offered):
                    yield bursts.taken
                offered = (bursts.taken[-1] if bursts.taken else -1) + length
                if number == 0:
                    while len(link.taken) <= needed:
                        yield link.taken
                    offered = max(offered, link.taken[needed] + 2)
                bursts.offered.add(offered)
        while len(bursts.taken) < len(bursts.offered):
            yield bursts.taken
        # Its last beat was read a cycle before it could move.
        ended.add(offered - 1)


def beats_of_windows(link: Link, out: Link, ended: Times, images: Images) -> Process:
    """The same for a reader that may pause within a window: beat by beat."""
    origins, places = images.origins, images.places
    for window in count():
        origin = _origin_of_window(images, origins, window)
        for place in places:
            while len(link.taken) <= origin + place:
                yield link.taken
            while len(out.taken) < len(out.offered):
                yield out.taken
            offered = max(out.taken[-1] + 1 if out.taken else 0, link.taken[origin + place] + 2)
            out.offered.add(offered)
        # Its last beat was read a cycle before it could move.
        ended.add(offered - 1)


def vectors_of_windows(link: Link, out: Link, ended: Times, images: Images, ratio: int) -> Process:
    """Each window and group of channels as a vector of beats, each of up to `ratio` beats of the image."""
    origins, group = images.origins, images.beats // images.groups
    length, moved, wide = images.kernel[0] * images.kernel[1] * group, 0, 0
    for window in count():
        origin = _origin_of_window(images, origins, window)
        for at in range(images.groups):
            needed = origin + images.last + (at + 1) * group - 1
            for begin in range(0, length, ratio):
                number = min(ratio, length - begin)
                while len(out.taken) < wide:
                    yield out.taken
                moved = max(moved + number, out.taken[-1] + number - 1 if wide else 0)
                if begin + number == length:
                    while len(link.taken) <= needed:
                        yield link.taken
                    moved = max(moved, link.taken[needed] + 2)
                out.offered.add(moved + 1)
                wide += 1
        ended.add(moved - 1)


def reduced_windows(link: Link, out: Link, ended: Times, images: Images) -> Process:
    """The maximum or sum of each window and channel, given by the beats of the window's last position."""
    origins, before = images.origins, images.kernel[0] * images.kernel[1] - 1
    step = -1
    for window in count():
        needed = _origin_of_window(images, origins, window) + images.last
        for beat in range(images.beats):
            while len(link.taken) <= needed + beat:
                yield link.taken
            while len(out.taken) < len(out.offered):
                yield out.taken
            free = out.taken[-1] if out.taken else 0
            if beat == 0:
                step = max(step, free - 1) + before * images.beats
            step = max(step + 1, link.taken[needed + beat] + 2, free)
            out.offered.add(step + 1)
        ended.add(step - 1)


def reduced_image(link: Link, out: Link, images: Images) -> Process:
    """The sum of a whole image for each channel: its pixels are taken as they arrive."""
    last = (images.rows * images.columns - 1) * images.beats
    for index in count():
        while len(out.taken) < len(out.offered):
            yield out.taken
        while len(link.offered) <= index:
            yield link.offered
        came = link.take(out.taken[-1] if out.taken else 0)
        if index % images.size >= last:
            out.offered.add(came + 1)


def last_of_rows(link: Link, out: Link, beats: int) -> Process:
    """A result after the last beat of each row; the beats before it are dropped as they come."""
    for index in count():
        while len(link.offered) <= index:
            yield link.offered
        if index % beats < beats - 1:
            link.take()
            continue
        out.offered.add(link.there(index))
        while len(out.taken) <= index // beats:
            yield out.taken
        link.take(out.taken[index // beats])


def give_taps(link: Link, out: Link, length: int, lines: int, window: tuple[int, int, int]) -> Process:
    """`line_taps`: beats together with those above them, in lines of `length` beats. window: taps, stride, dilation."""
    number, stride, dilation = window
    before = (number - 1) * dilation
    for index in count():
        line = index // length % lines
        # One place, whether or not its beat leaves.
        while len(out.taken) < len(out.offered):
            yield out.taken
        while len(link.offered) <= index:
            yield link.offered
        came = link.take(out.taken[-1] if out.taken else 0)
        if line >= before and (line - before) % stride == 0:
            out.offered.add(came + 1)
