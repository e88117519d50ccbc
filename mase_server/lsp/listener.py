"""Pass the daemon's notifications on to the editor: fresh views, states, progress, and the lines of its log."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from lsprotocol import types as lsp

from mase_server.daemon import slowness
from mase_server.daemon.status import Listener, Status, describe_unshown
from mase_server.lsp import diagnostics
from mase_server.lsp.calls import models_of
from mase_server.protocol.answers.files import TraceStatus
from mase_server.protocol.codes import LINE, STEPS
from mase_server.telemetry.records import path_in_log
from mase_server.visible import reveal, reveal_lines, shorten_middle

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


STATUS, PIPELINES, VIEWS, SLOW = "mase/status", "mase/pipelines", "mase/viewsChanged", "mase/slow"


class MaseStatus(TraceStatus):
    """`mase/status`: the state of a file's trace. `stale`: the shown hints are of an older text, `shown_sha256`."""

    uri: str


class MasePipelines(TypedDict):
    """`mase/pipelines`: the passes on the models of a file, as texts, by the models' titles."""

    uri: str
    pipelines: dict[str, list[str]]


class ViewsChanged(TypedDict):
    """`mase/viewsChanged`: the results for these files have changed: hints, graphs, costs, passes."""

    uris: list[str]


class SlowTrace(TypedDict):
    """`mase/slow`: why a file's trace is slow, in one line: sent while it runs, and again when it ends."""

    uri: str
    text: str


#: The notifications of the server beyond the protocol's own, with their parameters.
NOTIFICATIONS: dict[str, type] = {
    STATUS: MaseStatus, PIPELINES: MasePipelines, VIEWS: ViewsChanged, SLOW: SlowTrace
}  # fmt: skip
#: A client with this command shows the state of traces in a place of its own, and gets no progress of them.
_STATUS_ITEM = "mase.showActions"
#: Kinds of progress besides traces.
_PASS, _VERILOG = "pass", "verilog"
#: The daemon's events about failures: `History` tells them in plain words.
TOLD_EVENTS = frozenset({"trace", "limit", "died"})
#: The severities of problems that the log tells.
_TOLD = {"error": lsp.MessageType.Error, "warning": lsp.MessageType.Warning}
_LOG = logging.getLogger(__name__)


