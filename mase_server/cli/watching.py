"""`mase-server shapes --watch`: shows the shapes again whenever a file, or one that it imports, is saved."""

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
from mase_server.cli.session import Wanted, daemon_for, report_once_traced
from mase_server.cli.showing import Asked, print_reports
from mase_server.cli.terminal import say
from mase_server.daemon.status import END_STATES, Listener, Status
from mase_server.paths import canonical_path
from mase_server.reading import is_file
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.client.blocking import Client


#: Seconds between checks whether a file is gone or back, because nothing reports that.
_LOOK = 1.0
#: Seconds without the file that are normal when an editor saves by renaming.
_MOMENT = 0.2
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"

#: The state that a drawing shows: for each file whether it exists, and the number of its traced text.
Look = tuple[tuple[bool, int], ...]


def watch_files(asked: Asked) -> int:
    """Show the files at every save, until interrupted; returns the exit status."""
    screen = _Screen(asked)
    with contextlib.suppress(KeyboardInterrupt):
        if asked.is_plain:
            _watch_attached(screen)
        asyncio.run(_watch_alone(screen))
    return 0


@dataclass(slots=True)
class _Screen:
    """The last drawing; it is drawn again only when the state changes."""

    asked: Asked
    seen: Look = ()
    drawn: int = 0
    gone: list[Path] = field(default_factory=list)

    def look(self, number_of: Callable[[Path], int | None]) -> bool:
        """Has the state changed? number_of: the number of a file's newest trace, None while it runs."""
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
        """Draw: on a terminal in place of the previous output, else below it."""
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
    """Watch through the daemon that serves all files, as long as it answers."""
    found = {attached.daemon_of(file) for file in screen.asked.files}
    registration = found.pop() if len(found) == 1 else None
    if registration is None:
        return
    try:
        with attached.connect_daemon(registration) as client:
            paths = [canonical_path(file) for file in screen.asked.files]
            for path in paths:
                client.call("mase/subscribe", {"topics": ["worker"], "path": path})
                attached.open_file(client, path)
            while True:
                if screen.look(lambda file: _finished_generation(client, canonical_path(file))):
                    screen.draw(_current_reports(client, screen))
                next(client.events(timeout=_LOOK), None)
    except attached.Detached as error:
        attached.print_note(f"{error}; traced without it from now on")
        screen.seen = ()


def _finished_generation(client: Client, path: str) -> int | None:
    status = client.call("mase/fileStatus", {"path": path})
    return int(status["generation"]) if status["state"] in END_STATES else None


def _current_reports(client: Client, screen: _Screen) -> list[Report]:
    found = []
    for file in screen.asked.files:
        with contextlib.suppress(FileNotFoundError):
            found.append(attached.report_now(client, file, screen.asked.everything))
    return found


class _Told(Listener):
    """Wakes waiting tasks when a trace ends."""

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
        daemon.opened(canonical_path(asked.files[0]))  # a file opened before the start is not watched yet

        def number_of(file: Path) -> int | None:
            status = daemon.status(canonical_path(file))
            return status.generation if status is not None and status.ended else None

        while True:
            told.ended.clear()
            if screen.look(number_of):
                there = [file for file in asked.files if file not in screen.gone]
                screen.draw([await report_once_traced(daemon, file, asked.everything) for file in there])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.ended.wait(), _LOOK)
