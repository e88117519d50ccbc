"""Calls to a child that is played by hand: events before answers, cancelling, and what comes in pieces."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.daemon import supervisor
from mase_server.daemon.channel import CallFailed, WorkerGone
from mase_server.daemon.graph_snapshot import Transform
from mase_server.protocol.snapshot import (
    CHUNK_ROWS,
    TRANSFORM_NODES,
    Assembler,
    TransformAssembler,
    split_payload,
    split_transform,
)
from mase_server.protocol.wire import Decoder, pack, unpack

from .fake_child import overlay
from .stub_job import payload_of
from .test_supervisor import Played


class Listening(Played):
    """A played worker that has traced, and whose messages can be read."""

    @classmethod
    async def traced(cls):
        played = cls()
        played.say({"event": "done", "seconds": 0.0})
        await played.worker.trace()
        played.decoder = Decoder()
        played.theirs.setblocking(False)
        assert (await played.hears())["op"] == "trace"
        return played

    async def hears(self):
        while (message := self.decoder.next()) is None:
            data = await asyncio.get_running_loop().sock_recv(self.theirs, 1 << 16)
            self.decoder.feed(data)
        return message


async def test_events_of_a_call_come_before_its_answer_and_to_nobody_else():
    played = await Listening.traced()
    heard = []
    one = asyncio.create_task(played.worker.call("m", {"n": 1}, heard.append))
    two = asyncio.create_task(played.worker.call("m", {"n": 2}))
    assert [(await played.hears())["id"], (await played.hears())["id"]] == [1, 2]
    progress = {"event": "progress", "id": 1, "message": "half", "fraction": 0.5}
    played.say(progress, {**progress, "id": 2}, {**progress, "id": 9}, {"result": 1, "value": "done"})
    assert await one == "done"
    assert heard == [progress]
    played.say(progress, {"result": 2, "value": None})
    assert await two is None
    assert heard == [progress], "an event after the answer was heard"
    await played.end()


async def test_a_transform_that_comes_in_pieces_is_heard_as_a_whole():
    played = await Listening.traced()
    heard = []
    answer = asyncio.create_task(played.worker.call("transform", {}, heard.append))
    await played.hears()
    transforms = [many(CHUNK_ROWS * 2 + 1), overlay(0, [{"pass": "one", "arguments": {}}])]
    for transform in transforms:
        played.say(*({"event": "transform", "id": 1, "frame": frame} for frame in split_transform(transform)))
    played.say({"event": "transform", "id": 1, "transform": transforms[0]}, {"result": 1, "value": {}})
    await answer
    assert [message["transform"] for message in heard] == [*transforms, transforms[0]]
    await played.end()


async def test_an_error_tells_its_kind():
    played = await Listening.traced()
    answer = asyncio.create_task(played.worker.call("m"))
    await played.hears()
    played.say({"result": 1, "error": "too big", "kind": "limit"})
    with pytest.raises(CallFailed, match=r"^too big$") as failed:
        await answer
    assert failed.value.kind == "limit"
    await played.end()


async def test_cancelling_a_call_cancels_it_in_the_child_and_nothing_else():
    played = await Listening.traced()
    heard = []
    one = asyncio.create_task(played.worker.call("m", None, heard.append))
    two = asyncio.create_task(played.worker.call("m"))
    await played.hears()
    await played.hears()
    one.cancel()
    assert await played.hears() == {"op": "cancel", "id": 1}
    played.say({"event": "progress", "id": 1, "message": "", "fraction": None}, {"result": 1, "error": "cancelled"})
    played.say({"result": 2, "value": "still there"})
    assert await two == "still there"
    assert (one.cancelled(), heard, played.worker.live) == (True, [], True)
    await played.end()


async def test_a_child_that_does_not_follow_a_cancel_is_ended(monkeypatch):
    monkeypatch.setattr(supervisor, "_CANCEL_SECONDS", 0.05)
    played = await Listening.traced()
    one, two = (asyncio.create_task(played.worker.call("m")) for _ in range(2))
    await played.hears()
    one.cancel()
    with pytest.raises(WorkerGone):
        await two
    assert not played.worker.live
    await played.end()


async def test_a_call_of_nonsense_ends_the_worker_and_answers_who_waits():
    played = await Listening.traced()
    answer = asyncio.create_task(played.worker.call("transform", {}, lambda message: Transform.from_wire(message)))
    await played.hears()
    played.say({"event": "transform", "id": 1, "transform": {"odd": 1}})
    with pytest.raises(WorkerGone):
        await answer
    await played.end()


def many(size):
    """An overlay of so many rows and nodes."""
    values = [["fixed(8,4)", [2, index], ["B", str(index)]] for index in range(size)]
    columns = [list(range(size)), ["fixed(8,4)"] * size, [40.0] * size, [0.1] * size, [None] * size, [None] * size]
    base = overlay(0, [{"pass": "one", "arguments": {}}])
    nodes = dict(zip(TRANSFORM_NODES, columns, strict=True))
    return {**base, "rows": [list(range(size)), values], "nodes": nodes}


@given(st.integers(0, 3 * CHUNK_ROWS), st.integers(0, 2))
def test_a_transform_in_pieces_is_the_same_put_together_also_inside_a_payload(size, count):
    transform = many(size)
    assembler = TransformAssembler()
    arrived = [done for frame in split_transform(transform) if (done := assembler.add(unpack(pack(frame))))]
    assert arrived == [transform]
    payload = payload_of("/w/net.py", b"x = 1  # shape f32[2]\n") | {"transforms": [transform] * count}
    whole = Assembler()
    arrived = [done for frame in split_payload(payload) if (done := whole.add(unpack(pack(frame))))]
    assert json.loads(json.dumps(arrived)) == json.loads(json.dumps([payload]))


def test_no_piece_of_a_large_transform_holds_more_than_a_few_hundred_rows():
    frames = list(split_transform(many(10_000)))
    assert len(frames) == 2 * 10_000 / CHUNK_ROWS + 2
    rows = [len(frame["rows"][0]) for frame in frames if "rows" in frame]
    assert max(rows) == CHUNK_ROWS


ONE_ROW = {"rows": [[1], [2]]}


@pytest.mark.parametrize(
    ("before", "frame", "message"),
    [
        ([], ONE_ROW, "a frame of a transform with keys \\['rows'\\] arrived before any head"),
        ([{"head": {}}, ONE_ROW], {"tail": [2, 0]}, r"a transform has \[1, 0\] rows and nodes, expected \[2, 0\]"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(before, frame, message):
    assembler = TransformAssembler()
    for each in before:
        assembler.add(each)
    with pytest.raises(ValueError, match=f"^{message}$"):
        assembler.add(frame)
