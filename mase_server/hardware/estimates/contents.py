"""How many tables a read-only memory takes that no block memory takes the place of: what stands in it decides."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from mase_server.hardware.estimates.storage import stands_in_tables
from mase_server.hardware.memories import Words
from mase_server.hardware.timing.parameters import Given, given
from mase_server.hardware.wiring import Instance, Memory

#: Bits beyond which a memory is taken to be random.
_MOST_BITS = 1 << 22
#: Functions of four bits that take no table: constants, and one of the bits.
_NONE = torch.tensor([0x0000, 0xFFFF, 0xAAAA, 0xCCCC, 0xF0F0, 0xFF00])
_WORDS = 16


def filled(instance: Instance, memories: Mapping[str, Memory]) -> Given:
    """The parameters of an instance as numbers; those that name a file say how many tables its words take."""
    found = dict(given(instance))
    for name, value in instance.parameters.items():
        memory = memories.get(value) if isinstance(value, str) else None
        if memory is not None and isinstance(memory.words, Words) and _is_looked_at(memory):
            found[name] = tables(memory.words)
    return found


def _is_looked_at(memory: Memory) -> bool:
    width, depth = memory.width, len(memory.words)
    return stands_in_tables(width, depth) and width * depth <= _MOST_BITS


def tables(words: Words) -> int:
    """Tables of four bits of address, one for every sixteen words of each bit that differs from the others."""
    rows = words.make()
    columns = ((rows[..., None] >> torch.arange(words.width)) & 1).flatten(1).T
    bits: Tensor = torch.unique(columns, dim=0)
    blocks = functional.pad(bits, (0, -bits.shape[1] % _WORDS)).reshape(-1, _WORDS)
    codes = (blocks << torch.arange(_WORDS)).sum(1)
    if len(words) <= _WORDS:
        codes = torch.unique(codes)
    return int((~torch.isin(codes, _NONE)).sum())
