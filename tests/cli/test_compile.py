"""`mase-server compile`: beside what PyTorch itself says in a process without mase-server."""

import asyncio
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from mase_server.cli.session import Wanted, daemon_for
from mase_server.daemon.status import Listener
from mase_server.protocol.request import VIEWS as MODULES
from mase_server.worker.transforms import compiled as compiled_views
from mase_server.worker.transforms import exports
from mase_server.worker.transforms.ask import AskError
from tests.cli.in_process import Warm, call

#: A model for each kind of break, and one without. The line of each break is the one that ends with its number.
SEEDED = """
import copy
import logging
import operator

import numpy
import torch
import torch._dynamo
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


class Settings:
    def __init__(self):
        self.width, self.parts = 4, [1, 2]


class Copies(Base):
    def __init__(self):
        super().__init__()
        self.settings = Settings()

    def forward(self, x):
        settings = copy.deepcopy(self.settings)
        settings.width = len(self.settings.parts)
        return self.b(self.a(x)) * settings.width * operator.countOf([1, 2, 1], 1)


class Declares(Base):
    def forward(self, x):
        h = self.a(x)
        h = torch.sinc(h)  # break
        return self.b(inside(h))


def inside(h):
    return (h * 2 + 1).relu()


torch._dynamo.allow_in_graph(inside)
torch._dynamo.disallow_in_graph(torch.sinc)

MODELS = [Whole, Item, Prints, Branches, Asks, Logs, Chooses, Nested, Copies, Declares]

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


@functools.cache
def warm():
    """The process that all requests share: it has imported what views need, as a daemon has after the first."""
    return Warm({module for view in compiled_views.VIEWS for module in MODULES[view]})


@pytest.fixture(scope="module", autouse=True)
def ended():
    yield
    if warm.cache_info().currsize:
        warm().close()


def mase(command, *options, cwd=None):
    return call(warm(), [command, "--no-daemon", *options], os.environ, cwd)


def compiled(file, *options):
    done = mase("compile", file, "--format", "json", *options)
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


#: Prints the operators of the forward and of the backward graph of the first model in training.
TRAINS = """
import json, sys
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
import seeded

told = []
def keep(graph, inputs):
    told.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
    return graph.forward
backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, partition_fn=min_cut_rematerialization_partition)
torch.compile(seeded.Whole(), backend=backend)(torch.ones(2, 4)).sum().backward()
print(json.dumps(told), file=sys.stderr)
"""


def test_training_shows_the_joint_graph_and_those_that_pytorch_cuts_it_into(seeded):
    plain = subprocess.run(
        [sys.executable, "-c", TRAINS], cwd=seeded.parent, capture_output=True, text=True, check=True
    )
    whole = compiled(seeded, "--model", "Whole", "--view", "joint")["Whole"]
    parts = re.split(r"^# Graph 1, (\w+)$", whole["text"], flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(found) == ["joint", "forward", "backward"]
    operators = [re.findall(r"= torch\.ops\.(aten\.\w+\.\w+)\(", found[part]) for part in ("forward", "backward")]
    assert operators == json.loads(plain.stderr.splitlines()[-1])
    text, source = whole["text"].split("\n"), SEEDED.split("\n")
    start = text.index("# Graph 1, backward")
    lines = {source[number - 1].strip() for line, _, number in whole["lines"] if line > start}
    assert lines == {"return self.b(self.a(x).relu())"}


def test_a_model_below_an_error_is_compiled_as_it_is_written(tmp_path):
    (tmp_path / "net.py").write_text(LOOKS_BACK.replace("class Net", "raise RuntimeError('not here')\n\n\nclass Net"))
    found = compiled(tmp_path / "net.py")["Net"]
    assert (found["graphs"], found["breaks"]) == (1, [])


def test_what_was_captured_before_an_error_is_shown_with_it(tmp_path):
    text = LOOKS_BACK.replace(
        "        att =", "        print('here')\n        assert not self.training, 'only here'\n        att ="
    )
    (tmp_path / "net.py").write_text(text)
    found = compiled(tmp_path / "net.py", "--view", "joint")["Net"]
    assert "torch.ops.aten.embedding" in found["text"]
    assert found["text"].endswith("# Running them fails: AssertionError: only here")


def test_onnx_says_what_to_install(monkeypatch):
    monkeypatch.setattr(exports, "find_spec", lambda name: None)
    with pytest.raises(AskError, match=r"ONNX needs onnx and onnxscript in .*: pip install onnx onnxscript"):
        compiled_views.VIEWS["onnx"](None)


def test_onnx_is_text_below_the_lines_that_call_for_it(seeded):
    command = [sys.executable, "-m", "mase_server", "compile", seeded, "--no-daemon", "--model", "Whole"]
    done = subprocess.run([*command, "--view", "onnx", "--format", "json"], capture_output=True, text=True, check=True)
    [whole] = json.loads(done.stdout)["models"]
    text = whole["text"].split("\n")
    [gemm, *_] = [number for number, line in enumerate(text, 1) if "::Gemm" in line]
    places = {(file, SEEDED.split("\n")[number - 1].strip()) for line, file, number in whole["lines"] if line == gemm}
    assert places == {(str(seeded), "return self.b(self.a(x).relu())")}


DRAWS = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        h = self.a(x)
        if h.sum() > -1e9:
            h = F.dropout(h, 0.5, True)
        return F.dropout(h, 0.5, True)


if __name__ == "__main__":
    Net()(torch.ones(2, 4))
"""


def test_where_computing_both_sides_changes_what_is_drawn_one_side_is_run(tmp_path):
    (tmp_path / "net.py").write_text(DRAWS)
    [found] = compiled(tmp_path / "net.py")["Net"]["breaks"]
    assert found["fix"]["title"] == "Choose with `torch.cond`"
    mended = edited(DRAWS, found["fix"]["edits"])
    (tmp_path / "mended.py").write_text(mended)
    assert compiled(tmp_path / "mended.py")["Net"]["breaks"] == []


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


