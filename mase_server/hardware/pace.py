"""How much waits where streams meet again while samples follow one another without a pause.

`buffers` says what must be able to wait so that nothing stands still for ever; that is not enough to run at full rate,
because the longer way takes time, too. Here samples come evenly, one in each interval, and everything is done as soon
as it can be; what is there by then and not yet wanted has to find room. Inputs that come sooner make nothing later.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mase_server.hardware.design import Design, Operation
from mase_server.hardware.folding import Folding
from mase_server.hardware.kinds import KINDS

#: Samples that are followed: the last one meets what those before it left over.
_SAMPLES = 3
#: Cycles from an operand to its result that no fold accounts for: registers, trees of adders, converters.
_REGISTERS = 32


def waiting(design: Design, folding: Folding) -> dict[tuple[str, int], int]:
    """Elements that wait before each operand of each operation with several, at full rate: (name, index) -> them."""
    if all(len(operation.inputs) < 2 for operation in design.operations.values()):
        return {}
    found: dict[tuple[str, int], int] = {}
    times: dict[str, Tensor] = {}
    for operation in design.operations.values():
        reach = [
            _over_samples(places, design.operations[name].out.size)
            for name, places in zip(operation.inputs, KINDS[operation.kind].reach(design, operation), strict=True)
        ]
        operands = [times[name] for name in operation.inputs]
        begun, latency = _begun(operation, folding, operands, reach)
        times[operation.name] = begun + latency
        if len(operands) > 1:
            most = (_most(there, begun, places) for there, places in zip(operands, reach, strict=True))
            found |= {(operation.name, index): each for index, each in enumerate(most)}
    return found


def _over_samples(places: Tensor, size: int) -> Tensor:
    """Places in one sample as places in all of them, none below what was wanted before."""
    starts = torch.arange(_SAMPLES)[:, None] * size
    return (places + starts).reshape(-1).cummax(0).values


def _begun(operation: Operation, folding: Folding, operands: list[Tensor], reach: list[Tensor]) -> tuple[Tensor, float]:
    """When each element of a result is begun, one after the other and each after all that it needs; cycles until it is
    there."""
    size, fold = operation.out.size, folding.folds.get(operation.name)
    counted = torch.arange(_SAMPLES * size, dtype=torch.float64)
    if not operands:
        return counted * (folding.interval / size), 0.0
    pace = fold.cycles / size if fold is not None else 0.0
    latency = _REGISTERS + (2 * pace * fold.par_out if fold is not None else 0)
    ready = torch.stack([there[places.clamp(min=0)] for there, places in zip(operands, reach, strict=True)]).amax(0)
    # Element k begins at the latest of: ready[j] + (k - j) * pace, for all j up to k.
    return (ready - counted * pace).cummax(0).values + counted * pace, latency


def _most(there: Tensor, taken: Tensor, reach: Tensor) -> int:
    """The most elements of an operand that are there and not yet taken."""
    arrived = torch.searchsorted(there.contiguous(), taken.contiguous(), right=True)
    before = torch.cat([torch.zeros(1, dtype=torch.int64), reach[:-1] + 1])
    return max(0, int((arrived - before).max()))
