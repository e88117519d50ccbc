"""Hardware of the models of traced files: emitted on request, and from then on again at every save.

A requested build is remembered for a file and a title: the end of each trace, and each change of the model's passes,
emits the text again, after the hints, and the next save stops that. Folders are written only on request, and never
over other people's files: a folder is ours if it contains our marker, which must not be a link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mase_server.building import Build, Part
from mase_server.daemon.changes import Callee, Host, ask_child, gone_text
from mase_server.daemon.channel import OnEvent, WorkerGone
from mase_server.daemon.devices import list_parts
from mase_server.daemon.emissions import PASS_FAILED, Emission, Memory
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.passes import Passes
from mase_server.daemon.pipelines import PassError, Steps
from mase_server.daemon.project import ProjectError, read_project
from mase_server.daemon.slots import end_tasks
from mase_server.daemon.supervisor import Limits, TraceWorker
from mase_server.protocol import answers
from mase_server.protocol.records import Params
from mase_server.protocol.wire import Message
from mase_server.suggestions import suggest

#: How often an emission is started anew because the file was saved meanwhile.
_TRIES = 5
#: Maximum number of models emitted at the same time; the others wait.
_AT_ONCE = 2

Given = Mapping[str, Any] | None


@dataclass(slots=True, eq=False)
class Followed:
    """A model whose hardware follows its text. task: makes the emission for `wanted` (trace, build and steps)."""

    path: str
    newest: Emission
    memory: Memory = field(default_factory=Memory)
    task: asyncio.Task[None] | None = None
    wanted: tuple[object, ...] = ()

    def stop(self) -> None:
        """Stop the task; its results are ignored."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

    @property
    def running(self) -> bool:
        """Is a new emission being made?"""
        return self.task is not None and not self.task.done()


