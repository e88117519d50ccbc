"""The grammar of the table: a row is written as `mase_op[=callable,...][:Module,...]`.

Without `=` the callables are those named mase_op. A plain name is looked up in torch, torch.Tensor and
torch.nn.functional, each also with the trailing underscore of the in-place form, and in `_C._nn`; a dotted one
(`linalg.norm`, `F.unfold`, `Tensor.unfold`, `operator.add`) exactly where it says. What this torch does not have is
skipped. Modules are classes of torch.nn.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from mase_server.formats import functional
from mase_server.ops.costs import safe, traffic
from mase_server.ops.types import Formula

SPACES: dict[str, object] = {
    "torch": torch,
    "torch._C": torch._C,
    "Tensor": torch.Tensor,
    "F": nn.functional,
    "special": torch.special,
    "linalg": torch.linalg,
    "fft": torch.fft,
    "operator": operator,
    "builtins": builtins,
    "nn": nn,
    "rnn": nn.utils.rnn,
    "_VF": torch._C._VariableFunctions,
    "aten": torch.ops.aten,
    "formats": functional,
}

PLAIN_MODULES = (torch, nn.functional)
DEFAULT_SPACES = (torch, torch.Tensor, nn.functional)


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: its name, family and formulas, and where its callables and modules are found."""

    mase_op: str
    family: str
    flops: Formula
    bytes: Formula
    callables: tuple[str, ...]
    modules: tuple[str, ...]

    def targets(self) -> Iterator[object]:
        """The functions, methods and module classes that this torch has."""
        for spelling in self.callables:
            yield from _find(spelling)
        for name in self.modules:
            if (cls := getattr(nn, name, None)) is not None:
                yield cls


def rows(family: str, flops: Formula, text: str, bytes: Formula = traffic) -> tuple[Row, ...]:
    """The rows that `text` writes, separated by white space."""
    return tuple(_row(family, flops, bytes, entry) for entry in text.split())


def _row(family: str, flops: Formula, bytes_: Formula, entry: str) -> Row:
    left, _, modules = entry.partition(":")
    name, _, callables = left.partition("=")
    if not callables:
        callables = name
        name = name.replace(".", "_")
    flops, bytes_ = safe(flops), safe(bytes_)
    return Row(name, family, flops, bytes_, tuple(callables.split(",")), tuple(modules.split(",")) if modules else ())


def _find(spelling: str) -> Iterator[object]:
    space, dot, name = spelling.rpartition(".")
    places = (SPACES[space],) if dot else DEFAULT_SPACES
    names = (name,) if dot or name.endswith("_") else (name, f"{name}_")
    for place in places:
        for attribute in names:
            found = _attribute(place, attribute)
            if callable(found) and not isinstance(found, torch.dtype):
                yield found


def _attribute(place: object, name: str) -> object:
    """Without torch's module-level __getattr__, which is slow and may import."""
    return vars(place).get(name) if place in PLAIN_MODULES else getattr(place, name, None)
