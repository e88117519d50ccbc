"""Values of a graph, and leaf modules, as plain data and back: a table of tags, one row for each type.

None, bools, floats, texts, bytes and 64-bit integers represent themselves; everything else is `[tag, payload]`.
Reading checks every payload and makes nothing that is not in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import torch
from torch import fx, nn
from torch.nn.utils import parametrize

from mase_server.ir.allowed import Allowed, CheckpointError, dotted_name
from mase_server.ir.recording import TensorEntry
from mase_server.ops.types import TensorType
from mase_server.tracing.recording.calls import Scope
from mase_server.tracing.recording.values import DictOf, Python, Rebuild, TupleOf, _Object, _Slot

MAX_DEPTH = 60
_INT64 = range(-(1 << 63), 1 << 63)
_ATOMS = (type(None), bool, float, str, bytes)
#: Description classes, written as their fields, which hold texts and tuples of the same.
_RECORDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in (TensorType, TupleOf, DictOf, Python)}
_LAYOUTS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
_FORMATS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.memory_format)}
_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class Unwritable(TypeError):
    """A value for which the table has no row."""


class Tables:
    """The objects that values refer to by index: tensors, modules and nodes, each once."""

    def __init__(self, allowed: Allowed) -> None:
        self.allowed = allowed
        self.tensors: list[Any] = []
        self.modules: list[Any] = []
        self.nodes: list[Any] = []
        self._indices: dict[int, int] = {}

    def index(self, table: list[Any], value: Any) -> int:
        """The index of an object in a table; the object is added when first met."""
        found = self._indices.get(id(value))
        if found is None:
            found = self._indices[id(value)] = len(table)
            table.append(value)
        return found

    def known(self, table: list[Any], value: Any) -> int:
        """The index of an object that is already in a table; Unwritable for any other."""
        found = self._indices.get(id(value))
        if found is None or found >= len(table) or table[found] is not value:
            raise Unwritable(f"{value!r:.80}, which is no earlier node of the graph")
        return found


class Writer(Tables):
    """Writes values as plain data."""

    def write(self, value: Any, depth: int = 0) -> Any:
        """`value` as plain data; Unwritable if no row fits it."""
        if isinstance(value, _ATOMS) and type(value) in _ATOMS:
            return value
        if type(value) is int:
            return value if value in _INT64 else ["int", str(value)]
        if depth > MAX_DEPTH:
            raise Unwritable(f"nested deeper than {MAX_DEPTH}")
        for tag, kind, write, _ in _ROWS:
            if type(value) is kind or (kind in _BASES and isinstance(value, kind)):
                return [tag, write(self, value, depth + 1)]
        return self._write_named(value, depth)

    def _write_named(self, value: Any, depth: int) -> Any:
        if isinstance(value, type):
            name = self.allowed.name_of(value)
            return ["function", name] if name else ["class", dotted_name(value)]
        name = type(value).__name__
        if _RECORDS.get(name) is type(value):
            fields = [
                self.write(getattr(value, field), depth + 1) for field in getattr(type(value), "__match_args__", ())
            ]
            return ["record", [name, *fields]]
        if callable(value) and (name := self.allowed.name_of(value)):
            return ["function", name]
        raise Unwritable(f"a {dotted_name(type(value))}: {value!r:.80}")


class Reader(Tables):
    """Reads plain data as values."""

    def read(self, data: Any, depth: int = 0) -> Any:
        """The value of plain data; CheckpointError if no row reads it."""
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
        """Read the items of a list."""
        if not isinstance(payload, list):
            raise CheckpointError(f"a list is expected, found {payload!r:.80}")
        return [self.read(item, depth) for item in payload]

    def pairs(self, payload: Any, depth: int) -> dict[Any, Any]:
        """Read the items of a dict, written as [key, value, key, value, ...]."""
        values = self.items(payload, depth)
        return dict(zip(values[::2], values[1::2], strict=True))


def _write_items(writer: Writer, value: Any, depth: int) -> list[Any]:
    return [writer.write(item, depth) for item in value]


def _write_pairs(writer: Writer, value: Mapping[Any, Any], depth: int) -> list[Any]:
    return [writer.write(part, depth) for item in value.items() for part in item]


def _write_object(writer: Writer, value: _Object, depth: int) -> Any:
    """Keep only the original's type and those of its attributes that hold no tensors."""
    original = value.original
    data = getattr(original, "__dict__", {}) if value.attributes or not value.parts else {}
    attributes = {key: item for key, item in data.items() if key not in value.attributes}
    attributes |= value.attributes
    return [
        dotted_name(type(original)), _write_pairs(writer, value.parts, depth), _write_pairs(writer, attributes, depth),
    ]  # fmt: skip


