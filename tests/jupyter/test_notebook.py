"""`%mase` and `%%mase` in a real kernel: the numbers are eager's, and nothing of a person's becomes markup."""

import os
import re
import select
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.jupyter.conftest import html_of
from tests.lsp.good_net import GOOD

MODEL = GOOD.partition("\n\nif")[0]
BROKEN = MODEL.replace("nn.Linear(width, 3)", "nn.Linear(width + 1, 3)").partition("class")[2]
#: Who serves the kernel: (process, address) of each daemon that is registered where the kernel's own registers itself.
OWN = """\
import pathlib, tempfile
from mase_server.rpc.registry import registrations
[[own]] = [registrations(each) for each in pathlib.Path(tempfile.gettempdir()).glob("mase-kernel-*")]
print(own.pid, own.workspace)"""
#: All cells, by what they show, in the order in which one kernel runs them.
CELLS = {
    "load": "%load_ext mase_server.jupyter",
    "model": MODEL,
    "with x": "x = torch.randn(5, 8)\nnet = Net()\n%mase net(x)",
    "a graph": "from mase_server import MaseGraph\nMaseGraph(net, {'x': x})",
    "shapes": "%%mase\nout = net(x)\nhalf = out[:2]",
    "imported": "%%mase\nfrom sizes import WIDTH\nwide = Net(WIDTH)\nmore = wide.a(torch.zeros(2, 8))\nlast = wide(x)",
    "ran": "print(tuple(half.shape), tuple(last.shape), tuple(more.shape))",
    "own": OWN,
    "a class": "%%mase\nclass" + MODEL.partition("class")[2] + "\nnet = Net()\nnet(torch.ones(7, 8))",
    "broken": "%%mase\nclass" + BROKEN,
    "prints": "class Prints(nn.Module):\n    def forward(self, x):\n"
    "        y = x + 1\n        print(1)\n        return y * 2",
    "compiled": "talks = Prints()\n%mase compiled talks(torch.ones(2, 3))",
    "aten": "%mase compiled:aten talks(torch.ones(2, 3))",
    "no view": "%mase compiled:no talks(torch.ones(2, 3))",
    "compiled elsewhere": "from rest import Rest\n%mase compiled Rest()(torch.ones(2, 3))",
    "odd": "odd = type('<b>Odd</b>', (nn.Module,), {'forward': lambda self, x: self.get_submodule('<i>')(x)})()\n"
    "odd.add_module('<i>', nn.Linear(2, 2))\n%mase odd(torch.ones(1, 2))",
    "script": "%%mase\n'<script>alert(1)</script>'\ny = nn.Linear(2, 2)(torch.ones(1, 2)) # a < b & c",
    "drawing": "%mase --graph net(torch.ones(2, 8))",
    "nested": "block = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))\n"
    "%mase --graph nn.Sequential(nn.Linear(8, 4), block)(torch.ones(1, 8))",
    "help": "%mase --help",
    "no words": "%mase",
    "a number": "n = 3\n%mase n",
    "another argument": "%mase net(y=1)",
    "no expression": "%mase net(",
    "words": "%%mase net\nn",
    "no Python": "%%mase\nn = ",
    "no model": "%%mase\nn = 4",
    "unload": "%unload_ext mase_server.jupyter",
    "unloaded": "%mase net",
}


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


@pytest.fixture(scope="module")
def shown(executed):
    """What each of `CELLS` shows, by its name."""
    (executed.folder / "sizes.py").write_text("WIDTH = 24\n")
    (executed.folder / "rest.py").write_text("from torch import nn\nclass Rest(nn.ReLU): ...\n")
    return dict(zip(CELLS, executed(*CELLS.values()), strict=True))


def said(cell):
    """The text that a cell printed, and its error."""
    return "".join(output.get("text", "") + output.get("evalue", "") for output in cell["outputs"])


