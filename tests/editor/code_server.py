"""VS Code in the browser, with the extension installed: code_server.py FOLDER runs it until Ctrl-C."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools"
VSIX = ROOT / "mase_client_vscode" / "dist" / "mase-vscode.vsix"
ENTRY = TOOLS / "node_modules" / "code-server" / "out" / "node" / "entry.js"
SETTINGS = json.loads(Path(__file__).with_name("settings.json").read_text())
NO_GALLERY = json.dumps({"serviceUrl": "", "itemUrl": "", "resourceUrlTemplate": "", "controlUrl": ""})
START_SECONDS = 60.0
LOG_SHOWN = 4000
#: Without the short grace time a closed page's language server lives on for three hours.
QUIET = (
    "--disable-telemetry",
    "--disable-update-check",
    "--disable-getting-started-override",
    "--reconnection-grace-time=2",
)
NO_TRUST = "--disable-workspace-trust"
#: Without it a window that is asked to run extension tests silently runs none.
TESTING = "--vscode-option=enable-smoke-test-driver"


@dataclass(frozen=True, slots=True)
class CodeServer:
    """A running code-server on a loopback port."""

    port: int
    process: subprocess.Popen[bytes]
    home: Path

    def last_log(self) -> str:
        """The end of the extension's log in the window that was opened last."""
        logs = sorted(self.home.rglob("*MASE.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text()[-LOG_SHOWN:] if logs else ""

    def url(self, folder: Path, *payload: tuple[str, Path]) -> str:
        """The address of a window on a folder, or on a `.code-workspace`; payload: e.g. ("openFile", file)."""
        remote = f"vscode-remote://127.0.0.1:{self.port}"
        pairs = [(key, f"{remote}{path}") for key, path in payload]
        kind = "workspace" if folder.suffix == ".code-workspace" else "folder"
        query = {kind: str(folder), **({"payload": json.dumps(pairs)} if pairs else {})}
        return f"http://127.0.0.1:{self.port}/?{urlencode(query, quote_via=quote)}"


@contextmanager
def running(home: Path, *, trust: bool = False, testing: bool = False, **settings: Any) -> Iterator[CodeServer]:
    """Start code-server with its data under `home`, and end it.

    trust: ask whether a workspace is trusted.  testing: windows run extension tests; they show no messages then.
    """
    write_settings(home, {"security.workspace.trust.enabled": trust, **settings})
    install(home)
    port = free_port()
    flags = ([] if trust else [NO_TRUST]) + ([TESTING] if testing else [])
    process = node(home, "--auth=none", f"--bind-addr=127.0.0.1:{port}", *QUIET, *flags)
    try:
        wait_until_healthy(port, process)
        yield CodeServer(port, process, home)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)


def write_settings(home: Path, settings: dict[str, Any]) -> None:
    for level in ("User", "Machine"):  # paths of programs are the machine's settings in a remote window
        folder = home / "data" / level
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(SETTINGS | settings, indent=2))
    (home / "config.yaml").write_text("auth: none\n")


def install(home: Path) -> None:
    process = node(home, "--install-extension", str(VSIX), "--force")
    if process.wait(timeout=60) != 0:
        raise RuntimeError(f"{VSIX} was not installed: see {home / 'log'}")


def node(home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    paths = [f"--config={home / 'config.yaml'}", f"--user-data-dir={home / 'data'}", f"--extensions-dir={home / 'ext'}"]
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            [str(TOOLS / "bin" / "node"), str(ENTRY), *paths, *arguments],
            env=os.environ | {"EXTENSIONS_GALLERY": NO_GALLERY},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us: we end it in order
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_healthy(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"code-server did not answer on port {port}; its exit status is {process.poll()}")


def main(folder: Path) -> None:
    """Open `folder` until Ctrl-C."""
    with (
        tempfile.TemporaryDirectory(prefix="mase-editor-") as home,
        running(Path(home), **{"mase.interpreter": sys.executable}) as server,
    ):
        print(f"VS Code with MASE: {server.url(folder)}\nCtrl-C ends it.", flush=True)
        try:
            server.process.wait()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
