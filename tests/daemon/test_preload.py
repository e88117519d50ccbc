"""The learned preload: what files imported is there before the next fork, unless it would make forking unsafe."""

import asyncio
import os
from pathlib import Path

import pytest
from worker.pythons import make_python

from mase_server.daemon.environment import Candidate
from mase_server.daemon.pool import Learned, NoInterpreter, Pool

from .conftest import JOB

THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
BACKWARD = "import torch\nx = torch.ones(2, requires_grad=True)\nx.sum().backward()\n"


def test_what_is_learned_is_kept_and_grows(tmp_path):
    learned = Learned(tmp_path, "/w", "/python")
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.touch()
    learned.learn(str(files[0]), ["torchlib", "torchlib.deep"])
    learned.learn(str(files[1]), ["other"])
    learned.learn(str(files[0]), ["late"])
    again = Learned(tmp_path, "/w", "/python")
    assert again.modules() == ["torchlib", "torchlib.deep", "late", "other"]
    assert again.needs(str(files[1])) == ["other"]
    assert Learned(tmp_path, "/w", "/other/python").modules() == []


def test_what_is_harmful_is_banned_with_all_below_it(tmp_path):
    (tmp_path / "a.py").touch()
    learned = Learned(tmp_path, "/w", "/python")
    learned.learn(str(tmp_path / "a.py"), ["bad", "bad.deep", "badly", "good"])
    learned.ban(["bad"])
    assert Learned(tmp_path, "/w", "/python").modules() == ["badly", "good"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": 1, "harmful": []}', '{"files": {"a": 1}}'])
def test_a_broken_cache_is_an_empty_one(tmp_path, content):
    Learned(tmp_path, "/w", "/python").ban(["x"])
    (file,) = (tmp_path / "preload").glob("*.json")
    file.write_text(content)
    assert Learned(tmp_path, "/w", "/python").modules() == []


class World:
    """A folder, an interpreter with packages of the test's own, and a pool."""

    def __init__(self, tmp):
        self.python, self.site = make_python(tmp / "env", torch=True)
        self.folder = tmp / "workspace"
        self.folder.mkdir()
        self.file = self.folder / "net.py"
        self.file.touch()
        self.cache = tmp / "cache"
        self.pool = Pool(self.cache, JOB)
        self.found = [Candidate(self.python, "the test", True)]

    def package(self, name, text=""):
        (self.site / f"{name}.py").write_text(text)

    def learned(self):
        return Learned(self.cache, str(self.folder), self.python)

    async def child(self):
        _, child = await self.pool.child(str(self.folder), str(self.file), self.found)
        return child

    def learn(self, *names):
        self.pool.learned(str(self.file), names)

    @property
    def seat(self):
        return self.pool._seat_of[str(self.file)]

    async def replaced(self):
        await self.seat._replacing
        return self.seat._launcher


@pytest.fixture
async def world(tmp_path):
    world = World(tmp_path)
    yield world
    await world.pool.restart()


async def test_what_a_call_imported_is_there_before_the_next_fork_but_not_in_the_next_server(world):
    world.package("good")
    await (await world.child()).stop()
    world.pool.used(str(world.file), ["good"])
    assert set((await world.replaced()).preloaded) == {"torch", "good"}
    assert world.learned().modules() == []


async def test_a_parent_that_lacks_what_files_import_is_replaced_behind_their_backs(world):
    world.package("good")
    child = await world.child()
    old = world.seat._launcher
    world.learn("good", "absent", "json.decoder")
    other = await world.child()
    assert world.seat._launcher is old or world.seat._replacing.done()
    fresh = await world.replaced()
    assert fresh is not old
    assert set(fresh.preloaded) == {"torch", "good", "json.decoder"}
    assert fresh.failed == {"absent": "ModuleNotFoundError: No module named 'absent'"}
    assert child.alive
    world.learn("absent")
    assert world.seat._replacing.done()  # not replaced for what cannot be imported
    await child.stop()
    await other.stop()
    await asyncio.gather(child.exited, other.exited)
    await (await world.child()).stop()
    await asyncio.wait([old._reader], timeout=60)  # it is ended in the background
    assert not old.alive


@pytest.mark.parametrize("text", [THREAD, BACKWARD], ids=["thread", "backward"])
async def test_a_module_that_makes_forking_unsafe_is_dropped(world, text):
    world.package("bad", text)
    world.package("good")
    learned = world.learned()
    learned.learn(str(world.file), ["bad", "good"])
    child = await world.child()  # the file needs it, so it is imported, found harmful, and the parent replaced
    assert world.learned().modules() == ["good"]
    launcher = world.seat._launcher
    await launcher.settled.wait()
    assert set(launcher.preloaded) == {"torch", "good"}
    assert len(list(Path(f"/proc/{launcher.handshake.pid}/task").iterdir())) == 1
    await child.stop()


async def test_a_module_that_kills_the_parent_is_not_tried_for_ever(world):
    world.package("deadly", "import os\nos.abort()\n")
    world.learned().learn(str(world.file), ["deadly"])
    child = await world.child()
    assert child.alive
    assert world.learned().modules() == []


async def test_a_parent_with_a_changed_package_is_replaced_before_the_next_child(world):
    world.package("lib", "V = 1")
    world.learned().learn(str(world.file), ["lib"])
    await world.child()
    old = world.seat._launcher
    await old.settled.wait()
    await world.child()
    assert world.seat._launcher is old
    world.package("lib", "V = 22")
    os.utime(world.site / "lib.py", ns=(1, 1))
    await world.child()
    assert world.seat._launcher is not old


async def test_the_workspaces_own_modules_are_never_preloaded(world):
    (world.folder / "own.py").write_text("open(__file__ + '.ran', 'w')")
    (world.site / "link.pth").write_text(str(world.folder))
    world.learned().learn(str(world.file), ["own"])
    await world.child()
    await world.seat._launcher.settled.wait()
    assert world.seat._launcher.failed == {"own": "belongs to the workspace"}
    assert not (world.folder / "own.py.ran").exists()


async def test_without_any_usable_interpreter_each_is_told_and_the_next_try_may_succeed(world, tmp_path):
    bare, _ = make_python(tmp_path / "bare")
    first = [Candidate(str(tmp_path / "none"), "the setting", False), Candidate(bare, "PATH", False)]
    with pytest.raises(NoInterpreter) as refused:
        await world.pool.child(str(world.folder), str(world.file), first)
    assert refused.value.code == "no-interpreter"
    assert [candidate.path for candidate, _ in refused.value.tried] == [one.path for one in first]
    _, child = await world.pool.child(str(world.folder), str(world.file), [*first, *world.found])
    assert child.alive
