"""Samples that a simulation compares: how many there are usually, and what has to come out."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from mase_server.hardware.design import Design, Operation
from mase_server.hardware.folding import Folding
from mase_server.hardware.twin import integer_graph

#: Samples of a small model, and of one of any size: the time between two results is seen then.
_MOST, _LEAST = 100, 2
#: Products that all samples may take together: a second or so.
_PRODUCTS = 1_000_000_000
#: Numbers of one operation that are computed at once.
_AT_ONCE = 1 << 22


def usual_count(folding: Folding) -> int:
    """Samples for a simulation where nobody says how many: fewer for large models."""
    products = sum(fold.multipliers * fold.cycles for fold in folding.folds.values())
    return min(_MOST, max(_LEAST, _PRODUCTS // max(products, 1)))


def expected(design: Design, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The integers of each output for those of each input, [samples, ...]; computed a few samples at a time."""
    model = integer_graph(design).model
    largest = max(_numbers(operation) for operation in design.operations.values())
    count = max(1, _AT_ONCE // largest)
    starts = range(0, len(inputs[0]), count)
    found = [_listed(model(*(values[start : start + count] for values in inputs))) for start in starts]
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def _listed(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _numbers(operation: Operation) -> int:
    """Numbers that are held for one sample: windows are laid out side by side."""
    windows = operation.options.get("windows")
    return operation.out.size * (1 if windows is None else prod(windows.kernel))
