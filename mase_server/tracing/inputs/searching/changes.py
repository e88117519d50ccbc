"""Changes of inputs that the error of the last ones suggests: the rows of every kind of trouble, in turn."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator

from mase_server.tracing.importing.placeholders import MissingPackageError
from mase_server.tracing.inputs.searching.failures import Failed, is_check
from mase_server.tracing.inputs.searching.kinds import RANKS, TOLD_RANKS, level_ranks
from mase_server.tracing.inputs.searching.kinds import ROWS as KINDS
from mase_server.tracing.inputs.searching.sizes import ROWS as SIZES
from mase_server.tracing.inputs.searching.sizes import (
    TOLD_SIZES,
    TOLD_TARGETS,
    propose_agreements,
    propose_alike,
    propose_joined,
    propose_partners,
    propose_shorter,
)
from mase_server.tracing.inputs.searching.structure import ROWS as STRUCTURE
from mase_server.tracing.inputs.searching.trees import iterate_tensor_specs, shape_of
from mase_server.tracing.inputs.spec import Inputs

Changes = Iterator[Inputs]
Row = tuple[str, Callable[[Failed, re.Match[str]], Changes]]

#: The changes of every kind, in the order in which they are asked.
ROWS: tuple[Row, ...] = (*TOLD_TARGETS, *TOLD_RANKS, *STRUCTURE, *KINDS, *RANKS, *SIZES)
#: The most changes that are proposed for one error.
MAX_CHANGES = 20
#: The most elements of a proposed tensor; whole numbers always have values, of eight bytes each.
MAX_ELEMENTS = 1 << 24
MAX_WHOLE_NUMBERS = 1 << 22
#: The least side of a map that is made smaller.
SMALLEST_MAP = 8


def propose_changes(failed: Failed) -> list[Inputs]:
    """Inputs to try next, the likeliest first; none for an error that no inputs avoid."""
    if isinstance(failed.error, MissingPackageError):
        return []
    rows = ((row, match) for pattern, row in ROWS if (match := re.search(pattern, failed.text)))
    proposed = itertools.chain(
        propose_alike(failed),
        propose_partners(failed),
        propose_joined(failed),
        itertools.chain.from_iterable(row(failed, match) for row, match in rows),
        propose_agreements(failed),
        level_ranks(failed),
        propose_shorter(failed),
    )
    small = (_shrink_maps(each) for each in proposed if each != failed.inputs)
    return list(itertools.islice((each for each in small if is_small(each)), MAX_CHANGES))


def _shrink_maps(inputs: Inputs) -> Inputs:
    """The same with smaller maps, if a change of channels made them too large."""
    side = inputs.sizes.get("H", 0)
    while not is_small(inputs) and (side := side // 2) >= SMALLEST_MAP:
        inputs = Inputs(inputs.entries, {**inputs.sizes, "H": side, "W": side})
    return inputs


def tells_ranks(failed: Failed) -> bool:
    """Is the error about a number of dimensions?"""
    return any(re.search(pattern, failed.text) for pattern, _ in RANKS)


def tells_shape(failed: Failed) -> bool:
    """Does a check of the forward's own say which shape it wants, or which of two sizes, or a loss that of targets?"""
    if next(propose_alike(failed), None) is not None:
        return True
    return any(re.search(pattern, failed.text) for pattern, _ in TOLD_TARGETS) or (
        is_check(failed.error) and any(re.search(pattern, failed.text) for pattern, _ in (*TOLD_RANKS, *TOLD_SIZES))
    )


def is_small(inputs: Inputs) -> bool:
    """Are the sizes sane? Neither the runaway result of equations, nor slow to fill."""
    specs = [spec for _, spec in iterate_tensor_specs(inputs)]
    shapes = [shape_of(inputs, spec) for spec in specs]
    most = [MAX_ELEMENTS if spec.dtype.startswith("f") else MAX_WHOLE_NUMBERS for spec in specs]
    return all(
        math.prod(shape) <= limit and min(shape, default=1) > 0 for shape, limit in zip(shapes, most, strict=True)
    )
