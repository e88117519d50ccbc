"""How much has to wait where streams meet again: so much that nothing can ever stand still.

Two operands of one operation may come from one stream by ways of different lengths. What comes by the shorter way waits
until the longer one has swallowed all that it needs for its own next result. If there is no room to wait in, the stream
that both come from is held up, and with it the longer way, for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mase_server.hardware.design import Design, Operation
from mase_server.hardware.faults import made
from mase_server.hardware.kinds import KINDS


def depths(design: Design, ways: Ways | None = None) -> dict[tuple[str, int], int]:
    """Elements that must be able to wait before each operand of each operation with several: (name, index) -> elements.

    These are the fewest; that the longer way also takes time is nobody's matter here, it costs cycles, not progress.
    """
    found = {
        (operation.name, index): 0
        for operation in design.operations.values()
        for index in range(len(operation.inputs))
        if len(operation.inputs) > 1
    }
    ways = ways or Ways(design)
    for operation in design.operations.values():
        if len(design.users(operation.name)) > 1:
            for place, waiting in ways.behind(operation).items():
                found[place] = max(found[place], waiting)
    return found


class Ways:
    """The ways of a design from where streams part to where they meet again."""

    def __init__(self, design: Design) -> None:
        self.design, self.operations = design, list(design.operations.values())
        self.places = {name: index for index, name in enumerate(design.operations)}
        self.reaches: dict[str, tuple[Tensor, ...]] = {}

    def behind(self, parting: Operation) -> dict[tuple[str, int], int]:
        """What must wait because streams part behind one operation."""
        needs: dict[str, Tensor] = {parting.name: torch.arange(1, parting.out.size + 1)}
        found: dict[tuple[str, int], int] = {}
        for operation in self._until_all_meet(parting):
            reach = self.reach(operation)
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

    def _until_all_meet(self, parting: Operation) -> Iterator[Operation]:
        """What reads a stream or what comes of it, up to the operation that all its ways lead through: behind that one
        there is one stream again, and what parts there is worked out there."""
        reached, open_ways = {parting.name}, len(self.design.users(parting.name))
        for operation in self.operations[self.places[parting.name] + 1 :]:
            ended = sum(name in reached for name in operation.inputs)
            if not ended:
                continue
            yield operation
            reached.add(operation.name)
            open_ways -= ended
            if not open_ways:
                return
            open_ways += len(self.design.users(operation.name))

    def reach(self, operation: Operation) -> tuple[Tensor, ...]:
        """For each operand, the last of its elements that each element of the result needs (see `Kind`)."""
        if operation.name not in self.reaches:
            with made(operation):
                self.reaches[operation.name] = KINDS[operation.kind].reach(self.design, operation)
        return self.reaches[operation.name]


def _at(counts: Tensor, places: Tensor) -> Tensor:
    """What elements at some places need; nothing for a place before the first."""
    return torch.where(places < 0, 0, counts[places.clamp(min=0)])


def _waiting(there_with: Tensor, wanted: Tensor, reach: Tensor) -> int:
    """The most elements of an operand that are there before the operation can take them."""
    # Those that come with the very element that is waited for hold nobody up any more.
    there = torch.searchsorted(there_with.contiguous(), wanted.contiguous(), right=False)
    taken = torch.cat([torch.zeros(1, dtype=torch.int64), (reach + 1).clamp(min=0).cummax(0).values[:-1]])
    return max(0, int((there - taken).max()))
