"""Nothing stale is called fresh: whatever a trace read, listed or looked for is followed, and traced again."""

import asyncio
import os
import random
import shutil

import pytest
import pytest_asyncio

from mase_server.daemon import daemon, tracked, watch
from mase_server.daemon.process import DEFAULT_JOB
from mase_server.dependencies import MOST
from tests.conftest import SEARCH

from .conftest import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: What precedes it gives `width`, on which the shape of `y` depends.
NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, width)

    def forward(self, x):
        y = self.fc(x)
        return y


if __name__ == "__main__":
    Net()(torch.zeros(2, 4))
"""


class Shown(Bench):
    """A daemon with the real job, and what it shows of `net.py` in a folder of its own for each test."""

    def at(self, folder):
        self.place = folder
        folder.mkdir()
        return self

    def put(self, name, text):
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    async def begin(self, head, name="net.py"):
        """Open a file that gets its width by `head`; the width that is shown."""
        self.path = str(self.put(name, head + NET))
        self.daemon.opened(self.path)
        await self.daemon.wait(self.path)
        await self.quiet()
        return self.width()

    def width(self):
        """Of `y`; None where nothing is shown of it."""
        view = self.daemon.store.view(self.path)
        sites = [] if view is None else [site for site in view.sites(1, 1000) if site.name == "y"]
        return sites[0].values[0].value[1][1] if sites else None

    def status(self):
        return self.daemon.status(self.path)

    async def becomes(self, width):
        """Wait until this width is shown, and is told to be fresh."""
        await self.ear.until(lambda: self.width() == width and self.is_fresh())

    def is_fresh(self):
        return self.status().state == "ready" and not self.status().stale

    async def quiet(self):
        """Wait until everything that is on its way was compared."""
        while self.daemon._background:
            await asyncio.gather(*self.daemon._background)

    def problems_told(self):
        return [problem.code for problem in self.problems(self.path)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("freshness")
    folder = tmp / "workspace"
    folder.mkdir()
    shown = Shown(folder, tmp, job=DEFAULT_JOB)
    await shown.daemon.start()
    yield shown
    await shown.daemon.shutdown()


@pytest_asyncio.fixture(loop_scope="module")
async def shown(shared, request, monkeypatch):
    monkeypatch.setattr(watch, "_LOOK", 0.1)
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    yield shared.at(shared.folder / name)
    shared.daemon.closed(shared.path)


async def test_a_configuration_that_the_model_reads(shown):
    shown.put("config.json", '{"width": 5}')
    assert await shown.begin('import json\nwidth = json.load(open("config.json"))["width"]\n') == 5
    shown.put("config.json", '{"width": 6}')
    await shown.becomes(6)


LOADERS = {
    "spec": "import importlib.util\n"
    'spec = importlib.util.spec_from_file_location("part", "part.txt.py")\n'
    "part = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(part)\nwidth = part.width\n",
    "runpy": 'import runpy\nwidth = runpy.run_path("part.txt.py")["width"]\n',
    "exec": 'exec(open("part.txt.py").read())\n',
}


@pytest.mark.parametrize("loader", LOADERS)
async def test_a_file_that_is_loaded_by_its_path(shown, loader):
    shown.put("part.txt.py", "width = 5\n")
    assert await shown.begin(LOADERS[loader]) == 5
    shown.put("part.txt.py", "width = 16\n")
    await shown.becomes(16)


async def test_a_package_appears_beside_the_module_that_it_shadows(shown):
    shown.put("sizes.py", "width = 5\n")
    assert await shown.begin("from sizes import width\n") == 5
    shown.put("sizes/__init__.py", "width = 6\n")
    await shown.becomes(6)
    shutil.rmtree(shown.place / "sizes")
    await shown.becomes(5)


async def test_a_module_appears_in_front_of_an_installed_one(shown):
    assert await shown.begin("import pytest\nwidth = getattr(pytest, 'width', 5)\n") == 5
    # By now the warm parent has learned that name, and the next child finds it imported.
    await shown.daemon._services.pool._seat_of[shown.path]._replacing
    shown.daemon.retrace(shown.path)
    await shown.daemon.wait(shown.path)
    shown.put("pytest.py", "width = 6\n")
    await shown.becomes(6)
    (shown.place / "pytest.py").unlink()
    await shown.becomes(5)


async def test_an_optional_import_appears_and_goes(shown):
    assert await shown.begin("try:\n    from extra_part import width\nexcept ImportError:\n    width = 5\n") == 5
    path = shown.put("extra_part.py", "width = 6\n")
    await shown.becomes(6)
    path.unlink()
    await shown.becomes(5)


async def test_an_imported_file_is_deleted(shown):
    part = shown.put("part.py", "width = 5\n")
    assert await shown.begin("from part import width\n") == 5
    part.unlink()
    await shown.ear.until(lambda: shown.status().ended and "missing-package" in shown.problems_told())
    shown.put("part.py", "width = 6\n")
    await shown.becomes(6)
    assert not shown.problems_told()


async def test_a_missing_import_appears(shown):
    await shown.begin("import absent_part\nwidth = absent_part.width\n")
    assert "missing-package" in shown.problems_told()
    shown.put("absent_part.py", "width = 6\n")
    await shown.becomes(6)
    assert not shown.problems_told()


CONFIG = 'import json\nwidth = json.load(open("config.json"))["width"]\n'
#: What a program may ask of the disk: how it gets its width, what is there at first (5), and what makes it 6.
ASKED = {
    "glob": ('import glob\nwidth = 4 + len(glob.glob("parts/*.txt"))\n', {"parts/a.txt": ""}, {"parts/b.txt": ""}),
    "listdir": ('import os\nwidth = 4 + len(os.listdir("parts"))\n', {"parts/a.txt": ""}, {"parts/b": ""}),
    "walk": ('import os\nwidth = 4 + len(list(os.walk(".")))\n', {}, {"parts/a": ""}),
    "exists": ('import os\nwidth = 5 + os.path.exists("wide")\n', {}, {"wide": ""}),
    "exists deeper": ('from pathlib import Path\nwidth = 5 + Path("a/b/wide").exists()\n', {}, {"a/b/wide": ""}),
    "access": ('import os\nwidth = 5 + os.access("wide", os.R_OK)\n', {}, {"wide": ""}),
    "size": ('import os\nwidth = os.path.getsize("data")\n', {"data": "12345"}, {"data": "123456"}),
    "os.open": ('import os\nwidth = int(os.read(os.open("n", os.O_RDONLY), 9))\n', {"n": "5"}, {"n": "6"}),
    "path in __file__": (
        'from pathlib import Path\nwidth = int((Path(__file__).parent / "n").read_text())\n', {"n": "5"}, {"n": "6"},
    ),
    "resources": (
        'from importlib import resources\nwidth = int(resources.files("pack").joinpath("n").read_text())\n',
        {"pack/__init__.py": "", "pack/n": "5"}, {"pack/n": "6"},
    ),
    "sys.path": (
        'import sys\nsys.path.insert(0, "late")\nsys.path.insert(0, "early")\nfrom sizes import width\n',
        {"late/sizes.py": "width = 5\n"}, {"early/sizes.py": "width = 6\n"},
    ),
    "namespace package": ("from pack.part import width\n", {"pack/part.py": "width = 5\n"}, {
        "pack/__init__.py": "", "pack/part.py": "width = 6\n",
    }),
    "lazy import": (
        "def late():\n    from part import width\n    return width\nwidth = late()\n", {"part.py": "width = 5\n"},
        {"part.py": "width = 6\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", ASKED)
async def test_whatever_a_program_asks_of_the_disk_is_followed(shown, way):
    head, before, after = ASKED[way]
    for name, text in before.items():
        shown.put(name, text)
    assert await shown.begin(head) == 5
    for name, text in after.items():
        shown.put(name, text)
    await shown.becomes(6)


SPEC = LOADERS["spec"].replace("part.txt.py", "plug.txt.py").replace("part", "plug")
#: Kinds of dependencies: how a program gets its width of it, the files with which that is 5, and those with which it is
#: 6. None for a file that is not there; without `needed.py` or `awaited.py` there is no width at all.
KINDS = {
    "opened": ('width = int(open("opened.txt").read())\n', {"opened.txt": "5"}, {"opened.txt": "6"}),
    "config.json": (CONFIG, {"config.json": '{"width": 5}'}, {"config.json": '{"width": 6}'}),
    "listed": (
        'import os\nwidth = 4 + len(os.listdir("listed"))\n', {"listed/a": "", "listed/b": None}, {"listed/b": ""},
    ),
    "looked for": ('import os\nwidth = 5 + os.path.exists("absent")\n', {"absent": None}, {"absent": ""}),
    "importlib": (SPEC, {"plug.txt.py": "width = 5\n"}, {"plug.txt.py": "width = 6  # more\n"}),
    "shadowed": (
        "from shadowed import width\n", {"shadowed.py": "width = 5\n", "shadowed/__init__.py": None},
        {"shadowed/__init__.py": "width = 6\n"},
    ),
    "optional": (
        "try:\n    from extra_part import width\nexcept ImportError:\n    width = 5\n", {"extra_part.py": None},
        {"extra_part.py": "width = 6\n"},
    ),
    "deleted": ("from needed import width\n", {"needed.py": "width = 5\n"}, {"needed.py": None}),
    "appears": ("from awaited import width\n", {"awaited.py": None}, {"awaited.py": "width = 6\n"}),
}  # fmt: skip


async def test_dependencies_that_are_drawn_and_changed_one_after_the_other_are_each_followed(shown, monkeypatch):
    monkeypatch.setattr(tracked, "_WITHIN", 0.0)  # so many changes within seconds would have to wait
    monkeypatch.setattr(daemon, "_ECHO_SECONDS", 0.0)
    seed = random.randrange(1 << 30) if SEARCH else 17
    dice = random.Random(seed)
    drawn = dice.sample(list(KINDS), len(KINDS))
    changed = dict.fromkeys(drawn, False)

    def change(kind, to):
        for name, text in KINDS[kind][1 + to].items():
            if text is not None:
                shown.put(name, text)
            elif (shown.place / name).exists():
                (shown.place / name).unlink()
        changed[kind] = to

    def is_right():
        """Does a trace that began after the change show what the files of now give?"""
        status = shown.status()
        if not status.ended or status.generation <= before:
            return False
        if changed.get("deleted") or not changed.get("appears", True):
            return "missing-package" in shown.problems_told()
        width = 5 + sum(1 << place for place, kind in enumerate(drawn) if kind != "deleted" and changed[kind])
        return shown.width() == width and shown.is_fresh()

    parts = [f"{KINDS[kind][0]}total += (width - 5) << {place}\n" for place, kind in enumerate(drawn)]
    for kind in drawn:
        change(kind, False)
    await shown.begin(f"total = 5\n{''.join(parts)}width = total\n")
    steps = []
    for kind in (*dice.sample(drawn, len(drawn)), *dice.choices(drawn, k=50 if SEARCH else 4)):
        before = shown.status().generation
        steps.append((kind, not changed[kind]))
        change(kind, not changed[kind])
        try:
            await shown.ear.until(is_right)
        except TimeoutError:
            raise AssertionError(f"seed {seed}: {drawn}, {steps}: {shown.status()}, width {shown.width()}") from None
        await shown.quiet()


async def test_what_a_link_leads_to_is_followed_and_where_it_leads(shown):
    for name, width in (("one", 5), ("two", 7)):
        shown.put(f"{name}/config.json", f'{{"width": {width}}}')
    (shown.place / "here").mkdir()
    link = shown.place / "here/config.json"
    link.symlink_to("../one/config.json")
    assert await shown.begin(CONFIG, "here/net.py") == 5
    shown.put("one/config.json", '{"width": 6}')
    await shown.becomes(6)
    link.unlink()
    link.symlink_to("../two/config.json")
    await shown.becomes(7)


async def test_what_changed_while_nobody_looked_is_seen_when_the_file_is_opened_again(shown):
    shown.put("config.json", '{"width": 5}')
    assert await shown.begin(CONFIG) == 5
    shown.daemon.closed(shown.path)
    shown.put("config.json", '{"width": 6}')
    shown.daemon.opened(shown.path)
    await shown.daemon.wait(shown.path)
    assert shown.width() == 6
    generation = shown.status().generation
    shown.daemon.closed(shown.path)
    shown.daemon.opened(shown.path)
    assert (await shown.daemon.wait(shown.path)).generation == generation  # nothing changed this time


async def test_a_change_while_the_first_trace_runs_is_not_lost(shown):
    shown.put("config.json", '{"width": 5}')
    os.mkfifo(shown.place / "gate")
    wait = 'if width == 5:\n    open("gate").read()\n'
    shown.path = str(shown.put("net.py", CONFIG + wait + NET))
    shown.daemon.opened(shown.path)
    gate = await asyncio.to_thread(open, shown.place / "gate", "w")  # opens once the child waits there
    shown.put("config.json", '{"width": 6}')
    gate.close()
    await shown.becomes(6)


async def test_from_a_change_to_its_trace_what_is_shown_is_stale(shown):
    shown.put("config.json", '{"width": 5}')
    assert await shown.begin(CONFIG) == 5
    said = len(shown.ear.states[shown.path])
    shown.put("config.json", '{"width": 6}')
    await shown.becomes(6)
    states = [(one.state, one.stale) for one in shown.ear.states[shown.path][said:]]
    assert states == [("queued", True), ("starting", True), ("tracing", True), ("ready", False)]


async def test_what_a_trace_never_asked_for_is_no_change(shown):
    shown.put("config.json", '{"width": 5}')
    assert await shown.begin(f"import wave, colorsys\n{CONFIG}") == 5
    for name in ("notes.txt", "other.py", "other.json", "package/__init__.py"):
        shown.daemon.saved(str(shown.put(name, "")))
    shown.daemon.saved(str(shown.place))
    await shown.quiet()
    assert (await shown.daemon.wait(shown.path)).generation == 1


async def test_the_same_content_again_is_no_change(shown):
    path = shown.put("config.json", '{"width": 5}')
    assert await shown.begin(CONFIG) == 5
    shown.put("config.json", '{"width": 5}')
    shown.daemon.saved(str(path))
    assert (await shown.daemon.wait(shown.path)).generation == 1


async def test_a_program_that_writes_what_it_reads_is_not_traced_for_ever(shown):
    head = 'from pathlib import Path\nout = Path("out.txt")\nbefore = out.exists() and out.read_text()\n'
    head += 'out.write_text(f"{before}.")\nwidth = 4 + len(out.read_text()[-1])\n'
    assert await shown.begin(head) == 5
    assert not (shown.place / "out.txt").exists()
    assert (await shown.daemon.wait(shown.path)).generation == 1


async def test_a_program_that_changes_what_it_asks_for_behind_our_back_is_traced_ever_more_seldom(shown):
    # SQLite writes by itself: no writing of Python's that could be kept out of the workspace.
    head = (
        "import os, sqlite3\nos.path.exists('log.db') and os.path.getsize('log.db')\nlog = sqlite3.connect('log.db')\n"
    )
    head += "log.execute('create table if not exists t (x)')\nlog.execute('insert into t values (randomblob(9999))')\n"
    await shown.begin(f"{head}log.commit()\nlog.close()\nwidth = 5\n")
    await shown.ear.until(lambda: "log.db changes again and again" in shown.status().message)
    assert shown.status().stale
    assert shown.status().generation <= 6
    assert shown.width() == 5


async def test_the_same_dependencies_again_are_not_gone_through_again():
    """At each key, hundreds of folders stay as they are."""
    fresh = tracked.Freshness()
    rows = [("content", "/w/net.py", "1"), ("content", "/w/parts/a.py", "1"), ("modules", "/w", {"parts": "folder"})]
    assert len(fresh.learn("/w/net.py", rows)) == 3
    folders = fresh.folders
    assert folders == {"/w", "/w/parts"}
    assert [one.path for one in fresh.learn("/w/net.py", [("content", "/w/net.py", "2"), *rows[1:]])] == ["/w/net.py"]
    assert fresh.folders is folders
    fresh.learn("/w/net.py", [*rows[:2], ("modules", "/w", {"parts": "folder", "more": "folder"})])
    assert fresh.folders == {"/w", "/w/parts", "/w/more"}


async def test_beyond_the_limit_of_what_is_followed_the_log_says_so(shown, caplog):
    for number in range(MOST + 50):
        shown.put(f"many/{number}.txt", "")
    head = (
        'from pathlib import Path\nwidth = 5 + sum(len(path.read_text()) for path in sorted(Path("many").iterdir()))\n'
    )
    assert await shown.begin(head) == 5
    assert f"depends on more than {MOST} files and folders; changes of the others are not seen" in caplog.text
    shown.put("many/0.txt", "x")
    await shown.becomes(6)
