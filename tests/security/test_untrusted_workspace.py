"""Nothing of a folder that was not trusted runs, on whatever way it is asked for: every request, every command."""

import asyncio
import json
import os
import pickle
import shutil
import subprocess
import sys
from contextlib import suppress
from typing import get_origin

import psutil
import pytest
import pytest_asyncio
from editing import Editor, capabilities
from hostile import SERVER
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.protocol import default_converter

from mase_server.cli.checking import find_files
from mase_server.client import Client, RpcError
from mase_server.daemon.project import ProjectError
from mase_server.lsp.features import COMMANDS, FEATURES
from mase_server.rpc.dispatch import METHODS

#: What a session consists of, which `Editor` says itself.
_SESSION = {
    lsp.INITIALIZE, lsp.INITIALIZED, lsp.SHUTDOWN, lsp.EXIT, lsp.TEXT_DOCUMENT_DID_OPEN, lsp.TEXT_DOCUMENT_DID_CHANGE,
    lsp.TEXT_DOCUMENT_DID_CLOSE, lsp.NOTEBOOK_DOCUMENT_DID_CLOSE,
}  # fmt: skip
CELL = "import torch.nn as nn\nclass Net(nn.Module): pass\nNet()\n"
_CONVERTER = default_converter()
_SECONDS = 60
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["refused", "declined"])
async def editor(request, hostile, private_home):
    """An editor in the folder, which is also where its server was started, whose person has not trusted it."""
    settings = {
        "interpreter": hostile.interpreter,
        "passes": {},
        "pipelines": {"Net": ["load_checkpoint(name='graph')"]},
    }
    options = {"trusted": False} if request.param == "refused" else {}
    options |= {"interpreter": hostile.interpreter, "commandLinks": list(COMMANDS)}
    answer = lsp.MessageActionItem("Not now") if request.param == "declined" else None
    editor = Editor(hostile.folder, can=capabilities(configuration=True, graphs=True), options=options,
                    settings=settings, answer=answer)  # fmt: skip
    env = {**os.environ, **private_home, "PYTHONDONTWRITEBYTECODE": "1"}
    await editor.client.start_io(*SERVER, "lsp", cwd=hostile.folder, env=env)
    await editor.initialize()
    editor.open(hostile.model)
    assert await editor.end_state(hostile.model) == "untrusted"
    yield editor
    editor.unread.clear()
    await editor.stop()


def everything(hostile):
    """A value for every parameter that some method has; a method takes those that it knows."""
    uri, start = hostile.model.as_uri(), {"line": 0, "character": 0}
    cell = {"kind": 2, "document": "vscode-notebook-cell:/net.ipynb#a"}
    return {
        "textDocument": {"uri": uri, "version": 1}, "position": {"line": 14, "character": 8}, "uri": uri,
        "range": {"start": start, "end": {"line": 30, "character": 0}}, "context": {"diagnostics": []}, "token": "x",
        "settings": {"mase": {"trusted": True, "interpreter": hostile.interpreter}}, "title": "x", "label": "x",
        "notebookDocument": {"uri": hostile.notebook.as_uri(), "version": 1, "notebookType": "x", "cells": [cell]},
        "cellTextDocuments": [{"uri": cell["document"], "languageId": "python", "version": 1, "text": CELL}],
        "event": {"added": [], "removed": []}, "change": {}, "argument": "default", "value": "1", "pass": "bomb_pass",
        "path": str(hostile.model), "model": "Net", "line": 14, "column": 8,
    }  # fmt: skip


#: Values by the parameter's name, of what the folder holds; the others by their type.
def value_of(name, kind, hostile):
    folder = hostile.folder
    named = {
        "path": str(hostile.model), "name": str(folder / "graph"), "file": str(folder / "drawn.svg"),
        "folder": str(folder), "pass": "bomb_pass", "model": "Net", "steps": ["bomb_pass()", "bomb()"],
        "inputs": str(folder / "inputs.npz"), "sets": ["", "small"], "topics": ["graph"], "line": 14, "column": 8,
    }  # fmt: skip
    if name in named and isinstance(named[name], get_origin(kind) or kind):
        return named[name]
    by_type = {str: "x", int: 1, bool: True, dict: {}, list[str]: ["f32[3, 4]"]}
    return by_type.get(kind, [])


def parameters(method, hostile, optional):
    known = {key.removesuffix("?"): kind for key, kind in method.params.items() if optional or not key.endswith("?")}
    return {name: value_of(name, kind, hostile) for name, kind in known.items()}


def asked_of(method, hostile):
    """What a method of the editor's protocol is given: all that it may know; each of ours without and with options."""
    if method not in METHODS:
        yield everything(hostile)
        return
    for optional in (False, True):
        given = parameters(METHODS[method], hostile, optional)
        yield {key: value for key, value in given.items() if key != "path"} | {"uri": hostile.model.as_uri()}


