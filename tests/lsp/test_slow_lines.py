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
    [(("mase.showActions",), []), ((), ["import of transformers 9.1 s"])],
)
def test_what_is_slow_is_told_once_where_the_client_has_a_place_for_it(commands, messages):
    client = Client(*commands)
    listener, reports = reported(client)
    listener.progress("/w/net.py", STAGE, LINE)
    assert client.told == [(SLOW, {"uri": "file:///w/net.py", "text": LINE})]
    assert [text.strip() for text in reports] == messages


def test_a_stage_is_reported_in_a_constant_width_without_the_words_of_the_title():
    client = Client("mase.showActions")
    listener, reports = reported(client)
    for stage, message in (("importing", "net.py"), ("tracing", "Net"), ("probing", "Net")):
        listener.progress("/w/net.py", stage, message)
    assert client.told == []
    assert [text.strip() for text in reports] == ["import", "Net", "Net at other sizes"]
    assert {len(text) for text in reports} == {64}


def test_nothing_is_told_before_the_client_has_begun():
    client = Client(initialized=False)
    listener, reports = reported(client)
    listener.progress("/w/net.py", STAGE, LINE)
    assert (client.told, reports) == ([], [])
