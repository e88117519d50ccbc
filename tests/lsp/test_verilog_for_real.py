"""Hardware from the editor to a real trace child and back. Lines and figures are worked out by hand."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from editing import Editor, capabilities
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = (sys.executable, "-m", "mase_server", "lsp")
#: 16 -> 64 -> 32 -> 32 -> 5: one multiplier a layer gives a layer as many cycles as it has weights.
WEIGHTS = [16 * 64, 64 * 32, 32 * 32, 32 * 5]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    """(editor, mlp.py traced in it, the URI of its hardware with one multiplier a layer)."""
    folder = tmp_path_factory.mktemp("verilog")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        (folder / "work").mkdir()
        options = {"trusted": True, "interpreter": sys.executable}
        editor = Editor(folder / "work", can=capabilities(graphs=True), options=options)
        await editor.start(*SERVER)
    path = Path(shutil.copy(EXAMPLES / "mlp.py", folder / "work"))
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    told = await editor.command("mase.emitVerilog", {"uri": path.as_uri(), "build": {}, "show": False})
    yield editor, path, told
    await editor.stop()


def row_of(path, text):
    """The first line, from 0, with a text."""
    return next(row for row, line in enumerate(path.read_text().split("\n")) if text in line)


async def content(editor, uri):
    return (await editor.client.workspace_text_document_content_async(lsp.TextDocumentContentParams(uri))).text


async def counterparts(editor, uri, line, character):
    """{uri: (names, first lines of the ranges)}"""
    asked = {"uri": uri, "position": {"line": line, "character": character}}
    found = await editor.request("mase/counterparts", asked)
    return {each["uri"]: (each["names"], [area["start"]["line"] for area in each["ranges"]]) for each in found}


def instance(text, name):
    """The line, from 0, on which the instance of a component begins."""
    lines = text.split("\n")
    row = next(row for row, line in enumerate(lines) if re.search(rf"\) {name} \($", line))
    return max(above for above in range(row) if lines[above].endswith("#("))


async def test_what_opens_is_the_whole_model_in_its_own_steps(session):
    editor, _, told = session
    text = await content(editor, told["uri"])
    assert (told["module"], told["unsupported"], told["refusal"]) == ("mlp", [], None)
    assert [each["name"] for each in told["operations"]] == ["x", "layers_0", "layers_1", "layers_2", "head"]
    assert re.search(r"^module mlp \($", text, re.M)
    assert told["totals"]["multipliers"] == len(WEIGHTS)
    assert told["totals"]["interval"] == max(WEIGHTS)
    assert told["totals"]["bottlenecks"] == ["layers_1"]


async def test_a_layer_is_its_instance_and_a_line_that_ran_three_times_is_three(session):
    editor, path, told = session
    text = await content(editor, told["uri"])
    use, made = row_of(path, "logits = self.head(x)"), row_of(path, "self.head = nn.Linear")
    names, rows = (await counterparts(editor, path.as_uri(), use, 22))[told["uri"]]
    assert (names, instance(text, "head_i") in rows) == (["head"], True)
    assert (await counterparts(editor, path.as_uri(), made, 14))[told["uri"]] == (names, rows)
    assert await counterparts(editor, path.as_uri(), row_of(path, "class MLP"), 8) == {}
    names, _ = (await counterparts(editor, path.as_uri(), row_of(path, "torch.relu(layer(x))"), 29))[told["uri"]]
    assert names == ["layers_0", "layers_1", "layers_2"]
    back = await counterparts(editor, told["uri"], instance(text, "head_i"), 4)
    assert back[path.as_uri()] == (["head"], [use, made])


async def test_a_save_makes_it_again_and_the_map_with_it(session):
    editor, path, told = session
    text = path.read_text()
    wider = text.replace("num_classes=5", "num_classes=7").replace("import torch\n", "import os\nimport torch\n")
    assert "TENSOR_SIZE_DIM_0(7)" not in await content(editor, told["uri"])
    editor.retype(path, text, wider)
    editor.save(path, wider)
    assert await editor.end_state(path) == "ready"
    while ".DATA_OUT_0_TENSOR_SIZE_DIM_0(7)" not in await content(editor, told["uri"]):
        await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    use = row_of(path, "logits = self.head(x)")
    fresh = await content(editor, told["uri"])
    back = await counterparts(editor, told["uri"], instance(fresh, "head_i"), 4)
    assert back[path.as_uri()][1][0] == use
    editor.retype(path, wider, text)
    editor.save(path, text)
    assert await editor.end_state(path) == "ready"
    while ".DATA_OUT_0_TENSOR_SIZE_DIM_0(7)" in await content(editor, told["uri"]):
        await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)


async def test_cards_and_lens_tell_what_a_layer_takes(session):
    editor, path, _ = session
    use = row_of(path, "logits = self.head(x)")
    card = (await editor.hover(path, use, 10)).contents.value
    assert re.search(r"\| hardware \| `fixed_linear` · 1 multiplier · .*160 cycles per sample", card)
    lens = (await editor.lenses(path))[row_of(path, "class MLP")]
    assert lens[1].startswith("Verilog: 4 multipliers")


async def test_one_layer_alone(session):
    editor, path, _ = session
    row = row_of(path, "self.head = nn.Linear")
    actions = {each.title: each.command for each in await editor.actions(path, row, 10)}
    [given] = actions["MASE: Emit the Verilog of layer head alone"].arguments
    told = await editor.command("mase.emitVerilog", {**given, "show": False})
    assert [each["name"] for each in told["operations"] if each["kind"] != "input"][-1] == "head"
    assert told["build"]["scope"] == "head"
    await editor.command("mase.emitVerilog", {**given, "scope": "", "show": False})


async def test_the_simulation_is_bit_exact_and_as_fast_as_estimated(session):
    editor, path, _ = session
    told = await editor.command("mase.simulateVerilog", {"uri": path.as_uri(), "vectors": 10, "show": False})
    assert (told["status"], told["vectors"], told["mismatches"]) == ("equal", 10, 0)
    assert told["cycles_per_vector"] == pytest.approx(max(WEIGHTS), rel=0.02)
    assert told["summary"].startswith("MLP: 10 vectors, 0 mismatches, ")


async def test_a_waveform_tells_how_much_of_the_time_each_layer_works(session):
    """One multiplier a layer: it works as many cycles of a sample as the layer has weights, as the hover says."""
    editor, path, _ = session
    told = await editor.command("mase.recordWaveform", {"uri": path.as_uri(), "vectors": 10, "show": False})
    wave = told["wave"]
    works = [each["works"] / wave["cycles"] for each in wave["operations"]]
    assert works == pytest.approx([weights / max(WEIGHTS) for weights in WEIGHTS], abs=0.02)
    assert Path(wave["file"]).stat().st_size > 1000
    use = row_of(path, "logits = self.head(x)")
    card = (await editor.hover(path, use, 10)).contents.value
    assert re.search(rf"160 cycles per sample · .*works {round(100 * works[-1])} % of the time", card)


async def test_a_folder_stands_alone(session):
    editor, path, _ = session
    folder = path.parent / "hardware"
    await editor.command("mase.saveVerilog", {"uri": path.as_uri(), "folder": str(folder), "show": False})
    assert {"mlp.sv", "Makefile", "README.md", "files.f", "rtl", "sim"} <= {each.name for each in folder.iterdir()}
