"""Hovers on the names of classes and functions, from a real trace; figures are worked out by hand."""

import sys

import pytest
from editing import Editor, capabilities

SERVER = (sys.executable, "-m", "mase_server", "lsp")
NET = """import torch
from torch import nn
from absent_mixer import Mix


def twice(value):
    return value * 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x, scale=1.0):
        return twice(self.fc(x)) * scale

    def loss(self, x):
        return x.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x, x.sum(-1)


class Main(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(Mix(8).width + 1, 4)

    def forward(self, x):
        return self.fc(x)


if __name__ == "__main__":
    Net()(torch.zeros(2, 8))
"""


@pytest.fixture
async def card(tmp_path, monkeypatch):
    """Opens a text, and returns a function from the code before and at the cursor to the hover there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    options = {"trusted": True, "interpreter": sys.executable, "update": "onSave"}
    editor = Editor(tmp_path, can=capabilities(progress=True), options=options)
    await editor.start(*SERVER)
    path = tmp_path / "net.py"
    editor.open(path, NET)
    await editor.end_state(path)

    async def card(above, code, text=NET):
        lines = text.split("\n")
        first = next(row for row, line in enumerate(lines) if above in line)
        row = next(row for row in range(first, len(lines)) if code in lines[row])
        found = await editor.hover(path, row, lines[row].index(code) + len(code) - 1)
        return "" if found is None else found.contents.value

    card.editor, card.path = editor, path
    yield card
    await editor.stop()


async def test_a_forward_tells_inputs_outputs_cost_and_runs(card):
    """Block: 2 * 8 * 8 multiplications and additions of each of 2 rows, a bias, and two products of 16 numbers."""
    block = await card("class Block", "def forward")
    assert block.startswith("**`Block.forward`** · runs in Net")
    assert "| input `x` | `f32[B, 8]` |" in block
    assert "| returns | `f32[B, 8]` |" in block
    assert "| runs | 4 times, all equal |" in block
    assert "| scope | `blocks.0` Block … `blocks.3` Block |" in block
    assert "FLOPs each time · 2" in block, "a bit less than a quarter of Net"
    assert "scale" not in block, "it has no shape"
    net = await card("class Net", "def forward")
    assert "| returns | `(f32[B, 8], f32[B])` |" in net
    assert "| runs |" not in net


async def test_a_function_and_the_class_of_a_part_tell_the_same(card):
    assert "| input `value` | `f32[B, 8]` |" in await card("def twice", "def twice")
    assert await card("class Block", "class Block") == await card("class Block", "def forward")
    assert "model" in await card("class Net", "class Net")


async def test_a_model_that_is_not_shown_tells_why_and_what_would_help(card):
    told = (await card("class Main", "class Main")).replace("\\", "")
    assert told.startswith("Main is not shown. It needs absent_mixer, which cannot be imported in ")
    assert await card("class Main", "def forward") == await card("class Main", "class Main")


async def test_what_did_not_run_and_what_was_edited_keep_their_own_answers(card):
    assert "`loss` was not called" in await card("class Block", "def loss")
    edited = NET.replace("def forward(self, x, scale=1.0)", "def forward(self, x, scale=2.0)")
    row = NET.split("\n").index("    def forward(self, x, scale=1.0):")
    card.editor.change(card.path, (row, 32, row, 33, "2"))
    assert await card("class Block", "def forward", edited) == ""
    assert "before the last edits" in await card("class Net", "def forward", edited)
