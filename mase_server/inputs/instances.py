"""Models that a file keeps in variables of its own: `model = Net()`, `net = nn.Sequential(...)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from mase_server.inputs.constructions import origin


@dataclass(frozen=True, slots=True)
class Instance:
    """A model and the variable that holds it."""

    name: str
    model: nn.Module


def module_instances(namespace: Mapping[str, Any], folder: str, classes: Mapping[str, object]) -> list[Instance]:
    """The models among a module's variables: of the file's classes, of a library, or an nn.Sequential with weights.

    One that is part of another is left out.
    """
    held = {id(value): Instance(name, value) for name, value in namespace.items() if isinstance(value, nn.Module)}
    models = [instance for instance in held.values() if _is_model(instance.model, folder, classes)]
    parts = {id(part) for instance in models for part in instance.model.modules() if part is not instance.model}
    return [instance for instance in models if id(instance.model) not in parts]


def _is_model(model: nn.Module, folder: str, classes: Mapping[str, object]) -> bool:
    if type(model).__name__ in classes:
        return True
    where = origin(type(model), folder)
    whole = where == "library" or type(model) is nn.Sequential
    return whole and next(model.parameters(), None) is not None
