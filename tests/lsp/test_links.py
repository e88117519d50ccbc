"""Links of cards and hints, as a client gets them that can follow links, and as one that cannot."""

import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import pytest_asyncio
from editing import Editor, capabilities
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = (sys.executable, "-m", "mase_server", "lsp")
COMMANDS = ["mase.showGraph", "mase.showCosts", "mase.changeInputs"]
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
NET = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        y = self.fc(x)
        z = y * 2
        return z


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Sequential(nn.Linear(8, 4), nn.ReLU())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return logits


if __name__ == "__main__":
    Net()(torch.randn(3, 8))
"""


def clients(folder):
    """One that follows links and resolves parts of labels, and one that knows of neither."""
    trusted = {"trusted": True, "interpreter": sys.executable}
    able = capabilities()
    able.text_document.inlay_hint = lsp.InlayHintClientCapabilities(
        resolve_support=lsp.ClientInlayHintResolveOptions(["tooltip", "label.location"])
    )
    yield Editor(folder, can=able, options={**trusted, "commandLinks": COMMANDS})
    yield Editor(folder, options=trusted)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def both(tmp_path_factory):
    """Both clients, with the same file, traced."""
    folder = tmp_path_factory.mktemp("links")
    started, path = list(clients(folder)), folder / "net.py"
    path.write_text(NET)
    with pytest.MonkeyPatch.context() as patch:
        for name, part in (("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state"), ("MASE_RUNTIME_DIR", "run")):
            patch.setenv(name, str(folder / part))
        for editor in started:
            await editor.start(*SERVER)
            editor.open(path)
            assert await editor.end_state(path) == "ready"
    yield (*started, path)
    for editor in started:
        await editor.stop()


def place(line_text, word):
    """(line, character) of a word in the first line that holds `line_text`; lines from 0."""
    lines = NET.split("\n")
    number = next(number for number, line in enumerate(lines) if line_text in line)
    return number, lines[number].index(word)


async def links(editor, path, line_text, word):
    """The links of a hover: {text: (command, arguments)} and {text: address}."""
    card = (await editor.hover(path, *place(line_text, word))).contents.value
    found = {}
    for text, address in LINK.findall(card):
        command, _, given = address.partition("?")
        run = command.startswith("command:")
        found[text] = (command.removeprefix("command:"), json.loads(unquote(given))) if run else address
    return found


async def test_a_hover_leads_to_the_module_and_to_views_of_it_where_the_client_follows_links(both):
    able, other, path = both
    target = {"path": str(path), "model": "Net"}
    made = place("self.fc = nn.Linear", "self.fc")
    assert await links(able, path, "y = self.fc(x)", "y") == {
        "go to blocks.0.fc": f"{path.as_uri()}#L{made[0] + 1},{made[1] + 1}",
        "show in the graph": ("mase.showGraph", [{**target, "scope": "blocks.0.fc"}]),
        "show its costs": ("mase.showCosts", [{**target, "row": "blocks.0.fc"}]),
        "change inputs": ("mase.changeInputs", [target]),
    }
    at_class = place("class Block", "Block")
    of_operation = await links(able, path, "z = y * 2", "z")
    assert of_operation["go to class Block"] == f"{path.as_uri()}#L{at_class[0] + 1},{at_class[1] + 1}"
    assert of_operation["show its costs"] == ("mase.showCosts", [{**target, "row": "blocks.0"}])
    in_a_sequence = await links(able, path, "logits = self.head(x)", "logits")
    number, column = place("self.head = nn.Sequential", "nn.ReLU")
    assert in_a_sequence["go to head.1"] == f"{path.as_uri()}#L{number + 1},{column + 1}"
    assert await links(able, path, "class Net", "Net") == {
        "show the graph": ("mase.showGraph", [target]),
        "show the costs": ("mase.showCosts", [target]),
        "change inputs": ("mase.changeInputs", [target]),
    }
    for where in (("y = self.fc(x)", "y"), ("z = y * 2", "z"), ("class Net", "Net")):
        assert await links(other, path, *where) == {}


async def asked(editor, path):
    area = lsp.Range(lsp.Position(0, 0), lsp.Position(NET.count("\n"), 0))
    return await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(editor.id(path), area))


async def test_a_hint_has_the_same_text_for_all_and_leads_to_the_module_when_it_is_resolved(both):
    able, other, path = both
    plain = {(hint.position.line, hint.position.character): hint.label for hint in await asked(other, path)}
    hints = await asked(able, path)
    assert plain
    assert {
        (hint.position.line, hint.position.character): "".join(p.value for p in hint.label) for hint in hints
    } == plain
    assert all(part.location is None and part.command is None for hint in hints for part in hint.label)
    [line, column] = place("y = self.fc(x)", "y")
    [hint] = [hint for hint in hints if (hint.position.line, hint.position.character) == (line, column + 1)]
    resolved = await able.client.inlay_hint_resolve_async(hint)
    [part] = resolved.label
    start = part.location.range.start
    assert (part.value, part.location.uri) == (": f32[B, 8]", path.as_uri())
    assert (start.line, start.character) == place("self.fc = nn.Linear", "self.fc")
    assert "command:mase.showCosts?" in resolved.tooltip.value
    [hint] = [hint for hint in await asked(other, path) if hint.position.line == line]
    assert "command:" not in (await other.client.inlay_hint_resolve_async(hint)).tooltip.value


async def test_a_link_follows_its_line_and_is_gone_with_it(both):
    able, _, path = both
    moved = "# one more line\n" + NET
    able.retype(path, NET, moved)
    line, character = place("y = self.fc(x)", "y")
    card = (await able.hover(path, line + 1, character)).contents.value
    made = place("self.fc = nn.Linear", "self.fc")
    assert f"#L{made[0] + 2},{made[1] + 1})" in card
    able.retype(path, moved, moved.replace("self.fc = nn.Linear(8, 8)", "self.fc = nn.Linear(8, 8, bias=False)"))
    card = (await able.hover(path, line + 1, character)).contents.value
    assert "#L" not in card
    assert "command:mase.showCosts?" in card


async def test_the_client_of_vs_code_names_the_commands_that_it_follows():
    source = (Path(__file__).parents[2] / "mase_client_vscode" / "src" / "links.ts").read_text()
    assert re.findall(r"'(mase\.\w+)'", source) == COMMANDS
