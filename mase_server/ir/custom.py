"""Custom operations: the user's functions and module classes that become one node each, with their hardware."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import nn

from mase_server.ir.build import underlying_callable
from mase_server.ops.types import OpCall

_KEYS = frozenset({"args", "module", "dependence_files", "toolchain"})


@dataclass(frozen=True, slots=True)
class CustomOps:
    """`custom_ops` of a MaseGraph: {"functions": {function: entry}, "modules": {class: entry}}.

    functions: the entry of each function.  modules: the entry of each module class.
    An entry is {"args": {parameter: "data_in" | "config" | None}, "module": hardware module, "dependence_files": [...],
    "toolchain": ...}, each key optional.  "data_in" numbers a tensor as data_in_i, "config" keeps the parameter's name,
    None leaves it out.

    >>> entry = {"args": {"x": "data_in"}, "module": "my_double", "dependence_files": ["my_double.sv"]}
    >>> def double(x):
    ...     return x + x
    >>> class Net(nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(double(x))
    >>> graph = MaseGraph(Net(), {"x": torch.randn(2, 3)}, custom_ops={"functions": {double: entry}})
    >>> [node.name for node in graph.nodes]
    ['x', 'double', 'relu', 'output']
    """

    functions: Mapping[Callable[..., Any], Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    modules: Mapping[type[nn.Module], Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> CustomOps:
        """Check custom operations. Raises ValueError or TypeError for malformed ones."""
        given = given or {}
        _refuse_others("custom_ops", given, frozenset({"functions", "modules"}))
        functions, modules = dict(given.get("functions") or {}), dict(given.get("modules") or {})
        for target, entry in {**functions, **modules}.items():
            _refuse_others(f"custom_ops of {getattr(target, '__name__', target)}", entry, _KEYS)
        for target in modules:
            if not (isinstance(target, type) and issubclass(target, nn.Module)):
                raise TypeError(f'custom_ops["modules"] takes subclasses of torch.nn.Module, got {target!r:.80}')
        for target in functions:
            if not callable(target):
                raise TypeError(f'custom_ops["functions"] takes callables, got {target!r:.80}')
        return cls(functions, modules)

    def entry(self, call: OpCall) -> Mapping[str, Any] | None:
        """The entry of the operation that a call makes; None if it is not custom."""
        if call.module is not None:
            return next((self.modules[base] for base in type(call.module).__mro__ if base in self.modules), None)
        target = underlying_callable(call.target)
        return next((entry for function, entry in self.functions.items() if function is target), None)


def _refuse_others(where: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
    others = sorted(set(given) - known)
    if others:
        raise ValueError(f"{where} has the unknown key {others[0]!r}; known are {', '.join(sorted(known))}")
