"""Passes on the models of traced files: apply, undo, redo, reset; replayed at every save."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mase_server.daemon.changes import Changes, Host, Model, gone_text
from mase_server.daemon.channel import CallFailed, OnEvent, WorkerGone
from mase_server.daemon.graph_snapshot import GraphSnapshot, Transform
from mase_server.daemon.pipelines import PassError, Pipeline, Steps, models_of
from mase_server.daemon.slots import end_tasks
from mase_server.daemon.supervisor import TraceWorker
from mase_server.protocol import answers
from mase_server.protocol.arguments import Step

__all__ = ["Host", "Passes"]


class Passes:
    """The pipelines of all models, and the results that are shown. All methods belong to one event loop.

    on_shown: called with a file and a title when the shown results of a model's passes change.
    """

    def __init__(self, host: Host, on_shown: Callable[[str, str], None] = lambda path, title: None) -> None:
        self._host = host
        self._changes = Changes(host, on_shown)
        self._replays: dict[str, asyncio.Task[None]] = {}
        self._lists: dict[str, list[answers.Pass]] = {}

    # Requests of users.

    async def apply(self, path: str, title: str | None, step: Step) -> answers.Pipeline:
        """Append a step; returns `tell` once everything is measured. PassError: the pipeline is unchanged.

        Cancelling the call takes the step back.
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

    async def undo(self, path: str, title: str | None) -> answers.Pipeline:
        """Take back the last step, or the one being applied; returns `tell`. ValueError if there is none."""
        model = self._changes.model(path, title)
        if self._changes.stop_pending(model):
            async with model.lock:
                return self.tell(path, model.title)
        if not self._changes.pipeline(model).steps:
            raise ValueError(f"there is nothing to undo: no pass is applied to {model.title}")
        return await self._change_pipeline(model, Pipeline.undo)

    async def redo(self, path: str, title: str | None) -> answers.Pipeline:
        """Apply the last step again that was taken back; returns `tell`. ValueError if there is none."""
        model = self._changes.model(path, title)
        if not self._changes.pipeline(model).undone:
            raise ValueError(f"there is nothing to redo on {model.title}")
        return await self._change_pipeline(model, Pipeline.redo)

    async def reset(self, path: str, title: str | None) -> answers.Pipeline:
        """Take back all steps; returns `tell`."""
        model = self._changes.model(path, title)
        self._changes.stop_pending(model)
        return await self._change_pipeline(model, Pipeline.reset)

    async def replace(self, path: str, title: str | None, steps: Sequence[Step]) -> answers.Pipeline:
        """Replace the pipeline by these steps; returns `tell`.

        A step that fails stays, and is a problem of the file.
        """
        model = self._changes.model(path, title)
        self._changes.stop_pending(model)
        return await self._change_pipeline(model, lambda before: Pipeline(tuple(steps)))

    async def _change_pipeline(self, model: Model, change: Callable[[Pipeline], Pipeline]) -> answers.Pipeline:
        await self._changes.change(model, change)
        return self.tell(model.path, model.title)

    def cancel(self, path: str, title: str | None = None) -> None:
        """Stop the runs on a model, or on all models of a file."""
        for model in self._changes.of_file(path):
            if model.run is not None and title in (None, model.title):
                model.run.stop(by_person=True)

    # Queries.

    def tell(self, path: str, title: str | None = None) -> answers.Pipeline:
        """{"model", "steps", "undone", "summary", "problem", "complete", "running"}; {} if no model is shown."""
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or not snapshot.titles:
            return {}
        model = self._changes.model(path, title)
        pipeline = self._changes.pipeline(model)
        running = model.run is not None or path in self._replays
        transform = snapshot.transforms.get(snapshot.titles.index(model.title))
        told = None if transform is None else transform.told
        complete = bool(not pipeline.steps if told is None else told["complete"])
        return {
            "model": model.title,
            "steps": [str(step) for step in pipeline.steps],
            "undone": [str(step) for step in pipeline.undone],
            "summary": None if told is None else told["summary"],
            "problem": None if told is None else told["problem"],
            "complete": complete,
            "running": running and not complete,
        }

    def settings_form(self, path: str) -> dict[str, list[str]]:
        """The pipelines of a file in the form of the setting `mase.pipelines`."""
        asked = self._changes.pipelines.asked(path, self._host.store.snapshot(path))
        return {title: [str(step) for step in steps] for title, steps in asked.items()}

    def listed(self, path: str | None = None, title: str | None = None, only: Sequence[str] = ()) -> list[answers.Pass]:
        """The passes found by the last trace in the folder of `path` (in any folder without it).

        [] before any trace. Menus leave out those that would change nothing in the file, in one of its models
        (`title`), or in some nodes and modules of it (`only`).
        """
        if path is not None:
            idle = self._find_idle_passes(path, title, only)
            found = self._lists.get(self._host.folder_of(path), [])
            return [{**one, "menu": one["menu"] and one["name"] not in idle} for one in found]
        every = {one["name"]: one for found in self._lists.values() for one in found}
        return list(every.values())

    def _find_idle_passes(self, path: str, title: str | None, only: Sequence[str]) -> frozenset[str]:
        """The names of the passes that would change nothing in the selected parts of a file's models."""
        snapshot = self._host.store.snapshot(path)
        if snapshot is None:
            return frozenset()
        models = [index for index, each in enumerate(snapshot.titles) if title in (None, each)]
        return frozenset(
            name
            for name, find in {"conv_bn_fusion": _find_norm_pairs, "fuse_lora_weights": _find_adapted}.items()
            if not any(
                any(_is_selected(snapshot, row, only) for row in rows)
                for model in models
                for rows in find(snapshot, model)
            )
        )

    async def refresh(self, path: str) -> list[answers.Pass]:
        """Ask the child of a file for its list of passes."""
        worker = await self._host.ready(path)
        return await self._refresh_list(path, worker)

    async def code(self, path: str, title: str | None, original: bool) -> str:
        """The graph of a model as Python, with its passes applied, or as it was traced (`original`)."""
        return str((await self.written("code", path, title, original))["text"])

    async def written(
        self,
        method: str,
        path: str,
        title: str | None,
        original: bool = False,
        name: str = "",
        on_event: OnEvent | None = None,
        **more: Any,
    ) -> Any:
        """Ask a child to write out the graph of a model, with its passes applied or as it was traced (`original`).

        method: code, draw, export, weights or weight_statistics.  name: of the files of a checkpoint, or of a module or
        parameter; or what colours of a drawing mean.
        more: further parameters of the method.
        """
        worker = await self._host.ready(path)
        model = self._changes.model(path, title)
        steps = [] if original else [step.to_wire() for step in self.steps(path, model.title)]
        params = {"model": model.title, "steps": steps, "original": original, "name": name, **more}
        try:
            return await worker.call(method, params, on_event)
        except CallFailed as error:
            raise PassError(error.kind, str(error)) from error
        except WorkerGone as error:
            raise PassError("gone", gone_text(path, error)) from error

    def title(self, path: str, title: str | None) -> str:
        """The title of a model, of the first one for None; ValueError names the existing ones."""
        return self._changes.model(path, title).title

    def steps(self, path: str, title: str) -> Steps:
        """The steps applied to a model, without those that failed."""
        model = self._changes.model(path, title)
        return self._changes.pipeline(model).steps[: self._get_failed_step(model)]

    def failure(self, path: str, title: str) -> str | None:
        """Why a step of a model's pipeline cannot be applied to the shown trace; None if all can."""
        model = self._changes.model(path, title)
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or self._get_failed_step(model) is None:
            return None
        return str(snapshot.transforms[snapshot.titles.index(model.title)].told["problem"])

    def _get_failed_step(self, model: Model) -> int | None:
        """The index of the step that could not be applied to the shown trace."""
        snapshot = self._host.store.snapshot(model.path)
        found = snapshot.transforms.get(snapshot.titles.index(model.title)) if snapshot is not None else None
        return None if found is None else found.told["failed"]

    # Notifications from the daemon.

    def asked(self, path: str) -> dict[str, Steps]:
        """The steps, by title, that the next trace of a file is asked to replay."""
        return self._changes.pipelines.asked(path, self._host.store.snapshot(path))

    def adopt(self, snapshot: GraphSnapshot, asked: Mapping[str, Steps]) -> GraphSnapshot:
        """Merge the trace's pipeline results into a fresh snapshot, where these pipelines are still wanted."""
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
        """A new trace of the file begins: stop the runs on the old one."""
        if (replay := self._replays.pop(path, None)) is not None:
            replay.cancel()
        for model in self._changes.of_file(path):
            self._changes.drop(model)

    def traced(self, path: str) -> None:
        """A trace ended, and its child is live: replay what is not yet measured."""
        self._replays[path] = task = asyncio.create_task(self._replay_file(path))
        task.add_done_callback(lambda done: self._forget_replay(path, done))

    def _forget_replay(self, path: str, task: asyncio.Task[None]) -> None:
        if self._replays.get(path) is task:
            del self._replays[path]

    async def shutdown(self) -> None:
        """Stop all runs."""
        runs = [model.run.task for model in self._changes.models.values() if model.run is not None]
        await end_tasks([*self._replays.values(), *(task for task in runs if task is not None)])

    async def _replay_file(self, path: str) -> None:
        worker, snapshot = self._host.live(path), self._host.store.snapshot(path)
        if worker is None or snapshot is None:
            return
        for title in snapshot.titles:
            model = self._changes.model(path, title)
            if not model.lock.locked() and model.run is None and (run := self._changes.measure(model)) is not None:
                await run.over()
        try:
            await self._refresh_list(path, worker)
        except (PassError, WorkerGone):
            return  # keep the list of the last trace

    async def _refresh_list(self, path: str, worker: TraceWorker) -> list[answers.Pass]:
        try:
            found: list[answers.Pass] = await worker.call("passes")
        except CallFailed as error:
            raise PassError(error.kind, str(error)) from error
        self._lists[self._host.folder_of(path)] = found
        return found


