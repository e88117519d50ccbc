"""verify_common_metadata: whole entries, known types, and what sources give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from mase_server.formats import FORMATS
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.ops.types import MASE_TYPES
from mase_server.passes.arguments import Result
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Pass
from mase_server.passes.verify.errors import verified


@analysis
def verify_common_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Every node has an operator, a known type, whole entries, and gets what its source gives.

    Raises MetadataError with every rule that is broken.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.verify_common_metadata_analysis_pass(graph)
    """
    return verified(graph, _common)


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
    if entry.get("type") not in {*MaseMetadata.known_types, *FORMATS}:
        yield f"the type of {where} is {entry.get('type')!r}; known are {', '.join(MaseMetadata.known_types)}"
    elif entry["type"] != "NA" and not _is_precision(entry.get("precision")):
        yield f"the precision of {where} is {entry.get('precision')!r}; it must be a list of whole numbers of bits"
    if not _whole(entry["shape"]) or any(size < 0 for size in entry["shape"]):
        yield f"the shape of {where} is {entry['shape']!r}; it must be a list of whole numbers"
    if "torch_dtype" in entry and not isinstance(entry["torch_dtype"], torch.dtype):
        yield f"the torch_dtype of {where} is {entry['torch_dtype']!r}; it must be a torch.dtype"


def _is_precision(value: Any) -> bool:
    """The width first; what follows may be negative: a point may lie outside of the width."""
    return _whole(value) and len(value) > 0 and value[0] >= 0


def _whole(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)


def _edges(common: Mapping[str, Any]) -> Iterator[str]:
    """An argument has the shape that its source says it gives."""
    for name, entry in common["args"].items():
        source = entry.get("from") if isinstance(entry, dict) else None
        if not isinstance(source, fx.Node) or "mase" not in source.meta:
            continue
        given = [result.get("shape") for result in source.meta["mase"]["common"].get("results", {}).values()]
        if given and entry["shape"] not in given:
            yield f"args {name} has shape {entry['shape']}, but its source {source.name!r} gives {given[0]}"


PASS = Pass(
    name="verify_common_metadata",
    title="Check the common metadata",
    kind="analysis",
    function=verify_common_metadata_analysis_pass,
    needs=frozenset({"metadata"}),
    menu=False,
)
