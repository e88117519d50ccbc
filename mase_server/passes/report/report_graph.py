"""Passes that report on a graph: its summary, tables of its nodes, and a drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.draw import draw
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.ops.table import parameters_of, trainable_of
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Result, complete_options
from mase_server.tools import get_logger

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"file_name": None})


@analysis("Report on the graph", arguments=(Argument("file_name", "file", "file to write the report to"),), menu=False)
def report_graph_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Count the nodes of each fx kind, the called modules, parameters and FLOPs.

    file_name: write the report there.  Gives {"nodes": count by kind, "modules": count by class, "parameters",
    "trainable": of these, elements that learn, "flops", "report": text}.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> _, found = passes.report_graph_analysis_pass(graph)
    >>> print(found["report"])
    Graph summary
    nodes: 4 (1 placeholder, 2 call_module, 1 output)
    modules: 1 Linear, 1 ReLU
    parameters: 10 (40 bytes)
    operations: 54 FLOPs, 160 bytes moved
    """
    given = complete_options("report_graph_analysis_pass", pass_args, _DEFAULTS)
    kinds = Counter(node.op for node in graph.nodes)
    modules = Counter(
        type(graph.modules[str(node.target)]).__name__ for node in graph.nodes if node.op == "call_module"
    )
    count, size = parameters_of(graph.module)
    trainable = trainable_of(graph.module)
    total = graph.scope_costs()[""]
    lines = [
        "Graph summary",
        f"nodes: {sum(kinds.values())} ({_counts_text(kinds)})",
        f"modules: {_counts_text(modules) or 'none'}",
        f"parameters: {count:,} ({size:,} bytes)" + (f", {trainable:,} trainable" if trainable != count else ""),
        f"operations: {total.flops:,} FLOPs, {total.bytes:,} bytes moved",
    ]
    text = log_report("\n".join(lines), given["file_name"])
    found = {"nodes": dict(kinds), "modules": dict(modules), "parameters": count, "trainable": trainable}
    return graph, {**found, "flops": total.flops, "report": text}


def _counts_text(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.items())


# Reports as text: to the log, to a file, and in a pass's findings.

Row = Sequence[Any]


def report_nodes(
    graph: MaseGraph,
    head: Row,
    row: Callable[[fx.Node, MaseMetadata], Row],
    file: str | Path | None = None,
    parts: Iterable[str] = ("common",),
) -> Result:
    """The findings of a report with one row for each node: {"rows": one dict for each node, "report": text}.

    parts: the parts of the metadata that it shows; ValueError, naming the pass to run, if a node lacks one.
    """
    rows = [tuple(row(node, metadata_or_raise(node, *parts))) for node in graph.nodes]
    report = log_report(format_table(head, rows), file)
    return graph, {"rows": [dict(zip(head, each, strict=True)) for each in rows], "report": report}


def metadata_or_raise(node: fx.Node, *parts: str) -> MaseMetadata:
    """A node's metadata. ValueError, naming the pass to run, if there is none or one of these parts is empty."""
    found = node.meta.get("mase")
    if not isinstance(found, MaseMetadata):
        raise ValueError(f"node {node.name!r} has no metadata: run init_metadata_analysis_pass first")
    for part in parts:
        if not found[part]:
            raise ValueError(f"node {node.name!r} has no {part} metadata: run add_{part}_metadata_analysis_pass first")
    return found


def format_table(head: Row, rows: Iterable[Row]) -> str:
    """Columns of text, padded to the widest cell of each."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def format_tree(value: Any) -> str:
    """Nested metadata in one line; no values are computed for it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {format_tree(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_tree, value)) + "]"
    return str(value).removeprefix("torch.") if len(str(value)) < 200 else type(value).__name__


def log_report(text: str, file: str | Path | None) -> str:
    """Log the text, write it to the file if one is named, and return it."""
    get_logger("mase").info(text)
    if file is not None:
        Path(file).write_text(text + "\n", encoding="utf-8")
    return text


# report_node_type: fx operation, target, MASE operator and type of every node.


@analysis("Report the operator and type of every node", needs={"metadata"}, menu=False)
def report_node_type_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: fx's operation and target, MASE's operator and type.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_type_analysis_pass(graph)
    >>> [row["mase_type"] for row in found["rows"]]
    ['placeholder', 'module_related_func', 'module_related_func', 'output']
    """
    head = ("name", "fx op", "target", "mase_op", "mase_type")
    return report_nodes(graph, head, lambda node, metadata: (
        node.name, node.op, _target_text(node), metadata["common"].get("mase_op"), metadata["common"].get("mase_type"),
    ))  # fmt: skip


def _target_text(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", type(node.target).__name__)


# report_node_shape: shapes of the arguments and results of every node.


@analysis("Report the shapes of every node", needs={"metadata"}, menu=False)
def report_node_shape_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: the shapes of its arguments and results.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_shape_analysis_pass(graph)
    >>> found["rows"][2]
    {'name': '_1', 'mase_op': 'relu', 'inputs': 'data_in_0 [3, 2]', 'outputs': 'data_out_0 [3, 2]'}
    """
    head = ("name", "mase_op", "inputs", "outputs")
    return report_nodes(graph, head, lambda node, metadata: (
        node.name, metadata["common"].get("mase_op"), _shapes_text(metadata, "args"), _shapes_text(metadata, "results"),
    ))  # fmt: skip


