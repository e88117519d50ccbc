"""A child that rehearsed while it waited: its trace is that of a plain fork, for whatever file comes."""

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from mase_server.daemon.launcher import ForkLauncher
from mase_server.daemon.process import DEFAULT_JOB
from mase_server.daemon.supervisor import Events, Limits, TraceWorker
from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.worker import job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")

EXAMPLES = Path(__file__).parents[2] / "examples"

#: What a program can see of its process, and what a trace before it could have changed.
LOOKS = """\
import linecache, signal, sys, threading, warnings
import torch
from torch import nn

seen = {
    "drawn": torch.rand(2).tolist(),
    "grad": torch.is_grad_enabled(),
    "dtype": str(torch.get_default_dtype()),
    "device": str(torch.get_default_device()),
    "finders": [type(each).__name__ for each in sys.meta_path],
    "threads": threading.active_count(),
    "dynamo": "torch._dynamo" in sys.modules,
    "own": [name for name in sys.modules if "rehearsal" in name],
    "lines": [name for name in linecache.cache if "rehearsal" in name],
    "filters": len(warnings.filters),
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
    "arguments": sys.argv[1:],
}


class Net(nn.Module):
    def forward(self, x):
        raise ValueError(repr(seen))


Net()(torch.zeros(4, 16))
"""


#: The first inputs that are tried have three dimensions.
SEARCHED = """\
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 16)

    def forward(self, feed, hidden):
        if feed.dim() == 2:
            return self.cell(feed, hidden)
        raise ValueError(f"two dimensions, not {feed.dim()}")

    def init_hidden(self, count):
        hidden = torch.zeros(count, 16)
        return hidden
"""


ADDRESSED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        return y


net = Net()
"""


TIED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden_size, features):
        super().__init__()
        self.first = nn.Linear(12, hidden_size)
        self.second = nn.Linear(features, 3)
        shown = torch.zeros(features)
        self.register_buffer("scale", shown)

    def forward(self, x):
        y = self.first(x)
        z = self.second(y)
        return z
"""


#: Code without a file: Python and linecache look for one, to tell where an error is.
MADE_UP = """\
import ast, linecache
import torch
from torch import nn

for text in "x = (", "def f(", "  y":
    try:
        ast.parse(text)
    except SyntaxError:
        pass
linecache.getline("<made>.7 from net.py", 1)
net = nn.Sequential(nn.Linear(4, 4))
net(torch.zeros(2, 4))
"""


#: The forward tells the size that the likeliest constructor arguments lack.
REPAIRED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(12, features)
        self.second = nn.Linear(hidden, 3)
        self.width = hidden

    def forward(self, x):
        if self.width != 20:
            raise ValueError(f"hidden must be 20, not {self.width}")
        return self.second(x.new_zeros(2, self.width)), self.first(x)
"""


def make_request(path, unsaved, fit):
    text = path.read_bytes() if unsaved is None else unsaved.encode()
    return TraceRequest(
        str(path), str(path.parent), hashlib.sha256(text).hexdigest(), 1, TraceOptions(),
        scratch=str(path.parent / "scratch"), texts={} if unsaved is None else {str(path): text}, fit=fit,
    )  # fmt: skip


async def follow(launcher, path, prepared, unsaved=None, fit=None):
    """The payload of a file's trace in the launcher's prepared child, or in a plain fork. unsaved: its text instead."""
    child = await prepare(launcher) if prepared else await launcher._fork()
    return await trace_in(child, make_request(path, unsaved, fit))


async def go_on(launcher, path, before, unsaved, fit):
    """The payload of an unsaved text's trace in a child that ran ahead with the text before; None if it refuses."""
    launcher.foresee(make_request(path, before, fit))
    while launcher._preparing is not None and not launcher._preparing.done():
        await launcher._preparing
    child = await launcher.launch((), str(path), unsaved.encode())
    if child.ahead is None:
        await child.stop()
        return None
    return await trace_in(child, make_request(path, unsaved, fit))


async def trace_in(child, request):
    """The payload of a trace in a child, without what differs from run to run; None if the child refuses."""
    payloads = []
    worker = TraceWorker(child, request, Limits(120), Events(payloads.append, lambda *stage: None))
    outcome = await worker.trace()
    await worker.stop()
    if outcome.state == "refused":
        return None
    assert outcome.state in ("ready", "failed"), outcome
    told = (
        payloads[-1]
        if payloads
        else {"models": [], "problems": [each.message for each in outcome.problems], "fit": b"", "unshown": []}
    )
    # A trace lists the modules that it imported itself, so a rehearsed one lists none that the rehearsal imported.
    return {key: value for key, value in told.items() if key not in ("seconds", "preload")} | {
        "models": [{key: value for key, value in each.items() if key != "seconds"} for each in told["models"]]
    }


