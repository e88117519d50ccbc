"""emit_verilog_top: a quantised graph as a folder of SystemVerilog, with its simulation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mase_server.hardware.design import Design
from mase_server.hardware.emission import emit, random_inputs
from mase_server.hardware.folding import fold
from mase_server.hardware.lowering import lower
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass

_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"folder": None, "name": None, "multipliers": None, "interval": None, "vectors": 100}
)


@analysis
def emit_verilog_top_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Write a quantised graph as SystemVerilog that computes the same integers, with a simulation that compares them.

    The graph's values have to be rounded to signed fixed point, e.g. by quantize with `fixed(8,4)`.
    folder: where to write; nothing is written without it.  name: of the top module, else the model's.  multipliers: at
    most so many.  interval: at most so many cycles from one sample to the next.  vectors: random samples for the
    simulation.  Gives {"module", "multipliers", "interval", "files": text by relative path}.
    ValueError for a node without hardware, which is named with what would be needed, and where multipliers and interval
    cannot both be kept.  Source: `chop.passes.graph.transforms.verilog.emit_verilog_top_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    >>> _, found = passes.emit_verilog_top_analysis_pass(graph, {"name": "Tiny", "multipliers": 4})
    >>> found["module"], found["multipliers"], found["interval"]
    ('tiny', 4, 2)
    """
    given = options("emit_verilog_top_analysis_pass", pass_args, _DEFAULTS)
    design = lower(graph)
    _check(design)
    folding = fold(design, interval=given["interval"], multipliers=given["multipliers"])
    name = given["name"] or type(graph.root).__name__
    emitted = emit(design, folding, name, random_inputs(design, given["vectors"]))
    if given["folder"] is not None:
        emitted.write(Path(given["folder"]))
    figures = {"multipliers": folding.multipliers, "interval": folding.interval}
    return graph, {"module": emitted.name, **figures, "files": dict(emitted.files)}


def _check(design: Design) -> None:
    """ValueError with every node that has no hardware."""
    if design.unsupported:
        told = "; ".join(f"{each.node} ({each.operator}): {each.why}" for each in design.unsupported)
        raise ValueError(f"emit_verilog_top: {len(design.unsupported)} nodes have no hardware: {told}")


PASS = Pass(
    name="emit_verilog_top",
    title="Emit Verilog",
    kind="analysis",
    function=emit_verilog_top_analysis_pass,
    arguments=(
        Argument("folder", "file", "Where to write the folder."),
        Argument("name", "text", "The top module's name; the model's by default."),
        Argument("multipliers", "integer", "At most so many multipliers.", minimum=1),
        Argument("interval", "integer", "At most so many cycles from one sample to the next.", minimum=1),
        Argument("vectors", "integer", "Random samples for the simulation.", default=100, minimum=1),
    ),
    needs=frozenset({"weights"}),
    menu=False,
)