class ClientListener(Listener):
    """The daemon's listener for one editor."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._refresher = Refresher(server)
        self._progress: dict[str, Progress] = {}
        self._work: dict[tuple[str, str, str], Progress] = {}
        self._pipelines: dict[str, dict[str, list[str]]] = {}
        self._history = History(server)

    def views_changed(self, paths: frozenset[str]) -> None:
        """Make the client request hints, lenses and pulled diagnostics again; push the other diagnostics."""
        if not self._server.initialized:
            return
        self._refresher.refresh()
        diagnostics.publish_diagnostics(self._server, paths)
        self._server.contents.changed(paths)
        self._server.compiled.follow_breaks(paths)
        self._server.costs.follow(paths)
        self.tell_pipelines(paths)
        changed: ViewsChanged = {"uris": sorted(uri for path in paths for uri in self._server.uris_of(path))}
        self._server.protocol.notify(VIEWS, changed)

    def tell_pipelines(self, paths: Iterable[str]) -> None:
        """Send the passes on the models of open files, if they have changed."""
        for path in paths:
            if self._server.documents.get(path) is None:
                continue
            models = models_of(self._server, path)
            found = {model.title: model.transform["texts"] for model in models if model.transform}
            if found != self._pipelines.get(path, {}):
                self._pipelines[path] = found
                for uri in self._server.uris_of(path):
                    told: MasePipelines = {"uri": uri, "pipelines": found}
                    self._server.protocol.notify(PIPELINES, told)

    def refresh(self) -> None:
        """Make the client request everything again."""
        self._refresher.refresh()

    def refresh_hints(self) -> None:
        """Make the client request hints again."""
        self._refresher.refresh(Refresher.METHODS[:1])

    def status_changed(self, status: Status) -> None:
        """Send the status to the editor; begin and end the file's work-done progress."""
        if not self._server.initialized:
            return
        if status.ended:
            self._end_progress(status)
        elif status.path not in self._progress and not self._server.knows(_STATUS_ITEM):
            cancel = partial(self._server.daemon.cancel, status.path)
            title = f"Tracing {reveal(Path(status.path).name)}"
            self._progress[status.path] = Progress(self._server, title, cancel)
            self._progress[status.path].report(_fit_width("start"))
        self._history.tell_status(status)
        facts = replace(status, message=reveal_lines(status.message)).facts()
        for uri in self._server.uris_of(status.path):
            told: MaseStatus = {**facts, "uri": uri}
            self._server.protocol.notify(STATUS, told)

    def progress(self, path: str, stage: str, message: str) -> None:
        """Report the phase of a file's trace, always in the same width, and why it is slow."""
        if stage == slowness.STAGE and self._server.initialized:
            for uri in self._server.uris_of(path):
                told: SlowTrace = {"uri": uri, "text": reveal(message)}
                self._server.protocol.notify(SLOW, told)
        if stage in (slowness.STAGE, slowness.PHASE) and path in self._progress:
            self._progress[path].report(_fit_width(message.removeprefix(f"{Path(path).name}: ")))  # the title has it

    def pass_begins(self, path: str, model: str, title: str, cancel: Callable[[], object]) -> None:
        """A pass that the user chose begins; the user may cancel it."""
        self._start_progress(_PASS, path, model, title, cancel)

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Report the stage of a running pass, or of measuring its errors after a save."""
        if (_PASS, path, model) not in self._work:
            self._start_progress(_PASS, path, model, f"Passes on {model}")
        self._work[_PASS, path, model].report(message, fraction)

    def pass_ended(self, path: str, model: str) -> None:
        """No pass runs on that model any more."""
        self._finish_progress(_PASS, path, model)

    def verilog_begins(self, path: str, model: str, title: str, cancel: Callable[[], object]) -> None:
        """Hardware of a model is made or simulated on the user's request; the user may cancel it."""
        self._start_progress(_VERILOG, path, model, title, cancel)

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Report the stage of making or simulating hardware; work that follows a save has no progress bar."""
        if (progress := self._work.get((_VERILOG, path, model))) is not None:
            progress.report(message, fraction)

    def verilog_ended(self, path: str, model: str) -> None:
        """The work on that hardware ended."""
        self._finish_progress(_VERILOG, path, model)

    def verilog_changed(self, path: str, model: str) -> None:
        """A model's hardware changed: make the client request its documents again."""
        if self._server.initialized:
            self._server.contents.changed([path])
            self._refresher.refresh()

    def worker_ended(self, path: str, why: str) -> None:
        """Tell it in the log: the shapes stay."""
        self._history.tell_file(lsp.MessageType.Warning, path, why)

    def costs_failed(self, path: str, why: str) -> None:
        """Tell it in the log."""
        self._history.tell_file(lsp.MessageType.Warning, path, why)

    def warned(self, text: str) -> None:
        """Show a message, because it belongs to no file's diagnostics."""
        self._server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, text))

    def _start_progress(
        self, kind: str, path: str, model: str, title: str, cancel: Callable[[], object] | None = None
    ) -> None:
        self._finish_progress(kind, path, model)
        self._work[kind, path, model] = Progress(self._server, title, cancel)

    def _finish_progress(self, kind: str, path: str, model: str) -> None:
        if (progress := self._work.pop((kind, path, model), None)) is not None:
            progress.end()

    def _end_progress(self, status: Status) -> None:
        progress = self._progress.pop(status.path, None)
        if progress is not None:
            progress.end(status.message)


class History:
    """Writes what happened into the editor's log, one line for each event, and a failure again only if it changed."""

    #: Numbers of lines, which a failure does not depend on.
    _LINES = re.compile(r"(?<=:)\d+(?=: )|(?<=\bline )\d+")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._failures: dict[str, set[str]] = {}
        self._folders: dict[str, str] = {}

    def tell_status(self, status: Status) -> None:
        """Tell the choice of an interpreter, a folder without trust, and the failures at the end of a trace."""
        folder = self._server.folders.folder_of(status.path)
        if status.state == "tracing" and status.message:
            self._tell_folder(
                folder, lsp.MessageType.Info, f"The models of {Path(folder).name} run in {status.message}."
            )
        elif status.state == "untrusted":
            self._tell_folder(folder, lsp.MessageType.Warning, f"{Path(folder).name}: {status.message}")
        elif status.ended and status.state != "superseded" and not status.unsaved:
            self._tell_failures(status)

    def tell_file(self, kind: lsp.MessageType, path: str, text: str) -> None:
        """Tell something about a file."""
        self._write_line(kind, f"{path_in_log(path, self._server.folders.folder_of(path))}: {text}")

    def _tell_folder(self, folder: str, kind: lsp.MessageType, text: str) -> None:
        if self._folders.get(folder) != text:
            self._folders[folder] = text
            self._write_line(kind, text)

    def _tell_failures(self, status: Status) -> None:
        before = self._failures.pop(status.path, set())
        now: set[str] = set()
        for kind, text in self._list_failures(status):
            key = self._LINES.sub("", text)
            if key not in before | now:
                self._write_line(kind, text)
            now.add(key)
        if now:
            self._failures[status.path] = now
        elif before and status.state == "ready":
            self.tell_file(lsp.MessageType.Info, status.path, "the failures reported above are gone.")

    def _list_failures(self, status: Status) -> Iterator[tuple[lsp.MessageType, str]]:
        """Each model that is not shown, then the other errors and warnings: the place, the reason, the step."""
        folder = self._server.folders.folder_of(status.path)
        problems = self._server.daemon.store.entry(status.path).problems
        left = {(one.file, one.line, one.column): one for one in reversed(problems)}
        for model, text in describe_unshown(status.unshown):
            place = f"{path_in_log(status.path, folder)}:{model['line']}"
            left.pop((status.path, model["line"], model["column"]), None)
            yield lsp.MessageType.Warning, f"{place}: {text} {_describe_step(model['code'])}"
        for problem in reversed(left.values()):
            if problem.severity in _TOLD:
                place = f"{path_in_log(problem.file, folder)}:{problem.line}"
                yield _TOLD[problem.severity], f"{place}: {problem.message} {_describe_step(problem.code)}"

    def _write_line(self, kind: lsp.MessageType, text: str) -> None:
        if kind == lsp.MessageType.Error or self._server.folders.log_level != "error":
            self._server.window_log_message(lsp.LogMessageParams(kind, reveal(" ".join(text.split()))))


