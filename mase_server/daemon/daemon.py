"""The daemon keeps a snapshot of every open model file and traces the file again at every save, and as it is typed."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mase_server.daemon.discovery import Discoverer
from mase_server.daemon.environment import list_interpreters, look_ups
from mase_server.daemon.events import Events, Listeners
from mase_server.daemon.generation import (
    UNTRUSTED,
    Generation,
    Services,
    drop_following,
    follow_trace,
    report_status,
)
from mase_server.daemon.graph_snapshot import ShownRun, is_same_trace
from mase_server.daemon.limits import available_fraction
from mase_server.daemon.passes import Host, Passes
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.pool import Pool, Start
from mase_server.daemon.process import DEFAULT_JOB
from mase_server.daemon.project import apply_project
from mase_server.daemon.simulations import Simulations
from mase_server.daemon.slots import Slots
from mase_server.daemon.slowness import Slowness
from mase_server.daemon.status import FolderSettings, Listener, Status
from mase_server.daemon.store import GraphSnapshot, Store
from mase_server.daemon.supervisor import TraceWorker
from mase_server.daemon.tracked import (
    CRASHES,
    Freshness,
    Source,
    Tracked,
    clean_scratch,
    make_missing_source,
    make_unsaved_source,
    read_source,
    retire_worker,
)
from mase_server.daemon.trials import PickedSets, Trial, run_trial
from mase_server.daemon.unsaved import EDITOR, Unsaved
from mase_server.daemon.verilog import Verilog
from mase_server.daemon.watch import Watcher
from mase_server.dependencies import Dependency
from mase_server.paths import canonical_path, is_library
from mase_server.private import describe_os_error
from mase_server.protocol import answers
from mase_server.protocol.answers.files import Counted
from mase_server.protocol.records import RunCosts
from mase_server.protocol.request import VIEWS, TraceOptions
from mase_server.protocol.snapshot import Problem
from mase_server.system import own_job
from mase_server.telemetry.metrics import Metrics
from mase_server.telemetry.records import REQUEST, current_request, log_event, path_in_log

__all__ = ["Daemon", "FolderSettings", "Listener", "Status", "TraceOptions"]

_log = logging.getLogger(__name__)
_CLOSED_CHILDREN = 8
_MEMORY_LOW = 0.1
#: Maximum number of kept results of compilers.
_MOST_COMPILED = 64
#: Maximum number of paths that one line names.
_TOLD = 3
#: Seconds after a trace during which changes that the traced program made itself can still be reported.
_ECHO_SECONDS = 0.5


class Daemon:
    """Traces model files and keeps the results in `store`. All methods belong to one event loop and do not block."""

    def __init__(
        self,
        listener: Listener,
        *,
        cache_dir: Path,
        state_dir: Path,
        settings_of: Callable[[str], FolderSettings],
        folder_of: Callable[[str], str],
        trusts: Callable[[str], bool] | None = None,
        job: str = DEFAULT_JOB,
        launcher: Start | None = None,
    ) -> None:
        """trusts: may a file run?  Without it, the trust of the file's folder decides, which `settings_of` gives."""
        self.store = Store()
        self.metrics = Metrics()
        self.events = Events(self.store)
        processors = os.cpu_count() or 1
        self.slots = Slots(max(4, processors), processors)
        slowness = Slowness(lambda path, stage, text: listener.progress(path, stage, text), self.slots.before)
        # The report about slowness must come before the report that the trace has ended.
        listener = Listeners(slowness, listener, self.events)
        host = Host(self.store, listener, settings_of, folder_of, self._wait_for_holder, self._get_holder)
        self.passes = Passes(host, on_shown=lambda path, title: self.verilog.shown(path, title))
        self.verilog = Verilog(host, self.passes)
        self.simulations = Simulations(self.verilog, listener, cache_dir)
        self.cache_dir = cache_dir
        self.folder_of = folder_of
        self._trusts = trusts or (lambda path: settings_of(folder_of(path)).trusted)
        self._tracked: dict[str, Tracked] = {}
        self._libraries: set[str] = set()
        self._unsaved = Unsaved()
        self._background: set[asyncio.Task[Any]] = set()
        self._services = Services(
            listener=listener,
            store=self.store,
            pool=Pool(cache_dir, job, launcher),
            discoverer=Discoverer(),
            slots=self.slots,
            slowness=slowness,
            metrics=self.metrics,
            bytecode_cache=str(cache_dir / "bytecode"),
            settings_of=lambda folder: apply_project(settings_of(folder), folder),
            trusts=self.trusts,
            on_snapshot=self._on_snapshot,
            in_background=self._retire_worker,
            on_mismatch=self._read_again,
            passes=self.passes,
            verilog=self.verilog,
            picked=PickedSets(state_dir),
            unsaved=self._unsaved,
        )
        self._compiled: dict[tuple[Any, ...], answers.Compiled] = {}
        #: What is being compiled, and how many wait for it.
        self._compiling: dict[tuple[Any, ...], tuple[asyncio.Task[answers.Compiled], int]] = {}
        self._kernels: dict[tuple[str, str], tuple[GraphSnapshot, Sequence[answers.Kernel]]] = {}
        self._runs: dict[tuple[str, str], ShownRun] = {}
        self._watcher: Watcher | None = None
        self._closing = False

    async def start(self) -> None:
        """Begin to watch files; tracing begins when files are opened."""
        own_job()
        self._watcher = Watcher(self.saved, self._services.listener.warned)
        self._spawn_task(asyncio.to_thread(clean_scratch))

    async def shutdown(self) -> None:
        """End every process: TERM, 0.7 s, KILL."""
        self._closing = True
        if self._watcher is not None:
            self._watcher.close()
        for tracked in self._tracked.values():
            self._interrupt_generation(tracked, "the server is shutting down")
            tracked.ended.set()
            drop_following(tracked)
            if tracked.worker is not None:
                self._retire_worker(tracked.worker)
        await self.passes.shutdown()
        await self.simulations.shutdown()
        await self.verilog.shutdown()
        tasks = [tracked.task for tracked in self._tracked.values() if tracked.task is not None]
        await asyncio.gather(*tasks, self._services.pool.restart(), return_exceptions=True)
        await asyncio.gather(*self._background, return_exceptions=True)

    def opened(self, path: str, options: TraceOptions | None = None, by: str = EDITOR) -> None:
        """A client has opened `path`: trace it unless its content is traced already."""
        self._open_library(path)
        tracked = self._tracked.get(path)
        fresh = tracked is None or (options is not None and options != tracked.options)
        if tracked is None:
            freshness = Freshness(self._unsaved.look)
            tracked = self._tracked[path] = Tracked(path, self.folder_of(path), freshness=freshness)
        reopened = not tracked.open and not fresh
        if by == EDITOR:
            self._unsaved.drop_others(path, by)
        tracked.openers.add(by)
        tracked.options = options or tracked.options
        self._update_watcher()
        if not self._request_generation(tracked, force=fresh) and reopened and tracked.status is not None:
            if tracked.status.ended:
                tracked.ended.clear()
            # A trace that still runs may have read what changed while the file was closed.
            self._spawn_task(self._check_dependencies(tracked, None))

    def saved(self, path: str) -> None:
        """Something happened at a path: trace that file, and every open file that depends on it.

        An unsaved text goes on standing in for the file, unless it is what is there now.
        """
        if (held := self._unsaved.source(path)) is not None:
            if (found := read_source(path)) is not None and found.is_as(held):
                self.forget_text(path)
            return
        tracked = self._tracked.get(path)
        if tracked is not None and tracked.open:
            tracked.typed_crashes = 0
            self._request_generation(tracked)
        self._trace_dependents(path)

    def _trace_dependents(self, path: str, *, typed: bool = False) -> None:
        for other in self._tracked.values():
            if other.open and other.path != path and other.freshness.changes_at(path):
                self._ask_for_dependencies(other, [path], typed=typed)

    def use_text(self, path: str, text: bytes, by: str) -> None:
        """Let a text that a client holds stand in for a file: `opened` traces it, and so does every later trace."""
        source = make_unsaved_source(text)
        if (held := self._unsaved.source(path)) is None or not held.is_as(source):
            self._unsaved.put(path, source, by)
            self._trace_dependents(path, typed=True)

    def forget_text(self, path: str, by: str | None = None) -> None:
        """Let a file speak for itself again: it was saved, or closed. by: only if this client holds its text.

        A trace of the text counts as one of the saved file, if both are the same.
        """
        if not self._unsaved.drop(path, by):
            return
        tracked = self._tracked.get(path)
        if tracked is not None and tracked.open:
            tracked.typed_crashes = 0
            # The trace in a fresh child is the authority.
            if not self._request_generation(tracked, force=tracked.ran_ahead):
                tracked.source = replace(tracked.source, unsaved=False)
        self._trace_dependents(path)
        for each in self._tracked.values():
            self._adopt_saved(each, path)

    def _adopt_saved(self, tracked: Tracked, path: str) -> None:
        """A trace that saw the unsaved text of `path` is a trace of the saved file from now on."""
        entry = self.store.entry(tracked.path)
        if path in entry.unsaved:
            entry = replace(entry, unsaved=entry.unsaved - {path})
            self._services.listener.views_changed(self.store.put(entry))
        if tracked.status is None or not tracked.status.ended or not tracked.status.unsaved:
            return
        if not (entry.unsaved or tracked.source.unsaved):
            tracked.status = replace(tracked.status, unsaved=False)
            self._services.listener.status_changed(tracked.status)
            if drop_following(tracked):
                follow_trace(self._services, tracked)

    def typing(self, path: str) -> None:
        """A key was pressed in a file: the running trace of its unsaved text ends, and what follows it waits."""
        tracked = self._tracked.get(path)
        if tracked is None:
            return
        drop_following(tracked)
        if tracked.source.unsaved and self._interrupt_generation(tracked, "typing goes on"):
            tracked.generation += 1  # so that nothing that it still does is shown
            tracked.source = replace(tracked.source, sha256="")  # so that even the same text is traced again
            tracked.ended.set()

    async def typed(self, path: str, text: bytes, *, runs_module: bool = False) -> bool:
        """The editor's text of an open file has changed: trace it, and the open files that import it, at low priority.

        False if it waits for the save: it is no valid Python, it has no model any more, or other code of it would run
        when it is imported. With `runs_module`, such code runs.
        """
        tracked = self._tracked.get(path)
        if tracked is None or self._closing or not tracked.open or is_library(path) or not self.trusts(path):
            return False
        source, saved = make_unsaved_source(text), read_source(path)
        if saved is not None and saved.unreadable:
            return False  # a pipe, a device, or too large: what is told of the file holds for its text, too
        if saved is not None and saved.is_as(source):
            if self._unsaved.source(path) is None:
                self._request_generation(tracked)
            self.forget_text(path)
            return True
        if tracked.typed_crashes >= CRASHES or not await self._may_run(tracked, source, saved, runs_module):
            return False
        if self._closing or self._tracked.get(path) is not tracked or not tracked.open:
            return False
        self._unsaved.put(path, source, EDITOR)
        tracked.typed = True
        self._request_generation(tracked)
        self._trace_dependents(path, typed=True)
        return True

    async def _may_run(self, tracked: Tracked, source: Source, saved: Source | None, runs_module: bool) -> bool:
        discover = self._services.discoverer.discover
        found = await discover(tracked.path, source.data, source.sha256)
        before = None if saved is None else await discover(tracked.path, saved.data, saved.sha256)
        if before is not None and before.problem is None:
            tracked.module_code = before.module_code
        if found.problem is not None or found.broken > (0 if before is None else before.broken):
            return False
        if not found.has_model and self.store.snapshot(tracked.path) is not None:
            return False  # somebody types the name of a base class: its shapes would all disappear
        return runs_module or found.module_code == tracked.module_code

    def closed(self, path: str, by: str = EDITOR) -> None:
        """A client has closed `path`. Once no client has it open, its snapshot stays, but its child may end.

        A deleted file keeps nothing: its results for other files would stay for ever.
        """
        self._libraries.discard(path)
        tracked = self._tracked.get(path)
        if tracked is not None:
            tracked.openers.discard(by)
            self.forget_text(path, by)
            if not tracked.open and not os.path.lexists(path):
                self._forget_file(tracked)
            self._end_closed()
            self._update_watcher()

    def retrace(self, path: str, by: str = EDITOR) -> None:
        """Trace `path` again though it has not changed; open it if it is not open."""
        tracked = self._tracked.get(path)
        if tracked is None:
            self.opened(path, by=by)
        else:
            tracked.freshness.settle()
            self._request_generation(tracked, force=True)

    def trusts(self, path: str) -> bool:
        """May the file `path` be run? Decided by its present real location, even if a link has taken its place."""
        return Path(path).is_absolute() and self._trusts(canonical_path(path))

    def status(self, path: str) -> Status | None:
        """The state of the newest generation of a file; None if it was never opened."""
        tracked = self._tracked.get(path)
        return None if tracked is None else tracked.status

    def file(self, path: str) -> Tracked | None:
        """The file's record in `files`, or None."""
        return self._tracked.get(path)

    def files(self) -> list[Tracked]:
        """Every file that is or was open."""
        return list(self._tracked.values())

    def counted(self) -> Counted:
        """The counters of requests, traces and processes for `mase/statistics`."""
        metrics, pool = self.metrics, self._services.pool
        return {
            "seconds": time.monotonic() - metrics.began,
            "methods": metrics.requests.told(),
            "traces": metrics.traces.told(),
            "unchanged": metrics.unchanged,
            "running": self.slots.running,
            "waiting": self.slots.waiting,
            "subscribers": self.events.count,
            "booted": pool.booted,
            "forked": pool.forked,
        }

    def pick(self, path: str, root: str | None) -> None:
        """Show one root alone where several use a class of the file `path`; None shows all."""
        self.store.pick(path, root)
        self._services.listener.views_changed(frozenset({path}))

    def pick_inputs(self, path: str, model: str, name: str | None, *, at_once: bool = True) -> None:
        """Trace a model of `path` with this named set of inputs, "" for none, None for the first, and keep the choice.

        model: its name.  at_once: trace now, not only at the next save.  PassError if the choice cannot be stored.
        """
        try:
            self._services.picked.pick(path, model, name)
        except OSError as error:
            raise PassError("internal", f"the choice of inputs is not kept: {describe_os_error(error)}") from error
        if at_once and (tracked := self._tracked.get(path)) is not None:
            self._request_generation(tracked, force=True)

    def traced_text(self, path: str) -> str:
        """The text of a file that was last asked to be traced."""
        return self._tracked[path].source.data.decode("utf-8", "replace") if path in self._tracked else ""

    async def tried(
        self,
        path: str,
        options: TraceOptions,
        text: str | None = None,
        then: Callable[[TraceWorker], Awaitable[None]] | None = None,
    ) -> Trial:
        """Trace a file that was opened before with other options or another text; what is shown stays as it is.

        then: a call of the child once it has traced.
        """
        tracked = self._tracked[path]
        if not self.trusts(path):
            return Trial(None, (Problem(path, 1, 0, 2, 0, "error", "untrusted", UNTRUSTED),))
        return await run_trial(self._services, tracked, options, text, then)

    async def compile(
        self, path: str, title: str | None, view: str, further: bool, passes: bool = False, device: str = ""
    ) -> answers.Compiled:
        """Compile a model, with or without its passes; kept for the same texts and inputs."""
        title = self.passes.title(path, title)
        imported = list(VIEWS[view])
        steps = self.passes.steps(path, title) if passes else ()

        async def ask() -> answers.Compiled:
            made: answers.Compiled = await self.passes.written(
                "compiled", path, title, not steps, view, further=further, device=device,
                on_event=lambda message: imported.extend(message.get("modules", ())),
            )  # fmt: skip
            self._services.pool.used(path, imported)
            return made

        def find_key() -> tuple[Any, ...] | None:
            snapshot, tracked = self.store.snapshot(path), self._tracked.get(path)
            if snapshot is None or tracked is None or title not in snapshot.titles:
                return None
            record = repr(snapshot.payload["models"][snapshot.titles.index(title)])
            looked_at = hash(tuple((one.kind, one.path, repr(one.seen)) for one in tracked.freshness.dependencies))
            shown = view, further, device, tuple(map(str, steps))
            return path, tracked.interpreter, snapshot.sha256, looked_at, record, *shown

        if (key := find_key()) not in self._compiled:
            await self._wait_for_holder(path)  # the numbers of a trace come before its symbols
            key = find_key()
        if (snapshot := self.store.snapshot(path)) is None or key is None:
            return await ask()
        if key not in self._compiled:
            made = await self._compile_once(key, ask)
            if self.store.snapshot(path) is not snapshot:
                return made
            self._compiled = {**dict([*self._compiled.items()][1 - _MOST_COMPILED :]), key: made}
        if view == "inductor" and not steps and self.kernels(snapshot, title) is not self._compiled[key]["kernels"]:
            self._kernels[path, title] = snapshot, self._compiled[key]["kernels"]
            self._services.listener.views_changed(frozenset({path}))
        return self._compiled[key]

    async def _compile_once(
        self, key: tuple[Any, ...], ask: Callable[[], Coroutine[Any, Any, answers.Compiled]]
    ) -> answers.Compiled:
        """Those who ask for the same at once share one answer; it is cancelled once all of them gave up."""
        task, waiting = self._compiling.get(key) or (asyncio.create_task(ask()), 0)
        self._compiling[key] = task, waiting + 1
        try:
            return await asyncio.shield(task)
        finally:
            _, waiting = self._compiling[key]
            self._compiling[key] = task, waiting - 1
            if waiting == 1:
                del self._compiling[key]
                task.cancel()

    def kernels(self, snapshot: GraphSnapshot, title: str) -> Sequence[answers.Kernel] | None:
        """Inductor's kernels of a model of this trace; None unless they were asked for."""
        of, kernels = self._kernels.get((snapshot.path, title), (None, None))
        return kernels if is_same_trace(of, snapshot) else None

    def show_run(self, path: str, title: str, run: ShownRun | None) -> None:
        """Show the costs of a run of a model from now on, or none; those of a trace that is not shown are dropped."""
        if run is None and self._runs.pop((path, title), None) is None:
            return
        if run is not None:
            if not is_same_trace(run, self.store.snapshot(path)):
                return
            last = self._runs.get((path, title))
            if last is not None and last.sha256 == run.sha256:
                last = last.before
            self._runs[path, title] = replace(run, before=last and replace(last, nodes={}, rest={}, before=None))
        self._services.listener.views_changed(frozenset({path}))

    def run_shown(self, path: str, title: str) -> ShownRun | None:
        """The run of a model whose costs are shown, perhaps of an earlier trace."""
        return self._runs.get((path, title))

    def run_costs(self, snapshot: GraphSnapshot, title: str) -> ShownRun | None:
        """The run of a model of this trace whose costs are shown."""
        run = self._runs.get((snapshot.path, title))
        return run if run is not None and is_same_trace(run, snapshot) else None

    async def record_run(self, path: str, title: str, run: Mapping[str, object]) -> RunCosts:
        """Run a model without passes, and have what that imports loaded before the next time."""
        imported: list[str] = []
        told: RunCosts = await self.passes.written(
            "run_costs", path, title, True, run=run,
            on_event=lambda message: imported.extend(message.get("modules", ())),
        )  # fmt: skip
        self._services.pool.used(path, imported)
        return told

    def cancel(self, path: str) -> None:
        """Stop the running trace of `path`, if there is one; its next save or `retrace` starts another."""
        tracked = self._tracked.get(path)
        if tracked is not None and tracked.task is not None and not tracked.task.done():
            tracked.task.cancel()
            report_status(self._services, tracked, "superseded", "cancelled")
            tracked.ended.set()

    def environment_changed(self, folder: str | None) -> None:
        """The interpreter or its packages changed: restart the workers of `folder` (None: all) and trace again."""
        self._spawn_task(self._restart_folder(folder))

    async def wait(self, path: str) -> Status:
        """The end state of the newest requested generation; KeyError for a file that was never opened."""
        tracked = self._tracked[path]
        while not tracked.ended.is_set():
            await tracked.ended.wait()
        assert tracked.status is not None
        return tracked.status

    def worker(self, path: str) -> TraceWorker | None:
        """The live child that holds the graphs of the model file `path`."""
        tracked = self._tracked.get(path)
        return tracked.worker if tracked is not None and tracked.live else None

    def _get_holder(self, path: str) -> TraceWorker | None:
        """The live child that holds the shown graphs, or None."""
        worker, shown = self.worker(path), self.store.snapshot(path)
        return worker if worker and shown and worker.request.generation == shown.generation else None

    async def _wait_for_holder(self, path: str) -> TraceWorker:
        """The live child, once the running trace has ended or a new one was made; PassError says why there is none."""
        tracked = self._tracked.get(path)
        if self._closing:
            raise PassError("gone", "The server is shutting down.")
        if tracked is None:
            raise PassError("argument", f"{path} was not traced: open it first.")
        if not self.trusts(path):
            raise PassError("untrusted", UNTRUSTED)
        status = await self.wait(path)
        if self._get_holder(path) is None:
            self._request_generation(tracked, force=True)
            status = await self.wait(path)
        tracked.used_at = time.monotonic()
        if (worker := self._get_holder(path)) is None:
            if status.state == "no_environment":
                raise PassError("gone", status.message)
            why = status.message or f"its trace ended as {status.state}"
            raise PassError("gone", f"{Path(path).name} cannot be traced now: {why}")
        return worker

    def _request_generation(self, tracked: Tracked, force: bool = False) -> bool:
        """Start a generation, unless the file is unchanged and `force` is false."""
        source = self._unsaved.source(tracked.path) or read_source(tracked.path)
        if source is None:
            # An editor that saves by renaming leaves a moment without the file; the rename is reported next.
            source = make_missing_source(tracked.source) if force else tracked.source
        if not force and tracked.status is not None and source.is_as(tracked.source):
            self.metrics.unchanged += 1
            return False
        if not source.is_as(tracked.source):
            tracked.freshness.settle()
        if tracked.later is not None:
            tracked.later.cancel()
        drop_following(tracked)
        self._interrupt_generation(tracked, "a newer text came")
        self.passes.interrupt(tracked.path)
        self.verilog.interrupt(tracked.path)
        self._end_closed()
        if self.trusts(tracked.path):
            interpreter = self._services.settings_of(tracked.folder).interpreter
            found = list_interpreters(tracked.folder, tracked.path, interpreter, os.environ)
            if tracked.freshness.learn_environment(tracked.path, look_ups(tracked.folder, tracked.path, found)):
                self._update_watcher()
        tracked.next_generation(source)
        tracked.request = current_request("s")
        path = path_in_log(tracked.path, tracked.folder)
        log_event("asked", path=path, generation=tracked.generation, request=tracked.request)
        report_status(self._services, tracked, "queued")
        tracked.task = asyncio.create_task(self._run_generation(tracked))
        return True

    def _interrupt_generation(self, tracked: Tracked, why: str) -> bool:
        """End the running generation, if there is one."""
        if tracked.task is None or tracked.task.done():
            return False
        tracked.task.cancel()
        if tracked.status is not None and not tracked.status.ended:
            report_status(self._services, tracked, "superseded", why)
        return True

    def _read_again(self, tracked: Tracked) -> None:
        # The ending task itself calls this, and a new generation would cancel that task: hence one turn later.
        asyncio.get_running_loop().call_soon(self._request_generation, tracked, True)

    async def _run_generation(self, tracked: Tracked) -> None:
        REQUEST.set(tracked.request)
        generation = Generation(self._services, tracked)
        try:
            await generation.run()
        except Exception as error:  # noqa: BLE001  (the request's border: waiting clients must learn of its end)
            _log.exception("tracing %s", tracked.path)
            generation.fail_inside(error)

    def _ask_for_dependencies(self, tracked: Tracked, paths: Sequence[str], *, typed: bool = False) -> None:
        """Trace a file again because something changed at these paths; its shown results are stale from now on.

        typed: a person changed them, not a program.
        """
        status = tracked.status
        if status is None or status.state in ("queued", "starting"):
            return  # its child has not read anything yet
        name = path_in_log(tracked.path, tracked.folder)
        log_event("dependency", path=name, changed=[path_in_log(path, tracked.folder) for path in paths[:_TOLD]])
        self._mark_stale(tracked)
        just_ended = time.monotonic() < tracked.asked_at + status.seconds + _ECHO_SECONDS
        pause = 0.0 if typed else tracked.freshness.pause(paths, tracing=not status.ended or just_ended)
        if not pause:
            self._request_generation(tracked, force=True)
            return
        names = ", ".join(path_in_log(path, tracked.folder) for path in paths[:_TOLD])
        text = f"{names} changes again and again; {name} is traced again in {pause:g} s."
        _log.warning(text)
        if tracked.later is not None:
            tracked.later.cancel()
        tracked.later = asyncio.get_running_loop().call_later(pause, self._request_generation, tracked, True)
        self._spawn_task(self._tell_pause(tracked, tracked.generation, text))

    def _mark_stale(self, tracked: Tracked) -> None:
        entry = self.store.entry(tracked.path)
        if entry.shown is not None and not entry.stale:
            self.store.put(replace(entry, stale=True))

    async def _tell_pause(self, tracked: Tracked, generation: int, text: str) -> None:
        """Once the running trace has ended, report that its results are stale and why the file is not traced now."""
        await tracked.ended.wait()
        if tracked.generation == generation and tracked.status is not None:
            self._mark_stale(tracked)
            report_status(self._services, tracked, tracked.status.state, text)

    async def _check_dependencies(self, tracked: Tracked, dependencies: Sequence[Dependency] | None) -> None:
        """Compare dependencies with the disk (None: all) and trace the file again if one of them differs."""
        looked = await asyncio.to_thread(tracked.freshness.look_again, dependencies)
        if changed := tracked.freshness.note(looked):
            self._ask_for_dependencies(tracked, [one.path for one in changed])
        if tracked.status is not None and tracked.status.ended:
            tracked.ended.set()

    def _open_library(self, path: str) -> None:
        for snapshot in self.store.snapshots():
            if snapshot.is_library(path) and path not in self._libraries:
                self._libraries.add(path)
                self._instrument_libraries()
                return

    def _instrument_libraries(self) -> None:
        for tracked in self._tracked.values():
            shown = self.store.snapshot(tracked.path)
            hints = self._services.settings_of(tracked.folder).library_hints
            wanted = tuple(sorted(one for one in self._libraries if hints and shown and shown.is_library(one)))
            if tracked.open and set(wanted) - set(tracked.instrument):
                tracked.instrument = wanted
                self._request_generation(tracked, force=True)

    def _on_snapshot(self, tracked: Tracked, snapshot: GraphSnapshot) -> None:
        payload = snapshot.payload
        self._services.pool.learned(tracked.path, payload["preload"])
        fresh = tracked.freshness.learn(tracked.path, payload["dependencies"])
        self._update_watcher()
        if fresh:  # no event reported changes between the child's look and ours
            self._spawn_task(self._check_dependencies(tracked, fresh))

    def _update_watcher(self) -> None:
        if self._watcher is not None:
            looked_at = [one for one in self._tracked.values() if one.open]
            found = [one.freshness for one in looked_at]
            self._watcher.watch(
                {os.path.dirname(one.path) for one in looked_at}.union(*(one.folders for one in found)),  # noqa: PTH120
                paths=frozenset[str]().union(*(one.paths for one in found)),
                listed=frozenset[str]().union(*(one.listed for one in found)),
            )

    async def _restart_folder(self, folder: str | None) -> None:
        concerned = [one for one in self._tracked.values() if folder in (None, one.folder)]
        again = [one for one in concerned if self._interrupt_generation(one, "its environment changed") or one.open]
        for tracked in concerned:
            if tracked.worker is not None:
                self._retire_worker(tracked.worker)
                tracked.worker = None
        await self._services.pool.restart(folder)
        self._compiled.clear()
        for tracked in again:
            self._request_generation(tracked, force=True)

    def _end_closed(self) -> None:
        idle = (one for one in self._tracked.values() if one.live and not one.open)
        closed = sorted(idle, key=lambda one: one.used_at)
        if not closed:
            return  # the share of memory stands in a dozen files
        keep = 0 if available_fraction() < _MEMORY_LOW else _CLOSED_CHILDREN
        for tracked in closed[: max(0, len(closed) - keep)]:
            assert tracked.worker is not None
            self._retire_worker(tracked.worker)
            tracked.worker = None

    def _forget_file(self, tracked: Tracked) -> None:
        self._interrupt_generation(tracked, "the file is gone")
        self.passes.interrupt(tracked.path)
        self.verilog.interrupt(tracked.path)
        drop_following(tracked)
        tracked.ended.set()
        if tracked.worker is not None:
            self._retire_worker(tracked.worker)
        del self._tracked[tracked.path]
        self._runs = {key: run for key, run in self._runs.items() if key[0] != tracked.path}
        self._services.listener.views_changed(self.store.drop(tracked.path))

    def _retire_worker(self, worker: TraceWorker) -> None:
        self._spawn_task(retire_worker(worker))

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