def _find_norm_pairs(snapshot: GraphSnapshot, model: int) -> Iterator[tuple[int, ...]]:
    """The rows of each batch norm and of the convolution or linear layer that it follows."""
    nodes = snapshot.payload["nodes"]
    for row, operator in enumerate(nodes["mase_op"]):
        if "batch_norm" in operator and nodes["model"][row] == model:
            for before in snapshot.node(row).details.get("input_nodes", ())[:1]:
                if nodes["mase_op"][before].startswith(("conv", "linear")):
                    yield row, before


def _find_adapted(snapshot: GraphSnapshot, model: int) -> Iterator[tuple[int, ...]]:
    """The row of each layer with a LoRA adapter."""
    for node in snapshot.transforms[model].inserted if model in snapshot.transforms else ():
        if node["inserted_by"].startswith("insert_lora"):
            yield (node["after"],)


def _is_selected(snapshot: GraphSnapshot, row: int, only: Sequence[str]) -> bool:
    """Does a node have one of these names, or lie in one of these modules? Without any, every node is selected."""
    nodes = snapshot.payload["nodes"]
    scope = nodes["scope"][row]
    path = nodes["target"][row] if nodes["op"][row] == "call_module" else snapshot.payload["scopes"][scope][1]
    return not only or any(text in (nodes["name"][row], path) or f"{path}.".startswith(f"{text}.") for text in only)
