"""Hardware of the models of traced files: emitted when a person asks, and again at every save from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mase_server.building import Build
from mase_server.daemon.calls import OnEvent, WorkerGone
from mase_server.daemon.changes import Host, gone_text
from mase_server.daemon.emissions import PASS_FAILED, Emission, Memory
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.orders import Order, Subject, emission_of
from mase_server.daemon.output_folder import claim
from mase_server.daemon.passes import Passes
from mase_server.daemon.pipelines import PassError, Steps
from mase_server.daemon.runs import Callee
from mase_server.daemon.supervisor import Limits, TraceWorker
from mase_server.wire import Message

#: So often is hardware asked for anew because the file was saved meanwhile.
_TRIES = 5
#: So many models are followed at the same moment; the others wait.
_AT_ONCE = 2

Given = Mapping[str, Any] | None


@dataclass(slots=True, eq=False)
class Followed:
    """A model whose hardware follows its text. task: asks for it, for `wanted`: what the answer will be of."""

    path: str
    newest: Emission
    memory: Memory = field(default_factory=Memory)
    task: asyncio.Task[None] | None = None
    wanted: tuple[object, ...] = ()

    def stop(self) -> None:
        """Ask no more; nothing is heard of what was asked."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

    @property
    def running(self) -> bool:
        """Is a new emission being made?"""
        return self.task is not None and not self.task.done()


