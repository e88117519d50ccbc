"""plot_graph: a drawing of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mase_server.ir.draw import draw
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"file_name": "mase_graph.svg", "colours": "family"})
_COLOURS = ("family", "format")


@analysis
def plot_graph_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Draw the graph as SVG: boxes for scopes, shapes on the edges, and number formats in place of element types.

    file_name: where to.  colours: what boxes are coloured by, the "family" of the operator or the number "format" of
    the result.
    Gives {"file": the absolute path, "nodes": how many were drawn}.  ValueError for other colours; ImportError where
    igraph is not installed, which lays it out: `pip install mase-server[draw]`; OSError where the file cannot be
    written.  Source: `chop.passes.graph.analysis.plot.plot_graph_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> _, found = passes.plot_graph_analysis_pass(graph)
    >>> found["nodes"]
    4
    """
    given = options("plot_graph_analysis_pass", pass_args, _DEFAULTS)
    if given["colours"] not in _COLOURS:
        raise ValueError(f"plot_graph: colours is {given['colours']!r}, expected {' or '.join(_COLOURS)}")
    file = Path(given["file_name"] or _DEFAULTS["file_name"]).absolute()
    draw(graph, file, given["colours"])
    return graph, {"file": str(file), "nodes": len(graph.nodes)}


PASS = Pass(
    name="plot_graph",
    title="Draw the graph",
    kind="analysis",
    function=plot_graph_analysis_pass,
    arguments=(
        Argument("file_name", "file", "the SVG file to write", "mase_graph.svg"),
        Argument("colours", "choice", "what boxes are coloured by", "family", choices=_COLOURS),
    ),
)
