"""Changes to the pipeline of a model, and what is shown of it at each moment.

A new step is on trial until a result can be shown: if it fails before that, the pipeline is unchanged. If an accepted
step fails on a later text, it stays with a warning at the class, and the result of the steps before it is shown.
Changes to one model are made one at a time, under its lock; measuring holds no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mase_server.daemon.channel import CallFailed, OnEvent, WorkerGone
from mase_server.daemon.graph_snapshot import GraphSnapshot, Transform
from mase_server.daemon.pipelines import Overlays, PassError, Pipeline, Pipelines, Steps, models_of
from mase_server.daemon.status import FolderSettings, Listener
from mase_server.daemon.store import Store
from mase_server.daemon.supervisor import Limits, TraceWorker
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import Params
from mase_server.protocol.wire import Message
from mase_server.suggestions import suggest

#: How often a pass is started anew because the file was saved meanwhile.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Host:
    """The services of the daemon that passes need.

    ready: returns the live child of a file, tracing the file first if it has none; PassError if that fails.
    live: returns the live child that holds the shown graphs, or None.
    """

    store: Store
    listener: Listener
    settings_of: Callable[[str], FolderSettings]
    folder_of: Callable[[str], str]
    ready: Callable[[str], Awaitable[TraceWorker]]
    live: Callable[[str], TraceWorker | None]


@dataclass(slots=True, eq=False)
class Model:
    """One model of one file. `lock` is held while its next pipeline is undecided."""

    path: str
    title: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    run: Run | None = None


class Changes:
    """Changes pipelines. A model's lock is held while its next pipeline is undecided."""

    def __init__(self, host: Host, on_shown: Callable[[str, str], None]) -> None:
        self.host = host
        self.on_shown = on_shown
        self.pipelines = Pipelines(host.settings_of, host.folder_of)
        self.overlays = Overlays()
        self.models: dict[tuple[str, str], Model] = {}

    def model(self, path: str, title: str | None) -> Model:
        """The model of this title, or the first one without it; ValueError names the existing ones."""
        models = models_of(self.host.store.snapshot(path))
        titles = [name for name, _ in models]
        if title is None:
            title = next((name for name, rest in models if not rest), titles[0] if titles else None)
        if title is None or title not in titles:
            raise ValueError(f"no model {title or ''!r} is shown in {path}{suggest(title or '', titles, 'it has')}")
        return self.models.setdefault((path, title), Model(path, title))

    def of_file(self, path: str) -> list[Model]:
        """The models of a file that were asked for."""
        return [model for (file, _), model in self.models.items() if file == path]

    def pipeline(self, model: Model) -> Pipeline:
        """The current pipeline of a model."""
        rest = dict(models_of(self.host.store.snapshot(model.path))).get(model.title, False)
        return self.pipelines.of(model.path, model.title, rest)

    async def attempt(self, model: Model, step: Step) -> Run:
        """Append a step once its result can be shown.

        PassError if it fails; nothing has changed then. A save meanwhile starts the attempt anew.
        """
        before = self.pipeline(model)
        for _ in range(_TRIES):
            worker = await self.host.ready(model.path)
            run = self._start_run(model, worker, (*before.steps, step), before)
            try:
                await run.decided()
            except asyncio.CancelledError:
                self.take_back(model, run)
                raise
            if run.accepted.is_set():
                return run
            if (error := _get_run_failure(run, worker)) is not None:
                self.measure(model)
                raise error
        name = Path(model.path).name
        raise PassError("cancelled", f"{name} was saved again and again meanwhile; nothing has changed.")

    async def change(self, model: Model, change: Callable[[Pipeline], Pipeline]) -> None:
        """Change a pipeline and show its result: at once if it is known, else as soon as the child reports it."""
        async with model.lock:
            self.drop(model)
            self.pipelines.put(model.path, model.title, change(self.pipeline(model)))
            await self._settle_pipeline(model)

    async def _settle_pipeline(self, model: Model) -> None:
        snapshot, steps = self.host.store.snapshot(model.path), self.pipeline(model).steps
        if snapshot is None:
            return
        known = self.overlays.find(snapshot, model.title, steps)
        if known is not None or not steps:
            self._show(snapshot, model.title, known)
            self.measure(model)
            return
        run = None
        try:
            worker = await self.host.ready(model.path)
            run = self._start_run(model, worker, steps)
            await run.decided()
            if (error := _get_run_failure(run, worker)) is not None:
                raise error
        finally:
            if run is None or not run.accepted.is_set():
                self._show(snapshot, model.title, None)

    def take_back(self, model: Model, run: Run) -> None:
        """Forget a step that was tried; if it is shown already and nothing came after it, show the previous state."""
        if model.run is run:
            self.drop(model)
        before, snapshot = run.ask.before, run.ask.snapshot
        if before is not None and self.pipeline(model) == Pipeline(run.ask.steps):
            self.pipelines.put(model.path, model.title, before)
            known = self.overlays.find(snapshot, model.title, before.steps)
            self._show(snapshot, model.title, known)
        if model.run is None:
            self.measure(model)

    def measure(self, model: Model) -> Run | None:
        """Compute in the background what the pipeline's overlay still lacks."""
        worker, snapshot = self.host.live(model.path), self.host.store.snapshot(model.path)
        steps = self.pipeline(model).steps
        if worker is None or snapshot is None or model.title not in snapshot.titles or not steps:
            return None
        known = self.overlays.find(snapshot, model.title, steps)
        return None if known is not None and known.complete else self._start_run(model, worker, steps)

    def _start_run(self, model: Model, worker: TraceWorker, steps: Steps, before: Pipeline | None = None) -> Run:
        snapshot = self.host.store.snapshot(model.path)
        if snapshot is None or model.title not in snapshot.titles:
            raise PassError("gone", f"{model.title} is not in {Path(model.path).name} any longer.")
        self.drop(model)
        settings = self.host.settings_of(self.host.folder_of(model.path))
        ask = Ask(snapshot, model.title, steps, before, settings.pass_seconds, settings.memory_limit)
        model.run = run = Run(ask, self.host.listener, partial(self._store_transform, model))
        run.start(worker)
        assert run.task is not None
        run.task.add_done_callback(lambda done: self._handle_run_end(model, run))
        return run

    @staticmethod
    def drop(model: Model) -> None:
        """Stop the current run; its results are not shown any more."""
        if model.run is not None:
            run, model.run = model.run, None
            run.stop()

    def _handle_run_end(self, model: Model, run: Run) -> None:
        run.error()  # mark the error as retrieved: possibly nobody waits for it
        if model.run is run:
            model.run = None
        self.host.listener.pass_ended(model.path, model.title)

    @staticmethod
    def stop_pending(model: Model) -> bool:
        """Cancel the pass that is being tried; returns whether there was one."""
        if model.run is None or not model.run.pending:
            return False
        model.run.stop(by_person=True)
        return True

    def _store_transform(self, model: Model, run: Run, transform: Transform) -> None:
        self.overlays.put(run.ask.snapshot, model.title, run.ask.steps, transform)
        if run.pending:
            self.pipelines.put(model.path, model.title, Pipeline(run.ask.steps))
        self._show(run.ask.snapshot, model.title, transform)

    def _show(self, snapshot: GraphSnapshot, title: str, transform: Transform | None) -> None:
        """Lay the transform of a model over its snapshot, if that snapshot is still the shown one."""
        entry, index = self.host.store.entry(snapshot.path), snapshot.titles.index(title)
        if entry.shown is None or entry.shown.payload is not snapshot.payload:
            return
        transforms = {key: found for key, found in entry.shown.transforms.items() if key != index}
        if transform is not None:
            transforms[index] = transform
        shown = entry.shown.with_transforms(transforms)
        self.host.listener.views_changed(self.host.store.put(replace(entry, shown=shown)))
        self.on_shown(snapshot.path, title)


