"""What is an input of the hardware: a tensor that the model is given, also inside of a dict or another object."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from torch import fx

from mase_server.ops.types import TensorType


def is_given(node: fx.Node, facts: Mapping[fx.Node, Any]) -> bool:
    """Is a node an argument of the model, or picked out of one that is no tensor?"""
    while _picks(node) and not isinstance(facts.get(node.all_input_nodes[0]), TensorType):
        node = node.all_input_nodes[0]
    return node.op == "placeholder"


def argument_name(node: fx.Node) -> str:
    """What a person calls an input: the argument, or the key under which it is in one."""
    return str(node.args[1] if _picks(node) else node.target)


def _picks(node: fx.Node) -> bool:
    by_key = node.target in (operator.getitem, getattr) if node.op == "call_function" else node.target == "get"
    return node.op.startswith("call_") and by_key and len(node.args) > 1 and len(node.all_input_nodes) == 1
