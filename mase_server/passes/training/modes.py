"""Graphs that follow `train()` and `eval()`, where a recording knows only the mode it was made in."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx, nn

from mase_server.ir.build import underlying
from mase_server.ir.graph import MaseGraph
from mase_server.ir.recording import record
from mase_server.tracing.calls import Call


def follow_mode(graph: MaseGraph) -> list[str]:
    """Let numbers that differ between training and evaluation follow the graph module's own mode; the nodes changed.

    Functions with a flag `training` take the module's; other flags and shares, such as the dropout of attention, are
    looked up in a recording in the other mode, if it makes the same calls. Layers with a mode of their own follow it
    anyway.
    """
    other = _other_mode(graph)
    place = _Place(graph.fx_graph)
    changed = []
    for node in graph.nodes:
        twin = other[call] if (call := node.meta.get("call")) is not None and call < len(other) else None
        if node.op == "call_function" and _follows(node, twin, place, graph.root.training):
            changed.append(node.name)
    return changed


class _Place:
    """The node that reads the mode, made when the first one asks."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.made: fx.Node | None = next((node for node in graph.nodes if _reads_mode(node)), None)

    def mode(self) -> fx.Node:
        """The node."""
        if self.made is not None:
            return self.made
        with self.graph.inserting_before(_first(self.graph)):
            made: fx.Node = self.graph.create_node("get_attr", "training")
        self.made = made
        return made


def _reads_mode(node: fx.Node) -> bool:
    return node.op == "get_attr" and node.target == "training"


def _first(graph: fx.Graph) -> fx.Node:
    found: fx.Node = next(node for node in graph.nodes if node.op != "placeholder")
    return found


def _follows(node: fx.Node, twin: Call | None, place: _Place, training: bool) -> bool:
    """Change a node's constants; twin: the same call in the other mode."""
    known = twin is not None and underlying(node.target) is twin.target
    args, kwargs = (twin.args, twin.kwargs) if known and twin is not None else ((), {})
    followed: dict[int | str, Any] = {
        index: there for index, (here, there) in enumerate(zip(node.args, args, strict=False)) if _differ(here, there)
    }
    followed |= {name: there for name, there in kwargs.items() if _differ(node.kwargs.get(name), there)}
    if isinstance(node.kwargs.get("training"), bool):
        followed["training"] = not training
    for key, other in followed.items():
        _set(node, key, other, place, training)
    return bool(followed)


def _differ(here: Any, there: Any) -> bool:
    return type(here) is type(there) and isinstance(here, bool | float) and here != there


def _set(node: fx.Node, key: int | str, other: Any, place: _Place, training: bool) -> None:
    own = node.args[key] if isinstance(key, int) else node.kwargs[key]
    in_training, otherwise = (own, other) if training else (other, own)
    value = place.mode()
    if (in_training, otherwise) != (True, False):
        with node.graph.inserting_before(node):
            value = node.graph.call_function(operator.getitem, ((otherwise, in_training), value))
    if isinstance(key, int):
        node.update_arg(key, value)
    else:
        node.update_kwarg(key, value)


def _other_mode(graph: MaseGraph) -> list[Call]:
    """The calls of a recording in the other mode; none where that cannot be made, or makes other calls."""
    if graph.recording is None:
        return []
    try:
        with _switched(graph.root):
            found = record(graph.root, graph.arguments, graph.custom_ops).run.calls
    except Exception:  # noqa: BLE001 - a model may refuse the other mode; flags are followed all the same
        return []
    same = [(call.kind, call.target) for call in found] == [
        (call.kind, call.target) for call in graph.recording.run.calls
    ]
    return found if same else []


@contextmanager
def _switched(model: nn.Module) -> Iterator[None]:
    before = {module: module.training for module in model.modules()}
    model.train(not model.training)
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
