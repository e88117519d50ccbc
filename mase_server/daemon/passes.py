"""Passes on the models of traced files: apply, undo, redo, reset; replayed at every save."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mase_server.daemon.calls import CallFailed, WorkerGone
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.pipelines import Overlays, PassError, Pipeline, Pipelines, Steps, models_of
from mase_server.daemon.runs import Ask, Run
from mase_server.daemon.status import FolderSettings, Listener
from mase_server.daemon.store import Store
from mase_server.daemon.supervisor import TraceWorker
from mase_server.daemon.transform import Transform
from mase_server.steps import Step

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
class _Model:
    """One model of one file: `lock` is held while it is open what its pipeline will be."""

    path: str
    title: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    run: Run | None = None


class Passes:
    """The pipelines of all models, and what is shown of them. All methods belong to one event loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pipelines = Pipelines(host.settings_of, host.folder_of)
        self._overlays = Overlays()
        self._models: dict[tuple[str, str], _Model] = {}
        self._replays: dict[str, asyncio.Task[None]] = {}
        self._lists: dict[str, list[dict[str, Any]]] = {}

    # What a person asks for.

    async def apply(self, path: str, title: str | None, step: Step) -> dict[str, Any]:
        """Append a step; its answer is `tell` once all is measured. PassError: the pipeline is as it was.

        Cancelling it takes the step back.
        """
        await self._host.ready(path)
        model = self._model(path, title)
        async with model.lock:
            before = self._pipeline(model)
            run = await self._try(model, before.with_step(step))
        try:
            await run.over()
        except asyncio.CancelledError:
            self._take_back(model, run, before)
            raise
        if isinstance(error := run.error(), PassError):
            self._take_back(model, run, before)
            raise error
        return self.tell(path, model.title)

    async def undo(self, path: str, title: str | None) -> dict[str, Any]:
        """Take the last step back, or the one that is being applied; `tell`. ValueError where there is none."""
        model = self._model(path, title)
        if self._stop_pending(model):
            async with model.lock:
                return self.tell(path, model.title)
        if not self._pipeline(model).steps:
            raise ValueError(f"there is nothing to undo: no pass is applied to {model.title}")
        return await self._change(model, Pipeline.undo)

    async def redo(self, path: str, title: str | None) -> dict[str, Any]:
        """Apply again what was taken back last; `tell`. ValueError where there is none."""
        model = self._model(path, title)
        if not self._pipeline(model).undone:
            raise ValueError(f"there is nothing to redo on {model.title}")
        return await self._change(model, Pipeline.redo)

    async def reset(self, path: str, title: str | None) -> dict[str, Any]:
        """Take all steps back; `tell`."""
        model = self._model(path, title)
        self._stop_pending(model)
        return await self._change(model, Pipeline.reset)

    async def replace(self, path: str, title: str | None, steps: Sequence[Step]) -> dict[str, Any]:
        """Have just these steps; `tell`. A step that fails stays, and is a problem of the file."""
        model = self._model(path, title)
        self._stop_pending(model)
        return await self._change(model, lambda before: Pipeline(tuple(steps)))

    def cancel(self, path: str, title: str | None = None) -> None:
        """Stop what runs on a model, or on all of a file."""
        for model in self._of_file(path):
            if model.run is not None and title in (None, model.title):
                model.run.stop(by_person=True)

    # What is known.

    def tell(self, path: str, title: str | None = None) -> dict[str, Any]:
        """{"model", "steps", "undone", "summary", "problem", "complete", "running"}; {} where no model is shown."""
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or not snapshot.titles:
            return {}
        model = self._model(path, title)
        pipeline = self._pipeline(model)
        transform = snapshot.transforms.get(snapshot.titles.index(model.title))
        told: Mapping[str, Any] = {} if transform is None else transform.told
        return {
            "model": model.title,
            "steps": [str(step) for step in pipeline.steps],
            "undone": [str(step) for step in pipeline.undone],
            "summary": told.get("summary"),
            "problem": told.get("problem"),
            "complete": told.get("complete", not pipeline.steps),
            "running": model.run is not None,
        }

    def settings_form(self, path: str) -> dict[str, list[str]]:
        """The pipelines of a file as the setting `mase.pipelines` has them."""
        asked = self._pipelines.asked(path, self._host.store.snapshot(path))
        return {title: [str(step) for step in steps] for title, steps in asked.items()}

    def listed(self, path: str | None = None) -> list[dict[str, Any]]:
        """The passes that the last trace in the folder of `path` found, in any folder without it; [] before that."""
        if path is not None:
            return self._lists.get(self._host.folder_of(path), [])
        every = {one["name"]: one for found in self._lists.values() for one in found}
        return list(every.values())

    async def refresh(self, path: str) -> list[dict[str, Any]]:
        """Ask the child of a file which passes there are."""
        worker = await self._host.ready(path)
        return await self._refresh(path, worker)

    async def code(self, path: str, title: str | None, original: bool) -> str:
        """The graph of a model as Python, with its passes applied, or as it was traced (`original`)."""
        worker = await self._host.ready(path)
        model = self._model(path, title)
        steps = [] if original else [step.to_wire() for step in self._pipeline(model).steps]
        try:
            answer = await worker.call("code", {"model": model.title, "steps": steps, "original": original})
        except CallFailed as error:
            raise PassError(error.kind, str(error)) from error
        except WorkerGone as error:
            raise PassError("gone", _gone_text(path, error)) from error
        return str(answer["text"])

    # What the daemon tells.

    def asked(self, path: str) -> dict[str, Steps]:
        """The steps for each title that the next trace of a file is asked for."""
        return self._pipelines.asked(path, self._host.store.snapshot(path))

    def adopt(self, snapshot: GraphSnapshot, asked: Mapping[str, Steps]) -> GraphSnapshot:
        """A fresh snapshot with what the trace says of the pipelines it was asked for, where they are still wanted."""
        for data in snapshot.payload["transforms"] or ():
            title = snapshot.titles[data["model"]]
            self._overlays.put(snapshot, title, asked.get(title, ()), Transform.from_wire(data))
        found = {}
        for index, (title, rest) in enumerate(models_of(snapshot)):
            steps = self._pipelines.of(snapshot.path, title, rest).steps
            if steps and (transform := self._overlays.find(snapshot, title, steps)) is not None:
                found[index] = transform
        return snapshot.with_transforms(found) if found else snapshot

    def interrupt(self, path: str) -> None:
        """A new trace of the file begins: what runs on the old one is stopped."""
        if (replay := self._replays.pop(path, None)) is not None:
            replay.cancel()
        for model in self._of_file(path):
            if model.run is not None:
                model.run.stop()

    def traced(self, path: str) -> None:
        """A trace ended, and its child is live: replay what is not yet measured."""
        self._replays[path] = task = asyncio.create_task(self._replay(path))
        task.add_done_callback(lambda done: self._forget_replay(path, done))

    def _forget_replay(self, path: str, task: asyncio.Task[None]) -> None:
        if self._replays.get(path) is task:
            del self._replays[path]

    async def shutdown(self) -> None:
        """Stop everything that runs."""
        tasks = [*self._replays.values()]
        for model in self._models.values():
            if model.run is not None and model.run.task is not None:
                tasks.append(model.run.task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _replay(self, path: str) -> None:
        worker, snapshot = self._host.live(path), self._host.store.snapshot(path)
        if worker is None or snapshot is None:
            return
        for title in snapshot.titles:
            model = self._model(path, title)
            if not model.lock.locked() and model.run is None and (run := self._measure(model)) is not None:
                await run.over()
        try:
            await self._refresh(path, worker)
        except (PassError, WorkerGone):
            return  # the list of the last trace stands

    async def _refresh(self, path: str, worker: TraceWorker) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = await worker.call("passes")
        except CallFailed as error:
            raise PassError(error.kind, str(error)) from error
        self._lists[self._host.folder_of(path)] = found
        return found

    # How a pipeline changes.

    async def _try(self, model: _Model, pipeline: Pipeline) -> Run:
        """Run a pipeline whose last step is new until something can be shown of it; then it is the model's."""
        for _ in range(_TRIES):
            worker = await self._host.ready(model.path)
            run = self._start(model, worker, pipeline.steps, trial=True)
            try:
                await run.decided()
            except asyncio.CancelledError:
                run.stop(by_person=True)
                self._measure(model)
                raise
            if run.accepted.is_set():
                self._pipelines.put(model.path, model.title, pipeline)
                return run
            error = run.error()
            if isinstance(error, PassError):
                self._measure(model)
                raise error
            if run.by_person:
                self._measure(model)
                raise PassError("cancelled", f"{pipeline.steps[-1].name} was cancelled; nothing has changed.")
            if isinstance(error, WorkerGone) and not worker.retired:
                raise PassError("gone", _gone_text(model.path, error)) from error
        raise PassError(
            "cancelled", f"{Path(model.path).name} was saved again and again meanwhile; nothing has changed."
        )

    async def _change(self, model: _Model, change: Callable[[Pipeline], Pipeline]) -> dict[str, Any]:
        async with model.lock:
            if model.run is not None:
                model.run.stop()
            self._pipelines.put(model.path, model.title, change(self._pipeline(model)))
            await self._settle(model)
        return self.tell(model.path, model.title)

    async def _settle(self, model: _Model) -> None:
        """Show what the pipeline makes: at once where it is known, else as soon as the child has told."""
        snapshot, steps = self._host.store.snapshot(model.path), self._pipeline(model).steps
        if snapshot is None:
            return
        known = self._overlays.find(snapshot, model.title, steps) if steps else None
        if known is not None or not steps:
            self._show(snapshot, model.title, known)
            self._measure(model)
            return
        try:
            run = self._start(model, await self._host.ready(model.path), steps)
            await run.decided()
        except PassError:
            self._show(snapshot, model.title, None)
            raise
        if isinstance(error := run.error(), PassError | WorkerGone):
            self._show(snapshot, model.title, None)
            raise PassError("gone", _gone_text(model.path, error)) from error

    def _take_back(self, model: _Model, run: Run, before: Pipeline) -> None:
        """Undo a step that was shown already, unless the pipeline has changed since."""
        if self._pipeline(model).steps != run.ask.steps:
            return
        run.stop()
        self._pipelines.put(model.path, model.title, before)
        known = self._overlays.find(run.ask.snapshot, model.title, before.steps) if before.steps else None
        self._show(run.ask.snapshot, model.title, known)
        self._measure(model)

    def _measure(self, model: _Model) -> Run | None:
        """Go on, in the background, with what the pipeline's overlay still lacks."""
        worker, snapshot = self._host.live(model.path), self._host.store.snapshot(model.path)
        steps = self._pipeline(model).steps
        if worker is None or snapshot is None or model.title not in snapshot.titles or not steps:
            return None
        known = self._overlays.find(snapshot, model.title, steps)
        return None if known is not None and known.complete else self._start(model, worker, steps)

    def _start(self, model: _Model, worker: TraceWorker, steps: Steps, trial: bool = False) -> Run:
        snapshot = self._host.store.snapshot(model.path)
        if snapshot is None or model.title not in snapshot.titles:
            raise PassError("gone", f"{model.title} is not in {Path(model.path).name} any longer.")
        if model.run is not None:
            model.run.stop()
        settings = self._host.settings_of(self._host.folder_of(model.path))
        ask = Ask(snapshot, model.title, steps, trial, settings.pass_seconds, settings.memory_limit)
        model.run = run = Run(ask, self._host.listener, self._heard)
        run.start(worker)
        assert run.task is not None
        run.task.add_done_callback(lambda done: self._run_ended(model, run))
        return run

    @staticmethod
    def _run_ended(model: _Model, run: Run) -> None:
        if model.run is run:
            model.run = None

    def _stop_pending(self, model: _Model) -> bool:
        if model.run is None or not model.run.pending:
            return False
        model.run.stop(by_person=True)
        return True

    def _heard(self, run: Run, transform: Transform) -> None:
        self._overlays.put(run.ask.snapshot, run.ask.title, run.ask.steps, transform)
        self._show(run.ask.snapshot, run.ask.title, transform)

    def _show(self, snapshot: GraphSnapshot, title: str, transform: Transform | None) -> None:
        """Lay what was made of a model over its snapshot, if that is still what is shown."""
        entry, index = self._host.store.entry(snapshot.path), snapshot.titles.index(title)
        if entry.shown is None or entry.shown.payload is not snapshot.payload:
            return
        transforms = {key: found for key, found in entry.shown.transforms.items() if key != index}
        if transform is not None:
            transforms[index] = transform
        shown = entry.shown.with_transforms(transforms)
        self._host.listener.views_changed(self._host.store.put(replace(entry, shown=shown)))

    # Which model is meant.

    def _model(self, path: str, title: str | None) -> _Model:
        """The model of this title, the first one without it; ValueError names those that there are."""
        models = models_of(self._host.store.snapshot(path))
        titles = [name for name, _ in models]
        if title is None:
            title = next((name for name, rest in models if not rest), titles[0] if titles else None)
        if title is None or title not in titles:
            told = ", ".join(titles) or "none"
            raise ValueError(f"no model {title or ''!r} is shown in {path}; it has {told}")
        return self._models.setdefault((path, title), _Model(path, title))

    def _of_file(self, path: str) -> list[_Model]:
        return [model for (file, _), model in self._models.items() if file == path]

    def _pipeline(self, model: _Model) -> Pipeline:
        rest = dict(models_of(self._host.store.snapshot(model.path))).get(model.title, False)
        return self._pipelines.of(model.path, model.title, rest)


def _gone_text(path: str, error: BaseException) -> str:
    return (
        f"The process that holds the graphs of {Path(path).name} ended meanwhile ({error}). "
        "Nothing is lost: try again, and the file is traced anew first."
    )
