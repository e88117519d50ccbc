"""Watching: saves by anything are told once, on the loop, and noise is not."""

import asyncio
import errno

import pytest
from watchdog.observers import Observer
from watchdog.observers.polling import PollingObserver

from mase_server.daemon.watch import Watcher


@pytest.fixture
async def watched(tmp_path):
    heard = asyncio.Queue()
    watcher = Watcher(heard.put_nowait)
    watcher.watch({str(tmp_path)})
    yield tmp_path, heard, watcher
    watcher.close()


async def heard_until(heard, path):
    seen = []
    while str(path) not in seen:
        seen.append(await asyncio.wait_for(heard.get(), 30))
    return seen


@pytest.mark.parametrize("name", ["net.py", "net.ipynb"])
async def test_a_write_is_told(watched, name):
    folder, heard, _ = watched
    (folder / name).write_text("x")
    await heard_until(heard, folder / name)


async def test_a_burst_of_writes_is_told_once(watched):
    folder, heard, _ = watched
    for turn in range(50):
        (folder / "net.py").write_text(str(turn))
    (folder / "end.py").write_text("x")
    seen = await heard_until(heard, folder / "end.py")
    assert seen.count(str(folder / "net.py")) == 1


async def test_an_editors_rename_onto_the_file_is_told_for_the_file(watched):
    folder, heard, _ = watched
    (folder / "net.py.swap").write_text("x")
    (folder / "net.py.swap").rename(folder / "net.py")
    assert await heard_until(heard, folder / "net.py") == [str(folder / "net.py")]


async def test_other_files_and_folders_are_not_told(watched):
    folder, heard, _ = watched
    (folder / "notes.txt").write_text("x")
    (folder / "package.py").mkdir()
    (folder / "sub").mkdir()
    (folder / "sub" / "net.py").write_text("x")
    (folder / "end.py").write_text("x")
    assert await heard_until(heard, folder / "end.py") == [str(folder / "end.py")]


async def test_reading_a_file_is_not_told(watched):
    folder, heard, _ = watched
    (folder / "net.py").write_text("x")
    await heard_until(heard, folder / "net.py")
    (folder / "net.py").read_text()
    (folder / "end.py").write_text("x")
    assert str(folder / "net.py") not in await heard_until(heard, folder / "end.py")


@pytest.mark.parametrize("name", [".venv", ".git", "node_modules", "__pycache__", "site-packages"])
async def test_folders_that_only_cost_are_never_watched(watched, name):
    folder, _, watcher = watched
    (folder / name / "deep").mkdir(parents=True)
    watcher.watch({str(folder / name), str(folder / name / "deep")})
    assert watcher._watches == {}


async def test_a_folder_no_longer_asked_for_is_no_longer_watched(watched):
    folder, heard, watcher = watched
    (folder / "sub").mkdir()
    watcher.watch({str(folder / "sub")})
    (folder / "old.py").write_text("x")
    (folder / "sub" / "new.py").write_text("x")
    assert await heard_until(heard, folder / "sub" / "new.py") == [str(folder / "sub" / "new.py")]


async def test_at_the_systems_limit_it_polls(tmp_path, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise OSError(errno.ENOSPC, "inotify watch limit reached")

    monkeypatch.setattr(Observer, "schedule", refuse)
    heard = asyncio.Queue()
    watcher = Watcher(heard.put_nowait)
    watcher.watch({str(tmp_path)})
    assert isinstance(watcher._observer, PollingObserver)
    (tmp_path / "net.py").write_text("x")
    await heard_until(heard, tmp_path / "net.py")
    watcher.close()
