"""Does a forward succeed? On meta if it can, else for real."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from mase_server.inputs.execution.sparing import sparing
from mase_server.inputs.found import plain_hooks
from mase_server.tracing.calling import map_leaves
from mase_server.tracing.errors.failure import RAISED
from mase_server.tracing.rungs import Bounded, TooSlowError, needs_values, real_copy, worth_a_real_run
from mase_server.tracing.shadow import Shadows
from mase_server.tracing.state import unchanged


class Trials:
    """Tries forwards; keeps the real copy of a model whose path depends on values. around: surrounds tries on meta."""

    def __init__(self, shadows: Shadows, around: Callable[[], AbstractContextManager[None]] = sparing) -> None:
        self.shadows, self.around = shadows, around
        self._plain = plain_hooks(shadows)
        self._real: dict[int, tuple[nn.Module, nn.Module]] = {}

    def attempt(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseException | None:
        """What the forward raises; None if it succeeds."""
        with unchanged(model, self.shadows), self.around():
            error = self._plain.attempt(model, args, kwargs)
        if error is None or not needs_values(error) or not worth_a_real_run(model, error):
            return error
        if id(model) not in self._real:
            self._real[id(model)] = (model, real_copy(model, self.shadows, None))
        real = self._real[id(model)][1]
        try:
            # A model that has values already is its own copy, and the caller's.
            with unchanged(real, self.shadows), torch.no_grad(), Bounded():
                for buffer in real.buffers():
                    self.shadows.written(buffer)
                real(*self._valued(args), **self._valued(kwargs))
        except TooSlowError:
            # Nothing speaks against these inputs.
            return None
        except RAISED as raised:  # the border to the person's code
            return raised
        return None

    def _valued(self, value: Any) -> Any:
        def change(item: Any) -> Any:
            if not isinstance(item, torch.Tensor) or not item.is_meta:
                return item
            real = self.shadows.get(item)
            return torch.zeros(item.shape, dtype=item.dtype) if real is None else real

        return map_leaves(value, change)