#: A picture has to have an even height and width.
HALVES = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.up = nn.Upsample(scale_factor=2)

    def forward(self, x):
        return torch.cat([x, self.up(self.pool(x))], 1)


if __name__ == "__main__":
    Net()(torch.randn(2, 3, 16, 24))
"""


def test_a_size_that_has_to_be_a_multiple_is_proposed_as_one(tmp_path):
    (tmp_path / "net.py").write_text(HALVES)
    text = compiled(tmp_path / "net.py", "--view", "export")["Net"]["text"]
    head = [line.removeprefix("# ") for line in text.split("\n") if line.startswith("# ")]
    assert head[0] == "exported with strict=False, named sizes"
    proposed = [line for line in head if " = torch.export.Dim(" in line]
    [shapes] = [line for line in head if line.startswith("dynamic_shapes=")]
    scope = {"torch": torch}
    exec("\n".join([HALVES, *proposed, f"given = dict({shapes})"]), scope)
    x = torch.randn(2, 3, 16, 24)
    program = torch.export.export(scope["Net"]().eval(), (x,), **scope["given"]).module()
    for sizes in ((5, 3, 6, 8), (1, 3, 32, 4)):
        x = torch.randn(sizes)
        assert torch.equal(program(x), scope["Net"]()(x))
    with pytest.raises(AssertionError):
        program(torch.randn(5, 3, 7, 8))
    assert 'x: "f32[B, 3, 2*_H, 2*_W]"' in text
    assert not re.search(r"\bs\d+\b", text)


#: It writes into its inputs, which are a list.
WRITES = """
import torch
from torch import nn


class Loss(nn.Module):
    def forward(self, outputs):
        total = outputs[0]
        for each in outputs:
            total += each.sum()
        return total.mean()


if __name__ == "__main__":
    Loss()([torch.ones(2, 3), torch.ones(2, 3)])
"""


def test_a_model_that_writes_into_its_inputs_is_compared_with_the_same_inputs(tmp_path):
    (tmp_path / "net.py").write_text(WRITES)
    text = compiled(tmp_path / "net.py", "--view", "export")["Loss"]["text"]
    head = [line.removeprefix("# ") for line in text.split("\n") if line.startswith("# ")]
    assert head[0] == "exported with strict=False, named sizes"
    assert "dynamic_shapes={'outputs': [{0: B}, {0: B}]}" in head
    assert [line.partition(" at ")[0] for line in head if "equal" in line] == ["equal to the model"] * 3


#: torch.export allows multiples of eight alone; Python leaves out what remains.
FRAMES = """
from torch import nn


# mase: sound: f32[B=2, L=64]
class Frames(nn.Module):
    def forward(self, sound):
        return sound.unfold(1, 8, 8).permute(0, 2, 1)
"""


def test_sizes_that_an_exported_program_refuses_are_told(tmp_path):
    (tmp_path / "net.py").write_text(FRAMES)
    text = compiled(tmp_path / "net.py", "--view", "export")["Frames"]["text"]
    [first] = re.findall("dynamic_shapes=.*", text)
    assert first == "dynamic_shapes={'sound': {0: B, 1: 8*_L}}"
    refused = re.findall(r"# refuses B=\d+, L=(\d+): Guard failed: (.*)", text)
    assert len(refused) == 2
    assert all(int(size) % 8 for size, _ in refused), refused
    assert "not exported" not in text


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
    program = torch.export.export(model, (ids,), {shapes})
    print(program.range_constraints)
    program = program.module()
    for sizes in ((2, 3), (7, 15)):
        ids = torch.randint(32, sizes)
        assert torch.equal(program(ids), model(ids))
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    told = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    [largest] = re.findall(r"VR\[\d+, (\d+)\]", told)
    assert len([line for line in head if line.endswith(f" and at most {largest}")]) == 1
    assert len([line for line in head if re.fullmatch(r"[BT] is at least \d+", line)]) == told.count("int_oo")


@pytest.mark.parametrize("view", ["export", "onnx"])
def test_an_exported_program_has_the_names_of_the_files_sizes(tmp_path, view):
    (tmp_path / "net.py").write_text(LOOKS_BACK)
    text = compiled(tmp_path / "net.py", "--view", view)["Net"]["text"]
    shape = {"export": "f32[B, T, 8]", "onnx": "<FLOAT,[B,T,8]>"}[view]
    assert shape in text
    assert not re.search(r"\bs\d+\b", text)


def test_what_cannot_be_exported_says_why_and_is_status_one(seeded):
    command = [sys.executable, "-m", "mase_server", "compile", seeded, "--no-daemon", "--model", "Branches"]
    done = subprocess.run([*command, "--view", "export"], capture_output=True, text=True)
    assert (done.returncode, "data-dependent" in done.stdout) == (1, True)


def test_what_cannot_be_exported_is_told_at_its_line(seeded):
    done = mase("compile", seeded, "--model", "Branches", "--view", "export", "--format", "json")
    [told] = json.loads(done.stdout)["models"]
    source = SEEDED.split("\n")
    line = next(number for number, text in enumerate(source, 1) if "if h.sum() > -1e9" in text)
    assert told["place"] == [str(seeded), line]
    refused = [number for number, text in enumerate(told["text"].split("\n"), 1) if text.startswith("# not exported")]
    assert [each for each in told["lines"] if each[0] in refused] == [[n, str(seeded), line] for n in refused]
    assert f"(seeded.py:{line})" in told["problem"]
    done = mase("check", seeded, "--no-cache", "--format", "json", "--fail-on", "export")
    found = [each for each in json.loads(done.stdout)["problems"] if each["code"] == "not-exported"]
    assert (done.returncode, line in [each["line"] for each in found]) == (1, True)


def test_what_differs_from_the_model_in_some_bits_is_told(tmp_path):
    rounds = LOOKS_BACK.replace("return att", "h = h * (1 + 1e-6 * torch.compiler.is_exporting())\n        return att")
    for name, text in {"exact": LOOKS_BACK, "rounds": rounds}.items():
        (tmp_path / f"{name}.py").write_text(text)
    told = {name: compiled(tmp_path / f"{name}.py", "--view", "export")["Net"]["text"] for name in ("exact", "rounds")}
    assert {name: text.count("# equal to the model at ") for name, text in told.items()} == {"exact": 3, "rounds": 0}
    assert len(re.findall(r"# equal to the model but for rounding, by \S+e-0\d at ", told["rounds"])) == 3


def test_the_code_that_is_compiled_may_not_do_what_a_trace_may_not(tmp_path):
    (tmp_path / "net.py").write_text(
        LOOKS_BACK.replace("B, T = ids.shape", "B, T = ids.shape\n        open('written', 'w').close()")
    )
    command = [sys.executable, "-m", "mase_server", "compile", tmp_path / "net.py", "--no-daemon"]
    subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert not (tmp_path / "written").exists()


#: Models of many kinds of operators for Inductor, all with the same input; the last one has a break.
KINDS = """
import torch
import torch.nn.functional as F
from torch import nn


