"""The cost table of a real model: against eager PyTorch's own parameters and operations, and the editor's places."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
from editing import Editor, capabilities

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = (sys.executable, "-m", "mase_server", "lsp")
#: What torch's own counter counts.
PRODUCTS = {"linear", "matmul"}


@pytest.fixture
async def editor(tmp_path, monkeypatch):
    """An editor whose server keeps its things under `tmp_path`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    editor = Editor(tmp_path, can=capabilities(), options={"trusted": True, "interpreter": sys.executable})
    await editor.start(*SERVER)
    yield editor
    if editor.process.returncode is None:
        await editor.stop()


def eager_gpt(path):
    """The model and the inputs that gpt.py makes when it runs."""
    import torch

    spec = importlib.util.spec_from_file_location("gpt_in_the_cost_table", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    config = module.GPTConfig(vocab_size=512, n_layer=4, n_head=4, n_embd=128)
    tokens = torch.randint(0, config.vocab_size, (4, 65))
    return module.GPT(config), (tokens[:, :-1], tokens[:, 1:])


def eager_counts(path):
    """{module path: (parameters, bytes, FLOPs as torch counts them)}."""
    from torch.utils.flop_counter import FlopCounterMode

    model, inputs = eager_gpt(path)
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    flops = {name: sum(counts.values()) for name, counts in counter.get_flop_counts().items()}
    found = {}
    for name, module in model.named_modules():
        own = list(module.parameters())
        size = sum(each.numel() * each.element_size() for each in own)
        # A ModuleList is not called, so torch does not count for it.
        counted = [f"{name}.{index}" for index in range(len(module))] if name == "blocks" else [name]
        products = sum(flops.get(f"GPT.{each}" if each else "GPT", 0) for each in counted)
        found[name] = sum(each.numel() for each in own), size, products
    return found


def products(rows, index):
    """FLOPs of the products in a row and below it."""
    below = [number for number, row in enumerate(rows) if row.parent == index]
    own = rows[index].kind in ("layer", "operator") and {rows[index].name, rows[index].type} & PRODUCTS
    return sum(products(rows, number) for number in below) + (rows[index].flops if own else 0)


async def test_every_row_is_what_eager_pytorch_counts(editor):
    path = Path(shutil.copy(EXAMPLES / "gpt.py", editor.folder))
    expected = eager_counts(path)
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    table = await editor.request("mase/costTable", {"path": str(path)})
    modules = {row.id: index for index, row in enumerate(table.rows) if row.kind in ("scope", "layer")}
    assert set(modules) == set(expected)
    told = {
        name: (table.rows[index].parameters, table.rows[index].parameter_bytes, products(table.rows, index))
        for name, index in modules.items()
    }
    assert told == expected
    [model] = await editor.request("mase/models", {"path": str(path)})
    root = table.rows[0]
    assert (root.nodes, root.parameters, root.flops) == (model["nodes"], model["parameters"], model["flops"])
    assert {row.id: row.shared for row in table.rows if row.shared} == {"wte": ["lm_head"], "lm_head": ["wte"]}


async def test_the_cursor_is_on_the_rows_of_its_line_and_a_row_on_its_line_also_after_edits(editor):
    path = Path(shutil.copy(EXAMPLES / "gpt.py", editor.folder))
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    text = path.read_text()

    async def at(line_text, after, below=0):
        lines = text.split("\n")
        number = next(number for number, line in enumerate(lines) if line_text in line)
        position = {"line": number + below, "character": lines[number].index(after) + len(after)}
        params = {"uri": path.as_uri(), "path": str(path), "model": "GPT", "position": position}
        return (await editor.request("mase/costRowsAt", params)).ids

    blocks = range(4)
    assert await at("class GPT(nn.Module)", "GPT") == [""]
    assert await at("class Block(nn.Module)", "Block") == [f"blocks.{block}" for block in blocks]
    assert await at("self.c_attn = nn.Linear", "c_attn") == [f"blocks.{block}.attn.c_attn" for block in blocks]
    assert await at("q, k, v = self.c_attn(x)", "self.c_a") == [f"blocks.{block}.attn.c_attn" for block in blocks]
    assert await at("y = att @ v", "att @ v") == [f"blocks.{block}.attn/matmul" for block in blocks]
    assert await at("import math", "math") == []

    rows = {row.id: row for row in (await editor.request("mase/costTable", {"path": str(path)})).rows}
    [place] = rows["ln_f"].places
    where = {"path": place.file, **{key: getattr(place, key) for key in ("line", "column", "end_line", "end_column")}}
    before = await editor.request("mase/presentPlace", where)
    assert text.split("\n")[before.range.start.line].strip() == "x = self.ln_f(x)"
    editor.retype(path, text, "# one more line\n" + text)
    after = await editor.request("mase/presentPlace", where)
    assert (after.uri, after.range.start.line) == (path.as_uri(), before.range.start.line + 1)
    assert await at("y = att @ v", "att @ v", below=1) == [f"blocks.{block}.attn/matmul" for block in blocks]
    editor.retype(path, "# one more line\n" + text, ("# one more line\n" + text).replace("self.ln_f(x)", "self.lnf(x)"))
    assert await editor.request("mase/presentPlace", where) is None
