"""Example inputs for a model that a program holds in its hands (the library's case; files are `find`'s)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from torch import nn

from mase_server.inputs.execution.trials import Trials
from mase_server.inputs.found import plain_hooks
from mase_server.inputs.generate import inputs_at
from mase_server.inputs.searching.search import search
from mase_server.tracing.cycles import require_tree
from mase_server.tracing.shadow import Shadows
from mase_server.tracing.state import unchanged
from mase_server.tracing.values import holds_tensor


def example_arguments(model: nn.Module, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Forward's arguments by name: `given` if it holds a tensor, else what a search finds, with `given` on top.

    Raises ValueError where nothing is found with which the forward succeeds, and UnwalkableError.
    """
    require_tree(model)
    given = dict(given or {})
    if any(holds_tensor(value) for value in given.values()):
        return given
    shadows = Shadows()
    # The process is the caller's: its memory is not limited.
    attempt = Trials(shadows, around=nullcontext).attempt
    with unchanged(model, shadows):
        searched = search(model, replace(plain_hooks(shadows), attempt=attempt))
    if searched.spec is None:
        name = type(model).__name__
        raise ValueError(
            f"no inputs were found for {name}: {searched.how}; pass example inputs by the names of forward's "
            f"parameters: MaseGraph({name.lower()}, {{'x': ...}})"
        )
    return {**inputs_at(searched.spec), **given}
