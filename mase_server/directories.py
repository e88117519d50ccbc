"""Where the server keeps things between runs, by the system's conventions."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

_NAME = "mase-server"


def cache_dir() -> Path:
    """What can be made again: learned preloads, rewritten bytecode."""
    return _own(platformdirs.user_cache_dir, "cache")


def state_dir() -> Path:
    """What the person said: trust."""
    return _own(platformdirs.user_state_dir, "state")


def _own(usual: Callable[..., str], kind: str) -> Path:
    """A user without a home, as some containers have, gets a fresh folder: one that others can name is nobody's own."""
    with contextlib.suppress(RuntimeError):  # older versions of the library give a relative path instead
        if (path := Path(usual(_NAME, appauthor=False))).is_absolute():
            return path
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-{kind}-"))


def why(error: OSError) -> str:
    """What an error says, for a person: with the file that it is about, where it knows one."""
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said


def write_whole(path: Path, text: str) -> None:
    """Write a file of mode 0600, whole or not at all, in place of what is there; OSError names it and says why not."""
    name = ""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError as error:
        if name:
            with contextlib.suppress(OSError):
                Path(name).unlink()
        raise OSError(error.errno, f"{path} cannot be written: {error.strerror}") from error
