"""Traces cells: the workspace's running daemon is asked, or one of the kernel's own where there is none that can."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server.cli.attached import Detached, connected, daemon_of, open_file, report_now
from mase_server.jupyter.own import NotStarted, OwnDaemon
from mase_server.paths import canonical

if TYPE_CHECKING:
    from mase_server.cli.reports import Report
    from mase_server.rpc.registry import Registration

#: Seconds that the kernel's own daemon may be silent: nobody else could answer.
_OWN_PATIENCE = 30.0


class NotTraced(Exception):
    """Nothing can be told of a cell; the text says why."""


class Tracer:
    """Traces one text at a time, as a file of `folder`, where the kernel runs, with the kernel's own interpreter.

    The file is there while it is traced, so that what stands beside the notebook is found as by any program there. It
    is hidden, and nothing of it stays in the daemon.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = Path(canonical(Path(folder, f".mase-cell-{os.getpid()}.py")))
        self._own: OwnDaemon | None = None
        self._unfit: set[Registration] = set()

    def trace(self, source: str) -> Report:
        """The result of tracing a text, which runs as a program. NotTraced."""
        try:
            return self._of_workspace(source) or self._of_own(source)
        except OSError as error:
            raise NotTraced(f"a cell is traced as a file beside the notebook, but {error}") from error
        finally:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)

    def close(self) -> None:
        """End its own daemon, if there is one."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _of_workspace(self, source: str) -> Report | None:
        """The answer of the daemon that an editor, or somebody, runs for this folder; None where it is of no use."""
        found = daemon_of(self._file)
        if found is None or found in self._unfit:
            return None
        try:
            report = self._asked(found, source)
        except Detached:
            return None
        if not _is_own_environment(report.told["interpreter"]):
            self._unfit.add(found)
            return None
        return report

    def _of_own(self, source: str) -> Report:
        try:
            if self._own is None or not self._own.runs:
                self.close()
                self._own = OwnDaemon(self._folder)
            return self._asked(self._own.registration, source, _OWN_PATIENCE)
        except (Detached, NotStarted) as error:
            raise NotTraced(str(error)) from error

    def _asked(self, registration: Registration, source: str, patience: float | None = None) -> Report:
        path = str(self._file)
        self._file.write_text(source, "utf-8")
        with connected(registration, patience) as client:
            open_file(client, path)
            report = report_now(client, self._file)
            self._file.unlink(missing_ok=True)  # before it is closed: of a file that is gone the daemon keeps nothing
            client.call("mase/close", {"path": path})
            return report


def _is_own_environment(interpreter: str) -> bool:
    """Is it the kernel's environment? Its folder tells; the file in it may have several names, and be a link."""
    return not interpreter or Path(interpreter).parent == Path(sys.executable).parent