class Pointwise(nn.Module):
    def forward(self, x):
        return x.sigmoid() * 2 + 1


class Reduces(nn.Module):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


class Whole(nn.Module):
    def forward(self, x):
        return x.sum() / x.abs().max()


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x):
        h = F.gelu(self.up(x))
        return self.down(h) + x


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return F.relu(self.norm(x))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v)


class ByHand(nn.Module):
    def forward(self, x):
        score = x @ x.transpose(-2, -1) / 4
        return score.masked_fill(torch.ones(8, 8).tril() == 0, float("-inf")).softmax(-1) @ x


class Convolves(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return F.max_pool1d(self.norm(self.conv(x)).relu(), 2)


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 8)

    def forward(self, x):
        return self.table(x[:, :, 0].long()).sum(1)


class Recurs(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(16, 16)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 16)
        for step in x.unbind(1)[:3]:
            h = self.cell(step, h)
        return h


class Drops(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, self.training) + torch.rand_like(x)


class Sorts(nn.Module):
    def forward(self, x):
        values, places = x.topk(3)
        return values.cumsum(-1) + places


class Gathers(nn.Module):
    def forward(self, x):
        return torch.cat([x, x.flip(-1)], -1).roll(1, 0)[..., ::2].contiguous()


class Scatters(nn.Module):
    def forward(self, x):
        return torch.zeros(4, 16).index_add(0, torch.tensor([0, 3]), x[:, 0])


class Halves(nn.Module):
    def forward(self, x):
        return (x.bfloat16() * 3).float().exp()


class Loses(nn.Module):
    def forward(self, x):
        return F.cross_entropy(x[:, 0], x[:, 1, 0].long())


KINDS = [Pointwise, Reduces, Whole, Linear, Norm, Attends, ByHand, Convolves, Embeds, Recurs, Drops, Sorts, Gathers,
         Scatters, Halves, Loses]

if __name__ == "__main__":
    for kind in KINDS:
        kind()(torch.ones(2, 8, 16))
"""
#: Runs a file; each outermost call of a model is compiled in a process of its own that has compiled nothing before.
#: With "no", none of the kernels is built: that takes minutes, and the code has been logged by then.
LOGS_CODE = """
import os, runpy, sys
import torch, torch._dynamo
from torch import nn
from torch._inductor.codecache import PyCodeCache
from torch._inductor.cpu_vec_isa import pick_vec_isa

file, builds = sys.argv[1:]
pick_vec_isa()
if builds == "no":
    def refuse(*args, **kwargs):
        os._exit(0)
    PyCodeCache.load_by_key_path = refuse
plain = nn.Module.__call__
def call(self, *args, **kwargs):
    nn.Module.__call__ = plain
    pid = os.fork()
    if pid == 0:
        print("started", os.getpid(), type(self).__name__, flush=True)
        with torch.no_grad():
            torch.compile(self.eval())(*args, **kwargs)
        os._exit(0)
    os.waitpid(pid, 0)
    try:
        return self(*args, **kwargs)
    finally:
        nn.Module.__call__ = call
nn.Module.__call__ = call
sys.path.insert(0, os.path.dirname(file))
runpy.run_path(file, run_name="__main__")
"""


def logged_code(file, cache, builds="no", program=LOGS_CODE):
    """What TORCH_LOGS=output_code prints, by model."""
    done = subprocess.run(
        [sys.executable, "-c", program, file, builds],
        capture_output=True, text=True, check=True,
        # As many threads as the model has where it is compiled for a person.
        env={key: each for key, each in os.environ.items() if key != "OMP_NUM_THREADS"}
        | {"TORCH_LOGS": "output_code", "TORCHINDUCTOR_CACHE_DIR": str(cache)},
    )  # fmt: skip
    names = dict(re.findall(r"^started (\d+) (\w+)$", done.stdout, re.MULTILINE))
    found = {name: [] for name in names.values()}
    lines = None
    for pid, text in re.findall(r"^\w+ \S+ (\d+) \S+ (?:\[\S+\] )*\[__output_code\] (.*)$", done.stderr, re.MULTILINE):
        if text == "Output code: ":
            found[names[pid]].append(lines := [])
        elif not text.startswith("Output code written to"):
            lines.append(text)
    return {name: ["\n".join(lines) for lines in texts] for name, texts in found.items()}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inductor")
    (folder / "kinds.py").write_text(KINDS)
    return folder / "kinds.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Where PyTorch keeps what it builds, such as the programs with which it tries the compiler."""
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="module")
def inductor(kinds):
    return compiled(kinds, "--view", "inductor")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_inductors_code_is_what_pytorch_logs(kinds, inductor, built):
    expected = logged_code(kinds, built)
    assert {name: [one["text"]] for name, one in inductor.items()} == expected
    assert len(expected) == 16


