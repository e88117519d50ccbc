"""A server without a compiler, for tests of the client alone: fake_server.py LOG.

It writes to LOG, one JSON object a line, what was asked of it, and answers from the text: every assignment's hint is
`: f32[B, <line number>]`.
"""

import json
import os
import sys
import time
from hashlib import sha256
from pathlib import Path

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

LOG = Path(sys.argv[1])
server = LanguageServer("fake", "0")
generation = 0


def record(event: str, **details: object) -> None:
    with LOG.open("a") as log:
        log.write(json.dumps({"event": event, "pid": os.getpid(), **details}) + "\n")


def status(uri: str, state: str) -> None:
    digest = sha256(server.workspace.get_text_document(uri).source.encode()).hexdigest()
    body = {"uri": uri, "state": state, "generation": generation, "sha256": digest, "shown_sha256": digest}
    server.protocol.notify("mase/status", {**body, "stale": False, "live": True, "seconds": 0.04, "message": "fake"})


async def trace(uri: str) -> None:
    global generation
    generation += 1
    for state in ("queued", "tracing", "ready"):
        status(uri, state)
    await configuration(uri)


async def configuration(uri: str) -> None:
    item = lsp.ConfigurationItem(scope_uri=uri, section="mase")
    answer = await server.workspace_configuration_async(lsp.ConfigurationParams(items=[item]))
    record("configuration", uri=uri, interpreter=answer[0]["interpreter"], run_main=answer[0]["runMain"])


@server.feature(lsp.INITIALIZE)
async def initialize(params: lsp.InitializeParams) -> None:
    options = params.initialization_options
    record("initialize", trusted=options["trusted"], interpreter=options["interpreter"])


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
    record("opened", uri=params.text_document.uri)
    await trace(params.text_document.uri)


@server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
async def configured(params: lsp.DidChangeConfigurationParams) -> None:
    for uri in server.workspace.text_documents:
        await configuration(uri)


@server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
async def hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    lines = server.workspace.get_text_document(params.text_document.uri).source.splitlines()
    names = [(row, line.partition(" = ")) for row, line in enumerate(lines)]
    return [
        lsp.InlayHint(lsp.Position(row, len(name)), f": f32[B, {row + 1}]")
        for row, (name, equals, _) in names
        if equals and name.strip().isidentifier()
    ]


@server.command("mase.retrace")
async def retrace(uri: str) -> None:
    record("retrace", uri=uri)
    await trace(uri)


@server.command("mase.restart")
async def restart() -> None:
    """The extension has a command of this name too; VS Code knows each name once."""


@server.feature(lsp.SHUTDOWN)
async def shutdown(*_: object) -> None:
    record("shutdown", at=time.time())


if __name__ == "__main__":
    record("started")
    server.start_io()
