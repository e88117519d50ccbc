"""verify_hardware_metadata: complete, with known toolchains and storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from mase_server.hardware.described import Becomes
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.passes.arguments import Result
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Pass
from mase_server.passes.metadata.add_hardware_metadata import becoming
from mase_server.passes.verify.errors import verified

_HARDWARE = (
    "is_implicit", "max_parallelism", "verilog_param", "device_id", "toolchain", "module", "interface",
    "dependence_files",
)  # fmt: skip


@analysis
def verify_hardware_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Hardware metadata is complete, with known toolchains and storage; what it says of instances is in the netlist.

    Raises MetadataError with every rule that is broken.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    >>> graph, _ = passes.verify_hardware_metadata_analysis_pass(graph)
    """
    folding = graph.meta["mase"]["hardware"].get("folding") if "mase" in graph.meta else None
    becomes = becoming(graph, **folding) if folding else {}

    def rule(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
        yield from _hardware(metadata)
        if "instance" in metadata["hardware"]:
            yield from _as_in_netlist(metadata["hardware"], becomes.get(node.name))

    return verified(graph, rule)


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


def _hardware(metadata: MaseMetadata) -> Iterator[str]:
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


PASS = Pass(
    name="verify_hardware_metadata",
    title="Check the hardware metadata",
    kind="analysis",
    function=verify_hardware_metadata_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
