"""Beats of blocks in any order, some twice, some never."""

import torch
from hypothesis import strategies as st

from tests.rtl.bench import Bench, Case, Stream
from tests.rtl.draws import drawn, generator

BLOCKS = 6


@st.composite
def gathers(draw):
    depth = draw(st.integers(1, 9))
    places = draw(st.lists(st.integers(0, depth - 1), min_size=1, max_size=14))
    return draw(st.integers(1, 40)), depth, tuple(places)


def gather(number, width, depth, places):
    random = generator(number)
    blocks = torch.randint(0, 1 << width, (BLOCKS, depth), generator=random)
    expected = [block[place] for block in blocks.tolist() for place in places]
    bits = max(1, (depth - 1).bit_length())
    return Case(
        "stream_gather",
        {"DATA_WIDTH": width, "DEPTH": depth, "COUNT": len(places)},
        {"data_in_0": Stream(width, blocks.flatten().tolist())},
        {"data_out_0": Stream(width, expected)},
        {"FILE": (bits, list(places))},
    )


def test_beats_leave_in_the_order_of_the_file():
    Bench([gather(number, *draw) for number, draw in enumerate(drawn(gathers()))]).check_all()


def test_a_beat_that_is_taken_from_elsewhere_is_seen():
    right = gather(0, 8, 4, (3, 0, 0, 2))
    wrong = Case(right.module, right.parameters, right.inputs, right.outputs, {"FILE": (2, [3, 0, 1, 2])})
    (result,) = Bench([wrong]).run()
    assert result.mismatches == BLOCKS


def test_blocks_follow_each_other_without_a_gap():
    cases = [gather(0, 8, 6, (5, 4, 3, 2, 1, 0)), gather(1, 8, 4, (0, 1) * 6), gather(2, 8, 12, (3, 7))]
    for case, result in zip(cases, Bench(cases).run(), strict=True):
        depth, count = case.parameters["DEPTH"], case.parameters["COUNT"]
        assert result.fine
        assert result.first_cycle == depth + 1
        assert result.last_cycle - result.first_cycle == (BLOCKS - 1) * max(depth, count) + count - 1
