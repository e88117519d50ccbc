"""A headless editor: the real `mase-server lsp` over stdio, driven as VS Code drives it."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Self

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

SERVER = (sys.executable, "-m", "mase_server", "lsp")
END_STATES = {"ready", "failed", "crashed", "superseded", "untrusted", "no_model", "no_environment"}
CAPABILITIES = lsp.ClientCapabilities(
    general=lsp.GeneralClientCapabilities(position_encodings=[lsp.PositionEncodingKind.Utf32]),
    text_document=lsp.TextDocumentClientCapabilities(
        inlay_hint=lsp.InlayHintClientCapabilities(),
        hover=lsp.HoverClientCapabilities(content_format=[lsp.MarkupKind.Markdown]),
        code_lens=lsp.CodeLensClientCapabilities(),
        publish_diagnostics=lsp.PublishDiagnosticsClientCapabilities(related_information=True, version_support=True),
        code_action=lsp.CodeActionClientCapabilities(
            code_action_literal_support=lsp.ClientCodeActionLiteralOptions(
                code_action_kind=lsp.ClientCodeActionKindOptions(value_set=[lsp.CodeActionKind.QuickFix])
            )
        ),
    ),
    workspace=lsp.WorkspaceClientCapabilities(
        inlay_hint=lsp.InlayHintWorkspaceClientCapabilities(refresh_support=True),
        workspace_edit=lsp.WorkspaceEditClientCapabilities(document_changes=True),
    ),
    window=lsp.WindowClientCapabilities(work_done_progress=True),
)


class Editor:
    """One window on one folder. `async with Editor(folder) as editor:` starts the server and ends it.

    Times are seconds of `time.perf_counter`. Columns are code points (utf-32 is the only encoding offered).
    """

    def __init__(self, folder: Path, command: Sequence[str] = SERVER, **settings: Any) -> None:
        self.folder = folder
        self._options = {"trusted": True, "interpreter": sys.executable, **settings}
        self.command = command
        self.client = LanguageClient("headless-editor", "1")
        self.statuses: list[Any] = []
        self.diagnostics: dict[str, Sequence[lsp.Diagnostic]] = {}
        self.refreshed = asyncio.Event()
        self._changed = asyncio.Condition()
        self._versions: dict[str, int] = {}
        self._lines: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._stderr: deque[str] = deque(maxlen=60)
        self._listen()

    async def __aenter__(self) -> Self:
        started = perf_counter()
        await self.client.start_io(*self.command, cwd=self.folder)
        self._draining = asyncio.create_task(self._drain())
        folder = lsp.WorkspaceFolder(self.folder.as_uri(), self.folder.name)
        await self.client.initialize_async(
            lsp.InitializeParams(
                capabilities=CAPABILITIES,
                workspace_folders=[folder],
                initialization_options=self._options,
            )
        )
        self.start_seconds = perf_counter() - started
        self.client.initialized(lsp.InitializedParams())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await asyncio.wait_for(self.process.wait(), 10)
        self._draining.cancel()
        self.client._stop_event.set()

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The server."""
        assert self.client._server is not None
        return self.client._server

    @property
    def stderr(self) -> str:
        """The last lines that the server logged."""
        return "".join(self._stderr)

    def open(self, path: Path) -> None:
        """Open a file."""
        text = path.read_text(encoding="utf-8")
        self._versions[path.as_uri()] = 1
        self._lines[path.as_uri()] = text.count("\n")
        document = lsp.TextDocumentItem(path.as_uri(), lsp.LanguageKind.Python, 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(document))

    def close(self, path: Path) -> None:
        """Close a file."""
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(path.as_uri())))

    def change(self, path: Path, text: str) -> None:
        """Replace the text in the editor, unsaved."""
        uri = path.as_uri()
        self._versions[uri] += 1
        self._lines[uri] = text.count("\n")
        document = lsp.VersionedTextDocumentIdentifier(self._versions[uri], uri)
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [whole]))

    def save(self, path: Path, text: str) -> None:
        """Type the text, write the file, and say that it was saved."""
        self.change(path, text)
        path.write_text(text, encoding="utf-8")
        self._asked[path.as_uri()] = len(self.statuses)
        self.client.text_document_did_save(lsp.DidSaveTextDocumentParams(self._document(path)))

    async def settled(self, path: Path, timeout: float = 60.0) -> Any:
        """The end state of the last save, for what is on disk now. Raises TimeoutError, with the server's log."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        since = self._asked.get(path.as_uri(), 0)

        def found() -> Any:
            of_file = (s for s in self.statuses[since:] if s.uri == path.as_uri() and s.sha256 == digest)
            return next((s for s in of_file if s.state in END_STATES - {"superseded"}), None)

        try:
            async with self._changed, asyncio.timeout(timeout):
                await self._changed.wait_for(lambda: found() is not None)
        except TimeoutError:
            raise TimeoutError(f"no end state for {path} in {timeout} s; the server's log:\n{self.stderr}") from None
        return found()

    async def save_and_settle(self, path: Path, text: str, fresh: Callable[[str], bool]) -> float:
        """Seconds from a save until the hints were read that belong to it; `fresh` tells by a label's text."""
        started = perf_counter()
        self.save(path, text)
        status = await self.settled(path)
        hints = await self.hints(path)
        seconds = perf_counter() - started
        labels = [label(hint) for hint in hints]
        if status.state != "ready" or not any(map(fresh, labels)):
            raise RuntimeError(
                f"{path.name} after a save: {status.state}, {status.message}, hints {labels}\n{self.stderr}"
            )
        return seconds

    async def refreshed_again(self, timeout: float = 60.0) -> None:
        """Wait until the server asks for its hints to be read again. Raises TimeoutError, with the server's log."""
        try:
            async with asyncio.timeout(timeout):
                await self.refreshed.wait()
        except TimeoutError:
            raise TimeoutError(f"no inlay refresh in {timeout} s; the server's log:\n{self.stderr}") from None
        self.refreshed.clear()

    async def hints(self, path: Path, first: int = 0, last: int | None = None) -> Sequence[lsp.InlayHint]:
        """The hints of a range of lines, from 0; by default of the whole file."""
        end = self._lines[path.as_uri()] if last is None else last
        lines = lsp.Range(lsp.Position(first, 0), lsp.Position(end, 0))
        params = lsp.InlayHintParams(self._document(path), lines)
        return await self.client.text_document_inlay_hint_async(params) or []

    async def hover(self, path: Path, line: int, column: int) -> str | None:
        """The hover card's markdown at a position, from 0."""
        params = lsp.HoverParams(self._document(path), lsp.Position(line, column))
        answer = await self.client.text_document_hover_async(params)
        return answer.contents.value if answer and isinstance(answer.contents, lsp.MarkupContent) else None

    async def fixes(self, path: Path, diagnostic: lsp.Diagnostic) -> Sequence[lsp.CodeAction]:
        """The quick fixes of one diagnostic."""
        context = lsp.CodeActionContext([diagnostic], only=[lsp.CodeActionKind.QuickFix])
        params = lsp.CodeActionParams(self._document(path), diagnostic.range, context)
        actions = await self.client.text_document_code_action_async(params) or []
        return [action for action in actions if isinstance(action, lsp.CodeAction)]

    async def lenses(self, path: Path) -> Sequence[lsp.CodeLens]:
        """The code lenses of a file."""
        return await self.client.text_document_code_lens_async(lsp.CodeLensParams(self._document(path))) or []

    async def execute(self, path: Path, name: str, **given: Any) -> Any:
        """The answer of a command on a file."""
        params = lsp.ExecuteCommandParams(name, [{"uri": path.as_uri(), **given}])
        return await self.client.workspace_execute_command_async(params)

    def _document(self, path: Path) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(path.as_uri())

    async def _drain(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._stderr.append(line.decode(errors="replace"))

    def _listen(self) -> None:
        client = self.client

        async def status(status: Any) -> None:
            async with self._changed:
                self.statuses.append(status)
                self._changed.notify_all()

        async def published(params: lsp.PublishDiagnosticsParams) -> None:
            self.diagnostics[params.uri] = params.diagnostics

        async def refresh(_: Any) -> None:
            self.refreshed.set()

        client.feature("mase/status")(status)
        client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(published)
        client.feature(lsp.WORKSPACE_INLAY_HINT_REFRESH)(refresh)
        for ignored in (
            "mase/pipelines",
            "mase/slow",
            "mase/viewsChanged",
            lsp.WORKSPACE_CODE_LENS_REFRESH,
            lsp.WORKSPACE_DIAGNOSTIC_REFRESH,
            lsp.WINDOW_WORK_DONE_PROGRESS_CREATE,
            lsp.CLIENT_REGISTER_CAPABILITY,
            lsp.WINDOW_LOG_MESSAGE,
            lsp.WINDOW_SHOW_MESSAGE,
            lsp.PROGRESS,
        ):
            client.feature(ignored)(_ignore)


async def _ignore(_: Any) -> None:
    return None


def label(hint: lsp.InlayHint) -> str:
    """A hint's text."""
    return hint.label if isinstance(hint.label, str) else "".join(part.value for part in hint.label)


def family(pid: int) -> Iterator[int]:
    """A process and all its descendants (Linux)."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from family(int(child))


def memory(pid: int, key: str = "VmRSS") -> float:
    """MiB of a process, as /proc tells: VmRSS now, VmHWM at its peak. 0.0 if it has ended."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(row.split()[1]) / 1024 for row in rows if row.startswith(key + ":")), 0.0)


def maps(pid: int, library: str) -> bool:
    """Has the process mapped a file whose name contains `library`?"""
    return library in Path(f"/proc/{pid}/maps").read_text()
