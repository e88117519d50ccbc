"""`mase-server shapes --watch`: shows again whenever a file, or what it imports, is saved."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server.cli import attached
from mase_server.cli.reports import Report
from mase_server.cli.session import Wanted, daemon_for, traced
from mase_server.cli.showing import Asked, print_reports
from mase_server.cli.terminal import say
from mase_server.daemon.quiet import Quiet
from mase_server.daemon.status import END_STATES, Status
from mase_server.paths import canonical
from mase_server.reading import is_file
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.client.blocking import Client

#: Seconds after which it is looked whether a file is gone or back: nobody tells of that.
_LOOK = 1.0
#: An editor that writes by renaming leaves a moment without the file, in seconds.
_MOMENT = 0.2
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"

#: What a drawing shows: whether each file is there, and which of its texts was traced.
Look = tuple[tuple[bool, int], ...]


def watch(asked: Asked) -> int:
    """Show at every save, until interrupted; the exit status."""
    screen = _Screen(asked)
    with contextlib.suppress(KeyboardInterrupt):
        if asked.is_plain:
            _watch_attached(screen)
        asyncio.run(_watch_alone(screen))
    return 0


@dataclass(slots=True)
class _Screen:
    """The last drawing; the screen is drawn again only when it changes."""

    asked: Asked
    seen: Look = ()
    drawn: int = 0
    gone: list[Path] = field(default_factory=list)

    def look(self, number_of: Callable[[Path], int | None]) -> bool:
        """Is there something else to be seen? number_of: the number of a file's newest trace, None while it runs."""
        files = self.asked.files
        numbers = [number_of(file) for file in files]
        self.gone = [file for file in files if not _is_there(file)]
        if None in numbers:
            return False
        now = tuple((file not in self.gone, number or 0) for file, number in zip(files, numbers, strict=True))
        changed = now != self.seen
        self.seen = now
        return changed

    def draw(self, reports: Sequence[Report]) -> None:
        """On a terminal in place of what was there; else as a further block."""
        asked = self.asked
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        elif self.drawn and not asked.json:
            say(f"\n── saved ({self.drawn})")
        print_reports(list(reports), asked)
        for file in self.gone:
            say(f"{reveal(str(file))} is gone; it will be shown when it is back", error=asked.json)
        if sys.stdout.isatty():
            sys.stdout.write(f"\n── {time.strftime('%H:%M:%S')}, shown again at every save; Ctrl-C ends\n")
        sys.stdout.flush()
        self.drawn += 1


def _is_there(file: Path) -> bool:
    if is_file(file):
        return True
    time.sleep(_MOMENT)
    return is_file(file)


def _watch_attached(screen: _Screen) -> None:
    """With the daemon that serves all of the files, as long as it answers."""
    found = {attached.daemon_of(file) for file in screen.asked.files}
    registration = found.pop() if len(found) == 1 else None
    if registration is None:
        return
    try:
        with attached.connected(registration) as client:
            paths = [canonical(file) for file in screen.asked.files]
            for path in paths:
                client.call("mase/subscribe", {"topics": ["worker"], "path": path})
                attached.open_file(client, path)
            while True:
                if screen.look(lambda file: _number(client, canonical(file))):
                    screen.draw(_reports(client, screen))
                next(client.events(timeout=_LOOK), None)
    except attached.Detached as error:
        attached.note(f"{error}; traced without it from now on")
        screen.seen = ()


def _number(client: Client, path: str) -> int | None:
    status = client.call("mase/fileStatus", {"path": path})
    return int(status["generation"]) if status["state"] in END_STATES else None


def _reports(client: Client, screen: _Screen) -> list[Report]:
    found = []
    for file in screen.asked.files:
        with contextlib.suppress(FileNotFoundError):
            found.append(attached.report_now(client, file, screen.asked.everything))
    return found


class _Told(Quiet):
    """Wakes who waits when a trace ended."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def status_changed(self, status: Status) -> None:
        """A trace entered a state."""
        if status.ended:
            self.ended.set()


async def _watch_alone(screen: _Screen) -> None:
    asked, told = screen.asked, _Told()
    wanted = Wanted(asked.files, asked.model, asked.inputs, asked.python, asked.set)
    async with daemon_for(wanted, told) as daemon:
        await daemon.start()
        daemon.opened(canonical(asked.files[0]))  # a file that is opened before the start is not watched yet

        def number_of(file: Path) -> int | None:
            status = daemon.status(canonical(file))
            return status.generation if status is not None and status.ended else None

        while True:
            told.ended.clear()
            if screen.look(number_of):
                there = [file for file in asked.files if file not in screen.gone]
                screen.draw([await traced(daemon, file, asked.everything) for file in there])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.ended.wait(), _LOOK)
