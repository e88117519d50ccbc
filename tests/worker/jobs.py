"""Running the job of a trace child in this process, on small files."""

from __future__ import annotations

import hashlib
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401 - a warm parent does without, this process cannot: no fork has to import it

from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.protocol.snapshot import KINDS, Assembler, Payload, split_payload
from mase_server.tracing.recording.values import Value
from mase_server.worker.job import trace
from mase_server.worker.traced import Traced

HEADER = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


@contextmanager
def undisturbed() -> Any:
    """A job is made for a process of its own: this one forgets what it imported."""
    before = dict(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            if not name.startswith(("torch", "mase_server", "numpy", "transformers")):
                del sys.modules[name]
        sys.modules["__main__"] = before["__main__"]


class Job:
    """One trace of `text` as a file: `payloads` as they were sent, `stages`, and the live models."""

    def __init__(self, folder: Path, text: str, *, fit: bytes | None = None, **options: Any) -> None:
        self.path = folder / "model.py"
        self.text = HEADER + textwrap.dedent(text)
        self.path.write_text(self.text, encoding="utf-8")
        (folder / "scratch").mkdir(exist_ok=True)
        sha256 = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self.request = TraceRequest(
            str(self.path), str(folder), sha256, 3, TraceOptions(**options), fit, scratch=str(folder / "scratch")
        )
        self.events: list[dict[str, Any]] = []
        with undisturbed():
            self.live = trace(self.request, self.events.append)
        self.traced: list[Traced] = list(self.live.traced)

    @property
    def payloads(self) -> list[Payload]:
        return [event["payload"] for event in self.events if event.get("event") == "snapshot"]

    @property
    def payload(self) -> Payload:
        """The last one, as it arrives at the other end."""
        assembler = Assembler()
        (done,) = [done for frame in split_payload(self.payloads[-1]) if (done := assembler.add(frame)) is not None]
        return done

    @property
    def problems(self) -> list[dict[str, Any]]:
        return self.payload["problems"]

    def rows(self) -> list[tuple[int, str, str, Any]]:
        """(line, kind, name, value) of everything shown but expressions, in the order of the file."""
        payload = self.payload
        sites, found = payload["sites"], []
        for site, value in zip(payload["rows"]["site"], payload["rows"]["value"], strict=True):
            kind = sites["kind"][site]
            kind = kind if isinstance(kind, str) else KINDS[kind]
            if kind != "expression":
                found.append((sites["line"][site], kind, sites["name"][site], payload["values"][value]))
        return sorted(found, key=str)

    def value(self, name: str) -> Any:
        """The only value of a name."""
        (value,) = [value for _, _, other, value in self.rows() if other == name]
        return value


__all__ = ["HEADER", "Job", "Value"]
