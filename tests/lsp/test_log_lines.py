"""The log of the editor: one line in plain English for each event, and no failure twice."""

import os
import signal
import sys

import pytest
from editing import Editor, capabilities
from lsprotocol import types as lsp

from mase_server.system import find_children

SERVER = (sys.executable, "-m", "mase_server", "lsp")
NET = """import torch
from torch import nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x)


class Main(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(9, 4)

    def forward(self, x):
        return self.fc(x.secret_of(7))


Small()(torch.zeros(2, 8))
"""
WRONG = NET.replace("zeros(2, 8)", "zeros(2, 5)").replace(".secret_of(7)", "")


@pytest.fixture
async def new_editor(tmp_path, monkeypatch):
    """Starts an editor with a real server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "workspace"
    folder.mkdir()
    started = []

    async def start(**given):
        options = {"trusted": True, "interpreter": sys.executable}
        started.append(Editor(folder, can=capabilities(configuration=True), **{"options": options, **given}))
        await started[-1].start(*SERVER)
        return started[-1]

    yield start
    for editor in started:
        await editor.stop()


def lines(editor):
    """The lines that the log has got since the last look: (type, text)."""
    told = [params for method, params in editor.unread if method == lsp.WINDOW_LOG_MESSAGE]
    editor.unread = [entry for entry in editor.unread if entry[0] != lsp.WINDOW_LOG_MESSAGE]
    return [(params.type, params.message) for params in told]


async def save(editor, path, old, new):
    editor.retype(path, old, new)
    editor.save(path, new)
    return await editor.end_state(path)


async def test_a_model_that_is_not_shown_is_told_once_with_its_place_its_reason_and_where_it_was_decided(new_editor):
    editor = await new_editor()
    path = editor.folder / "net.py"
    editor.open(path, NET)
    await editor.end_state(path)
    python, unshown = lines(editor)
    assert python[0] == lsp.MessageType.Info
    assert python[1].startswith("The models of workspace run in Python ")
    assert python[1].endswith(f"({sys.executable}), chosen by the setting `interpreter`.")
    assert unshown[0] == lsp.MessageType.Warning
    line = NET.split("\n").index("class Main(nn.Module):") + 1
    assert unshown[1].startswith(f"net.py:{line}: Main is not shown. MASE found no inputs that it runs with. ")
    assert unshown[1].endswith(" [no-inputs, decided by the search for inputs]")
    assert "\n" not in unshown[1]

    below = NET.replace("import torch\n", "import torch\n\nWIDTH = 3\n", 1)
    await save(editor, path, NET, below)
    assert lines(editor) == [], "the same failure, some lines further down"

    await save(editor, path, below, WRONG)
    [error] = [text for kind, text in lines(editor) if kind == lsp.MessageType.Error]
    assert error.startswith("net.py:11: ")
    assert error.endswith(" [shape-mismatch, decided by the run of this line]")

    await save(editor, path, WRONG, WRONG.replace("(2, 5)", "(2, 8)"))
    assert lines(editor) == [(lsp.MessageType.Info, "net.py: the failures reported above are gone.")]


async def test_a_limit_is_told_with_its_value_and_the_setting_that_changes_it(new_editor):
    editor = await new_editor(settings={"limits": {"seconds": 2}})
    path = editor.folder / "slow.py"
    editor.open(path, "import time\nfrom torch import nn\n\nclass Net(nn.Module): ...\n\nwhile True: time.sleep(1)\n")
    await editor.end_state(path)
    [text] = [text for kind, text in lines(editor) if kind != lsp.MessageType.Info]
    assert text.startswith("slow.py:6: ")
    assert "mase.limits.seconds (2 s now)" in text


async def test_a_folder_that_is_not_trusted_is_told_once_and_its_name_as_visible_text(new_editor, tmp_path):
    editor = await new_editor(options={"trusted": False})
    for name in ("one\u202e.py", "two.py"):
        editor.open(editor.folder / name, NET)
        assert await editor.end_state(editor.folder / name) == "untrusted"
    [(kind, text)] = lines(editor)
    assert kind == lsp.MessageType.Warning
    assert text.startswith("workspace: This folder is not trusted: nothing of it is executed.")


async def test_names_of_the_user_are_visible_text(new_editor):
    editor = await new_editor()
    path = editor.folder / "one\u202e.py"
    editor.open(path, NET.replace("self.fc = nn.Linear(9, 4)", "raise ValueError('a\\x1b b')"))
    await editor.end_state(path)
    [text] = [text for kind, text in lines(editor) if kind != lsp.MessageType.Info]
    assert text.startswith("one\\u202e.py:17: ")
    assert "ValueError: a\\x1b b" in text
    assert text.isprintable()


async def test_a_worker_that_ends_after_its_trace_is_told_with_the_reason(new_editor):
    editor = await new_editor()
    path = editor.folder / "net.py"
    editor.open(path, NET)
    await editor.end_state(path)
    lines(editor)
    # The next trace's process may be there already, and waits for its request.
    for worker in [pid for parent in find_children(editor.process.pid) for pid in find_children(parent)]:
        os.kill(worker, signal.SIGKILL)
    told = await editor.expect(lsp.WINDOW_LOG_MESSAGE)
    assert told.type == lsp.MessageType.Warning
    assert told.message.startswith("net.py: The process that ran this file died of SIGKILL (killed from outside")
    assert told.message.endswith("Its shapes stay; the next save or retrace starts another.")
