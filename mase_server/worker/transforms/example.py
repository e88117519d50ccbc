"""The inputs that a model is run on to see what a pipeline does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mase_server.inputs.generate import inputs_at
from mase_server.inputs.making.real import SEED
from mase_server.inputs.text import write
from mase_server.tracing.rebuild import Rebuild
from mase_server.tracing.values import holds_tensor
from mase_server.worker.traced import Traced


class UnknownValueError(LookupError):
    """A tensor whose values are not known."""


@dataclass(frozen=True, slots=True)
class Example:
    """Inputs with values. arguments: by parameter name.  how: where they are from, in words; of_file: from its run."""

    arguments: Mapping[str, Any]
    how: str
    of_file: bool = False


def example(traced: Traced, path: str = "") -> Example:
    """Those that the file's own run calls the model with, where all their values are known; else random ones."""
    spec = traced.session.inputs
    if traced.found.recorded:
        try:
            given = {name: _valued(value, traced) for name, value in traced.found.inputs.items()}
            return Example(given, f"the inputs that {Path(path).name or 'the file'} calls it with: {write(spec)}", True)
        except UnknownValueError:
            pass
    return Example(inputs_at(spec, seed=SEED), f"random inputs (seed {SEED}): {write(spec)}")


def _valued(value: Any, traced: Traced) -> Any:
    def known(tensor: torch.Tensor) -> torch.Tensor:
        real = traced.session.shadows.get(tensor) if tensor.is_meta else tensor
        if real is None:
            raise UnknownValueError
        return real.detach()

    if isinstance(value, torch.Tensor):
        return known(value)
    return Rebuild.of(value).changed(known) if holds_tensor(value) else value
