"""Hostile clients: whatever they send, the server answers the next one, and holds no more than before."""

import asyncio
import contextlib
import gc
import random
import tracemalloc
from dataclasses import fields
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rpc_serving import Raw

from mase_server.building import Build
from mase_server.daemon.api import API
from mase_server.daemon.methods import bare_type

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
#: Not asked of a real daemon with made-up parameters: they would trace, write or restart.
WORKING = {method.name for method in API if method.executes} | {"mase/restartWorkers"}
NAMES = sorted({method.name for method in API} - WORKING)
KEYS = sorted({key.removesuffix("?") for method in API for key in method.params})
PARAMS = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), VALUES, max_size=5)


@st.composite
def likely_params(draw):
    """Parameters of the declared types, with values that are unlikely: deeper than the checks of types."""
    method = draw(st.sampled_from([method for method in API if method.name not in WORKING]))
    kinds = {
        str: st.text(max_size=30) | st.just("/nowhere.py"),
        int: st.integers(-(1 << 70), 1 << 62),
        bool: st.booleans(),
    }
    kinds |= {
        list[int]: st.lists(st.integers(-(1 << 63), (1 << 64) - 1), max_size=4),
        list[str]: st.lists(st.text(max_size=8) | st.sampled_from(["name", "graph"]), max_size=4),
    }
    kinds |= {dict: st.dictionaries(st.text(max_size=8) | st.just("path"), VALUES, max_size=4)}
    given = {
        key.removesuffix("?"): draw(kinds[bare_type(kind)])
        for key, kind in method.params.items()
        if draw(st.booleans())
    }
    for key, value in given.items():
        if isinstance(value, int):
            given[key] = max(-(1 << 63), min(value, (1 << 64) - 1))
    return method.name, given


#: For each declared type a value of another one.
NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1)
OTHERS = {str: NUMBERS | st.binary() | st.lists(st.text()), int: st.text() | st.booleans() | st.floats()}
OTHERS |= {bool: NUMBERS | st.text(), dict: st.text() | st.dictionaries(NUMBERS, st.none(), min_size=1)}
OTHERS |= {list[str]: st.text() | st.lists(NUMBERS | st.none(), min_size=1)}
RIGHT = {str: "x", int: 1, bool: False, dict: {}, list[str]: ["x"]}
EXECUTING = [method for method in API if method.executes]


@st.composite
def one_wrong_parameter(draw):
    """Parameters of a method that executes; one of them is of another type than is declared."""
    method = draw(st.sampled_from([method for method in EXECUTING if len(method.params) > 1]))
    given = {key.removesuffix("?"): RIGHT[kind] for key, kind in method.params.items()}
    wrong = draw(st.sampled_from([key for key in method.params if key != "path"]))
    return method.name, given | {wrong.removesuffix("?"): draw(OTHERS[method.params[wrong]])}, wrong.removesuffix("?")


fuzzed = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)


async def alive(served):
    async with served.client() as other:
        assert (await other.result("mase/info"))["name"] == "mase-server"


@fuzzed
@given(method=st.sampled_from(NAMES) | VALUES, params=st.lists(PARAMS | VALUES, max_size=2) | VALUES)
async def test_any_method_with_any_parameters_is_answered(served, method, params):
    async with served.client() as client:
        client.send([0, 1, method, params])
        kind, ident, error, result = await client.next()
        assert (kind, ident) == (1, 1)
        assert isinstance(result, dict) if error is None else error["code"] != "internal-error"


@fuzzed
@given(likely_params())
async def test_parameters_of_the_right_types_with_any_values_are_no_fault_of_ours(served, asked):
    method, params = asked
    path = served.show("fuzzed.py")
    async with served.client() as client:
        error, result = await client.ask(method, params)
        assert isinstance(result, dict) if error is None else error["code"] != "internal-error"
        error, result = await client.ask(method, params | ({"path": path} if "path" in params else {}))
        assert isinstance(result, dict) if error is None else error["code"] != "internal-error"


@fuzzed
@given(asked=one_wrong_parameter())
async def test_what_executes_does_not_with_a_parameter_of_another_type(served, asked):
    method, params, wrong = asked
    path = served.show("executing.py")
    async with served.client() as client:
        error, _ = await client.ask(method, params | {"path": path})
        assert error["code"] == "invalid-params"
        assert error["message"].startswith(f"{method}: {wrong} is ")


@fuzzed
@given(st.dictionaries(st.sampled_from([field.name for field in fields(Build)]) | st.text(max_size=5), VALUES))
async def test_a_build_of_any_values_is_one_or_is_refused(data):
    with contextlib.suppress(ValueError):
        assert Build.from_wire(data).to_wire().items() >= data.items()


@pytest.mark.parametrize("name", ["precision", "scope"])
async def test_a_build_says_which_of_its_values_has_to_be_a_text(name):
    with pytest.raises(ValueError, match=f"^{name} is 5; it takes a text$"):
        Build.from_wire({name: 5})


