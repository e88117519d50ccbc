"""Several models in one file: what differs is shown, one can be picked, the hover lists all. Real daemon."""

import sys

import pytest
from editing import Editor, capabilities
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

SERVER = (sys.executable, "-m", "mase_server", "lsp")
SOURCE = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        y = self.fc(x)
        return y


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(16)

    def forward(self, x):
        return self.block(x)


class Large(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.block = Block(width)

    def forward(self, x):
        large = self.block(x)
        return large
"""
LINES = SOURCE.split("\n")
Y = (LINES.index("        y = self.fc(x)"), len("        y"))
LARGE = (LINES.index("        large = self.block(x)"), len("        large"))


@pytest.fixture
async def start(tmp_path, monkeypatch):
    """A function that starts an editor with the real server; `answer` is what the person clicks."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    editors = []

    async def started(answer=None, source=SOURCE):
        editor = Editor(
            tmp_path,
            can=capabilities(),
            options={"trusted": True, "interpreter": sys.executable},
            answer=lsp.MessageActionItem(answer) if answer else None,
        )
        editors.append(editor)
        await editor.start(*SERVER)
        path = tmp_path / "net.py"
        editor.open(path, source)
        assert await editor.end_state(path) == "ready"
        return editor, path

    yield started
    for editor in editors:
        if editor.process.returncode is None:
            await editor.stop()


async def lenses(editor, path):
    found = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id(path)))
    return {(lens.range.start.line, lens.command.command): lens.command for lens in found}


async def execute(editor, command):
    await editor.client.workspace_execute_command_async(lsp.ExecuteCommandParams(command.command, command.arguments))


async def test_a_class_that_several_models_use_shows_what_differs_and_says_whose_it_is(start):
    editor, path = await start()
    assert (await editor.hints(path))[Y] == ": f32[B, 16|64]"
    lens = (await lenses(editor, path))[LINES.index("class Block(nn.Module):"), "mase.pickRoot"]
    assert lens.title == "shown for: Small | Large · pick one"
    assert [command for line, command in await lenses(editor, path) if command == "mase.pickRoot"] == ["mase.pickRoot"]


async def test_what_the_person_picks_is_shown_alone_and_kept_through_saves(start):
    editor, path = await start(answer="Large")
    row = LINES.index("class Block(nn.Module):")
    await execute(editor, (await lenses(editor, path))[row, "mase.pickRoot"])
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert [action.title for action in question.actions] == ["Small", "Large", "All of them"]
    await editor.expect(lsp.WORKSPACE_INLAY_HINT_REFRESH)
    while (await editor.hints(path))[Y] != ": f32[B, 64]":
        await editor.expect(lsp.WORKSPACE_INLAY_HINT_REFRESH)
    lens = (await lenses(editor, path))[row, "mase.pickRoot"]
    assert lens.title == "shown for: Large, of 2 models · pick another"
    wider = SOURCE.replace("width=64", "width=96")
    editor.retype(path, SOURCE, wider)
    editor.save(path, wider)
    assert await editor.end_state(path) == "ready"
    assert (await editor.hints(path))[Y] == ": f32[B, 96]"


async def test_the_hover_lists_every_model_whatever_is_picked(start):
    editor, path = await start()
    await editor.client.workspace_execute_command_async(
        lsp.ExecuteCommandParams("mase.pickRoot", [path.as_uri(), "Small"])
    )
    assert (await editor.hints(path))[Y] == ": f32[B, 16]"
    text = (await editor.hover(path, Y[0], Y[1] - 1)).contents.value
    assert "| `Small` `block` Block | `f32[B, 16]` |" in text
    assert "| `Large` `block` Block | `f32[B, 64]` |" in text


async def test_what_only_one_model_runs_is_shown_whatever_is_picked(start):
    editor, path = await start()
    await editor.request("mase/pickRoot", {"uri": path.as_uri(), "root": "Small"})
    assert (await editor.hints(path))[LARGE] == ": f32[B, 64]"


async def test_a_tool_can_ask_and_pick_and_take_it_back(start):
    editor, path = await start()
    roots = await editor.request("mase/roots", {"uri": path.as_uri()})
    assert [(root["root"], root["path"], root["picked"]) for root in roots] == [
        ("Small", str(path), False),
        ("Large", str(path), False),
    ]
    picked = await editor.request("mase/pickRoot", {"uri": path.as_uri(), "root": "Large"})
    assert [root["root"] for root in picked if root["picked"]] == ["Large"]
    with pytest.raises(JsonRpcException, match="no model 'Tiny' shows shapes in this file; it has Small, Large"):
        await editor.request("mase/pickRoot", {"uri": path.as_uri(), "root": "Tiny"})
    assert not any(root["picked"] for root in await editor.request("mase/pickRoot", {"uri": path.as_uri()}))
    assert (await editor.hints(path))[Y] == ": f32[B, 16|64]"


async def test_a_picked_model_that_is_gone_hides_nothing(start):
    editor, path = await start()
    await editor.request("mase/pickRoot", {"uri": path.as_uri(), "root": "Large"})
    renamed = SOURCE.replace("class Large", "class Huge")
    editor.retype(path, SOURCE, renamed)
    editor.save(path, renamed)
    assert await editor.end_state(path) == "ready"
    assert (await editor.hints(path))[Y] == ": f32[B, 16|64]"


async def test_two_models_of_one_class_have_names_of_their_own(start):
    source = SOURCE[: SOURCE.index("class Large")] + "\n\nnarrow = Block(width=4)\nwide = Block(width=8)\n"
    editor, path = await start(source=source)
    roots = await editor.request("mase/roots", {"uri": path.as_uri()})
    assert [root["root"] for root in roots] == ["Block", "Block #2", "Small"]
    await editor.request("mase/pickRoot", {"uri": path.as_uri(), "root": "Block #2"})
    assert (await editor.hints(path))[Y] == ": f32[B, 8]"


async def test_the_hover_at_a_class_says_what_was_assumed_and_what_was_not(start):
    editor, path = await start()
    row = LINES.index("class Large(nn.Module):")
    text = (await editor.hover(path, row, 8)).contents.value
    assert "| input `x` | `f32[B, 64] = [2, 64]` · **assumed**: found by search |" in text
    assert "constructor" not in text
    assert "`# mase: x: f32[B=2, 64]`" in text
    commented = SOURCE.replace("class Large", "# mase: Large(width=8); x: f32[3, 8]\nclass Large")
    editor.retype(path, SOURCE, commented)
    editor.save(path, commented)
    assert await editor.end_state(path) == "ready"
    text = (await editor.hover(path, row + 1, 8)).contents.value
    assert "**assumed**" not in text
    assert "| constructor | `Large(width=8)` · from a `# mase:` comment |" in text


async def test_two_models_of_one_class_are_never_on_one_line(start):
    twice = f"{SOURCE}\n\nfor width in (4, 8):\n    Block(width)(torch.zeros(2, width))\n"
    editor, path = await start(source=f"import torch\n{twice}")
    titles = (await editor.lenses(path))[LINES.index("class Block(nn.Module):") + 1]
    assert sum("parameters" in title for title in titles) == 1
    assert "1 of 2 models" in titles