class Verilog:
    """The builds and emissions of all models. All methods belong to one event loop."""

    def __init__(self, host: Host, passes: Passes) -> None:
        self._host = host
        self._passes = passes
        self._followed: dict[tuple[str, str], Followed] = {}
        #: Files whose newest text is not traced yet: their shown results and their children belong to an older text.
        self._behind: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    # Requests of users.

    async def emit(self, path: str, title: str | None, build: Given = None, **order: Any) -> answers.Emission:
        """Emit as in `make`, and report the end; returns a map of `building.EMISSION_KEYS`."""
        title = await self.title(path, title)
        try:
            return {**(await self.make(path, title, build, **order)).told}
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
        """Emit hardware for the present text; from then on each save emits it again.

        build: keys of `Build`; the settings give the others; None repeats the last build.  folder .. inputs: as in
        `Order`.  overwrite: replace other people's files too.  PassError says why there is none; ValueError for an
        impossible build.
        """
        order = Order(self._choose_build(path, title, build), folder, vectors, inputs)
        if folder:
            self._check_passes(path, await self.title(path, title))
            await asyncio.to_thread(claim_folder, folder, overwrite)
        emission = self._find_known(path, title, order) or await self._make_emission(path, title, order)
        self._follow_from(path, emission)
        return emission

    async def title(self, path: str, title: str | None) -> str:
        """The title of a model, of the first one for None, once the file is traced; ValueError if there is none."""
        await self._host.ready(path)
        return self._passes.title(path, title)

    def forget(self, path: str, title: str | None = None) -> bool:
        """Stop following the text and remove the shown hardware; returns whether there was any."""
        found = self._find_followed(path, title)
        if found is None:
            return False
        found.stop()
        del self._followed[path, found.newest.title]
        self._lay_over(path)
        self._host.listener.verilog_changed(path, found.newest.title)
        return True

    # Queries.

    def emission(self, path: str, title: str | None = None) -> Emission | None:
        """The last emission of a model, possibly of an older text; None if none was requested."""
        found = self._find_followed(path, title)
        return None if found is None else found.newest

    def tell(self, path: str, title: str | None = None) -> answers.Verilog:
        """{"model", "build", "default", "emission", "stale", "running", "problem"}; {} where no model is shown.

        build: the remembered one, None if there is none.  default: the build where nothing is specified.  emission:
        without its text.  stale: is it missing or of an older text?  problem: why the present text has none.
        """
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or not snapshot.titles:
            return {}
        found, default = self._find_followed(path, title), self._get_default_build(path).to_wire()
        newest = None if found is None else found.newest
        return {
            "model": title or self._passes.title(path, title),
            "default": default,
            "build": None if newest is None else newest.build.to_wire(),
            "emission": None if newest is None else newest.without_text(),
            "stale": newest is not None and newest.stale,
            "running": found is not None and found.running,
            "problem": "" if newest is None else newest.problem,
        }

    # Notifications from the daemon.

    def adopt(self, snapshot: GraphSnapshot) -> GraphSnapshot:
        """A fresh snapshot with the last emissions of its models, which belong to an older text."""
        found = dict(self._iterate_overlaid(snapshot))
        return snapshot.with_hardware(found) if found else snapshot

    def interrupt(self, path: str) -> None:
        """A new trace of the file begins."""
        self._behind.add(path)
        for followed in self._of_file(path):
            followed.stop()
            self._show_emission(followed, followed.newest.outdated())

    def traced(self, path: str) -> None:
        """A trace ended, and its child is live: emit again."""
        self._behind.discard(path)
        for followed in self._of_file(path):
            self._follow_snapshot(followed)

    def shown(self, path: str, title: str) -> None:
        """The passes' result on a model changed, perhaps because other passes are applied."""
        followed, snapshot = self._followed.get((path, title)), self._host.store.snapshot(path)
        if followed is None or snapshot is None:
            return
        if followed.running:
            is_known = followed.wanted == self._get_wanted(followed, snapshot)
        else:
            is_known = not followed.newest.stale and self._is_present(path, followed.newest)
        if not is_known:
            self._follow_snapshot(followed)

    async def shutdown(self) -> None:
        """Stop all tasks."""
        await end_tasks(each.task for each in self._followed.values() if each.task is not None)

    # Calls to the child.

    async def _make_emission(self, path: str, title: str, order: Order) -> Emission:
        """Emit on a user's request; a save meanwhile starts it anew."""
        for _ in range(_TRIES):
            worker, snapshot = await self._host.ready(path), self._host.store.snapshot(path)
            title = self._passes.title(path, title)
            assert snapshot is not None
            on_event = partial(self._report_progress, path, title)
            try:
                return await self._ask_for_emission(worker, snapshot, title, order, on_event)
            except WorkerGone as error:
                if not worker.retired:
                    raise PassError("gone", gone_text(path, error)) from error
        raise PassError("cancelled", f"{Path(path).name} was saved again and again meanwhile; nothing was emitted.")

    def _check_passes(self, path: str, title: str) -> None:
        """Raise PassError if a pass failed: hardware of fewer steps would not be what was asked for."""
        if (failure := self._passes.failure(path, title)) is not None:
            raise PassError("pass", f"{PASS_FAILED}: {failure}")

    async def _ask_for_emission(
        self, worker: Callee, snapshot: GraphSnapshot, title: str, order: Order, on_event: OnEvent | None = None
    ) -> Emission:
        self._check_passes(snapshot.path, title)
        steps = self._passes.steps(snapshot.path, title)
        settings = self._host.settings_of(self._host.folder_of(snapshot.path))
        limits = Limits(settings.pass_seconds, settings.memory_limit)
        return await emission_of(worker, Subject(snapshot, title, steps), order, limits, on_event)

    def _report_progress(self, path: str, title: str, message: Message) -> None:
        self._host.listener.verilog_progress(path, title, message["message"], message.get("fraction"))

    def _find_known(self, path: str, title: str, order: Order) -> Emission | None:
        """The emission of the present text if it exists already and no file has to be written."""
        followed, snapshot = self._followed.get((path, title)), self._host.store.snapshot(path)
        if followed is None or snapshot is None or order.folder or self._get_present_worker(path) is None:
            return None
        return followed.memory.find(snapshot, order.build, self._texts(path, title))

    # Following the text.

    def _follow_from(self, path: str, emission: Emission) -> None:
        """A user's request is answered; later emissions use the same build."""
        followed = self._followed.setdefault((path, emission.title), Followed(path, emission))
        followed.stop()
        if self._is_present(path, emission):
            self._show_emission(followed, emission)
            return
        self._show_emission(followed, emission.outdated())
        self._follow_snapshot(followed)

    def _follow_snapshot(self, followed: Followed) -> None:
        followed.stop()
        path, newest = followed.path, followed.newest
        snapshot, worker = self._host.store.snapshot(path), self._get_present_worker(path)
        if snapshot is None or worker is None or newest.title not in snapshot.titles:
            return
        known = followed.memory.find(snapshot, newest.build, self._texts(path, newest.title))
        if known is not None:
            self._show_emission(followed, known)
            return
        followed.wanted = self._get_wanted(followed, snapshot)
        followed.task = asyncio.create_task(self._remake_emission(followed, worker, snapshot))
        self._show_emission(followed, newest.outdated())

    async def _remake_emission(self, followed: Followed, worker: TraceWorker, snapshot: GraphSnapshot) -> None:
        newest = followed.newest
        try:
            async with self._slots:
                made = await self._ask_for_emission(worker, snapshot, newest.title, Order(newest.build))
        except PassError as error:
            made = newest.outdated(str(error))
        except WorkerGone as error:
            if worker.retired:
                return  # a newer trace is coming
            made = newest.outdated(gone_text(followed.path, error))
        followed.task = None
        self._show_emission(followed, made)

    def _get_wanted(self, followed: Followed, snapshot: GraphSnapshot) -> tuple[object, ...]:
        newest = followed.newest
        return snapshot.generation, newest.build, self._texts(followed.path, newest.title)

    def _show_emission(self, followed: Followed, emission: Emission) -> None:
        followed.newest = emission
        if not emission.stale:
            followed.memory.put(emission)
        self._lay_over(followed.path)
        self._host.listener.verilog_changed(followed.path, emission.title)

    def _lay_over(self, path: str) -> None:
        """Lay the known emissions over the shown snapshot."""
        entry = self._host.store.entry(path)
        if entry.shown is not None:
            shown = entry.shown.with_hardware(dict(self._iterate_overlaid(entry.shown)))
            self._host.listener.views_changed(self._host.store.put(replace(entry, shown=shown)))

    def _iterate_overlaid(self, snapshot: GraphSnapshot) -> Iterator[tuple[int, Emission]]:
        for followed in self._of_file(snapshot.path):
            newest = followed.newest
            if newest.title in snapshot.titles:
                laid = newest if newest.is_of(snapshot) else newest.outdated(newest.problem)
                yield snapshot.titles.index(newest.title), laid

    # Helpers.

    def _get_present_worker(self, path: str) -> TraceWorker | None:
        """The child that holds the newest text of a file."""
        return None if path in self._behind else self._host.live(path)

    def _of_file(self, path: str) -> list[Followed]:
        return [found for (file, _), found in self._followed.items() if file == path]

    def _is_present(self, path: str, emission: Emission) -> bool:
        """Does it belong to the newest text and the model's present passes?"""
        snapshot = self._host.store.snapshot(path)
        if snapshot is None or self._get_present_worker(path) is None or emission.title not in snapshot.titles:
            return False
        return emission.fits(snapshot, emission.build, self._texts(path, emission.title))

    def _find_followed(self, path: str, title: str | None) -> Followed | None:
        # A requested title may be missing from the present text.
        return self._followed.get((path, self._passes.title(path, None) if title is None else title))

    def _texts(self, path: str, title: str) -> tuple[str, ...]:
        return _list_step_texts(self._passes.steps(path, title))

    def _get_default_build(self, path: str) -> Build:
        return self._host.settings_of(self._host.folder_of(path)).build

    def _choose_build(self, path: str, title: str, given: Given) -> Build:
        """The requested build; ValueError if it is impossible."""
        followed, default = self._followed.get((path, title)), self._get_default_build(path)
        if given is None:
            return default if followed is None else followed.newest.build
        asked = {**default.to_wire(), **given}
        if "target" in given:
            asked["part"] = None if not given["target"] else self._find_part(path, str(given["target"])).to_wire()
        return Build.from_wire(asked)

    def _find_part(self, path: str, name: str) -> Part:
        """A part of the table or of the file's project; ValueError if there is none."""
        try:
            parts = list_parts(read_project(self._host.folder_of(path)).parts)
        except ProjectError as error:
            raise ValueError(str(error)) from error
        if name not in parts:
            raise ValueError(f"there is no part {name!r}{suggest(name, parts, 'there are')}")
        return parts[name]


