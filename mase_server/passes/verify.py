"""Passes that check metadata against its own rules and against the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx

from mase_server.formats import FORMATS
from mase_server.hardware.described import Becomes
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.ops.types import MASE_TYPES
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Result
from mase_server.passes.metadata import describe_becoming
from mase_server.passes.report.report_graph import metadata_or_raise


@analysis("Check the common metadata", needs={"metadata"}, menu=False)
def verify_common_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Check that every node has an operator, a known type, complete entries, and arguments that match their sources.

    Raises MetadataError with every broken rule.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.verify_common_metadata_analysis_pass(graph)
    """
    return verify_rule(graph, _check_common)


def _check_common(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
    common = metadata["common"]
    if not common.get("mase_op"):
        yield "it has no mase_op: run add_common_metadata_analysis_pass first"
        return
    if common.get("mase_type") not in MASE_TYPES:
        yield f"its mase_type is {common.get('mase_type')!r}; known are {', '.join(MASE_TYPES)}"
    for part in ("args", "results"):
        for name, entry in common.get(part, {}).items():
            if isinstance(entry, dict) and "shape" in entry:
                yield from _check_entry(f"{part} {name}", entry)
    yield from _check_edges(common)


def _check_entry(where: str, entry: Mapping[str, Any]) -> Iterator[str]:
    if entry.get("type") not in {*MaseMetadata.known_types, *FORMATS}:
        yield f"the type of {where} is {entry.get('type')!r}; known are {', '.join(MaseMetadata.known_types)}"
    elif entry["type"] != "NA" and not _is_precision(entry.get("precision")):
        yield f"the precision of {where} is {entry.get('precision')!r}; it must be a list of whole numbers of bits"
    if not _is_list_of_integers(entry["shape"]) or any(size < 0 for size in entry["shape"]):
        yield f"the shape of {where} is {entry['shape']!r}; it must be a list of whole numbers"
    if "torch_dtype" in entry and not isinstance(entry["torch_dtype"], torch.dtype):
        yield f"the torch_dtype of {where} is {entry['torch_dtype']!r}; it must be a torch.dtype"


def _is_precision(value: Any) -> bool:
    """The width first; further numbers may be negative, because a point may lie outside of the width."""
    return _is_list_of_integers(value) and len(value) > 0 and value[0] >= 0


def _is_list_of_integers(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _check_edges(common: Mapping[str, Any]) -> Iterator[str]:
    """Check that an argument has the same shape as its source."""
    for name, entry in common["args"].items():
        source = entry.get("from") if isinstance(entry, dict) else None
        if not isinstance(source, fx.Node) or "mase" not in source.meta:
            continue
        given = [result.get("shape") for result in source.meta["mase"]["common"].get("results", {}).values()]
        if given and entry["shape"] not in given:
            yield f"args {name} has shape {entry['shape']}, but its source {source.name!r} gives {given[0]}"


# The error for metadata that breaks a rule, and the check of rules.

Rule = Callable[[fx.Node, MaseMetadata], Iterator[str]]
_SHOWN = 10


class MetadataError(ValueError):
    """Metadata breaks a rule.

    problems: one sentence for each.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph.nodes[1].meta["mase"]["common"]["mase_type"] = "layer"
    >>> try:
    ...     passes.verify_common_metadata_analysis_pass(graph)
    ... except passes.MetadataError as error:
    ...     print(error.problems[0].partition(";")[0])
    node '_0': its mase_type is 'layer'
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        more = "" if len(problems) <= _SHOWN else f"\nand {len(problems) - _SHOWN} more"
        super().__init__("\n".join(problems[:_SHOWN]) + more)


def verify_rule(graph: MaseGraph, rule: Rule) -> Result:
    """Return the graph if no node breaks the rule; raise MetadataError with every break."""
    problems = [
        f"node {node.name!r}: {problem}" for node in graph.nodes for problem in rule(node, metadata_or_raise(node))
    ]
    if problems:
        raise MetadataError(problems)
    return graph, {}


# verify_hardware_metadata: complete, with known toolchains and storage.

_HARDWARE = (
    "is_implicit", "max_parallelism", "verilog_param", "device_id", "toolchain", "module", "interface",
    "dependence_files",
)  # fmt: skip


@analysis("Check the hardware metadata", needs={"metadata"}, menu=False)
def verify_hardware_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Check that hardware metadata is complete, with known toolchains and storage, and that it matches the netlist.

    Raises MetadataError with every broken rule.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    >>> graph, _ = passes.verify_hardware_metadata_analysis_pass(graph)
    """
    folding = graph.meta["mase"]["hardware"].get("folding") if "mase" in graph.meta else None
    becomes = describe_becoming(graph, **folding) if folding else {}

    def rule(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
        yield from _check_hardware(metadata)
        if "instance" in metadata["hardware"]:
            yield from _as_in_netlist(metadata["hardware"], becomes.get(node.name))

    return verify_rule(graph, rule)


def _as_in_netlist(hardware: Mapping[str, Any], becomes: Becomes | None) -> Iterator[str]:
    if becomes is None or hardware["instance"] != becomes.instance:
        there = "none" if becomes is None else becomes.instance
        yield f"its instance is {hardware['instance']}; the netlist has {there} for it: run add_hardware_metadata again"
        return
    if becomes.is_own and hardware["module"] != becomes.module:
        yield f"its module is {hardware['module']!r}; in the netlist {becomes.instance} is a {becomes.module}"
    for name, value in becomes.parameters.items():
        if hardware["verilog_param"].get(name) != value:
            told = hardware["verilog_param"].get(name)
            yield f"{name} is {told}; in the netlist {becomes.instance} has {value}"


def _check_hardware(metadata: MaseMetadata) -> Iterator[str]:
    hardware = metadata["hardware"]
    missing = [key for key in _HARDWARE if key not in hardware]
    if missing:
        yield f"hardware has no {missing[0]}: run add_hardware_metadata_analysis_pass first"
        return
    if hardware["toolchain"] not in MaseMetadata.known_toolchain:
        yield f"the toolchain is {hardware['toolchain']!r}; known are {', '.join(MaseMetadata.known_toolchain)}"
    if not hardware["is_implicit"] and not hardware["module"]:
        yield "it is not implicit, but names no hardware module"
    for name, port in hardware["interface"].items():
        if port.get("storage") not in MaseMetadata.known_storage:
            yield f"the storage of {name} is {port.get('storage')!r}; known are {', '.join(MaseMetadata.known_storage)}"
        if name not in metadata["common"]["args"]:
            yield f"the interface has {name}, which is no argument of the node"


# verify_software_metadata: statistics only of existing arguments and results.


@analysis("Check the software metadata", needs={"metadata"}, menu=False)
def verify_software_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Check that statistics belong to existing arguments and results.

    Raises MetadataError with every broken rule.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_software_metadata_analysis_pass(graph)
    >>> graph, _ = passes.verify_software_metadata_analysis_pass(graph)
    """
    return verify_rule(graph, _check_software)


def _check_software(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
    for part in ("args", "results"):
        known = metadata["common"].get(part, {})
        for name, entry in metadata["software"].get(part, {}).items():
            if name not in known:
                yield f"software has {part} {name}, which the node does not have"
            if not isinstance(entry, dict) or not isinstance(entry.get("stat"), dict):
                yield f"software {part} {name} has no stat"
