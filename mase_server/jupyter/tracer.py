"""Traces cells: a daemon in a thread of the kernel. What it traces runs in processes of their own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mase_server.daemon.daemon import Daemon
from mase_server.daemon.quiet import Quiet
from mase_server.daemon.status import FolderSettings
from mase_server.daemon.store import FileView
from mase_server.directories import cache_dir, state_dir
from mase_server.snapshot import Problem

_T = TypeVar("_T")
#: Seconds that ending it may take.
_END = 5.0


@dataclass(frozen=True, slots=True)
class Traced:
    """What is known of a text. view: None where nothing can be shown.  message: how the trace ended, in words."""

    view: FileView | None
    problems: tuple[Problem, ...]
    message: str


class Tracer:
    """Traces one text at a time, as a file of the folder that the kernel runs in, with the kernel's own interpreter."""

    def __init__(self, folder: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mase-jupyter", daemon=True)
        self._thread.start()
        self._scratch = tempfile.TemporaryDirectory(prefix="mase-cell-")
        self._file = Path(self._scratch.name, "cell.py")
        self._daemon: Daemon = self._run(_daemon(folder))

    def trace(self, source: str) -> Traced:
        """What a text gives; the text is a program's, which is run as such."""
        self._file.write_text(source, "utf-8")
        return self._run(self._traced())

    def close(self) -> None:
        """End its processes."""
        if self._loop.is_running():
            self._run(self._daemon.shutdown(), _END)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END)
            self._scratch.cleanup()

    def _run(self, work: Coroutine[Any, Any, _T], seconds: float | None = None) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _traced(self) -> Traced:
        path = str(self._file)
        if self._daemon.file(path) is None:
            self._daemon.opened(path)
        else:
            self._daemon.retrace(path)
        status = await self._daemon.wait(path)
        entry, view = self._daemon.store.entry(path), self._daemon.store.view(path)
        is_present = view is not None and view.sha256 == status.sha256
        return Traced(view if is_present else None, entry.problems, status.message)


async def _daemon(folder: str) -> Daemon:
    settings = FolderSettings(trusted=True, interpreter=sys.executable)
    return Daemon(
        Quiet(),
        cache_dir=cache_dir(),
        state_dir=state_dir(),
        settings_of=lambda path: settings,
        folder_of=lambda path: folder,
    )
