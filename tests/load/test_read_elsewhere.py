"""Big sources are read in a process of their own: what comes back is what reading them here gives, and nobody waits."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import weakref

import pytest

from mase_server.daemon import discovery
from mase_server.lsp import outline
from mase_server.lsp.outline import is_at_hand, prepare_outline
from tests.daemon.test_supervisor import Played

LAYERS = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, é):
        return self.body(é)
"""
BIG = f"{LAYERS}\n# {'é' * discovery.WORTH}\n"


@pytest.fixture
def text():
    """A big source that nobody read before."""
    return f"{BIG}# {random.random()}\n"


@pytest.mark.parametrize("ending", ["", "class Other(Net):\n    pass\n", "def (\n", '\ud800 = "a lone surrogate"\n'])
async def test_an_outline_is_the_same_wherever_it_is_made(text, ending):
    source = text + ending
    assert not is_at_hand(source)
    await prepare_outline(source)
    assert is_at_hand(source)
    assert outline.get_outline(source) == outline._read_outline(source)
    assert bool(outline.get_outline(source).mentions) == (ending in ("", "class Other(Net):\n    pass\n"))


async def test_who_asks_twice_at_once_has_one_process_run(text, monkeypatch):
    runs, real = [], discovery.run_elsewhere

    async def counted(*arguments):
        runs.append(arguments[1])
        return await real(*arguments)

    monkeypatch.setattr(outline, "run_elsewhere", counted)
    await asyncio.gather(prepare_outline(text), prepare_outline(text), prepare_outline(text))
    assert runs == ["outlined"]


async def test_small_sources_are_read_here(monkeypatch):
    monkeypatch.setattr(discovery.asyncio, "create_subprocess_exec", None)
    await prepare_outline(LAYERS)
    assert outline.get_outline(LAYERS).mentions
    assert (await discovery.Discoverer().discover("/w/net.py", LAYERS.encode(), "1")).has_model


async def test_without_another_process_sources_are_read_here(text, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    await prepare_outline(text)
    assert outline.get_outline(text).mentions
    assert (await discovery.Discoverer().discover("/w/net.py", text.encode(), "2")).has_model


@pytest.mark.parametrize("source", [BIG, BIG + "def (\n", "x = 1\n" * 20_000, BIG + "\0"])
async def test_a_discovery_is_the_same_wherever_it_is_made(source):
    path = "/w/é\udcff.py"
    found = await discovery.Discoverer().discover(path, source.encode(), str(hash(source)))
    assert found == discovery.discover_model(path, source.encode())


async def test_a_process_that_fails_says_so():
    with pytest.raises(discovery.ElsewhereError, match=r"nothing\.here ended with 1"):
        await discovery.run_elsewhere("mase_server.nothing", "here", b"")


async def test_a_worker_that_was_stopped_leaves_no_cycle_to_be_looked_for():
    played = Played()
    await asyncio.sleep(0)
    await played.end()
    await asyncio.sleep(0)
    worker, played.worker = weakref.ref(played.worker), None
    enabled = gc.isenabled()
    gc.disable()
    try:
        del played
        await asyncio.sleep(0)
        assert worker() is None
    finally:
        if enabled:
            gc.enable()
