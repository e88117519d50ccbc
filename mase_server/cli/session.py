"""A daemon for one command: it traces the named files once, several at a time; or a running daemon is asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server.cli.attached import Detached, connect_daemon, daemon_of, open_file, print_note
from mase_server.cli.reports import Report, T, Talk, drive_talk, move_problem_to_file, request_report, source_of
from mase_server.daemon.api import API, Api
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.environment import project_of as project_of
from mase_server.daemon.status import FolderSettings, Listener, Status
from mase_server.daemon.store import GraphSnapshot
from mase_server.daemon.unsaved import EDITOR
from mase_server.lsp.text import Text, decode_python_source
from mase_server.paths import canonical_path
from mase_server.private import cache_dir, state_dir
from mase_server.protocol.records import Answer, Params
from mase_server.protocol.request import EVERY, TraceOptions
from mase_server.protocol.snapshot import Problem

if TYPE_CHECKING:
    from mase_server.client.blocking import Client
    from mase_server.rpc.registry import Registration


_METHODS = {method.name: method for method in API}
#: End states without shapes, which need their message as an explanation.
_UNSHOWN = frozenset({"no_model", "no_environment", "crashed", "failed", "superseded", "untrusted"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The file to trace, and how to trace it. texts: what is traced in place of a file."""

    files: tuple[Path, ...]
    model: str | None = None
    inputs: tuple[str, ...] = ()
    python: str | None = None
    set: str | None = None
    texts: Mapping[Path, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of tracing one file. snapshot: None if nothing was traced."""

    file: str
    path: str
    snapshot: GraphSnapshot | None
    problems: tuple[Problem, ...]


async def trace_files(wanted: Wanted, everything: bool = False) -> list[Report]:
    """Trace every file; returns the reports in the order of the files. everything: include expressions."""
    async with daemon_for(wanted, Listener()) as daemon:
        return [await report_once_traced(daemon, file, everything) for file in wanted.files]


async def trace_each(wanted: Wanted, follow: Callable[[Daemon, Report], Awaitable[None]]) -> AsyncIterator[Report]:
    """The reports of many files, each as soon as it is available; few run at once, so that few processes are alive.

    follow: is given each report while its trace is there.
    """
    turns = asyncio.Semaphore(os.cpu_count() or 1)
    async with daemon_for(replace(wanted, files=()), Listener()) as daemon:

        async def one(file: Path) -> Report:
            async with turns:
                daemon.opened(canonical_path(file))
                try:
                    report = await report_once_traced(daemon, file)
                    await follow(daemon, report)
                    return report
                finally:
                    daemon.closed(canonical_path(file))

        for done in asyncio.as_completed([one(file) for file in wanted.files]):
            yield await done


async def report_once_traced(daemon: Daemon, file: Path, everything: bool = False, passes: bool = False) -> Report:
    """The report of an open file, once the daemon has traced it. passes: as its passes changed it."""
    path = canonical_path(file)
    await daemon.wait(path)
    traced = daemon.file(path)
    text = traced.source.data if traced is not None and traced.source.unsaved else None
    return await answer_talk(daemon, request_report(file, everything, passes, text))


async def answer_talk(daemon: Daemon, talk: Talk[T]) -> T:
    """The result of a sequence of queries that this daemon answers; see `drive_talk`."""
    try:
        question = next(talk)
        while True:
            try:
                answer = await call_api_as_map(daemon, *question)
            except Exception as error:  # noqa: BLE001 - raised again, unless the talk goes on
                question = talk.throw(error)
            else:
                question = talk.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


async def call(daemon: Daemon, name: str, params: Params) -> Any:
    """The answer of an API function."""
    return await _METHODS[name].call(Api(daemon), params)


async def call_api_as_map(daemon: Daemon, name: str, params: Params) -> Answer:
    """The same answer as a map, as connections receive it."""
    return _METHODS[name].as_map(await call(daemon, name, params))


@asynccontextmanager
async def daemon_for(wanted: Wanted, listener: Listener, folder: str | None = None) -> AsyncIterator[Daemon]:
    """A daemon that traces the files and ends with the context. Naming files on the command line trusts them.

    folder: the project of the files; by default each file's own.
    """
    settings = FolderSettings(trusted=True, interpreter=wanted.python)
    daemon = Daemon(
        listener,
        cache_dir=cache_dir(),
        state_dir=state_dir(),
        settings_of=lambda folder: settings,
        folder_of=project_of if folder is None else lambda path: folder,
    )
    options = TraceOptions(
        model=wanted.model,
        inputs=wanted.inputs,
        inputs_from="option" if wanted.inputs else "settings",
        sets={} if wanted.set is None else {EVERY: wanted.set},
    )
    # The daemon is not started: it would watch files, but each file is traced once here.
    try:
        for file in wanted.files:
            if file in wanted.texts:
                daemon.use_text(canonical_path(file), wanted.texts[file], EDITOR)
            daemon.opened(canonical_path(file), options)
        yield daemon
    finally:
        await daemon.shutdown()


def outcome_of(daemon: Daemon, file: Path, status: Status, overlays: bool = False) -> Outcome:
    """The present result of tracing a file, from the daemon. overlays: include the problems of passes and hardware?"""
    path = canonical_path(file)
    text = Text(decode_python_source(source_of(file)))
    entry = daemon.store.entry(path)
    problems = [move_problem_to_file(problem, path) for problem in (entry.told if overlays else entry.problems)]
    if entry.shown is None and status.state in _UNSHOWN and not problems:
        code = status.state.replace("_", "-")
        problems.append(Problem(path, 1, 0, 1, len(text.line(0)), "error", code, status.message or code))
    problems.sort(key=lambda problem: (problem.line, problem.column))
    return Outcome(str(file), path, entry.shown, tuple(problems))


# Queries about one traced file, sent to a running daemon, or to a daemon of this process if there is none.

Tell = Callable[[str], None]

#: Maximum seconds for passes and drawings.
_LONG = 600.0
_SLOW = frozenset({"mase/compiled", "mase/draw", "mase/deviceCosts"})


#: Codes of refusals that name something that is not there: wrong usage.
_USAGE = frozenset({"argument", "invalid-params", "unknown-inputs", "unknown-model", "unknown-scope"})


class Refused(Exception):
    """The query has no answer; the text says why."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        usual = "argument" if isinstance(error, ValueError) else ""
        #: The exit status of a command that was refused.
        self.status = 2 if getattr(error, "code", getattr(error, "kind", usual)) in _USAGE else 1


@dataclass(frozen=True, slots=True)
class Subject:
    """The file of a query. inputs, python, model, set, text: given for this command only, so that no running daemon can
    answer; model is the class to trace, text is traced in place of the file."""

    file: Path
    inputs: tuple[str, ...] = ()
    python: str | None = None
    daemon: bool = True
    model: str | None = None
    set: str | None = None
    text: bytes | None = None

    @property
    def path(self) -> str:
        """The absolute path of the file."""
        return canonical_path(self.file)

    @property
    def wanted(self) -> Wanted:
        """The file with its inputs, for a daemon of this process."""
        texts = {} if self.text is None else {self.file: self.text}
        return Wanted((self.file,), self.model, self.inputs, self.python, self.set, texts)


def ask_daemon(subject: Subject, talk: Callable[[str], Talk[T]], tell: Tell = lambda text: None) -> T:
    """The result of a sequence of queries about the file, once it is traced; Refused. tell: receives the progress."""
    own = subject.python, subject.model, subject.set, subject.text, *subject.inputs
    if subject.daemon and all(each is None for each in own):
        registration = daemon_of(subject.file)
        try:
            if registration is not None:
                return _ask_running_daemon(registration, subject, talk)
        except Detached as error:
            print_note(f"{error}; traced without it")
    return asyncio.run(_trace_and_ask(subject, talk, tell))


def _ask_running_daemon(registration: Registration, subject: Subject, talk: Callable[[str], Talk[T]]) -> T:
    from mase_server.client.stream import RpcError

    with connect_daemon(registration) as client:
        path = canonical_path(subject.file)
        open_file(client, path)
        try:
            return drive_talk(talk(path), lambda method, params: _call_with_timeout(client, method, params))
        except RpcError as error:
            raise Refused(error) from error


def _call_with_timeout(client: Client, method: str, params: Params) -> Answer:
    return client.call(method, params, timeout=_LONG if method in _SLOW else None)


async def _trace_and_ask(subject: Subject, talk: Callable[[str], Talk[T]], tell: Tell) -> T:
    from mase_server.cli.applying import Reporter

    async with daemon_for(subject.wanted, Reporter(tell)) as daemon:
        await daemon.wait(subject.path)
        return await ask_own_daemon(daemon, talk(subject.path))


async def ask_own_daemon(daemon: Daemon, talk: Talk[T]) -> T:
    """The result of a sequence of queries about a traced file; Refused."""
    from mase_server.daemon.pipelines import PassError

    try:
        return await answer_talk(daemon, talk)
    except (ValueError, PassError) as error:
        raise Refused(error) from error


# Let the running daemon of a workspace answer in place of a new one, if it can.
#
# This module loads neither torch, pygls, typer, rich nor asyncio: if the daemon has traced the file, the whole command
# takes about as long as Python takes to start.
