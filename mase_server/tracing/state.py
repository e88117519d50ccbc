"""The state of a model: what a forward may change in it, kept and put back; and its mode."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mase_server.ops.paths import named_modules
from mase_server.tracing.errors.failure import RAISED
from mase_server.tracing.shadow import Shadows
from mase_server.tracing.values import tensors_in

_CONTAINERS = (list, dict, set, OrderedDict)


#: Attribute -> the identity of each tensor in it, and of its memory.
Tensors = dict[str, list[tuple[int, int]]]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


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

    def tensors(self) -> Tensors:
        """The tensors in each attribute and buffer; parameters are no state."""
        tables = ("_parameters", "_modules", "_buffers")
        held = {name: value for name, value in self.attributes.items() if name not in tables}
        held |= self.attributes["_buffers"]
        return {name: [(id(tensor), _storage(tensor)) for tensor in tensors_in(value)] for name, value in held.items()}

    def restore(self) -> None:
        self.attributes.clear()
        self.attributes.update(self.before)
        for container, content in self.containers:
            container.clear()
            container.extend(content) if isinstance(container, list) else container.update(content)


def state_of(model: nn.Module) -> Tensors:
    """The tensors that each attribute of a model holds, parameters apart."""
    return {
        f"{path}.{name}" if path else name: held
        for path, module in model.named_modules()
        for name, held in _Kept.of(module).tensors().items()
        if held
    }


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
        for _, part in named_modules(model):
            vars(part)["training"] = training
