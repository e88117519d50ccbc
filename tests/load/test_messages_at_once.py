"""Messages that an editor sends at once, as it does while somebody types."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader, BytesIO

from mase_server.lsp.framing import MAX_HEADER, StandardInput, frame_body, serve_messages

MESSAGES = [{"jsonrpc": "2.0", "method": "x", "params": {"text": "y" * number}} for number in (3, 0, 100_000, 7)]
FRAMES = b"".join(frame_body(json.dumps(each).encode()) for each in MESSAGES)


class Waiting(ThreadPoolExecutor):
    """A thread that counts how often it is waited for."""

    def __init__(self):
        super().__init__(1)
        self.times = 0

    def submit(self, *args, **kwargs):
        self.times += 1
        return super().submit(*args, **kwargs)


async def serve(data):
    """The messages and answers of a stream, each with the number of turns that others had before it."""
    taken, turns, thread = [], [], Waiting()

    async def other():
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    reader = StandardInput(BufferedReader(BytesIO(data), 1 << 20), thread)
    await serve_messages(
        reader, lambda message: taken.append((message, len(turns))), lambda answer: taken.append(answer)
    )
    beside.cancel()
    return taken, thread.times


async def test_they_are_waited_for_once_for_all_that_has_arrived_and_others_get_turns():
    taken, waits = await serve(FRAMES)
    assert [message for message, _ in taken] == MESSAGES
    assert len({turns for _, turns in taken}) == len(MESSAGES)
    assert waits <= 4, "64 KiB at a time, and the end"


async def test_a_header_without_an_end_is_refused_however_it_arrives():
    for data in (b"x" * (MAX_HEADER + 2), b"x" * (1 << 17), b"x" * MAX_HEADER + b"x\r\n\r\n"):
        taken, _ = await serve(FRAMES + data)
        assert [message for message, _ in taken[:-1]] == MESSAGES
        assert b"more than 8192 bytes" in taken[-1]
