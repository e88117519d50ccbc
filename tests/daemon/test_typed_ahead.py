"""Texts that are typed one after the other, in real processes: children run ahead, and a save has the last word."""

import sys

import pytest
import pytest_asyncio

from mase_server.daemon.process import DEFAULT_JOB

from .conftest import Bench

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone"),
]

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, x):
        y = self.fc(x)
        return y


out = Net()(torch.randn(4, 16))
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bench(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("ahead")
    (tmp / "work").mkdir()
    bench = Bench(tmp / "work", tmp, job=DEFAULT_JOB)
    await bench.daemon.start()
    yield bench
    await bench.daemon.shutdown()


def launcher_of(bench, path):
    return bench.daemon._services.pool._seat_of[path].running


async def prepare_children(launcher):
    while launcher._preparing is not None and not launcher._preparing.done():
        await launcher._preparing
    return launcher


async def type_text(bench, path, text):
    """Trace a text that is typed, once all that was to be prepared before it is."""
    await prepare_children(launcher_of(bench, path))
    assert await bench.daemon.typed(path, text.encode())
    assert (await bench.daemon.wait(path)).state == "ready"
    return bench.daemon._tracked[path]


def shape_of(bench, path, name):
    snapshot = bench.daemon.store.snapshot(path).payload
    sites, rows = snapshot["sites"], snapshot["rows"]
    site = max(index for index, each in enumerate(sites["name"]) if each == name)
    return snapshot["values"][rows["value"][rows["site"].index(site)]][1]


async def open_and_type(bench, name):
    path, status = await bench.open(name, NET, model=False)
    assert status.state == "ready"
    # Only after a text that is typed is another one foreseen.
    assert not (await type_text(bench, path, NET.replace("return y", "return y[:1]"))).ran_ahead
    return path


async def test_the_next_text_goes_on_where_a_child_has_run_ahead(bench):
    path = await open_and_type(bench, "net.py")
    for size in (2, 3):
        tracked = await type_text(bench, path, NET.replace("return y", f"return y[:{size}]"))
        assert tracked.ran_ahead
        assert shape_of(bench, path, "out") == [size, 8]
        assert bench.daemon.store.snapshot(path).sha256 == tracked.source.sha256


async def test_a_constructor_that_changes_is_traced_anew(bench):
    path = await open_and_type(bench, "constructor.py")
    assert not (await type_text(bench, path, NET.replace("nn.Linear(16, 8)", "nn.Linear(16, 5)"))).ran_ahead
    assert shape_of(bench, path, "out") == [4, 5]


async def test_a_child_that_refuses_is_followed_by_another(bench):
    path = await open_and_type(bench, "refused.py")
    # Only the child knows that `torch` means another thing now.
    tracked = await type_text(bench, path, NET.replace("y = self.fc(x)", "torch = x; y = self.fc(x)"))
    assert not tracked.ran_ahead
    assert shape_of(bench, path, "out") == [4, 8]


async def test_a_module_that_is_saved_meanwhile_is_seen(bench):
    bench.write("sizes.py", "WIDTH = 8\n", model=False)
    text = NET.replace("from torch import nn", "from torch import nn\nfrom sizes import WIDTH").replace(
        " 8)", " WIDTH)"
    )
    path, _ = await bench.open("imports.py", text, model=False)
    await type_text(bench, path, text.replace("return y", "return y[:1]"))
    await prepare_children(launcher_of(bench, path))
    bench.write("sizes.py", "WIDTH = 6\n", model=False)
    tracked = await type_text(bench, path, text.replace("return y", "return y[:2]"))
    assert not tracked.ran_ahead
    assert shape_of(bench, path, "out") == [2, 6]


async def test_a_save_is_traced_in_a_fresh_child(bench):
    path = await open_and_type(bench, "saved.py")
    text = NET.replace("return y", "return y[:3]")
    typed = await type_text(bench, path, text)
    assert typed.ran_ahead
    before = typed.generation
    bench.write("saved.py", text, model=False)
    bench.daemon.saved(path)
    status = await bench.daemon.wait(path)
    assert (status.generation, status.state, status.unsaved) == (before + 1, "ready", False)
    assert not bench.daemon._tracked[path].ran_ahead
    assert shape_of(bench, path, "out") == [3, 8]


async def test_children_that_wait_end_with_their_launcher(bench):
    path = await open_and_type(bench, "ended.py")
    launcher = await prepare_children(launcher_of(bench, path))
    child = launcher._ahead
    assert child is not None
    assert launcher.idle or any(each is not child for each in launcher._children.values())
    await bench.daemon._services.pool.restart()
    await child.exited
    assert not child.alive