def _list_step_texts(steps: Steps) -> tuple[str, ...]:
    return tuple(map(str, steps))


# The folder that hardware is written to: named by the user, and never over files of somebody else.

#: A file with this name marks a folder that mase-server wrote and may write again.
MARKER = ".mase-verilog"
_TEXT = "This folder was written by mase-server: emitting again replaces its files.\n"


def claim_folder(folder: str, overwrite: bool = False) -> None:
    """Make a folder and mark it; PassError of kind "argument" if that fails or it holds files of others."""
    place = Path(folder)
    if not place.is_absolute() or "\0" in folder:
        raise PassError("argument", f"the folder is {folder!r}; it has to be an absolute path")
    try:
        if not overwrite and _is_foreign(place):
            text = f"{folder} holds files that were not written by mase-server, and nothing was written there"
            raise PassError("argument", f"{text}. Choose another folder, an empty one, or say overwrite.")
        place.mkdir(parents=True, exist_ok=True)
        (place / MARKER).write_text(_TEXT, encoding="utf-8")
    except OSError as error:
        raise PassError("argument", f"nothing can be written to {folder}: {error.strerror or error}") from error


def _is_foreign(place: Path) -> bool:
    """Does the folder hold files of somebody else? A link always counts: writing through it lands elsewhere."""
    if not place.is_dir():
        return False
    if (place / MARKER).is_file():
        return any(each.is_symlink() for each in place.rglob("*"))
    return any(place.iterdir())


