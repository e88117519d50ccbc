"""How much waits where streams meet again while samples follow one another without a pause.

`buffers` says what must be able to wait so that nothing stands still for ever; that is not enough to run at full rate,
because the longer way takes time, too. Here samples come evenly, one in each interval, and everything is done as soon
as it can be; what is there by then and not yet wanted has to find room. Inputs that come sooner make nothing later.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mase_server.hardware.buffers import Ways
from mase_server.hardware.design import Design, Operation, Stream
from mase_server.hardware.folding import Folding
from mase_server.hardware.folds import Fold

#: Samples that are followed: the last one meets what those before it left over.
_SAMPLES = 3
#: Moments of a sample that are looked at: longer streams are followed in groups of elements.
_MOMENTS = 2048
#: Cycles from an operand to its result that no fold accounts for: registers, trees of adders, converters.
_REGISTERS = 32


def waiting(design: Design, folding: Folding, ways: Ways) -> dict[tuple[str, int], int]:
    """Elements that wait before each operand of each operation with several, at full rate: (name, index) -> them."""
    if all(len(operation.inputs) < 2 for operation in design.operations.values()):
        return {}
    found: dict[tuple[str, int], int] = {}
    flows: dict[str, _Flow] = {}
    for operation in design.operations.values():
        ends = _ends(operation.out)
        operands = [flows[name] for name in operation.inputs]
        reach = [
            _over_samples(each[ends], flow.size) for each, flow in zip(ways.reach(operation), operands, strict=True)
        ]
        begun, latency = _begun(
            folding, operation, ends, [flow.at(each) for flow, each in zip(operands, reach, strict=True)]
        )
        flows[operation.name] = _Flow(operation.out.size, ends, begun + latency)
        if len(operands) > 1:
            most = (flow.most(begun, each) for flow, each in zip(operands, reach, strict=True))
            found |= {(operation.name, index): each for index, each in enumerate(most)}
    return found


@dataclass(frozen=True, slots=True)
class _Flow:
    """When the elements of a stream are there, in groups. ends: the last of each.  times: cycles, all samples."""

    size: int
    ends: Tensor
    times: Tensor

    @property
    def group(self) -> int:
        """Elements of a group."""
        return int(self.ends[0]) + 1

    def at(self, places: Tensor) -> Tensor:
        """When elements are there, by their places over all samples."""
        sample, place = places // self.size, places % self.size
        return self.times[sample * len(self.ends) + place // self.group]

    def most(self, begun: Tensor, reach: Tensor) -> int:
        """The most elements that are there and not yet taken. begun: when those up to `reach` are taken."""
        groups = torch.searchsorted(self.times, begun, right=True)
        sample, group = groups // len(self.ends), groups % len(self.ends)
        there = sample * self.size + group * self.group
        before = torch.cat([torch.zeros(1, dtype=torch.int64), reach[:-1] + 1])
        return max(0, int((there - before).max()))


def _ends(stream: Stream) -> Tensor:
    """The last element of each group of a sample."""
    group = -(-stream.size // _MOMENTS)
    return (torch.arange(0, stream.size, group) + group - 1).clamp(max=stream.size - 1)


def _over_samples(places: Tensor, size: int) -> Tensor:
    """Places in one sample as places in all of them, none below what was wanted before."""
    starts = torch.arange(_SAMPLES)[:, None] * size
    return (places + starts).reshape(-1).cummax(0).values.clamp(min=0)


def _begun(folding: Folding, operation: Operation, ends: Tensor, ready: list[Tensor]) -> tuple[Tensor, float]:
    """When elements of a result are begun, one after the other and each after all that it needs; cycles until they are
    there."""
    size, fold = operation.out.size, folding.folds.get(operation.name)
    counted = (ends + torch.arange(_SAMPLES)[:, None] * size).reshape(-1).double()
    if not ready:
        return counted * (folding.interval / size), 0.0
    pace, latency = _pace(size, fold)
    latest = torch.stack(ready).amax(0)
    # Element k begins at the latest of: ready[j] + (k - j) * pace, for all j up to k.
    return (latest - counted * pace).cummax(0).values + counted * pace, latency


def _pace(size: int, fold: Fold | None) -> tuple[float, float]:
    """Cycles from one element to the next, and from an operand to its result."""
    if fold is None:
        return 0.0, _REGISTERS
    return fold.cycles / size, _REGISTERS + 2 * fold.par_out * fold.cycles / size
