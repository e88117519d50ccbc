"""The one name of a file: paths from outside are made canonical here, before anybody asks whether they are trusted."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from mase_server.reading import is_file, is_folder


def canonical(path: str | os.PathLike[str]) -> str:
    """The absolute path of what the system opens under `path`, however that is spelled; ValueError for no path at all.

    `.`, `..`, repeated slashes and symbolic links are resolved, a name has the letters that its folder lists, and a
    relative path begins at the present folder. Of what is not there the part that is there counts.

    Trust is asked of this path alone, and this path is run: neither a spelling nor a link makes a file part of a folder
    in which it does not lie. So a link in a trusted folder to a file elsewhere is not trusted: the person is asked
    about the folder in which that file lies. The path of an interpreter is never made canonical: the `python` of a
    virtual environment is a link, by which Python knows the environment.
    """
    try:
        return _as_listed(os.path.realpath(path))
    except ValueError as error:  # a null byte, or half of a surrogate pair, which no file system takes
        raise ValueError(f"{os.fspath(path)[:200]!r} names no file: {error}") from None


def canonical_of_absolute(path: str) -> str:
    """`canonical` of what a program says, which knows no present folder; ValueError for a relative path too.

    A link that leads to nothing, or to a device or a pipe, keeps its own name: why it is not read is told there. Trust
    is asked of where it leads all the same, by `canonical`.
    """
    if not Path(path).is_absolute():
        raise ValueError(f"path is {path[:200]!r}; it has to be absolute")
    found = canonical(path)
    if is_file(found) or is_folder(found) or not os.path.islink(path):  # noqa: PTH114 - not an error
        return found
    folder, name = os.path.split(path)
    return _as_listed(os.path.join(os.path.realpath(folder), name))  # noqa: PTH118


def _as_listed(path: str) -> str:
    """An absolute path with each name as its folder lists it: some file systems ignore case, and forms of Unicode."""
    parent, _, name = path.rpartition("/")
    if not name or os.name == "nt":  # there the system has told the listed names
        return path
    parent = parent and _as_listed(parent)
    swapped = name.swapcase() if name.isascii() else name
    if not (os.path.lexists(f"{parent}/{swapped}") and os.path.lexists(path)):
        return f"{parent}/{name}"
    try:
        with os.scandir(parent or "/") as entries:
            listed = {entry.name for entry in entries}
    except OSError:
        return f"{parent}/{name}"
    alike = (each for each in listed if _folded(each) == _folded(name))
    return f"{parent}/{name if name in listed else next(alike, name)}"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())
