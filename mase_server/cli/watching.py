"""Follows saves: `shapes --watch` and `view` show a file again when it, or one that it imports, is saved."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from mase_server.cli import attached
from mase_server.cli.reports import Report, T, Talk, drive_talk, request_report
from mase_server.cli.session import Wanted, answer_talk, daemon_for
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
    follow_files(Watch(asked, lambda file: request_report(file, asked.everything), screen.draw))
    return 0


@dataclass(slots=True)
class Watch(Generic[T]):
    """Asks the same of each file, and shows the answers again only when the state changes.

    show: is given the answers about the files that exist, and the files that are gone.
    """

    asked: Asked
    request: Callable[[Path], Talk[T]]
    show: Callable[[list[T], list[Path]], None]
    seen: Look = ()
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

    @property
    def present(self) -> list[Path]:
        """The files that exist."""
        return [file for file in self.asked.files if file not in self.gone]


def follow_files(watch: Watch[T]) -> None:
    """Ask and show at every save, until interrupted: through the daemon that serves all files, else with an own one."""
    with contextlib.suppress(KeyboardInterrupt):
        if watch.asked.is_plain:
            _follow_attached(watch)
        asyncio.run(_follow_alone(watch))


@dataclass(slots=True)
class _Screen:
    """The terminal on which the files are drawn again and again."""

    asked: Asked
    drawn: int = 0

    def draw(self, reports: list[Report], gone: list[Path]) -> None:
        """Draw: on a terminal in place of the previous output, else below it."""
        asked = self.asked
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        elif self.drawn and not asked.json:
            say(f"\n── saved ({self.drawn})")
        print_reports(reports, asked)
        for file in gone:
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


def _follow_attached(watch: Watch[T]) -> None:
    """Follow through the daemon that serves all files, as long as it answers."""
    found = {attached.daemon_of(file) for file in watch.asked.files}
    registration = found.pop() if len(found) == 1 else None
    if registration is None:
        return
    try:
        with attached.connect_daemon(registration) as client:
            paths = [canonical_path(file) for file in watch.asked.files]
            for path in paths:
                client.call("mase/subscribe", {"topics": ["worker"], "path": path})
                attached.open_file(client, path)
            while True:
                if watch.look(lambda file: _finished_generation(client, canonical_path(file))):
                    answers = []
                    for file in watch.asked.files:
                        with contextlib.suppress(FileNotFoundError):
                            answers.append(drive_talk(watch.request(file), client.call))
                    watch.show(answers, watch.gone)
                next(client.events(timeout=_LOOK), None)
    except attached.Detached as error:
        attached.print_note(f"{error}; traced without it from now on")
        watch.seen = ()


def _finished_generation(client: Client, path: str) -> int | None:
    status = client.call("mase/fileStatus", {"path": path})
    return int(status["generation"]) if status["state"] in END_STATES else None


class _Told(Listener):
    """Wakes waiting tasks when a trace ends."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def status_changed(self, status: Status) -> None:
        """A trace entered a state."""
        if status.ended:
            self.ended.set()


async def _follow_alone(watch: Watch[T]) -> None:
    asked, told = watch.asked, _Told()
    wanted = Wanted(asked.files, asked.model, asked.inputs, asked.python, asked.set)
    async with daemon_for(wanted, told) as daemon:
        await daemon.start()
        daemon.opened(canonical_path(asked.files[0]))  # a file opened before the start is not watched yet

        def number_of(file: Path) -> int | None:
            status = daemon.status(canonical_path(file))
            return status.generation if status is not None and status.ended else None

        while True:
            told.ended.clear()
            if watch.look(number_of):
                watch.show([await answer_talk(daemon, watch.request(file)) for file in watch.present], watch.gone)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.ended.wait(), _LOOK)
