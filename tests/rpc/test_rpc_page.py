"""The page on other tools: its programs run as they stand there, and its limits are those of the server."""

import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from test_other_clients import said

from docs.api import FILE
from mase_server.daemon import api_graphs, api_outputs
from mase_server.rpc import frames
from mase_server.rpc.dispatch import Limits

pytestmark = pytest.mark.asyncio(loop_scope="session")
ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "rpc.md").read_text()


def program(language, number=0):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number]


@pytest_asyncio.fixture(loop_scope="session")
async def project(limited, tmp_path, monkeypatch):
    """A served folder with a model file, from which programs find `mase-server`."""
    served = await limited()
    served.write("net.py", "x = 1  # shape f32[2, 3]\n")
    await served.listening.register([str(served.folder)], "serve")
    command = tmp_path / "bin" / "mase-server"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mase_server "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(served.folder)
    return served.folder


async def test_our_own_client(project):
    status, out, err = await said(sys.executable, "-c", program("python"))
    assert status == 0, err
    assert out.splitlines() == [
        "ready",
        "3 x ['f32', [2, 3], None]",
        "not-open /nowhere.py is not open: open it with mase/open first",
    ]


async def test_nothing_but_msgpack(project):
    status, out, err = await said(sys.executable, "-c", program("python", 1))
    assert (status, out.strip()) == (0, "mase-server"), err


@pytest.mark.skipif(shutil.which("nvim") is None, reason="needs Neovim")
async def test_neovim_as_it_is_written(project, tmp_path):
    script = tmp_path / "page.lua"
    script.write_text(program("lua") + 'vim.cmd("qall!")\n')
    _, out, err = await said("nvim", "--headless", "--clean", "-c", f"luafile {script}")
    assert "".join((out + err).split()) == 'x["f32",[2,3],null]'


async def test_every_limit_that_the_page_tells():
    told = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE))
    limits = Limits()
    assert told["connections"] == str(limits.connections)
    assert told["requests of one connection at a time; more wait unread"] == str(limits.pending)
    size, elements = limits.frame >> 20, frames.MAX_ELEMENTS
    assert told["a message to the daemon"] == f"{size} MiB, arrays of {elements:,} elements"
    assert told["time to receive one message"] == f"{limits.frame_seconds:g} s"
    news = f"{limits.subscriptions}; {limits.events:,}"
    assert told["subscriptions of a connection; its different pending events"] == news
    assert told["time that a client may leave messages unread"] == f"{limits.drain_seconds:g} s"
    pages = f"{api_graphs._MOST:,}; {api_outputs._PAGE >> 20} MiB"
    assert told["nodes of one answer; bytes of weights in one answer"] == pages
    assert f"until then a message may have at most {frames.MAX_STRANGER >> 10} KiB" in PAGE


async def test_what_the_page_leads_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert "://" in target or (FILE.parent / target).exists(), target
    for name in re.findall(r"`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / name).exists(), name
