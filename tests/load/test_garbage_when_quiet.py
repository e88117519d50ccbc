"""Cycles are looked for while nobody waits: which periods of work and quiet lead to a look, and at what."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from mase_server.daemon import garbage

QUIET, BUSY = 0.0, 1.0


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the collector, in order."""
    found = []
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(garbage.gc, name, lambda name=name: found.append(name))
    return found


def after(asked, *periods):
    collector = garbage.Collector()
    for worked in periods:
        collector.period(worked)
    return asked


def test_half_a_minute_of_quiet_leads_to_one_look(asked):
    assert after(asked, BUSY, *[QUIET] * 20) == ["collect", "freeze"]


def test_work_in_between_begins_the_wait_anew(asked):
    assert after(asked, *[*[QUIET] * 5, BUSY] * 3) == []


def test_who_is_never_quiet_is_looked_through_every_two_minutes(asked):
    assert after(asked, *[BUSY] * 50) == ["collect", "freeze"] * 2


def test_after_a_long_quiet_all_that_was_set_aside_is_looked_through(asked):
    periods = [QUIET] * 60
    assert after(asked, *periods)[-3:] == ["unfreeze", "collect", "freeze"]
    assert asked.count("unfreeze") == 1


async def test_the_old_generation_is_left_alone_while_the_server_works(monkeypatch):
    before = gc.get_threshold()
    task = asyncio.create_task(garbage.collect_when_quiet())
    try:
        await asyncio.sleep(0)
        young, middle, old = gc.get_threshold()
        assert young == before[0]
        assert 0 < middle < before[1]
        assert old > 100_000
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        gc.set_threshold(*before)