async def test_no_request_of_the_editors_protocol_runs_anything(editor, hostile):
    asked = 0
    for method in (name for name, _, _ in FEATURES if name not in _SESSION):
        for given in asked_of(method, hostile):
            asked += 1
            _, answer, kind, _ = lsp.METHOD_TO_TYPES.get(method, (None, True, None, None))
            given = given if kind is None else _CONVERTER.structure(given, kind)
            if answer is None:
                editor.client.protocol.notify(method, given)
                continue
            with suppress(JsonRpcException):
                await asyncio.wait_for(editor.request(method, given), _SECONDS)
    assert asked > 2 * len(METHODS)
    await nothing_ran(editor, hostile)


async def test_no_command_runs_anything(editor, hostile):
    uri = hostile.model.as_uri()
    for name in COMMANDS:
        for argument in (uri, {"uri": uri, "pass": "bomb_pass", "model": "Net"}, str(hostile.folder), None):
            with_it = [] if argument is None else [argument, "bomb_pass()"]
            with suppress(JsonRpcException):
                await asyncio.wait_for(editor.command(name, *with_it), _SECONDS)
    await nothing_ran(editor, hostile)


async def test_no_method_that_other_tools_may_call_runs_anything(editor, hostile, private_home, monkeypatch):
    monkeypatch.setenv("MASE_RUNTIME_DIR", private_home["MASE_RUNTIME_DIR"])
    codes = await asyncio.to_thread(ask_for_everything, hostile)
    assert codes.keys() == METHODS.keys()
    wrong = {name: code for name, code in codes.items() if METHODS[name].executes and code != "untrusted"}
    assert not wrong, "these have code of the file run, and did not say that it is not trusted"
    await nothing_ran(editor, hostile)


def ask_for_everything(hostile):
    """The code of the error, or "", that each method answers with when all its parameters are given."""
    codes = {}
    with Client(workspace=hostile.folder, timeout=_SECONDS) as client:
        for name, method in METHODS.items():
            try:
                client.call(name, parameters(method, hostile, True))
                codes[name] = ""
            except RpcError as error:
                codes[name] = error.code
    return codes


async def test_what_lies_beside_the_model_is_not_run_either(editor, hostile):
    for path in (hostile.notebook, *hostile.python.values(), hostile.folder / "linked.py"):
        editor.open(path)
        editor.save(path, path.read_text())
        await asyncio.wait_for(editor.hints(path), _SECONDS)
        await asyncio.wait_for(editor.actions(path, 0, 0), _SECONDS)
        await asyncio.wait_for(editor.hover(path, 0, 2), _SECONDS)
        editor.close(path)
    editor.open(hostile.model)
    await nothing_ran(editor, hostile)


async def nothing_ran(editor, hostile):
    """Neither a trap went off, nor is there a process that could."""
    told = await editor.request("mase/statistics", {})
    assert told.live == 0
    assert psutil.Process(editor.process.pid).children(recursive=True) == []
    assert hostile.gone_off() == []


async def test_what_git_would_commit_is_asked_without_starting_what_the_repository_names(hostile):
    """`mase-server check FOLDER` has to know which files there are, before any of them counts as meant."""
    with pytest.raises(ProjectError, match="has no 'trusted'"):
        find_files([hostile.folder])
    (hostile.folder / "pyproject.toml").unlink()
    assert hostile.model in find_files([hostile.folder]).models
    assert hostile.gone_off() == []
    if shutil.which("git"):
        subprocess.run(["git", "-C", hostile.folder, "ls-files", "--others"], check=True, capture_output=True)
    armed = hostile.gone_off()
    hostile.rearm()
    if armed != ["git"]:
        pytest.skip("the git of this machine does not ask a monitor for that, so the trap tells nothing")


#: Runs files as programs; torch, which takes long to import, is not needed to touch a canary.
RUN = """
import runpy, sys, types
from unittest.mock import MagicMock
sys.modules |= dict.fromkeys(["torch", "torch.nn"], MagicMock())
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
"""


async def test_every_trap_is_armed(hostile, tmp_path):
    """What was not run above would have told of itself."""
    cell = tmp_path / "cell.py"
    cell.write_text(json.loads(hostile.notebook.read_text())["cells"][0]["source"])
    files = (*hostile.python.values(), hostile.folder / "linked.py", cell)
    subprocess.run([sys.executable, "-P", "-c", RUN, *files], check=True, env={"PYTHONDONTWRITEBYTECODE": "1"})
    for script in (*hostile.scripts, hostile.hook):
        subprocess.run([script], check=True)
    pickle.loads(hostile.pickle)
    assert hostile.gone_off() == hostile.traps()
    hostile.rearm()
