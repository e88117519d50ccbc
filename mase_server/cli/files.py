"""Which files `mase-server check` looks at: those that were named, and in folders those that define models."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mase_server import notebooks
from mase_server.daemon.discovery import discover
from mase_server.paths import canonical
from mase_server.programs import program
from mase_server.reading import exists, is_file, is_folder

#: Folders that hold what others wrote, or what was made.
_NEVER = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages", "build", "dist"})
#: What a repository's own configuration has git start, to know sooner what has changed, or afterwards: nothing of it.
_NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
#: A file that Python cannot parse is told of where it looks like one with models.
_MODELS = re.compile(rb"^\s*(import|from)\s+(torch|transformers|lightning|pytorch_lightning|timm)\b", re.MULTILINE)


@dataclass(slots=True)
class Files:
    """models: the files that define or build an nn.Module.  others: named ones that do not, and need no check."""

    models: list[Path] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)


def found(paths: Iterable[Path]) -> Files:
    """The files of these files and folders, each once, in their order. Only their syntax trees are read."""
    sorted_out, seen = Files(), set[str]()
    for path in paths:
        for file in sorted(_python_files(path)) if is_folder(path) else [path]:
            if (key := canonical(file)) not in seen:
                seen.add(key)
                (sorted_out.models if _has_model(file) else sorted_out.others).append(file)
    return sorted_out


def _has_model(file: Path) -> bool:
    """OSError is left to the trace, which tells it."""
    try:
        source = notebooks.read(str(file))
    except OSError:
        return True
    told = discover(str(file), source)
    return told.has_model or (told.problem is not None and _MODELS.search(source) is not None)


def _python_files(folder: Path) -> Iterator[Path]:
    """The files that git would commit, so .gitignore holds; without git, all outside of hidden and foreign folders."""
    asked = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"]
    try:
        done = program("git", *_NO_PROGRAMS, "-C", folder, *asked).run(capture_output=True)
    except OSError:
        return _walk(folder)
    if done.returncode:
        return _walk(folder)
    named = (folder / os.fsdecode(name) for name in set(done.stdout.split(b"\0")) if name)
    return (file for file in named if is_file(file))


def _walk(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_own(Path(where, name))]
        yield from (Path(where, name) for name in names if name.endswith(".py"))


def _is_own(folder: Path) -> bool:
    return not folder.name.startswith(".") and folder.name not in _NEVER and not exists(folder / "pyvenv.cfg")
