"""Clients that are slow, silent or greedy: they lose their own connection, and nobody else notices."""

import asyncio
import contextlib
import time

import msgpack
import pytest
from rpc_serving import Raw

from mase_server.rpc.listening import Listening
from mase_server.rpc.registry import TcpAddress

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def reason(client):
    """What the server says last."""
    last = None
    while (message := await client.next()) is not None:
        last = message
    return last


async def test_a_message_that_trickles_ends_the_connection(limited):
    served = await limited(frame_seconds=0.2)
    async with served.client() as slow, served.client() as other:
        for byte in msgpack.packb([0, 1, "mase/info", [{}]])[:5]:
            slow.send(bytes([byte]))
            await asyncio.sleep(0.02)
        kind, method, params = await reason(slow)
        assert (kind, method) == (2, "mase/dropped")
        assert params[0]["message"] == "a message was incomplete after 0.2 s"
        assert await other.result("mase/info")


async def test_whole_messages_may_come_as_slowly_as_they_like(limited):
    served = await limited(frame_seconds=0.2)
    async with served.client() as client:
        await asyncio.sleep(0.5)
        assert await client.result("mase/info")
        await asyncio.sleep(0.3)
        assert await client.result("mase/info")


async def test_who_sends_no_more_gets_the_answers_and_then_the_end(limited):
    served = await limited()
    async with served.client() as client:
        client.send(b"".join(msgpack.packb([0, number, "mase/files", [{}]]) for number in range(50)))
        client.writer.write_eof()
        answers = [await client.next() for _ in range(50)]
        assert {answer[1] for answer in answers} == set(range(50))
        assert await client.next() is None


async def test_who_sends_no_more_does_not_keep_work_going(limited):
    served = await limited(end_seconds=0.2)
    path = served.write("long.py", "import time; time.sleep(30)\n")
    async with served.client() as client:
        client.send([0, 1, "mase/open", [{"path": path}]])
        client.writer.write_eof()
        assert (await reason(client))[1] == "mase/dropped"
    assert not served.front.connections


async def test_the_end_of_a_connection_closes_its_files(limited):
    served = await limited()
    path = served.write("held.py", "")
    async with served.client() as one, served.client() as two:
        await one.result("mase/open", path=path)
        await two.result("mase/open", path=path)
        await one.close()
        assert (await two.result("mase/files"))["files"][0]["open"]
        assert await two.result("mase/close", path=path) == {"path": path, "open": False}


async def test_a_connection_over_the_limit_is_told_so(limited):
    served = await limited(connections=2)
    async with served.client() as one, served.client() as two:
        assert await one.result("mase/info")
        assert await two.result("mase/info")
        async with served.client() as three:
            kind, method, params = await reason(three)
            assert (kind, method) == (2, "mase/dropped")
            assert params[0]["message"] == "2 clients are connected, which is the limit"
        assert await one.result("mase/info")
    assert served.front.counts.refused == 1


async def test_silent_strangers_keep_nobody_out_who_says_the_token(limited):
    served = await limited(connections=3)
    tcp = Listening(served.front, TcpAddress("127.0.0.1", 0))
    address = await tcp.start()

    async def dialled():
        return Raw(*await asyncio.open_connection(address.host, address.port))

    known = await dialled()
    await known.result("mase/authenticate", token=tcp.token_file.read_text().strip())
    silent = [await dialled() for _ in range(5)]
    late = await dialled()
    await late.result("mase/authenticate", token=tcp.token_file.read_text().strip())
    for each in silent[:4]:
        assert (await reason(each))[2][0]["message"] == "more clients came before the token was said"
    assert await late.result("mase/files") == await known.result("mase/files")
    assert len(served.front.connections) == 3
    await tcp.close()
    for each in (known, late, *silent):
        await each.close()


async def test_who_does_not_read_gets_no_more_answers_and_is_dropped(limited):
    served = await limited(drain_seconds=0.5, send_buffer=1 << 16)
    path = served.show("greedy.py", blocks=500)
    async with served.client() as greedy, served.client() as other:
        with contextlib.suppress(ConnectionError):
            for number in range(3000):
                greedy.send([0, number, "mase/graph", [{"path": path}]])
            async with asyncio.timeout(20):
                await greedy.writer.drain()
        began = served.front.counts.requests
        assert began < 400
        while served.front.counts.dropped == 0:
            assert await other.result("mase/info")
            await asyncio.sleep(0.02)


async def test_requests_that_wait_are_bounded(limited):
    served = await limited(pending=8)
    path = served.write("waiting.py", "import time; time.sleep(1)\n")
    async with served.client() as client:
        for number in range(100):
            client.send([0, number, "mase/open", [{"path": path}]])
        await client.writer.drain()
        async with served.client() as other:
            counts = (await other.result("mase/statistics"))["requests"]
            assert counts["requests"] <= 9
        answers = [await client.next() for _ in range(100)]
        assert all(answer[2] is None for answer in answers)


async def test_five_hundred_clients_are_served_at_once(limited):
    served = await limited()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client()) for _ in range(500)]
        answers = await asyncio.gather(*(client.result("mase/info") for client in clients))
        assert len(answers) == 500
        assert served.front.counts.connections == 500
        again = await asyncio.gather(*(client.result("mase/files") for client in clients))
        assert again == [{"files": []}] * 500


async def test_a_flood_of_one_client_leaves_the_loop_to_the_others(limited):
    served = await limited()
    path = served.show("flood.py")
    flood = msgpack.packb([0, 1, "mase/nodeAt", [{"path": path, "line": 2, "column": 0}]])
    async with served.client() as greedy:
        turns = []

        async def watch():
            while True:
                before = time.perf_counter()
                await asyncio.sleep(0)
                turns.append(time.perf_counter() - before)

        watching = asyncio.create_task(watch())
        greedy.send(b"".join(flood[:2] + bytes([number]) + flood[3:] for number in range(100)) * 20)
        for _ in range(2000):
            await greedy.next()
        watching.cancel()
    # The loop is shared with this test's own client, so that only their number is told, not their length.
    assert len(turns) > 100


async def test_a_server_that_ends_says_so(limited):
    served = await limited()
    client = await Raw.connected(served.path)
    assert await client.result("mase/info")
    await served.listening.close()
    kind, method, params = await reason(client)
    assert (kind, method, params[0]["message"]) == (2, "mase/dropped", "the server ends")
    await client.close()