async def prepare(launcher):
    """The launcher's prepared child: a plain one is launched first if there is none yet."""
    while (child := launcher._prepared) is None:
        await (await launcher.launch()).stop()
        await launcher._preparing
    assert await launcher.launch() is child
    return child


@pytest.fixture
async def launcher(tmp_path):
    launcher = await ForkLauncher.start(sys.executable, str(tmp_path), DEFAULT_JOB)
    yield launcher
    await launcher.close()


async def test_it_traces_as_a_plain_fork_does(launcher, tmp_path):
    for example in sorted(EXAMPLES.glob("*.py")):
        path = tmp_path / example.name
        path.write_bytes(example.read_bytes())
        plain = await follow(launcher, path, prepared=False)
        rehearsed = await follow(launcher, path, prepared=True)
        assert plain["models"]
        for key in plain:
            assert rehearsed[key] == plain[key], (example.name, key)


async def test_the_file_finds_its_process_untouched(launcher, tmp_path):
    path = tmp_path / "looks.py"
    path.write_text(LOOKS)
    plain, rehearsed = [(await follow(launcher, path, prepared))["problems"] for prepared in (False, True)]
    assert "drawn" in json.dumps(plain), "the forward says what it saw"
    assert "'dynamo': False" in json.dumps(rehearsed), "no operation of a trace waits for its import"
    assert rehearsed == plain


async def test_nothing_of_a_search_is_shown_so_that_the_next_trace_shows_the_same(launcher, tmp_path):
    """The search asks `init_hidden` for the state of 97 sequences, and tries inputs that take other branches."""
    path = tmp_path / "decoder.py"
    path.write_text(SEARCHED)
    opened = await follow(launcher, path, prepared=False)
    assert [each["name"] for each in opened["models"]] == ["Decoder"]
    assert not any(97 in (value[1] if isinstance(value, list) else ()) for value in opened["values"])
    assert sorted(each["line"] for each in opened["unrun"]) == [13, 16]
    typed = await follow(launcher, path, prepared=True, fit=opened["fit"])
    assert typed == opened


#: Mistakes whose texts name objects by their addresses: of the file, and of a constructor.
ADDRESSES = (
    "raise ValueError(lambda: 1)",
    "class Other(nn.Module):\n    def __init__(self):\n        raise ValueError(object())\n\n"
    "    def forward(self, x):\n        return x",
)


@pytest.mark.parametrize("mistake", ADDRESSES)
async def test_the_same_mistake_has_the_same_text_in_each_trace(launcher, tmp_path, mistake):
    path = tmp_path / "net.py"
    path.write_text(f"{ADDRESSED}{mistake}\n")
    one, other = [(await follow(launcher, path, prepared=False)) for _ in range(2)]
    assert one["problems"] or one["unshown"]
    assert "0x" not in json.dumps([one["problems"], one["unshown"]])
    assert one == other


async def test_guessed_sizes_that_an_edit_ties_or_frees_are_those_of_a_file_that_is_opened(launcher, tmp_path):
    """They are equal where a text needs it, and differ elsewhere."""
    path = tmp_path / "net.py"
    texts = TIED, TIED.replace("self.second(y)", "self.second(x.new_zeros(2, self.second.in_features))")
    opened = []
    for text in texts:
        path.write_text(text)
        opened.append(await follow(launcher, path, prepared=False))
    tied, free = [each["models"][0]["arguments"] for each in opened]
    assert tied["hidden_size"] == tied["features"]
    assert free["hidden_size"] != free["features"]
    assert await follow(launcher, path, prepared=True, fit=opened[0]["fit"]) == opened[1]
    path.write_text(TIED)
    assert await follow(launcher, path, prepared=True, fit=opened[1]["fit"]) == opened[0]


async def test_code_without_a_file_is_no_dependency(launcher, tmp_path):
    path = tmp_path / "net.py"
    path.write_text(MADE_UP)
    told = await follow(launcher, path, prepared=False)
    assert told["models"]
    assert [each for each in told["dependencies"] if "<" in each[1]] == []


