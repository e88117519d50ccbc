"""What is made once: whole or not at all, used again, and bounded."""

import asyncio
import os
from pathlib import Path

import pytest

from mase_server.simulation.building import digest_contents, keep_folder


def filling(size):
    made = []

    async def make(folder):
        made.append(folder)
        (folder / "program").write_bytes(b"x" * size)

    return make, made


async def test_what_is_there_is_not_made_again(tmp_path):
    make, made = filling(10)
    first = await keep_folder(tmp_path, "a", make)
    assert await keep_folder(tmp_path, "a", make) == first == tmp_path / "a"
    assert len(made) == 1
    assert (first / "program").read_bytes() == b"x" * 10


async def test_what_fails_leaves_nothing(tmp_path):
    async def make(folder):
        (folder / "half").write_text("")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await keep_folder(tmp_path, "a", make)
    assert list(tmp_path.iterdir()) == []


async def test_two_who_want_the_same_both_get_it(tmp_path):
    make, made = filling(10)

    async def slowly(folder):
        await make(folder)
        await asyncio.sleep(0)

    both = await asyncio.gather(keep_folder(tmp_path, "a", slowly), keep_folder(tmp_path, "a", slowly))
    assert both == [tmp_path / "a"] * 2
    assert len(made) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


async def test_those_not_used_for_longest_go_first(tmp_path):
    make, _ = filling(40)
    for age, key in ((300, "old"), (200, "middle"), (100, "young")):
        await keep_folder(tmp_path, key, make, limit=1000)
        now = (tmp_path / key).stat().st_mtime
        os.utime(tmp_path / key, (now - age, now - age))
    await keep_folder(tmp_path, "old", make, limit=1000)
    await keep_folder(tmp_path, "new", make, limit=100)
    assert {path.name for path in tmp_path.iterdir()} == {"old", "new"}


async def test_one_that_is_too_big_alone_is_still_there(tmp_path):
    make, _ = filling(500)
    assert (await keep_folder(tmp_path, "a", make, limit=100)).exists()


async def test_what_was_abandoned_is_removed(tmp_path):
    abandoned, begun = tmp_path / "making-1", tmp_path / "making-2"
    abandoned.mkdir()
    begun.mkdir()
    os.utime(abandoned, (0, 0))
    make, _ = filling(1)
    await keep_folder(tmp_path, "a", make)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "making-2"}


async def test_one_that_another_process_takes_away_meanwhile_is_no_error(tmp_path, monkeypatch):
    """As pathlib raises if the folder goes between its two looks at it."""
    look = Path.rglob

    def look_too_late(folder, pattern):
        if folder.name == "making-1":
            folder.rmdir()
            raise FileNotFoundError(folder)
        return look(folder, pattern)

    (tmp_path / "making-1").mkdir()
    monkeypatch.setattr(Path, "rglob", look_too_late)
    make, _ = filling(1)
    assert (await keep_folder(tmp_path, "a", make)).exists()


def test_keys_tell_apart_where_one_part_ends():
    assert digest_contents(["ab", "c"]) != digest_contents(["a", "bc"])
    assert digest_contents(["a"]) == digest_contents([b"a"])
