"""The nodes table of a payload: every call with its operator, cost and place, and a blob that only a hover unpacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from mase_server.dtypes import SHORT
from mase_server.ir.build import attribute, used_calls
from mase_server.ops.cost import parameters_of
from mase_server.ops.table import named_arguments, op_info
from mase_server.ops.types import OpCall, OpInfo, TensorType
from mase_server.snapshot import COLUMNS
from mase_server.tracing.calls import Call, Constant, references, with_types
from mase_server.tracing.positions import resolve
from mase_server.tracing.probe import name_of
from mase_server.tracing.values import DictOf, TupleOf, Value
from mase_server.visible import reveal
from mase_server.wire import pack_blob
from mase_server.worker.places import Places
from mase_server.worker.traced import Traced

if TYPE_CHECKING:
    from mase_server.worker.payload import _Tables

_MAX_TEXT = 120


class NodeWriter:
    """Fills the columns of "nodes". `rows`: for the model written last, the row of each call, -1 where it has none."""

    def __init__(self, places: Places, tables: _Tables) -> None:
        self.places, self.tables = places, tables
        self.columns: dict[str, list[Any]] = {name: [] for name in COLUMNS["nodes"]}
        self.rows: list[int] = []
        self._modules: dict[int, dict[str, Any]] = {}

    def write(self, model: int, traced: Traced) -> int:
        """All nodes of one model; gives its FLOPs."""
        names = traced.node_names() if traced.error is None else [None] * len(traced.run.calls)
        used = used_calls(traced.run)
        self.rows = [-1] * len(used)
        total = 0
        for index, call in enumerate(traced.run.calls):
            if used[index]:
                self.rows[index] = len(self.columns["name"])
                total += self._write_call(model, traced, index, call, names[index] or _target_name(call, traced))
        return total

    def _write_call(self, model: int, traced: Traced, index: int, call: Call, name: str) -> int:
        module = _module_of(traced.found.model, call)
        target = _target(call, traced)
        info = op_info(call.kind, target, module)
        operation = OpCall(
            call.kind, target, with_plain(call.args, traced.run.calls), with_plain(call.kwargs, traced.run.calls),
            plain_types(call.value), module,
        )  # fmt: skip
        flops = int(info.flops(operation))
        place = self.places.row(resolve(call.stack[0])) if call.stack else (-1, 0, 0, 0, 0)
        value = self.tables.value(model, [run.calls[index].value for run in traced.runs])
        blob = pack_blob(self._blob(info, operation, call, module))
        row = (
            name, call.kind, _target_name(call, traced), info.mase_op, info.mase_type, info.family, model,
            self.tables.scope(model, call.scope), value, flops, *place, blob,
        )  # fmt: skip
        for column, item in zip(COLUMNS["nodes"], row, strict=True):
            self.columns[column].append(item)
        return flops

    def _blob(self, info: OpInfo, operation: OpCall, call: Call, module: nn.Module | None) -> dict[str, Any]:
        stack = []
        for mark in call.stack:
            position = resolve(mark)
            stack.append([*self.places.row(position), position.function])
        blob: dict[str, Any] = {
            "args": [[name, text_of(value)] for name, value in named_arguments(operation).items()],
            "bytes": int(info.bytes(operation)),
            "stack": stack,
            "input_nodes": [self.rows[source] for source in references((call.args, call.kwargs))],
        }
        if module is not None:
            blob |= self._module(module) | {"module_path": call.target}
        return blob

    def _module(self, module: nn.Module) -> dict[str, Any]:
        found = self._modules.get(id(module))
        if found is None:
            count, size = parameters_of(module)
            own = {name: _tensor_text(parameter) for name, parameter in module.named_parameters()}
            text = repr(module)
            found = self._modules[id(module)] = {
                "module": text if len(text) < 2000 else f"{type(module).__name__}(...)",
                "parameters": own if len(own) <= 32 else {},
                "parameter_count": count,
                "parameter_bytes": size,
            }
        return found


def _module_of(root: nn.Module, call: Call) -> nn.Module | None:
    if call.kind != "call_module":
        return None
    module: nn.Module = attribute(root, call.target)
    return module


def _target(call: Call, traced: Traced) -> Any:
    if call.kind == "call_module":
        return _module_of(traced.found.model, call)
    return traced.run.constants[call.target.name] if isinstance(call.target, Constant) else call.target


def _target_name(call: Call, traced: Traced) -> str:
    """The target as text; a callable of the graph's own by its name, any other constant by the graph's name for it."""
    if not isinstance(call.target, Constant):
        return reveal(name_of(call.target))
    return reveal(name_of(_target(call, traced))) if call.kind == "call_function" else call.target.name


def with_plain(value: Any, calls: Sequence[Call]) -> Any:
    """Arguments with the types of their tensors, containers as plain tuples and dicts."""
    return plain_types(with_types(value, list(calls) if not isinstance(calls, list) else calls))


def plain_types(value: Any) -> Any:
    """Descriptions of containers as nested tuples and dicts of `TensorType`."""
    if isinstance(value, TupleOf):
        return tuple(plain_types(item) for item in value.items)
    if isinstance(value, DictOf):
        return {key: plain_types(item) for key, item in value.items}
    if isinstance(value, list | tuple):
        items = [plain_types(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: plain_types(item) for key, item in value.items()}
    return value


def text_of(value: Any) -> str:
    """A short text of an argument: tensors as f32[2, 16, 768]."""
    if isinstance(value, TensorType):
        return f"{SHORT.get(value.dtype, value.dtype)}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        inner = ", ".join(text_of(item) for item in value[:8]) + (", ..." if len(value) > 8 else "")
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    text = name_of(value) if callable(value) else repr(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _tensor_text(parameter: nn.Parameter) -> str:
    name = str(parameter.dtype).removeprefix("torch.")
    return f"{SHORT.get(name, name)}[{', '.join(map(str, parameter.shape))}]"


__all__ = ["NodeWriter", "Value", "plain_types", "text_of"]
