"""When the first result is there, of designs with too many beats to follow each: groups of elements of one sample.

Every operation begins a group when it is done with the one before it and has all that the group needs. That stores are
bounded is left out: what waits for room waits for an operation that is slower anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.hardware.buffers import Ways
from mase_server.hardware.design import Design, Operation, Stream
from mase_server.hardware.folding import Folding
from mase_server.hardware.wiring import Netlist

#: Groups of a stream.
_GROUPS = 512
#: Cycles through the registers of an operation, by its kind.
_REGISTERS = 12
_FEWER = {
    **dict.fromkeys(("move", "constant"), 0),
    **dict.fromkeys(("concat", "pad", "requantise", "table", "take"), 1),
    **dict.fromkeys(("elementwise", "embedding", "gather", "swap"), 3),
}
#: Kinds that work on operands as they come: when the last one is there, all others have been worked on.
_AS_THEY_COME = ("linear", "conv2d")


@dataclass(frozen=True, slots=True)
class _Flow:
    """When the last elements of groups are there. ends: which they are; times: cycles."""

    ends: Tensor
    times: Tensor

    def at(self, places: Tensor) -> Tensor:
        """When elements are there; between the ends of groups they come evenly."""
        group = torch.searchsorted(self.ends, places.clamp(min=0)).clamp(max=len(self.ends) - 1)
        before = (group - 1).clamp(min=0)
        first, last = self.ends[before].double(), self.ends[group].double()
        share = torch.where(last > first, (places - first) / (last - first), 1.0).clamp(0, 1)
        return torch.where(places < 0, 0.0, self.times[before] + share * (self.times[group] - self.times[before]))


def latency(design: Design, folding: Folding, made: Netlist) -> int:
    """Cycles from the first beat in to the last of the first result, within some percent."""
    ways, flows = Ways(design), dict[str, _Flow]()
    inputs = {operation.name: tap.lanes for operation, tap in zip(design.inputs, made.inputs, strict=True)}
    for operation in design.operations.values():
        ends = _ends(operation.out)
        if operation.name in inputs:
            flows[operation.name] = _Flow(ends, (ends + 1) / inputs[operation.name])
            continue
        ready = [
            flows[name].at(places[ends]) for name, places in zip(operation.inputs, ways.reach(operation), strict=True)
        ]
        flows[operation.name] = _Flow(ends, _given(operation, folding, ends, ready))
    return round(max((float(flows[name].times[-1]) for name in design.outputs), default=0.0))


def _ends(stream: Stream) -> Tensor:
    """Groups of about one size. None goes over the end of a row, or of a pixel: the next may come much later."""
    groups = min(stream.size, _GROUPS)
    ends = {(group * stream.size) // groups - 1 for group in range(1, groups + 1)}
    row = stream.shape[-1 if stream.order is None else 0] if stream.shape else 1
    if stream.size // row <= _GROUPS:
        ends |= set(range(row - 1, stream.size, row))
    return torch.tensor(sorted(ends))


def _given(operation: Operation, folding: Folding, ends: Tensor, ready: list[Tensor]) -> Tensor:
    """When an operation gives what it has the operands for."""
    if not ready:
        return torch.zeros(len(ends), dtype=torch.float64)
    fold = folding.folds.get(operation.name)
    lanes = fold.par_out if fold is not None else 1
    beat = fold.cycles * lanes / operation.out.size if fold is not None else 0.0
    counted = (ends // lanes).double() * beat
    registers = _FEWER.get(operation.kind, _REGISTERS) + (0 if operation.kind in _AS_THEY_COME else beat)
    latest = torch.stack(ready).amax(0) + registers
    return (latest - counted).cummax(0).values + counted