@pytest.mark.slow
@pytest.mark.parametrize("example", ["mlp", "gpt", "transformer_encoder", "vae"])
def test_inductors_code_of_an_example_is_what_pytorch_logs(example, built):
    file = Path(__file__).parents[2] / "examples" / f"{example}.py"
    assert [[one["text"]] for one in compiled(file, "--view", "inductor").values()] == list(
        logged_code(file, built).values()
    )


@pytest.mark.slow
def test_inductors_code_of_a_model_with_a_break_is_that_of_both_graphs(tmp_path, built):
    file = tmp_path / "one.py"
    program = re.sub(r"(?<=MODELS = ).*", "[Asks]", SEEDED)
    file.write_text(
        program.replace("h = self.a(x)\n        torch._dynamo", "h = self.a(x).relu()\n        torch._dynamo")
    )
    [expected] = logged_code(file, built, "yes").values()
    assert len(expected) == 2
    found = compiled(file, "--view", "inductor")["Asks"]
    assert found["text"] == "\n".join(expected)


@pytest.mark.slow
def test_every_kernel_belongs_to_lines_of_the_source(kinds, inductor):
    source = KINDS.split("\n")
    for title, one in inductor.items():
        start = source.index(f"class {title}(nn.Module):")
        end = next(place for place in range(start, len(source)) if not source[place] and not source[place + 1])
        assert one["kernels"], title
        for kernel in one["kernels"]:
            assert kernel["lines"], (title, kernel)
            places = {(file, start < number <= end) for file, number in kernel["lines"]}
            assert places == {(str(kinds), True)}, (title, kernel)
            text = one["text"].split("\n")
            calls = [number for number, line in enumerate(text, 1) if f" {kernel['name']}(" in f" {line}"]
            assert len(calls) == kernel["calls"], (title, kernel)
            shown = {(number, line) for number, file, line in one["lines"]}
            assert {(calls[0], line) for _, line in kernel["lines"]} & shown, (title, kernel)


@pytest.mark.slow
def test_kernels_tell_the_bytes_that_they_read_and_write(inductor):
    told = {
        title: [(one["reads_bytes"], one["writes_bytes"]) for one in inductor[title]["kernels"]]
        for title in ("Pointwise", "Norm", "Linear", "Whole")
    }
    x, parameters, wide = 2 * 8 * 16 * 4, 16 * 4, 2 * 8 * 32 * 4
    weights = 16 * 32 * 4
    assert told["Pointwise"] == [(x, x)]
    assert told["Whole"] == [(x, 4)]
    assert told["Norm"] == [(x + 2 * parameters, x)]
    products = (x + wide + weights * 2 + (32 + 16) * 4, wide + x)
    assert told["Linear"] == [products, (wide, wide), (2 * x, x)]


#: Inductor gives the product of the heads other strides; a buffer is read and then written.
STRIDES = """
import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (each.permute(0, 2, 1, 3) for each in self.qkv(x).reshape(B, T, 4, 12).chunk(3, -1))
        return (torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1) @ v).reshape(B, T, C)


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(16))

    def forward(self, x):
        y = x + self.seen
        self.seen.mul_(0.5)
        return y


if __name__ == "__main__":
    Heads()(torch.ones(2, 8, 16))
    Remembers()(torch.ones(2, 8, 16))
"""


def test_inductors_code_is_told_where_strides_change_and_buffers_are_written(tmp_path):
    (tmp_path / "net.py").write_text(STRIDES)
    found = compiled(tmp_path / "net.py", "--view", "inductor")
    for one in found.values():
        assert "# Running it fails" not in one["text"]
        assert len(one["recompiles"]) == 1  # for other sizes, at which it ran as well
        assert all(kernel["lines"] for kernel in one["kernels"])
    [kernel] = found["Remembers"]["kernels"]
    x, seen = 2 * 8 * 16 * 4, 16 * 4
    assert (kernel["reads_bytes"], kernel["writes_bytes"]) == (x + seen, x + seen)


#: Inductor writes Triton for the processor; without a GPU no driver of Triton can tell its name.
TRITON = """
import torch._inductor.config
import torch.utils._triton

torch._inductor.config.cpu_backend = "triton"
torch.utils._triton.triton_hash_with_backend = lambda: "none"
"""


@pytest.mark.slow
def test_tritons_code_is_what_pytorch_logs_and_its_kernels_belong_to_lines(tmp_path, built):
    file = tmp_path / "kinds.py"
    file.write_text(TRITON + KINDS)
    found = compiled(file, "--view", "inductor")
    folder = re.compile(r"(?m)^(# kernel path: ).*/torchinductor_\w+/|^(# kernel path: )" + re.escape(f"{built}/"))
    told = {name: folder.sub("# kernel path: ", one["text"]) for name, one in found.items()}
    assert told == {name: folder.sub("# kernel path: ", text) for name, [text] in logged_code(file, built).items()}
    source = file.read_text().split("\n")
    assert len(found) == 16
    for title in found:
        text, kernels = found[title]["text"].split("\n"), found[title]["kernels"]
        assert title == "Attends" or any(kernel["name"].startswith("triton_") for kernel in kernels), title
        for kernel in kernels:
            assert kernel["lines"], (title, kernel)
            start = source.index(f"class {title}(nn.Module):")
            assert all(start < line < start + 13 for _, line in kernel["lines"]), (title, kernel)
            own = {number for number, _, line in found[title]["lines"] if [str(file), line] in kernel["lines"]}
            name = re.escape(kernel["name"])
            calls = [number for number, line in enumerate(text, 1) if re.search(rf"\b{name}(\.run)?\(", line)]
            used = [number for number in calls if not text[number - 1].startswith("def ")]
            assert len(used) == kernel["calls"], (title, kernel)
            assert {*used} <= own, (title, kernel)
            if kernel["name"].startswith("triton_"):
                stored = text.index(f"def {kernel['name']}(" + text[calls[0] - 1].partition("(")[2]) + 1
                assert stored in own, (title, kernel)
    x = 2 * 8 * 16 * 4
    [pointwise], [norm] = found["Pointwise"]["kernels"], found["Norm"]["kernels"]
    assert (pointwise["reads_bytes"], pointwise["writes_bytes"]) == (x, x)
    assert (norm["reads_bytes"], norm["writes_bytes"]) == (x + 2 * 16 * 4, x)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use, with Triton")
