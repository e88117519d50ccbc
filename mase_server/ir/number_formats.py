"""Which number format every node's result is in, told by the graph alone: by the roundings that stand in it."""

from __future__ import annotations

import operator
from typing import Any

from torch import fx, nn

from mase_server.formats import NumberFormat, parse, quantise, with_parameters
from mase_server.ir.build import attribute, underlying
from mase_server.ops.table import op_info

#: Operators that move or choose elements: what comes out is in the format of what went in.
MOVES = frozenset(
    {
        "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "contiguous",
        "getitem", "chunk", "split", "unbind", "expand", "repeat", "repeat_interleave", "tile", "cat", "stack",
        "select", "narrow", "flip", "roll", "t", "clone", "detach", "identity", "index_select", "gather",
        "swapaxes", "movedim", "round_gradient",
        "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    }
)  # fmt: skip

#: Operators that do nothing to data in eval mode.
_DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})

Formats = dict[fx.Node, NumberFormat]


def number_formats(graph: fx.Graph, model: nn.Module) -> Formats:
    """The format of every node whose result is rounded, moved from something rounded, or at once rounded by all users.

    The last is what a quantised operator gives: its accumulator is nobody's business but its own.
    """
    found: Formats = {}
    for node in graph.nodes:
        text = format_text(node)
        if text is not None:
            found[node] = parse(text)
        elif moves(node, model):
            sources = {found.get(source) for source in node.all_input_nodes if _is_data(source, node)}
            if len(sources) == 1 and (format := sources.pop()) is not None:
                found[node] = format
    for node in graph.nodes:
        texts = {format_text(user) for user in node.users}
        text = texts.pop() if len(texts) == 1 else None
        if text is not None and node not in found and node.op not in ("get_attr", "placeholder"):
            found[node] = parse(text)
    return found


def part_formats(formats: Formats) -> dict[tuple[fx.Node, tuple[Any, ...]], NumberFormat]:
    """The formats of parts of tuples: (node, where in it) -> that of what is picked there."""
    found: dict[tuple[fx.Node, tuple[Any, ...]], NumberFormat] = {}
    for picked, format in formats.items():
        node, path = picked, tuple[Any, ...]()
        while node.target is operator.getitem and isinstance(key := node.args[1], int | str):
            node, path = node.all_input_nodes[0], (key, *path)
            found[node, path] = format
    return found


def format_text(node: fx.Node) -> str | None:
    """The format that a node rounds to; None for any other node."""
    if node.op != "call_function" or node.target is not quantise:
        return None
    return str(node.args[1] if len(node.args) > 1 else node.kwargs["format"])


def operator_of(node: fx.Node, model: nn.Module) -> str:
    """MASE's name of a node's operator."""
    layer = node.args[0] if node.target is with_parameters else node
    if isinstance(layer, fx.Node) and (layer is not node or node.op == "call_module"):
        module = attribute(model, str(layer.target))
        return op_info("call_module", module, module).mase_op
    return op_info(node.op, underlying(node.target)).mase_op


def moves(node: fx.Node, model: nn.Module) -> bool:
    """Does a node only move or choose elements? A dropout does in eval mode, being nothing then."""
    operator_ = operator_of(node, model)
    return operator_ in MOVES or (operator_ in _DROPOUTS and not _is_training(node, model))


def _is_training(node: fx.Node, model: nn.Module) -> bool:
    if node.op == "call_module":
        return bool(attribute(model, str(node.target)).training)
    return bool(node.kwargs.get("training", node.args[2] if len(node.args) > 2 else True))


def rounded_to(node: fx.Node, model: nn.Module) -> str | None:
    """The format that a value is in already, being rounded or moved from something rounded; None for none."""
    while (text := format_text(node)) is None and moves(node, model):
        sources = [source for source in node.all_input_nodes if _is_data(source, node)]
        if len(sources) != 1:
            return None
        node = sources[0]
    return text


def _is_data(source: fx.Node, node: fx.Node) -> bool:
    """Is this argument what is moved, not a size or an index? The first one is, and what stands in a first list."""
    first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    return source is first or (isinstance(first, list | tuple) and source in first)
