"""The state of a model: what a forward may change in it, kept and put back; and its mode."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.tracing.errors.failure import RAISED
from mase_server.tracing.shadow import Shadows

_CONTAINERS = (list, dict, set, OrderedDict)


@dataclass(frozen=True, slots=True)
class _Kept:
    """One module's attributes, and the contents of those that are plain containers (its tables among them)."""

    attributes: dict[str, Any]
    before: dict[str, Any]
    containers: list[tuple[Any, Any]]

    @classmethod
    def of(cls, module: nn.Module) -> _Kept:
        attributes = vars(module)
        containers = [(value, value.copy()) for value in attributes.values() if type(value) in _CONTAINERS]
        return cls(attributes, dict(attributes), containers)

    def restore(self) -> None:
        self.attributes.clear()
        self.attributes.update(self.before)
        for container, content in self.containers:
            container.clear()
            container.extend(content) if isinstance(container, list) else container.update(content)


@contextmanager
def unchanged(model: nn.Module, shadows: Shadows) -> Iterator[None]:
    """Whatever happens inside, afterwards each module of `model` is as it was before."""
    kept = [_Kept.of(module) for module in model.modules()]
    learning = [(tensor, tensor.requires_grad) for tensor in (*model.parameters(), *model.buffers())]
    shadows.watch()
    try:
        yield
    finally:
        for one in kept:
            one.restore()
        for tensor, before in learning:
            if tensor.requires_grad is not before and tensor.is_leaf:
                tensor.requires_grad_(before)
        shadows.rewind()


def put_in_mode(model: nn.Module, training: bool) -> None:
    """`model.train(training)`; a model whose own `train` fails is put in that mode part by part."""
    try:
        model.train(training)
    except RAISED:  # the border to the person's code
        for part in model.modules():
            part.training = training
