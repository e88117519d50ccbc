"""One daemon for the whole session, with a real warm parent and the stub job; each test has its own files."""

import asyncio
import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from mase_server.daemon.daemon import Daemon, FolderSettings

JOB = f"{Path(__file__).parent / 'stub_job.py'}:trace"
MODEL = "import torch.nn as nn\nclass Net(nn.Module): pass\n"


class Ear:
    """Keeps all that a daemon says, in order."""

    def __init__(self):
        self.said = []
        self.states = defaultdict(list)
        self.news = asyncio.Event()

    def status_changed(self, status):
        self.said.append(status)
        self.states[status.path].append(status)
        self.news.set()

    def views_changed(self, paths):
        self.said.append(paths)
        self.news.set()

    def progress(self, path, stage, message):
        self.said.append((path, stage, message))
        self.news.set()

    def pass_progress(self, path, model, message, fraction):
        self.said.append((path, model, message, fraction))
        self.news.set()

    def pass_ended(self, path, model):
        self.said.append((path, model))
        self.news.set()

    def verilog_changed(self, path, model):
        self.said.append(("verilog", path, model))
        self.news.set()

    def verilog_progress(self, path, model, message, fraction):
        self.said.append(("verilog", path, model, message, fraction))
        self.news.set()

    def verilog_ended(self, path, model):
        self.said.append(("verilog ended", path, model))
        self.news.set()

    def worker_ended(self, path, why):
        self.said.append(("worker ended", path, why))
        self.news.set()

    def warned(self, text):
        self.said.append(text)
        self.news.set()

    async def until(self, condition):
        while not (found := condition()):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)
        return found


class Bench:
    """A daemon on one folder, and a hand that edits files in it."""

    def __init__(self, folder, tmp, **options):
        self.folder = folder
        self.settings = FolderSettings(trusted=True, interpreter=sys.executable)
        self.ear = Ear()
        self.cache_dir = tmp / "cache"
        self.daemon = Daemon(
            self.ear,
            cache_dir=self.cache_dir,
            state_dir=tmp / "state",
            settings_of=lambda folder: self.settings,
            folder_of=lambda path: str(folder),
            job=options.pop("job", JOB),
            **options,
        )

    def write(self, name, text, model=True):
        path = self.folder / name
        path.write_text((MODEL if model else "") + text)
        return str(path)

    async def open(self, name, text="x = 1  # shape f32[2, 3]\n", **options):
        path = self.write(name, text, **options)
        self.daemon.opened(path)
        return path, await self.daemon.wait(path)

    async def save(self, path, text):
        self.write(path, text)
        self.daemon.saved(path)
        return await self.daemon.wait(path)

    def names(self, path):
        view = self.daemon.store.view(path)
        return [site.name for site in view.sites(1, 1000)]

    def problems(self, path):
        view = self.daemon.store.view(path)
        return view.problems() if view is not None else []

    def ends(self, path):
        return [(status.generation, status.state) for status in self.ear.states[path] if status.ended]

    async def tracing(self, path):
        generation = self.daemon._tracked[path].generation
        await self.ear.until(
            lambda: any(one.state == "tracing" and one.generation == generation for one in self.ear.states[path])
        )


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def shared_bench(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("daemon")
    folder = tmp / "workspace"
    folder.mkdir()
    bench = Bench(folder, tmp)
    await bench.daemon.start()
    yield bench
    await bench.daemon.shutdown()


@pytest.fixture
def bench(shared_bench):
    before = shared_bench.settings
    yield shared_bench
    shared_bench.settings = before


@pytest_asyncio.fixture(loop_scope="session")
async def own_bench(tmp_path):
    """A daemon of the test's own, for what would disturb the shared one. Call it with options of Daemon."""
    benches = []

    def make(**settings):
        options = settings.pop("options", {})
        folder = tmp_path / f"workspace{len(benches)}"
        folder.mkdir()
        bench = Bench(folder, tmp_path, **options)
        bench.settings = replace(bench.settings, **settings)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        await bench.daemon.shutdown()


def is_running(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def gone(pid):
    """Wait until a process that is nobody's child here has ended."""
    for _ in range(200):
        if not is_running(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def appears(path):
    """Wait until user code wrote a file; its text."""
    for _ in range(1500):
        if path.exists() and path.stat().st_size:
            return path.read_text()
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path} was never written by {os.getpid()}")
