"""Bringing a tensor into another layout, as a function that stands in graphs."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor

from mase_server.passes.sharding.layouts import parse


def reshard(values: Any, layout: str) -> Any:
    """The same tensor in a layout such as "S(1),R", if it is a DTensor; any other tensor is whole, and given back.

    Several tensors are all brought into the layout.  ValueError for a text that is no layout.
    """
    if isinstance(values, tuple | list):
        return type(values)(reshard(item, layout) for item in values)
    return values.redistribute(placements=placements(layout)) if is_distributed(values) else values


def is_distributed(value: Any) -> bool:
    """Is this a DTensor? Nothing is imported for the answer."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, Tensor) and isinstance(value, module.DTensor)


def placements(layout: str) -> list[Any]:
    """A layout in torch's words, one placement for each axis of the mesh."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    named = {"R": Replicate, "P": Partial}
    return [Shard(place) if isinstance(place, int) else named[place]() for place in parse(layout)]
