"""How much has to wait where streams meet again: so much that nothing can ever stand still.

Two operands of one operation may come from one stream by ways of different lengths. What comes by the shorter way waits
until the longer one has swallowed all that it needs for its own next result. If there is no room to wait in, the stream
that both come from is held up, and with it the longer way, for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mase_server.hardware.design import Design, Operation
from mase_server.hardware.kinds import KINDS

#: Of each element of a stream, in the order in which they flow: how many elements of each input it needs.
Needs = Mapping[str, Tensor]


def depths(design: Design) -> dict[tuple[str, int], int]:
    """Elements that must be able to wait before each operand of each operation with several: (name, index) -> elements.

    These are the fewest; that the longer way also takes time is nobody's matter here, it costs cycles, not progress.
    """
    needs: dict[str, Needs] = {}
    found: dict[tuple[str, int], int] = {}
    for operation in design.operations.values():
        operands = _operands(design, operation, needs)
        if operation.kind == "input":
            needs[operation.name] = {operation.name: _count(operation.out.size)}
        else:
            needs[operation.name] = _together(operands)
        if len(operands) > 1:
            found |= {
                (operation.name, index): _waiting(design, operation, index, needs) for index in range(len(operands))
            }
    return found


def _operands(design: Design, operation: Operation, needs: Mapping[str, Needs]) -> list[Needs]:
    """What each element of the result needs of the inputs, by way of each operand."""
    reach = KINDS[operation.kind].reach(design, operation)
    return [
        {name: counts[places] for name, counts in needs[source].items()}
        for source, places in zip(operation.inputs, reach, strict=True)
    ]


def _together(operands: list[Needs]) -> Needs:
    """Elements leave in their order, so each needs at least what the one before it needed."""
    names = dict.fromkeys(name for each in operands for name in each)
    gathered = {name: [each[name] for each in operands if name in each] for name in names}
    return {name: torch.stack(counts).amax(0).cummax(0).values for name, counts in gathered.items()}


def _waiting(design: Design, operation: Operation, index: int, needs: Mapping[str, Needs]) -> int:
    """The most elements of an operand that are there before the operation can take them."""
    reach = KINDS[operation.kind].reach(design, operation)[index]
    taken = torch.cat([torch.zeros(1, dtype=torch.int64), (reach + 1).cummax(0).values[:-1]])
    most = 0
    for name, counts in needs[operation.inputs[index]].items():
        wanted = needs[operation.name][name]
        # Those that come with the very element that is waited for hold nobody up any more.
        there = torch.searchsorted(counts.contiguous(), wanted.contiguous(), right=False)
        most = max(most, int((there - taken).max()))
    return most


def _count(size: int) -> Tensor:
    return torch.arange(1, size + 1)
