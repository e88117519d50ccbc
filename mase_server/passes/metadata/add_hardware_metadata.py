"""add_hardware_metadata: what every node becomes in hardware."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.hardware.described import Becomes, described
from mase_server.hardware.folding import fold
from mase_server.hardware.lowering import lower
from mase_server.ir.facts import call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ir.number_formats import format_text
from mase_server.passes.arguments import Result, options, with_common_metadata
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"max_parallelism": None, "multipliers": None, "interval": None})


@analysis
def add_hardware_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Add what a node becomes in hardware: implicitness, parallelism, parameters, interface.

    max_parallelism: elements per beat, innermost dimension first; None for none chosen yet.  The common metadata must
    be there; nodes that a transform made since then get theirs.  Of a graph that is rounded to fixed point it is what
    its Verilog has, folded for `multipliers` and `interval` as by emit_verilog_top: parameters, module and components
    of each instance, and for a node that is part of another one's, whose (`instance`).  Raises ValueError where the
    graph was never annotated or no folding keeps to both, and for an unknown option.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph, {"max_parallelism": [2, 1]})
    >>> hardware = graph.nodes[1].meta["mase"]["hardware"]
    >>> hardware["module"], hardware["verilog_param"]["DATA_IN_0_PARALLELISM_DIM_0"]
    ('fixed_linear', 2)
    """
    given = options("add_hardware_metadata_analysis_pass", pass_args, _DEFAULTS)
    with_common_metadata(graph)
    lanes = None if given["max_parallelism"] is None else [int(each) for each in given["max_parallelism"]]
    becomes = becoming(graph, given["multipliers"], given["interval"]) if lanes is None else {}
    for node in graph.fx_graph.nodes:
        metadata = metadata_of(node, graph.module)
        metadata["hardware"] = hardware_of(node, graph, lanes) | metadata["hardware"]
        if node.name in becomes and _gives_tensor(metadata["common"]):
            metadata["hardware"] |= _of_instance(becomes[node.name])
    of_graph = graph.meta["mase"]["hardware"]
    of_graph.setdefault("verilog_sources", [])
    if becomes:
        of_graph["verilog_sources"] = sorted({file for each in becomes.values() for file in each.files})
        of_graph["folding"] = {"multipliers": given["multipliers"], "interval": given["interval"]}
    return graph, {}


def becoming(graph: MaseGraph, multipliers: int | None, interval: int | None) -> dict[str, Becomes]:
    """What the nodes of a graph become; nothing for a graph that is not rounded to fixed point."""
    if not any(format_text(node) for node in graph.fx_graph.nodes):
        return {}
    design = lower(graph)
    return described(graph.fx_graph, design, fold(design, multipliers=multipliers, interval=interval))


def _gives_tensor(common: Mapping[str, Any]) -> bool:
    return any(isinstance(entry, dict) and "shape" in entry for entry in common["results"].values())


def _of_instance(becomes: Becomes) -> dict[str, Any]:
    """What is known of a node from its instance, and made anew each time."""
    return {
        "is_implicit": not becomes.is_own,
        "max_parallelism": [becomes.lanes],
        "verilog_param": dict(becomes.parameters),
        "module": becomes.module if becomes.is_own else None,
        "dependence_files": list(becomes.files),
        "instance": becomes.instance,
    }


def hardware_of(node: fx.Node, graph: MaseGraph, parallelism: list[int] | None) -> dict[str, Any]:
    """What a node with common metadata becomes where nothing is known of an instance."""
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


PASS = Pass(
    name="add_hardware_metadata",
    title="Add what nodes become in hardware",
    kind="analysis",
    function=add_hardware_metadata_analysis_pass,
    arguments=(
        Argument("max_parallelism", "texts", "elements per beat, innermost dimension first, e.g. 4,2"),
        Argument("multipliers", "integer", "at most so many, where the graph is in fixed point", minimum=1),
        Argument("interval", "integer", "at most so many cycles from one sample to the next", minimum=1),
    ),
    needs=frozenset({"metadata"}),
    menu=False,
)
