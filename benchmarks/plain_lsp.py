"""Anybody's language server, spoken to in plain JSON: what it answers is taken as it comes, held to no schema."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

#: What we can show, so that a server sends it.
CAPABILITIES = {
    "textDocument": {
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "publishDiagnostics": {},
        "inlayHint": {},
        "synchronization": {"didSave": True},
    },
    "workspace": {"configuration": True, "workspaceFolders": True},
}


class Server:
    """A server of one folder. `with Server(command, folder) as server:` starts it and ends it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self._number = 0
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder
        )

    def __enter__(self) -> Self:
        folder = {"uri": self.folder.as_uri(), "name": self.folder.name}
        told = {"processId": None, "rootUri": folder["uri"], "workspaceFolders": [folder], "capabilities": CAPABILITIES}
        self.ask("initialize", told)
        self._send({"method": "initialized", "params": {}})
        return self

    def open(self, path: Path) -> None:
        """Open a file."""
        document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text("utf-8")}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def __exit__(self, *error: object) -> None:
        if not any(error):
            self.ask("shutdown", None)
            self._send({"method": "exit"})
        else:
            self._process.kill()
        self._process.communicate(timeout=20)

    def ask(self, method: str, params: Any) -> Any:
        """A request's result; None where it was refused."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while (message := self._receive()).get("id") != self._number or "method" in message:
            self._answer(message)
        return message.get("result")

    def published(self, path: Path) -> list[Any]:
        """Wait for diagnostics of a file."""
        while True:
            message = self._receive()
            params = message.get("params") or {}
            if message.get("method") == "textDocument/publishDiagnostics" and params["uri"] == path.as_uri():
                return list(params["diagnostics"])
            self._answer(message)

    def change(self, path: Path, text: str) -> None:
        """Another text of a file, typed."""
        self._number += 1
        document = {"uri": path.as_uri(), "version": self._number}
        params = {"textDocument": document, "contentChanges": [{"text": text}]}
        self._send({"method": "textDocument/didChange", "params": params})

    def save(self, path: Path, text: str) -> None:
        """Type another text, write the file, and say that it was saved."""
        self.change(path, text)
        path.write_text(text, encoding="utf-8")
        self._send({"method": "textDocument/didSave", "params": {"textDocument": {"uri": path.as_uri()}}})

    def hover(self, path: Path, line: int, column: int) -> str:
        """What a person reads at a position, both from 0; "" where nothing is shown."""
        position = {"line": line, "character": column}
        found = self.ask("textDocument/hover", {"textDocument": {"uri": path.as_uri()}, "position": position})
        contents = found["contents"] if found else ""
        parts = contents if isinstance(contents, list) else [contents]
        return "\n".join(part if isinstance(part, str) else part["value"] for part in parts)

    def _answer(self, message: dict[str, Any]) -> None:
        """A server that asks for settings gets none; whatever else it asks is granted."""
        if "method" in message and "id" in message:
            settings = message["method"] == "workspace/configuration"
            result = [None] * len(message["params"]["items"]) if settings else None
            self._send({"id": message["id"], "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while (header := stream.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        if not length:
            raise EOFError(f"{self._process.args} ended")
        return dict(json.loads(stream.read(length)))
