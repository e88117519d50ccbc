"""report_node_meta_param: the whole metadata of every node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.report.tables import reported, tree

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"which": ("all",), "save_path": None})
PARTS = ("common", "hardware", "software")


@analysis
def report_node_meta_param_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """The whole metadata of every node.

    which: some of "common", "hardware", "software", or "all".  save_path: write the report there.
    Gives {"rows": one dict for each node, "report": text}.
    Raises ValueError for another part, and where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_meta_param_analysis_pass(graph, {"which": ["software"]})
    >>> list(found["rows"][0])
    ['name', 'fx op', 'mase_op', 'mase_type', 'software']
    """
    given = options("report_node_meta_param_analysis_pass", pass_args, _DEFAULTS)
    wanted = _parts(given["which"])
    head = ("name", "fx op", "mase_op", "mase_type", *wanted)
    return reported(graph, head, lambda node, metadata: (
        node.name, node.op, metadata["common"].get("mase_op"), metadata["common"].get("mase_type"),
        *(tree(metadata[part]) for part in wanted),
    ), given["save_path"], ("common", *(part for part in given["which"] if part == "hardware")))  # fmt: skip


def _parts(which: Iterable[str]) -> tuple[str, ...]:
    asked = (which,) if isinstance(which, str) else tuple(which)
    for part in asked:
        if part not in (*PARTS, "all"):
            raise ValueError(f"which has {part!r}; the parts of metadata are {', '.join(PARTS)}, or all")
    return PARTS if "all" in asked else tuple(part for part in PARTS if part in asked)


PASS = Pass(
    name="report_node_meta_param",
    title="Report the metadata of every node",
    kind="analysis",
    function=report_node_meta_param_analysis_pass,
    arguments=(
        Argument("which", "texts", "some of common, hardware, software, or all", default=["all"]),
        Argument("save_path", "file", "where to write the report too"),
    ),
    needs=frozenset({"metadata"}),
    menu=False,
)
