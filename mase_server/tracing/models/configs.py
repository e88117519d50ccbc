"""Configurations that a constructor reads: their entries, at any depth, and values for them.

A value comes from a file, a parser or a dictionary of the workspace that has entries of these names; else from the
usual values of the field.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.models.classes import find_compared_words
from mase_server.tracing.models.names import usual_argument, usual_list
from mase_server.tracing.models.settings import Settings

Path = tuple[str, ...]

#: The deepest nesting of configurations that is followed.
MAX_DEPTH = 4
#: The most entries of one configuration that are looked up one by one: each reads all texts of the workspace.
MAX_LOOKUPS = 16
#: Methods that are called on a configuration; they are no entries.
_METHODS = frozenset(dir(dict)) | {"to_dict", "to_container", "merge_with"}


class LackingError(AttributeError, KeyError):
    """A guessed configuration lacks an entry. path: where the entry would be, the parameter's name first."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"the configuration guessed here has no {path[-1]!r}")
        self.path = path


class AnyConfig(dict[str, Any]):
    """A configuration whose entries can be read as attributes too, at any depth."""

    #: Its place, from the parameter's name on; entries may have any other name.
    _mase_path: Path = ("config",)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name.startswith("__"):
            raise AttributeError(name)
        raise LackingError((*self._mase_path, name))

    def __missing__(self, key: Any) -> Any:
        raise LackingError((*self._mase_path, str(key)))

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> AnyConfig:
        return self.at(self._mase_path)

    def at(self, path: Path | None = None) -> AnyConfig:
        """A copy that knows its place, and so do those inside."""
        path = self._mase_path if path is None else path
        made = AnyConfig({key: _copy_entry(value, (*path, key)) for key, value in self.items()})
        object.__setattr__(made, "_mase_path", path)
        return made


def _copy_entry(value: Any, path: Path) -> Any:
    if isinstance(value, dict):
        return AnyConfig(value).at(path)
    return [_copy_entry(each, path) for each in value] if type(value) is list else value


@dataclass(frozen=True, slots=True)
class Read:
    """An entry that code reads from a configuration, and the default that it names (`get("x", 3)`), if any."""

    path: Path
    default: ast.expr | None = None


def reads_of(name: str, tree: ast.AST) -> list[Read]:
    """Entries that are read from `name` or `self.name`; nested ones by their path."""
    found: dict[Path, Read] = {}
    for node in ast.walk(tree):
        read = _match_read(node, name)
        if read is not None and (read.path not in found or found[read.path].default is None):
            found[read.path] = read
    inner = {path[:depth] for path in found for depth in range(1, len(path))}
    return [read for path, read in found.items() if path not in inner]


def _match_read(node: ast.AST, name: str) -> Read | None:
    match node:
        case ast.Call(
            func=ast.Attribute(value=holder, attr="get" | "pop"), args=[ast.Constant(value=str(key)), *rest]
        ) if (path := _find_entry_path(holder, name)) is not None:
            return Read((*path, key), rest[0] if rest else ast.Constant(None))
        case ast.Call(func=ast.Name(id="getattr"), args=[holder, ast.Constant(value=str(key)), *rest]) if (
            path := _find_entry_path(holder, name)
        ) is not None:
            return Read((*path, key), rest[0] if rest else None)
        case ast.Attribute() | ast.Subscript():
            path = _find_entry_path(node, name)
            return Read(path) if path and isinstance(node.ctx, ast.Load) else None
    return None


def _find_entry_path(node: ast.AST, name: str) -> Path | None:
    """The entries that lead from the configuration to an expression; () for itself, None for any other expression."""
    match node:
        case ast.Name(id=owner) if owner == name:
            return ()
        case ast.Attribute(value=ast.Name(id="self"), attr=owner) if owner == name:
            return ()
        case ast.Attribute(value=holder, attr=key) if key not in _METHODS:
            inner = _find_entry_path(holder, name)
        case ast.Subscript(value=holder, slice=ast.Constant(value=str(key))):
            inner = _find_entry_path(holder, name)
        case _:
            return None
    return None if inner is None or len(inner) >= MAX_DEPTH else (*inner, key)


