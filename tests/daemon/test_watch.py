"""Watching: saves by anything are told once, on the loop, and noise is not."""

import asyncio
import contextlib
import errno
import logging
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from watchdog.observers import Observer
from watchdog.observers.polling import PollingObserver

from mase_server.daemon import watch
from mase_server.daemon.watch import Watcher


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """What is looked for each second is looked for all the time."""
    monkeypatch.setattr(watch, "_LOOK", 0.05)
    monkeypatch.setattr(watch, "_POLL", 0.05)


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


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


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what it watches")
async def test_the_system_tells_no_reading(watched):
    """A trace reads hundreds of files: two events of each kept the server's threads busy for 20 ms."""
    folder, heard, _ = watched
    (folder / "net.py").write_text("x")
    await heard_until(heard, folder / "net.py")
    told = []
    for each in list(Path("/proc/self/fdinfo").iterdir()):
        with contextlib.suppress(OSError):  # that of the listing itself
            told.append(each.read_text())
    masks = [int(mask, 16) for text in told for mask in re.findall(r"^inotify .*? mask:([0-9a-f]+)", text, re.M)]
    opened, closed_unwritten, read = 0x20, 0x10, 0x1
    assert masks
    assert not any(mask & (opened | closed_unwritten | read) for mask in masks)


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


async def test_a_folder_that_is_given_up_while_its_thread_reads_is_no_error_in_the_log(watched, caplog):
    _, _, watcher = watched
    [emitter] = watcher._observer.emitters
    watcher.watch(set())
    emitter.queue_events(0)  # as its thread does where it has just seen that it is wanted
    logging.getLogger(type(emitter).__module__).error("another")
    assert [record.getMessage() for record in caplog.records] == ["another"]


async def test_a_change_of_times_or_rights_is_told_as_what_it_says_may_have_changed(watched):
    folder, heard, _ = watched
    (folder / "net.py").write_text("x")
    await heard_until(heard, folder / "net.py")
    (folder / "net.py").chmod(0o600)
    await heard_until(heard, folder / "net.py")


def delete(folder):
    shutil.rmtree(folder)


def move_away(folder):
    folder.rename(folder.with_name("elsewhere"))


def put_a_file_there(folder):
    shutil.rmtree(folder)
    folder.write_text("no folder")


@pytest.mark.parametrize("go", [delete, move_away, put_a_file_there])
async def test_a_folder_that_is_made_again_is_watched_again_and_all_it_holds_is_told(watched, go):
    folder, heard, watcher = watched
    work = folder / "work"
    work.mkdir()
    (work / "net.py").write_text("x")
    watcher.watch({str(folder), str(work)})
    go(work)
    if go is not delete:  # deleted and made again at once, it may have the very same number
        await until(lambda: str(work) not in watcher._watches)
    work.unlink() if work.is_file() else None
    work.mkdir()
    (work / "net.py").write_text("as git checkout leaves it")
    assert set(await heard_until(heard, work / "net.py")) <= {str(work / "net.py")}
    await until(lambda: str(work) in watcher._watches)
    while not heard.empty():
        heard.get_nowait()
    (work / "later.py").write_text("x")
    await heard_until(heard, work / "later.py")


async def test_a_folder_that_is_not_there_yet_is_watched_once_it_is(watched):
    folder, heard, watcher = watched
    watcher.watch({str(folder / "coming")})
    (folder / "coming").mkdir()
    (folder / "coming" / "net.py").write_text("x")
    await heard_until(heard, folder / "coming" / "net.py")


def refuse(number):
    def schedule(self, *args, **kwargs):
        raise OSError(number, "as inotify says it")

    return schedule


LIMITS = {
    errno.ENOSPC: "its limit of watched folders is reached; `sysctl fs.inotify.max_user_watches=524288` raises it",
    errno.EMFILE: "its limit of open files or of watchers is reached; `ulimit -n 4096` raises the first, and "
    "`sysctl fs.inotify.max_user_instances=512` the second",
}


@pytest.mark.parametrize("number", LIMITS)
async def test_at_the_systems_limit_it_polls_and_says_so_once(tmp_path, monkeypatch, caplog, number):
    (tmp_path / "other").mkdir()
    heard = asyncio.Queue()
    watcher = Watcher(heard.put_nowait)
    watcher.watch({str(tmp_path)})
    monkeypatch.setattr(Observer, "schedule", refuse(number))
    watcher.watch({str(tmp_path), str(tmp_path / "other"), str(tmp_path / "gone")})
    assert isinstance(watcher._observer, PollingObserver)
    for path in (tmp_path / "net.py", tmp_path / "other" / "net.py"):
        path.write_text("x")
        await heard_until(heard, path)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "net.py").write_text("x")
    await heard_until(heard, tmp_path / "gone" / "net.py")
    watcher.close()
    told = f"The system watches no more folders: {LIMITS[number]}. Files are looked at every 0.05 s instead."
    assert [one.getMessage() for one in caplog.records if one.name == "mase_server.daemon.watch"] == [told]


async def test_one_folder_that_cannot_be_watched_costs_the_others_nothing(tmp_path, monkeypatch, caplog):
    real = Observer.schedule

    def schedule(self, handler, folder, **options):
        if folder.endswith("other"):
            raise FileNotFoundError(errno.ENOENT, "gone meanwhile", folder)
        return real(self, handler, folder, **options)

    monkeypatch.setattr(Observer, "schedule", schedule)
    (tmp_path / "other").mkdir()
    heard = asyncio.Queue()
    watcher = Watcher(heard.put_nowait)
    watcher.watch({str(tmp_path), str(tmp_path / "other")})
    assert isinstance(watcher._observer, Observer)
    (tmp_path / "net.py").write_text("x")
    await heard_until(heard, tmp_path / "net.py")
    watcher.close()
    assert not caplog.records


async def test_times_that_go_backwards_are_changes_too_where_it_polls(tmp_path, monkeypatch):
    monkeypatch.setattr(Observer, "schedule", refuse(errno.ENOSPC))
    path = tmp_path / "net.py"
    path.write_text("x")
    heard = asyncio.Queue()
    watcher = Watcher(heard.put_nowait)
    watcher.watch({str(tmp_path)})
    before = path.stat()
    path.write_text("y")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns - 7200 * 10**9))
    await heard_until(heard, path)
    watcher.close()
