"""The daemon: keeps a snapshot of every model file that somebody looks at, and traces again at every save."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mase_server.daemon.discovery import Discoverer
from mase_server.daemon.environment import candidates, look_ups
from mase_server.daemon.events import Events, Listeners
from mase_server.daemon.generation import UNTRUSTED, Generation, Services, say
from mase_server.daemon.limits import available_fraction
from mase_server.daemon.passes import Host, Passes
from mase_server.daemon.picked_sets import PickedSets
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.pool import Pool, Start
from mase_server.daemon.process import DEFAULT_JOB
from mase_server.daemon.simulations import Simulations
from mase_server.daemon.slots import Slots
from mase_server.daemon.slowness import STAGE, Slowness
from mase_server.daemon.source import missing, read_source
from mase_server.daemon.status import FolderSettings, Listener, Status
from mase_server.daemon.store import GraphSnapshot, Store
from mase_server.daemon.supervisor import TraceWorker
from mase_server.daemon.tracked import Tracked, clean_scratch, retire
from mase_server.daemon.trials import Trial, trial
from mase_server.daemon.verilog import Verilog
from mase_server.daemon.watch import Watcher
from mase_server.dependencies import Dependency
from mase_server.directories import why
from mase_server.observe.metrics import Metrics
from mase_server.observe.records import event, within
from mase_server.observe.requests import REQUEST, current
from mase_server.paths import canonical
from mase_server.snapshot import Problem
from mase_server.worker.request import TraceOptions

__all__ = ["Daemon", "FolderSettings", "Listener", "Status", "TraceOptions"]

_log = logging.getLogger(__name__)
_CLOSED_CHILDREN = 8
_MEMORY_LOW = 0.1
#: Paths that one line names.
_TOLD = 3
#: Seconds after a trace in which changes that the program made itself are still heard of.
_ECHO_SECONDS = 0.5


class Daemon:
    """Traces model files and keeps what was found in `store`. All methods belong to one event loop and do not block."""

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
        """trusts: may a file run?  Without it that is a matter of its folder, which `settings_of` tells."""
        self.store = Store()
        self.metrics = Metrics()
        self.events = Events(self.store)
        processors = os.cpu_count() or 1
        self.slots = Slots(max(4, processors), processors)
        slowness = Slowness(lambda path, line: listener.progress(path, STAGE, line), self.slots.before)
        # What is slow is told before that it is over.
        listener = Listeners(slowness, listener, self.events)
        host = Host(self.store, listener, settings_of, folder_of, self._ready, self._holder)
        self.passes = Passes(host, on_shown=lambda path, title: self.verilog.shown(path, title))
        self.verilog = Verilog(host, self.passes)
        self.simulations = Simulations(self.verilog, listener, cache_dir)
        self._folder_of = folder_of
        self._trusts = trusts or (lambda path: settings_of(folder_of(path)).trusted)
        self._tracked: dict[str, Tracked] = {}
        self._libraries: set[str] = set()
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
            settings_of=settings_of,
            trusts=self.trusts,
            on_snapshot=self._on_snapshot,
            in_background=self._retire,
            on_mismatch=self._read_again,
            passes=self.passes,
            verilog=self.verilog,
            picked=PickedSets(state_dir),
        )
        self._watcher: Watcher | None = None
        self._closing = False

    async def start(self) -> None:
        """Begin to watch files; tracing begins as files are opened."""
        self._watcher = Watcher(self.saved, self._services.listener.warned)
        self._spawn(asyncio.to_thread(clean_scratch))

    async def shutdown(self) -> None:
        """End every process: TERM, 0.7 s, KILL."""
        self._closing = True
        if self._watcher is not None:
            self._watcher.close()
        for tracked in self._tracked.values():
            self._interrupt(tracked, "the server is shutting down")
            tracked.ended.set()
            if tracked.worker is not None:
                self._retire(tracked.worker)
        await self.passes.shutdown()
        await self.simulations.shutdown()
        await self.verilog.shutdown()
        tasks = [tracked.task for tracked in self._tracked.values() if tracked.task is not None]
        await asyncio.gather(*tasks, self._services.pool.restart(), return_exceptions=True)
        await asyncio.gather(*self._background, return_exceptions=True)

    def opened(self, path: str, options: TraceOptions | None = None, by: str = "editor") -> None:
        """Somebody looks at `path`: trace it unless its content is traced already."""
        self._open_library(path)
        tracked = self._tracked.get(path)
        fresh = tracked is None or (options is not None and options != tracked.options)
        if tracked is None:
            tracked = self._tracked[path] = Tracked(path, self._folder_of(path))
        reopened = not tracked.open and not fresh
        tracked.openers.add(by)
        tracked.options = options or tracked.options
        self._watch()
        if not self._ask(tracked, force=fresh) and reopened and tracked.status is not None and tracked.status.ended:
            tracked.ended.clear()
            self._spawn(self._check(tracked, None))

    def saved(self, path: str) -> None:
        """Something happened at a path: trace the file that it is, and every open one that depends on it."""
        tracked = self._tracked.get(path)
        if tracked is not None and tracked.open:
            self._ask(tracked)
        for other in self._tracked.values():
            if other.open and other is not tracked and other.freshness.changes_at(path):
                self._ask_for_dependencies(other, [path])

    def closed(self, path: str, by: str = "editor") -> None:
        """Who opened `path` looks at it no longer; once nobody does, its snapshot stays, its child may end.

        Of a file that is not there any more nothing stays: it would speak of other files for ever.
        """
        self._libraries.discard(path)
        tracked = self._tracked.get(path)
        if tracked is not None:
            tracked.openers.discard(by)
            if not tracked.open and not os.path.lexists(path):
                self._forget(tracked)
            self._end_closed()
            self._watch()

    def retrace(self, path: str, by: str = "editor") -> None:
        """Trace `path` again though it has not changed; open it where nobody did."""
        tracked = self._tracked.get(path)
        if tracked is None:
            self.opened(path, by=by)
        else:
            tracked.freshness.settle()
            self._ask(tracked, force=True)

    def trusts(self, path: str) -> bool:
        """May the file `path` be run? That is asked of where it lies now, also if a link has taken its place."""
        return Path(path).is_absolute() and self._trusts(canonical(path))

    def status(self, path: str) -> Status | None:
        """Where the newest generation of a file is; None for one that was never opened."""
        tracked = self._tracked.get(path)
        return None if tracked is None else tracked.status

    def file(self, path: str) -> Tracked | None:
        """One of `files`."""
        return self._tracked.get(path)

    def files(self) -> list[Tracked]:
        """Every file that somebody is or was interested in."""
        return list(self._tracked.values())

    def counted(self) -> dict[str, Any]:
        """What `mase/statistics` tells of requests, traces and processes."""
        metrics, pool = self.metrics, self._services.pool
        told = {"methods": metrics.requests.told(), "traces": metrics.traces.told(), "unchanged": metrics.unchanged}
        now = {"running": self.slots.running, "waiting": self.slots.waiting, "subscribers": self.events.count}
        seconds = time.monotonic() - metrics.began
        return {"seconds": seconds, **told, **now, "booted": pool.booted, "forked": pool.forked}

    def pick(self, path: str, root: str | None) -> None:
        """Show one root alone where several use a class of the file `path`; all for None."""
        self.store.pick(path, root)
        self._services.listener.views_changed(frozenset({path}))

    def pick_inputs(self, path: str, model: str, name: str | None, *, at_once: bool = True) -> None:
        """Trace a model of the file `path` with this named set of inputs, "" for none, None for the first; remember it.

        model: its name.  at_once: now, not only when the file is saved.  PassError where that cannot be kept.
        """
        try:
            self._services.picked.pick(path, model, name)
        except OSError as error:
            raise PassError("internal", f"the choice of inputs is not kept: {why(error)}") from error
        if at_once and (tracked := self._tracked.get(path)) is not None:
            self._ask(tracked, force=True)

    async def tried(self, path: str, options: TraceOptions) -> Trial:
        """What a file that somebody looked at would give with other options; what is shown stays as it is."""
        tracked = self._tracked[path]
        if not self.trusts(path):
            return Trial(None, (Problem(path, 1, 0, 2, 0, "error", "untrusted", UNTRUSTED),))
        return await trial(self._services, tracked, options)

    def cancel(self, path: str) -> None:
        """Stop the trace of `path` that runs, if one does; its next save or `retrace` begins another."""
        tracked = self._tracked.get(path)
        if tracked is not None and tracked.task is not None and not tracked.task.done():
            tracked.task.cancel()
            say(self._services, tracked, "superseded", "cancelled")
            tracked.ended.set()

    def environment_changed(self, folder: str | None) -> None:
        """Another interpreter, or other packages: restart the workers of `folder` (None: all) and trace anew."""
        self._spawn(self._restart(folder))

    async def wait(self, path: str) -> Status:
        """The end state of the newest generation asked for; KeyError for a file that was never opened."""
        tracked = self._tracked[path]
        while not tracked.ended.is_set():
            await tracked.ended.wait()
        assert tracked.status is not None
        return tracked.status

    def worker(self, path: str) -> TraceWorker | None:
        """The live child that holds the graphs of the model file `path`."""
        tracked = self._tracked.get(path)
        return tracked.worker if tracked is not None and tracked.live else None

    def _holder(self, path: str) -> TraceWorker | None:
        """The live child whose graphs are those that are shown."""
        worker, shown = self.worker(path), self.store.snapshot(path)
        return worker if worker and shown and worker.request.generation == shown.generation else None

    async def _ready(self, path: str) -> TraceWorker:
        """`_holder`, once the trace that runs has ended, or after a new one; PassError says why there is none."""
        tracked = self._tracked.get(path)
        if self._closing:
            raise PassError("gone", "The server is shutting down.")
        if tracked is None:
            raise PassError("argument", f"{path} was not traced: open it first.")
        if not self.trusts(path):
            raise PassError("untrusted", UNTRUSTED)
        status = await self.wait(path)
        if self._holder(path) is None:
            self._ask(tracked, force=True)
            status = await self.wait(path)
        tracked.used_at = time.monotonic()
        if (worker := self._holder(path)) is None:
            raise PassError("gone", f"{Path(path).name} cannot be traced now: {status.message or status.state}")
        return worker

    def _ask(self, tracked: Tracked, force: bool = False) -> bool:
        """Begin a generation, unless the file is as it was and none is forced."""
        source = read_source(tracked.path)
        if source is None:
            # An editor that writes by renaming leaves a moment without the file: the rename is seen next.
            source = missing(tracked.source) if force else tracked.source
        if not force and tracked.status is not None and source.is_as(tracked.source):
            self.metrics.unchanged += 1
            return False
        if not source.is_as(tracked.source):
            tracked.freshness.settle()
        if tracked.later is not None:
            tracked.later.cancel()
        self._interrupt(tracked, "a newer save came")
        self.passes.interrupt(tracked.path)
        self.verilog.interrupt(tracked.path)
        self._end_closed()
        if self.trusts(tracked.path):
            interpreter = self._services.settings_of(tracked.folder).interpreter
            found = candidates(tracked.folder, tracked.path, interpreter, os.environ)
            if tracked.freshness.learn_environment(tracked.path, look_ups(tracked.folder, tracked.path, found)):
                self._watch()
        tracked.next_generation(source)
        tracked.request = current("s")
        path = within(tracked.path, tracked.folder)
        event("asked", path=path, generation=tracked.generation, request=tracked.request)
        say(self._services, tracked, "queued")
        tracked.task = asyncio.create_task(self._run(tracked))
        return True

    def _interrupt(self, tracked: Tracked, why: str) -> bool:
        """End the generation that runs, if any does."""
        if tracked.task is None or tracked.task.done():
            return False
        tracked.task.cancel()
        if tracked.status is not None and not tracked.status.ended:
            say(self._services, tracked, "superseded", why)
        return True

    def _read_again(self, tracked: Tracked) -> None:
        # Called by the task that ends with it, which a new generation would cancel: hence one turn later.
        asyncio.get_running_loop().call_soon(self._ask, tracked, True)

    async def _run(self, tracked: Tracked) -> None:
        REQUEST.set(tracked.request)
        generation = Generation(self._services, tracked)
        try:
            await generation.run()
        except Exception as error:  # noqa: BLE001  (the request's border: whoever waits must hear of an end)
            _log.exception("tracing %s", tracked.path)
            generation.fail_inside(error)

    def _ask_for_dependencies(self, tracked: Tracked, paths: Sequence[str]) -> None:
        """Trace a file again because of what changed at these paths; what is shown of it is stale from now on."""
        status = tracked.status
        if status is None or status.state in ("queued", "starting"):
            return  # its child has not read anything yet
        name = within(tracked.path, tracked.folder)
        event("dependency", path=name, changed=[within(path, tracked.folder) for path in paths[:_TOLD]])
        self._mark_stale(tracked)
        just_ended = time.monotonic() < tracked.asked_at + status.seconds + _ECHO_SECONDS
        pause = tracked.freshness.pause(paths, tracing=not status.ended or just_ended)
        if not pause:
            self._ask(tracked, force=True)
            return
        names = ", ".join(within(path, tracked.folder) for path in paths[:_TOLD])
        text = f"{names} changes again and again; {name} is traced again in {pause:g} s."
        _log.warning(text)
        if tracked.later is not None:
            tracked.later.cancel()
        tracked.later = asyncio.get_running_loop().call_later(pause, self._ask, tracked, True)
        self._spawn(self._tell_pause(tracked, tracked.generation, text))

    def _mark_stale(self, tracked: Tracked) -> None:
        entry = self.store.entry(tracked.path)
        if entry.shown is not None and not entry.stale:
            self.store.put(replace(entry, stale=True))

    async def _tell_pause(self, tracked: Tracked, generation: int, text: str) -> None:
        """Once the trace that runs has ended: what it gave is stale already, and why nothing is done about it now."""
        await tracked.ended.wait()
        if tracked.generation == generation and tracked.status is not None:
            self._mark_stale(tracked)
            say(self._services, tracked, tracked.status.state, text)

    async def _check(self, tracked: Tracked, dependencies: Sequence[Dependency] | None) -> None:
        """Compare dependencies with the disk (None: all), and trace the file again where any is another one."""
        changed = await asyncio.to_thread(tracked.freshness.changed, dependencies)
        if changed:
            self._ask_for_dependencies(tracked, [one.path for one in changed])
        if tracked.status is not None and tracked.status.ended:
            tracked.ended.set()

    def _open_library(self, path: str) -> None:
        for snapshot in self.store.snapshots():
            if snapshot.is_library(path) and path not in self._libraries:
                self._libraries.add(path)
                self._instrument()
                return

    def _instrument(self) -> None:
        for tracked in self._tracked.values():
            shown = self.store.snapshot(tracked.path)
            hints = self._services.settings_of(tracked.folder).library_hints
            wanted = tuple(sorted(one for one in self._libraries if hints and shown and shown.is_library(one)))
            if tracked.open and set(wanted) - set(tracked.instrument):
                tracked.instrument = wanted
                self._ask(tracked, force=True)

    def _on_snapshot(self, tracked: Tracked, snapshot: GraphSnapshot) -> None:
        payload = snapshot.payload
        self._services.pool.learned(tracked.path, payload["preload"])
        fresh = tracked.freshness.learn(tracked.path, payload["dependencies"])
        self._watch()
        if fresh and payload["complete"]:  # what changed between the child's look and ours was told by nobody
            self._spawn(self._check(tracked, fresh))

    def _watch(self) -> None:
        if self._watcher is not None:
            looked_at = [one for one in self._tracked.values() if one.open]
            found = [one.freshness for one in looked_at]
            self._watcher.watch(
                {os.path.dirname(one.path) for one in looked_at}.union(*(one.folders for one in found)),  # noqa: PTH120
                paths=frozenset[str]().union(*(one.paths for one in found)),
                listed=frozenset[str]().union(*(one.listed for one in found)),
            )

    async def _restart(self, folder: str | None) -> None:
        concerned = [one for one in self._tracked.values() if folder in (None, one.folder)]
        again = [one for one in concerned if self._interrupt(one, "its environment changed") or one.open]
        for tracked in concerned:
            if tracked.worker is not None:
                self._retire(tracked.worker)
                tracked.worker = None
        await self._services.pool.restart(folder)
        for tracked in again:
            self._ask(tracked, force=True)

    def _end_closed(self) -> None:
        idle = (one for one in self._tracked.values() if one.live and not one.open)
        closed = sorted(idle, key=lambda one: one.used_at)
        keep = 0 if available_fraction() < _MEMORY_LOW else _CLOSED_CHILDREN
        for tracked in closed[: max(0, len(closed) - keep)]:
            assert tracked.worker is not None
            self._retire(tracked.worker)
            tracked.worker = None

    def _forget(self, tracked: Tracked) -> None:
        self._interrupt(tracked, "the file is gone")
        self.passes.interrupt(tracked.path)
        self.verilog.interrupt(tracked.path)
        tracked.ended.set()
        if tracked.worker is not None:
            self._retire(tracked.worker)
        del self._tracked[tracked.path]
        self._services.listener.views_changed(self.store.drop(tracked.path))

    def _retire(self, worker: TraceWorker) -> None:
        self._spawn(retire(worker))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
