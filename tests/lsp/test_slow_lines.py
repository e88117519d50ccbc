"""What is slow, as clients hear it: by the extension's notification, else in the progress of the trace."""

from types import SimpleNamespace

import pytest

from mase_server.daemon.slowness import STAGE
from mase_server.lsp.listener import SLOW, ClientListener

LINE = "net.py: 12.4 s: import of transformers 9.1 s"


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


@pytest.mark.parametrize(
    ("commands", "messages"),
    [(("mase.showActions",), []), ((), ["12.4 s: import of transformers 9.1 s"])],
)
def test_what_is_slow_is_told_once_where_the_client_has_a_place_for_it(commands, messages):
    client = Client(*commands)
    listener, reports = reported(client)
    listener.progress("/w/net.py", STAGE, LINE)
    assert client.told == [(SLOW, {"uri": "file:///w/net.py", "text": LINE})]
    assert reports == messages


def test_a_stage_is_reported_as_before():
    client = Client("mase.showActions")
    listener, reports = reported(client)
    listener.progress("/w/net.py", "probing", "Net")
    assert (client.told, reports) == ([], ["Net"])


def test_nothing_is_told_before_the_client_has_begun():
    client = Client(initialized=False)
    listener, reports = reported(client)
    listener.progress("/w/net.py", STAGE, LINE)
    assert (client.told, reports) == ([], [])
