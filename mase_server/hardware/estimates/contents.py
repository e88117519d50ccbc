"""How many tables a read-only memory takes that no block memory takes the place of: what stands in it decides."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from mase_server.hardware.estimates.storage import stands_in_tables
from mase_server.hardware.memories import Words
from mase_server.hardware.timing.parameters import Given, given
from mase_server.hardware.wiring import Instance, Memory

#: Bits beyond which a memory is taken to be random.
_MOST_BITS = 1 << 18
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
    """Tables of four bits of address: one for every sixteen words of each bit that is no copy of the one below it."""
    rows = words.make()
    bits = (rows[..., None] >> torch.arange(words.width)) & 1
    is_copy = (bits[..., 1:] == bits[..., :-1]).all(0)
    columns = bits.permute(1, 2, 0)[functional.pad(~is_copy, (1, 0), value=True)]
    blocks = functional.pad(columns, (0, -columns.shape[1] % _WORDS)).reshape(-1, _WORDS)
    codes = (blocks << torch.arange(_WORDS)).sum(1)
    if len(words) <= _WORDS:
        codes = torch.unique(codes)
    return int((~torch.isin(codes, _NONE)).sum())
