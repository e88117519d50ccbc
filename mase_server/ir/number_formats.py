"""The number format of every node's result, read from the graph alone: from its roundings.

A value is in a format if it was rounded, was moved from a rounded value, or is rounded at once by each user. Annotation
can therefore run again at any time, and nothing has to be remembered.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn

from mase_server.formats import NumberFormat, parse, quantise, with_parameters
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ops.table import op_info
from mase_server.ops.types import TensorType

#: Operators that move or choose elements: the result is in the format of the input.
MOVES = frozenset(
    {
        "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "contiguous",
        "getitem", "chunk", "split", "unbind", "expand", "repeat", "repeat_interleave", "tile", "cat", "stack",
        "select", "narrow", "flip", "roll", "t", "clone", "detach", "identity", "index_select", "gather",
        "swapaxes", "movedim", "round_gradient",
        "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    }
)  # fmt: skip

#: Operators that leave data unchanged in eval mode.
_DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})

Formats = dict[fx.Node, NumberFormat]


def number_formats(graph: fx.Graph, model: nn.Module) -> Formats:
    """The format of every node whose result is rounded, moved from a rounded one, or rounded by all of its users.

    The last case is a quantised operator: the format of its accumulator does not show outside.
    """
    found: Formats = {}
    for node in graph.nodes:
        text = format_text(node)
        if text is not None:
            found[node] = parse(text)
        elif is_moving_operator(node, model):
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
    """The formats of parts of tuples: (node, path in its result) -> the format of the item picked there."""
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
    return op_info(node.op, underlying_callable(node.target)).mase_op


def is_moving_operator(node: fx.Node, model: nn.Module) -> bool:
    """Does a node only move or choose elements? A dropout does in eval mode, where it changes nothing."""
    operator_ = operator_of(node, model)
    return operator_ in MOVES or (operator_ in _DROPOUTS and not _is_training(node, model))


def _is_training(node: fx.Node, model: nn.Module) -> bool:
    if node.op == "call_module":
        return bool(attribute(model, str(node.target)).training)
    return bool(node.kwargs.get("training", node.args[2] if len(node.args) > 2 else True))


def rounded_to(node: fx.Node, model: nn.Module) -> str | None:
    """The format of a value that is rounded, or moved from a rounded one; None for any other."""
    while (text := format_text(node)) is None and is_moving_operator(node, model):
        sources = [source for source in node.all_input_nodes if _is_data(source, node)]
        if len(sources) != 1:
            return None
        node = sources[0]
    return text


def _is_data(source: fx.Node, node: fx.Node) -> bool:
    """Is this argument the data that is moved, not a size or an index? The first argument is, or the items of a first
    list."""
    first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    return source is first or (isinstance(first, list | tuple) and source in first)


# Number formats of tensors and numbers, in MASE's words: a type and its precision in bits.

#: dtype (torch's name) -> MASE's type and precision.
FORMATS: dict[str, tuple[str, int]] = {
    **{f"float{bits}": ("float", bits) for bits in (16, 32, 64)},
    "bfloat16": ("float", 16),
    **{
        f"float8_{kind}": ("float", 8)
        for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
    },
    **{f"{sign}int{bits}": ("int", bits) for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": ("bool", 1),
    **{f"complex{bits}": ("complex", bits) for bits in (32, 64, 128)},
}  # fmt: skip

#: The formats of Python's numbers, as torch computes with them.
NUMBERS: dict[type, tuple[str, int]] = {
    bool: ("bool", 1), int: ("int", 64), float: ("float", 64), complex: ("complex", 128),
}  # fmt: skip


def format_of(dtype: str) -> tuple[str, list[int]]:
    """MASE's type and precision of an element type, e.g. "int64" -> ("int", [64]); ("NA", []) for an unknown one."""
    kind, bits = FORMATS.get(dtype, ("NA", 0))
    return kind, [bits] if bits else []


def number_format(value: Any) -> tuple[str, list[int]]:
    """MASE's type and precision of a Python number; ("NA", []) for anything else."""
    kind, bits = NUMBERS.get(type(value), ("NA", 0))
    return kind, [bits] if bits else []


def torch_dtype(tensor: TensorType) -> torch.dtype | str:
    """torch's own dtype object; the name where this torch does not have it."""
    found: torch.dtype | str = getattr(torch, tensor.dtype, tensor.dtype)
    return found
