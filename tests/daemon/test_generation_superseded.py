"""A generation after which there is another one says nothing more, however far it came before it heard of that."""

from types import SimpleNamespace

import pytest

from mase_server.daemon.generation import Generation
from mase_server.daemon.store import Entry, Store
from mase_server.daemon.supervisor import Outcome
from mase_server.daemon.tracked import Source, Tracked
from mase_server.daemon.unsaved import Unsaved
from mase_server.protocol.snapshot import Problem


class Said:
    """What a listener is told, by name."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *about: self.told.append((name, about))


def generation(tracked):
    services = SimpleNamespace(
        store=Store(),
        listener=Said(),
        settings_of=lambda folder: None,
        passes=SimpleNamespace(asked=lambda path: {}),
        unsaved=Unsaved(),
    )
    return Generation(services, tracked), services


@pytest.mark.parametrize("problems", [(), (Problem("/w/net.py", 1, 0, 2, 0, "error", "exception", "no"),)])
def test_a_superseded_generation_that_ends_is_not_taken_for_the_newest(problems):
    tracked = Tracked("/w/net.py", "/w")
    tracked.next_generation(Source(b"a", "a"))
    first, services = generation(tracked)
    tracked.next_generation(Source(b"b", "b"))
    worker = SimpleNamespace()
    assert first._finish(Outcome("ready", 0.1, problems), worker) is False
    first._fail("failed", problems, "no")
    first._end_without(Entry("/w/net.py", "a"), "no_model", "none")
    assert services.listener.told == []
    assert services.store.entry("/w/net.py") == Entry("/w/net.py")
    assert not tracked.ended.is_set()
    assert tracked.worker is None
