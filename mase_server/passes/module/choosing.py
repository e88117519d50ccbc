"""Which modules are quantised, by type, name or expression, and which cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.utils import parametrize

from mase_server.ops.table import NAMES, op_info
from mase_server.passes.quantize.config import COMPUTES, Config

WAYS = ("type", "name", "regex_name")
#: Keys of pass_args that are no modules.
_OWN = frozenset({"by", "default", "gptq", "only"})
#: These read their parameters past the modules' attributes, or by calling kernels with all of them at once.
_WHOLE = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


@dataclass(frozen=True, slots=True)
class Choice:
    """One module, and what becomes of it."""

    path: str
    module: nn.Module
    config: Config


class Modules:
    """The choice of modules. ValueError for pass_args that cannot be read, and for modules that have to stay whole."""

    def __init__(self, pass_args: Mapping[str, Any]) -> None:
        self.way = pass_args.get("by") or "type"
        if self.way not in WAYS:
            raise ValueError(f"quantize_module: by is {self.way!r}, expected one of {', '.join(WAYS)}")
        default = pass_args.get("default")
        self.default = None if default is None else Config.of(default)
        self.entries = {str(key): Config.of(value) for key, value in pass_args.items() if key not in _OWN}
        if self.way == "type" and (unknown := [key for key in self.entries if key not in NAMES]):
            raise ValueError(
                f"quantize_module: no operator is called {unknown[0]!r}; with by=type keys are MASE's operators"
            )
        only = pass_args.get("only") or ()
        self.only = (only,) if isinstance(only, str) else tuple(only)
        self.used: set[str] = set()

    def of(self, network: nn.Module) -> list[Choice]:
        """Every module that has a configuration, each once."""
        found, inside = [], [path for path, module in network.named_modules() if isinstance(module, _WHOLE)]
        for path, module in network.named_modules():
            config = self._config(path, module)
            if config is None or not self._is_selected(path) or parametrize.is_parametrized(module):
                continue
            if isinstance(module, _WHOLE):
                raise ValueError(
                    f"quantize_module: {path} is {type(module).__name__}, whose parameters are used all at once; "
                    "quantize_transform_pass on its graph rounds them"
                )
            if not any(path.startswith(f"{whole}.") for whole in inside):
                found.append(Choice(path, module, config))
        return found

    @property
    def unused(self) -> list[str]:
        """Keys that matched no module."""
        return [key for key in self.entries if key not in self.used]

    def _config(self, path: str, module: nn.Module) -> Config | None:
        operator = operator_of(module)
        names = {"type": operator, "name": path}
        if self.way == "regex_name":
            key = next((key for key in self.entries if re.match(key, path)), None)
        else:
            key = names[self.way] if names[self.way] in self.entries else None
        if key is not None:
            self.used.add(key)
            return self.entries[key]
        return self.default if operator in COMPUTES and not isinstance(module, _WHOLE) else None

    def _is_selected(self, path: str) -> bool:
        return not self.only or any(text in ("", path) or path.startswith(f"{text}.") for text in self.only)


def operator_of(module: nn.Module) -> str:
    """MASE's name of what a module computes; the layers of GPT-2's kind are linear, too."""
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return "linear"
    return op_info("call_module", module, module).mase_op
