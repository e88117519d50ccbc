"""Runs one generation of one model file: discover, trust, launch, trace, and put the result into the store."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mase_server.daemon.death import make_refused_problem
from mase_server.daemon.discovery import Discoverer
from mase_server.daemon.environment import Candidate, environment_problem, list_interpreters, version_of
from mase_server.daemon.launcher import Ahead, with_child
from mase_server.daemon.passes import Passes
from mase_server.daemon.pool import NoInterpreter, Pool
from mase_server.daemon.slots import Slots
from mase_server.daemon.slowness import Slowness
from mase_server.daemon.status import FolderSettings, Listener, Status, describe_unshown
from mase_server.daemon.store import Entry, GraphSnapshot, Store
from mase_server.daemon.supervisor import Events, Limits, Outcome, TraceWorker
from mase_server.daemon.tracked import (
    CRASH_SECONDS,
    CRASHES,
    Tracked,
    make_scratch,
    make_unreadable_problem,
)
from mase_server.daemon.trials import PickedSets
from mase_server.daemon.unsaved import Unsaved
from mase_server.daemon.verilog import Verilog
from mase_server.paths import is_library
from mase_server.protocol.request import EVERY, TraceOptions, TraceRequest
from mase_server.protocol.snapshot import Payload, Problem
from mase_server.protocol.wire import Message
from mase_server.telemetry.metrics import Metrics
from mase_server.telemetry.records import log_event, path_in_log

_PREPARE_OFF_LOOP = 4000
_REREADS = 3
#: Seconds of silence after which passes are measured and Verilog is emitted for a text that is not saved.
SILENCE = 1.0
#: Seconds for which the first errors of a text that is being typed wait for the next key, which usually mends them.
HOLD = 0.3

_NO_MODEL = "Nothing here defines or builds an nn.Module. A comment `# mase: NAME: TYPE[SIZE, ...]` traces it anyway."
_LIBRARY = "An installed package's file: its shapes come from the models that use it."
UNTRUSTED = "This folder is not trusted: nothing of it is executed. Trust it in the editor, or run `mase-server trust`."


@dataclass(slots=True)
class Services:
    """The services that every generation uses."""

    listener: Listener
    store: Store
    pool: Pool
    discoverer: Discoverer
    slots: Slots
    slowness: Slowness
    metrics: Metrics
    bytecode_cache: str
    settings_of: Callable[[str], FolderSettings]
    trusts: Callable[[str], bool]
    on_snapshot: Callable[[Tracked, GraphSnapshot], None]
    in_background: Callable[[TraceWorker], None]
    on_mismatch: Callable[[Tracked], None]
    passes: Passes
    verilog: Verilog
    picked: PickedSets
    unsaved: Unsaved


class Generation:
    """One generation, from the requested content to its single end state."""

    def __init__(self, services: Services, tracked: Tracked) -> None:
        self._services = services
        self._tracked = tracked
        self._number = tracked.generation
        self._source = tracked.source
        #: The texts that stand in for files in this trace.
        self._texts: dict[str, bytes] = {}
        self._settings = services.settings_of(tracked.folder)
        self._pipelines = services.passes.asked(tracked.path)
        self._shown = False
        self._swap: asyncio.Task[None] | None = None
        self._worker: TraceWorker | None = None
        self._mismatch = False
        self._no_model = ""

    async def run(self) -> None:
        """Run to the end state. Cancelling ends the child; the canceller then reports `superseded`."""
        tracked, services = self._tracked, self._services
        if is_library(tracked.path):
            return self._end_without(Entry(tracked.path), "no_model", _LIBRARY)
        if self._source.unreadable:
            problem = make_unreadable_problem(tracked.path, self._source.unreadable)
            return self._fail("failed", (problem,), problem.message)
        found = await services.discoverer.discover(tracked.path, self._source.data, self._source.sha256)
        if found.problem is not None and not self._is_newer_syntax():
            return self._fail("failed", (found.problem,), found.problem.message)
        if not found.has_model and found.problem is None:
            return self._end_without(Entry(tracked.path), "no_model", _NO_MODEL)
        if not services.trusts(tracked.path):
            return self._end_without(services.store.entry(tracked.path), "untrusted", UNTRUSTED)
        if not tracked.may_start():
            text = f"Crashed {CRASHES} times within {CRASH_SECONDS / 60:.0f} minutes; save or retrace later."
            return self._fail("crashed", services.store.entry(tracked.path).problems, text)
        async with services.slots.turn(tracked.path) as crowded:
            await self._launch_and_trace(crowded)

    def fail_inside(self, error: Exception) -> None:
        """End with an internal error, so that nobody waits for ever."""
        text = f"The server failed while it traced this file: {type(error).__name__}: {error}. Its log has the details."
        problem = Problem(self._tracked.path, 1, 0, 2, 0, "error", "internal-error", text)
        self._fail("failed", (problem,), text)

    def _is_newer_syntax(self) -> bool:
        """Could the user's Python parse what ours cannot? Then its verdict on the syntax counts."""
        version = version_of(self._find_interpreters()[-1].path)
        return version is not None and version > sys.version_info[:2] and b"torch" in self._source.data

    def _find_interpreters(self) -> list[Candidate]:
        return list_interpreters(self._tracked.folder, self._tracked.path, self._settings.interpreter, os.environ)

    async def _launch_and_trace(self, crowded: bool, *, whole: bool = False) -> None:
        """Trace in a child of its own. whole: in none that has run ahead with another text."""
        tracked, services = self._tracked, self._services
        self._report_state("starting")
        found = self._find_interpreters()
        text = self._source.data if self._source.unsaved and not whole else None
        try:
            handshake, child = await services.pool.child(tracked.folder, tracked.path, found, text)
            request = await with_child(child, lambda: self._make_request(crowded, child.ahead))
        except NoInterpreter as error:
            problem = environment_problem(tracked.path, error.code, error.tried)
            return self._fail("no_environment", (problem,), problem.message)
        except OSError as error:
            problem = make_refused_problem(tracked.path, error)
            return self._fail("failed", (problem,), problem.message)
        limits = Limits(self._settings.time_limit, self._settings.memory_limit)
        events = Events(self._on_payload, self._on_stage, self._on_phase, self._on_end)
        worker = self._worker = TraceWorker(child, request, limits, events)
        tracked.interpreter = handshake.executable
        python = f"Python {handshake.python}, torch {handshake.torch} ({handshake.executable})"
        self._report_state("tracing", f"{python}, chosen by {services.pool.reason_of(tracked.path)}")
        kept = False
        try:
            outcome = await worker.trace()
            if self._swap is not None:
                await self._swap
            if outcome.state != "refused":
                kept = self._finish(outcome, worker)
        finally:
            self._worker = None  # the worker refers to this object: each save would leave a reference cycle
            if not kept:
                services.in_background(worker)
        if outcome.state == "refused":
            await self._launch_and_trace(crowded, whole=True)

    def _make_request(self, crowded: bool, ahead: Ahead | None = None) -> TraceRequest:
        tracked = self._tracked
        self._texts = self._services.unsaved.texts_for(tracked.path, tracked.folder)
        if self._source.unsaved:
            self._texts[tracked.path] = self._source.data
        return TraceRequest(
            path=tracked.path,
            folder=tracked.folder,
            sha256=self._source.sha256,
            generation=self._number,
            options=self._make_options(),
            fit=tracked.fit,
            instrument=tracked.instrument,
            scratch=make_scratch() if ahead is None else ahead.request.scratch,
            bytecode_cache=self._services.bytecode_cache,
            seconds=self._settings.time_limit,
            name=tracked.request,
            gently=crowded,
            texts=self._texts,
        )

    def _make_options(self) -> TraceOptions:
        options = self._tracked.options or TraceOptions()
        pipelines = {title: [step.to_wire() for step in steps] for title, steps in self._pipelines.items()}
        options = replace(options, run_main=options.run_main and self._settings.run_main, pipelines=pipelines)
        kept = {} if EVERY in options.sets else self._services.picked.of(self._tracked.path)
        options = replace(options, sets={**kept, **options.sets})
        if options.inputs:
            return options
        inputs = settings_inputs(self._settings, self._tracked.path, self._tracked.folder)
        return replace(options, inputs=inputs, inputs_from="settings")

    def _on_stage(self, stage: str, message: str) -> None:
        self._services.listener.progress(self._tracked.path, stage, message)

    def _on_phase(self, message: Message) -> None:
        if self._worker is not None and self._is_newest:
            self._services.slowness.heard(self._tracked.path, message, self._worker.place)

    def _on_end(self, why: str) -> None:
        self._services.listener.worker_ended(self._tracked.path, why)

    def _on_payload(self, payload: Payload) -> None:
        if payload["sha256"] != self._source.sha256:
            self._mismatch = True  # the file changed between our reading and the child's: a newer save is on its way
            return
        snapshot = GraphSnapshot(payload)
        if snapshot.size < _PREPARE_OFF_LOOP and self._swap is None and not self._breaks_typing(snapshot):
            self._show_snapshot(snapshot)
        else:
            self._swap = asyncio.create_task(self._show_later(snapshot, self._swap))

    async def _show_later(self, snapshot: GraphSnapshot, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        elif self._breaks_typing(snapshot):
            await asyncio.sleep(HOLD)
        self._show_snapshot(await asyncio.to_thread(snapshot.prepare))
        gc.freeze()  # many objects, all in use: scanning them would block the event loop

    def _breaks_typing(self, snapshot: GraphSnapshot) -> bool:
        """Would it take hints away because a text that is being typed has errors, and the last one had none?"""
        entry = self._services.store.entry(self._tracked.path)
        fine = entry.shown is not None and not any(one.severity == "error" for one in entry.problems)
        return self._source.unsaved and fine and any(one.severity == "error" for one in snapshot.problems)

    def _show_snapshot(self, snapshot: GraphSnapshot) -> None:
        tracked = self._tracked
        if not self._is_newest:
            return
        tracked.rereads = 0
        tracked.fit = snapshot.payload["fit"] or tracked.fit
        old = self._services.store.entry(tracked.path)
        snapshot = self._services.verilog.adopt(self._services.passes.adopt(snapshot, self._pipelines))
        if _has_no_model(snapshot):
            entry, self._no_model = Entry(tracked.path, self._source.sha256), snapshot.problems[0].message
        elif old.shown is None or not _loses_all(snapshot, old.shown):
            entry = Entry(tracked.path, self._source.sha256, snapshot, False, snapshot.problems)
            self._shown = True
        else:
            entry = Entry(tracked.path, self._source.sha256, old.shown, True, snapshot.problems)
        self._put(replace(entry, unsaved=self._list_unsaved(snapshot)))
        self._services.on_snapshot(tracked, snapshot)

    def _list_unsaved(self, snapshot: GraphSnapshot | None = None) -> frozenset[str]:
        """The files whose text in this trace is not saved, and that a snapshot read."""
        read = {self._tracked.path} | (snapshot.read if snapshot is not None else set())
        texts = {path: text for path, text in self._texts.items() if path in read}
        own = {self._tracked.path: self._source.data} if self._source.unsaved else {}
        return self._services.unsaved.unsaved_among(texts | own)

    def _finish(self, outcome: Outcome, worker: TraceWorker) -> bool:
        tracked, entry = self._tracked, self._services.store.entry(self._tracked.path)
        if not self._is_newest:
            return False
        if self._mismatch and not self._shown and tracked.rereads < _REREADS:
            tracked.rereads += 1
            self._report_state("superseded", "the file changed while it was being read")
            self._services.on_mismatch(tracked)
            return False
        if outcome.state == "crashed":
            if self._source.unsaved:
                tracked.typed_crashes += 1
            else:
                tracked.crashes.append(time.monotonic())
        if self._shown and outcome.state != "crashed":
            if tracked.worker is not None:
                self._services.in_background(tracked.worker)
            tracked.worker = worker
        if any(problem.code == "unreadable" for problem in outcome.problems):
            # The file was deleted between our reading and the child's: trace even the same content once it exists
            # again.
            tracked.source = replace(tracked.source, unreadable=outcome.problems[0].message)
        if outcome.problems:
            shown = entry.problems if entry.sha256 == self._source.sha256 and self._shown else ()
            self._put(
                replace(
                    entry,
                    sha256=self._source.sha256,
                    stale=not self._shown and entry.shown is not None,
                    problems=(*shown, *outcome.problems),
                    unsaved=entry.unsaved if self._shown else self._list_unsaved(),
                )
            )
        self._report_state(*self._end_state(outcome))
        if tracked.worker is worker:
            tracked.ran_ahead = worker.child.ahead is not None
            if tracked.typed and outcome.state == "ready":
                self._run_ahead(worker.request)
            after = SILENCE if self._services.store.entry(tracked.path).unsaved else 0.0
            follow_trace(self._services, tracked, after)
        return tracked.worker is worker

    def _run_ahead(self, request: TraceRequest) -> None:
        """Have the next child run ahead with the text that was traced: the next one differs by a few keys."""
        texts = {**request.texts, request.path: self._source.data}
        with contextlib.suppress(OSError):
            scratch = make_scratch()
            self._services.pool.foresee(
                replace(request, fit=self._tracked.fit, scratch=scratch, texts=texts, gently=False)
            )

    def _end_state(self, outcome: Outcome) -> tuple[str, str]:
        """The end state and its message. If nothing can be shown, a warning that explains it is a failure too."""
        entry = self._services.store.entry(self._tracked.path)
        if self._no_model and not outcome.problems:
            return "no_model", self._no_model
        errors = [one for one in entry.problems if one.severity == "error"]
        nothing = entry.stale or (entry.shown is not None and _is_empty(entry.shown))
        told = errors or [one for one in entry.problems if nothing and _says_why((one,))]
        state = "failed" if outcome.state == "ready" and told else outcome.state
        if told:
            return state, told[0].message.replace("\n", " ")
        unshown = entry.shown.payload["unshown"] if entry.shown is not None and state == "ready" else ()
        return state, " ".join(text for _, text in describe_unshown(unshown))

    def _fail(self, state: str, problems: tuple[Problem, ...], message: str) -> None:
        """End without a trace: the shown results stay, marked stale if they belong to another content."""
        entry = self._services.store.entry(self._tracked.path)
        stale = entry.shown is not None and (entry.stale or entry.shown.sha256 != self._source.sha256)
        now = replace(entry, sha256=self._source.sha256, stale=stale, problems=problems, unsaved=self._list_unsaved())
        self._end_without(now, state, message)

    def _end_without(self, entry: Entry, state: str, message: str) -> None:
        if entry != self._services.store.entry(entry.path):
            self._put(entry)
        self._report_state(state, message)

    @property
    def _is_newest(self) -> bool:
        """Is this the newest one? A cancelled generation can get here if what it awaited ended at that moment."""
        return self._number == self._tracked.generation

    def _put(self, entry: Entry) -> None:
        if not self._is_newest:
            return
        self._services.listener.views_changed(self._services.store.put(entry))

    def _report_state(self, state: str, message: str = "") -> None:
        if not self._is_newest:
            return
        report_status(self._services, self._tracked, state, message)


def follow_trace(services: Services, tracked: Tracked, seconds: float = 0.0) -> None:
    """Have passes measured and Verilog emitted for a file's newest trace, after so many seconds of silence."""
    drop_following(tracked)
    if seconds:
        tracked.following = asyncio.get_running_loop().call_later(seconds, follow_trace, services, tracked)
    else:
        services.passes.traced(tracked.path)
        services.verilog.traced(tracked.path)


def drop_following(tracked: Tracked) -> bool:
    """Forget the work that was to follow a trace; returns whether there was any."""
    waiting, tracked.following = tracked.following, None
    if waiting is not None:
        waiting.cancel()
    return waiting is not None


def report_status(services: Services, tracked: Tracked, state: str, message: str = "") -> None:
    """Report a state of the newest generation of a file."""
    entry = services.store.entry(tracked.path)
    shown = entry.shown.sha256 if entry.shown is not None else None
    seconds = time.monotonic() - tracked.asked_at
    sha256 = tracked.source.sha256
    found = None if entry.shown is None or entry.stale else entry.shown.payload
    models, unshown = (tuple(one["name"] for one in found["models"]), tuple(found["unshown"])) if found else ((), ())
    status = Status(
        tracked.path, state, tracked.generation, sha256, shown, entry.stale, tracked.live, seconds, message, models,
        unshown, tracked.source.unsaved or bool(entry.unsaved),
    )  # fmt: skip
    tracked.status = status
    if status.ended:
        _count_trace(services, tracked, status)
    services.listener.status_changed(status)
    if status.ended and state != "superseded":
        tracked.ended.set()


def _count_trace(services: Services, tracked: Tracked, status: Status) -> None:
    died = status.state == "crashed"
    services.metrics.traces.add(status.state, status.seconds, failed=died)
    facts = {"state": status.state, "generation": status.generation, "seconds": status.seconds}
    facts |= {"phases": services.slowness.phases(tracked.path), "request": tracked.request}
    log_event(
        "trace", logging.WARNING if died else logging.INFO, path=path_in_log(tracked.path, tracked.folder), **facts
    )


def settings_inputs(settings: FolderSettings, path: str, folder: str) -> tuple[str, ...]:
    """The input texts that settings give this file, by a glob on its path or its name."""
    relative = os.path.relpath(path, folder)
    for pattern, texts in settings.inputs.items():
        if fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(Path(path).name, pattern):
            return tuple(texts)
    return ()


def _says_why(problems: tuple[Problem, ...]) -> bool:
    """Does one of these problems possibly explain why nothing can be shown?"""
    return any(problem.severity in ("error", "warning") for problem in problems)


def _has_no_model(snapshot: GraphSnapshot) -> bool:
    """Did running the file show that it has no model after all? That is not an error of the file."""
    told = [(problem.code, problem.severity) for problem in snapshot.problems]
    told = [each for each in told if each != ("missing-package", "warning")]
    return told == [("no-model", "information")] and _is_empty(snapshot)


def _loses_all(snapshot: GraphSnapshot, old: GraphSnapshot) -> bool:
    """Does a trace say why it shows no tensor, or fail where no model is left? Then the last good trace is kept."""
    if _is_empty(snapshot):
        return _says_why(snapshot.problems)
    failed = any(problem.severity == "error" for problem in snapshot.problems)
    return failed and bool(old.payload["models"]) and not snapshot.payload["models"]


def _is_empty(snapshot: GraphSnapshot) -> bool:
    return not snapshot.payload["sites"]["file"] and not snapshot.payload["models"]