def _get_run_failure(run: Run, worker: TraceWorker) -> PassError | None:
    """The error that makes a run's result impossible to show; None if it can be shown, or only a save intervened."""
    error = run.error()
    if isinstance(error, PassError):
        return error
    if error is not None and not isinstance(error, WorkerGone):
        raise error
    if run.by_person:
        return PassError("cancelled", f"{run.ask.steps[-1].name} was cancelled; nothing has changed.")
    if isinstance(error, WorkerGone) and not worker.retired:
        return PassError("gone", gone_text(run.ask.snapshot.path, error))
    return None


def gone_text(path: str, error: BaseException) -> str:
    """The message about a child that ended before it answered."""
    return (
        f"The process that held the graphs of {Path(path).name} ended meanwhile ({error}). "
        "Nothing is lost: try again, and the file is traced anew first."
    )


# One run of a pipeline in the child of a model file: its events, and how it ends.

#: The child enforces the limit of passes itself; so many seconds later the server assumes that it hangs.
_GRACE = 10.0
_LIMITS = "(settings mase.passes.seconds and mase.limits.memory)"
#: After these errors, results that the steps gave without weights are still valid and stay.
_HARMLESS = frozenset({"limit", "internal", "cancelled", "gone"})


class Callee(Protocol):
    """The part of a TraceWorker that is needed here."""

    async def call(self, method: str, params: Params | None = None, on_event: OnEvent | None = None) -> Any:
        """See `supervisor.TraceWorker.call`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to a child.

    before: if the last step is new, the pipeline to return to if that step fails; else None.
    """

    snapshot: GraphSnapshot
    title: str
    steps: Steps
    before: Pipeline | None
    seconds: float
    memory: int


