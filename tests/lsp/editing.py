"""An editor for tests: a client of the real server process, whose every message has to be read."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
import time
from itertools import takewhile
from pathlib import Path
from typing import Union

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient
from pygls.protocol import default_converter

FAKE_SERVER = Path(__file__).with_name("fake_server.py")
END_STATES = {"ready", "failed", "crashed", "superseded", "untrusted", "no_model", "no_environment"}
REFRESHES = (
    lsp.WORKSPACE_INLAY_HINT_REFRESH,
    lsp.WORKSPACE_CODE_LENS_REFRESH,
    lsp.WORKSPACE_DIAGNOSTIC_REFRESH,
)
_GRAPHS = lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH
#: What only this server tells, on its own account.
_NEWS = ("mase/status", "mase/slow", "mase/pipelines", "mase/viewsChanged")
#: What may be left unread at the end: it says nothing that a test did not ask for.
_ROUTINE = {
    *_NEWS,
    *REFRESHES,
    _GRAPHS,
    lsp.WINDOW_LOG_MESSAGE,
    lsp.WORKSPACE_CONFIGURATION,
    lsp.WINDOW_WORK_DONE_PROGRESS_CREATE,
    lsp.PROGRESS,
}


def converter():
    """pygls', which takes every code action that has a command for a bare command."""
    made = default_converter()
    made.register_structure_hook(Union[lsp.Command, lsp.CodeAction], _action)  # noqa: UP007 - the type as it is written
    return made


def _action(data, _):
    kind = lsp.Command if isinstance(data.get("command"), str) else lsp.CodeAction
    return _PLAIN.structure(data, kind)


_PLAIN = default_converter()


def capabilities(
    *, encodings=None, pull=True, refresh=True, configuration=False, progress=False, lazy_edits=False, graphs=False
):
    """What this editor can do."""
    can = lsp.ClientCapabilities(
        general=lsp.GeneralClientCapabilities(
            position_encodings=encodings, markdown=lsp.MarkdownClientCapabilities("marked")
        ),
        text_document=lsp.TextDocumentClientCapabilities(),
        window=lsp.WindowClientCapabilities(
            work_done_progress=progress, show_document=lsp.ShowDocumentClientCapabilities(support=True)
        ),
        workspace=lsp.WorkspaceClientCapabilities(
            configuration=configuration,
            workspace_edit=lsp.WorkspaceEditClientCapabilities(document_changes=True),
            inlay_hint=lsp.InlayHintWorkspaceClientCapabilities(refresh),
            code_lens=lsp.CodeLensWorkspaceClientCapabilities(refresh),
            diagnostics=lsp.DiagnosticWorkspaceClientCapabilities(refresh),
            text_document_content=lsp.TextDocumentContentClientCapabilities() if graphs else None,
        ),
    )
    if pull:
        can.text_document.diagnostic = lsp.DiagnosticClientCapabilities()
    if lazy_edits:
        resolve = lsp.ClientCodeActionResolveOptions(["edit"])
        can.text_document.code_action = lsp.CodeActionClientCapabilities(resolve_support=resolve)
    return can


#: Seconds without any news from a server after which nothing more is expected of it.
PATIENCE = 60
#: Seconds within which a request is answered, however much is to be done for it.
ANSWERED = 300


