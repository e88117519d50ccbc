"""Passes from the editor to a real trace child and back: what is shown is what the graph computes."""

import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from editing import Editor, capabilities
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = (sys.executable, "-m", "mase_server", "lsp")
OWN = '''\
def shout_analysis_pass(graph, pass_args={"loud": True}):
    """Say how many nodes there are."""
    return graph, {"nodes": len(graph.fx_graph.nodes)}
'''


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    """(editor, mlp.py traced in it, with the list of passes known)."""
    folder = tmp_path_factory.mktemp("passes")
    can = capabilities(graphs=True)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        (folder / "work").mkdir()
        editor = Editor(folder / "work", can=can, options={"trusted": True, "interpreter": sys.executable})
        await editor.start(*SERVER)
    path = Path(shutil.copy(EXAMPLES / "mlp.py", folder / "work"))
    (folder / "work" / "own_passes.py").write_text(OWN)
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    while not await editor.request("mase/passes", {"path": str(path)}):
        await asyncio.sleep(0.1)  # the list comes shortly after the first trace, without an event
    yield editor, path
    await editor.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def mlp(session):
    """The session, with no pass applied and the example's own text."""
    editor, path = session
    await editor.command("mase.resetPasses", {"uri": path.as_uri()})
    return editor, path


def row_of(path, text):
    """The first line, from 0, with a text."""
    return next(row for row, line in enumerate(path.read_text().split("\n")) if text in line)


async def apply(editor, path, name, **given):
    arguments = {key: value for key, value in given.items() if key != "only"}
    asked = {"uri": path.as_uri(), "pass": name, "arguments": arguments, "only": given.get("only", [])}
    return await editor.command("mase.applyPass", asked)


async def hint(editor, path, text):
    row = row_of(path, text)
    return next(iter((await editor.hints(path, row, row)).values()))


async def test_quantising_shows_formats_errors_and_sizes_and_undo_takes_all_of_it_back(mlp):
    editor, path = mlp
    before = await editor.hints(path)
    await apply(editor, path, "quantize", default="fixed(16,8)")
    assert await hint(editor, path, "logits = self.head(x)") == ": fixed(16,8)[B, 5]"
    lens = (await editor.lenses(path))[row_of(path, "class MLP")]
    assert re.fullmatch(r"quantize · 16 bits · SQNR \d+\.\d dB \(.*weights\).*", lens[0])
    assert lens[1] == "undo"
    row = row_of(path, "logits = self.head(x)")
    card = (await editor.hover(path, row, 9)).contents.value
    assert "| number format | `fixed(16,8)` · 16 bits · was float32 |" in card
    assert "| size | 160 elements · 640 B → 320 B |" in card
    assert re.search(r"\| passes \| weight in fixed\\?\(16,8\\?\), [\d.]+ KiB → [\d.]+ KiB", card)
    assert re.search(r"\| error \| SQNR \d+\.\d dB \(.*weights.*\) · max error 0\.\d+ · [<\d. ]+ % saturated \|", card)
    assert "*Errors of MLP against the original: " in card
    await editor.command("mase.undoPass", {"uri": path.as_uri()})
    assert await editor.hints(path) == before
    assert (await editor.lenses(path))[row_of(path, "class MLP")] != lens


async def test_an_action_on_a_layer_changes_that_layer_alone(mlp):
    editor, path = mlp
    row = row_of(path, "self.head = nn.Linear")
    actions = {action.title: action for action in await editor.actions(path, row, 10)}
    [given] = actions["MASE: Quantise layer head..."].command.arguments
    await editor.command("mase.applyPass", {**given, "arguments": {"default": "mxint(8)"}})
    assert (await hint(editor, path, "logits = self.head(x)")).startswith(": mxint(8)[B, 5]")
    assert await hint(editor, path, "x = torch.relu(layer(x))") == ": f32[B, 64|32]"


