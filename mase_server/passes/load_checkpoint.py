"""load_checkpoint_transform_pass: the graph and the weights of a checkpoint take the place of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import fx

from mase_server.ir.checkpoint import load_module
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Pass

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"name": None})


@transform
def load_checkpoint_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Take the graph of a checkpoint, with its weights, in place of this one, whatever was done to this one before.

    name: `{name}.pt` and `{name}.mz`, as `MaseGraph.export` writes them.  Nothing in the files is executed.
    The checkpoint has to take the same inputs, by name.
    Gives {"nodes": how many there are now, "weights": whose values they are, in words}.
    Raises CheckpointError for files that cannot be read, ValueError for those of another model.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> graph.export("net")
    >>> graph, found = passes.load_checkpoint_transform_pass(graph, {"name": "net"})
    >>> found
    {'nodes': 3, 'weights': 'the weights of the checkpoint net'}
    """
    given = options("load_checkpoint_transform_pass", pass_args, _DEFAULTS)
    if not given["name"]:
        raise ValueError("load_checkpoint needs `name`, the path of a checkpoint without .pt and .mz")
    name = str(given["name"]).removesuffix(".mz").removesuffix(".pt")
    loaded = load_module(name).model
    here, there = _inputs(graph.fx_graph), _inputs(loaded.graph)
    if here != there:
        told = f"it takes {_listed(there)}, and this model takes {_listed(here)}"
        raise ValueError(f"{name} is a checkpoint of another model: {told}")
    graph.model = loaded
    return graph, {"nodes": len(loaded.graph.nodes), "weights": f"the weights of the checkpoint {Path(name).name}"}


def _inputs(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "placeholder"]


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nothing"


PASS = Pass(
    name="load_checkpoint",
    title="Take the graph and the weights of a checkpoint",
    kind="transform",
    function=load_checkpoint_transform_pass,
    arguments=(Argument("name", "file", "the checkpoint's path, without .pt and .mz", required=True),),
    needs=frozenset({"weights"}),
)
