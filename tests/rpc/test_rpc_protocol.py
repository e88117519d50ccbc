"""Messages over a real socket, as the specification of MessagePack-RPC has them."""

import asyncio
import struct
from operator import attrgetter
from types import SimpleNamespace

import msgpack
import pytest

from mase_server import __version__
from mase_server.client import AsyncClient, Client, RpcError, asynchronous, blocking
from mase_server.daemon.api import API
from mase_server.daemon.methods import ApiMethod
from mase_server.protocol.records import PROTOCOL
from mase_server.rpc import connection

OPENING = ("mase/open", "mase/retrace")
NAME = attrgetter("name")
ONE_MAP = "mase/info takes one map, as the one element of an array of parameters"
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_request_is_answered_with_its_number_no_error_and_a_map(client):
    client.send([0, 4_294_967_295, "mase/info", [{}]])
    kind, ident, error, result = await client.next()
    assert (kind, ident, error) == (1, 4_294_967_295, None)
    assert result["name"] == "mase-server"


@pytest.mark.parametrize("params", [[], [{}], [[]], [None]], ids=str)
async def test_no_parameters_may_be_written_as_clients_of_all_languages_do(client, params):
    client.send([0, 1, "mase/info", params])
    assert (await client.next())[2] is None


async def test_bytes_may_come_one_by_one(client):
    for byte in msgpack.packb([0, 9, "mase/files", [{}]]):
        client.send(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    assert (await client.next())[:3] == [1, 9, None]


async def test_many_requests_at_once_are_all_answered(client):
    client.send(b"".join(msgpack.packb([0, number, "mase/files", [{}]]) for number in range(2000)))
    answers = [await client.next() for _ in range(2000)]
    assert sorted(answer[1] for answer in answers) == list(range(2000))
    assert all(answer[2] is None for answer in answers)


async def test_a_slow_request_holds_up_no_other(client, served):
    path = served.write("slow.py", "import time; time.sleep(0.5)\n")
    client.send([0, 1, "mase/open", [{"path": path}]])
    client.send([0, 2, "mase/info", [{}]])
    assert [(await client.next())[1] for _ in range(2)] == [2, 1]


@pytest.mark.parametrize(
    ("method", "params", "code", "text"),
    [
        ("mase/nodeAtt", [{}], "unknown-method", "there is no method 'mase/nodeAtt'; did you mean 'mase/nodeAt'?"),
        ("eval", [{}], "unknown-method", "there is no method 'eval'; mase/info lists all methods"),
        (7, [{}], "unknown-method", "there is no method '7'; mase/info lists all methods"),
        ("mase/info", [3], "invalid-params", ONE_MAP),
        ("mase/info", [{}, {}], "invalid-params", ONE_MAP),
        ("mase/info", "x", "invalid-params", ONE_MAP),
        ("mase/nodeAt", [{"path": "net.py", "line": 1, "column": 0}], "invalid-params",
         "mase/nodeAt: path is 'net.py'; it has to be absolute"),
        ("mase/files", [{"x": 1}], "invalid-params", "mase/files has no parameter 'x'; it takes none"),
        ("mase/close", [{"path": "/nowhere/a.py"}], "not-open",
         "/nowhere/a.py is not open: open it with mase/open first"),
        ("mase/open", [{"path": "/nowhere/a.py"}], "not-found", "there is no file /nowhere/a.py"),
    ],
)  # fmt: skip
async def test_an_error_is_a_map_with_a_code_and_a_text(client, method, params, code, text):
    client.send([0, 5, method, params])
    kind, ident, error, result = await client.next()
    assert (kind, ident, result) == (1, 5, None)
    assert (error["code"], error["message"]) == (code, text)


async def test_errors_may_be_pairs_for_clients_that_know_no_others(client):
    assert await client.result("mase/session", errors="pair") == {
        "errors": "pair",
        "events": "notification",
        "protocol": PROTOCOL,
    }
    told = "there is no file /nowhere/a.py"
    assert await client.ask("mase/open", {"path": "/nowhere/a.py"}) == [[0, f"not-found: {told}"], None]
    error, _ = await client.ask("mase/session", {"errors": "xml"})
    assert error == [0, "invalid-params: errors is 'xml', expected one of map, pair"]
    await client.result("mase/session", errors="map")
    assert await client.code("mase/open", path="/nowhere/a.py") == "not-found"


async def test_client_and_daemon_agree_on_a_version_of_the_api(client):
    assert (await client.result("mase/session", protocols=[PROTOCOL, PROTOCOL + 1]))["protocol"] == PROTOCOL
    error, _ = await client.ask("mase/session", {"protocols": [7, 8]})
    assert (error["code"], error["data"]) == ("unsupported-protocol", {"protocols": [PROTOCOL]})
    told = f"this daemon ({__version__}) speaks version {PROTOCOL} of the API, the client speaks 7, 8"
    assert error["message"] == f"{told}: update the older of the two"


async def test_our_clients_refuse_a_daemon_of_another_version_each_time_and_leave_it(served, monkeypatch):
    for module in (asynchronous, blocking):
        monkeypatch.setattr(module, "SPEAKS", {"protocols": [7]})
    refused = pytest.raises(RpcError, match="the client speaks 7: update the older")
    before = len(served.front.connections)

    def work():
        plain = Client(served.path)
        with refused, plain:
            pass
        with refused:
            plain.call("mase/status")
        return plain

    plain, client = await asyncio.to_thread(work), AsyncClient(served.path)
    with refused:
        async with client:
            pass
    with refused:
        await client.call("mase/status")
    while len(served.front.connections) > before:
        await asyncio.sleep(0)
    await asyncio.to_thread(plain.close_connection)


async def test_a_boolean_is_no_number(client, served):
    path = served.show("bool.py")
    error, _ = await client.ask("mase/nodeAt", {"path": path, "line": True, "column": 0})
    assert error["message"] == "mase/nodeAt: line is True, expected int"


async def test_a_question_about_a_closed_file_names_it(client, served):
    path = served.write("closed.py", "x = 1  # shape f32[2, 3]\n")
    await client.result("mase/open", path=path)
    assert (await client.result("mase/tensors", path=path))["sites"]
    assert await client.result("mase/close", path=path) == {"path": path, "open": False}
    error, _ = await client.ask("mase/tensors", {"path": path})
    assert (error["code"], error["data"]) == ("not-open", {"path": path})
    assert await client.code("mase/close", path=path) == "not-open"


@pytest.mark.parametrize("method", [one for one in API if "path" in one.params and one.name not in OPENING], ids=NAME)
async def test_every_method_names_a_file_that_nobody_has_open(client, served, method):
    path = served.write("never.py", "")
    others = {str: "x", int: 1, bool: True, dict: {}, list[str]: []}
    given = {key: others[kind] for key, kind in method.params.items() if not key.endswith("?")}
    error, _ = await client.ask(method.name, given | {"path": path})
    assert error["code"] == "not-open"
    assert error["message"] == f"{path} is not open: open it with mase/open first"
    assert error["data"] == {"path": path}


async def test_what_comes_in_the_wrong_order_is_named(client, served):
    path = served.show("order.py")
    for method, told in (
        ("mase/undoPass", "there is nothing to undo: no pass is applied to Net"),
        ("mase/redoPass", "there is nothing to redo on Net"),
        ("mase/close", f"{path} was not opened by this connection"),
    ):
        error, _ = await client.ask(method, {"path": path})
        assert error["message"] == told
    assert await client.result("mase/unsubscribe", subscription=9) == {"ended": False}
    assert await client.result("mase/forgetVerilog", path=path)


async def test_an_unanswered_number_cannot_be_used_again(client, served):
    path = served.write("twice.py", "import time; time.sleep(0.5)\n")
    client.send([0, 1, "mase/open", [{"path": path}]])
    client.send([0, 1, "mase/info", [{}]])
    refusal, answer = await client.next(), await client.next()
    assert refusal[2]["code"] == "invalid-request"
    assert answer[3]["path"] == path


async def test_cancelling_answers_at_once(client, served):
    path = served.write("cancelled.py", "import time; time.sleep(30)\n")
    client.send([0, 1, "mase/open", [{"path": path}]])
    client.send([2, "mase/cancel", [{"id": 1}]])
    kind, ident, error, _ = await client.next()
    assert (kind, ident, error["code"]) == (1, 1, "cancelled")
    served.daemon.cancel(path)


async def test_cancelling_may_be_a_request_and_says_whether_there_was_anything(client):
    assert await client.result("mase/cancel", id=77) == {"cancelled": False}


async def test_a_notification_has_no_answer(client, served):
    path = served.write("notified.py", "")
    await client.result("mase/open", path=path)
    client.send([2, "mase/close", [{"path": path}]])
    client.send([2, "mase/nonsense", [{}]])
    assert (await client.result("mase/info"))["name"] == "mase-server"
    assert not served.daemon.file(path).open


async def test_an_answer_that_nobody_asked_for_is_said_to_be_one(client):
    client.send([1, 3, None, {}])
    kind, method, params = await client.next()
    assert (kind, method, params[0]["code"]) == (2, "mase/error", "unexpected-response")
    assert await client.result("mase/files") is not None


BROKEN = {
    "a map": msgpack.packb({"a": 1}),
    "no kind": msgpack.packb([]),
    "another kind": msgpack.packb([3, 1, "mase/info", [{}]]),
    "too short": msgpack.packb([0, 1, "mase/info"]),
    "a negative number": msgpack.packb([0, -1, "mase/info", [{}]]),
    "a number of 33 bits": msgpack.packb([0, 1 << 32, "mase/info", [{}]]),
    "a text for a number": msgpack.packb([0, "1", "mase/info", [{}]]),
    "true for a number": msgpack.packb([0, True, "mase/info", [{}]]),
    "http": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "never used": b"\xc1",
    "no unicode": b"\x94\x00\x01\xa2\xff\xfe\x90",
    "an extension": msgpack.packb([0, 1, "mase/info", [msgpack.ExtType(5, b"abc")]]),
    "too deep": b"\x91" * 5000,
    "an announced array": b"\xdd" + struct.pack(">I", 0xFFFFFFFF),
    "an announced map": b"\xdf" + struct.pack(">I", 0xFFFFFFFF),
    "a key that is a list": b"\x94\x00\x01\xa9mase/info\x91\x81\x90\x01",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
async def test_what_is_no_message_is_told_and_ends_the_connection(client, served, data):
    client.send(data)
    kind, method, params = await client.next()
    assert (kind, method, params[0]["code"]) == (2, "mase/error", "bad-message")
    assert await client.next() is None
    async with served.client() as other:
        assert await other.result("mase/info")


async def test_what_was_asked_before_a_broken_message_is_begun_but_the_connection_ends(client):
    client.send(msgpack.packb([0, 1, "mase/files", [{}]]) + b"\xc1")
    told = [message async for message in _all(client)]
    assert told[-1][1] == "mase/error"


async def _all(client):
    while (message := await client.next()) is not None:
        yield message


HUGE = {
    "arrays": b"\x94\x00\x01\xa9mase/info\x91\x81\xa1x" + b"\xdc\x3f\xff" * 500_000,
    "bytes": b"\x94\x00\x01\xa9mase/info\x91\x81\xa1x\xc6" + struct.pack(">I", 1 << 30) + bytes(3 << 19),
    "text": b"\x94\x00\x01\xdb" + struct.pack(">I", 1 << 31) + bytes(3 << 19),
}


@pytest.mark.parametrize("data", HUGE.values(), ids=HUGE)
async def test_a_message_over_the_limit_ends_the_connection_before_it_is_whole(client, data):
    client.send(data)
    kind, method, params = await client.next()
    assert (kind, method, params[0]["code"]) == (2, "mase/error", "bad-message")


async def test_a_big_answer_arrives_whole_and_in_order_with_others(client, served):
    path = served.show("big.py", blocks=3000)
    client.send([0, 1, "mase/graph", [{"path": path}]])
    client.send([0, 2, "mase/graph", [{"path": path, "count": 2}]])
    client.send([0, 3, "mase/info", [{}]])
    answers = {answer[1]: answer[3] for answer in [await client.next() for _ in range(3)]}
    assert len(answers[1]["columns"]["name"]) == answers[1]["total"] == 9001
    assert answers[2]["columns"]["name"] == ["x", "linear_0_0"]
    assert answers[3]["name"] == "mase-server"


async def test_what_waits_for_nothing_is_answered_without_a_task(served, client, monkeypatch):
    begun = []

    def ensure_future(work):
        begun.append(work.__qualname__)
        return asyncio.create_task(work)

    path = served.show("at_once.py")
    monkeypatch.setattr(connection, "asyncio", SimpleNamespace(**vars(asyncio) | {"ensure_future": ensure_future}))
    assert (await client.result("mase/nodeAt", path=path, line=3, column=0))["place"] is not None
    assert await client.code("mase/nodeAt", path=path, line=3) == "invalid-params"
    assert await client.code("mase/nothing") == "unknown-method"
    assert begun == []
    assert (await client.result("mase/graph", path=path))["total"] > 0
    assert begun == ["Connection._serve"]


async def test_a_method_that_waits_is_known_by_its_code():
    async def at_once(api, params):
        return sorted(each for each in params)

    async def asks(api, params):
        return await at_once(api, params)

    async def goes_through(api, params):
        return [each async for each in params]

    async def enters(api, params):
        async with params:
            return None

    waiting = [ApiMethod("x", {}, each, dict).waits for each in (at_once, asks, goes_through, enters)]
    assert waiting == [False, True, True, True]
    # Where it is wrong about one, that is a fault which is told, and no answer.
    with pytest.raises(RuntimeError, match=r"^x waits$"):
        ApiMethod("x", {}, lambda api, params: asyncio.sleep(0), dict).run_at_once(None, {})


@pytest.mark.parametrize("number", [1, 100])
async def test_who_sends_no_more_is_answered_and_left_at_once(limited, number):
    served = await limited(end_seconds=3600.0)
    async with served.client() as client:
        client.send(b"".join(msgpack.packb([0, each, "mase/files", [{}]]) for each in range(number)))
        client.writer.write_eof()
        assert [(await client.next())[1] for _ in range(number)] == list(range(number))
        assert await client.next() is None
