"""Seeded draws from hypothesis strategies, many at once: one build simulates them all."""

import os
import random

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

#: How many configurations go into one build; the nightly target asks for more, and for other seeds.
COUNT = int(os.environ.get("RTL_CONFIGURATIONS", "16"))
SEED = int(os.environ.get("RTL_SEED", "1"))


def drawn(strategy, count=COUNT):
    """`count` different draws, the same ones at every run: the simplest, and some of many others.

    Hypothesis begins with what is simplest and then stays near what it has tried; a sample of many is more mixed.
    """
    found = []

    @seed(SEED)
    @settings(max_examples=40 * count, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value):
        if len(found) < _SOME * count and value not in found:
            found.append(value)

    collect()
    assert len(found) >= count, f"the strategy has only {len(found)} different values"
    return found[:1] + random.Random(SEED).sample(found[1:], count - 1)


#: How many times more draws than are taken.
_SOME = 10


def integers(width, *shape, generator):
    """Random signed integers of `width` bits; a third are at the ends, so that sums reach their limits."""
    low, high = -(1 << (width - 1)), 1 << (width - 1)
    values = torch.randint(low, high, shape, generator=generator)
    ends = torch.where(torch.rand(shape, generator=generator) < 0.5, low, high - 1)
    return torch.where(torch.rand(shape, generator=generator) < 0.33, ends, values)


def generator(number):
    return torch.Generator().manual_seed(SEED * 1000 + number)
