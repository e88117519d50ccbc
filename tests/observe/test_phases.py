"""What the time of a trace went to, and the line that says so while it is slow."""

import asyncio
import re
import sys
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.daemon import slowness
from mase_server.daemon.death import Place
from mase_server.daemon.slots import Slots
from mase_server.daemon.slowness import Phases, Slowness, in_words
from mase_server.daemon.status import Status
from mase_server.protocol.request import TraceRequest
from mase_server.tracing.recording.positions import report_phase, report_phases_to
from mase_server.worker import parent
from mase_server.worker.job import trace

KINDS = ("import", "running", "constructor", "nonsense", "")


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 90), st.integers(-5, 50)), max_size=80))
def test_all_seconds_count_for_exactly_one_phase_whatever_a_child_says(steps):
    phases, now = Phases(0.0), 0.0
    for kind, of, passed in steps:
        at = now + passed
        if kind:
            phases.enter(kind, f"m{of}", at)
        else:
            phases.leave(at)
        now = max(now, at)
    phases.longest(now)
    assert sum(phases.seconds.values()) == pytest.approx(now)
    assert len(phases.seconds) <= 65
    assert len(phases.stack) >= 1


def test_a_phase_does_not_count_what_lies_in_it():
    phases = Phases(0.0)
    phases.become("starting", 1.0)
    phases.become("rest", 2.0)
    phases.enter("running", "net.py", 2.0)
    phases.enter("import", "transformers", 3.0)
    phases.leave(9.0)
    phases.leave(10.5)
    assert phases.longest(10.5) == (("import", "transformers"), 6.0)
    expected = {"queued": 1.0, "starting": 1.0, "running": 2.5, "import transformers": 6.0}
    assert phases.told() == expected


@pytest.mark.parametrize(
    ("given", "place", "told"),
    [
        (("import", "transformers"), None, "importing transformers"),
        (("constructor", ""), Place("net.py", 12, "__init__"), "constructing a model (line 12 in __init__)"),
        (("running", "net.py"), Place("net.py", 3, "<module>"), "running net.py (line 3)"),
        (("inputs", "Net"), None, "looking for inputs of Net (give them with # mase:)"),
        (("queued", ""), None, "waiting for its turn"),
    ],
)
def test_a_phase_is_told_in_words(given, place, told):
    assert in_words(given, place) == told


def test_the_tracing_process_reports_what_begins_and_ends_and_no_thread_of_the_person_s_does():
    sent = []

    def fail():
        with report_phase("import", "a"):
            with report_phase("constructor"):
                pass
            thread = threading.Thread(target=lambda: report_phase("import", "b").__enter__())
            thread.start()
            thread.join()
            raise ValueError("x")

    with report_phases_to(sent.append), pytest.raises(ValueError, match="x"):
        fail()
    with report_phase("import", "c"):
        pass
    assert [(each["kind"], each["of"]) for each in sent] == [("import", "a"), ("constructor", ""), ("", ""), ("", "")]


class Watch:
    """Slowness whose patience is `slow` seconds; what it says arrives in `lines`."""

    def __init__(self, slow=0.0, before=lambda path: 0):
        self.lines, self.phases = asyncio.Queue(), []
        self.slowness = Slowness(self.tell, before, slow)

    def tell(self, path, stage, line):
        if stage == slowness.PHASE:
            self.phases.append(line)
        else:
            self.lines.put_nowait((path, line))

    def become(self, state, generation=1):
        self.slowness.status_changed(Status("/w/net.py", state, generation, "", None, False, False, 0.0, ""))

    def phase(self, kind, of=""):
        told = {"event": "phase", "kind": kind, "of": of, "at": asyncio.get_running_loop().time()}
        self.slowness.heard("/w/net.py", told, lambda: Place("/w/net.py", 7, "__init__"))

    async def line(self):
        path, line = await self.lines.get()
        assert path == "/w/net.py"
        return re.fullmatch(r"net\.py: \d+\.\d s(?:: |, of which )(.*)", line)[1]


