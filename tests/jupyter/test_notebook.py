"""`%mase` and `%%mase` in a real kernel: the numbers are eager's, and nothing of a person's becomes markup."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nbformat
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.jupyter.conftest import html_of

ROOT = Path(__file__).parents[2]
MODEL = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a = nn.Linear(8, width)
        self.b = nn.Linear(width, 3)

    def forward(self, x):
        hidden = self.a(x).relu()
        return self.b(hidden)
"""
LOAD = "%load_ext mase_server.jupyter"


class Net(nn.Module):
    """The model of the notebook, for ground truth."""

    def __init__(self, width=16):
        super().__init__()
        self.a, self.b = nn.Linear(8, width), nn.Linear(width, 3)


def rows_of(html):
    """The cells of a table, read by a parser of XML: markup that is not well-formed is an error."""
    table = ElementTree.fromstring(html).find("table")
    return [[cell.text or "" for cell in row] for row in table.iter("tr")]


def text_of(html):
    return "".join(ElementTree.fromstring(html).itertext())


def test_layers_and_shapes_are_shown_with_eagers_numbers(executed):
    (executed.folder / "sizes.py").write_text("WIDTH = 24\n")
    cells = executed(
        LOAD,
        MODEL,
        "x = torch.randn(5, 8)\nnet = Net()\n%mase net(x)",
        "from mase_server import MaseGraph\nMaseGraph(net, {'x': x})",
        "%%mase\nout = net(x)\nhalf = out[:2]",
        "%%mase\nfrom sizes import WIDTH\nwide = Net(WIDTH)\nmore = wide.a(torch.zeros(2, 8))\nlast = wide(x)",
        "print(tuple(half.shape), tuple(last.shape), tuple(more.shape))",
    )
    real = Net()
    counts = {name: sum(each.numel() for each in getattr(real, name).parameters()) for name in ("a", "b")}
    with_x = rows_of(html_of(cells[2]))
    assert with_x[0] == ["layer", "operator", "result", "parameters", "FLOPs"]
    a, relu, b = with_x[1:]
    assert a[:4] == ["a", "linear", "f32[5, 16]", str(counts["a"])]
    assert b[:4] == ["b", "linear", "f32[5, 3]", str(counts["b"])]
    assert relu[:3] == ["relu", "relu", "f32[5, 16]"]
    with FlopCounterMode(display=False) as counter:
        real.a(torch.ones(5, 8))
    assert int(a[4].replace(",", "")) == counter.get_total_flops()
    assert text_of(html_of(cells[2])).startswith(f"Net: 3 operations · {counts['a'] + counts['b']:,} parameters")
    assert html_of(cells[3]) == html_of(cells[2])

    # The batch may have any size: it has a name, as in an editor.
    under = text_of(html_of(cells[4])).splitlines()
    assert under[-2:] == ["out: f32[B, 3] = net(x)", "half: f32[2, 3] = out[:2]"]
    wider = text_of(html_of(cells[5])).splitlines()
    assert "last: f32[B, 3] = wide(x)" in wider
    assert "more: f32[2, 24] = wide.a(torch.zeros(2, 8))" in wider
    # The cell has run in the kernel, too.
    assert cells[6]["outputs"][0]["text"] == "(2, 3) (5, 3) (2, 24)\n"


def test_a_class_under_the_magic_has_its_shapes_and_its_mistakes(executed):
    broken = MODEL.replace("nn.Linear(width, 3)", "nn.Linear(width + 1, 3)").partition("class")[2]
    cells = executed(
        LOAD,
        "import torch\nfrom torch import nn",
        "%%mase\nclass" + MODEL.partition("class")[2] + "\nnet = Net()\nnet(torch.ones(7, 8))",
        "%%mase\nclass" + broken,
    )
    good = text_of(html_of(cells[2]))
    assert "    def forward(self, x: f32[B, 8]):" in good
    assert "        hidden: f32[B, 16] = self.a(x).relu()" in good
    assert "        return self.b(hidden) -> f32[B, 3]" in good
    [lens] = [line for line in good.splitlines() if line.startswith("# Net: ")]
    assert "195 parameters" in lens
    bad = text_of(html_of(cells[3]))
    [problem] = [line for line in bad.splitlines() if ": error: " in line]
    line = next(number for number, text in enumerate(("class" + broken).splitlines(), 1) if "self.b(hidden)" in text)
    assert problem.startswith(f"line {line}: error: ")
    assert "17" in problem


