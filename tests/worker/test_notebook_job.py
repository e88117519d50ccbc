"""Notebooks from their cells to a payload: against what the same cells bind when plain Python runs them."""

import hashlib
from dataclasses import astuple

import pytest

from mase_server import notebooks
from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.protocol.snapshot import KINDS
from mase_server.worker.job import trace
from tests.ground_truth.record import run_main
from tests.lsp.notebook_editing import Cell, as_json
from tests.worker.jobs import Job, undisturbed

IMPORTS = "import torch\nfrom torch import nn"
NET = """\
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(4, width)

    def forward(self, x):
        hidden = self.fc(x)
        return hidden.relu()"""
USE = "net = Net(8).eval()\nout = net(torch.randn(3, 4))"


class NotebookJob(Job):
    """One trace of a notebook with these cells. script: its text, for plain Python."""

    def __init__(self, folder, *cells):
        self.path = folder / "model.ipynb"
        self.path.write_text(as_json([Cell("", cell) for cell in cells]))
        (folder / "scratch").mkdir()
        saved = notebooks.read_traced_bytes(str(self.path))
        self.script = folder / "script.py"
        self.script.write_bytes(saved)
        sha256 = hashlib.sha256(saved).hexdigest()
        scratch = str(folder / "scratch")
        self.request = TraceRequest(str(self.path), str(folder), sha256, 3, TraceOptions(), scratch=scratch)
        self.events = []
        with undisturbed():
            self.live = trace(self.request, self.events.append)
        assert self.payload["sha256"] == sha256

    def lines_of(self, name):
        """{line's text: its shapes} of the places that bind a name."""
        text, found = self.script.read_text().split("\n"), {}
        for line, _, other, value in self.rows():
            if other == name:
                found.setdefault(text[line - 1].strip(), set()).add(tuple(value[1]))
        return found

    @property
    def models(self):
        return [(model["name"], model["found"].partition(",")[0]) for model in self.payload["models"]]

    @property
    def told(self):
        text = self.script.read_text().split("\n")
        return [(text[one["line"] - 1], one["severity"], one["code"]) for one in self.problems]


def described(value):
    return ("python", value["python"]) if isinstance(value, dict) else (value[0], tuple(value[1]))


def test_every_row_is_what_python_itself_stored_there(tmp_path):
    more = (
        "class Wide(Net):\n    def forward(self, x):\n        y = torch.cat([x, x])\n        return super().forward(y)"
    )
    last = "rows = [out * k for k in range(2)]\nwide = Wide(5).eval()\nboth = wide(out[:, :4])\nboth.shape"
    job = NotebookJob(tmp_path, IMPORTS, NET, USE, more, last)
    truth = {astuple(place): set(seen) for place, seen in run_main(job.script).items()}
    payload, shown = job.payload, {}
    sites = payload["sites"]
    for site, value in zip(payload["rows"]["site"], payload["rows"]["value"], strict=True):
        kind = sites["kind"][site]
        kind = kind if isinstance(kind, str) else KINDS[kind]
        columns = ("line", "column", "end_line", "end_column")
        place = (*(sites[column][site] for column in columns), kind, sites["name"][site], sites["function"][site])
        if kind != "expression" and isinstance(payload["values"][value], list):
            shown.setdefault(place, set()).add(described(payload["values"][value]))
    assert shown == {place: seen for place, seen in truth.items() if place in shown}
    assert {place[5] for place in truth} - {"rows"} == {place[5] for place in shown} - {"rows"}
    assert job.models == [("Net", "the inputs of the file's own run"), ("Wide", "the inputs of the file's own run")]
    assert job.told == []


def test_training_ends_its_own_cell_and_a_model_below_is_shown(tmp_path):
    train = (
        "optimizer = torch.optim.SGD(net.parameters())\n"
        "for epoch in range(10**9):\n"
        "    batch = torch.randn(6, 4)\n"
        "    guess = net(batch)\n"
        "    loss = guess.sum()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    after = loss * 2\n"
    )
    head = "class Head(nn.Module):\n    def forward(self, z):\n        return z.sum(1)"
    below = f"later = net(batch)\n{head}\nsums = Head()(later)"
    job = NotebookJob(tmp_path, IMPORTS, NET, USE, train, below)
    assert job.lines_of("guess") == {"guess = net(batch)": {(6, 8)}}
    assert job.lines_of("later") == {"later = net(batch)": {(6, 8)}}
    assert job.lines_of("sums") == {"sums = Head()(later)": {(6,)}}
    # What is shown of a model is its first call: a second one adds no other sizes to it.
    assert job.lines_of("hidden") == {"hidden = self.fc(x)": {(3, 8)}}
    assert [name for name, _ in job.models] == ["Net", "Head"]
    assert job.told == []