async def test_a_save_applies_the_passes_again(mlp):
    editor, path = mlp
    await apply(editor, path, "quantize", default="fixed(8,4)")
    text = path.read_text()
    wider = text.replace("num_classes=5", "num_classes=7")
    editor.retype(path, text, wider)
    editor.save(path, wider)
    assert await editor.end_state(path) == "ready"
    while await hint(editor, path, "logits = self.head(x)") != ": fixed(8,4)[B, 7]":
        await editor.expect(lsp.WORKSPACE_INLAY_HINT_REFRESH)
    editor.retype(path, wider, text)
    editor.save(path, text)
    assert await editor.end_state(path) == "ready"


async def test_both_graph_documents_are_python_and_differ_where_the_pass_worked(mlp):
    editor, path = mlp
    await apply(editor, path, "quantize", default="fixed(8,4)")
    uris = await editor.command("mase.compare", {"uri": path.as_uri(), "show": False})
    texts = {}
    for which in ("original", "transformed"):
        params = lsp.TextDocumentContentParams(uris[which])
        texts[which] = (await editor.client.workspace_text_document_content_async(params)).text
        compile(texts[which], which, "exec")
    assert "quantise" not in texts["original"]
    assert "quantise(" in texts["transformed"]
    assert "class MLP(nn.Module):" in texts["original"]


async def test_a_pass_of_the_workspace_is_in_the_menu_and_runs(mlp):
    editor, path = mlp
    passes = {each["name"]: each for each in await editor.request("mase/passes", {"path": str(path)})}
    assert Path(passes["shout"]["source"]).name == "own_passes.py"
    answer = await apply(editor, path, "shout", loud=False)
    assert answer["steps"] == ["shout(loud=False)"]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("quantize", {"default": "fixed(8)"}, r"fixed\(8\)"),
        ("quantize", {"defualt": "fixed(8,4)"}, "defualt"),
        ("prune", {"only": ["nowhere"]}, "nowhere"),
    ],
)
async def test_what_cannot_be_done_is_said_and_leaves_everything_as_it_was(mlp, name, given, message):
    editor, path = mlp
    before = await editor.hints(path)
    with pytest.raises(JsonRpcException, match=message):
        await apply(editor, path, name, **given)
    assert await editor.hints(path) == before
    told = await editor.request("mase/pipeline", {"uri": path.as_uri()})
    assert not told.steps


async def test_a_pass_that_changes_nothing_says_so_and_is_not_recorded(mlp):
    editor, path = mlp
    with pytest.raises(JsonRpcException, match="conv_bn_fusion: it changes nothing here, so it was not applied"):
        await apply(editor, path, "conv_bn_fusion")
    assert (await editor.request("mase/pipeline", {"uri": path.as_uri()})).steps == []


async def test_menus_leave_out_what_would_do_nothing(mlp):
    editor, path = mlp

    async def offered():
        passes = await editor.request("mase/passes", {"uri": path.as_uri()})
        return {each["name"] for each in passes if each["menu"]}

    idle = {"fuse_lora_weights", "conv_bn_fusion"}
    before = await offered()
    assert "insert_lora_adapter" in before
    assert not idle & before
    await apply(editor, path, "insert_lora_adapter", rank=2)
    assert await offered() - before == {"fuse_lora_weights"}
    await editor.command("mase.undoPass", {"uri": path.as_uri()})
    assert await offered() == before


NORMS = """\
import torch
from torch import nn


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.fc, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.norm(self.conv(x))
        x = self.fc(x.mean((2, 3)))
        return self.head(x)


if __name__ == "__main__":
    Normed().eval()(torch.randn(2, 3, 8, 8))
"""