async def test_a_slow_trace_says_what_it_is_at_and_what_took_longest_when_it_is_over(monkeypatch):
    monkeypatch.setattr(slowness, "AGAIN", 0.0)
    watch = Watch()
    watch.become("queued")
    watch.become("starting")
    watch.become("tracing")
    watch.phase("running", "net.py")
    why = await watch.line()
    while why != "running it (line 7 in __init__)":
        why = await watch.line()
    while not watch.lines.empty():
        watch.lines.get_nowait()
    watched = watch.slowness._watched["/w/net.py"]
    watched.phases.seconds[("running", "net.py")] = 30.0
    watch.become("ready")
    assert (await watch.line()) == "30.0 s running it"
    assert watch.lines.empty()
    assert watch.slowness.phases("/w/net.py") == {}


async def test_what_is_over_is_told_only_at_the_end():
    watch = Watch(slow=1000)
    watch.become("queued")
    watch.become("tracing")
    watched = watch.slowness._watched["/w/net.py"]
    watched.phases.seconds[("import", "a")] = 30.0
    watch.phase("running", "net.py")
    watch.slowness._look("/w/net.py")
    assert await watch.line() == "running it (line 7 in __init__)"
    watch.phase("")
    assert watch.phases == ["preparing the next step", "running it", "preparing the next step"]
    watch.become("ready")
    assert await watch.line() == "30.0 s importing a"


async def test_a_trace_that_waits_says_behind_how_many():
    watch = Watch(before=lambda path: 3)
    watch.become("queued")
    assert await watch.line() == "waiting: 3 traces before it"


async def test_a_quick_trace_says_nothing():
    watch = Watch(slow=1000)
    watch.become("queued")
    watch.become("tracing")
    watch.become("ready")
    assert watch.lines.empty()
    assert watch.slowness._watched == {}


async def test_news_of_an_older_generation_end_nothing():
    watch = Watch(slow=1000)
    watch.become("queued", 1)
    watch.become("queued", 2)
    watch.become("superseded", 1)
    assert "/w/net.py" in watch.slowness._watched
    watch.become("ready", 2)
    assert watch.slowness._watched == {}


async def test_traces_wait_in_the_order_in_which_they_came():
    slots, order = Slots(2, busy=2), []
    leave = asyncio.Event()

    async def trace(path):
        async with slots.turn(path):
            order.append(path)
            await leave.wait()

    tasks = [asyncio.create_task(trace(path)) for path in "abcde"]
    await asyncio.sleep(0)
    assert (slots.running, slots.waiting, [slots.before(path) for path in "abcde"]) == (2, 3, [0, 0, 2, 3, 4])
    tasks[3].cancel()
    await asyncio.gather(tasks[3], return_exceptions=True)
    assert slots.before("e") == 3
    leave.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (order, slots.running, slots.waiting) == (list("abce"), 0, 0)


async def test_who_comes_while_all_processors_are_taken_is_told_that_it_is_crowded():
    slots, told = Slots(4, busy=2), {}
    leave = asyncio.Event()

    async def trace(path):
        async with slots.turn(path) as told[path]:
            await leave.wait()

    first = [asyncio.create_task(trace(path)) for path in "abc"]
    await asyncio.sleep(0)
    assert told == {"a": False, "b": False, "c": True}
    leave.set()
    await asyncio.gather(*first)
    await trace("d")
    assert told["d"] is False


def test_a_child_says_the_name_of_its_request_when_it_is_done():
    sent = []
    parent.run_job(
        SimpleNamespace(send=sent.append), TraceRequest("/w/a.py", "/w", "", 1, name="s7"), "/nowhere.py:trace"
    )
    assert [message["event"] for message in sent] == ["failed", "done"]
    assert sent[-1]["request"] == "s7"


def test_a_package_of_the_workspace_is_one_import(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (tmp_path / "ours").mkdir()
    for name in ("__init__", "first", "second"):
        (tmp_path / "ours" / f"{name}.py").write_text("import colorsys\n" if name == "second" else "")
    path = tmp_path / "net.py"
    path.write_text("import torch\nimport ours.first\nimport ours.second\n")
    sent = []
    try:
        trace(TraceRequest(str(path), str(tmp_path), "", 1, scratch=str(tmp_path / "scratch")), sent.append)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "ours"]:
            del sys.modules[name]
    phases = [message["of"] for message in sent if message.get("kind") == "import"]
    assert phases == ["ours.first", "colorsys"]
