"""How the pipeline of a model changes, and what is shown of it at each moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from mase_server.daemon.calls import WorkerGone
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.pipelines import Overlays, PassError, Pipeline, Pipelines, Steps, models_of
from mase_server.daemon.runs import Ask, Run
from mase_server.daemon.status import FolderSettings, Listener
from mase_server.daemon.store import Store
from mase_server.daemon.supervisor import TraceWorker
from mase_server.daemon.transform import Transform
from mase_server.steps import Step
from mase_server.suggestions import suggest

#: So often is a pass begun anew because the file was saved meanwhile.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Host:
    """What passes need of the daemon.

    ready: the live child of a file, which is traced first where there is none; PassError says why it cannot be.
    live: the live child that holds what is shown, None where there is none.
    """

    store: Store
    listener: Listener
    settings_of: Callable[[str], FolderSettings]
    folder_of: Callable[[str], str]
    ready: Callable[[str], Awaitable[TraceWorker]]
    live: Callable[[str], TraceWorker | None]


@dataclass(slots=True, eq=False)
class Model:
    """One model of one file: `lock` is held while it is open what its pipeline will be."""

    path: str
    title: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    run: Run | None = None


class Changes:
    """Changes pipelines. A model's lock is held while it is open what its pipeline will be."""

    def __init__(self, host: Host, on_shown: Callable[[str, str], None]) -> None:
        self.host = host
        self.on_shown = on_shown
        self.pipelines = Pipelines(host.settings_of, host.folder_of)
        self.overlays = Overlays()
        self.models: dict[tuple[str, str], Model] = {}

    def model(self, path: str, title: str | None) -> Model:
        """The model of this title, the first one without it; ValueError names those that there are."""
        models = models_of(self.host.store.snapshot(path))
        titles = [name for name, _ in models]
        if title is None:
            title = next((name for name, rest in models if not rest), titles[0] if titles else None)
        if title is None or title not in titles:
            raise ValueError(f"no model {title or ''!r} is shown in {path}{suggest(title or '', titles, 'it has')}")
        return self.models.setdefault((path, title), Model(path, title))

    def of_file(self, path: str) -> list[Model]:
        """The models of a file that somebody asked for."""
        return [model for (file, _), model in self.models.items() if file == path]

    def pipeline(self, model: Model) -> Pipeline:
        """The pipeline of a model now."""
        rest = dict(models_of(self.host.store.snapshot(model.path))).get(model.title, False)
        return self.pipelines.of(model.path, model.title, rest)

    async def attempt(self, model: Model, step: Step) -> Run:
        """Append a step, once something can be shown of it.

        PassError: nothing has changed. A save meanwhile begins it anew.
        """
        before = self.pipeline(model)
        for _ in range(_TRIES):
            worker = await self.host.ready(model.path)
            run = self._start(model, worker, (*before.steps, step), before)
            try:
                await run.decided()
            except asyncio.CancelledError:
                self.take_back(model, run)
                raise
            if run.accepted.is_set():
                return run
            if (error := _refusal(run, worker)) is not None:
                self.measure(model)
                raise error
        name = Path(model.path).name
        raise PassError("cancelled", f"{name} was saved again and again meanwhile; nothing has changed.")

    async def change(self, model: Model, change: Callable[[Pipeline], Pipeline]) -> None:
        """Change a pipeline, and show what it makes: at once where that is known, else as soon as the child tells."""
        async with model.lock:
            self.drop(model)
            self.pipelines.put(model.path, model.title, change(self.pipeline(model)))
            await self._settle(model)

    async def _settle(self, model: Model) -> None:
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
            run = self._start(model, worker, steps)
            await run.decided()
            if (error := _refusal(run, worker)) is not None:
                raise error
        finally:
            if run is None or not run.accepted.is_set():
                self._show(snapshot, model.title, None)

    def take_back(self, model: Model, run: Run) -> None:
        """Forget a step that was tried; if it was shown already, and nothing came after it, show what was before."""
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
        """Go on, in the background, with what the pipeline's overlay still lacks."""
        worker, snapshot = self.host.live(model.path), self.host.store.snapshot(model.path)
        steps = self.pipeline(model).steps
        if worker is None or snapshot is None or model.title not in snapshot.titles or not steps:
            return None
        known = self.overlays.find(snapshot, model.title, steps)
        return None if known is not None and known.complete else self._start(model, worker, steps)

    def _start(self, model: Model, worker: TraceWorker, steps: Steps, before: Pipeline | None = None) -> Run:
        snapshot = self.host.store.snapshot(model.path)
        if snapshot is None or model.title not in snapshot.titles:
            raise PassError("gone", f"{model.title} is not in {Path(model.path).name} any longer.")
        self.drop(model)
        settings = self.host.settings_of(self.host.folder_of(model.path))
        ask = Ask(snapshot, model.title, steps, before, settings.pass_seconds, settings.memory_limit)
        model.run = run = Run(ask, self.host.listener, partial(self._heard, model))
        run.start(worker)
        assert run.task is not None
        run.task.add_done_callback(lambda done: self._ended(model, run))
        return run

    @staticmethod
    def drop(model: Model) -> None:
        """Stop what runs; nothing of it is shown from now on."""
        if model.run is not None:
            run, model.run = model.run, None
            run.stop()

    def _ended(self, model: Model, run: Run) -> None:
        run.error()  # nobody may be left to look at it
        if model.run is run:
            model.run = None
        self.host.listener.pass_ended(model.path, model.title)

    @staticmethod
    def stop_pending(model: Model) -> bool:
        """Cancel the pass that is being tried; was there one?"""
        if model.run is None or not model.run.pending:
            return False
        model.run.stop(by_person=True)
        return True

    def _heard(self, model: Model, run: Run, transform: Transform) -> None:
        self.overlays.put(run.ask.snapshot, model.title, run.ask.steps, transform)
        if run.pending:
            self.pipelines.put(model.path, model.title, Pipeline(run.ask.steps))
        self._show(run.ask.snapshot, model.title, transform)

    def _show(self, snapshot: GraphSnapshot, title: str, transform: Transform | None) -> None:
        """Lay what was made of a model over its snapshot, if that is still what is shown."""
        entry, index = self.host.store.entry(snapshot.path), snapshot.titles.index(title)
        if entry.shown is None or entry.shown.payload is not snapshot.payload:
            return
        transforms = {key: found for key, found in entry.shown.transforms.items() if key != index}
        if transform is not None:
            transforms[index] = transform
        shown = entry.shown.with_transforms(transforms)
        self.host.listener.views_changed(self.host.store.put(replace(entry, shown=shown)))
        self.on_shown(snapshot.path, title)


def _refusal(run: Run, worker: TraceWorker) -> PassError | None:
    """Why nothing can be shown of a run, for good; None where it can, or where only a save came between."""
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
    """What is told of a child that ended before it answered."""
    return (
        f"The process that held the graphs of {Path(path).name} ended meanwhile ({error}). "
        "Nothing is lost: try again, and the file is traced anew first."
    )
