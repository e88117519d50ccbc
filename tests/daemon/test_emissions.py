"""What is remembered of hardware: a few emissions of the newest trace, and only what a child tells whole."""

import pytest

from mase_server.building import EMISSION_KEYS, Build
from mase_server.daemon.emissions import Emission, Memory

from .fake_child import FakeFile, hardware

BUILDS = [Build(multipliers=number) for number in range(1, 7)]


@pytest.fixture
async def snapshots():
    """Those of two traces of one file."""
    file = FakeFile()
    first = file.store.snapshot("/w/net.py")
    file.save()
    return first, file.store.snapshot("/w/net.py")


def emission(snapshot, build=BUILDS[0], steps=(), leave_out=()):
    told = hardware(snapshot, {"model": "Net", "build": build.to_wire(), "steps": [], "folder": ""})
    return Emission.of(snapshot, 0, build, steps, {key: told[key] for key in told if key not in leave_out})


async def test_what_lacks_a_key_is_no_emission(snapshots):
    assert emission(snapshots[0]).told.keys() == EMISSION_KEYS.keys()
    with pytest.raises(ValueError, match=r"^what was emitted lacks scopes, totals$"):
        emission(snapshots[0], leave_out=("totals", "scopes"))


async def test_what_is_found_is_of_this_trace_this_build_and_these_steps(snapshots):
    first, second = snapshots
    memory, made = Memory(), emission(first, steps=("one",))
    memory.put(made)
    assert memory.find(first, BUILDS[0], ("one",)) is made
    assert memory.find(second, BUILDS[0], ("one",)) is None
    assert memory.find(first, BUILDS[1], ("one",)) is None
    assert memory.find(first, BUILDS[0], ()) is None


async def test_a_new_trace_forgets_what_was_made_of_the_one_before(snapshots):
    first, second = snapshots
    memory = Memory()
    for snapshot in (first, second):
        memory.put(emission(snapshot))
    assert [each.snapshot for each in memory.found] == [second]


async def test_the_newest_few_are_kept_each_once(snapshots):
    memory = Memory()
    for build in (*BUILDS, BUILDS[3]):
        memory.put(emission(snapshots[0], build))
    assert [each.build for each in memory.found] == [BUILDS[2], BUILDS[4], BUILDS[5], BUILDS[3]]