def test_on_a_gpu_the_code_is_what_pytorch_logs_for_it(kinds, built):
    moved = LOGS_CODE.replace(
        "torch.compile(self.eval())(*args, **kwargs)", "torch.compile(self.eval().cuda())(*given)"
    )
    moved = moved.replace(
        "        with torch.no_grad", "        given = [each.cuda() for each in args]\n        with torch.no_grad"
    )
    found = compiled(kinds, "--view", "inductor")
    expected = logged_code(kinds, built, program=moved)
    folder = re.compile(r"(?m)^# kernel path: .*/(\w\w/\w+.py)$")
    told = {name: folder.sub(r"\1", one["text"]) for name, one in found.items()}
    assert told == {name: folder.sub(r"\1", text) for name, [text] in expected.items()}
    assert all(kernel["lines"] for one in found.values() for kernel in one["kernels"])


#: Has Inductor find a GPU where there is none, as far as it asks while it writes code.
PRETENDS = """
import sys
from types import SimpleNamespace

import torch
import torch._inductor.scheduler
import torch.utils._triton
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.fx_passes import misc_patterns
from torch._inductor.runtime.hints import DeviceProperties

facts = dict(multi_processor_count=132, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048)
more = {name: 1024 for name in ("max_threads_per_block",) if name in DeviceProperties._fields}
properties = DeviceProperties(type="cuda", index=0, cc=90, warp_size=32, **facts, **more)
DeviceProperties.create = classmethod(lambda cls, device: properties)
torch._inductor.scheduler.has_triton = lambda: True
torch.utils._triton.triton_hash_with_backend = lambda *args: "none"
misc_patterns._misc_patterns_init = lambda *args, **kwargs: None
for name, value in {"getDevice": 0, "exchangeDevice": 0, "maybeExchangeDevice": 0, "setDevice": None}.items():
    setattr(torch._C, f"_cuda_{name}", lambda *args, value=value: value)
torch.cuda._lazy_init = lambda: None
for name, value in {"is_triton_capable": True, "raise_if_triton_unavailable": None, "current_device": 0,
                    "get_compute_capability": 90}.items():
    setattr(CudaInterface, name, staticmethod(lambda *args, value=value: value))

def pretend():
    torch.version.cuda = "12.6"
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda *args: (9, 0)
    torch.cuda.get_device_properties = torch.cuda._get_device_properties = lambda *args: SimpleNamespace(
        minor=0, total_memory=1 << 30, name="pretended", warp_size=32, **facts)
    return torch.device("cuda", 0)

sys.modules["mase_server.worker.transforms.inductor"]._find_gpu = pretend
"""
ON_DEVICE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        h = self.norm(self.up(x))
        return h.softmax(-1) + torch.arange(8, device=x.device)


if __name__ == "__main__":
    Net()(torch.ones(2, 8))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="pretends a GPU where there is none")
def test_inductors_code_is_for_the_gpu_where_there_is_one_and_for_the_cpu_on_request(tmp_path):
    (tmp_path / "gpu.py").write_text(PRETENDS + ON_DEVICE)
    (tmp_path / "cpu.py").write_text(ON_DEVICE)
    [found] = compiled(tmp_path / "gpu.py", "--view", "inductor").values()
    assert "device_str='cuda'" in found["text"]
    assert "empty_strided_cpu(" not in found["text"]
    assert [kernel["name"].partition("_")[0] for kernel in found["kernels"]] == ["extern", "triton"]
    source = (tmp_path / "gpu.py").read_text().split("\n")
    lines = {source[line - 1].strip() for kernel in found["kernels"] for _, line in kernel["lines"]}
    assert lines == {
        "h = self.norm(self.up(x))", "return h.softmax(-1) + torch.arange(8, device=x.device)"
    }  # fmt: skip
    [plain] = compiled(tmp_path / "cpu.py", "--view", "inductor").values()
    [asked] = compiled(tmp_path / "gpu.py", "--view", "inductor", "--cpu").values()
    assert asked["text"] == plain["text"]


def test_where_none_can_be_made_for_the_gpu_the_code_for_the_cpu_says_so(tmp_path):
    head = 'import sys\nimport torch\nviews = sys.modules["mase_server.worker.transforms.inductor"]\n'
    lacks = head + 'views._find_gpu = lambda: torch.device("xpu")\n'
    (tmp_path / "gpu.py").write_text(lacks + ON_DEVICE)
    (tmp_path / "cpu.py").write_text(ON_DEVICE)
    [found] = compiled(tmp_path / "gpu.py", "--view", "inductor").values()
    [plain] = compiled(tmp_path / "cpu.py", "--view", "inductor").values()
    note, _, rest = found["text"].partition("\n")
    assert note.startswith("# This is the code for the CPU: for xpu none could be made: ")
    assert rest == plain["text"]
    assert [line + 1 for line, *_ in plain["lines"]] == [line for line, *_ in found["lines"]]