def test_a_models_layers_have_eagers_numbers(shown):
    real = Net()
    counts = {name: sum(each.numel() for each in getattr(real, name).parameters()) for name in ("a", "b")}
    with_x = rows_of(html_of(shown["with x"]))
    assert with_x[0] == ["layer", "operator", "result", "parameters", "FLOPs"]
    a, relu, b = with_x[1:]
    assert a[:4] == ["a", "linear", "f32[5, 16]", str(counts["a"])]
    assert b[:4] == ["b", "linear", "f32[5, 3]", str(counts["b"])]
    assert relu[:3] == ["relu", "relu", "f32[5, 16]"]
    with FlopCounterMode(display=False) as counter:
        real.a(torch.ones(5, 8))
    assert int(a[4].replace(",", "")) == counter.get_total_flops()
    told = f"Net: 3 operations · {counts['a'] + counts['b']:,} parameters"
    assert text_of(html_of(shown["with x"])).startswith(told)
    assert html_of(shown["a graph"]) == html_of(shown["with x"])


def test_shapes_stand_under_a_cell_that_has_run(shown):
    # The batch may have any size: it has a name, as in an editor.
    under = text_of(html_of(shown["shapes"])).splitlines()
    assert under[-2:] == ["out: f32[B, 3] = net(x)", "half: f32[2, 3] = out[:2]"]
    wider = text_of(html_of(shown["imported"])).splitlines()
    assert "last: f32[B, 3] = wide(x)" in wider
    assert "more: f32[2, 24] = wide.a(torch.zeros(2, 8))" in wider
    assert shown["ran"]["outputs"][0]["text"] == "(2, 3) (5, 3) (2, 24)\n"


def test_a_class_under_the_magic_has_its_shapes_and_its_mistakes(shown):
    good = text_of(html_of(shown["a class"]))
    assert "    def forward(self, x: f32[B, 8]):" in good
    assert "        h: f32[B, 16] = self.a(x).relu()" in good
    assert "        return self.b(h) -> f32[B, 3]" in good
    [lens] = [line for line in good.splitlines() if line.startswith("# Net: ")]
    assert "195 parameters" in lens
    bad = text_of(html_of(shown["broken"]))
    [problem] = [line for line in bad.splitlines() if ": error: " in line]
    line = next(number for number, text in enumerate(("class" + BROKEN).splitlines(), 1) if "self.b(h)" in text)
    assert problem.startswith(f"line {line}: error: ")
    assert "17" in problem


def test_nothing_of_a_persons_becomes_markup(shown):
    table, cell = html_of(shown["odd"]), html_of(shown["script"])
    assert "<b>&lt;b&gt;Odd&lt;/b&gt;</b>" in table
    assert rows_of(table)[1][0] == "<i>"
    assert "<script>" not in cell
    assert "'<script>alert(1)</script>'" in text_of(cell)
    assert "# a < b & c" in text_of(cell)


def plain_of(cell):
    """The text that a terminal would show in place of what a cell shows."""
    shown = [output["data"] for output in cell["outputs"] if "data" in output]
    [data] = [data for data in shown if len(data) > 1 or len(shown) == 1]
    return data["text/plain"]


def test_a_drawing_is_svg_and_in_a_terminal_a_tree(shown):
    [data] = [output["data"] for output in shown["drawing"]["outputs"]]
    assert data["image/svg+xml"].startswith("<svg")
    summary, *tree = plain_of(shown["drawing"]).splitlines()
    assert summary.startswith("Net: 3 operations · 195 parameters · ")
    assert tree == ["  a (linear): f32[2, 16]", "  relu: f32[2, 16]", "  b (linear): f32[2, 3]"]
    _, *tree = plain_of(shown["nested"]).splitlines()
    assert tree == [
        "  0 (linear): f32[1, 4]", "  1 (Sequential)", "    0 (relu): f32[1, 4]", "    1 (linear): f32[1, 2]",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["with x", "a graph", "odd"])