class Editor:
    """One editor with one server. Messages from the server wait in `unread` until a test takes them."""

    def __init__(self, folder: Path, *, can=None, options=None, settings=None, answer=None):
        self.folder, self.can, self.settings = folder, can or capabilities(), settings
        self.options = {"trusted": True} if options is None else options
        self.answer = answer
        #: Unset, the editor takes its time to tell its settings.
        self.tells_settings = asyncio.Event()
        self.tells_settings.set()
        self.unread: list[tuple[str, object]] = []
        self._arrived = asyncio.Event()
        self._versions: dict[Path, int] = {}
        self.client = LanguageClient("test-editor", "1", converter_factory=converter)
        told = (lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, lsp.WINDOW_SHOW_MESSAGE, lsp.WINDOW_LOG_MESSAGE, lsp.PROGRESS)
        for method in (*_NEWS, *told):
            self._listen(method, None)
        for method in (*REFRESHES, _GRAPHS):
            self._listen(method, lambda params: None)
        self._listen(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE, lambda params: None)
        self._listen(lsp.WORKSPACE_CONFIGURATION, self._tell_settings)
        self._listen(lsp.WINDOW_SHOW_MESSAGE_REQUEST, lambda params: self.answer)
        self._listen(lsp.WINDOW_SHOW_DOCUMENT, lambda params: lsp.ShowDocumentResult(True))
        self.client.protocol.send_request_async = self._limited(self.client.protocol.send_request_async)

    def _listen(self, method, answer):
        @self.client.feature(method)
        async def handler(*params):
            self.unread.append((method, params[0] if params else None))
            self._arrived.set()
            told = None if answer is None else answer(params[0] if params else None)
            return await told if inspect.isawaitable(told) else told

    async def _tell_settings(self, params):
        await self.tells_settings.wait()
        return [self.settings for _ in params.items]

    def _limited(self, send):
        """Requests that are sent at once, as they were, and whose answer is not waited for without end."""

        async def answer(method, coming):
            try:
                async with asyncio.timeout(ANSWERED):
                    return await coming
            except TimeoutError:
                raise AssertionError(self._never(f"answer to {method}", ANSWERED)) from None

        return lambda method, *params, **named: answer(method, send(method, *params, **named))

    async def start(self, *command, process_id=None):
        """Start the server and shake hands."""
        command = command or (sys.executable, str(FAKE_SERVER), str(self.folder / ".state"))
        await self.client.start_io(*command)
        return await self.initialize(process_id)

    async def initialize(self, process_id=None):
        params = lsp.InitializeParams(
            capabilities=self.can,
            process_id=process_id or os.getpid(),
            root_uri=self.folder.as_uri(),
            workspace_folders=[lsp.WorkspaceFolder(self.folder.as_uri(), self.folder.name)],
            initialization_options=self.options,
        )
        result = await self.client.initialize_async(params)
        self.client.initialized(lsp.InitializedParams())
        return result

    async def stop(self):
        """End the session in order; nothing the server said may be left unread."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        left = [method for method, _ in self.unread if method not in _ROUTINE]
        assert not left, f"never read: {[entry for entry in self.unread if entry[0] in left]}"
        assert code == 0

    @property
    def process(self):
        return self.client._server

    async def expect(self, method, accept=lambda params: True):
        """Take the first message of this kind, waiting for it while there is news, though not for ever."""
        end = time.monotonic() + ANSWERED
        while time.monotonic() < end:
            for entry in self.unread:
                if entry[0] == method and accept(entry[1]):
                    self.unread.remove(entry)
                    return entry[1]
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), PATIENCE)
            except TimeoutError:
                raise AssertionError(self._never(method, PATIENCE)) from None
        raise AssertionError(self._never(method, ANSWERED))

    def _never(self, what, seconds):
        """What is told of a message that did not come."""
        code = self.process.returncode
        server = "runs" if code is None else f"has ended with {code}"
        news = [(name, getattr(told, "uri", ""), getattr(told, "state", "")) for name, told in self.unread]
        return f"no {what} within {seconds} s; the server {server}; unread: {news}"

    async def end_state(self, path):
        """Take the next end state of a file."""
        status = await self.expect("mase/status", lambda s: s.uri == path.as_uri() and s.state in END_STATES)
        return status.state

    def open(self, path, text=None):
        """Open a file, written first if `text` is given."""
        if text is not None:
            path.write_bytes(text.encode())
        self._versions[path] = 1
        item = lsp.TextDocumentItem(path.as_uri(), "python", 1, path.read_bytes().decode())
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, path, *edits):
        """Type: each edit is (line, column, end line, end column, text), in the session's units."""
        self._versions[path] += 1
        changes = [
            lsp.TextDocumentContentChangePartial(lsp.Range(lsp.Position(a, b), lsp.Position(c, d)), text)
            for a, b, c, d, text in edits
        ]
        document = lsp.VersionedTextDocumentIdentifier(self._versions[path], path.as_uri())
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, changes))

    def retype(self, path, old, new):
        """Turn the ASCII text `old` into `new` by one edit, as small as it can be."""
        head = common(old, new)
        tail = common(old[head:][::-1], new[head:][::-1])
        self.change(path, (*point(old, head), *point(old, len(old) - tail), new[head : len(new) - tail]))

    def save(self, path, text):
        """Save `text`, which the document has to hold already; at once, so that nobody reads half of it."""
        beside = path.with_name(f".{path.name}.saving")
        beside.write_bytes(text.encode())
        beside.replace(path)
        self.client.text_document_did_save(lsp.DidSaveTextDocumentParams(self.id(path)))

    def close(self, path):
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(self.id(path)))

    def id(self, path):
        return lsp.TextDocumentIdentifier(path.as_uri())

    async def hints(self, path, first=0, last=1000):
        """{(line, character): label}"""
        area = lsp.Range(lsp.Position(first, 0), lsp.Position(last, 0))
        found = await self.client.text_document_inlay_hint_async(lsp.InlayHintParams(self.id(path), area))
        return {(hint.position.line, hint.position.character): hint.label for hint in found or ()}

    async def hover(self, path, line, character):
        position = lsp.Position(line, character)
        return await self.client.text_document_hover_async(lsp.HoverParams(self.id(path), position))

    async def diagnostics(self, path, previous=None):
        params = lsp.DocumentDiagnosticParams(self.id(path), previous_result_id=previous)
        return await self.client.text_document_diagnostic_async(params)

    async def actions(self, path, line, character, only=None):
        at = lsp.Range(lsp.Position(line, character), lsp.Position(line, character))
        params = lsp.CodeActionParams(self.id(path), at, lsp.CodeActionContext([], only=only))
        return await self.client.text_document_code_action_async(params)

    async def command(self, name, *arguments):
        """Have the server execute a command; its answer."""
        return await self.client.workspace_execute_command_async(lsp.ExecuteCommandParams(name, list(arguments)))

    async def lenses(self, path):
        """{line: titles of its lenses}"""
        found: dict[int, list[str]] = {}
        for lens in await self.client.text_document_code_lens_async(lsp.CodeLensParams(self.id(path))):
            found.setdefault(lens.range.start.line, []).append(lens.command.title)
        return found

    async def request(self, method, params):
        return await self.client.protocol.send_request_async(method, params)


def marked(hints):
    """Hints as they read while a changed text may have changed what they say."""
    return {at: re.sub(r"(?=\w)", "~", text, count=1) for at, text in hints.items()}


def common(one, other):
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def point(text, offset):
    """(line, column) of an offset."""
    return text.count("\n", 0, offset), offset - (text.rfind("\n", 0, offset) + 1)
