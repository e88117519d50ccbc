"""Scopes: which module instance a node belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch


@dataclass(slots=True)
class Scope:
    """The module path and the module type that contain a node; `Scope("", None)` at the root.

    module_path: the module's qualified name in the model.  module_type: its class.
    Source: `dmx.compressor.fx.tracer.Scope`.

    >>> Scope("encoder.0", nn.Linear)
    Scope(module_path='encoder.0', module_type=<class 'torch.nn.modules.linear.Linear'>)
    """

    module_path: str
    module_type: Any


class ScopeContextManager:
    """Sets `scope` to a module while its forward runs, and puts the previous one back on leaving, exceptions included.

    scope: the scope that is changed; `with` gives it.  current_module, current_module_path: the module and its
    qualified name.
    Source: `dmx.compressor.fx.tracer.ScopeContextManager`.

    >>> scope = Scope("", None)
    >>> with ScopeContextManager(scope, nn.ReLU(), "act"):
    ...     scope.module_path
    'act'
    >>> scope
    Scope(module_path='', module_type=None)
    """

    def __init__(self, scope: Scope, current_module: torch.nn.Module, current_module_path: str) -> None:
        self.scope = scope
        self.prev_module_path = scope.module_path
        self.prev_module_type = scope.module_type
        self._path, self._type = current_module_path, type(current_module)

    def __enter__(self) -> Scope:
        self.scope.module_path, self.scope.module_type = self._path, self._type
        return self.scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.scope.module_path, self.scope.module_type = self.prev_module_path, self.prev_module_type
