"""News: what happens is told to whoever subscribed; who does not read hears the newest, or is dropped."""

import asyncio

import pytest

from mase_server.daemon.methods import ApiError
from mase_server.rpc.connection import Outbox

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def event(client, topic, until=lambda event: True):
    while True:
        kind, method, params = await client.next()
        assert (kind, method) == (2, "mase/event")
        if params[0]["topic"] == topic and until(params[0]):
            return params[0]


async def test_a_trace_is_told_from_its_beginning_to_its_end(served, client):
    path = served.write("told.py", "PROBLEMS = [('error', 'bad', 'no')]\nx = 1  # shape f32[2, 3]\n")
    subscribed = await client.result("mase/subscribe", topics=["worker"], path=path)
    client.send([2, "mase/open", [{"path": path}]])
    states = []
    while not states or states[-1] != "failed":
        told = await event(client, "worker")
        states.append(told["state"])
        assert (told["path"], told["subscriptions"]) == (path, [subscribed["subscription"]])
    assert states[-1] == "failed"


async def test_a_new_graph_and_its_problems_are_told(served, client):
    await client.result("mase/subscribe", topics=["graph", "problems"])
    path = served.show("news.py", problems=[(1, "error", "a"), (2, "warning", "b")], text="1")
    told = await event(client, "graph", lambda one: one["models"] == ["Net"])
    assert (told["path"], told["stale"]) == (path, False)
    told = await event(client, "problems", lambda one: one["path"] == path)
    assert (told["error"], told["warning"], told["information"]) == (1, 1, 0)


async def test_only_what_was_subscribed_to_is_told(served, client):
    mine, other = served.show("mine.py"), served.show("other.py")
    await client.result("mase/subscribe", topics=["graph"], path=mine)
    served.show("other.py", text="2")
    served.show("mine.py", text="2")
    told = await event(client, "graph")
    assert told["path"] == mine != other


async def test_after_the_end_of_a_subscription_nothing_is_told(served, client):
    number = (await client.result("mase/subscribe", topics=["graph"]))["subscription"]
    assert await client.result("mase/unsubscribe", subscription=number) == {"ended": True}
    assert await client.result("mase/unsubscribe", subscription=number) == {"ended": False}
    served.show("quiet.py")
    client.send([0, 9, "mase/files", [{}]])
    assert (await client.next())[:2] == [1, 9]


async def test_an_unknown_topic_is_refused(client):
    error, _ = await client.ask("mase/subscribe", {"topics": ["wether"]})
    assert error["message"] == "there is no topic 'wether'; there are graph, problems, worker, progress, verilog"


async def test_many_changes_in_one_turn_are_told_once(served, client):
    await client.result("mase/subscribe", topics=["graph"])
    for number in range(50):
        path = served.show("many.py", text=str(number), generation=number)
    told = await event(client, "graph", lambda one: one["path"] == path)
    assert told["coalesced"]
    assert told["sha256"] == served.daemon.store.snapshot(path).sha256
    client.send([0, 9, "mase/files", [{}]])
    assert (await client.next())[:2] == [1, 9]


async def test_who_reads_too_slowly_hears_the_newest_alone(limited):
    served = await limited(send_buffer=1024, events=50)
    async with served.client() as slow:
        await slow.result("mase/subscribe", topics=["graph"])
        for number in range(4000):
            path = served.show("slow.py", text=str(number), names=["N" * 200])
            await asyncio.sleep(0)
        newest = served.daemon.store.snapshot(path).sha256
        told, count = await event(slow, "graph"), 1
        while told["sha256"] != newest:
            told, count = await event(slow, "graph"), count + 1
        assert count < 4000
        assert told["coalesced"]


async def test_who_never_reads_is_dropped_with_a_reason_once_too_much_waits(limited):
    served = await limited(send_buffer=1024, events=20)
    async with served.client() as silent, served.client() as other:
        await silent.result("mase/subscribe", topics=["graph"])
        for number in range(2000):
            served.daemon.events.views_changed(frozenset({f"/{number}/{'x' * 500}.py"}))
            await asyncio.sleep(0)
        last = None
        while (message := await silent.next()) is not None:
            last = message
        assert last[1] == "mase/dropped"
        assert last[2][0]["message"] == "the client did not read its events: 20 different events were waiting"
        assert await other.result("mase/info")
    assert not served.daemon.events._subscribers


def outbox(**limits):
    return Outbox(lambda: None, **{"events": 3, "subscriptions": 2} | limits)


async def test_the_newest_takes_the_place_of_the_older_and_goes_last():
    box = outbox()
    number = box.subscribe(frozenset({"graph"}), None)
    for path, value in (("a", 1), ("b", 2), ("a", 3)):
        box.offer(("graph", path), {"topic": "graph", "path": path, "value": value})
    told = [(one["path"], one["value"], one.get("coalesced", False), one["subscriptions"]) for one in box.take()]
    assert told == [("b", 2, False, [number]), ("a", 3, True, [number])]
    assert list(box.take()) == []


async def test_too_many_subscriptions_are_refused():
    box = outbox()
    box.subscribe(frozenset({"graph"}), None)
    box.subscribe(frozenset({"graph"}), None)
    with pytest.raises(ApiError, match="a connection has at most 2 subscriptions"):
        box.subscribe(frozenset({"graph"}), None)


async def test_what_is_over_the_limit_is_not_kept():
    box = outbox()
    box.subscribe(frozenset({"graph"}), None)
    for number in range(9):
        box.offer(("graph", str(number)), {"topic": "graph", "path": str(number)})
    assert box.overrun == "3 different events were waiting"
    assert len(list(box.take())) == 3
