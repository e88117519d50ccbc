"""Passes that add metadata to every node: init, common, software, hardware."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.facts import call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.passes.arguments import Result, options

_COMMON: Mapping[str, Any] = MappingProxyType({"add_value": True, "dummy_in": None, "force_device_meta": False})
_HARDWARE: Mapping[str, Any] = MappingProxyType({"max_parallelism": None})


def init_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Give every node an empty MaseMetadata under `node.meta["mase"]`; what is there already is kept.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.init_metadata_analysis_pass(graph)
    >>> list(graph.nodes[0].meta["mase"])
    ['common', 'hardware', 'software']
    """
    graph.init_metadata()
    return graph, {}


def add_common_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _COMMON) -> Result:
    """Add operator, type, arguments and results of every node.

    dummy_in: inputs by name (a dict or BatchEncoding), all of which are honoured; without it those that the graph was
    recorded on.  add_value: offer values, which are computed when they are read.  force_device_meta: offer meta tensors
    in place of values.  Raises ValueError for an unknown option or input.
    Source: `chop.passes.graph.analysis.add_metadata.add_common_metadata_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.add_common_metadata_analysis_pass(graph, {"dummy_in": {"input": torch.randn(5, 4)}})
    >>> graph.nodes[2].meta["mase"]["common"]["results"]["data_out_0"]["shape"]
    [5, 2]
    """
    graph.annotate(**options("add_common_metadata_analysis_pass", pass_args, _COMMON))
    return graph, {}


def add_software_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Add an empty `stat` for every tensor among the arguments and results; found statistics are kept.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_software_metadata_analysis_pass(graph)
    >>> graph.nodes[1].meta["mase"]["software"]["args"]
    {'data_in_0': {'stat': {}}, 'weight': {'stat': {}}, 'bias': {'stat': {}}}
    """
    for node in graph.fx_graph.nodes:
        metadata = metadata_of(node, graph.module)
        for part in ("args", "results"):
            entries = metadata["software"].setdefault(part, {})
            for name, entry in metadata["common"].get(part, {}).items():
                if isinstance(entry, dict):
                    entries.setdefault(name, {"stat": {}})
    return graph, {}


def add_hardware_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _HARDWARE) -> Result:
    """Add what a node becomes in hardware: implicitness, parallelism, parameters, interface.

    max_parallelism: elements per beat, innermost dimension first; None for none chosen yet.  The common metadata must
    be there.  Raises ValueError where it is not, and for an unknown option.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph, {"max_parallelism": [2, 1]})
    >>> hardware = graph.nodes[1].meta["mase"]["hardware"]
    >>> hardware["module"], hardware["verilog_param"]["DATA_IN_0_PARALLELISM_DIM_0"]
    ('fixed_linear', 2)
    """
    given = options("add_hardware_metadata_analysis_pass", pass_args, _HARDWARE)
    for node in graph.fx_graph.nodes:
        metadata = metadata_of(node, graph.module)
        if "mase_op" not in metadata["common"]:
            raise ValueError(f"node {node.name!r} has no common metadata: run add_common_metadata_analysis_pass first")
        metadata["hardware"] = _hardware(node, graph, given["max_parallelism"]) | metadata["hardware"]
    graph.meta["mase"]["hardware"].setdefault("verilog_sources", [])
    return graph, {}


def _hardware(node: fx.Node, graph: MaseGraph, parallelism: list[int] | None) -> dict[str, Any]:
    common = node.meta["mase"]["common"]
    implicit = node.op in ("placeholder", "output", "get_attr") or common["mase_type"] == "implicit_func"
    custom = graph.custom_ops.entry(call_of(node, graph.facts, graph.module)) or {}
    return {
        "is_implicit": implicit,
        "max_parallelism": parallelism,
        "verilog_param": {} if implicit else verilog_parameters(common, parallelism or [1]),
        "device_id": -1,
        "toolchain": custom.get("toolchain", "INTERNAL"),
        "module": custom.get("module", None if implicit else f"fixed_{common['mase_op']}"),
        "interface": {} if implicit else _interface(common),
        "dependence_files": list(custom.get("dependence_files", [])),
    }


def _interface(common: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters are stored in block memory; data streams in."""
    tensors = (name for name, entry in common["args"].items() if isinstance(entry, dict) and "shape" in entry)
    return {name: {"storage": "BRAM", "transpose": False} for name in tensors if not name.startswith("data_in")}


def verilog_parameters(common: Mapping[str, Any], parallelism: list[int]) -> dict[str, Any]:
    """The parameters of a node's hardware module: DATA_IN_0_TENSOR_SIZE_DIM_0 (innermost), ..._PRECISION_0, ..."""
    found: dict[str, Any] = {}
    for name, entry in {**common["args"], **common["results"]}.items():
        if isinstance(entry, dict) and "shape" in entry:
            found |= _tensor_parameters(name.upper(), entry, parallelism)
        elif isinstance(entry, bool | int | float | str):
            found[name.upper()] = int(entry) if isinstance(entry, bool) else entry
    return found


def _tensor_parameters(name: str, entry: Mapping[str, Any], parallelism: list[int]) -> dict[str, Any]:
    sizes = list(reversed(entry["shape"])) or [1]
    lanes = [*parallelism, *(1 for _ in sizes)]
    return {
        **{f"{name}_PRECISION_{index}": bits for index, bits in enumerate(entry["precision"])},
        **{f"{name}_TENSOR_SIZE_DIM_{index}": size for index, size in enumerate(sizes)},
        **{f"{name}_PARALLELISM_DIM_{index}": min(lanes[index], size) for index, size in enumerate(sizes)},
    }
