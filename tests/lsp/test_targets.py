"""What the cursor is on, as a pass sees it: worked out by hand from a file that is really traced."""

import hashlib
import sys
from types import SimpleNamespace

import pytest
import pytest_asyncio
from lsprotocol import types as lsp

from mase_server.cli.session import Wanted, daemon_for
from mase_server.daemon.status import Listener
from mase_server.lsp.commands import nodes_at
from mase_server.lsp.documents import Document
from mase_server.lsp.outline import get_outline
from mase_server.lsp.page import Page
from mase_server.lsp.targets import targets_in_range
from mase_server.lsp.text import Encoding, Text

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOURCE = """\
import torch
from torch import nn
from torch.nn import functional as F


class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)


class Block(Base):
    def __init__(self, width):
        super().__init__(width)
        self.fc = nn.Sequential(
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.width = width
        self.shortcut = nn.Sequential()

    def forward(self, x):
        x = self.shortcut(x)
        é = "é"; return F.relu(self.norm(self.fc(x)) + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        y = self.head(x)
        y = torch.softmax(y, -1)
        y = torch.tanh(y)
        y = torch.tanh(torch.tanh(y))  # twice
        return y


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(8)
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.block(x)


def unused(x):
    return x


if __name__ == "__main__":
    Net()(torch.randn(8, 16))
    Small()(torch.randn(8, 8))
"""
LINES = SOURCE.split("\n")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(tmp_path_factory):
    """The view and the snapshot of SOURCE."""
    file = tmp_path_factory.mktemp("targets") / "net.py"
    file.write_text(SOURCE)
    async with daemon_for(Wanted((file,), python=sys.executable), Listener()) as daemon:
        await daemon.wait(str(file))
        return SimpleNamespace(
            path=str(file), view=daemon.store.view(str(file)), snapshot=daemon.store.snapshot(str(file))
        )


def on(traced, first, last=None, picked=None):
    """[(model, name, only)] of the cursor at the text `first`, or of the selection from there to the end of `last`."""
    start = at(first)
    end = start if last is None else at(last, behind=True)
    traced.view.picked = picked
    document = Document("file://" + traced.path, traced.path, 1, Text(SOURCE))
    document.remember_text()
    sha256 = hashlib.sha256(SOURCE.encode()).hexdigest()
    page = Page(document, traced.view, sha256, document.alignment(sha256), Encoding.UTF32)
    server = SimpleNamespace(daemon=SimpleNamespace(store=SimpleNamespace(snapshots=lambda: [traced.snapshot])))
    return [(each.model, each.name, each.only) for each in targets_in_range(server, page, lsp.Range(start, end))]


def at(text, behind=False):
    [row] = [row for row, line in enumerate(LINES) if text in line]
    return lsp.Position(row, LINES[row].index(text) + (len(text) if behind else 0))


async def test_the_class_of_a_model_means_all_of_it(traced):
    assert on(traced, "class Net(nn.Module):") == [("Net", "Net", ())]


async def test_the_class_of_a_part_means_every_module_of_it(traced):
    assert on(traced, "class Block(Base):") == [("Net", "Block (2 modules)", ("blocks.0", "blocks.1"))]


async def test_the_picked_model_is_meant_where_several_have_the_part(traced):
    assert on(traced, "class Block(Base):", picked="Small") == [("Small", "Block", ("block",))]


async def test_a_layer_is_meant_where_it_is_made(traced):
    assert on(traced, "self.head = nn.Linear") == [("Net", "layer head", ("head",))]
    assert on(traced, "nn.Linear(16, 4)") == [("Net", "layer head", ("head",))]


async def test_an_element_of_a_sequence_is_meant_at_its_own_line(traced):
    assert on(traced, "nn.Linear(width, width)") == [
        ("Net", "layer fc.0 (2 layers)", ("blocks.0.fc.0", "blocks.1.fc.0"))
    ]
    assert on(traced, "self.fc = nn.Sequential(") == [("Net", "layer fc (2 layers)", ("blocks.0.fc", "blocks.1.fc"))]


async def test_a_layer_that_a_base_class_makes_is_meant_there(traced):
    assert on(traced, "self.norm = nn") == [("Net", "layer norm (2 layers)", ("blocks.0.norm", "blocks.1.norm"))]


async def test_a_list_of_layers_is_meant_where_it_is_looped_over(traced):
    assert on(traced, "self.blocks:") == [("Net", "layer blocks", ("blocks",))]


async def test_of_nested_calls_the_innermost_is_meant_behind_wide_letters_too(traced):
    assert on(traced, "self.fc(x)) + x)") == [("Net", "layer fc (2 layers)", ("blocks.0.fc", "blocks.1.fc"))]
    assert on(traced, "norm(self.fc") == [("Net", "layer norm (2 layers)", ("blocks.0.norm", "blocks.1.norm"))]
    assert on(traced, "F.relu(self") == [("Net", "relu (2 operations)", ("relu", "relu_1"))]
    assert on(traced, "+ x)") == [("Net", "add (2 operations)", ("add", "add_1"))]


