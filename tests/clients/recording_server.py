"""`mase-server` that keeps what its editor said of itself: `initialize`'s parameters go to a file, then it serves.

Run as `recording_server.py FILE ARGUMENTS...`; the arguments are those of `mase-server`.
"""

import json
import os
import sys
import threading
from pathlib import Path


def message(stream) -> tuple[bytes, dict]:
    """The first message of a stream: as it came, and what it says."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += stream.read(1)
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    body = stream.read(int(length.partition(b":")[2]))
    return head + body, json.loads(body)


def serve_what_was_read(first: bytes) -> None:
    """Put `first` in front of what is still to come on standard input."""
    outer, (inner, feed) = os.dup(0), os.pipe()
    os.dup2(inner, 0)
    os.close(inner)
    threading.Thread(target=_copy, args=(first, outer, feed), daemon=True).start()


def _copy(data: bytes, source: int, sink: int) -> None:
    while data:
        os.write(sink, data)
        data = os.read(source, 1 << 16)
    os.close(sink)


if __name__ == "__main__":
    record, sys.argv = Path(sys.argv[1]), ["mase-server", *sys.argv[2:]]
    if sys.argv[1:2] == ["lsp"]:
        raw, said = message(open(0, "rb", buffering=0, closefd=False))  # noqa: SIM115 - the server's own input
        record.write_text(json.dumps(said["params"]))
        serve_what_was_read(raw)
    from mase_server.cli.main import main

    main()
