"""Converting a tensor to another layout, as a function that graphs can call."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor

from mase_server.passes.sharding.rules import parse_layout


def reshard(values: Any, layout: str) -> Any:
    """Convert a DTensor to a layout such as "S(1),R"; any other tensor is whole, and returned unchanged.

    Several tensors are all converted.  ValueError for a text that is no layout.
    """
    if isinstance(values, tuple | list):
        return type(values)(reshard(item, layout) for item in values)
    return values.redistribute(placements=torch_placements(layout)) if is_distributed(values) else values


def is_distributed(value: Any) -> bool:
    """Is this a DTensor? The check imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, Tensor) and isinstance(value, module.DTensor)


def torch_placements(layout: str) -> list[Any]:
    """A layout in torch's words, one placement for each axis of the mesh."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    named = {"R": Replicate, "P": Partial}
    return [Shard(place) if isinstance(place, int) else named[place]() for place in parse_layout(layout)]