#: Models whose graphs are of a library's own frame, compute nothing, or have an operator that ONNX does not know.
ODD = """
import torch
from torch import nn


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.up.register_forward_hook(lambda module, inputs, output: print("here"))

    def forward(self, x):
        return self.up(x).relu()


class Slices(nn.Module):
    def forward(self, x):
        count = int((x > 0).sum() % 3) + 1
        return x[:, :count]


class Disables(nn.Module):
    @torch.compiler.disable
    def inner(self, x):
        return x.sin()

    def forward(self, x):
        return self.inner(x.cos()) + 1


@torch.library.custom_op("odd::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Custom(nn.Module):
    def forward(self, x):
        return twice(x) + 1


if __name__ == "__main__":
    for kind in (Hooked, Slices, Disables, Custom):
        kind()(torch.ones(2, 4))
"""


def test_graphs_of_library_code_and_without_kernels_are_linked(tmp_path):
    (tmp_path / "net.py").write_text(ODD)
    found = compiled(tmp_path / "net.py", "--view", "inductor")
    assert found["Slices"]["text"].count("# AOT ID: ") == 2
    assert len(found["Slices"]["kernels"]) == 1
    call = next(number for number, line in enumerate(ODD.split("\n"), 1) if "self.up(x).relu()" in line)
    assert [kernel["lines"] for kernel in found["Hooked"]["kernels"]] == [[[str(tmp_path / "net.py"), call]]] * 2
    joint = compiled(tmp_path / "net.py", "--view", "joint", "--model", "Hooked")["Hooked"]
    assert "torch.ops.aten.addmm" in joint["text"]


def test_reasons_are_the_same_in_each_run_and_without_colours(tmp_path):
    (tmp_path / "net.py").write_text(ODD)
    [found] = compiled(tmp_path / "net.py", "--model", "Disables")["Disables"]["breaks"]
    assert "Disables.inner" in found["explanation"]
    assert " 0x" not in found["explanation"]
    if importlib.util.find_spec("onnxscript") is None:
        return
    command = [sys.executable, "-m", "mase_server", "compile", tmp_path / "net.py", "--no-daemon", "--model", "Custom"]
    told = subprocess.run([*command, "--view", "onnx"], capture_output=True, text=True).stdout
    assert "# not converted to ONNX: " in told
    assert "odd.twice" in told
    assert "\x1b" not in told


#: Bodies of a forward with a break each, at the line with "#"; and whether a fix removes it.
BREAKS = [
    ("print('here')  #", True),
    ("print(f'mean {h.mean()}')  #", True),
    ("print(  #\n    'here',\n    h.shape,\n)", True),
    ("log.warning('here %s', h.shape)  #", True),
    ("log.info('here')  #", True),
    ("warnings.warn('here')  #", True),
    ("if self.loud:\n    print('here')  #", True),
    ("for part in h:\n    print(part.shape)  #", True),
    ("try:\n    print('here')  #\nfinally:\n    h = h + 1", True),
    ("with torch.no_grad():\n    print('here')  #\n    h = h * 2", True),
    ("torch._dynamo.graph_break()  #", True),
    ("assert not torch.isnan(h).any()  #", True),
    ("if torch.isnan(h).any():  #\n    raise ValueError('not a number')", True),
    ("if h.max() > 1e9:  #\n    log.warning('large')", True),
    ("h = h * h.sum().item()  #", True),
    ("scale = h.abs().max().item()  #\nh = h / scale", True),
    ("h = h * float(h.max())  #", True),
    ("h = h + bool(h.max() > 0)  #", True),
    ("h = h[int(h.argmax() * 0)]  #", False),
    ("h = h + torch.tensor(h.sum().item())  #", True),
    ("h = h * math.sqrt(h.sum().abs())  #", True),
    ("out = []\nfor part in h:\n    out.append(part.sum().item())  #\nh = h + torch.tensor(out)[:, None]", True),
    ("if h.sum() > 0:  #\n    h = h + 1", True),
    ("if h.sum() > 0:  #\n    h = h + 1\nelse:\n    h = h - 1", True),
    ("if h.sum().item() > 0:  #\n    h = h * 2", True),
    ("if h.sum() > 0:  #\n    h *= 2", True),
    ("if h.sum() > 0 and h.max() < 5:  #\n    h = h + 1", True),
    ("if not (h > 0).all():  #\n    h = h.relu()", True),
    ("if h.sum() > 0:  #\n    return self.b(h)\nreturn self.b(h) * 2", True),
    ("if torch.any(h > 100):  #\n    h = h.clamp(max=100)", True),
    ("h = h + 1 if h.sum() > 0 else h - 1  #", True),
    ("h = h + 1 if torch.equal(h, h * 2) else h  #", True),
    ("h = h + 1 if torch.allclose(h, h * 2) else h  #", True),
    ("h = copy.deepcopy(h)  #", True),
    ("h = h + Variable(torch.from_numpy(np.array([1, 0, 0, 1]).astype(np.float32)), requires_grad=False)  #", True),
    ("while h.sum() < -10:  #\n    h = h + 1", False),
    ("for _ in range(int(h.abs().sum() * 0)):  #\n    h = h + 1", False),
    ("h = h * sum(h[0].tolist())  #", False),
    ("h = h * len(h.unique())  #", False),
    ("h = h + torch.nonzero(h).sum()  #", False),
    ("h = h + time.perf_counter() * 0  #", False),
    ("h = h + random.random() * 0  #", False),
    ("h = h + len(repr(h)) * 0  #", False),
    ("h = h + np.random.rand() * 0  #", False),
    ("os.getcwd()  #", False),
]
_HEAD = """
import copy, logging, math, os, random, time, warnings
import numpy as np
import torch
from torch import nn
from torch.autograd import Variable

log = logging.getLogger("models")


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.loud = nn.Linear(4, 4), nn.Linear(4, 4), True
"""


