"""A model that is not shown is told: in the status with what would help, and once as a diagnostic, in the open file."""

import sys

import pytest
from editing import Editor, capabilities
from lsprotocol import types as lsp

SERVER = (sys.executable, "-m", "mase_server", "lsp")
#: A package that nobody has; the folder's requirements name it, so that its installation may be advised.
REQUIREMENTS = "absent-mixer>=1.0\n"
NET = """import torch
from torch import nn
from absent_mixer import Mix
from absent_mixer.layers import Norm


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x)


class Main(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = Mix(8)
        self.width = self.mix.width + 1
        self.fc = nn.Linear(self.width, 4)

    def forward(self, x):
        return self.fc(self.mix(x))
"""
HELPER = "import absent_mixer\n\nWIDTH = 8\n"
USER = """from torch import nn

from helper import WIDTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, 4)

    def forward(self, x):
        return self.fc(x)
"""


async def session(tmp_path, monkeypatch, **able):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "workspace"
    folder.mkdir()
    can = capabilities(**able)
    can.experimental = {"commands": {"commands": ["mase.runInTerminal"]}}
    editor = Editor(folder, can=can, options={"trusted": True, "interpreter": sys.executable})
    await editor.start(*SERVER)
    return editor


@pytest.fixture
async def editor(tmp_path, monkeypatch):
    """An editor that pulls diagnostics, and can run a program in a terminal."""
    editor = await session(tmp_path, monkeypatch)
    yield editor
    await editor.stop()


async def ended(editor, path):
    """The status in which the trace of a file ends."""
    return await editor.expect("mase/status", lambda s: s.uri == path.as_uri() and s.state in ("ready", "failed"))


async def test_a_missing_package_is_told_once_at_its_import_and_the_model_that_needs_it_in_the_status(editor):
    (editor.folder / "requirements.txt").write_text(REQUIREMENTS)
    path = editor.folder / "net.py"
    editor.open(path, NET)
    status = await ended(editor, path)
    assert list(status.models) == ["Small"]
    [unshown] = status.unshown
    assert (unshown.name, unshown.line) == ("Main", NET.split("\n").index("class Main(nn.Module):") + 1)
    assert unshown.why == f"It needs absent_mixer, which cannot be imported in {sys.executable}."
    assert unshown.step == f"Install it there: {sys.executable} -m pip install absent-mixer"
    assert unshown.code == "missing-package"
    [problem] = (await editor.diagnostics(path)).items
    assert (problem.code, problem.range.start.line) == ("missing-package", 2)
    [second] = problem.related_information
    assert second.location.range.start.line == 3
    [action] = [each for each in await editor.actions(path, 2, 0) if each.kind == lsp.CodeActionKind.QuickFix]
    assert action.title.startswith("Install absent-mixer into ")
    title, program = action.command.arguments
    assert (title, list(program)) == (action.title, [sys.executable, "-m", "pip", "install", "absent-mixer"])


async def test_a_model_without_inputs_is_told_with_the_comment_that_helps(editor):
    path = editor.folder / "net.py"
    editor.open(path, NET.replace("from absent", "# from absent").replace("Mix(8)", "nn.Identity()")
                .replace("self.mix.width + 1", "9").replace("self.mix(x))", "self.mix(x.secret_of(7)))"))  # fmt: skip
    status = await ended(editor, path)
    [unshown] = status.unshown
    assert (list(status.models), unshown.name) == (["Small"], "Main")
    assert unshown.why == "MASE found no inputs that it runs with."
    assert "# mase:" in unshown.step


async def test_a_package_that_another_file_needs_is_told_at_the_import_of_that_file(editor):
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    helper.write_text(HELPER)
    editor.open(path, USER)
    assert (await ended(editor, path)).state == "ready"
    [problem] = (await editor.diagnostics(path)).items
    assert (problem.code, problem.range.start.line) == ("missing-package", 2)
    assert [(one.location.uri, one.location.range.start.line) for one in problem.related_information] == [
        (helper.as_uri(), 0)
    ]


@pytest.mark.parametrize("pull", [True, False], ids=["pulling", "pushed to"])
async def test_an_error_of_a_file_that_is_not_open_is_told_at_its_import_and_nowhere_else(tmp_path, monkeypatch, pull):
    editor = await session(tmp_path, monkeypatch, pull=pull)
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    broken = "WIDTH = 8\nif WIDTH:\nprint(8)\n"
    helper.write_text(broken)
    editor.open(path, USER)
    assert (await ended(editor, path)).state == "failed"

    async def problems(of):
        if pull:
            return (await editor.diagnostics(of)).items
        published = await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, lambda told: told.uri == of.as_uri())
        return published.diagnostics

    [problem] = await problems(path)
    assert problem.range.start.line == 2
    assert problem.code != "missing-package"
    assert (helper.as_uri(), 2) in [
        (one.location.uri, one.location.range.start.line) for one in problem.related_information
    ]
    told = [params.uri for method, params in editor.unread if method == lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]
    assert helper.as_uri() not in told, "a file that was never opened"
    editor.open(helper, broken)
    if pull:  # the client is told to pull again at the end of this trace
        assert (await ended(editor, helper)).state == "failed"
    [problem] = await problems(helper)
    assert problem.range.start.line == 2
    await editor.stop()


BUILT = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, 4)

    def forward(self, x, y):
        assert x.shape == y.shape == (1, 2, 3, 4, 5, 6), "never"
        return self.fc(x)


def build_net(args):
    return Net(args.width)
"""


async def test_a_model_that_a_function_builds_and_that_is_not_shown_is_told_once(editor):
    path = editor.folder / "built.py"
    editor.open(path, BUILT)
    status = await ended(editor, path)
    assert [each.name for each in status.unshown] == ["Net"]
    assert len((await editor.diagnostics(path)).items) == 1
