"""A daemon of the kernel's own, where no other one will do: nobody else finds it, and it ends with the kernel."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from mase_server import __version__
from mase_server.programs import own_server
from mase_server.rpc.registry import VARIABLE, Registration

#: Seconds that ending it may take.
_END = 5.0
#: Characters of its log that are told where it does not start.
_TOLD = 500


class NotStarted(Exception):
    """The daemon did not start; the text says why."""


class OwnDaemon:
    """`mase-server serve` of one folder, with the kernel's interpreter. NotStarted."""

    def __init__(self, folder: str) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="mase-kernel-")
        log = Path(self._scratch.name, "log")
        # Its standard input ends with the kernel, however that ends. In a session of its own, because whoever
        # interrupts a cell interrupts the whole group.
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
        """Is it still there?"""
        return self._process.poll() is None

    def close(self) -> None:
        """End it, and everything that it started."""
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