@dataclass(slots=True, eq=False)
class Run:
    """One run. accepted: some result can be shown.  newest: the last result received, not shown if it failed."""

    ask: Ask
    listener: Listener
    show: Callable[[Run, Transform], None]
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    newest: Transform | None = None
    stopped: bool = False
    by_person: bool = False
    task: asyncio.Task[None] | None = None

    def start(self, worker: Callee) -> None:
        """Start it as a task that ends with None, PassError or WorkerGone."""
        self.task = asyncio.create_task(self._drive_run(worker))

    def stop(self, by_person: bool = False) -> None:
        """Stop it, in the child too; its later events are ignored."""
        self.stopped, self.by_person = True, by_person
        if self.task is not None and not self.task.done():
            self.task.cancel()
            if by_person and not self.pending and self.newest is not None:
                self._show_newest(self.newest.stopped("Measuring it was cancelled."))

    @property
    def index(self) -> int:
        """The index of its model."""
        return self.ask.snapshot.titles.index(self.ask.title)

    @property
    def trial(self) -> bool:
        """Is its last step new?"""
        return self.ask.before is not None

    @property
    def pending(self) -> bool:
        """Is it still undecided whether its new step is kept?"""
        return self.trial and not self.accepted.is_set()

    async def decided(self) -> None:
        """Wait until a result can be shown, or it has ended."""
        assert self.task is not None
        accepted = asyncio.create_task(self.accepted.wait())
        try:
            await asyncio.wait((self.task, accepted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            accepted.cancel()

    async def over(self) -> None:
        """Wait until it has ended, whatever its result."""
        assert self.task is not None
        await asyncio.wait((self.task,))

    def error(self) -> BaseException | None:
        """Why it failed; None if it did not fail or was stopped."""
        assert self.task is not None
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None

    async def _drive_run(self, worker: Callee) -> None:
        try:
            await self._call_worker(worker)
        except (PassError, WorkerGone) as error:
            self._keep_or_raise(error)
            return
        if self.newest is None:
            raise PassError("internal", f"The worker sent no result of the passes on {self.ask.title}.")
        if self.newest.failed and self.trial:
            raise PassError("pass", str(self.newest.told["problem"]))
        if not self.newest.complete:
            self._show_newest(self.newest.stopped(self.newest.told["problem"]))

    def _keep_or_raise(self, error: PassError | WorkerGone) -> None:
        """Keep results that are valid all the same; raise if there are none."""
        kind = error.kind if isinstance(error, PassError) else "gone"
        refused = self.pending or (self.newest is not None and self.newest.failed) or kind not in _HARMLESS
        if (self.trial and refused) or (self.newest is None and kind in ("gone", "cancelled")):
            raise error
        if self.newest is None:
            failed = None if kind in _HARMLESS else len(self.ask.steps) - 1
            self._show_newest(Transform.nothing(self.index, failed, str(error)))
        elif not self.newest.complete:
            self._show_newest(self.newest.stopped(self.newest.told["problem"] if self.newest.failed else str(error)))

    def _handle_event(self, message: Message) -> None:
        if self.stopped:
            return
        if message["event"] == "progress":
            path, fraction = self.ask.snapshot.path, message.get("fraction")
            self.listener.pass_progress(path, self.ask.title, message["message"], fraction)
        elif message["event"] == "transform":
            self.newest = replace(Transform.from_wire(message["transform"]), model=self.index)
            if self.trial and (self.newest.failed or len(self.newest.told["steps"]) < len(self.ask.steps)):
                return
            self._show_newest(self.newest)

    def _show_newest(self, transform: Transform) -> None:
        self.newest = transform
        self.show(self, transform)
        self.accepted.set()

    async def _call_worker(self, worker: Callee) -> None:
        ask = self.ask
        params = {
            "model": ask.title,
            "steps": [step.to_wire() for step in ask.steps],
            "measure": True,
            "trial": self.trial,
        }
        limits = Limits(ask.seconds, ask.memory)
        await ask_child(worker, "transform", params, limits, f"the passes on {ask.title}", self._handle_event)


async def ask_child(
    worker: Callee, method: str, params: Params, limits: Limits, what: str, on_event: OnEvent | None = None
) -> Any:
    """A child's answer to a call that has limits, or PassError; WorkerGone as in `Callee.call`."""
    try:
        async with asyncio.timeout(limits.seconds + _GRACE):
            given = {**params, "memory": limits.memory, "seconds": limits.seconds}
            return await worker.call(method, given, on_event)
    except TimeoutError:
        text = f"{what} took longer than {limits.seconds:g} s and were stopped"
        raise PassError("limit", f"{text} {_LIMITS}") from None
    except CallFailed as error:
        raise PassError(error.kind, f"{error} {_LIMITS}" if error.kind == "limit" else str(error)) from error
