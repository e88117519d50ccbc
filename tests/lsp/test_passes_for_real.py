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
    assert re.fullmatch(
        r"quantize · 16 bits · SQNR \d+\.\d dB · [<\d. ]+ % saturated( · random weights)? · 2\.0x smaller", lens[0]
    )
    row = row_of(path, "logits = self.head(x)")
    card = (await editor.hover(path, row, 9)).contents.value
    assert "| number format | `fixed(16,8)` · 16 bits · was float32 |" in card
    assert "| size | 160 elements · 640 B → 320 B |" in card
    assert re.search(r"\| error \| SQNR \d+\.\d dB · max error 0\.\d+ · [<\d. ]+ % saturated \|", card)
    assert "*Errors of MLP against the original: " in card
    await editor.command("mase.undoPass", {"uri": path.as_uri()})
    assert await editor.hints(path) == before
    assert (await editor.lenses(path))[row_of(path, "class MLP")] == lens[3:]


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
