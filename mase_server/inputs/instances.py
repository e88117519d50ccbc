"""Models that a file keeps in variables of its own: `model = Net()`, `nets = {"small": nn.Sequential(...)}`."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.inputs.execution.distributed import unwrapped
from mase_server.inputs.making.constructions import construction_of, origin

#: Containers are searched so deep, and so many of their items.
MAX_DEPTH = 2
MAX_ITEMS = 16


@dataclass(frozen=True, slots=True)
class Instance:
    """A model and the expression that gives it: `model`, `nets['small']`."""

    name: str
    model: nn.Module


def module_instances(namespace: Mapping[str, Any], folder: str, classes: Container[str]) -> list[Instance]:
    """The models among a module's variables: of the file's classes, of a library, or an nn.Sequential with weights.

    One that is part of another is left out, and one that is made just as another one before it.
    """
    found: dict[int, Instance] = {}
    for name, value in namespace.items():
        for instance in held(name, value):
            found.setdefault(id(instance.model), instance)
    models = [instance for instance in found.values() if is_model(instance.model, folder, classes)]
    parts = {id(part) for instance in models for part in instance.model.modules() if part is not instance.model}
    wholes = (instance for instance in models if id(instance.model) not in parts)
    return list({_made(instance.model): instance for instance in reversed(list(wholes))}.values())[::-1]


def held(name: str, value: Any, depth: int = 0) -> Iterator[Instance]:
    """The models in a value: itself, or the items of a list or dict, each with the expression that gives it."""
    if isinstance(value, nn.Module) and not isinstance(value, nn.ModuleList | nn.ModuleDict):
        yield Instance(name, unwrapped(value))
    elif depth < MAX_DEPTH:
        yield from (each for key, item in _items(value) for each in held(f"{name}[{key!r}]", item, depth + 1))


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict | nn.ModuleDict):
        return list(value.items())[:MAX_ITEMS]
    if isinstance(value, list | tuple | nn.ModuleList):
        return list(enumerate(value))[:MAX_ITEMS]
    return []


def _made(model: nn.Module) -> object:
    """What is equal for two models that were made alike."""
    made = construction_of(model)
    return id(model) if made is None or made.args or type(model) is nn.Sequential else (type(model), repr(made.kwargs))


def is_model(model: nn.Module, folder: str, classes: Container[str]) -> bool:
    """Is it one to be shown: of the file's classes, of a library, or an nn.Sequential with weights?"""
    if type(model).__name__ in classes:
        return True
    where = origin(type(model), folder)
    whole = where == "library" or type(model) is nn.Sequential
    return whole and next(model.parameters(), None) is not None
