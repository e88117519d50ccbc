"""Of a message that was answered, and of progress that has ended, the server keeps nothing: it runs all day."""

from __future__ import annotations

import asyncio
import json

import pytest

from mase_server.daemon.daemon import Daemon
from mase_server.lsp import listener
from mase_server.lsp.listener import Progress
from mase_server.lsp.server import Server

CAPABILITIES = {"window": {"workDoneProgress": True}}


class Client:
    """What a client sends and hears, without a process between."""

    def __init__(self, tmp_path):
        self.server = Server(daemon=Daemon, cache_dir=tmp_path / "cache", state_dir=tmp_path / "state")
        self.server.protocol.set_writer(self)
        self._heard = asyncio.Queue()

    def write(self, data):
        for part in data.split(b"Content-Length: ")[1:]:
            self._heard.put_nowait(json.loads(part.split(b"\r\n\r\n", 1)[1]))

    def close(self):
        """There is nothing to close."""

    def send(self, **message):
        protocol = self.server.protocol
        protocol.handle_message(protocol.structure_message({"jsonrpc": "2.0", **message}))

    async def heard(self, **wanted):
        """The next message that has all of this."""
        while not wanted.items() <= (message := await asyncio.wait_for(self._heard.get(), 30)).items():
            pass
        return message


@pytest.fixture
async def client(tmp_path):
    found = Client(tmp_path)
    found.send(id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": CAPABILITIES})
    await found.heard(id=1)
    yield found
    await found.server.stop()


async def test_notifications_and_requests_leave_nothing(client):
    document = {"uri": "file:///nowhere/a.py", "version": 2}
    for number in range(2, 12):
        client.send(method="textDocument/didChange", params={"textDocument": document, "contentChanges": []})
        client.send(id=number, method="textDocument/inlayHint", params={
            "textDocument": {"uri": document["uri"]},
            "range": {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}},
        })  # fmt: skip
        assert (await client.heard(id=number))["result"] is None
    await asyncio.sleep(0)
    assert client.server.protocol._request_futures == {}


async def test_what_is_still_worked_on_is_kept_so_that_it_can_be_cancelled(client):
    client.server.feature("test/waits")(waits)
    client.send(id=2, method="test/waits", params=None)
    await asyncio.sleep(0)
    assert list(client.server.protocol._request_futures) == [2]
    client.send(method="$/cancelRequest", params={"id": 2})
    assert "canceled" in (await client.heard(id=2))["error"]["message"]
    assert client.server.protocol._request_futures == {}


async def waits(_):
    await asyncio.Event().wait()


@pytest.mark.parametrize("ends_before_it_is_shown", [False, True])
async def test_progress_that_has_ended_leaves_nothing(client, monkeypatch, ends_before_it_is_shown):
    monkeypatch.setattr(listener, "DELAY", 0.0)
    one = Progress(client.server, "Tracing", lambda: None)
    asked = await client.heard(method="window/workDoneProgress/create")
    if ends_before_it_is_shown:
        one.end()
    client.send(id=asked["id"], result=None)
    if not ends_before_it_is_shown:
        assert (await client.heard(method="$/progress"))["params"]["value"]["kind"] == "begin"
        one.end()
        assert (await client.heard(method="$/progress"))["params"]["value"]["kind"] == "end"
    for _ in range(5):
        await asyncio.sleep(0)
    assert client.server.work_done_progress.tokens == {}
    assert client.server.cancels == {}
    assert client.server.protocol._request_futures == {}
