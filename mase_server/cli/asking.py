"""Questions about one traced file, put to a running daemon, or to one of our own where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mase_server.cli import attached
from mase_server.paths import canonical

if TYPE_CHECKING:
    from mase_server.client.blocking import Client
    from mase_server.rpc.registry import Registration

T = TypeVar("T")
#: Questions one after the other: yields a method and its parameters, is sent the answer, ends with what it is about.
Talk = Generator[tuple[str, dict[str, Any]], dict[str, Any], T]
Tell = Callable[[str], None]

#: Seconds that passes and drawings may take.
_LONG = 600.0
_SLOW = frozenset({"mase/draw"})


class Refused(Exception):
    """The question has no answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Which file is asked about, and by whom. inputs, python: for this command alone, so that no daemon is asked."""

    file: Path
    inputs: tuple[str, ...] = ()
    python: str | None = None
    daemon: bool = True

    @property
    def path(self) -> str:
        """The file, absolute."""
        return canonical(self.file)


def ask(subject: Subject, talk: Callable[[str], Talk[T]], tell: Tell = lambda text: None) -> T:
    """The result of a talk about the file, once it is traced; Refused. tell: receives the progress."""
    if subject.daemon and not subject.inputs and subject.python is None:
        registration = attached.daemon_of(subject.file)
        try:
            if registration is not None:
                return _attached(registration, subject, talk)
        except attached.Detached as error:
            attached.note(f"{error}; traced without it")
    return asyncio.run(_alone(subject, talk, tell))


def _attached(registration: Registration, subject: Subject, talk: Callable[[str], Talk[T]]) -> T:
    from mase_server.client.errors import RpcError

    with attached.connected(registration) as client:
        path = canonical(subject.file)
        attached.open_file(client, path)
        try:
            return _driven(talk(path), lambda method, params: _call(client, method, params))
        except RpcError as error:
            raise Refused(str(error)) from error


def _call(client: Client, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return client.call(method, params, timeout=_LONG if method in _SLOW else None)


def _driven(talk: Talk[T], call: Callable[[str, dict[str, Any]], dict[str, Any]]) -> T:
    try:
        question = next(talk)
        while True:
            question = talk.send(call(*question))
    except StopIteration as end:
        found: T = end.value
        return found


async def _alone(subject: Subject, talk: Callable[[str], Talk[T]], tell: Tell) -> T:
    from mase_server.cli.applying import Reporter
    from mase_server.cli.session import Wanted, daemon_for, told
    from mase_server.daemon.pipelines import PassError

    wanted = Wanted((subject.file,), inputs=subject.inputs, python=subject.python)
    async with daemon_for(wanted, Reporter(tell)) as daemon:
        await daemon.wait(subject.path)
        talking = talk(subject.path)
        try:
            question = next(talking)
            while True:
                question = talking.send(await told(daemon, *question))
        except StopIteration as end:
            found: T = end.value
            return found
        except (ValueError, PassError) as error:
            raise Refused(str(error)) from error