async def test_the_menu_of_a_layer_leaves_out_what_would_do_nothing_on_it(session):
    editor, mlp = session
    path = mlp.with_name("normed.py")
    path.write_text(NORMS)
    editor.open(path)
    assert await editor.end_state(path) == "ready"

    async def offered(text, column):
        actions = {action.title: action for action in await editor.actions(path, row_of(path, text), column)}
        [given] = next(each for title, each in actions.items() if "More passes" in title).command.arguments
        passes = await editor.request("mase/passes", {key: given[key] for key in ("path", "model", "only")})
        return {each["name"] for each in passes if each["menu"]} & {"conv_bn_fusion", "fuse_lora_weights"}

    assert await offered("class Normed", 7) == {"conv_bn_fusion"}
    assert await offered("self.conv(x)", 25) == {"conv_bn_fusion"}
    assert await offered("x = self.norm(self", 14) == {"conv_bn_fusion"}
    assert await offered("x = self.fc(x", 14) == set()
    await apply(editor, path, "insert_lora_adapter", rank=2, only=["head"])
    assert await offered("return self.head(x)", 21) == {"fuse_lora_weights"}
    assert await offered("x = self.fc(x", 14) == set()


async def cost_rows(editor, path):
    return {row.id: row.passes for row in (await editor.request("mase/costTable", {"path": str(path)})).rows}


async def test_adapters_are_told_in_lens_cards_and_costs_and_are_nodes_of_the_graph(mlp):
    editor, path = mlp
    await apply(editor, path, "insert_lora_adapter", rank=4, freeze=True, only=["head"])
    lens = (await editor.lenses(path))[row_of(path, "class MLP")]
    assert re.match(r"insert_lora_adapter · rank 4 · [\d.]+ % trainable · ", lens[0]), lens
    card = (await editor.hover(path, row_of(path, "class MLP"), 7)).contents.value
    assert "| LoRA | rank 4 |" in card
    assert re.search(r"\| trainable parameters \| [\d,]+ → 148 of [\d,]+ \|", card), card
    own = (await editor.hover(path, row_of(path, "logits = self.head(x)"), 9)).contents.value
    assert "| passes | LoRA rank 4: 148 trainable of 313 parameters |" in own
    rows = await cost_rows(editor, path)
    assert rows["head"] == "LoRA rank 4: 148 trainable of 313 parameters"
    assert rows[""].startswith("LoRA rank 4 · ")
    columns = ["name", "mase_op", "inputs", "value", "note"]
    graph = await editor.request("mase/graph", {"path": str(path), "columns": columns})
    [*_, head, first, second, scaled, added, output] = zip(*graph.columns, strict=True)
    assert [node[2] for node in (head, first, second, scaled, added)] == ["linear", "linear", "linear", "mul", "add"]
    assert (first[3], second[3], scaled[3]) == (head[3], [first[0]], [second[0]])
    assert (added[3], output[3]) == ([head[0], scaled[0]], [added[0]])
    assert graph.values[first[4]][:2] == ["f32", [32, 4]]
    assert first[5] == "inserted by insert_lora_adapter"


async def test_the_share_of_pruned_weights_is_told_of_each_layer_and_in_all(mlp):
    editor, path = mlp
    await apply(editor, path, "prune", weight={"sparsity": 0.5}, only=["head"])
    own = (await editor.hover(path, row_of(path, "logits = self.head(x)"), 9)).contents.value
    assert "| passes | 50 % of the weight pruned |" in own
    card = (await editor.hover(path, row_of(path, "class MLP"), 7)).contents.value
    assert re.search(r"\| pruned \| [\d.]+ % of the weights \|", card), card
    assert re.match(r"prune · [\d.]+ % pruned · ", (await editor.lenses(path))[row_of(path, "class MLP")][0])
    assert (await cost_rows(editor, path))["head"] == "50 % of the weight pruned"


async def test_an_operator_that_is_not_quantised_tells_why(mlp):
    editor, path = mlp
    await apply(editor, path, "quantize", default="fixed(8,4)", relu={"config": {"name": None}})
    own = (await editor.hover(path, row_of(path, "x = torch.relu(layer(x))"), 12)).contents.value
    assert "not quantised: its configuration, relu, leaves it as it is" in own.replace("\\", "")
    await apply(editor, path, "quantize", default="fixed(8,4)")
    own = (await editor.hover(path, row_of(path, "x = torch.relu(layer(x))"), 12)).contents.value
    assert "not quantised" not in own
