"""Stepping out of the torch function modes that are active, and handing real values in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import overrides

from mase_server.tracing.calling import map_leaves
from mase_server.tracing.shadow import Shadows


@contextmanager
def outside_modes() -> Iterator[None]:
    """Run as if no torch function mode were active (the tracer brings its own)."""
    depth = torch._C._len_torch_function_stack()
    modes = [overrides._pop_mode() for _ in range(depth)]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for mode in reversed(modes):
            overrides._push_mode(mode)  # type: ignore[no-untyped-call]


def on_meta(value: Any, shadows: Shadows) -> Any:
    """Nested values with a meta tensor in place of every real one; small ones keep their values in `shadows`."""

    def change(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or item.is_meta:
            return item
        return shadows.twin(item)

    with torch._C.DisableTorchFunction():
        return map_leaves(value, change)
