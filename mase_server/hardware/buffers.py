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

#: Of each element of a stream, in the order in which they flow: how many elements it needs of one stream before it.
Needs = Mapping[str, Tensor]


def depths(design: Design) -> dict[tuple[str, int], int]:
    """Elements that must be able to wait before each operand of each operation with several: (name, index) -> elements.

    These are the fewest; that the longer way also takes time is nobody's matter here, it costs cycles, not progress.
    """
    found = {
        (operation.name, index): 0
        for operation in design.operations.values()
        for index in range(len(operation.inputs))
        if len(operation.inputs) > 1
    }
    for operation in design.operations.values():
        if len(design.users(operation.name)) > 1:
            for place, waiting in _behind(design, operation).items():
                found[place] = max(found[place], waiting)
    return found


def _behind(design: Design, parting: Operation) -> dict[tuple[str, int], int]:
    """What must wait because streams part behind one operation."""
    needs: dict[str, Tensor] = {parting.name: torch.arange(1, parting.out.size + 1)}
    found: dict[tuple[str, int], int] = {}
    for operation in design.operations.values():
        if operation is parting or not any(name in needs for name in operation.inputs):
            continue
        reach = KINDS[operation.kind].reach(design, operation)
        operands = {
            index: _at(needs[name], places)
            for index, (name, places) in enumerate(zip(operation.inputs, reach, strict=True))
            if name in needs
        }
        # Elements leave in their order, so each needs at least what the one before it needed.
        needs[operation.name] = torch.stack(list(operands.values())).amax(0).cummax(0).values
        if len(operands) > 1:
            for index in operands:
                before = needs[operation.inputs[index]]
                found[operation.name, index] = _waiting(before, needs[operation.name], reach[index])
    return found


def _at(counts: Tensor, places: Tensor) -> Tensor:
    """What elements at some places need; nothing for a place before the first."""
    return torch.where(places < 0, 0, counts[places.clamp(min=0)])


def _waiting(there_with: Tensor, wanted: Tensor, reach: Tensor) -> int:
    """The most elements of an operand that are there before the operation can take them."""
    # Those that come with the very element that is waited for hold nobody up any more.
    there = torch.searchsorted(there_with.contiguous(), wanted.contiguous(), right=False)
    taken = torch.cat([torch.zeros(1, dtype=torch.int64), (reach + 1).clamp(min=0).cummax(0).values[:-1]])
    return max(0, int((there - taken).max()))
