"""Running a graph step by step, beside another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from mase_server.tracing.rebuild import Rebuild
from mase_server.tracing.values import holds_tensor


class Run(fx.Interpreter):
    """One run of a graph that can be halted after any node: another graph may run in between.

    Values are dropped after their last use; random numbers and autocast are the run's own.  see: gets each node with
    its value, before anything can change that in place.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        values: Sequence[Any],
        see: Callable[[fx.Node, Any], None] = lambda node, value: None,
    ) -> None:
        super().__init__(module)
        self.see = see
        self.env = {}
        self.args_iter = iter([copied(value) for value in values])
        self.order: list[fx.Node] = list(module.graph.nodes)
        self.done = 0
        self._state = _State()

    def step(self) -> tuple[fx.Node, Any]:
        """Run the next node; gives it and its value."""
        node = self.order[self.done]
        outside = self._state.exchanged()
        try:
            value = self.env[node] = self.run_node(node)
            self.see(node, value)
        finally:
            self._state = outside.exchanged()
        for last in self.user_to_last_uses.get(node, []):
            self.env.pop(last, None)
        self.done += 1
        return node, value


class _State:
    """Random numbers and autocast, as they are for one run."""

    def __init__(self) -> None:
        self.random = torch.get_rng_state()
        self.enabled, self.dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        self.cached = torch.is_autocast_cache_enabled()

    def exchanged(self) -> _State:
        """Put this state in place of the present one, which is given back."""
        before = _State()
        torch.set_rng_state(self.random)
        torch.set_autocast_enabled("cpu", self.enabled)
        torch.set_autocast_dtype("cpu", self.dtype)
        torch.set_autocast_cache_enabled(self.cached)
        return before


def copied(value: Any) -> Any:
    """The same value with tensors of its own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return Rebuild.of(value).changed(lambda tensor: tensor.detach().clone()) if holds_tensor(value) else value
