"""What a save read is let go of once another took its place: no cycle holds it until somebody looks for cycles."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def no_collector():
    """Nobody looks for cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def end_of(thing):
    """Set once it is gone."""
    gone = asyncio.Event()
    weakref.finalize(thing, gone.set)
    return gone


@pytest.mark.parametrize("again", ["x = 1  # shape f32[3, 3]\n", "TWO_STEPS = 1\nx = 1  # shape f32[3, 3]\n"])
async def test_a_worker_and_its_snapshot_are_gone_after_the_next_save(bench, no_collector, again):
    path, _ = await bench.open("leaves.py", again)
    for number in range(2):
        ends = [end_of(bench.daemon.worker(path)), end_of(bench.daemon.store.snapshot(path))]
        await bench.save(path, f"{again}y = {number}\n")
        for gone in ends:
            await asyncio.wait_for(gone.wait(), 30)