def test_a_terminal_shows_the_cells_of_the_table_as_text(shown, name):
    summary, *lines = plain_of(shown[name]).splitlines()
    name_of = ElementTree.fromstring(html_of(shown[name])).find("b")
    assert summary == f"{name_of.text}{name_of.tail}"
    rows = rows_of(html_of(shown[name]))
    assert [re.split(r" {2,}", line) for line in lines] == [[cell for cell in row if cell] for row in rows]
    assert len({len(line) for line in lines if line.rstrip()[-1].isdigit()}) == 1, "numbers end in one column"


@pytest.mark.parametrize("name", ["shapes", "a class", "broken", "script", "no model"])
def test_a_terminal_shows_the_shapes_of_a_cell_as_text(shown, name):
    assert plain_of(shown[name]) == text_of(html_of(shown[name]))


def test_the_magic_tells_its_forms(shown):
    told = plain_of(shown["help"])
    assert told.startswith("Show the layers of a model, or the shapes in a cell.")
    for form in ("%mase net ", "%mase net(x) ", "%mase --graph net(x) ", "%%mase "):
        assert form in told


def test_a_call_is_compiled_with_its_breaks_and_as_a_view(shown):
    told = [output["data"]["text/plain"] for output in shown["compiled"]["outputs"]]
    assert told[0] == "Prints: 2 graphs, 1 break"
    assert "print" in told[1]
    *_, text = [output["data"]["text/plain"] for output in shown["aten"]["outputs"]]
    assert re.findall(r"torch\.ops\.aten\.(\w+)\.Tensor", text) == ["add", "mul"]
    [told] = [output["data"]["text/plain"] for output in shown["compiled elsewhere"]["outputs"]]
    assert told == "Rest: 1 graph, 0 breaks"


def test_ipython_in_a_terminal_shows_tables_and_trees(tmp_path):
    script = tmp_path / "session.ipy"
    script.write_text("\n".join(["%load_ext mase_server.jupyter", MODEL, "net = Net()", ""]))
    homes = {"IPYTHONDIR": str(tmp_path / "ipython"), "HOME": str(tmp_path), "TERM": "dumb"}
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "--no-banner", "-i", str(script)]
    asked = "%mase net(torch.ones(2, 8))\n%mase --graph net(torch.ones(2, 8))\n%mase --help\nexit\n"
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, **homes}
    )
    assert "Net: 3 operations · 195 parameters" in done.stdout, done.stderr
    assert re.search(r"^a +linear +f32\[2, 16\] +144 +512$", done.stdout, re.MULTILINE)
    assert "\n  a (linear): f32[2, 16]\n  relu: f32[2, 16]\n" in done.stdout
    assert "%mase net(x)            with inputs of your own" in done.stdout
    assert "<" not in done.stdout.replace("<module", "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no words", "%mase MODEL, %mase MODEL(inputs), %mase compiled MODEL(inputs), or %%mase above a cell"),
        ("a number", "n is a int; %mase takes a torch.nn.Module or a MaseGraph"),
        ("another argument", "Net cannot be called so: "),
        ("no expression", "'net(' is no expression"),
        ("no view", "there is no view 'no'"),
        ("words", "%%mase takes no words, not 'net'"),
        ("no Python", "SyntaxError"),
        ("unloaded", "%mase` not found"),
    ],
)
def test_what_cannot_be_shown_is_told_in_a_line(shown, name, text):
    assert text in said(shown[name]) + "".join(output.get("ename", "") for output in shown[name]["outputs"])


def test_a_cell_without_a_model_is_shown_with_the_reason(shown):
    first, *rest = text_of(html_of(shown["no model"])).splitlines()
    assert (first, bool(rest)) == ("n = 4", True)


def test_a_folder_that_nobody_serves_is_served_until_the_kernel_ends(shown, executed):
    pid, workspace = said(shown["own"]).split()
    assert workspace == str(executed.folder)
    try:
        process = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return
    with open(process, closefd=True):
        assert select.select([process], [], [], 30)[0]
    assert not list(executed.folder.glob(".mase-cell*"))