def make_configuration(name: str, tree: ast.AST, settings: Settings, owner: str = "") -> AnyConfig:
    """A configuration with everything that is read from `name`. owner: the class that it is for."""
    reads = reads_of(name, tree)
    wanted = {key for read in reads for key in read.path}
    known = settings.naming(owner) if owner else {}
    if 2 * len(wanted & known.keys()) <= len(wanted):
        known = settings.closest(wanted)
    plain = {key: value for key, (_, value) in list_entries({name: known}).items()}
    made = AnyConfig(known).at()
    lookups = itertools.count()
    for read in reads:
        value = plain.get(read.path[-1]) if known else None
        if value is None and read.path[-1] in plain and _tells_nothing(read.path[-1], tree):
            _insert_entry(made, read.path, _get_entry(made, read.path))  # which may be None, as the workspace says
        elif (
            _get_entry(made, read.path) is None
            and (value := _find_entry_value(read, tree, settings, lookups) if value is None else value) is not None
        ):
            _insert_entry(made, read.path, value)
    return made.at((name,))


def _tells_nothing(key: str, tree: ast.AST) -> bool:
    """Is neither a text known that the code compares an entry with, nor a value that is usual for its name?"""
    return usual_argument(key) is None and not find_compared_words(tree, key)


def _find_entry_value(read: Read, tree: ast.AST, settings: Settings, lookups: Iterator[int]) -> Any:
    """The value of an entry that a mapping of the workspace has under the same two names, else the usual one."""
    wanted = len(read.path) > 1 and read.default is None and next(lookups) < MAX_LOOKUPS
    known = settings.find_entry(read.path[-2:]) if wanted else None
    return _choose_entry_value(read, tree) if known is None else known


def _choose_entry_value(read: Read, tree: ast.AST) -> Any:
    """A value for an entry: the default that the code names, which may be None, else a text that it compares the entry
    with, else the usual one."""
    if read.default is not None:
        with contextlib.suppress(ValueError):
            return ast.literal_eval(read.default)
    return next(iter(find_compared_words(tree, read.path[-1])), None) or guess_entry_value(read.path[-1])


#: Names of entries that are usually false.
_FLAGS = frozenset({"bias", "causal", "fp16", "bf16", "half", "amp", "debug", "verbose", "distributed"})


def guess_entry_value(key: str) -> Any:
    """The usual value of an entry of this name; 16 by default."""
    lower = key.lower()
    if lower.endswith(("sizes", "dims", "depths", "channels_list", "kernels", "strides")):
        return usual_list(key)
    if lower.startswith(("use_", "is_", "with_", "has_", "no_")) or lower in _FLAGS:
        return False
    return 16 if (usual := usual_argument(key)) is None else usual


def _get_entry(config: Mapping[str, Any], path: Path) -> Any:
    for key in path:
        if not isinstance(config, Mapping) or key not in config:
            return None
        config = config[key]
    return config


def _insert_entry(config: AnyConfig, path: Path, value: Any) -> None:
    for key in path[:-1]:
        inner = config.get(key)
        if not isinstance(inner, AnyConfig):
            inner = config[key] = AnyConfig(inner if isinstance(inner, dict) else {})
        config = inner
    config[path[-1]] = value


# ------------------------------------------------------------------------------------------ entries of any container


def list_entries(arguments: Mapping[str, Any]) -> dict[str, tuple[Path, Any]]:
    """The entries of every configuration among some arguments, by their own names: place and value of each."""
    found: dict[str, tuple[Path, Any]] = {}
    for name, value in arguments.items():
        _collect_entries((name,), value, found)
    return found


def _collect_entries(path: Path, value: Any, found: dict[str, tuple[Path, Any]]) -> None:
    for key, held in _iterate_members(value) if len(path) <= MAX_DEPTH else ():
        if not isinstance(key, str) or key.startswith("_"):
            continue
        found.setdefault(key, ((*path, key), held))
        _collect_entries((*path, key), held, found)


def _iterate_members(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif is_configuration(value):
        yield from vars(value).items()


def is_configuration(value: Any) -> bool:
    """Is this an object that only holds values: a namespace, a dataclass, an instance of some `...Config`?"""
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return False
    named = type(value).__name__.lower().endswith(("config", "args", "arguments", "params", "cfg", "options"))
    return isinstance(value, SimpleNamespace) or dataclasses.is_dataclass(value) or named


def replace_entry(holder: Any, path: Path, value: Any) -> Any:
    """A copy of some arguments, or of a configuration, with another value at a place."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(holder, dict):
        made: Any = holder.at() if isinstance(holder, AnyConfig) else dict(holder)
        made[key] = replace_entry(holder.get(key), rest, value)
        return made
    inner = replace_entry(getattr(holder, key, None), rest, value)
    if dataclasses.is_dataclass(holder) and not isinstance(holder, type):
        try:
            return dataclasses.replace(holder, **{key: inner})
        except RAISED:  # a field that its constructor does not take, or a check of the user's
            pass
    made = copy.copy(holder)
    object.__setattr__(made, key, inner)
    return made
