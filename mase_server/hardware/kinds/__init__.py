"""Every kind of operation, one file each."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path

from mase_server.hardware.kinds.kind import Kind, Rule

_FILES = [file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)])]
_MODULES = [importlib.import_module(f"{__package__}.{name}") for name in sorted(_FILES)]

#: Kinds by name.
KINDS: Mapping[str, Kind] = {module.KIND.name: module.KIND for module in _MODULES if hasattr(module, "KIND")}

#: MASE's operator -> what gives its hardware.
RULES: Mapping[str, Rule] = {operator: rule for kind in KINDS.values() for operator, rule in kind.rules.items()}

#: MASE's operator -> how many of the last dimensions its results mix; the batch may be any one before those.
MIXED: Mapping[str, int] = {
    operator: kind.mixes for kind in KINDS.values() if kind.mixes is not None for operator in kind.rules
}
