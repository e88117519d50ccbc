"""measure_error: what a transform cost, node by node."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.arguments import Argument
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.data import DATA, SAMPLES, load
from mase_server.passes.declaration import Pass
from mase_server.passes.error.measuring import GIVES, Errors, measure
from mase_server.passes.error.original import original_of

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"original": None, "data": None, "samples": None, "local": False})


@analysis
def measure_error_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Run a transformed graph beside its original and tell how far every value is from what it was.

    original: a MaseGraph or GraphModule; the graph as it was recorded without it.  data, samples: see `data.load`.
    local: also the error that each node adds by itself, to what the original gives it.

    Writes `software.results.data_out_0.stat.error` of every node that both have. An error is the signal to noise
    ratio in dB, 10 * log10(sum(x**2) / sum((x - y)**2)), infinite where nothing differs, and the largest |x - y|; each
    is None where it is not known.  Gives {"output": (sqnr, max_error) of all outputs together, "outputs": by where the
    tensor is, "nodes": by name, "local": the same, "saturated": by name the share of values outside of what their
    formats hold, "saturation": of all of them, "inputs": on what}.  ValueError for what is not known, and for data
    that do not fit.

    >>> _ = torch.manual_seed(0)
    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(16,10)"})
    >>> graph, found = passes.measure_error_analysis_pass(graph)
    >>> 50 < found["output"].sqnr < 100, found["inputs"]
    (True, 'the example inputs')
    """
    given = options("measure_error_analysis_pass", pass_args, _DEFAULTS)
    data = load(graph, given["data"], given["samples"])
    found = measure(_module(graph, given["original"]), graph.model, *data.feeds(graph), local=bool(given["local"]))
    for node in graph.nodes:
        _write(node, graph, found)
    plain = {name: dict(getattr(found, name)) for name in ("nodes", "local", "outputs")}
    saturation = {"saturated": dict(found.saturated), "saturation": found.saturation}
    return graph, {"output": found.output, **plain, **saturation, "inputs": data.words}


def _module(graph: MaseGraph, original: Any) -> fx.GraphModule:
    if original is None:
        return original_of(graph)
    found = original.model if isinstance(original, MaseGraph) else original
    if not isinstance(found, fx.GraphModule):
        raise ValueError(f"measure_error: original is a {type(original).__name__}, expected a MaseGraph or GraphModule")
    return found


def _write(node: fx.Node, graph: MaseGraph, found: Errors) -> None:
    """Into the node's metadata; a node that was rounded has the error of what its users get."""
    error = found.nodes.get(str(node.meta.get(GIVES, node.name)))
    if error is None or not node.op.startswith("call_"):
        return
    results = metadata_of(node, graph.module)["software"].setdefault("results", {})
    results.setdefault("data_out_0", {}).setdefault("stat", {})["error"] = error._asdict()


PASS = Pass(
    name="measure_error",
    title="Measure the error against the original",
    kind="analysis",
    function=measure_error_analysis_pass,
    arguments=(DATA, SAMPLES, Argument("local", "boolean", "also the error that each node adds by itself", False)),
    needs=frozenset({"weights", "data"}),
)