def write_breaks(folder):
    """A file with a model for each break."""
    parts = [_HEAD]
    for number, (body, _) in enumerate(BREAKS):
        forward = textwrap.indent(f"h = self.a(x)\n{body}\nreturn self.b(h)\n", " " * 8)
        parts.append(f"\n\nclass Break{number}(Base):\n    def forward(self, x):\n{forward}")
    names = ", ".join(f"Break{number}" for number in range(len(BREAKS)))
    parts.append(f"\n\nMODELS = [{names}]\n\nif __name__ == '__main__':\n    for kind in MODELS:\n")
    parts.append("        kind()(torch.ones(2, 4))\n")
    folder.mkdir(exist_ok=True)
    (folder / "seeded.py").write_text("".join(parts))
    return folder / "seeded.py"


def logged_breaks(folder):
    done = subprocess.run([sys.executable, "-c", PLAIN], cwd=folder, capture_output=True, text=True, check=True)
    return {name: lines for name, (_, _, lines) in json.loads(done.stderr.splitlines()[-1]).items()}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_break_has_advice_and_a_fix_after_which_pytorch_logs_none_at_its_line(tmp_path):
    file = write_breaks(tmp_path / "before")
    source = file.read_text().split("\n")
    found = compiled(file)
    logged = logged_breaks(file.parent)
    assert {name: sorted({each["line"] for each in one["breaks"]}) for name, one in found.items()} == logged
    marked = [number for number, line in enumerate(source, 1) if "  #" in line]
    missing, unfixed, edits, fixed = [], [], [], []
    for number, ((body, mends), line) in enumerate(zip(BREAKS, marked, strict=True)):
        name, one = f"Break{number}", found[f"Break{number}"]
        at_line = [each for each in one["breaks"] if each["line"] == line]
        if not at_line or not at_line[0]["advice"]:
            missing.append((body, one["breaks"]))
        elif (at_line[0]["fix"] is not None) != mends:
            unfixed.append((body, one["breaks"]))
        elif mends:
            fixed.append((name, line))
            edits += at_line[0]["fix"]["edits"]
    assert not missing, missing
    assert not unfixed, unfixed
    after = tmp_path / "after"
    after.mkdir()
    (after / "seeded.py").write_text(edited(file.read_text(), edits))
    again = logged_breaks(after)
    assert {name: again[name] for name, _ in fixed} == {name: [] for name, _ in fixed}


def edited(text, edits):
    """The text after edits, the last one first."""
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda each: (each["line"], each["column"]), reverse=True):
        first, last = lines[edit["line"] - 1], lines[edit["end_line"] - 1]
        whole = first[: edit["column"]] + edit["new_text"] + last[edit["end_column"] :]
        lines[edit["line"] - 1 : edit["end_line"]] = whole.split("\n")
    return "\n".join(lines)


def test_a_check_tells_breaks_as_notes_and_fails_on_them_where_it_is_asked_to(tmp_path):
    (tmp_path / "net.py").write_text(
        LOOKS_BACK.replace("h = self.emb(ids)", "h = self.emb(ids)\n        print('here')")
    )
    line = next(
        number for number, text in enumerate((tmp_path / "net.py").read_text().split("\n"), 1) if "print" in text
    )

    def check(*options):
        return mase("check", "net.py", "--no-cache", *options, cwd=tmp_path)

    done = check("--compile", "--format", "sarif")
    found = [each for each in json.loads(done.stdout)["runs"][0]["results"] if each["ruleId"] == "graph-break"]
    [note] = found
    place = note["locations"][0]["physicalLocation"]
    assert (done.returncode, note["level"], place["region"]["startLine"]) == (0, "note", line)
    assert "torch.compiler.is_compiling" in json.dumps(note["fixes"])
    done = check("--fail-on", "breaks", "--fail-on", "export")
    assert (done.returncode, "graph-break" in done.stdout, "not-exported" in done.stdout) == (1, True, False)
    assert re.search(r"^1 model file checked: 1 graph break(, \d recompilations?)?$", done.stdout, re.MULTILINE)
    assert "graph-break" not in check().stdout


