"""What a model loses as hardware: the error of its outputs, and the values that its formats do not hold."""

from __future__ import annotations

import math
from typing import Any

from mase_server.hardware.lowering import Lowering
from mase_server.ir.graph import MaseGraph
from mase_server.passes.data import load
from mase_server.passes.error import measure, original_of
from mase_server.passes.verilog.as_hardware import compute_as_hardware


def accuracy_of(graph: MaseGraph, lowering: Lowering, data: str) -> dict[str, Any]:
    """A map of `building.ACCURACY_KEYS` but for `calibrated`; the graph computes as the hardware does afterwards.

    graph: as it was lowered.  data: what it is run on, as `data.load` has it; "" for None.  Saturated values are
    counted in the quantised graph; the error is that of the integers of the hardware, whose softmax, norms and tables
    round in their own ways. Operators without hardware count as they are.
    """
    found: dict[str, Any] = dict.fromkeys(("sqnr", "max_error", "saturated", "inputs", "problem"))
    try:
        original, batches = original_of(graph), load(graph, data or None)
        feeds = list(batches.feeds(graph))
        saturated = measure(original, graph.model, *feeds).saturation
        compute_as_hardware(graph, lowering)
        whole = measure(original, graph.model, *feeds).output
    except Exception as error:  # noqa: BLE001 - the border to the person's model, run on inputs that it may refuse
        return {**found, "problem": f"{type(error).__name__}: {error}".partition("\n")[0]}
    sqnr = "inf" if whole.sqnr == math.inf else whole.sqnr
    return {**found, "sqnr": sqnr, "max_error": whole.max_error, "saturated": saturated, "inputs": batches.words}