def test_nothing_of_a_persons_becomes_markup(executed):
    cells = executed(
        LOAD,
        "import torch\nfrom torch import nn\nname = '<img src=x>'",
        "odd = type('<b>Odd</b>', (nn.Module,), {'forward': lambda self, x: self.get_submodule('<i>')(x)})()\n"
        "odd.add_module('<i>', nn.Linear(2, 2))\n"
        "%mase odd(torch.ones(1, 2))",
        "%%mase\n'<script>alert(1)</script>'\ny = nn.Linear(2, 2)(torch.ones(1, 2)) # a < b & c",
    )
    table, cell = html_of(cells[2]), html_of(cells[3])
    assert "<b>&lt;b&gt;Odd&lt;/b&gt;</b>" in table
    assert rows_of(table)[1][0] == "<i>"
    assert "<script>" not in cell
    assert "'<script>alert(1)</script>'" in text_of(cell)
    assert "# a < b & c" in text_of(cell)


def test_a_drawing_is_svg(executed):
    cells = executed(LOAD, MODEL, "net = Net()\n%mase --graph net(torch.ones(2, 8))")
    [data] = [output["data"] for output in cells[2]["outputs"]]
    assert data["image/svg+xml"].startswith("<svg")


def test_what_cannot_be_shown_is_told_in_a_line(executed):
    cells = executed(
        LOAD,
        MODEL,
        "%mase",
        "n = 3\n%mase n",
        "net = Net()\n%mase net(y=1)",
        "%mase net(",
        "%%mase net\nn",
        "%%mase\nn = ",
        "%%mase\nn = 4",
        "%unload_ext mase_server.jupyter",
        "%mase net",
        allow_errors=True,
    )

    def said(cell):
        return "".join(output.get("text", "") + output.get("evalue", "") for output in cell["outputs"])

    assert "%mase MODEL, %mase MODEL(inputs), or %%mase above a cell" in said(cells[2])
    assert "n is a int; %mase takes a torch.nn.Module or a MaseGraph" in said(cells[3])
    assert "Net cannot be called so: " in said(cells[4])
    assert "'net(' is no expression" in said(cells[5])
    assert "%%mase takes no words, not 'net'" in said(cells[6])
    assert "SyntaxError" in "".join(output.get("ename", "") for output in cells[7]["outputs"]) + said(cells[7])
    assert text_of(html_of(cells[8])).startswith("n = 4\n")
    assert "%mase` not found" in said(cells[10])


def test_the_example_runs_and_shows_what_it_says(executed):
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    sources = [cell["source"] for cell in notebook.cells if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in notebook.cells)
    cells = executed(*sources)
    by_source = {cell["source"]: cell for cell in cells}
    [model] = [source for source in sources if source.startswith("%%mase")]
    under = text_of(html_of(by_source[model]))
    assert re.search(r"hidden: f32\[(B|4), 32, .*\] = self\.features\(image\)", under)
    assert re.search(r"pooled: f32\[(B|4), 32\] = hidden\.mean", under)
    [layers] = [rows_of(html_of(cell)) for cell in cells if cell["source"].startswith("%mase net")]
    assert [row[2] for row in layers if row[0] == "head"] == ["f32[4, 10]"]
    [quantised] = [rows_of(html_of(cell)) for cell in cells if cell["source"].endswith("\ngraph")]
    assert {row[3] for row in quantised if row[0] == "head"} == {"fixed(8,4)"}
    [number] = [output["data"]["text/plain"] for output in cells[-1]["outputs"]]
    assert 0 < float(number) < 0.25
