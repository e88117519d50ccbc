"""Paths of a model's parts: their keys joined by dots."""

from __future__ import annotations

import functools
import keyword
import re
import unicodedata
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import torch
from torch import fx, nn

from mase_server.visible import reveal

_TABLES = ("_parameters", "_buffers", "_modules")

#: A number of an object that no other has while it lives. Python tells an audit hook of each `id`, which takes a trace
#: six times as long.
identity = object.__hash__


def named_modules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, under its first path, in torch's order; the root is ""."""
    return _walk_modules(root, once=True)


def named_tensors(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter, then every buffer, in torch's order; a shared one appears under each of its paths."""
    yield from named_parameters(root)
    yield from _named_parts(root, "_buffers")


def named_parameters(root: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter, in torch's order; a shared one appears under each of its paths."""
    yield from _named_parts(root, "_parameters")


def paths_by_identity(root: nn.Module) -> tuple[dict[int, str], dict[int, str]]:
    """id -> first path, of every module and of every parameter and buffer; a parameter's before a buffer's."""
    modules: dict[int, str] = {}
    parameters: dict[int, str] = {}
    buffers: dict[int, str] = {}
    for path, module in _walk_modules(root, once=False):
        modules.setdefault(identity(module), path)
        for found, table in ((parameters, "_parameters"), (buffers, "_buffers")):
            for name, value in _parts_of_table(module, table):
                if value is not None:
                    found.setdefault(identity(value), _join_path(path, name))
    return modules, buffers | parameters


def attribute(root: nn.Module, path: str) -> Any:
    """The module, parameter, buffer or plain attribute at a path; the root at ""."""
    value: Any = root
    for name in path.split(".") if path else ():
        value = _find_part(value, name) if isinstance(value, nn.Module) else getattr(value, name)
    return value


def plain_attribute_path(path: str, module: nn.Module, name: str) -> str | None:
    """The path of an ordinary attribute of the module at `path`; None if that path means something else."""
    is_hidden = not _is_clear(name) or any(name in vars(module)[table] for table in _TABLES)
    return None if is_hidden else _join_path(path, name)


def writable_path(root: nn.Module, path: str) -> str:
    """The path under which a GraphModule keeps the part at `path` so that its code can read it.

    `attribute` finds the part under this path too.
    """
    names: list[str] = []
    value: Any = root
    for name in path.split(".") if path else ():
        known = reserved_names(fx.GraphModule if not names else nn.Module)
        is_key = isinstance(value, nn.Module) and any(name in vars(value)[table] for table in _TABLES)
        if is_key and not _is_plain(name, known):
            table = next(table for table in _TABLES if name in vars(value)[table])
            names.append(_other_names(value)[table, name])
        else:
            names.append(name)
        value = _find_part(value, name) if isinstance(value, nn.Module) else getattr(value, name)
    return ".".join(names)


@functools.lru_cache(maxsize=100_000)
def is_writable(name: str) -> bool:
    """Does the code that torch.fx writes for a name in a path read the part of that name, and nothing else?"""
    if name.isidentifier():  # written as an attribute, which Python normalises
        return not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name
    return name.isprintable() and not set(name) & {'"', "\\"}  # written between double quotes


@functools.cache
def reserved_names(kind: type[nn.Module]) -> frozenset[str]:
    """The names of a module's own attributes, which hide parts of the same names."""
    return frozenset(dir(fx.GraphModule(nn.Module(), fx.Graph()) if kind is fx.GraphModule else kind()))


def _named_parts(root: nn.Module, table: str) -> Iterator[tuple[str, Any]]:
    for path, module in _walk_modules(root, once=False):
        for name, value in _parts_of_table(module, table):
            if value is not None:
                yield _join_path(path, name), value


def _walk_modules(root: nn.Module, once: bool) -> Iterator[tuple[str, nn.Module]]:
    """Yield modules before their parts, without recursion: they may be nested deeper than Python's stack.

    once: yield a shared module only under its first path. A module that contains itself is not entered again.
    """
    left_out: set[int] = set()
    todo: list[tuple[str | None, nn.Module]] = [("", root)]
    while todo:
        path, module = todo.pop()
        if path is None:  # all below it has been walked
            left_out.difference_update(() if once else (identity(module),))
        elif identity(module) not in left_out:
            yield path, module
            if once or vars(module)["_modules"]:
                left_out.add(identity(module))
            if vars(module)["_modules"]:
                todo.append((None, module))
            parts = [
                (_join_path(path, name), part) for name, part in _parts_of_table(module, "_modules") if part is not None
            ]
            todo.extend(reversed(parts))


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _parts_of_table(module: nn.Module, table: str) -> Iterator[tuple[str, Any]]:
    """The entries of a module's table, by the names that they have in paths."""
    if not (entries := vars(module)[table]):
        return
    earlier = [vars(module)[other] for other in _TABLES[: _TABLES.index(table)]]
    others: dict[tuple[str, Any], str] = {}
    for key, value in entries.items():
        if not _is_clear(key) or any(key in other for other in earlier):
            others = others or _other_names(module)
            yield others[table, key], value
        else:
            yield key, value


@functools.lru_cache(maxsize=100_000)
def _is_clear(key: Any) -> bool:
    """Can a key be part of a path unchanged?"""
    is_name = isinstance(key, str) and key.isprintable() and reveal(key) == key
    return is_name and key != "" and "." not in key and not key.startswith("__")


def _is_plain(name: str, reserved: AbstractSet[str]) -> bool:
    """Can a name from a path be used unchanged in a GraphModule and its code?"""
    return name not in reserved and is_writable(name)


def _find_part(module: nn.Module, name: str) -> Any:
    """The part that a name in a path means; AttributeError if there is none."""
    for table in _TABLES:
        if name in vars(module)[table]:
            return vars(module)[table][name]
    if name not in vars(module):
        for (table, key), other in _other_names(module).items():
            if other == name:
                return vars(module)[table][key]
    return getattr(module, name)


def _other_names(module: nn.Module) -> dict[tuple[str, Any], str]:
    """Substitute names, by table and key, for the keys that cannot be used unchanged in every path or in code."""
    taken = set(vars(module)).union(*(vars(module)[table] for table in _TABLES))
    reserved, seen, found = reserved_names(fx.GraphModule), set(), {}
    for table in _TABLES:
        for key in vars(module)[table]:
            if key in seen or not _is_clear(key) or not _is_plain(key, reserved):
                name = re.sub(r"\W", "_", str(key), flags=re.ASCII).strip("_") or "part"
                while name in taken or not _is_plain(name, reserved):
                    name += "_"
                found[table, key] = name
                taken.add(name)
            seen.add(key)
    return found
