"""`mase-server compile`: beside what PyTorch itself says in a process without mase-server."""

import json
import subprocess
import sys
import textwrap

import pytest

#: A model for each kind of break, and one without. The line of each break is the one that ends with its number.
SEEDED = """
import logging

import numpy
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)


class Whole(Base):
    def forward(self, x):
        return self.b(self.a(x).relu())


class Item(Base):
    def forward(self, x):
        h = self.a(x)
        scale = h.sum().item()  # break
        return self.b(h) * scale


class Prints(Base):
    def forward(self, x):
        h = self.a(x)
        print("here")  # break
        return self.b(h)


class Branches(Base):
    def forward(self, x):
        h = self.a(x)
        if h.sum() > -1e9:  # break
            h = h + 1
        return self.b(h)


class Asks(Base):
    def forward(self, x):
        h = self.a(x)
        torch._dynamo.graph_break()  # break
        return self.b(h)


class Logs(Base):
    def forward(self, x):
        h = self.a(x)
        logging.getLogger("models").warning("here")  # break
        return self.b(h)


class Chooses(Base):
    def forward(self, x):
        h = self.a(x)
        chosen = h[h > 0]  # break
        return chosen.sum() + self.b(h)


class Inner(nn.Module):
    def forward(self, h):
        return h * float(h.max())  # break


class Nested(Base):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        h = self.inner(self.a(x))
        return self.b([each for each in (h, h)][1])


MODELS = [Whole, Item, Prints, Branches, Asks, Logs, Chooses, Nested]

if __name__ == "__main__":
    for kind in MODELS:
        kind()(torch.ones(2, 4))
"""
#: Prints, by model, the numbers of Dynamo's graphs and operations, and the lines that it logs for breaks.
PLAIN = """
import json, logging, re, sys
import torch, torch._dynamo
from torch._logging._internal import set_logs
import seeded

lines = []
class Keeper(logging.Handler):
    def emit(self, record):
        text = record.getMessage()
        frames = re.findall(r'File "(?:.*/)?seeded.py", line (\\d+)', text)
        head = re.search(r"in user code at .*?seeded.py:(\\d+)", text)
        if frames or head:
            lines.append(int(frames[-1] if frames else head[1]))

set_logs(graph_breaks=True)
logger = logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks")
logger.handlers = [Keeper()]
told = {}
with torch.no_grad():
    for kind in seeded.MODELS:
        lines.clear()
        graphs = []
        torch._dynamo.reset()
        def keep(graph, inputs):
            graphs.append(sum(node.op.startswith("call_") for node in graph.graph.nodes))
            return graph.forward
        torch.compile(kind(), backend=keep)(torch.ones(2, 4))
        told[kind.__name__] = [len(graphs), sum(graphs), sorted(set(lines))]
print(json.dumps(told), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "seeded.py").write_text(SEEDED)
    return folder / "seeded.py"


def compiled(file, *options):
    command = [sys.executable, "-m", "mase_server", "compile", file, "--no-daemon", "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {model["model"]: model for model in json.loads(done.stdout)["models"]}


def test_graphs_and_breaks_are_those_that_pytorch_reports(seeded):
    plain = subprocess.run([sys.executable, "-c", PLAIN], cwd=seeded.parent, capture_output=True, text=True, check=True)
    expected = json.loads(plain.stderr.splitlines()[-1])
    found = compiled(seeded)
    assert {
        name: [one["graphs"], one["operations"], sorted({each["line"] for each in one["breaks"]})]
        for name, one in found.items()
    } == expected
    marked = [number for number, line in enumerate(SEEDED.split("\n"), 1) if line.endswith("# break")]
    lines = {each["line"] for one in found.values() for each in one["breaks"]}
    assert set(marked) - lines <= {marked[-2]}, "an index by a mask is captured by newer versions"
    assert all(each["reason"] and each["file"] == str(seeded) for one in found.values() for each in one["breaks"])


def test_a_graph_stands_below_the_lines_that_call_for_it(seeded):
    for view, operator in (("dynamo", "linear"), ("aten", "addmm")):
        whole = compiled(seeded, "--model", "Whole", "--view", view)["Whole"]
        text = whole["text"].split("\n")
        places = {text[line - 1].strip().split(":")[0]: (file, number) for line, file, number in whole["lines"]}
        source = SEEDED.split("\n")
        assert f"{operator}_1" in places
        for name in (operator, "relu", f"{operator}_1"):
            file, number = places[name]
            assert (file, source[number - 1].strip()) == (str(seeded), "return self.b(self.a(x).relu())")


LOOKS_BACK = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(32, 8)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)))

    def forward(self, ids):
        B, T = ids.shape
        assert T <= 16
        h = self.emb(ids)
        att = (h @ h.transpose(-2, -1)).masked_fill(self.mask[:T, :T] == 0, -1e9)
        return att.softmax(-1) @ h


if __name__ == "__main__":
    tokens = torch.zeros(4, 9, dtype=torch.long)
    Net()(tokens[:, :-1])
"""


def test_the_proposed_sizes_export_and_run_at_others(tmp_path):
    (tmp_path / "net.py").write_text(LOOKS_BACK)
    text = compiled(tmp_path / "net.py", "--view", "export")["Net"]["text"]
    head = [line.removeprefix("# ") for line in text.split("\n") if line.startswith("# ")]
    assert head[0] == "exported with strict=False, named sizes"
    proposed = [line for line in head if " = torch.export.Dim(" in line]
    [shapes] = [line for line in head if line.startswith("dynamic_shapes=")]
    program = f"""
    import torch
    from net import Net
    {"; ".join(proposed)}
    model = Net().eval()
    ids = torch.zeros(4, 8, dtype=torch.long)
    program = torch.export.export(model, (ids,), {shapes}).module()
    for sizes in ((2, 3), (7, 15)):
        ids = torch.randint(32, sizes)
        assert torch.equal(program(ids), model(ids))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, check=True)


def test_what_cannot_be_exported_says_why_and_is_status_one(seeded):
    command = [sys.executable, "-m", "mase_server", "compile", seeded, "--no-daemon", "--model", "Branches"]
    done = subprocess.run([*command, "--view", "export"], capture_output=True, text=True)
    assert (done.returncode, "data-dependent" in done.stdout) == (1, True)


def test_the_code_that_is_compiled_may_not_do_what_a_trace_may_not(tmp_path):
    (tmp_path / "net.py").write_text(
        LOOKS_BACK.replace("B, T = ids.shape", "B, T = ids.shape\n        open('written', 'w').close()")
    )
    command = [sys.executable, "-m", "mase_server", "compile", tmp_path / "net.py", "--no-daemon"]
    subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert not (tmp_path / "written").exists()
