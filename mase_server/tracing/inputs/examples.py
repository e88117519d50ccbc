"""Example inputs for a model that a program already has (the library's case; `find` handles files)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from torch import nn

from mase_server.tracing.execution.running import Trials
from mase_server.tracing.inputs.searching.search import search_inputs
from mase_server.tracing.inputs.spec import InputValues, inputs_at
from mase_server.tracing.models.found import plain_hooks
from mase_server.tracing.recording.shadow import Shadows
from mase_server.tracing.recording.state import preserve_state, require_tree
from mase_server.tracing.recording.values import holds_tensor


def example_arguments(model: nn.Module, given: Mapping[str, Any] | None = None) -> InputValues:
    """Forward's arguments by name: `given` if it holds a tensor, else those that a search finds, updated with `given`.

    Raises ValueError if the search finds nothing with which the forward succeeds, and UnwalkableError.
    """
    require_tree(model)
    given = dict(given or {})
    if any(holds_tensor(value) for value in given.values()):
        return given
    shadows = Shadows()
    # The process is the caller's, so its memory is not limited.
    attempt = Trials(shadows, around=nullcontext).attempt
    with preserve_state(model, shadows):
        searched = search_inputs(model, replace(plain_hooks(shadows), attempt=attempt))
    if searched.spec is None:
        name = type(model).__name__
        raise ValueError(
            f"no inputs were found for {name}: {searched.how}; pass example inputs by the names of forward's "
            f"parameters: MaseGraph({name.lower()}, {{'x': ...}})"
        )
    return {**inputs_at(searched.spec), **given}