async def test_an_operation_is_meant_by_its_node(traced):
    assert on(traced, "torch.softmax(y, -1)") == [("Net", "softmax", ("softmax",))]


async def test_layers_that_have_no_name_are_meant_where_they_are_called(traced):
    assert on(traced, "layer(x))") == [("Small", "linear (2 operations)", ("layers.0", "layers.1"))]
    assert on(traced, "torch.relu(layer") == [("Small", "relu (2 operations)", ("relu", "relu_1"))]


async def test_outside_of_any_call_the_line_is_meant(traced):
    assert on(traced, 'é = "é"') == [
        ("Net", "this line (8 parts)",
         ("blocks.0.norm", "blocks.1.norm", "blocks.0.fc", "blocks.1.fc", "add", "add_1", "relu", "relu_1")),
    ]  # fmt: skip


async def test_a_selection_means_the_layers_of_its_lines_the_outermost_of_each(traced):
    [(model, name, only)] = on(traced, "for block in self.blocks:", "torch.softmax(y, -1)")
    assert (model, name, only) == ("Net", "the selection (3 parts)", ("blocks", "head", "softmax"))
    [(_, name, only)] = on(traced, "self.fc = nn.Sequential(", "nn.ReLU(),")
    assert (name, only) == ("the selection (2 parts)", ("blocks.0.fc", "blocks.1.fc"))


@pytest.mark.parametrize(
    "place", ["import torch", "self.width = width", "self.shortcut = nn.Sequential()", "return x", "Net()(torch.randn"]
)
async def test_where_no_layer_is_nothing_is_meant(traced, place):
    row = next(row for row, line in enumerate(LINES) if place in line)
    if place == "return x":
        row = next(row for row, line in enumerate(LINES) if line == "    return x")
    LINES[row], kept = LINES[row] + "#here", LINES[row]
    try:
        assert on(traced, "#here") == []
    finally:
        LINES[row] = kept


async def test_a_selection_of_one_kind_of_operation_means_every_one_of_it(traced):
    assert on(traced, "y = torch.tanh(y)", "# twice") == [("Net", "tanh (3 operations)", ("tanh", "tanh_1", "tanh_2"))]
    assert on(traced, "torch.tanh(y))  #") == [("Net", "tanh", ("tanh_1",))]


async def test_a_source_that_does_not_parse_has_no_outline():
    assert get_outline("class Net(:\n").mentions == ()


async def test_an_outline_knows_who_inherits():
    assert get_outline("class A: ...\nclass B(A): ...\nclass C(x.B): ...\nclass D: ...\n").class_and_heirs("A") == {
        "A",
        "B",
        "C",
    }


async def nodes_on(traced, text, model="Net"):
    """The names of the nodes that a page of the graph lights while the cursor is at `text`."""
    document = Document("file://" + traced.path, traced.path, 1, Text(SOURCE))
    document.remember_text()
    view, store = traced.view, SimpleNamespace(snapshot={traced.path: traced.snapshot}.get)

    def page_at(path, sha256):
        alignment = document.alignment(sha256)
        return None if alignment is None else Page(document, view, sha256, alignment, Encoding.UTF32)

    server = SimpleNamespace(daemon=SimpleNamespace(store=store), path_of=lambda uri: traced.path, page_at=page_at)
    position = at(text)
    asked = {"uri": document.uri, "path": traced.path, "model": model}
    told = await nodes_at(server, asked | {"position": {"line": position.line, "character": position.character}})
    assert told["sha256"] == traced.snapshot.sha256
    return [traced.snapshot.payload["nodes"]["name"][row] for row in told["rows"]]


async def test_a_graph_s_page_lights_the_operation_at_the_cursor(traced):
    assert await nodes_on(traced, "torch.softmax(y, -1)") == ["softmax"]


async def test_a_graph_s_page_lights_a_layer_where_it_is_made_in_every_module_of_its_class(traced):
    assert await nodes_on(traced, "nn.LayerNorm(width)") == ["blocks_0_norm", "blocks_1_norm"]
    assert await nodes_on(traced, "nn.LayerNorm(width)", model="Small") == ["block_norm"]


async def test_a_graph_s_page_lights_all_of_a_part_at_its_class(traced):
    found = await nodes_on(traced, "class Block(Base):")
    assert found[:5] == ["blocks_0_fc_0", "blocks_0_fc_1", "blocks_0_norm", "add", "relu"]
    assert len(found) == 10


async def test_a_graph_s_page_lights_nothing_where_no_operation_is(traced):
    assert await nodes_on(traced, "import torch") == []
