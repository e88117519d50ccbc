"""load_checkpoint_transform_pass: replaces a graph by the graph and weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.checkpoint import load_module
from mase_server.ir.graph import MaseGraph
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Result, complete_options

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"name": None})


@transform(
    "Take the graph and the weights of a checkpoint",
    arguments=(Argument("name", "file", "the checkpoint's path, without .pt and .mz", required=True),),
    needs={"weights"},
)
def load_checkpoint_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Replace this graph by that of a checkpoint, with its weights; earlier changes to this graph are lost.

    name: `{name}.pt` and `{name}.mz`, as `MaseGraph.export` writes them.  Nothing in the files is executed.
    The checkpoint has to take the same inputs, by name.
    Gives {"nodes": their number now, "weights": the source of their values, in words}.
    Raises CheckpointError for files that cannot be read, ValueError for those of another model.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> graph.export("net")
    >>> graph, found = passes.load_checkpoint_transform_pass(graph, {"name": "net"})
    >>> found
    {'nodes': 3, 'weights': 'weights of net'}
    """
    given = complete_options("load_checkpoint_transform_pass", pass_args, _DEFAULTS)
    if not given["name"]:
        raise ValueError("load_checkpoint needs `name`, the path of a checkpoint without .pt and .mz")
    name = str(given["name"]).removesuffix(".mz").removesuffix(".pt")
    loaded = load_module(name).model
    here, there = _input_names(graph.fx_graph), _input_names(loaded.graph)
    if here != there:
        told = f"it takes {_join_names(there)}, and this model takes {_join_names(here)}"
        raise ValueError(f"{name} is a checkpoint of another model: {told}")
    graph.model = loaded
    return graph, {"nodes": len(loaded.graph.nodes), "weights": f"weights of {Path(name).name}"}


def _input_names(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "placeholder"]


def _join_names(names: list[str]) -> str:
    return ", ".join(names) or "nothing"
