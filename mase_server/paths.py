"""Canonical paths: paths from outside get their one name here, before their trust is looked up."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from mase_server.reading import is_file, is_folder

_PACKAGES = frozenset({"site-packages", "dist-packages"})


def canonical_path(path: str | os.PathLike[str]) -> str:
    """The absolute path that the system opens for `path`, however it is written; ValueError if it can be no path.

    `.`, `..`, repeated slashes and symbolic links are resolved, names are spelled as their folder lists them, and a
    relative path begins at the current folder. If a path is missing, its existing part is resolved.

    Trust is looked up for this path, and this path is run: neither its spelling nor a link makes a file part of a
    folder that does not contain it. So a link in a trusted folder to a file elsewhere is not trusted: the user is asked
    about that file's own folder. The path of an interpreter is never made canonical: the `python` of a virtual
    environment is a link, from which Python finds the environment.
    """
    try:
        return _as_listed(os.path.realpath(path))
    except ValueError as error:  # a null byte, or half a surrogate pair, which no file system allows
        raise ValueError(f"{os.fspath(path)[:200]!r} names no file: {error}") from None


def canonical_of_absolute(path: str) -> str:
    """`canonical_path` for a path from a program, which has no current folder; ValueError also for a relative one.

    A broken link, or one to a device or a pipe, keeps its own name: reading it gives the error. Trust is looked up by
    `canonical_path`, i.e. for its target, all the same.
    """
    if not Path(path).is_absolute():
        raise ValueError(f"path is {path[:200]!r}; it has to be absolute")
    found = canonical_path(path)
    if is_file(found) or is_folder(found) or not os.path.islink(path):  # noqa: PTH114 - not an error
        return found
    folder, name = os.path.split(path)
    return _as_listed(os.path.join(os.path.realpath(folder), name))  # noqa: PTH118


def _as_listed(path: str) -> str:
    """An absolute path with each name as its folder lists it: some file systems ignore case and Unicode forms."""
    parent, _, name = path.rpartition("/")
    if not name or os.name == "nt":  # Windows returns the listed names already
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
    alike = (each for each in listed if _fold_name(each) == _fold_name(name))
    return f"{parent}/{name if name in listed else next(alike, name)}"


def _fold_name(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def is_library(path: str | os.PathLike[str]) -> bool:
    """Does a file belong to an installed package, so that it is never traced on its own?"""
    return not _PACKAGES.isdisjoint(Path(path).parts)


def find_data_folder(in_checkout: str, installed: str, contains: str) -> Path:
    """The folder of files that are no Python, which contains `contains`. FileNotFoundError if it is missing.

    in_checkout: its path beside the package.  installed: its name in `share/mase-server` of the environment, which is
    four levels above `lib/python3.x/site-packages/mase_server`.
    """
    here = Path(__file__).resolve()
    places = (
        here.parents[1] / in_checkout,
        here.parents[min(4, len(here.parents) - 1)] / "share/mase-server" / installed,
    )
    for place in places:
        if (place / contains).exists():
            return place
    raise FileNotFoundError(f"{places[0]} is no folder with {contains}, and {places[1]} neither")
