"""Values of a graph as plain data and back: a table of tags, one row for each type.

None, bools, floats, texts, bytes and 64-bit integers stand for themselves; everything else is `[tag, payload]`. Reading
checks every payload and makes nothing that is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.allowed import Allowed, qualified
from mase_server.ir.entry import TensorEntry
from mase_server.ir.errors import CheckpointError
from mase_server.ops.types import TensorType
from mase_server.tracing.rebuild import Rebuild, _Object, _Slot
from mase_server.tracing.scope import Scope
from mase_server.tracing.values import DictOf, Python, TupleOf

MAX_DEPTH = 60
_INT64 = range(-(1 << 63), 1 << 63)
_ATOMS = (type(None), bool, float, str, bytes)
#: Descriptions, written as their fields. Their fields hold texts and tuples of the same.
_RECORDS: dict[str, Any] = {kind.__name__: kind for kind in (TensorType, TupleOf, DictOf, Python)}
_LAYOUTS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
_FORMATS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.memory_format)}
_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class Unwritable(TypeError):
    """A value for which the table has no row."""


class Tables:
    """The things that values refer to by index: tensors, modules and nodes, each once."""

    def __init__(self, allowed: Allowed) -> None:
        self.allowed = allowed
        self.tensors: list[Any] = []
        self.modules: list[Any] = []
        self.nodes: list[Any] = []
        self._indices: dict[int, int] = {}

    def index(self, table: list[Any], value: Any) -> int:
        """The place of an object in a table, where it is put when first met."""
        found = self._indices.get(id(value))
        if found is None:
            found = self._indices[id(value)] = len(table)
            table.append(value)
        return found

    def known(self, table: list[Any], value: Any) -> int:
        """The place of an object that is in a table already; Unwritable for any other."""
        found = self._indices.get(id(value))
        if found is None or found >= len(table) or table[found] is not value:
            raise Unwritable(f"{value!r:.80}, which is no earlier node of the graph")
        return found


class Writer(Tables):
    """Values to plain data."""

    def write(self, value: Any, depth: int = 0) -> Any:
        """`value` as plain data; Unwritable for what no row is for."""
        if isinstance(value, _ATOMS) and type(value) in _ATOMS:
            return value
        if type(value) is int:
            return value if value in _INT64 else ["int", str(value)]
        if depth > MAX_DEPTH:
            raise Unwritable(f"nested deeper than {MAX_DEPTH}")
        for tag, kind, write, _ in _ROWS:
            if type(value) is kind or (kind in _BASES and isinstance(value, kind)):
                return [tag, write(self, value, depth + 1)]
        return self._named(value, depth)

    def _named(self, value: Any, depth: int) -> Any:
        if isinstance(value, type):
            name = self.allowed.name_of(value)
            return ["function", name] if name else ["class", qualified(value)]
        name = type(value).__name__
        if _RECORDS.get(name) is type(value):
            fields = [
                self.write(getattr(value, field), depth + 1) for field in getattr(type(value), "__match_args__", ())
            ]
            return ["record", [name, *fields]]
        if callable(value) and (name := self.allowed.name_of(value)):
            return ["function", name]
        raise Unwritable(f"a {qualified(type(value))}: {value!r:.80}")


class Reader(Tables):
    """Plain data to values."""

    def read(self, data: Any, depth: int = 0) -> Any:
        """The value of plain data; CheckpointError for what no row reads."""
        if isinstance(data, _ATOMS) or type(data) is int:
            return data
        if depth > MAX_DEPTH:
            raise CheckpointError(f"values in it are nested deeper than {MAX_DEPTH}")
        match data:
            case [str(tag), payload] if tag in _READERS:
                try:
                    return _READERS[tag](self, payload, depth + 1)
                except (TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
                    if isinstance(error, CheckpointError):
                        raise
                    raise CheckpointError(f"a {tag} in it cannot be read: {payload!r:.80} ({error})") from None
        raise CheckpointError(f"a value in it is not understood: {data!r:.80}")

    def item(self, table: list[Any], index: Any) -> Any:
        """The object at an index of a table."""
        if type(index) is not int or not 0 <= index < len(table):
            raise CheckpointError(f"it refers to number {index!r:.40} of {len(table)}")
        return table[index]

    def items(self, payload: Any, depth: int) -> list[Any]:
        """A list's items."""
        if not isinstance(payload, list):
            raise CheckpointError(f"a list is expected, found {payload!r:.80}")
        return [self.read(item, depth) for item in payload]

    def pairs(self, payload: Any, depth: int) -> dict[Any, Any]:
        """A dict's items, written as [key, value, key, value, ...]."""
        values = self.items(payload, depth)
        return dict(zip(values[::2], values[1::2], strict=True))


def _write_items(writer: Writer, value: Any, depth: int) -> list[Any]:
    return [writer.write(item, depth) for item in value]


def _write_pairs(writer: Writer, value: Mapping[Any, Any], depth: int) -> list[Any]:
    return [writer.write(part, depth) for item in value.items() for part in item]


