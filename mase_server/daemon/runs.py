"""One pipeline on its way through the child of a model file: what is heard of it, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from mase_server.daemon.calls import CallFailed, OnEvent, WorkerGone
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.pipelines import PassError, Pipeline, Steps
from mase_server.daemon.status import Listener
from mase_server.daemon.supervisor import Limits
from mase_server.daemon.transform import Transform
from mase_server.wire import Message

#: The child holds passes to their limit itself; so much later it is believed to hang.
_GRACE = 10.0
_LIMITS = "(settings mase.passes.seconds and mase.limits.memory)"
#: With these, what the steps made without weights is still true, and stays.
_HARMLESS = frozenset({"limit", "internal", "cancelled", "gone"})


class Callee(Protocol):
    """The part of a TraceWorker that is needed here."""

    async def call(self, method: str, params: dict[str, Any] | None = None, on_event: OnEvent | None = None) -> Any:
        """See `supervisor.TraceWorker.call`."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a child is asked for.

    before: where the last step is new, the pipeline that it goes back to if that fails; else None.
    """

    snapshot: GraphSnapshot
    title: str
    steps: Steps
    before: Pipeline | None
    seconds: float
    memory: int


@dataclass(slots=True, eq=False)
class Run:
    """One asking. accepted: something can be shown of it.  newest: what was heard last, not shown if it failed."""

    ask: Ask
    listener: Listener
    show: Callable[[Run, Transform], None]
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    newest: Transform | None = None
    stopped: bool = False
    by_person: bool = False
    task: asyncio.Task[None] | None = None

    def start(self, worker: Callee) -> None:
        """Begin, as a task that ends with None, PassError or WorkerGone."""
        self.task = asyncio.create_task(self._drive(worker))

    def stop(self, by_person: bool = False) -> None:
        """End it, in the child too; nothing is heard of it from now on."""
        self.stopped, self.by_person = True, by_person
        if self.task is not None and not self.task.done():
            self.task.cancel()
            if by_person and not self.pending and self.newest is not None:
                self._tell(self.newest.stopped("Measuring it was cancelled."))

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
        """Is it still open whether its new step is kept?"""
        return self.trial and not self.accepted.is_set()

    async def decided(self) -> None:
        """Wait until something can be shown, or it is over."""
        assert self.task is not None
        accepted = asyncio.create_task(self.accepted.wait())
        try:
            await asyncio.wait((self.task, accepted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            accepted.cancel()

    async def over(self) -> None:
        """Wait until it is over, whichever way."""
        assert self.task is not None
        await asyncio.wait((self.task,))

    def error(self) -> BaseException | None:
        """Why it failed; None where it did not, or was stopped."""
        assert self.task is not None
        return self.task.exception() if self.task.done() and not self.task.cancelled() else None

    async def _drive(self, worker: Callee) -> None:
        try:
            await self._call(worker)
        except (PassError, WorkerGone) as error:
            self._failed(error)
            return
        if self.newest is None:
            raise PassError("internal", f"The worker said nothing of what the passes made of {self.ask.title}.")
        if self.newest.failed and self.trial:
            raise PassError("pass", str(self.newest.told["problem"]))
        if not self.newest.complete:
            self._tell(self.newest.stopped(self.newest.told["problem"]))

    def _failed(self, error: PassError | WorkerGone) -> None:
        """Keep what is true all the same; raise where that is nothing."""
        kind = error.kind if isinstance(error, PassError) else "gone"
        refused = self.pending or (self.newest is not None and self.newest.failed) or kind not in _HARMLESS
        if (self.trial and refused) or (self.newest is None and kind in ("gone", "cancelled")):
            raise error
        if self.newest is None:
            failed = None if kind in _HARMLESS else len(self.ask.steps) - 1
            self._tell(Transform.nothing(self.index, failed, str(error)))
        elif not self.newest.complete:
            self._tell(self.newest.stopped(self.newest.told["problem"] if self.newest.failed else str(error)))

    def _heard(self, message: Message) -> None:
        if self.stopped:
            return
        if message["event"] == "progress":
            path, fraction = self.ask.snapshot.path, message.get("fraction")
            self.listener.pass_progress(path, self.ask.title, message["message"], fraction)
        elif message["event"] == "transform":
            self.newest = replace(Transform.from_wire(message["transform"]), model=self.index)
            if self.trial and (self.newest.failed or len(self.newest.told["steps"]) < len(self.ask.steps)):
                return
            self._tell(self.newest)

    def _tell(self, transform: Transform) -> None:
        self.newest = transform
        self.show(self, transform)
        self.accepted.set()

    async def _call(self, worker: Callee) -> None:
        ask = self.ask
        params = {
            "model": ask.title,
            "steps": [step.to_wire() for step in ask.steps],
            "measure": True,
            "trial": self.trial,
        }
        limits = Limits(ask.seconds, ask.memory)
        await ask_child(worker, "transform", params, limits, f"the passes on {ask.title}", self._heard)


async def ask_child(
    worker: Callee, method: str, params: dict[str, Any], limits: Limits, what: str, on_event: OnEvent | None = None
) -> Any:
    """A child's answer to a call that has limits, or PassError; WorkerGone as `Callee.call` has it."""
    try:
        async with asyncio.timeout(limits.seconds + _GRACE):
            given = params | {"memory": limits.memory, "seconds": limits.seconds}
            return await worker.call(method, given, on_event)
    except TimeoutError:
        text = f"{what} took longer than {limits.seconds:g} s and were stopped"
        raise PassError("limit", f"{text} {_LIMITS}") from None
    except CallFailed as error:
        raise PassError(error.kind, f"{error} {_LIMITS}" if error.kind == "limit" else str(error)) from error
