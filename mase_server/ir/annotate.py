"""Common metadata: operator, type, arguments and results of every node, under MASE's names and formats."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import fx, nn

from mase_server.formats import with_parameters
from mase_server.ir.custom import CustomOps
from mase_server.ir.facts import Facts, Produced, call_of, fact_leaves, map_nodes, mark_producer
from mase_server.ir.metadata import CommonMetadata, GraphMetadata, metadata_of
from mase_server.ir.number_formats import format_of, number_format, number_formats, part_formats, torch_dtype
from mase_server.ir.propagate import ValueSource
from mase_server.ir.recording import TensorEntry, ValueEntries
from mase_server.ops.table import named_arguments, op_info
from mase_server.ops.types import MaseArguments, OpCall, TensorType

Lazies = dict[str, Callable[[], Any]]


class Annotator:
    """Writes the `common` metadata of one graph's nodes.

    facts: of every node.  values: the source of lazily read values; None to offer none.
    """

    def __init__(self, model: fx.GraphModule, facts: Facts, custom: CustomOps, values: ValueSource | None) -> None:
        self.model, self.facts, self.custom, self.values = model, facts, custom, values
        self.formats = number_formats(model.graph, model)
        self.parts = part_formats(self.formats)

    def annotate(self) -> None:
        """Annotate every node of the graph."""
        for node in self.model.graph.nodes:
            metadata_of(node, self.model)["common"] = self.common(node)

    def common(self, node: fx.Node) -> CommonMetadata:
        """The `common` tree of one node."""
        call = call_of(node, self.facts, self.model)
        info = op_info(call.kind, call.target, call.module)
        return {
            "mase_op": info.mase_op,
            "mase_type": info.mase_type,
            "args": self._describe_arguments(node, call),
            "results": self._describe_results(node),
        }

    def _describe_arguments(self, node: fx.Node, call: OpCall) -> ValueEntries:
        if node.op == "output":
            return {
                f"data_in_{index}": self._describe_argument(item) for index, item in enumerate(fact_leaves(call.args))
            }
        entry = self.custom.entry(call)
        found = named_arguments(call) if entry is None or "args" not in entry else custom_arguments(call, entry["args"])
        own = dict(call.module.named_parameters()) if call.module is not None else {}
        by_name = {name.replace(".", "_"): parameter for name, parameter in own.items()}
        if node.target is with_parameters:
            given = map_nodes(node.args[1], lambda source: mark_producer(self.facts[source], source))
            found |= {name.replace(".", "_"): value for name, value in given.items()}
        return {
            name: self._weight_entry(value, by_name[name])
            if name in by_name and not isinstance(value, Produced)
            else self._describe_argument(value)
            for name, value in found.items()
        }

    def _describe_argument(self, value: Any) -> Any:
        """Replace tensors by entries, wherever they are nested; keep all else."""
        if isinstance(value, TensorType):
            node, path = (value.node, value.path) if isinstance(value, Produced) else (None, ())
            return self._tensor_entry(value, node, path)
        if isinstance(value, tuple | list):
            return type(value)([self._describe_argument(item) for item in value])
        if isinstance(value, dict):
            return {key: self._describe_argument(item) for key, item in value.items()}
        return value

    def _tensor_entry(self, tensor: TensorType, node: fx.Node | None, path: tuple[Any, ...]) -> TensorEntry:
        format = self.parts.get((node, path), self.formats.get(node)) if node is not None else None
        kind, precision = format_of(tensor.dtype) if format is None else (format.name, format.precision)
        fields = {
            "shape": list(tensor.shape), "torch_dtype": torch_dtype(tensor), "type": kind, "precision": precision,
        }  # fmt: skip
        lazy: Lazies = {}
        if node is not None:
            lazy |= {"from": partial(_return_value, node), "path": partial(_return_value, path)}
            if self.values is not None:
                lazy["value"] = partial(self.values.of, node, path)
        return TensorEntry(fields, lazy)

    def _weight_entry(self, tensor: TensorType, parameter: nn.Parameter) -> TensorEntry:
        kind, precision = format_of(tensor.dtype)
        lazy: Lazies = {"torch_dtype": partial(_return_value, parameter.dtype)}
        if self.values is not None:
            lazy["value"] = partial(self.values.parameter, parameter)
        return TensorEntry({"type": kind, "precision": precision, "shape": list(tensor.shape)}, lazy)

    def _describe_results(self, node: fx.Node) -> ValueEntries:
        found = with_paths(self.facts[node])
        return {
            f"data_out_{index}": self._describe_result(node, fact, path) for index, (fact, path) in enumerate(found)
        }

    def _describe_result(self, node: fx.Node, fact: Any, path: tuple[Any, ...]) -> TensorEntry:
        if isinstance(fact, TensorType):
            return self._tensor_entry(fact, node, path)
        kind, precision = number_format(fact)
        return TensorEntry({"type": kind, "precision": precision, "shape": [], "value": fact})


def with_paths(fact: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the tensors and numbers of a fact, each with its path."""
    if isinstance(fact, tuple | list):
        for index, item in enumerate(fact):
            yield from with_paths(item, (*path, index))
    elif isinstance(fact, dict):
        for key, item in fact.items():
            yield from with_paths(item, (*path, key))
    elif isinstance(fact, TensorType | bool | int | float | complex):
        yield fact, path


def custom_arguments(call: OpCall, rules: Mapping[str, str | None]) -> MaseArguments:
    """The arguments of a custom operation, named as its entry says, then its module's parameters."""
    function = call.module.forward if call.module is not None else call.target
    bound = inspect.signature(function).bind(*call.args, **call.kwargs).arguments  # type: ignore[arg-type]
    found: MaseArguments = {}
    count = 0
    for name, value in bound.items():
        rule = rules.get(name, "data_in" if isinstance(value, TensorType) else "config")
        if rule == "data_in":
            name, count = f"data_in_{count}", count + 1
        if rule is not None:
            found[name] = value
    for name, parameter in call.module.named_parameters() if call.module is not None else ():
        found.setdefault(name.replace(".", "_"), TensorType.of(parameter))
    return found


def graph_summary(model: fx.GraphModule) -> GraphMetadata:
    """The `common` tree of a whole graph: its first and last nodes, arguments and results by name."""
    nodes = list(model.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    outputs = [node for node in nodes if node.op == "output"]
    sources = [source for node in outputs for source in node.all_input_nodes]
    return {
        "nodes_in": [user for node in inputs for user in node.users],
        "nodes_out": sources,
        "args": {str(node.target): _first_entry(node, "results") for node in inputs},
        "results": {name: entry for node in outputs for name, entry in node.meta["mase"]["common"]["results"].items()},
    }


def _first_entry(node: fx.Node, part: str) -> Any:
    return next(iter(node.meta["mase"]["common"][part].values()), None)


def _return_value(value: Any) -> Any:
    return value