_PLAIN = {dotted_name(kind): kind for kind in (list, tuple, dict)}


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
    return [value.module_path, dotted_name(kind) if isinstance(kind, type) else kind]


def _read_scope(reader: Reader, payload: Any, depth: int) -> Scope:
    path, kind = payload
    if not isinstance(path, str):
        raise TypeError("a path is a text")
    return Scope(path, None if kind is None else reader.allowed.label(kind))


def _read_tensor(reader: Reader, payload: Any, depth: int) -> Any:
    return reader.item(reader.tensors, payload)


Write = Callable[[Writer, Any, int], Any]
Read = Callable[[Reader, Any, int], Any]

#: Rows that also apply to subclasses.
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


# Leaf modules as class, plain attributes, tensors and children; they are rebuilt without running any constructor.

#: Attributes that every module has: its mode, hooks and tables. They are written separately or not at all.
_OWN = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Attributes that recurrent modules recompute from their parameters.
_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})
#: The most paths below one module: repeatedly shared modules can have more of them than fit into memory.
_MOST_PATHS = 1_000_000


ModuleRow = TypedDict(
    "ModuleRow",
    {
        "class": str,
        "parametrized": bool,
        "training": bool,
        "attributes": dict[str, object],
        "parameters": dict[str, int | None],
        "buffers": dict[str, int | None],
        "fleeting": list[str],
        "modules": dict[str, int | None],
    },
)
"""A module as it is written; what it holds of modules and tensors are indices. "class" is a word of Python."""


def write_module(writer: Writer, module: nn.Module) -> ModuleRow:
    """One module as plain data; Unwritable names what cannot be kept."""
    parametrized = type(module).__module__ == parametrize.__name__ and parametrize.is_parametrized(module)
    name = dotted_name(type(module).__base__ if parametrized else type(module))
    if any(getattr(module, hooks) for hooks in _HOOKS):
        raise Unwritable(f"a {name} with hooks, which are code; remove them first")
    for key in (*module._parameters, *module._buffers, *module._modules):
        if not _may_be_kept(key):
            raise Unwritable(f"a {name} that keeps a part under the key {key!r:.80}, which is no attribute's name")
    attributes = {key: value for key, value in vars(module).items() if key not in _OWN and key not in _DERIVED}
    return {
        "class": name,
        "parametrized": parametrized,
        "training": module.training,
        "attributes": {key: writer.write(value) for key, value in attributes.items()},
        "parameters": {key: _tensor_index(writer, value) for key, value in module._parameters.items()},
        "buffers": {key: _tensor_index(writer, value) for key, value in module._buffers.items()},
        "fleeting": sorted(module._non_persistent_buffers_set),
        "modules": {
            key: None if child is None else writer.index(writer.modules, child)
            for key, child in module._modules.items()
        },
    }


def _tensor_index(writer: Writer, value: Any) -> int | None:
    return None if value is None else writer.index(writer.tensors, value)


def read_modules(reader: Reader, table: Any) -> None:
    """Make all modules of a table: first empty, so that they can refer to each other, then fill them."""
    if not isinstance(table, list) or not all(isinstance(row, dict) for row in table):
        raise CheckpointError("its table of modules is not a list of maps")
    for row in table:
        kind = reader.allowed.module_class(row.get("class"))
        module = object.__new__(kind)
        nn.Module.__init__(module)
        reader.modules.append(module)
    for module, row in zip(reader.modules, table, strict=True):
        _fill_module(reader, module, row)
    below: dict[nn.Module, tuple[int, int]] = {}
    for module in reader.modules:
        _measure_nesting(module, below)
        _finish_module(module)
    for module, row in zip(reader.modules, table, strict=True):
        if row.get("parametrized") is True:
            _restore_parametrization(module)


