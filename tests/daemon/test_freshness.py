"""Nothing stale is called fresh: whatever a trace read, listed or looked for is followed, and traced again."""

import asyncio
import shutil

import pytest
import pytest_asyncio

from mase_server.daemon import watch
from mase_server.daemon.process import DEFAULT_JOB

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
        await self.ear.until(
            lambda: self.width() == width and self.status().state == "ready" and not self.status().stale
        )

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
