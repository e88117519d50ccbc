"""Which layer a node calls, and how often."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from mase_server.ir.build import attribute


def calls_by_path(graph: fx.Graph) -> dict[str, int]:
    """How often each module is called, by its path."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            found[str(node.target)] = found.get(str(node.target), 0) + 1
    return found


def layer_of(node: Any, module: nn.Module) -> Any:
    """The module that a node calls; None for any other node, and for what is none."""
    is_call = isinstance(node, fx.Node) and node.op == "call_module"
    return attribute(module, str(node.target)) if is_call else None