def _write_object(writer: Writer, value: _Object, depth: int) -> Any:
    """Only the type of the original, and its attributes that hold no tensors, are kept."""
    original = value.original
    data = getattr(original, "__dict__", {}) if value.attributes or not value.parts else {}
    attributes = {key: item for key, item in data.items() if key not in value.attributes}
    attributes |= value.attributes
    return [
        qualified(type(original)), _write_pairs(writer, value.parts, depth), _write_pairs(writer, attributes, depth),
    ]  # fmt: skip


_PLAIN = {qualified(kind): kind for kind in (list, tuple, dict)}


def _read_object(reader: Reader, payload: Any, depth: int) -> _Object:
    name, parts, attributes = payload
    kind = _PLAIN.get(name) or reader.allowed.result_class(name)
    if issubclass(kind, tuple):
        make: Callable[..., Any] = kind.__new__
        shell: Any = make(kind, *([None] * len(getattr(kind, "_fields", ()))))
    else:
        shell = kind.__new__(kind)
    return _Object(shell, reader.pairs(parts, depth), reader.pairs(attributes, depth))


def _read_record(reader: Reader, payload: Any, depth: int) -> Any:
    name, *fields = payload
    return _RECORDS[name](*(reader.read(field, depth) for field in fields))


def _write_scope(writer: Writer, value: Scope, depth: int) -> Any:
    kind = value.module_type
    return [value.module_path, qualified(kind) if isinstance(kind, type) else kind]


def _read_scope(reader: Reader, payload: Any, depth: int) -> Scope:
    path, kind = payload
    if not isinstance(path, str):
        raise TypeError("a path is a text")
    return Scope(path, None if kind is None else reader.allowed.label(kind))


def _read_tensor(reader: Reader, payload: Any, depth: int) -> Any:
    return reader.item(reader.tensors, payload)


Write = Callable[[Writer, Any, int], Any]
Read = Callable[[Reader, Any, int], Any]

#: Rows whose subclasses are meant too.
_BASES = (torch.Tensor, nn.Module, fx.Node)
_ROWS: tuple[tuple[str, type, Write, Read], ...] = (
    ("node", fx.Node, lambda w, v, d: w.known(w.nodes, v), lambda r, p, d: r.item(r.nodes, p)),
    ("tensor", torch.Tensor, lambda w, v, d: w.index(w.tensors, v), _read_tensor),
    ("module", nn.Module, lambda w, v, d: w.index(w.modules, v), lambda r, p, d: r.item(r.modules, p)),
    ("list", list, _write_items, lambda r, p, d: r.items(p, d)),
    ("tuple", tuple, _write_items, lambda r, p, d: tuple(r.items(p, d))),
    ("immutable_list", fx.immutable_collections.immutable_list, _write_items, lambda r, p, d: r.items(p, d)),
    ("set", set, _write_items, lambda r, p, d: set(r.items(p, d))),
    ("frozenset", frozenset, _write_items, lambda r, p, d: frozenset(r.items(p, d))),
    ("entry", TensorEntry, _write_pairs, lambda r, p, d: TensorEntry(r.pairs(p, d))),
    ("dict", dict, _write_pairs, lambda r, p, d: r.pairs(p, d)),
    ("immutable_dict", fx.immutable_collections.immutable_dict, _write_pairs, lambda r, p, d: r.pairs(p, d)),
    ("size", torch.Size, _write_items, lambda r, p, d: torch.Size(r.items(p, d))),
    ("slice", slice, lambda w, v, d: _write_items(w, (v.start, v.stop, v.step), d),
     lambda r, p, d: slice(*r.items(p, d))),
    ("range", range, lambda w, v, d: [v.start, v.stop, v.step], lambda r, p, d: range(*r.items(p, d))),
    ("complex", complex, lambda w, v, d: [v.real, v.imag], lambda r, p, d: complex(*p)),
    ("ellipsis", type(Ellipsis), lambda w, v, d: None, lambda r, p, d: Ellipsis),
    ("dtype", torch.dtype, lambda w, v, d: str(v), lambda r, p, d: _DTYPES[p]),
    ("layout", torch.layout, lambda w, v, d: str(v), lambda r, p, d: _LAYOUTS[p]),
    ("format", torch.memory_format, lambda w, v, d: str(v), lambda r, p, d: _FORMATS[p]),
    ("device", torch.device, lambda w, v, d: str(v), lambda r, p, d: torch.device(str(p))),
    ("scope", Scope, _write_scope, _read_scope),
    ("slot", _Slot, lambda w, v, d: v.index, lambda r, p, d: _Slot(int(p))),
    ("object", _Object, _write_object, _read_object),
    ("rebuild", Rebuild, lambda w, v, d: w.write(v.plan, d), lambda r, p, d: Rebuild(r.read(p, d), ())),
)  # fmt: skip
_READERS: dict[str, Read] = {tag: read for tag, _, _, read in _ROWS} | {
    "int": lambda r, p, d: int(str(p)[:1000]),
    "function": lambda r, p, d: r.allowed.function(p),
    "class": lambda r, p, d: r.allowed.label(p),
    "record": _read_record,
}
