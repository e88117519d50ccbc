"""Trace cells with the workspace's running daemon, or with a daemon of the kernel if no other can.

A cell is traced with the statements of earlier cells that define its names; statements that run for their effect, such
as training, are left out, because shapes do not depend on them. No file is written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server import __version__
from mase_server.cli.attached import Detached, connect_daemon, daemon_of, open_file, report_now
from mase_server.cli.reports import ask_each_model, drive_talk
from mase_server.paths import canonical_path
from mase_server.programs import own_server
from mase_server.rpc.registry import VARIABLE, Registration

if TYPE_CHECKING:
    from mase_server.cli.reports import Report
    from mase_server.rpc.registry import Registration


#: Seconds that the kernel's own daemon may be silent; it has no substitute.
_OWN_PATIENCE = 30.0
#: Maximum seconds for a compiler.
_COMPILING = 600.0


class NotTraced(Exception):
    """A cell could not be traced; the text says why."""


class Tracer:
    """Traces one text at a time, as a file in the kernel's `folder`, with the kernel's own interpreter.

    The text stands in for a file that does not exist, so it finds modules beside the notebook like any program there.
    The daemon keeps nothing of it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = Path(canonical_path(Path(folder, f".mase-cell-{os.getpid()}.py")))
        self._own: OwnDaemon | None = None
        self._unfit: set[Registration] = set()
        #: The view to ask of each model, and what came of it in the last trace, by title.
        self.view = ""
        self.compiled: dict[str, Any] = {}

    def trace(self, source: str, view: str = "") -> Report:
        """Trace a text, which runs as a program, and return the result. NotTraced. view: of compilers, kept too."""
        self.view, self.compiled = view, {}
        if not self._file.parent.is_dir():
            raise NotTraced(f"a cell is traced as a file of its folder, but there is no folder {self._file.parent}")
        return self._of_workspace(source) or self._of_own(source)

    def close(self) -> None:
        """End its own daemon, if there is one."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def _of_workspace(self, source: str) -> Report | None:
        """The answer of the daemon that an editor or a user runs for this folder; None if that daemon is not usable."""
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
        with connect_daemon(registration, patience) as client:
            open_file(client, path, source)
            report = report_now(client, self._file, text=source.encode("utf-8", "surrogatepass"))
            if self.view and report.models:
                talk = ask_each_model("mase/compiled", path, None, {"view": self.view})
                self.compiled = dict(drive_talk(talk, partial(client.call, timeout=_COMPILING)))
            client.call("mase/close", {"path": path})
            return report


def _is_own_environment(interpreter: str | None) -> bool:
    """Is it the kernel's environment? Compares folders, because the file in it may have several names or be a link."""
    return not interpreter or Path(interpreter).parent == Path(sys.executable).parent


# The kernel's own daemon, if no other can be used: other clients do not find it, and it ends with the kernel.

#: Maximum seconds for ending it.
_END = 5.0
#: Characters of its log that are shown if it does not start.
_TOLD = 500


class NotStarted(Exception):
    """The daemon did not start; the text says why."""


class OwnDaemon:
    """`mase-server serve` of one folder, with the kernel's interpreter. NotStarted."""

    def __init__(self, folder: str) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="mase-kernel-")
        log = Path(self._scratch.name, "log")
        # Its standard input closes when the kernel ends, in whatever way. It has its own session, because interrupting
        # a cell interrupts the whole process group.
        command = own_server("serve", folder, "--python", sys.executable, "--trust", "--until-eof")
        with log.open("wb") as errors:
            self._process = command.start(
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                more={VARIABLE: self._scratch.name},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().decode().strip()
        if not address:
            said = log.read_text("utf-8", "replace").strip()[-_TOLD:]
            raise NotStarted(f"`{' '.join(command.words)}` did not start: {said}")
        self.registration = Registration(folder, address, self._process.pid, "", "serve", __version__)

    @property
    def runs(self) -> bool:
        """Is it still running?"""
        return self._process.poll() is None

    def close(self) -> None:
        """End it, and all its descendants."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._scratch.cleanup()