@pytest.mark.parametrize("path", ["/" + "x" * 5000, "/dev/zero", "/", "//", "/."], ids=ascii)
async def test_a_path_that_is_no_file_is_refused(served, path):
    async with served.client() as client:
        assert await client.code("mase/open", path=path) == "not-found"
        assert await client.code("mase/graph", path=path) == "not-open"


@fuzzed
@given(messages=st.lists(VALUES, max_size=5))
async def test_any_values_instead_of_messages_are_answered_or_end_the_connection(served, messages):
    async with served.client() as client:
        for message in messages:
            client.send(message)
        client.send(msgpack.packb([0, 99, "mase/files", [{}]]))
        client.writer.write_eof()  # bytes among the values may be the first of a message that never ends
        while (told := await client.next()) is not None and told[:2] != [1, 99]:
            assert told[0] in (1, 2)
    await alive(served)


def mutated(dice, data):
    """A message with bytes flipped, dropped, doubled, or cut off."""
    data = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        place = dice.randrange(len(data))
        match dice.randrange(5):
            case 0:
                data[place] ^= 1 << dice.randrange(8)
            case 1:
                del data[place:]
            case 2:
                data[place:place] = data[: dice.randrange(len(data)) + 1]
            case 3:
                data[place] = dice.choice(b"\x90\x91\x94\xc1\xc4\xc6\xcf\xdb\xdc\xdd\xde\xdf\xff")
            case 4:
                data[place:place] = dice.randbytes(dice.randint(1, 40))
        data = data or bytearray(b"\x94")
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
async def test_broken_bytes_crash_nothing(served, seed):
    dice = random.Random(seed)
    path = served.show("bytes.py")
    good = [
        msgpack.packb([0, 1, "mase/graph", [{"path": path}]]),
        msgpack.packb([0, 2, "mase/nodeAt", [{"path": path, "line": 2, "column": 0}]]),
        msgpack.packb([2, "mase/cancel", [{"id": 1}]]),
        msgpack.packb([0, 3, "mase/subscribe", [{"topics": ["graph"]}]]),
    ]
    for _ in range(250):
        async with served.client() as client:
            client.send(mutated(dice, b"".join(dice.choices(good, k=3))))
            if dice.random() < 0.3:
                await client.writer.drain()
                continue
            client.writer.write_eof()
            while await client.next() is not None:
                pass
    await alive(served)
    await _settled(served)


async def _settled(served):
    """Wait until every connection is gone."""
    for _ in range(1000):
        if not served.front.connections:
            return
        await asyncio.sleep(0.01)
    left = [{name: getattr(each, name, None) for name in dir(each)} for each in served.front.connections]
    raise AssertionError(f"{len(left)} connections are left: {left}")


@pytest.fixture
def traced_memory():
    """The bytes that Python holds of what is made from now on; the process has gigabytes of other tests besides."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


async def test_nothing_grows(served, traced_memory):
    dice = random.Random(5)
    good = msgpack.packb([0, 1, "mase/info", [{"methods": True}]]) * 3

    async def round_of(number):
        for _ in range(number):
            async with served.client() as client:
                client.send(mutated(dice, good))
                await client.writer.drain()
        await _settled(served)
        gc.collect()
        return traced_memory()

    await round_of(300)
    tasks = len(asyncio.all_tasks())
    before = await round_of(1)
    files = len(list(Path("/proc/self/fd").iterdir()))
    after = await round_of(1500)
    assert after - before < 1 << 18
    assert len(asyncio.all_tasks()) <= tasks + 1
    assert len(list(Path("/proc/self/fd").iterdir())) <= files
    assert not served.daemon.events._subscribers


BEGUN = msgpack.packb([0, 1, "mase/info", [{}]])[:-3]


async def begin(client, number):
    """One of the ways to hold a connection without ever finishing anything."""
    match number % 5:
        case 0:
            client.send(BEGUN)
        case 1:
            client.send(b"\xdd\x00\x00\x0f\xff" + b"\x91" * 100)
        case 2:
            client.send(BEGUN[:1])
            client.writer.write_eof()
        case 3:
            client.send(msgpack.packb([0, 1, "mase/info", ["x" * 1000]])[:700])
        case 4:
            client.send(b"".join(msgpack.packb([0, each, "mase/info", [{"methods": True}]]) for each in range(40)))
            client.send(BEGUN)


async def test_five_hundred_that_never_finish_are_ended_while_another_is_served(limited):
    served = await limited(frame_seconds=1.0, end_seconds=0.5, drain_seconds=1.0, send_buffer=1 << 14)
    files = len(list(Path("/proc/self/fd").iterdir()))
    slow = []
    for number in range(500):
        slow.append(await Raw.connected(served.path))
        await begin(slow[-1], number)
    async with served.client() as other:
        answered = 0
        while len(served.front.connections) > 1 or answered < 20:
            assert (await other.result("mase/files"))["files"] == []
            answered += 1
    assert served.front.counts.connections == 501
    for client in slow:
        client.writer.transport.abort()
    await _settled(served)
    await asyncio.sleep(0)
    assert len(list(Path("/proc/self/fd").iterdir())) <= files + 1
