"""Code that did not run, as an editor shows it: in hovers, and faded if the user wants that."""

import sys

import pytest
from editing import Editor, capabilities
from lsprotocol import types as lsp
from test_with_real_daemon import SERVER

NET = """import torch
from torch import nn


# mase: x: f32[2, 8]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, x, mask=None):
        if mask is not None:
            x = x + mask
            x = x * 2
        if x.shape[0] > 4 or x.dim() == 3:
            return self.head(x[:4])
        größe = self.head(x); return größe

    def loss(self, x):
        return x.sum()
"""


@pytest.fixture
async def start(tmp_path, monkeypatch):
    """Starts an editor with some settings."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    editors = []

    async def start(**options):
        given = {"trusted": True, "interpreter": sys.executable, **options}
        editors.append(Editor(tmp_path, can=capabilities(progress=True), options=given))
        await editors[-1].start(*SERVER)
        return editors[-1]

    yield start
    for editor in editors:
        await editor.stop()


def line_of(text, part):
    return next(number for number, line in enumerate(text.split("\n")) if part in line)


async def test_a_hover_says_why_code_did_not_run_and_follows_edits(start):
    editor = await start()
    path = editor.folder / "net.py"
    editor.open(path, NET)
    assert await editor.end_state(path) == "ready"

    async def hover(text, part, column=14):
        found = await editor.hover(path, line_of(text, part), column)
        return None if found is None else found.contents.value

    told = "Not run with these inputs: "
    assert await hover(NET, "x = x + mask") == f"{told}runs if `mask` is given (line 12)"
    assert await hover(NET, "x = x * 2", 0) == f"{told}runs if `mask` is given (line 12)"
    condition = "`x.shape[0] > 4 or x.dim() == 3` was False (line 15)"
    assert await hover(NET, "return self.head(x[:4])") == told + condition
    assert await hover(NET, "return x.sum()") == f"{told}`loss` was not called"
    assert await hover(NET, "if mask is not None") is None
    assert "f32[2, 4]" in await hover(NET, "größe = self.head", 9)
    # The lines move on, and the changed line says nothing until it is traced.
    moved = NET.replace("        if mask", "        # a line more\n        if mask").replace("x * 2", "x * 3")
    editor.change(path, (11, 0, 11, 0, "        # a line more\n"), (14, 16, 14, 17, "3"))
    assert await hover(moved, "x = x + mask") == f"{told}runs if `mask` is given (line 13)"
    assert await hover(moved, "x = x * 3") is None
    assert not (await editor.diagnostics(path)).items


async def test_code_that_did_not_run_is_faded_only_with_the_setting(start):
    editor = await start(dimNotRun=True)
    path = editor.folder / "net.py"
    editor.open(path, NET)
    assert await editor.end_state(path) == "ready"
    items = (await editor.diagnostics(path)).items
    assert {item.severity for item in items} == {lsp.DiagnosticSeverity.Hint}
    assert {tuple(item.tags) for item in items} == {(lsp.DiagnosticTag.Unnecessary,)}
    assert [(item.range.start.line, item.range.end.line, item.message) for item in items] == [
        (12, 13, "Not run with these inputs: runs if `mask` is given (line 12)"),
        (15, 15, "Not run with these inputs: `x.shape[0] > 4 or x.dim() == 3` was False (line 15)"),
        (19, 19, "Not run with these inputs: `loss` was not called"),
    ]
