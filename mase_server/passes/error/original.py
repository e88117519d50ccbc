"""The graph that a transformed one was made from."""

from __future__ import annotations

from torch import fx

from mase_server.ir.build import GraphBuilder, executable
from mase_server.ir.graph import MaseGraph


def original_of(graph: MaseGraph) -> fx.GraphModule:
    """The graph as it was recorded, with the same names of nodes, over the model's own parameters.

    ValueError for a graph that was not recorded here.
    """
    recording = graph.recording
    if recording is None:
        name = type(graph.root).__name__
        raise ValueError(f"{name} was given as a graph, so that its original is not known: keep a copy, and pass that")
    built = GraphBuilder(recording.run, recording.probed).build()
    return executable(built, graph.root, recording.run.constants)
