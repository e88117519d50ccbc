"""Named sets of inputs through an editor: lenses, picking, and comments written while all else stays as it is."""

import sys

import pytest
from editing import Editor, capabilities
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

SERVER = (sys.executable, "-m", "mase_server", "lsp")
NET = """\
from torch import nn


if True:
    # mase[small]: Net(width=5); x: f32[2, 5]
    class Net(nn.Module):
        kind = "𝔫é"  # mase[large]: Net(width=7); x: f32[8, 7]

        def __init__(self, width):
            super().__init__()
            self.fc = nn.Linear(width, 4)

        def forward(self, x):
            y = self.fc(x)
            return y
"""


def applied(text, edit):
    """The text after an edit, in the protocol's own terms: UTF-16 units."""
    lines = text.split("\r\n")
    [document] = edit.document_changes
    spans = []
    for each in document.edits:
        start, end = ((at.line, at.character) for at in (each.range.start, each.range.end))
        spans.append((offset(lines, *start), offset(lines, *end), each.new_text))
    units = text.encode("utf-16-le")
    for start, end, new in sorted(spans, reverse=True):
        units = units[: 2 * start] + new.encode("utf-16-le") + units[2 * end :]
    return units.decode("utf-16-le")


def offset(lines, line, character):
    return sum(len(each.encode("utf-16-le")) // 2 + 2 for each in lines[:line]) + character


class Writer(Editor):
    """An editor that applies what the server asks it to, and saves."""

    text = ""

    def edits(self, path):
        """From now on, apply the server's edits to this file."""

        @self.client.feature(lsp.WORKSPACE_APPLY_EDIT)
        async def apply(params):
            [edit] = params.edit.document_changes[0].edits
            self.text = applied(self.text, params.edit)
            start, end = edit.range.start, edit.range.end
            self.change(path, (start.line, start.character, end.line, end.character, edit.new_text))
            return lsp.ApplyWorkspaceEditResult(True)

    async def written(self, path, **given):
        assert await self.command("mase.writeInputs", {"path": str(path), "model": "Net", **given})
        self.save(path, self.text)
        return await self.end_state(path)

    async def picked(self, path):
        return [title for title in (await self.lenses(path))[5] if title.startswith("inputs")]


@pytest.fixture
async def editor(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    can = capabilities(encodings=[lsp.PositionEncodingKind.Utf16])
    editor = Writer(tmp_path, can=can, options={"trusted": True, "interpreter": sys.executable})
    await editor.start(*SERVER)
    yield editor
    if editor.process.returncode is None:
        await editor.stop()


async def test_a_set_is_picked_written_added_and_removed_and_all_else_stays_as_it_is(editor):
    path = editor.folder / "net.py"
    editor.text = NET.replace("\n", "\r\n")
    editor.open(path, editor.text)
    editor.edits(path)
    assert await editor.end_state(path) == "ready"
    assert await editor.picked(path) == ["inputs: small, of 2 sets"]
    titles = {action.title for action in await editor.actions(path, 5, 12)}
    assert "MASE: Use the inputs large for Net" in titles
    assert "MASE: Use the inputs small for Net" not in titles
    await editor.command("mase.pickInputs", {"path": str(path), "model": "Net", "set": "large"})
    assert await editor.end_state(path) == "ready"
    assert await editor.picked(path) == ["inputs: large, of 2 sets"]
    assert ": f32[B, 7]" in (await editor.hints(path)).values()

    before = editor.text
    assert await editor.written(path, set="large", text="Net(width=9); x: f32[3, 9]") == "ready"
    assert editor.text == before.replace("Net(width=7); x: f32[8, 7]", "Net(width=9); x: f32[3, 9]")
    assert ": f32[B, 9]" in (await editor.hints(path)).values()

    assert await editor.written(path, set="new one", text="Net(width=3); x: f32[1, 3]") == "ready"
    added = "    # mase[new one]: Net(width=3); x: f32[1, 3]\r\n    class Net"
    assert added in editor.text
    assert editor.text.replace(added, "    class Net") == before.replace("width=7", "width=9").replace("8, 7]", "3, 9]")

    assert await editor.written(path, set="large", text="") == "ready"
    assert 'kind = "𝔫é"\r\n' in editor.text
    assert await editor.written(path, set="small", text="") == "ready"
    left = before.replace("# mase[small]: Net(width=5); x: f32[2, 5]", "# mase[new one]: Net(width=3); x: f32[1, 3]")
    assert editor.text == left.replace("  # mase[large]: Net(width=7); x: f32[8, 7]", "")
    with pytest.raises(JsonRpcException, match="'a:b' cannot name a set of inputs"):
        await editor.command("mase.writeInputs", {"path": str(path), "model": "Net", "set": "a:b", "text": "x: f32[1]"})


BUILT = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 4)

    def forward(self, x):
        y = self.fc(x)
        return y


def net5():
    return Net(5)


def net7():
    return Net(7)
"""


async def test_the_files_own_builders_are_offered_and_a_picked_one_is_kept(editor):
    path = editor.folder / "net.py"
    editor.open(path, BUILT)
    assert await editor.end_state(path) == "ready"
    assert (await editor.lenses(path))[3][-1].endswith("1 of 2 builders")
    titles = {action.title for action in await editor.actions(path, 3, 8)}
    assert "MASE: Build Net with net7()" in titles
    assert "MASE: Build Net with net5()" not in titles
    await editor.command("mase.pickInputs", {"path": str(path), "model": "Net", "set": "net7()"})
    assert await editor.end_state(path) == "ready"
    assert (await editor.lenses(path))[3][-1].endswith("1 of 2 builders")
    editor.save(path, BUILT + "\n")
    assert await editor.end_state(path) == "ready"
    assert (await editor.lenses(path))[3][-1].endswith("1 of 2 builders")
    assert {value for value in (await editor.hints(path)).values() if "7" in value}
