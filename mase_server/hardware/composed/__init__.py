"""Operators that are composed of several operations, one module for each family."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path

from mase_server.hardware import kinds
from mase_server.hardware.kinds.kind import Rule

_FILES = [file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)])]
_MODULES = [importlib.import_module(f"{__package__}.{name}") for name in sorted(_FILES)]

#: MASE's operator -> the rule that lowers it, for operators composed of several operations.
COMPOSED: Mapping[str, Rule] = {
    name: rule for module in _MODULES for name, rule in getattr(module, "COMPOSED", {}).items()
}

#: Those of them whose results are rounded; the others give flags, or pass on their input.
COMPUTING = frozenset(
    name for module in _MODULES if not module.__name__.endswith(".flags") for name in getattr(module, "COMPOSED", {})
)

#: The rules of all operators that have hardware.
RULES: Mapping[str, Rule] = {**kinds.RULES, **COMPOSED}