def _describe_step(code: str) -> str:
    return f"[{code}, decided by {STEPS.get(code, LINE)}]"


class Refresher:
    """Makes the client request views again: at most one request per kind at a time, and the latest is never lost."""

    METHODS = (
        (lsp.WORKSPACE_INLAY_HINT_REFRESH, "inlay_hint"),
        (lsp.WORKSPACE_CODE_LENS_REFRESH, "code_lens"),
        (lsp.WORKSPACE_DIAGNOSTIC_REFRESH, "diagnostics"),
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._asked: set[str] = set()
        self._again: set[str] = set()

    def refresh(self, methods: Iterable[tuple[str, str]] = METHODS) -> None:
        """Send every refresh request that the client supports."""
        for method, capability in methods:
            if self._server.can("workspace", capability, "refresh_support"):
                self._ask_refresh(method)

    def _ask_refresh(self, method: str) -> None:
        if method in self._asked:
            self._again.add(method)
            return
        self._asked.add(method)
        answer: Future[Any] = self._server.protocol.send_request(method)
        loop = asyncio.get_running_loop()
        answer.add_done_callback(lambda done: loop.call_soon_threadsafe(self._refresh_answered, method, done))

    def _refresh_answered(self, method: str, answer: Future[Any]) -> None:
        self._asked.discard(method)
        if not answer.cancelled() and (error := answer.exception()) is not None:
            _LOG.warning("the client refused %s: %s", method, error)
        if method in self._again:
            self._again.discard(method)
            self._ask_refresh(method)


# Work-done progress of a trace or a pass, shown once it takes longer than a moment.

#: Seconds that work may take before its progress is shown.
DELAY = 0.3
#: Characters of the text about a stage of a trace, and the space that fills it up: editors drop ordinary ones.
_WIDTH, _FILL = 64, "\u00a0"


def _fit_width(text: str) -> str:
    return shorten_middle(reveal(text), _WIDTH).ljust(_WIDTH, _FILL)


class Progress:
    """The progress of one piece of work, from its start through its stages to its end.

    cancel: stops the work when the user asks for that; without it there is no such button.
    """

    def __init__(self, server: Server, title: str, cancel: Callable[[], object] | None = None) -> None:
        self._server = server
        self._title = title
        self._cancel = cancel
        self._token: str | None = None
        self._message = ""
        self._percentage: int | None = None
        self._ended = False
        if server.can("window", "work_done_progress"):
            server.spawn(self._begin_late())

    def report(self, message: str, fraction: float | None = None) -> None:
        """Report a stage. fraction: the part that is done, 0 to 1, if known."""
        self._message = message
        self._percentage = None if fraction is None else round(100 * max(0.0, min(1.0, fraction)))
        if self._token is not None:
            report = lsp.WorkDoneProgressReport(message=message, percentage=self._percentage)
            self._server.work_done_progress.report(self._token, report)

    def end(self, message: str = "") -> None:
        """End the progress."""
        self._ended = True
        if self._token is not None:
            self._server.work_done_progress.end(self._token, lsp.WorkDoneProgressEnd(message=message or None))
            self._server.work_done_progress.tokens.pop(self._token, None)
            self._server.cancels.pop(self._token, None)
            self._token = None

    async def _begin_late(self) -> None:
        await asyncio.sleep(DELAY)
        if self._ended:
            return
        token = f"mase-{uuid.uuid4()}"
        await self._server.work_done_progress.create_async(token)
        del self._server.work_done_progress.tokens[token]  # pygls would keep the token for ever
        if not self._ended:
            self._begin_reporting(token)

    def _begin_reporting(self, token: str) -> None:
        self._token = token
        if self._cancel is not None:
            self._server.cancels[token] = self._cancel
        begin = lsp.WorkDoneProgressBegin(
            self._title, cancellable=self._cancel is not None, message=self._message, percentage=self._percentage
        )
        self._server.work_done_progress.begin(token, begin)


async def cancel_progress(ls: Server, params: lsp.WorkDoneProgressCancelParams) -> None:
    """window/workDoneProgress/cancel: stop the work behind the progress."""
    stop = ls.cancels.get(str(params.token))
    if stop is not None:
        stop()
