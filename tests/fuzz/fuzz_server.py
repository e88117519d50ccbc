"""A real server for the fuzzer: started as an editor starts it, watched, and ended with everything below it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz_wire import PATIENCE, Broken, EditorWire, ToolWire

_MARK = "MASE_FUZZ_MARK"
#: What an editor can do -> its capabilities. `plain` cannot be asked to ask again, so its questions wait.
_REFRESH = {name: {"refreshSupport": True} for name in ("inlayHint", "codeLens", "diagnostics")}
_EDITS = {"workspaceEdit": {"documentChanges": True}, "workspaceFolders": True, "configuration": True}
STYLES: dict[str, dict[str, Any]] = {
    "pull": {"textDocument": {"diagnostic": {}}, "workspace": _EDITS | _REFRESH, "window": {"workDoneProgress": True}},
    "push": {"textDocument": {}, "workspace": _EDITS | _REFRESH, "window": {"workDoneProgress": True}},
    "plain": {"textDocument": {}, "workspace": _EDITS, "window": {}},
}
#: What no log of a server may hold. watchdog calls it an error that a watch was ended while it was being read.
_BAD_LOG = re.compile(r"Traceback|^(ERROR|CRITICAL) (?!watchdog\.)", re.MULTILINE)


class Server:
    """One server process. serve: answers what it asks its editor."""

    def __init__(self, style: str, serve: Callable[[str, Any], Any]) -> None:
        self.style, self.mark = style, uuid.uuid4().hex
        self.home = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.folder, self.other, self.third = (self.home / name for name in ("work", "other", "third"))
        for folder in (self.folder, self.other, self.third):
            folder.mkdir()
        self.log = self.home / "log"
        self._log = self.log.open("wb")
        names = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "MASE_RUNTIME_DIR": "run"}
        env = {**os.environ, _MARK: self.mark, **{name: str(self.home / path) for name, path in names.items()}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mase_server", "lsp"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=env, start_new_session=True,
        )  # fmt: skip
        self.wire = EditorWire(self.process, serve)

    def shake_hands(self) -> None:
        """Initialize it."""
        folders = [{"uri": each.as_uri(), "name": each.name} for each in (self.folder, self.other)]
        options = {"trusted": True, "interpreter": sys.executable, "limits.seconds": 120, "update": "onSave"}
        params = {"processId": os.getpid(), "capabilities": STYLES[self.style], "rootUri": folders[0]["uri"],
                  "workspaceFolders": folders, "initializationOptions": options}  # fmt: skip
        told = self.wire.result("initialize", params)
        if "error" in told:
            raise Broken(f"initialize was refused: {told}")
        self.wire.notify("initialized", {})

    def tool(self) -> ToolWire:
        """Another client, at the socket that the server told of."""
        found: list[str] = []

        def registered() -> bool:
            for file in (self.home / "run").glob("*.json"):
                with contextlib.suppress(ValueError, OSError):
                    found.append(json.loads(file.read_text())["address"])
            return bool(found)

        self.wire.until(registered, "the server's socket")
        return ToolWire(found[0].removeprefix("unix:"))

    def below(self) -> list[int]:
        """The processes that it started, and theirs: by parents, which nobody but them can be."""
        parents = {pid: parent for pid, parent in map(_parent, _processes()) if parent}
        found = [self.process.pid]
        for pid in found:
            found += [each for each, parent in parents.items() if parent == pid]
        return found[1:]

    def stop(self) -> None:
        """End it in order; Broken where it does not, or leaves a process behind."""
        self.wire.result("shutdown", None)
        self.wire.notify("exit", None)
        code = self.process.wait(PATIENCE)
        self._log.close()
        end = time.monotonic() + PATIENCE
        while (left := self._marked()) and time.monotonic() < end:
            time.sleep(0.02)
        problems = [f"exit status {code}"] if code else []
        problems += [f"processes that it left: {left}"] if left else []
        problems += [f"files that it left: {found}"] if (found := self._left_files()) else []
        self.dispose()
        if problems:
            raise Broken(f"the server ended with {'; '.join(problems)}")

    def dispose(self) -> None:
        """Kill whatever is left of it, and throw its folder away."""
        if self.process.poll() is None:
            self.process.kill()
        for pid in self._marked():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        shutil.rmtree(self.home, ignore_errors=True)

    def check_log(self) -> None:
        """Broken where the server's log tells of a fault of its own."""
        text = self.log.read_text(errors="replace")
        if _BAD_LOG.search(text):
            raise Broken(f"the server's log:\n{text[-4000:]}")

    def _left_files(self) -> list[str]:
        return [str(each) for each in (self.home / "run").glob("*") if each.suffix in {".sock", ".json"}]

    def _marked(self) -> list[int]:
        needle = f"{_MARK}={self.mark}".encode()
        return [pid for pid in _processes() if pid != os.getpid() and needle in _environment(pid)]


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _parent(pid: int) -> tuple[int, int]:
    try:
        return pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return pid, 0


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
