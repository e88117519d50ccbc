"""What workers print: drained as fast as it comes, and only the end of it kept."""

from __future__ import annotations

import asyncio
import os
from collections import deque

_KEEP = 64 << 10
_READ = 64 << 10
#: Reads at most before what came is told: the writer may go on for ever.
_AT_ONCE = 16


class OutputLog:
    """The last 64 KiB that came out of one pipe. Reading never stops, so that a flood cannot block its writer."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.total = 0
        asyncio.get_running_loop().add_reader(self._read_fd, self._drain)

    @property
    def write_fd(self) -> int:
        """The end that a worker inherits; close it with `handed_over` once the worker has it."""
        return self._write_fd

    def handed_over(self) -> None:
        """Close the server's copy of the writing end, so that the end of the stream can be seen."""
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1

    def _drain(self) -> bool:
        """Take what has come; was there anything?"""
        try:
            data = os.read(self._read_fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self.total += len(data)
        self._size += len(data)
        self._chunks.append(data)
        while self._size - len(self._chunks[0]) >= _KEEP:
            self._size -= len(self._chunks.popleft())
        return True

    def text(self, limit: int = 4000) -> str:
        """The last `limit` bytes as text, with what came a moment ago: a worker's end is heard on its wire first."""
        for _ in range(_AT_ONCE):
            if self._read_fd < 0 or not self._drain():
                break
        return b"".join(self._chunks)[-limit:].decode("utf-8", "replace")

    def close(self) -> None:
        """Stop reading; what was kept can still be read."""
        if self._read_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1
        self.handed_over()
