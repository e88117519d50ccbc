"""Questions to a live child: each gets its own answer, and hears its own events before it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mase_server.snapshot import TransformAssembler
from mase_server.wire import Message

OnEvent = Callable[[Message], None]


class WorkerGone(Exception):
    """The child that should have answered has ended."""


class CallFailed(RuntimeError):
    """The child's error text, and its kind: pass, limit, cancelled, argument or internal."""

    def __init__(self, text: str, kind: str = "internal") -> None:
        super().__init__(text)
        self.kind = kind


def _ignore(message: Message) -> None:
    """For who wants the answer alone."""


@dataclass(slots=True)
class Call:
    """One question under way."""

    ident: int
    answer: asyncio.Future[Any]
    on_event: OnEvent
    assembler: TransformAssembler = field(default_factory=TransformAssembler)


class Calls:
    """Every question to one child that has no answer yet."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._ids = itertools.count(1)

    @property
    def idents(self) -> frozenset[int]:
        """Those that wait for an answer."""
        return frozenset(self._calls)

    def open(self, on_event: OnEvent | None = None) -> Call:
        """A new question; its events go to `on_event`, those of transforms put together again."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = Call(next(self._ids), answer, on_event or _ignore)
        self._calls[call.ident] = call
        answer.add_done_callback(lambda done: self._calls.pop(call.ident, None))
        return call

    def take(self, message: Message) -> None:
        """An answer, or an event of a call; what nobody waits for is dropped."""
        call = self._calls.get(message["result"] if "result" in message else message["id"])
        if call is None or call.answer.done():
            return
        if "result" not in message:
            self._heard(call, message)
        elif "error" in message:
            call.answer.set_exception(CallFailed(message["error"], message.get("kind", "internal")))
        else:
            call.answer.set_result(message["value"])

    @staticmethod
    def _heard(call: Call, message: Message) -> None:
        if "frame" not in message:
            call.on_event(message)
        elif (transform := call.assembler.add(message["frame"])) is not None:
            call.on_event({"event": message["event"], "id": call.ident, "transform": transform})

    def fail(self, error: Exception) -> None:
        """Answer all of them with an error."""
        for call in list(self._calls.values()):
            if not call.answer.done():
                call.answer.set_exception(error)
                call.answer.exception()  # nobody may be left to look at it