async def test_constructor_arguments_that_a_forward_asked_for_are_forgotten_with_it(launcher, tmp_path):
    path = tmp_path / "net.py"
    texts = REPAIRED, REPAIRED.replace("!= 20", "== 20"), REPAIRED.replace("20", "28")
    opened = []
    for text in texts:
        path.write_text(text)
        opened.append(await follow(launcher, path, prepared=False))
    assert [each["models"][0]["arguments"]["hidden"] for each in opened] == [20, 128, 28]
    path.write_text(REPAIRED)
    for text, expected in zip(texts, opened, strict=True):
        assert await follow(launcher, path, prepared=True, unsaved=text, fit=opened[0]["fit"]) == expected


#: A class that is made in two ways: with the arguments of the first, no inputs are found.
TWICE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first = nn.Linear(12, hidden)

    def forward(self, x):
        if self.first.out_features == 7:
            raise RuntimeError(open("missing.txt").read())
        return self.first(x)


def one():
    return Net(7)


def other():
    return Net(9)
"""


async def test_a_model_that_is_made_as_elsewhere_is_shown_so_again(launcher, tmp_path):
    path = tmp_path / "net.py"
    path.write_text(TWICE)
    opened = await follow(launcher, path, prepared=False)
    assert [each["builder"] for each in opened["models"]] == ["other()"]
    assert await follow(launcher, path, prepared=True, fit=opened["fit"]) == opened


async def test_it_is_prepared_once_nothing_is_launched_and_ends_with_its_launcher(tmp_path):
    launcher = await ForkLauncher.start(sys.executable, str(tmp_path), DEFAULT_JOB)
    assert launcher._prepared is None
    first = await launcher.launch()
    await launcher._preparing
    pid = launcher._prepared.pid
    assert not launcher.idle
    await first.stop()
    await first.exited
    while first in launcher._children.values():
        await asyncio.sleep(0.01)
    assert launcher.idle, "a child that only waits holds no launcher that is retired"
    waiting = launcher._prepared
    await launcher.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        await waiting.channel.send({})


async def test_a_launcher_that_another_one_replaced_keeps_no_child_waiting(launcher):
    first = await launcher.launch()
    await launcher._preparing
    waiting = launcher._prepared
    launcher.retire()
    await waiting.exited
    assert launcher._prepared is None
    assert (await launcher.launch()).alive
    await launcher._preparing
    assert launcher._prepared is None
    assert first.alive


async def test_a_rehearsal_that_fails_leaves_plain_forks(tmp_path):
    stand_in = tmp_path / "job.py"
    stand_in.write_text("def trace(request, emit): pass\ndef rehearse(): raise ValueError('no')\n")
    launcher = await ForkLauncher.start(sys.executable, str(tmp_path), f"{stand_in}:trace")
    try:
        for _ in range(2):
            child = await launcher.launch()
            await launcher._preparing
            assert launcher._prepared is None
            assert child.alive
            await child.stop()
    finally:
        await launcher.close()


def test_the_rehearsal_is_traced_whole():
    found = []
    request = TraceRequest(
        str(job._REHEARSAL), str(job._REHEARSAL.parent), hashlib.sha256(job._REHEARSAL.read_bytes()).hexdigest(), 0,
    )  # fmt: skip
    job.trace(request, found.append)
    called, searched = found[-1]["payload"]["models"]
    assert (called["name"], called["symbols"]) == ("Rehearsal", {"B": 2, "H": 8, "W": 8, "T": 6})
    assert (searched["name"], searched["inputs"]["image"][1]) == ("Searched", [2, 1, 28, 28])


#: The number of columns is found by the error of an index that is out of range.
INDEXED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 8)

    def forward(self, marks):
        hour = self.embed(marks[:, :, 3])
        return hour + self.embed(marks[:, :, 1])
"""


async def test_sizes_that_errors_asked_for_are_forgotten_with_the_errors(launcher, tmp_path):
    path = tmp_path / "net.py"
    texts = INDEXED, INDEXED.replace("3]", "2]"), INDEXED.replace("1]", "4]")
    opened = []
    for text in texts:
        path.write_text(text)
        opened.append(await follow(launcher, path, prepared=False))
    assert [each["models"][0]["inputs"]["marks"][1][-1] for each in opened] == [4, 3, 5]
    path.write_text(INDEXED)
    for text, expected in zip(texts, opened, strict=True):
        assert await follow(launcher, path, prepared=True, unsaved=text, fit=opened[0]["fit"]) == expected
