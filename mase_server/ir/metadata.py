"""MaseMetadata: the metadata of one node, as a tree."""

from __future__ import annotations

import copy
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, TypedDict

import torch
from torch import fx, nn

from mase_server.formats import FORMATS
from mase_server.ir.build import attribute
from mase_server.ir.recording import TensorEntry, ValueEntries

#: The metadata of a node or a graph as a tree: at its top `common`, `hardware` and `software`.
MetadataTree = dict[str, Any]


class CommonMetadata(TypedDict):
    """The part `common` of a node."""

    mase_op: str
    mase_type: str
    args: ValueEntries
    results: ValueEntries


class GraphMetadata(TypedDict):
    """The part `common` of a whole graph. nodes_in: after its inputs.  nodes_out: before its outputs."""

    nodes_in: list[fx.Node]
    nodes_out: list[fx.Node]
    args: ValueEntries
    results: ValueEntries


#: The parameters of a hardware module by their names in SystemVerilog.
VerilogParameters = dict[str, int | float | str]


class ParameterInterface(TypedDict):
    """How hardware gets a parameter of a node. storage: one of `MaseMetadata.known_storage`."""

    storage: str
    transpose: bool


class InstanceMetadata(TypedDict):
    """The entries of `hardware` that say which instance a node became. instance: "" where there is none."""

    is_implicit: bool
    max_parallelism: list[int]
    verilog_param: VerilogParameters
    module: str | None
    dependence_files: list[str]
    instance: str


class SoftwareEntry(TypedDict, total=False):
    """The entry of one tensor in the part `software` of a node. stat: what each statistic found, by its name."""

    stat: dict[str, object]
    natural_sparsity: float
    sparsity: float
    mask_value: torch.Tensor


class HardwareMetadata(TypedDict):
    """The part `hardware` of a node whose instance nobody knows. max_parallelism: None for none chosen yet."""

    is_implicit: bool
    max_parallelism: list[int] | None
    verilog_param: VerilogParameters
    device_id: int
    toolchain: str
    module: str | None
    interface: dict[str, ParameterInterface]
    dependence_files: list[str]


class MaseMetadata:
    """The metadata of a node, a dictionary: `metadata["common"]["args"]["data_in_0"]["shape"]`.

    node: the node; None for the metadata of a whole graph.  model: the module that holds the graph. common: mase_op,
    mase_type, args and results by name, each tensor with type, precision, shape, torch_dtype and, read lazily,
    value; all other values are kept as they are. software: args and results by name, each with `stat`, the
    statistics that profiling found. hardware: is_implicit, max_parallelism, verilog_param, device_id (-1: none yet),
    toolchain, module, interface (for each parameter its storage and whether it is transposed), dependence_files.
    Source: `chop.ir.graph.mase_metadata.MaseMetadata`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> metadata = graph.nodes[1].meta["mase"]
    >>> metadata["common"]["mase_op"], metadata["common"]["args"]["weight"]["shape"]
    ('linear', [2, 4])
    >>> metadata.module
    Linear(in_features=4, out_features=2, bias=True)
    """

    known_types = ["fixed", "float", "NA", "int", "bool", "complex", *sorted({*FORMATS} - {"fixed"})]
    known_toolchain = ["INTERNAL", "EXTERNAL", "HLS"]
    known_storage = ["BRAM"]

    def __init__(self, node: fx.Node | None = None, model: nn.Module | None = None) -> None:
        self.node, self.model = node, model
        self.parameters: MetadataTree = {"common": {}, "hardware": {}, "software": {}}

    def __getitem__(self, key: str) -> Any:
        return self.parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.parameters[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self.parameters

    def __len__(self) -> int:
        return len(self.parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def get(self, key: str, default: Any = None) -> Any:
        """The part of this name; `default` if there is none."""
        return self.parameters.get(key, default)

    def keys(self) -> KeysView[str]:
        """The names of the parts."""
        return self.parameters.keys()

    def values(self) -> ValuesView[Any]:
        """The parts."""
        return self.parameters.values()

    def items(self) -> ItemsView[str, Any]:
        """The parts with their names."""
        return self.parameters.items()

    def __repr__(self) -> str:
        return f"MaseMetadata({self.node}, {self.parameters})"

    @property
    def module(self) -> nn.Module | None:
        """The module that a call_module node calls; None for every other node."""
        if self.node is None or self.model is None or self.node.op != "call_module":
            return None
        found: nn.Module = attribute(self.model, str(self.node.target))
        return found

    @property
    def graph(self) -> fx.Graph | None:
        """The graph that holds the node."""
        return None if self.node is None else self.node.graph


def metadata_of(node: fx.Node, model: nn.Module) -> MaseMetadata:
    """The metadata of a node; made new if there is none, or if it was copied from another node's."""
    found = node.meta.get("mase")
    if isinstance(found, MaseMetadata) and found.node is node and found.model is model:
        return found
    made = node.meta["mase"] = MaseMetadata(node, model)
    if isinstance(found, MaseMetadata):
        made.parameters.update(_copy_tree(found.parameters))
    return made


def copy_metadata(metadata: MaseMetadata, node: fx.Node | None, model: nn.Module, memo: dict[int, Any]) -> MaseMetadata:
    """A copy of the metadata for a node of a copied graph. memo: as in copy.deepcopy, with the nodes that were
    copied."""
    made = MaseMetadata(node, model)
    made.parameters.update(_copy_tree(metadata.parameters, memo))
    return made


def _copy_tree(tree: Any, memo: dict[int, Any] | None = None) -> Any:
    """A copy of the tree with its own containers, so that two nodes never write into one.

    memo: of a copied graph, to whose nodes and values the copy refers.
    """
    if isinstance(tree, TensorEntry):
        lazy = tree.lazy if memo is None else copy.deepcopy(dict(tree.lazy), memo)
        return TensorEntry({key: _copy_tree(item, memo) for key, item in tree.items()}, lazy)
    if isinstance(tree, dict):
        return {key: _copy_tree(item, memo) for key, item in tree.items()}
    if type(tree) is list:
        return [_copy_tree(item, memo) for item in tree]
    return tree if memo is None else copy.deepcopy(tree, memo)
