"""Leaf modules as class, plain attributes, tensors and children; rebuilt without running any constructor."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from mase_server.ir.allowed import qualified
from mase_server.ir.codec import MAX_DEPTH, Reader, Unwritable, Writer
from mase_server.ir.errors import CheckpointError

#: What every module has: its mode, hooks and tables. They are written by themselves or not at all.
_OWN = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Attributes that recurrent modules make again from their parameters.
_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})
#: Paths below one module at most; modules that are shared again and again can have more of them than there is memory.
_MOST_PATHS = 1_000_000


def write_module(writer: Writer, module: nn.Module) -> dict[str, Any]:
    """One module as plain data; Unwritable names what cannot be kept."""
    parametrized = type(module).__module__ == parametrize.__name__ and parametrize.is_parametrized(module)
    name = qualified(type(module).__base__ if parametrized else type(module))
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
        "parameters": {key: _tensor(writer, value) for key, value in module._parameters.items()},
        "buffers": {key: _tensor(writer, value) for key, value in module._buffers.items()},
        "fleeting": sorted(module._non_persistent_buffers_set),
        "modules": {
            key: None if child is None else writer.index(writer.modules, child)
            for key, child in module._modules.items()
        },
    }


def _tensor(writer: Writer, value: Any) -> int | None:
    return None if value is None else writer.index(writer.tensors, value)


def read_modules(reader: Reader, table: Any) -> None:
    """Make all modules of a table, first empty so that they may refer to each other, then with what they hold."""
    if not isinstance(table, list) or not all(isinstance(row, dict) for row in table):
        raise CheckpointError("its table of modules is not a list of maps")
    for row in table:
        kind = reader.allowed.module_class(row.get("class"))
        module = object.__new__(kind)
        nn.Module.__init__(module)
        reader.modules.append(module)
    for module, row in zip(reader.modules, table, strict=True):
        _fill(reader, module, row)
    below: dict[nn.Module, tuple[int, int]] = {}
    for module in reader.modules:
        _measure(module, below)
        _finish(module)
    for module, row in zip(reader.modules, table, strict=True):
        if row.get("parametrized") is True:
            _parametrize(module)


def _fill(reader: Reader, module: nn.Module, row: dict[str, Any]) -> None:
    attributes = {_name(key): reader.read(value) for key, value in _map(row, "attributes").items()}
    module.__dict__.update({"training": row.get("training") is True, **attributes})
    for key, index in _map(row, "parameters").items():
        value = None if index is None else reader.item(reader.tensors, index)
        if not isinstance(value, nn.Parameter | None):
            raise CheckpointError(f"its parameter {key!r:.80} is not one")
        module._parameters[_name(key)] = value
    for key, index in _map(row, "buffers").items():
        module._buffers[_name(key)] = None if index is None else reader.item(reader.tensors, index)
    for key, index in _map(row, "modules").items():
        module._modules[_name(key)] = None if index is None else reader.item(reader.modules, index)
    fleeting = row.get("fleeting")
    if not isinstance(fleeting, list) or not all(isinstance(key, str) and key in module._buffers for key in fleeting):
        raise CheckpointError(f"a module in it has the fleeting buffers {fleeting!r:.80}")
    module._non_persistent_buffers_set.update(fleeting)


def _measure(module: nn.Module, below: dict[nn.Module, tuple[int, int]], depth: int = 0) -> tuple[int, int]:
    """How deep a module is, and how many paths lead to what is in it. CheckpointError where that has no end."""
    if module not in below and depth <= MAX_DEPTH:
        children = [_measure(child, below, depth + 1) for child in module._modules.values() if child is not None]
        below[module] = 1 + max((one for one, _ in children), default=0), 1 + sum(paths for _, paths in children)
    height, paths = below.get(module, (MAX_DEPTH, 0))
    if depth + height > MAX_DEPTH:
        raise CheckpointError(f"a {type(module).__name__} in it holds itself, or is nested deeper than {MAX_DEPTH}")
    if paths > _MOST_PATHS:
        raise CheckpointError(f"a {type(module).__name__} in it holds others in more than {_MOST_PATHS} ways")
    return height, paths


def _map(row: dict[str, Any], key: str) -> dict[Any, Any]:
    found = row.get(key)
    if not isinstance(found, dict):
        raise CheckpointError(f"a module in it has no {key}")
    return found


def _name(key: Any) -> str:
    """An attribute's name as modules have them: no dunder, and none of the tables."""
    if not _may_be_kept(key):
        raise CheckpointError(f"a module in it has an attribute {key!r:.80}")
    assert isinstance(key, str)
    return key


def _may_be_kept(key: Any) -> bool:
    return isinstance(key, str) and not (key.startswith("__") or key in _OWN or "." in key or hasattr(nn.Module, key))


def _parametrize(module: nn.Module) -> None:
    """Give a module the class that torch makes for it, which computes the tensors that have parametrizations."""
    lists = module._modules.get("parametrizations")
    if not isinstance(lists, nn.ModuleDict):
        raise CheckpointError(f"a {type(module).__name__} in it has no parametrizations")
    parametrize._inject_new_class(module)
    for name, each in lists.items():
        if not isinstance(each, parametrize.ParametrizationList) or hasattr(module, _name(name)):
            raise CheckpointError(f"a {type(module).__name__} in it has a parametrization of {name!r:.80}")
        parametrize._inject_property(module, name)


def _finish(module: nn.Module) -> None:
    if isinstance(module, nn.RNNBase):
        try:
            module._init_flat_weights()
        except (AttributeError, TypeError) as error:
            raise CheckpointError(f"a {type(module).__name__} in it is not whole: {error}") from None