# Ask a child for the hardware of a model.


@dataclass(frozen=True, slots=True)
class Order:
    """A user's request. folder: where everything is written, "" for the text of the top module only.

    vectors: samples for the simulation, None for the usual number.  inputs: an .npz file with them, "" for random ones.
    ValueError for impossible values.
    """

    build: Build
    folder: str = ""
    vectors: int | None = None
    inputs: str = ""

    def __post_init__(self) -> None:
        if self.vectors is not None and self.vectors < 1:
            raise ValueError(f"vectors is {self.vectors}; at least one is needed")

    def to_wire(self) -> Params:
        """The request as parameters of the child's method."""
        given = {"build": self.build.to_wire(), "folder": self.folder, "inputs": self.inputs}
        return given if self.vectors is None else {**given, "vectors": self.vectors}


@dataclass(frozen=True, slots=True)
class Subject:
    """The model to make hardware of, and the steps that are applied to it first."""

    snapshot: GraphSnapshot
    title: str
    steps: Steps


async def emission_of(
    worker: Callee, subject: Subject, order: Order, limits: Limits, on_event: OnEvent | None = None
) -> Emission:
    """A child's emission for a model. PassError if it fails or sends something malformed; WorkerGone if it ends."""
    pieces: list[Any] = []

    def heard(message: Message) -> None:
        if message["event"] == "operations":
            pieces.extend(message["operations"])
        elif on_event is not None:
            on_event(message)

    snapshot, title = subject.snapshot, subject.title
    params = {"model": title, "steps": [step.to_wire() for step in subject.steps], **order.to_wire()}
    told = await ask_child(worker, "verilog", params, limits, f"the steps to hardware of {title}", heard)
    try:
        told |= {"operations": [*pieces, *told["operations"]]}
        texts = tuple(map(str, subject.steps))
        return Emission.of(snapshot, snapshot.titles.index(title), order.build, texts, told)
    except (KeyError, TypeError, ValueError) as error:
        text = f"The worker's answer about the hardware of {title} cannot be read"
        raise PassError("internal", f"{text}: {type(error).__name__}: {error}") from error