def _fill_module(reader: Reader, module: nn.Module, row: Mapping[str, Any]) -> None:
    attributes = {_read_attribute_name(key): reader.read(value) for key, value in _read_map(row, "attributes").items()}
    module.__dict__.update({"training": row.get("training") is True, **attributes})
    for key, index in _read_map(row, "parameters").items():
        value = None if index is None else reader.item(reader.tensors, index)
        if not isinstance(value, nn.Parameter | None):
            raise CheckpointError(f"its parameter {key!r:.80} is not one")
        module._parameters[_read_attribute_name(key)] = value
    for key, index in _read_map(row, "buffers").items():
        module._buffers[_read_attribute_name(key)] = None if index is None else reader.item(reader.tensors, index)
    for key, index in _read_map(row, "modules").items():
        module._modules[_read_attribute_name(key)] = None if index is None else reader.item(reader.modules, index)
    fleeting = row.get("fleeting")
    if not isinstance(fleeting, list) or not all(isinstance(key, str) and key in module._buffers for key in fleeting):
        raise CheckpointError(f"a module in it has the fleeting buffers {fleeting!r:.80}")
    module._non_persistent_buffers_set.update(fleeting)


def _measure_nesting(module: nn.Module, below: dict[nn.Module, tuple[int, int]], depth: int = 0) -> tuple[int, int]:
    """A module's depth and the number of paths to its descendants. CheckpointError if a module contains itself."""
    if module not in below and depth <= MAX_DEPTH:
        children = [
            _measure_nesting(child, below, depth + 1) for child in module._modules.values() if child is not None
        ]
        below[module] = 1 + max((one for one, _ in children), default=0), 1 + sum(paths for _, paths in children)
    height, paths = below.get(module, (MAX_DEPTH, 0))
    if depth + height > MAX_DEPTH:
        raise CheckpointError(f"a {type(module).__name__} in it holds itself, or is nested deeper than {MAX_DEPTH}")
    if paths > _MOST_PATHS:
        raise CheckpointError(f"a {type(module).__name__} in it holds others in more than {_MOST_PATHS} ways")
    return height, paths


def _read_map(row: Mapping[str, Any], key: str) -> dict[Any, Any]:
    found = row.get(key)
    if not isinstance(found, dict):
        raise CheckpointError(f"a module in it has no {key}")
    return found


def _read_attribute_name(key: Any) -> str:
    """An attribute's name, checked: no dunder, and none of the module's tables."""
    if not _may_be_kept(key):
        raise CheckpointError(f"a module in it has an attribute {key!r:.80}")
    assert isinstance(key, str)
    return key


def _may_be_kept(key: Any) -> bool:
    return isinstance(key, str) and not (key.startswith("__") or key in _OWN or "." in key or hasattr(nn.Module, key))


def _restore_parametrization(module: nn.Module) -> None:
    """Give a module the class that torch generates for it, which computes its parametrized tensors."""
    lists = module._modules.get("parametrizations")
    if not isinstance(lists, nn.ModuleDict):
        raise CheckpointError(f"a {type(module).__name__} in it has no parametrizations")
    parametrize._inject_new_class(module)
    for name, each in lists.items():
        if not isinstance(each, parametrize.ParametrizationList) or hasattr(module, _read_attribute_name(name)):
            raise CheckpointError(f"a {type(module).__name__} in it has a parametrization of {name!r:.80}")
        parametrize._inject_property(module, name)


def _finish_module(module: nn.Module) -> None:
    if isinstance(module, nn.RNNBase):
        try:
            module._init_flat_weights()
        except (AttributeError, TypeError) as error:
            raise CheckpointError(f"a {type(module).__name__} in it is not whole: {error}") from None
