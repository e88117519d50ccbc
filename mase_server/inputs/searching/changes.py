"""Other inputs, as the error of the last ones suggests: the rows of every kind of trouble, asked in turn."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator

from mase_server.inputs.searching.failed import Failed
from mase_server.inputs.searching.kinds import ROWS as KINDS
from mase_server.inputs.searching.ranks import ROWS as RANKS
from mase_server.inputs.searching.ranks import leveled
from mase_server.inputs.searching.sizes import ROWS as SIZES
from mase_server.inputs.searching.sizes import agreements
from mase_server.inputs.searching.structure import ROWS as STRUCTURE
from mase_server.inputs.searching.trees import shape_of, tensors
from mase_server.inputs.spec import Inputs
from mase_server.tracing.loading.placeholders import MissingPackageError

Changes = Iterator[Inputs]
Row = tuple[str, Callable[[Failed, re.Match[str]], Changes]]

#: Those of every kind, in the order in which they are asked.
ROWS: tuple[Row, ...] = (*STRUCTURE, *KINDS, *RANKS, *SIZES)
#: As many changes are proposed for one error.
MAX_CHANGES = 20
#: Elements of the largest tensor that is proposed.
MAX_ELEMENTS = 1 << 24


def changes(failed: Failed) -> list[Inputs]:
    """Inputs to try next, the likeliest first; none for what no input can avoid."""
    if isinstance(failed.error, MissingPackageError):
        return []
    rows = ((row, match) for pattern, row in ROWS if (match := re.search(pattern, failed.text)))
    proposed = itertools.chain(
        itertools.chain.from_iterable(row(failed, match) for row, match in rows), agreements(failed), leveled(failed)
    )
    return list(itertools.islice((each for each in proposed if each != failed.inputs and is_small(each)), MAX_CHANGES))


def is_small(inputs: Inputs) -> bool:
    """No size that came out of one equation after another, and nothing that takes long to fill."""
    shapes = [shape_of(inputs, spec) for _, spec in tensors(inputs)]
    return all(math.prod(shape) <= MAX_ELEMENTS and min(shape, default=1) > 0 for shape in shapes)
