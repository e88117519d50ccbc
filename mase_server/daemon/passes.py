"""Passes on the models of traced files: apply, undo, redo, reset; replayed at every save."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mase_server.daemon.calls import CallFailed, WorkerGone
from mase_server.daemon.changes import Changes, Host, Model, gone_text
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.pipelines import PassError, Pipeline, Steps, models_of
from mase_server.daemon.supervisor import TraceWorker
from mase_server.daemon.transform import Transform
from mase_server.steps import Step

__all__ = ["Host", "Passes"]


class Passes:
    """The pipelines of all models, and what is shown of them. All methods belong to one event loop.

    on_shown: is called with a file and a title when what is shown of a model's passes changes.
    """

    def __init__(self, host: Host, on_shown: Callable[[str, str], None] = lambda path, title: None) -> None:
        self._host = host
        self._changes = Changes(host, on_shown)
        self._replays: dict[str, asyncio.Task[None]] = {}
        self._lists: dict[str, list[dict[str, Any]]] = {}

    # What a person asks for.

    async def apply(self, path: str, title: str | None, step: Step) -> dict[str, Any]:
        """Append a step; its answer is `tell` once all is measured. PassError: the pipeline is as it was.

        Cancelling it takes the step back.
        """
        await self._host.ready(path)
        model = self._changes.model(path, title)
        async with model.lock:
            run = await self._changes.attempt(model, step)
        try:
            await run.over()
        except asyncio.CancelledError:
            self._changes.take_back(model, run)
            raise
        if isinstance(error := run.error(), PassError):
            self._changes.take_back(model, run)
            raise error
        return self.tell(path, model.title)

    async def undo(self, path: str, title: str | None) -> dict[str, Any]:
        """Take the last step back, or the one that is being applied; `tell`. ValueError where there is none."""
        model = self._changes.model(path, title)
        if self._changes.stop_pending(model):
            async with model.lock:
                return self.tell(path, model.title)
        if not self._changes.pipeline(model).steps:
            raise ValueError(f"there is nothing to undo: no pass is applied to {model.title}")
        return await self._changed(model, Pipeline.undo)

    async def redo(self, path: str, title: str | None) -> dict[str, Any]:
        """Apply again what was taken back last; `tell`. ValueError where there is none."""
        model = self._changes.model(path, title)
        if not self._changes.pipeline(model).undone:
            raise ValueError(f"there is nothing to redo on {model.title}")
        return await self._changed(model, Pipeline.redo)

    async def reset(self, path: str, title: str | None) -> dict[str, Any]:
        """Take all steps back; `tell`."""
        model = self._changes.model(path, title)
        self._changes.stop_pending(model)
        return await self._changed(model, Pipeline.reset)

    async def replace(self, path: str, title: str | None, steps: Sequence[Step]) -> dict[str, Any]:
        """Have just these steps; `tell`. A step that fails stays, and is a problem of the file."""
        model = self._changes.model(path, title)
        self._changes.stop_pending(model)
        return await self._changed(model, lambda before: Pipeline(tuple(steps)))

    async def _changed(self, model: Model, change: Callable[[Pipeline], Pipeline]) -> dict[str, Any]:
        await self._changes.change(model, change)
        return self.tell(model.path, model.title)

    def cancel(self, path: str, title: str | None = None) -> None:
        """Stop what runs on a model, or on all of a file."""
        for model in self._changes.of_file(path):
            if model.run is not None and title in (None, model.title):
                model.run.stop(by_person=True)

    # What is known.

    def tell(self, path: str, title: str | None = None) -> dict[str, Any]:
        """{"model", "steps", "undone", "summary", "problem", "complete", "running"}; {} where no model is shown."""
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or not snapshot.titles:
            return {}
        model = self._changes.model(path, title)
        pipeline = self._changes.pipeline(model)
        running = model.run is not None or path in self._replays
        transform = snapshot.transforms.get(snapshot.titles.index(model.title))
        told: Mapping[str, Any] = {} if transform is None else transform.told
        complete = bool(told.get("complete", not pipeline.steps))
        return {
            "model": model.title,
            "steps": [str(step) for step in pipeline.steps],
            "undone": [str(step) for step in pipeline.undone],
            "summary": told.get("summary"),
            "problem": told.get("problem"),
            "complete": complete,
            "running": running and not complete,
        }

    def settings_form(self, path: str) -> dict[str, list[str]]:
        """The pipelines of a file as the setting `mase.pipelines` has them."""
        asked = self._changes.pipelines.asked(path, self._host.store.snapshot(path))
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
        return str((await self.written("code", path, title, original))["text"])

    async def written(
        self, method: str, path: str, title: str | None, original: bool = False, name: str = "", **more: Any
    ) -> dict[str, Any]:
        """What a child makes of the graph of a model, with its passes applied or as it was traced (`original`).

        method: code, draw, export or weights.  name: of the files of a checkpoint; what colours of a drawing mean.
        more: what else the method takes.
        """
        worker = await self._host.ready(path)
        model = self._changes.model(path, title)
        steps = [] if original else [step.to_wire() for step in self.steps(path, model.title)]
        params = {"model": model.title, "steps": steps, "original": original, "name": name, **more}
        try:
            answer: dict[str, Any] = await worker.call(method, params)
        except CallFailed as error:
            raise PassError(error.kind, str(error)) from error
        except WorkerGone as error:
            raise PassError("gone", gone_text(path, error)) from error
        return answer

    def title(self, path: str, title: str | None) -> str:
        """The title of a model, of the first one for None; ValueError names those that there are."""
        return self._changes.model(path, title).title

    def steps(self, path: str, title: str) -> Steps:
        """The steps that are applied to a model, without those that cannot be."""
        model = self._changes.model(path, title)
        return self._changes.pipeline(model).steps[: self._failed(model)]

    def failure(self, path: str, title: str) -> str | None:
        """Why a step of a model's pipeline cannot be applied to what is shown; None where all can."""
        model = self._changes.model(path, title)
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or self._failed(model) is None:
            return None
        return str(snapshot.transforms[snapshot.titles.index(model.title)].told["problem"])

    def _failed(self, model: Model) -> int | None:
        """The index of the step that could not be applied to what is shown."""
        snapshot = self._host.store.snapshot(model.path)
        found = snapshot.transforms.get(snapshot.titles.index(model.title)) if snapshot is not None else None
        return None if found is None else found.told["failed"]

    # What the daemon tells.

    def asked(self, path: str) -> dict[str, Steps]:
        """The steps for each title that the next trace of a file is asked for."""
        return self._changes.pipelines.asked(path, self._host.store.snapshot(path))

    def adopt(self, snapshot: GraphSnapshot, asked: Mapping[str, Steps]) -> GraphSnapshot:
        """A fresh snapshot with what the trace says of the pipelines it was asked for, where they are still wanted."""
        for data in snapshot.payload["transforms"] or ():
            title = snapshot.titles[data["model"]]
            if title in asked:
                self._changes.overlays.put(snapshot, title, asked[title], Transform.from_wire(data))
        found = {}
        for index, (title, rest) in enumerate(models_of(snapshot)):
            steps = self._changes.pipelines.of(snapshot.path, title, rest).steps
            if (transform := self._changes.overlays.find(snapshot, title, steps)) is not None:
                found[index] = transform
        return snapshot.with_transforms(found) if found else snapshot

    def interrupt(self, path: str) -> None:
        """A new trace of the file begins: what runs on the old one is stopped."""
        if (replay := self._replays.pop(path, None)) is not None:
            replay.cancel()
        for model in self._changes.of_file(path):
            self._changes.drop(model)

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
        for model in self._changes.models.values():
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
            model = self._changes.model(path, title)
            if not model.lock.locked() and model.run is None and (run := self._changes.measure(model)) is not None:
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
