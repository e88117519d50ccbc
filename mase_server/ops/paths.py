"""Paths of a model's parts: their keys joined by dots.

torch takes any key in a module's tables, and fx writes paths into Python code. A key that would make a path mean
another part, or the code mean something else, stands in paths under another name: "a.b" as a_b, "class" as class_.
"""

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


def named_modules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, under its first path, in torch's order; the root is ""."""
    return _walk(root, once=True)


def named_tensors(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter, then every buffer, in torch's order; one that is shared under each of its paths."""
    yield from named_parameters(root)
    yield from _named(root, "_buffers")


def named_parameters(root: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Every parameter, in torch's order; one that is shared under each of its paths."""
    yield from _named(root, "_parameters")


def attribute(root: nn.Module, path: str) -> Any:
    """The module, parameter, buffer or plain attribute at a path; the root at ""."""
    value: Any = root
    for name in path.split(".") if path else ():
        value = _part(value, name) if isinstance(value, nn.Module) else getattr(value, name)
    return value


def plain_attribute_path(path: str, module: nn.Module, name: str) -> str | None:
    """The path of an ordinary attribute of the module at `path`; None where that path means something else."""
    is_hidden = not _is_clear(name) or any(name in vars(module)[table] for table in _TABLES)
    return None if is_hidden else _join(path, name)


def writable_path(root: nn.Module, path: str) -> str:
    """The path under which a GraphModule keeps the part at `path`, so that code reads it there; `attribute` finds it
    under this one too."""
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
        value = _part(value, name) if isinstance(value, nn.Module) else getattr(value, name)
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


def _named(root: nn.Module, table: str) -> Iterator[tuple[str, Any]]:
    for path, module in _walk(root, once=False):
        for name, value in _parts(module, table):
            if value is not None:
                yield _join(path, name), value


def _walk(root: nn.Module, once: bool) -> Iterator[tuple[str, nn.Module]]:
    """Modules before their parts, without recursion: they may be nested deeper than Python's stack.

    once: modules that are shared only under their first path. A module that holds itself is not gone into again.
    """
    left_out: set[int] = set()
    todo: list[tuple[str | None, nn.Module]] = [("", root)]
    while todo:
        path, module = todo.pop()
        if path is None:  # all below it has been walked
            left_out.difference_update(() if once else (id(module),))
        elif id(module) not in left_out:
            yield path, module
            left_out.add(id(module))
            todo.append((None, module))
            parts = [(_join(path, name), part) for name, part in _parts(module, "_modules") if part is not None]
            todo.extend(reversed(parts))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _parts(module: nn.Module, table: str) -> Iterator[tuple[str, Any]]:
    """A table of a module, by the names that its parts have in paths."""
    earlier = [vars(module)[other] for other in _TABLES[: _TABLES.index(table)]]
    others: dict[tuple[str, Any], str] = {}
    for key, value in vars(module)[table].items():
        if not _is_clear(key) or any(key in other for other in earlier):
            others = others or _other_names(module)
            yield others[table, key], value
        else:
            yield key, value


def _is_clear(key: Any) -> bool:
    """Can a key stand in a path as it is?"""
    is_name = isinstance(key, str) and key.isprintable() and reveal(key) == key
    return is_name and key != "" and "." not in key and not key.startswith("__")


def _is_plain(name: str, reserved: AbstractSet[str]) -> bool:
    """Can a name of a path stand in a GraphModule and its code as it is?"""
    return name not in reserved and is_writable(name)


def _part(module: nn.Module, name: str) -> Any:
    """What a name in a path means; AttributeError where it means nothing."""
    for table in _TABLES:
        if name in vars(module)[table]:
            return vars(module)[table][name]
    if name not in vars(module):
        for (table, key), other in _other_names(module).items():
            if other == name:
                return vars(module)[table][key]
    return getattr(module, name)


def _other_names(module: nn.Module) -> dict[tuple[str, Any], str]:
    """By table and key: the names of those keys that cannot stand in every path or in code as they are."""
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