def _shapes_text(metadata: MaseMetadata, part: str) -> str:
    entries = metadata["common"].get(part, {})
    shaped = ((name, entry["shape"]) for name, entry in entries.items() if isinstance(entry, dict) and "shape" in entry)
    return ", ".join(f"{name} {shape}" for name, shape in shaped)


# report_node_hardware_type: the hardware of every node.


@analysis("Report the hardware of every node", needs={"metadata"}, menu=False)
def report_node_hardware_type_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: its hardware.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    >>> _, found = passes.report_node_hardware_type_analysis_pass(graph)
    >>> [row["module"] for row in found["rows"]]
    [None, 'fixed_linear', 'fixed_relu', None]
    """
    head = ("name", "fx op", "mase_op", "implicit", "toolchain", "module", "device")
    keys = ("is_implicit", "toolchain", "module", "device_id")
    return report_nodes(graph, head, lambda node, metadata: (
        node.name, node.op, metadata["common"].get("mase_op"), *(metadata["hardware"].get(key) for key in keys),
    ), parts=("common", "hardware"))  # fmt: skip


# report_node_meta_param: the whole metadata of every node.

_REPORT_NODE_META_PARAM_DEFAULTS: Mapping[str, Any] = MappingProxyType({"which": ("all",), "save_path": None})
PARTS = ("common", "hardware", "software")


@analysis(
    "Report the metadata of every node",
    arguments=(
        Argument("which", "texts", "some of common, hardware, software, or all", default=["all"]),
        Argument("save_path", "file", "file to write the report to"),
    ),
    needs={"metadata"},
    menu=False,
)
def report_node_meta_param_analysis_pass(
    graph: MaseGraph, pass_args: Mapping[str, Any] = _REPORT_NODE_META_PARAM_DEFAULTS
) -> Result:
    """The whole metadata of every node.

    which: some of "common", "hardware", "software", or "all".  save_path: write the report there.
    Gives {"rows": one dict for each node, "report": text}.
    Raises ValueError for another part, and where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_meta_param_analysis_pass(graph, {"which": ["software"]})
    >>> list(found["rows"][0])
    ['name', 'fx op', 'mase_op', 'mase_type', 'software']
    """
    given = complete_options("report_node_meta_param_analysis_pass", pass_args, _REPORT_NODE_META_PARAM_DEFAULTS)
    wanted = _wanted_parts(given["which"])
    head = ("name", "fx op", "mase_op", "mase_type", *wanted)
    return report_nodes(graph, head, lambda node, metadata: (
        node.name, node.op, metadata["common"].get("mase_op"), metadata["common"].get("mase_type"),
        *(format_tree(metadata[part]) for part in wanted),
    ), given["save_path"], ("common", *(part for part in given["which"] if part == "hardware")))  # fmt: skip


def _wanted_parts(which: Iterable[str]) -> tuple[str, ...]:
    asked = (which,) if isinstance(which, str) else tuple(which)
    for part in asked:
        if part not in (*PARTS, "all"):
            raise ValueError(f"which has {part!r}; the parts of metadata are {', '.join(PARTS)}, or all")
    return PARTS if "all" in asked else tuple(part for part in PARTS if part in asked)


# plot_graph: a drawing of the graph.

_PLOT_GRAPH_DEFAULTS: Mapping[str, Any] = MappingProxyType({"file_name": "mase_graph.svg", "colours": "family"})
_COLOURS = ("family", "format")


@analysis(
    "Draw the graph",
    arguments=(
        Argument("file_name", "file", "the SVG file to write", "mase_graph.svg"),
        Argument("colours", "choice", "what decides a box's colour", "family", choices=_COLOURS),
    ),
)
def plot_graph_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _PLOT_GRAPH_DEFAULTS) -> Result:
    """Draw the graph as SVG: boxes for scopes, shapes on the edges, and number formats in place of element types.

    file_name: the file.  colours: what decides a box's colour, the "family" of the operator or the number "format" of
    the result.
    Gives {"file": the absolute path, "nodes": number of nodes drawn}.  ValueError for other colours; ImportError where
    igraph is not installed, which lays it out: `pip install mase-server[draw]`; OSError where the file cannot be
    written.  Source: `chop.passes.graph.analysis.plot.plot_graph_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> _, found = passes.plot_graph_analysis_pass(graph)
    >>> found["nodes"]
    4
    """
    given = complete_options("plot_graph_analysis_pass", pass_args, _PLOT_GRAPH_DEFAULTS)
    if given["colours"] not in _COLOURS:
        raise ValueError(f"plot_graph: colours is {given['colours']!r}, expected {' or '.join(_COLOURS)}")
    file = Path(given["file_name"] or _PLOT_GRAPH_DEFAULTS["file_name"]).absolute()
    draw(graph, file, given["colours"])
    return graph, {"file": str(file), "nodes": len(graph.nodes)}
