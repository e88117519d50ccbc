"""report_graph: nodes by kind, modules by class, parameters and operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.ops.cost import parameters_of, trainable_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.report.tables import told

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"file_name": None})


@analysis
def report_graph_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """How many nodes of each fx kind, the modules called, parameters and FLOPs.

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
    given = options("report_graph_analysis_pass", pass_args, _DEFAULTS)
    kinds = Counter(node.op for node in graph.nodes)
    modules = Counter(
        type(graph.modules[str(node.target)]).__name__ for node in graph.nodes if node.op == "call_module"
    )
    count, size = parameters_of(graph.module)
    trainable = trainable_of(graph.module)
    total = graph.scope_costs()[""]
    lines = [
        "Graph summary",
        f"nodes: {sum(kinds.values())} ({_counts(kinds)})",
        f"modules: {_counts(modules) or 'none'}",
        f"parameters: {count:,} ({size:,} bytes)" + (f", {trainable:,} trainable" if trainable != count else ""),
        f"operations: {total.flops:,} FLOPs, {total.bytes:,} bytes moved",
    ]
    text = told("\n".join(lines), given["file_name"])
    found = {"nodes": dict(kinds), "modules": dict(modules), "parameters": count, "trainable": trainable}
    return graph, {**found, "flops": total.flops, "report": text}


def _counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.items())


PASS = Pass(
    name="report_graph",
    title="Report on the graph",
    kind="analysis",
    function=report_graph_analysis_pass,
    arguments=(Argument("file_name", "file", "where to write the report too"),),
    menu=False,
)
