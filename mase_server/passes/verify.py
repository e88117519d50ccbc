"""Passes that check metadata against its own rules and against the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.ops.types import MASE_TYPES
from mase_server.passes.arguments import Result
from mase_server.passes.report import metadata_or_raise

Rule = Callable[[fx.Node, MaseMetadata], Iterator[str]]
_SHOWN = 10
_HARDWARE = (
    "is_implicit", "max_parallelism", "verilog_param", "device_id", "toolchain", "module", "interface",
    "dependence_files",
)  # fmt: skip


class MetadataError(ValueError):
    """Metadata that breaks a rule.

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


def verify_common_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Every node has an operator, a known type, whole entries, and gets what its source gives.

    Raises MetadataError with every rule that is broken.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.verify_common_metadata_analysis_pass(graph)
    """
    return _verified(graph, _common)


def verify_software_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Statistics speak only of arguments and results that there are.

    Raises MetadataError with every rule that is broken.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_software_metadata_analysis_pass(graph)
    >>> graph, _ = passes.verify_software_metadata_analysis_pass(graph)
    """
    return _verified(graph, _software)


def verify_hardware_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Hardware metadata is complete, with known toolchains and storage.

    Raises MetadataError with every rule that is broken.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    >>> graph, _ = passes.verify_hardware_metadata_analysis_pass(graph)
    """
    return _verified(graph, _hardware)


def _verified(graph: MaseGraph, rule: Rule) -> Result:
    problems = [
        f"node {node.name!r}: {problem}" for node in graph.nodes for problem in rule(node, metadata_or_raise(node))
    ]
    if problems:
        raise MetadataError(problems)
    return graph, {}


def _common(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
    common = metadata["common"]
    if not common.get("mase_op"):
        yield "it has no mase_op: run add_common_metadata_analysis_pass first"
        return
    if common.get("mase_type") not in MASE_TYPES:
        yield f"its mase_type is {common.get('mase_type')!r}; known are {', '.join(MASE_TYPES)}"
    for part in ("args", "results"):
        for name, entry in common.get(part, {}).items():
            if isinstance(entry, dict) and "shape" in entry:
                yield from _entry(f"{part} {name}", entry)
    yield from _edges(common)


def _entry(where: str, entry: Mapping[str, Any]) -> Iterator[str]:
    if entry.get("type") not in MaseMetadata.known_types:
        yield f"the type of {where} is {entry.get('type')!r}; known are {', '.join(MaseMetadata.known_types)}"
    elif entry["type"] != "NA" and not _whole(entry.get("precision")):
        yield f"the precision of {where} is {entry.get('precision')!r}; it must be a list of whole numbers of bits"
    if not _whole(entry["shape"], empty=True):
        yield f"the shape of {where} is {entry['shape']!r}; it must be a list of whole numbers"
    if "torch_dtype" in entry and not isinstance(entry["torch_dtype"], torch.dtype):
        yield f"the torch_dtype of {where} is {entry['torch_dtype']!r}; it must be a torch.dtype"


def _whole(value: Any, empty: bool = False) -> bool:
    if not isinstance(value, list | tuple) or not (value or empty):
        return False
    return all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value)


def _edges(common: Mapping[str, Any]) -> Iterator[str]:
    """An argument has the shape that its source says it gives."""
    for name, entry in common["args"].items():
        source = entry.get("from") if isinstance(entry, dict) else None
        if not isinstance(source, fx.Node) or "mase" not in source.meta:
            continue
        given = [result.get("shape") for result in source.meta["mase"]["common"].get("results", {}).values()]
        if given and entry["shape"] not in given:
            yield f"args {name} has shape {entry['shape']}, but its source {source.name!r} gives {given[0]}"


def _software(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
    for part in ("args", "results"):
        known = metadata["common"].get(part, {})
        for name, entry in metadata["software"].get(part, {}).items():
            if name not in known:
                yield f"software has {part} {name}, which the node does not have"
            if not isinstance(entry, dict) or not isinstance(entry.get("stat"), dict):
                yield f"software {part} {name} has no stat"


def _hardware(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
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
