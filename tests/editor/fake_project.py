"""A folder whose server is `fake_server.py`, and what that server wrote down."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("fake_server.py")
PATIENCE = 60.0
Event = dict[str, Any]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Poll until `holds`: another process's doings send us no event."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Is there a process of that id?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class FakeProject:
    """A folder with `model.py`, two assignments; several tests use it one after the other."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        self._mark = 0
        self._server = {"mase.server.command": [sys.executable, str(SERVER), str(log)]}
        self._settings = folder / ".vscode" / "settings.json"
        self._settings.parent.mkdir(parents=True)
        (folder / "model.py").write_text("first = 1\nsecond = 2\n")
        self.begin()

    def begin(self) -> None:
        """The settings as they were at first; what was written down until now counts no more."""
        self._settings.write_text(json.dumps(self._server))
        self._mark = len(self._events())

    @property
    def pid(self) -> int:
        """The process of the server that was started last."""
        return int([event["pid"] for event in self._events() if event["event"] == "started"][-1])

    def configure(self, **settings: object) -> None:
        """Change the folder's settings, as a person does."""
        self._settings.write_text(json.dumps(json.loads(self._settings.read_text()) | settings))

    def events(self, name: str) -> list[Event]:
        """What of that kind the server wrote down in this test, in order, each with its `pid`."""
        return [event for event in self._events()[self._mark :] if event["event"] == name]

    def _events(self) -> list[Event]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for(self, name: str, count: int = 1) -> list[Event]:
        """The events of that name, once there are `count`."""
        wait_until(lambda: len(self.events(name)) >= count, f"there were {count} events {name!r} in {self.log}")
        return self.events(name)