def test_a_view_is_compared_with_another_a_revision_inputs_and_passes(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(LOOKS_BACK)
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b.c commit -qm a"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    file.write_text(LOOKS_BACK.replace("h = self.emb(ids)", "h = self.emb(ids).sin()"))

    def difference(compare, *options):
        """The lines that are only before, and those that are only after."""
        done = mase("compile", file, "--compare", compare, *options)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.split("\n")
        return ["\n".join(line for line in lines[2:] if line[:1] == sign) for sign in "-+"], lines[:2]

    (before, after), names = difference("HEAD", "--view", "aten")
    assert names == ["--- HEAD", "+++ aten"]
    assert "aten.sin" not in before
    assert "aten.sin" in after
    (before, after), names = difference("aten")
    assert names == ["--- dynamo", "+++ aten"]
    assert ".sin()" in before
    assert "aten.sin" in after
    (before, after), names = difference("fx", "--view", "inductor")
    assert names == ["--- fx", "+++ inductor"]
    assert "class Net(nn.Module)" in before
    assert "cpp_fused" in after
    (before, after), _ = difference("ids: i64[7, 3]", "--view", "dynamo")
    assert "i64[7, 3]" in after
    assert "i64[7, 3]" not in before
    (before, after), _ = difference("quantize default=fixed(8,4)")
    assert "fixed(8,4)" in after
    assert "functional.py" not in after, "a rounding belongs to the line of its value"
    done = mase("compile", file, "--compare", "quantise_it")
    assert done.returncode == 2
    told = " ".join(done.stderr.replace("│", " ").split())
    assert "'quantise_it' is no view, inputs or revision that git knows" in told


def test_who_asks_for_the_same_at_once_shares_one_answer_even_if_one_gives_up(seeded):
    async def ask():
        path = str(seeded)
        async with daemon_for(Wanted((), python=sys.executable), Listener()) as daemon:
            daemon.opened(path)
            await daemon.wait(path)
            tasks = [asyncio.create_task(daemon.compile(path, "Whole", "dynamo", False)) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    gone, one, other = asyncio.run(ask())
    assert isinstance(gone, asyncio.CancelledError)
    assert one is other
    assert one["graphs"] == 1


#: Is compiled again for a size, and for a value.
AGAIN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.runs = 0

    def forward(self, x):
        y = torch.ones(3)
        y = y + x.sum()  # size
        self.runs += 1  # value
        return x + 1, y * self.runs


if __name__ == "__main__":
    Net()(torch.ones(2, 4))
"""


def test_a_recompilation_names_the_size_or_value_and_the_line_that_asked_for_it(tmp_path):
    (tmp_path / "net.py").write_text(AGAIN)
    source = AGAIN.split("\n")
    lines = {
        word: next(n for n, line in enumerate(source, 1) if line.endswith(f"# {word}")) for word in ("size", "value")
    }
    size, value = compiled(tmp_path / "net.py")["Net"]["recompiles"]
    found = re.fullmatch(r"x\.shape\[0\] \(.*\): 2, then (\d+)", size["size"])
    assert found is not None, size
    assert (size["line"], source[size["line"] - 1][size["column"] :]) == (lines["size"], "x.sum()  # size")
    assert (value["line"], value["size"]) == (lines["value"], "self.runs == 1")
    program = f"""
    import torch
    from net import Net
    model = torch.compile(Net().eval(), backend="eager")
    for rows in (2, {found[1]}, {value["reason"].rpartition(" ")[2]}):
        model(torch.ones(rows, 4))
    """
    environment = {**os.environ, "TORCH_LOGS": "recompiles"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    logged = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stderr
    for each in (size, value):
        for reason in each["reason"].split("; "):
            assert reason.partition(" (HINT")[0] in logged, (reason, logged)
    assert logged.count("Recompiling function") == 2


USES_EINOPS = """
import torch
from einops import rearrange, reduce
from torch import nn


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        h = rearrange(self.layer(x), "b t (h d) -> b h t d", h=2)
        return reduce(h * 2, "b h t d -> b d", "mean")


if __name__ == "__main__":
    Heads()(torch.randn(2, 3, 8))
"""


@pytest.mark.skipif(importlib.util.find_spec("einops") is not None, reason="einops is installed")
def test_what_stands_for_einops_breaks_no_graph(tmp_path):
    (tmp_path / "net.py").write_text(USES_EINOPS)
    one = compiled(tmp_path / "net.py")["Heads"]
    assert (one["graphs"], one["breaks"], one["operations"]) == (1, [], 4)
    assert {each["file"] for each in one["recompiles"]} <= {str(tmp_path / "net.py")}


MADE_BY_LIBRARIES = """
import torch
from torch import nn
from transformers import BertConfig, BertModel

small = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=100)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
bert = BertModel(BertConfig(**small))

if __name__ == "__main__":
    net(torch.randn(2, 3, 16, 16))
    bert(torch.randint(0, 100, (3, 9)))
"""


def test_a_recompilation_of_a_librarys_model_is_told_where_the_file_makes_it(tmp_path):
    (tmp_path / "net.py").write_text(MADE_BY_LIBRARIES)
    lines = [
        MADE_BY_LIBRARIES[: MADE_BY_LIBRARIES.index(f"\n{name} = ") + 1].count("\n") + 1 for name in ("net", "bert")
    ]
    found = compiled(tmp_path / "net.py")
    told = [
        (name, each["file"], each["line"], each["function"], each["size"])
        for name, one in found.items()
        for each in one["recompiles"]
    ]
    assert told == [
        ("net", str(tmp_path / "net.py"), lines[0], "forward", "input.shape[0] (B): 2, then 5"),
        ("BertModel", str(tmp_path / "net.py"), lines[1], "forward", "input_ids.shape[0] (B): 3, then 5"),
    ]


def test_a_model_that_branches_on_values_is_run_at_other_sizes_too(seeded):
    one = compiled(seeded, "--model", "Branches")["Branches"]
    assert [set(each) for each in one["sizes"]] == [{"B"}, {"B"}]
    line = next(number for number, text in enumerate(SEEDED.split("\n"), 1) if "if h.sum() > -1e9" in text)
    assert [(each["function"], each["size"].partition(",")[0]) for each in one["recompiles"]] == [
        ("forward", "x.shape[0] (B): 2"), (f"forward from line {line} on", "h.shape[0]: 2"),
    ]  # fmt: skip


ENLARGES = """
import torch
from torch import nn


class Enlarge(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 64, 1)

    def forward(self, x):
        return nn.functional.interpolate(self.layer(x), scale_factor=32)


if __name__ == "__main__":
    Enlarge()(torch.randn(2, 3, 8, 8))
"""


def test_sizes_at_which_a_model_needs_much_memory_are_not_run(tmp_path):
    (tmp_path / "net.py").write_text(ENLARGES)
    one = compiled(tmp_path / "net.py")["Enlarge"]
    assert [(each["B"] != 2, each["H"], each["W"]) for each in one["sizes"]] == [(True, 8, 8)] * 2
    assert [each["size"].partition(",")[0] for each in one["recompiles"]] == ["x.shape[0] (B): 2"]


def test_a_model_that_fails_takes_no_other_with_it(tmp_path):
    fails = AGAIN.replace("class Net", "class Fails").replace("return x + 1", "return x.view(-1) + torch.ones(3)")
    body, _, main = AGAIN.partition("\n\nif __name__")
    (tmp_path / "net.py").write_text(
        f"{fails.partition(chr(10) * 2 + 'if __name__')[0]}{body}\n\nif __name__{main}    Fails()(torch.ones(2, 4))\n"
    )
    command = [sys.executable, "-m", "mase_server", "compile", tmp_path / "net.py", "--no-daemon"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Net: 1 graph" in done.stdout
    assert re.search(r"^Fails: not compiled: .*fails", done.stdout, re.MULTILINE)
