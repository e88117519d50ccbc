"""verify_hardware_metadata: complete, with known toolchains and storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.passes.arguments import Result
from mase_server.passes.declaration import Pass
from mase_server.passes.verify.errors import verified

_HARDWARE = (
    "is_implicit", "max_parallelism", "verilog_param", "device_id", "toolchain", "module", "interface",
    "dependence_files",
)  # fmt: skip


def verify_hardware_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Hardware metadata is complete, with known toolchains and storage.

    Raises MetadataError with every rule that is broken.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    >>> graph, _ = passes.verify_hardware_metadata_analysis_pass(graph)
    """
    return verified(graph, _hardware)


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


PASS = Pass(
    name="verify_hardware_metadata",
    title="Check the hardware metadata",
    kind="analysis",
    function=verify_hardware_metadata_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
