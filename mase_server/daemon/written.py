"""Files that a request names to be written: by absolute paths, under the endings that are theirs, over nobody else's.

A program that asks has the person's rights, but names come from elsewhere too: from a notebook, a chat, a build.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mase_server.daemon.methods import ApiError
from mase_server.wire import CHECKPOINT

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)


def drawing(text: str) -> Path:
    """The path of a drawing; ApiError for one that is relative, does not end in .svg, or is no file."""
    file = Path(text)
    if not _is_whole(file) or file.suffix.lower() != ".svg":
        raise ApiError("invalid-params", f"file is {text[:200]!r}; it has to be an absolute path that ends in .svg")
    _require_file(file)
    return file


def write_drawing(file: Path, text: str) -> None:
    """Write a drawing, over an older one, and through no link. OSError."""
    with os.fdopen(os.open(file, _NEW, 0o666), "w", encoding="utf-8") as opened:
        opened.write(text)


def checkpoint(text: str, *, new: bool) -> str:
    """The path of a checkpoint, without its endings; ApiError for a relative one.

    new: it is about to be written, so also where a file of this name is somebody else's: weights of a training, say.
    """
    name = Path(text)
    if not _is_whole(name):
        raise ApiError("invalid-params", f"name is {text[:200]!r}; it has to be an absolute path, without ending")
    if new:
        tensors, graph = Path(f"{name}.pt"), Path(f"{name}.mz")
        found = [file for file in (tensors, graph) if _require_file(file)]
        if found and not (graph in found and _is_ours(graph)):
            told = f"{found[0]} was not written by mase-server, and nothing was written"
            raise ApiError("cannot-write", f"{told}; choose another name, or move that file", {"path": str(found[0])})
    return str(name)


def _is_whole(path: Path) -> bool:
    return path.is_absolute() and "\0" not in str(path)


def _is_ours(graph: Path) -> bool:
    try:
        with graph.open("rb") as file:
            return file.read(len(CHECKPOINT)) == CHECKPOINT
    except OSError:
        return False


def _require_file(file: Path) -> bool:
    """Is there a file? ApiError for a link, a folder, a device or a pipe, which would be written to or replaced."""
    try:
        mode = file.lstat().st_mode
    except OSError:
        return False  # what writes tells why it cannot
    if not stat.S_ISREG(mode):
        kind = (
            "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "no file but a device or a pipe"
        )
        raise ApiError("cannot-write", f"cannot write {file}: it is {kind}; choose another name", {"path": str(file)})
    return True
