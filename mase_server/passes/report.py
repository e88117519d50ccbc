"""Passes that report on a graph as text: to the log, to a file, and in what they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.ops.cost import parameters_of
from mase_server.passes.arguments import Result, options
from mase_server.tools import get_logger

_FILE: Mapping[str, Any] = MappingProxyType({"file_name": None})
_META: Mapping[str, Any] = MappingProxyType({"which": ("all",), "save_path": None})
PARTS = ("common", "hardware", "software")

Row = Sequence[Any]


def report_graph_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _FILE) -> Result:
    """How many nodes of each fx kind, the modules called, parameters and FLOPs.

    file_name: write the report there.  Gives {"nodes": count by kind, "modules": count by class, "parameters",
    "flops", "report": text}.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> _, found = passes.report_graph_analysis_pass(graph)
    >>> print(found["report"])
    Graph summary
    nodes: 4 (1 placeholder, 2 call_module, 1 output)
    modules: 1 Linear, 1 ReLU
    parameters: 10 (40 bytes)
    operations: 54 FLOPs, 160 bytes moved
    """
    given = options("report_graph_analysis_pass", pass_args, _FILE)
    kinds = Counter(node.op for node in graph.nodes)
    modules = Counter(
        type(graph.modules[str(node.target)]).__name__ for node in graph.nodes if node.op == "call_module"
    )
    count, size = parameters_of(graph.module)
    total = graph.scope_costs()[""]
    lines = [
        "Graph summary",
        f"nodes: {sum(kinds.values())} ({_counts(kinds)})",
        f"modules: {_counts(modules) or 'none'}",
        f"parameters: {count:,} ({size:,} bytes)",
        f"operations: {total.flops:,} FLOPs, {total.bytes:,} bytes moved",
    ]
    text = _told("\n".join(lines), given["file_name"])
    found = {"nodes": dict(kinds), "modules": dict(modules), "parameters": count, "flops": total.flops}
    return graph, {**found, "report": text}


def report_node_type_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: fx's operation and target, MASE's operator and type.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_type_analysis_pass(graph)
    >>> [row["mase_type"] for row in found["rows"]]
    ['placeholder', 'module_related_func', 'module_related_func', 'output']
    """
    head = ("name", "fx op", "target", "mase_op", "mase_type")
    return _table(graph, head, lambda node, metadata: (
        node.name, node.op, _target(node), metadata["common"].get("mase_op"), metadata["common"].get("mase_type"),
    ))  # fmt: skip


def report_node_shape_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: the shapes of its arguments and results.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_shape_analysis_pass(graph)
    >>> found["rows"][2]
    {'name': '_1', 'mase_op': 'relu', 'inputs': 'data_in_0 [3, 2]', 'outputs': 'data_out_0 [3, 2]'}
    """
    head = ("name", "mase_op", "inputs", "outputs")
    return _table(graph, head, lambda node, metadata: (
        node.name, metadata["common"].get("mase_op"), _shapes(metadata, "args"), _shapes(metadata, "results"),
    ))  # fmt: skip


def report_node_hardware_type_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """A table of every node: the hardware that it becomes.

    Gives {"rows": one dict for each node, "report": text}.  Raises ValueError where nodes have no metadata.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph)
    >>> _, found = passes.report_node_hardware_type_analysis_pass(graph)
    >>> [row["module"] for row in found["rows"]]
    [None, 'fixed_linear', 'fixed_relu', None]
    """
    head = ("name", "fx op", "mase_op", "implicit", "toolchain", "module", "device")
    keys = ("is_implicit", "toolchain", "module", "device_id")
    return _table(graph, head, lambda node, metadata: (
        node.name, node.op, metadata["common"].get("mase_op"), *(metadata["hardware"].get(key) for key in keys),
    ))  # fmt: skip


def report_node_meta_param_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _META) -> Result:
    """The whole metadata of every node.

    which: some of "common", "hardware", "software", or "all".  save_path: write the report there.
    Gives {"rows": one dict for each node, "report": text}.
    Raises ValueError for another part.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> _, found = passes.report_node_meta_param_analysis_pass(graph, {"which": ["software"]})
    >>> list(found["rows"][0])
    ['name', 'fx op', 'mase_op', 'mase_type', 'software']
    """
    given = options("report_node_meta_param_analysis_pass", pass_args, _META)
    wanted = _parts(given["which"])
    head = ("name", "fx op", "mase_op", "mase_type", *wanted)
    return _table(graph, head, lambda node, metadata: (
        node.name, node.op, metadata["common"].get("mase_op"), metadata["common"].get("mase_type"),
        *(tree(metadata[part]) for part in wanted),
    ), given["save_path"])  # fmt: skip


def _parts(which: Iterable[str]) -> tuple[str, ...]:
    asked = (which,) if isinstance(which, str) else tuple(which)
    for part in asked:
        if part not in (*PARTS, "all"):
            raise ValueError(f"which has {part!r}; the parts of metadata are {', '.join(PARTS)}, or all")
    return PARTS if "all" in asked else tuple(part for part in PARTS if part in asked)


def _table(
    graph: MaseGraph, head: Row, row: Callable[[fx.Node, MaseMetadata], Row], file: str | Path | None = None
) -> Result:
    """Gives {"rows": one dict for each node, "report": text}."""
    rows = [tuple(row(node, metadata_or_raise(node))) for node in graph.nodes]
    report = _told(table(head, rows), file)
    return graph, {"rows": [dict(zip(head, each, strict=True)) for each in rows], "report": report}


def metadata_or_raise(node: fx.Node) -> MaseMetadata:
    """A node's metadata. Raises ValueError where there is none."""
    found = node.meta.get("mase")
    if not isinstance(found, MaseMetadata):
        raise ValueError(f"node {node.name!r} has no metadata: run init_metadata_analysis_pass first")
    return found


def table(head: Row, rows: Iterable[Row]) -> str:
    """Columns of text, padded to the widest cell of each."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def tree(value: Any) -> str:
    """Nested metadata in one line; values are not computed for it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {tree(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(tree, value)) + "]"
    return str(value).removeprefix("torch.") if len(str(value)) < 200 else type(value).__name__


def _told(text: str, file: str | Path | None) -> str:
    get_logger("mase").info(text)
    if file is not None:
        Path(file).write_text(text + "\n", encoding="utf-8")
    return text


def _counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.items())


def _target(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", type(node.target).__name__)


def _shapes(metadata: MaseMetadata, part: str) -> str:
    entries = metadata["common"].get(part, {})
    shaped = ((name, entry["shape"]) for name, entry in entries.items() if isinstance(entry, dict) and "shape" in entry)
    return ", ".join(f"{name} {shape}" for name, shape in shaped)
