"""Where in the workspace a module is that the person's own `sys.path` leads to, and ours does not.

A third-party package may have the name of something in the workspace (`ops/triton` in a package that uses Triton), so
a module is looked into before it is taken for the one that an import statement means.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from mase_server.tracing.loading.importer import owns
from mase_server.tracing.loading.lookups import current, unrecorded
from mase_server.tracing.loading.packages import required_for
from mase_server.tracing.loading.source import decode, read_source
from mase_server.tracing.loading.walk import SKIPPED

#: Folders that are looked into.
MAX_FOLDERS = 3000
#: Folders that are looked into again when something appears in them.
MAX_FOLLOWED = 32


class Homes:
    """The folders of a workspace, read once, when the first module is missed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._folders: dict[str, frozenset[str]] | None = None
        self._trees: dict[str, ast.Module | None] = {}
        self._added: set[str] = set()

    def add(self, name: str, wanted_by: str) -> bool:
        """Put the folder from which `name` can be imported at the end of `sys.path`; was there a new one?

        Of several, the one nearest to the file that wants it.
        """
        if self._folders is None:
            with unrecorded():
                self._folders = dict(_folders(self._folder))
        parts = name.split(".")
        if (recording := current()) is not None:
            for home in itertools.islice(self._folders, MAX_FOLLOWED):
                recording.note_modules(home, parts[:1])
        homes = [home for home, inside in self._folders.items() if parts[0] in inside and home not in sys.path]
        homes = [home for home in homes if _holds(home, parts) and self._is_meant(home, parts[0], wanted_by)]
        if not homes:
            return False
        home = max(homes, key=lambda home: (len(os.path.commonpath([home, wanted_by])), -len(home)))
        self._added.add(home)
        sys.path.append(home)
        return True

    def namesakes(self, top: str, wanted_by: str) -> list[str]:
        """The folders of `sys.path` with something else under the name of the module `top` that a file imports.

        Only what Python itself may not have had on its path, such as a folder inside of a package, and folders without
        an `__init__.py` are doubted.
        """
        found: list[str] = []
        while (spec := PathFinder.find_spec(top, [each for each in sys.path if each not in found])) is not None:
            doubtful = [home for home in self._doubtful(spec) if not self._is_meant(home, top, wanted_by)]
            if not doubtful:
                break
            found += doubtful
        return found

    def _doubtful(self, spec: ModuleSpec) -> list[str]:
        """The folders of `sys.path` in which a module was found, where it may be another one of its name."""
        is_plain = not spec.has_location
        places = list(spec.submodule_search_locations or ()) or [str(spec.origin)]
        homes = [str(Path(place).parent) for place in places if owns(self._folder, place)]
        return [home for home in homes if is_plain or home in self._added or os.path.isfile(f"{home}/__init__.py")]  # noqa: PTH113

    def _is_meant(self, home: str, top: str, wanted_by: str) -> bool:
        """Is the module `top` in a folder the one that a file imports, and not a package of the same name?"""
        wanted = _wanted(self._tree(wanted_by), top)
        offered = self._offered(os.path.join(home, top))  # noqa: PTH118
        required = required_for(top, self._folder) is not None
        there = {
            name
            for name in wanted
            if offered is None or name in offered or (not required and _resembles(name, offered))
        }
        # Nobody imports from the inside of a package, unless it is a folder of scripts too.
        if required or os.path.isfile(f"{home}/__init__.py"):  # noqa: PTH113
            return 2 * len(there) > len(wanted) if wanted else not required and Path(wanted_by).is_relative_to(home)
        return bool(there) or not wanted

    def _offered(self, module: str) -> frozenset[str] | None:
        """The names of a module, by its path without `.py`; None where its text does not tell."""
        is_package = Path(module).is_dir()
        with unrecorded():
            inside = [each.name.removesuffix(".py") for each in Path(module).iterdir()] if is_package else []
        file = f"{module}/__init__.py" if is_package else f"{module}.py"
        tree = self._tree(file)
        if tree is None:
            return None if Path(file).is_file() else frozenset(inside)
        names = set(inside)
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(names=[ast.alias(name="*")]) | ast.Call(func=ast.Name(id="globals" | "exec")):
                    return None
                case ast.FunctionDef(name="__getattr__"):
                    return None
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    names |= {each.asname or each.name.partition(".")[0] for each in aliases}
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    names.add(name)
        return frozenset(names)

    def _tree(self, file: str) -> ast.Module | None:
        if file not in self._trees:
            try:
                self._trees[file] = ast.parse(decode(read_source(file)))
            except (OSError, SyntaxError, ValueError):
                self._trees[file] = None
        return self._trees[file]


def _wanted(tree: ast.Module | None, top: str) -> set[str]:
    """The names that a file asks a module for, submodules among them."""
    found, bound = set[str](), {top}
    nodes = list(ast.walk(tree)) if tree is not None else []
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(name), names=aliases, level=0) if name == top:
                found |= {each.name for each in aliases}
            case ast.ImportFrom(module=str(name), level=0) if name.startswith(f"{top}."):
                found.add(name.split(".")[1])
            case ast.Import(names=aliases):
                found |= {each.name.split(".")[1] for each in aliases if each.name.startswith(f"{top}.")}
                bound |= {each.asname for each in aliases if each.name == top and each.asname}
    imported = any(
        isinstance(node, ast.Import) and any(_is_of(each.name, top) for each in node.names) for node in nodes
    )
    for node in nodes if imported else ():
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in bound:
                found.add(attribute)
    return found - {"*"}


def _is_of(name: str, top: str) -> bool:
    return f"{name}.".startswith(f"{top}.")


def _resembles(name: str, offered: frozenset[str]) -> bool:
    """Is it likely to be a slip of the pen?"""
    return bool(difflib.get_close_matches(name, offered, n=1, cutoff=0.8))


def _folders(top: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The workspace's folders with the names of what may be a module in each, what stands highest first.

    Hidden and installed ones are passed over.
    """
    waiting = [top]
    for _ in range(MAX_FOLDERS):
        if not waiting:
            return
        here = waiting.pop(0)
        try:
            with os.scandir(here) as entries:
                found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        inner = sorted(name for name, folder in found.items() if folder)
        yield here, frozenset([*inner, *(name[:-3] for name in found if name.endswith(".py"))])
        waiting += [str(Path(here, name)) for name in inner if name not in SKIPPED and not name.startswith(".")]


def _holds(home: str, parts: list[str]) -> bool:
    """Is the whole dotted path there, as folders and a last folder or file?"""
    last = os.path.join(home, *parts)  # noqa: PTH118 - thousands of them
    return os.path.isfile(f"{last}.py") or _is_package(last)  # noqa: PTH113


def _is_package(path: str) -> bool:
    if os.path.isfile(f"{path}/__init__.py"):  # noqa: PTH113
        return True
    # A namespace package: a folder with code in it.
    try:
        with os.scandir(path) as entries:
            return any(entry.name.endswith(".py") for entry in entries)
    except OSError:
        return False
