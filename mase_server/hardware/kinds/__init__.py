"""Every kind of operation: each module declares its kinds as constants of the type `Kind`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path

from mase_server.hardware.kinds.kind import Kind, Rule

_FILES = [file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)])]
_MODULES = [importlib.import_module(f"{__package__}.{name}") for name in sorted(_FILES)]

#: Kinds by name.
KINDS: Mapping[str, Kind] = {
    value.name: value for module in _MODULES for value in vars(module).values() if isinstance(value, Kind)
}

#: MASE's operator -> the rule that lowers it.
RULES: Mapping[str, Rule] = {operator: rule for kind in KINDS.values() for operator, rule in kind.rules.items()}

#: MASE's operator -> how many of the last dimensions its results mix; the batch may be any dimension before those.
MIXED: Mapping[str, int] = {
    operator: kind.mixes for kind in KINDS.values() if kind.mixes is not None for operator in kind.rules
}
