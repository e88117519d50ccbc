"""Reports as text: to the log, to a file, and in what a pass gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import fx

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import MaseMetadata
from mase_server.passes.arguments import Result
from mase_server.tools import get_logger

Row = Sequence[Any]


def reported(
    graph: MaseGraph,
    head: Row,
    row: Callable[[fx.Node, MaseMetadata], Row],
    file: str | Path | None = None,
    parts: Iterable[str] = ("common",),
) -> Result:
    """What a report of one row for each node gives: {"rows": one dict for each node, "report": text}.

    parts: the parts of the metadata that it tells; ValueError, with the pass to run, where a node lacks one.
    """
    rows = [tuple(row(node, metadata_or_raise(node, *parts))) for node in graph.nodes]
    report = told(table(head, rows), file)
    return graph, {"rows": [dict(zip(head, each, strict=True)) for each in rows], "report": report}


def metadata_or_raise(node: fx.Node, *parts: str) -> MaseMetadata:
    """A node's metadata. ValueError, with the pass to run, where there is none or one of these parts is empty."""
    found = node.meta.get("mase")
    if not isinstance(found, MaseMetadata):
        raise ValueError(f"node {node.name!r} has no metadata: run init_metadata_analysis_pass first")
    for part in parts:
        if not found[part]:
            raise ValueError(f"node {node.name!r} has no {part} metadata: run add_{part}_metadata_analysis_pass first")
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


def told(text: str, file: str | Path | None) -> str:
    """The text, after it was logged and, where a file is named, written there."""
    get_logger("mase").info(text)
    if file is not None:
        Path(file).write_text(text + "\n", encoding="utf-8")
    return text
