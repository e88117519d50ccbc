"""verify_software_metadata: statistics only of what there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.passes.arguments import Result
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Pass
from mase_server.passes.verify.errors import verified


@analysis
def verify_software_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Statistics speak only of arguments and results that there are.

    Raises MetadataError with every rule that is broken.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_software_metadata_analysis_pass(graph)
    >>> graph, _ = passes.verify_software_metadata_analysis_pass(graph)
    """
    return verified(graph, _software)


def _software(node: fx.Node, metadata: MaseMetadata) -> Iterator[str]:
    for part in ("args", "results"):
        known = metadata["common"].get(part, {})
        for name, entry in metadata["software"].get(part, {}).items():
            if name not in known:
                yield f"software has {part} {name}, which the node does not have"
            if not isinstance(entry, dict) or not isinstance(entry.get("stat"), dict):
                yield f"software {part} {name} has no stat"


PASS = Pass(
    name="verify_software_metadata",
    title="Check the software metadata",
    kind="analysis",
    function=verify_software_metadata_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