class Verilog:
    """The builds of all models, and what was emitted for them. All methods belong to one event loop."""

    def __init__(self, host: Host, passes: Passes) -> None:
        self._host = host
        self._passes = passes
        self._followed: dict[tuple[str, str], Followed] = {}
        #: The files whose newest text is not traced: what is shown of them, and their children, are of an older one.
        self._behind: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    # What a person asks for.

    async def emit(self, path: str, title: str | None, build: Given = None, **order: Any) -> dict[str, Any]:
        """A map of `building.EMISSION_KEYS`; as `make`, and that it is over is told."""
        title = await self.title(path, title)
        try:
            return dict((await self.make(path, title, build, **order)).told)
        finally:
            self._host.listener.verilog_ended(path, title)

    async def make(
        self,
        path: str,
        title: str,
        build: Given = None,
        *,
        folder: str = "",
        vectors: int | None = None,
        inputs: str = "",
        overwrite: bool = False,
    ) -> Emission:
        """What hardware the present text gives. From then on each save emits the text again.

        build: keys of `Build`, the others as the settings have them; None for what was asked for last.  folder ..
        inputs: as in `Order`.  overwrite: also over files of somebody else.  PassError says why there is none;
        ValueError for a build that cannot be.
        """
        order = Order(self._build(path, title, build), folder, vectors, inputs)
        if folder:
            self._check_passes(path, await self.title(path, title))
            await asyncio.to_thread(claim, folder, overwrite)
        emission = self._known(path, title, order) or await self._made(path, title, order)
        self._follow_from(path, emission)
        return emission

    async def title(self, path: str, title: str | None) -> str:
        """The title of a model, of the first one for None, once the file is traced; ValueError where there is none."""
        await self._host.ready(path)
        return self._passes.title(path, title)

    def forget(self, path: str, title: str | None = None) -> bool:
        """Follow the text no longer, and show nothing of the hardware; was there any?"""
        found = self._find(path, title)
        if found is None:
            return False
        found.stop()
        del self._followed[path, found.newest.title]
        self._lay(path)
        self._host.listener.verilog_changed(path, found.newest.title)
        return True

    # What is known.

    def emission(self, path: str, title: str | None = None) -> Emission | None:
        """The last one that was made for a model, maybe of an older text; None where nobody asked."""
        found = self._find(path, title)
        return None if found is None else found.newest

    def tell(self, path: str, title: str | None = None) -> dict[str, Any]:
        """{"model", "build", "default", "emission", "stale", "running", "problem"}; {} where no model is shown.

        build: as it is remembered, None where nobody asked.  default: what it is if nothing is said.  emission: without
        its text.  stale: is it of an older text, or none?  problem: why there is none of the present one.
        """
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or not snapshot.titles:
            return {}
        found, default = self._find(path, title), self._default(path).to_wire()
        told = {"model": title or self._passes.title(path, title), "default": default}
        if found is None:
            return {**told, "build": None, "emission": None, "stale": False, "running": False, "problem": ""}
        newest = found.newest
        state = {"stale": newest.stale, "running": found.running, "problem": newest.problem}
        return {**told, "build": newest.build.to_wire(), "emission": newest.without_text(), **state}

    # What the daemon tells.

    def adopt(self, snapshot: GraphSnapshot) -> GraphSnapshot:
        """A fresh snapshot with what was emitted last of its models: of an older text."""
        found = dict(self._over(snapshot))
        return snapshot.with_hardware(found) if found else snapshot

    def interrupt(self, path: str) -> None:
        """A new trace of the file begins."""
        self._behind.add(path)
        for followed in self._of_file(path):
            followed.stop()
            self._tell(followed, followed.newest.outdated())

    def traced(self, path: str) -> None:
        """A trace ended, and its child is live: emit again."""
        self._behind.discard(path)
        for followed in self._of_file(path):
            self._follow(followed)

    def shown(self, path: str, title: str) -> None:
        """What passes make of a model changed, perhaps because other ones are applied."""
        followed, snapshot = self._followed.get((path, title)), self._host.store.snapshot(path)
        if followed is None or snapshot is None:
            return
        if followed.running:
            is_known = followed.wanted == self._wanted(followed, snapshot)
        else:
            is_known = not followed.newest.stale and self._is_present(path, followed.newest)
        if not is_known:
            self._follow(followed)

    async def shutdown(self) -> None:
        """Stop everything that runs."""
        tasks = [each.task for each in self._followed.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Asking the child

    async def _made(self, path: str, title: str, order: Order) -> Emission:
        """A person's order; a save meanwhile begins it anew."""
        for _ in range(_TRIES):
            worker, snapshot = await self._host.ready(path), self._host.store.snapshot(path)
            title = self._passes.title(path, title)
            assert snapshot is not None
            on_event = partial(self._heard, path, title)
            try:
                return await self._asked(worker, snapshot, title, order, on_event)
            except WorkerGone as error:
                if not worker.retired:
                    raise PassError("gone", gone_text(path, error)) from error
        raise PassError("cancelled", f"{Path(path).name} was saved again and again meanwhile; nothing was emitted.")

    def _check_passes(self, path: str, title: str) -> None:
        """PassError where a pass failed: hardware of fewer steps would be other hardware than was asked for."""
        if (failure := self._passes.failure(path, title)) is not None:
            raise PassError("pass", f"{PASS_FAILED}: {failure}")

    async def _asked(
        self, worker: Callee, snapshot: GraphSnapshot, title: str, order: Order, on_event: OnEvent | None = None
    ) -> Emission:
        self._check_passes(snapshot.path, title)
        steps = self._passes.steps(snapshot.path, title)
        settings = self._host.settings_of(self._host.folder_of(snapshot.path))
        limits = Limits(settings.pass_seconds, settings.memory_limit)
        return await emission_of(worker, Subject(snapshot, title, steps), order, limits, on_event)

    def _heard(self, path: str, title: str, message: Message) -> None:
        self._host.listener.verilog_progress(path, title, message["message"], message.get("fraction"))

    def _known(self, path: str, title: str, order: Order) -> Emission | None:
        """What was made of the present text already, where nothing has to be written."""
        followed, snapshot = self._followed.get((path, title)), self._host.store.snapshot(path)
        if followed is None or snapshot is None or order.folder or self._present(path) is None:
            return None
        return followed.memory.find(snapshot, order.build, self._texts(path, title))

    # Following the text

    def _follow_from(self, path: str, emission: Emission) -> None:
        """A person has what was asked for; what follows is made by the same build."""
        followed = self._followed.setdefault((path, emission.title), Followed(path, emission))
        followed.stop()
        if self._is_present(path, emission):
            self._tell(followed, emission)
            return
        self._tell(followed, emission.outdated())
        self._follow(followed)

    def _follow(self, followed: Followed) -> None:
        followed.stop()
        path, newest = followed.path, followed.newest
        snapshot, worker = self._host.store.snapshot(path), self._present(path)
        if snapshot is None or worker is None or newest.title not in snapshot.titles:
            return
        known = followed.memory.find(snapshot, newest.build, self._texts(path, newest.title))
        if known is not None:
            self._tell(followed, known)
            return
        followed.wanted = self._wanted(followed, snapshot)
        followed.task = asyncio.create_task(self._remake(followed, worker, snapshot))
        self._tell(followed, newest.outdated())

    async def _remake(self, followed: Followed, worker: TraceWorker, snapshot: GraphSnapshot) -> None:
        newest = followed.newest
        try:
            async with self._slots:
                made = await self._asked(worker, snapshot, newest.title, Order(newest.build))
        except PassError as error:
            made = newest.outdated(str(error))
        except WorkerGone as error:
            if worker.retired:
                return  # a newer trace comes
            made = newest.outdated(gone_text(followed.path, error))
        followed.task = None
        self._tell(followed, made)

    def _wanted(self, followed: Followed, snapshot: GraphSnapshot) -> tuple[object, ...]:
        newest = followed.newest
        return snapshot.generation, newest.build, self._texts(followed.path, newest.title)

    def _tell(self, followed: Followed, emission: Emission) -> None:
        followed.newest = emission
        if not emission.stale:
            followed.memory.put(emission)
        self._lay(followed.path)
        self._host.listener.verilog_changed(followed.path, emission.title)

    def _lay(self, path: str) -> None:
        """Lay what is known over the snapshot that is shown."""
        entry = self._host.store.entry(path)
        if entry.shown is not None:
            shown = entry.shown.with_hardware(dict(self._over(entry.shown)))
            self._host.listener.views_changed(self._host.store.put(replace(entry, shown=shown)))

    def _over(self, snapshot: GraphSnapshot) -> Iterator[tuple[int, Emission]]:
        for followed in self._of_file(snapshot.path):
            newest = followed.newest
            if newest.title in snapshot.titles:
                laid = newest if newest.is_of(snapshot) else newest.outdated(newest.problem)
                yield snapshot.titles.index(newest.title), laid

    # Small questions

    def _present(self, path: str) -> TraceWorker | None:
        """The child that holds the newest text of a file."""
        return None if path in self._behind else self._host.live(path)

    def _of_file(self, path: str) -> list[Followed]:
        return [found for (file, _), found in self._followed.items() if file == path]

    def _is_present(self, path: str, emission: Emission) -> bool:
        """Is it what the newest text and the model's passes give?"""
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or self._present(path) is None or emission.title not in snapshot.titles:
            return False
        return emission.fits(snapshot, emission.build, self._texts(path, emission.title))

    def _find(self, path: str, title: str | None) -> Followed | None:
        # One that is asked for by its title may not be in the present text.
        return self._followed.get((path, self._passes.title(path, None) if title is None else title))

    def _texts(self, path: str, title: str) -> tuple[str, ...]:
        return _texts(self._passes.steps(path, title))

    def _default(self, path: str) -> Build:
        return self._host.settings_of(self._host.folder_of(path)).build

    def _build(self, path: str, title: str, given: Given) -> Build:
        """What is asked for: ValueError where it cannot be."""
        followed, default = self._followed.get((path, title)), self._default(path)
        if given is None:
            return default if followed is None else followed.newest.build
        return Build.from_wire(default.to_wire() | dict(given))


def _texts(steps: Steps) -> tuple[str, ...]:
    return tuple(map(str, steps))
