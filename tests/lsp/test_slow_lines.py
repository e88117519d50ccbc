"""What is slow, as clients hear it: by the extension's notification, else in the progress of the trace."""

from types import SimpleNamespace

from mase_server.daemon.slowness import PHASE, STAGE
from mase_server.daemon.status import Status
from mase_server.lsp.listener import SLOW, STATUS, ClientListener

LINE = "net.py: 12.4 s: importing transformers"


class Client(SimpleNamespace):
    """A server whose client knows these commands; `told`: what it was notified of."""

    def __init__(self, *commands, initialized=True):
        super().__init__(told=[], initialized=initialized)
        self.protocol = SimpleNamespace(notify=lambda method, params: self.told.append((method, params)))
        self.uris_of = lambda path: [f"file://{path}"]
        self.knows = commands.__contains__
        self.can = lambda *names: False


def reported(client):
    """The listener of a client, and what it reports as progress of `/w/net.py`."""
    listener, messages = ClientListener(client), []
    listener._progress["/w/net.py"] = SimpleNamespace(report=messages.append)
    return listener, messages


def test_what_is_slow_is_told_in_a_notification_and_in_the_progress():
    client = Client()
    listener, reports = reported(client)
    listener.progress("/w/net.py", STAGE, LINE)
    assert client.told == [(SLOW, {"uri": "file:///w/net.py", "text": LINE})]
    assert [text.strip() for text in reports] == ["12.4 s: importing transformers"]


def test_a_stage_is_reported_in_a_constant_width_without_the_words_of_the_title():
    client = Client()
    listener, reports = reported(client)
    stages = (("importing", "net.py"), (PHASE, "running it"), ("tracing", "Net"), (PHASE, "running Net"), (STAGE, LINE))
    for stage, message in stages:
        listener.progress("/w/net.py", stage, message)
    assert [text.strip() for text in reports] == ["running it", "running Net", "12.4 s: importing transformers"]
    assert {len(text) for text in reports} == {64}


def test_a_client_with_a_place_for_the_state_of_a_trace_gets_no_progress_beside_it():
    client = Client("mase.showActions")
    client.can = lambda *names: True
    client.daemon = SimpleNamespace(cancel=lambda path: None)
    client.folders = SimpleNamespace(folder_of=lambda path: "/w", log_level="error")
    listener = ClientListener(client)
    status = Status("/w/net.py", "queued", 1, "", None, False, False, 0.0, "")
    listener.status_changed(status)  # a progress would spawn a task, which this client cannot
    assert [method for method, _ in client.told] == [STATUS]


def test_nothing_is_told_before_the_client_has_begun():
    client = Client(initialized=False)
    ClientListener(client).progress("/w/net.py", STAGE, LINE)
    assert client.told == []