def test_a_cell_that_was_ended_leaves_no_sizes_of_what_it_had_begun_to_collect(tmp_path):
    before = (
        "losses, kept, seen, steps, every = [], [], {}, 0, torch.zeros(0, 8)\n"
        "def note(into, value):\n    into.append(value)\n    marks.append(value)\n"
        "marks, noted, fixed = [], [], [4, 5]\n"
    )
    train = (
        "for epoch in range(3):\n"
        "    guess = net(torch.randn(6, 4))\n"
        "    guess.sum().backward()\n"
        "    losses.append(1.0)\n"
        "    kept.append(guess)\n"
        "    seen[epoch] = fixed.copy()\n"
        "    note(noted, 1.0)\n"
        "    steps += 1\n"
        "    every = torch.cat([every, guess])\n"
    )
    below = (
        "curve = torch.tensor(losses)\nall_kept = torch.cat(kept)\nkeys = torch.zeros(len(seen), 2)\n"
        "count = torch.zeros(steps, 2)\nevery_one = every * 2\nmarked = torch.tensor(marks)\n"
        "of_note = torch.tensor(noted)\nwide = torch.zeros(fixed)\ntwice = guess * 2\n"
    )
    job = NotebookJob(tmp_path, IMPORTS, NET, USE, before, train, below)
    names = ("curve", "all_kept", "keys", "count", "every_one", "marked", "of_note", "wide", "twice")
    truth = {
        place.name: {shape for _, shape in seen} for place, seen in run_main(job.script).items() if place.name in names
    }
    shown = {name: set().union(*job.lines_of(name).values()) for name in names if job.lines_of(name)}
    assert shown == {name: truth[name] for name in shown}
    assert {"wide", "twice"} <= set(shown)
    assert job.told == []


def test_a_name_that_cells_use_again_leaves_the_models_that_it_held(tmp_path):
    """A file that is read is not there: nothing is called, and `net` is another model in the end."""
    read = "text = open('none.txt').read()\nsize = len(text)"
    job = NotebookJob(
        tmp_path, IMPORTS, read, NET, "width = 6\nnet = Net(width)\nnet(size)", "width = 7\nnet = nn.ReLU()"
    )
    assert job.lines_of("hidden") == {"hidden = self.fc(x)": {(2, 6)}}
    assert job.told == [("text = open('none.txt').read()", "warning", "missing-resource")]
    assert job.problems[0]["message"] == (
        "This needs the file 'none.txt', which is not here. The cells below are traced without its results."
    )


def test_what_only_the_kernel_knows_is_no_mistake(tmp_path):
    cells = ("%matplotlib inline\nif 'google.colab' in str(get_ipython()):\n    !pip install torch", "files = !ls")
    job = NotebookJob(
        tmp_path, *cells, IMPORTS, NET, "%%time\nnet = Net(8)\n%time out = net(torch.ones(2, 4))\ndisplay(out)"
    )
    assert job.told == []
    assert job.lines_of("out") == {"%time out = net(torch.ones(2, 4))": {(2, 8)}}


def test_a_cell_may_await(tmp_path):
    job = NotebookJob(
        tmp_path, IMPORTS, NET, "async def sizes():\n    return 5", f"width = await sizes()\n{USE}",
        "async for x in y:\n    pass", "last = out * 1",
    )  # fmt: skip
    assert job.lines_of("out") == {"out = net(torch.randn(3, 4))": {(3, 8)}}
    assert job.lines_of("last") == {"last = out * 1": {(3, 8)}}
    assert [line for line, _, _ in job.told] == ["async for x in y:"]


@pytest.mark.parametrize(
    ("cell", "line", "code"),
    [
        ("bad = net(torch.ones(2, 5))", "hidden = self.fc(x)", "shape-mismatch"),
        ("def f(:\n    pass", "def f(:", "syntax-error"),
    ],
)
def test_a_mistake_is_told_at_its_line_and_the_cells_below_are_traced(tmp_path, cell, line, code):
    other = "class Other(nn.Module):\n    def forward(self, z):\n        return z * 2\nmore = Other()(torch.ones(2))"
    job = NotebookJob(tmp_path, IMPORTS, NET, "net = Net(8)", cell, other)
    assert [(told.strip(), severity, kind) for told, severity, kind in job.told] == [(line, "error", code)]
    assert job.lines_of("more") == {"more = Other()(torch.ones(2))": {(2,)}}
