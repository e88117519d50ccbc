"""What a big trace held is freed a column in each turn of the loop, and not before nobody has it."""

from __future__ import annotations

import asyncio
import itertools
import weakref

import pytest

from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.slots import let_go
from mase_server.protocol.snapshot import COLUMNS, HEAD_KEYS


class Column(list):
    """A list that can be watched."""


@pytest.fixture
def held():
    """A snapshot, and what tells how many of its columns are left."""
    tables = {table: {name: Column([0] * 3) for name in names} for table, names in COLUMNS.items()}
    refs = [weakref.ref(column) for columns in tables.values() for column in columns.values()]
    head = dict.fromkeys(HEAD_KEYS) | {"models": [], "problems": [], "files": [], "values": [], "scopes": []}
    return [GraphSnapshot({**head, **tables})], lambda: sum(ref() is not None for ref in refs), len(refs)


async def test_a_snapshot_that_is_gone_is_freed_a_column_a_turn(held):
    snapshots, left, all_of_them = held
    snapshots.clear()
    counts = [left()]
    assert counts[0] >= all_of_them - 1
    while counts[-1]:
        await asyncio.sleep(0)
        counts.append(left())
    assert all(before - after <= 1 for before, after in itertools.pairwise(counts)), counts


async def test_what_somebody_still_has_stays(held):
    snapshots, left, _ = held
    copy = snapshots[0].with_transforms({})
    snapshots.clear()
    names = copy.payload["nodes"]["name"]
    for _ in range(60):
        await asyncio.sleep(0)
    assert left() == len([name for columns in COLUMNS.values() for name in columns])
    del copy
    for _ in range(60):
        await asyncio.sleep(0)
    assert left() == 1
    assert names == [0, 0, 0]


def test_where_no_loop_runs_all_of_it_is_freed_at_once(held):
    snapshots, left, _ = held
    snapshots.clear()
    assert left() == 0


async def test_nothing_is_asked_of_the_loop_for_nothing():
    turned = []
    let_go([])
    asyncio.get_running_loop().call_soon(turned.append, 1)
    await asyncio.sleep(0)
    assert turned == [1]
