"""A child that ran ahead with the text before: it goes on with the next one as a fresh trace of it does, or refuses."""

import sys
from pathlib import Path

import pytest

from mase_server.daemon.launcher import Ahead

from .test_rehearsal import follow, go_on, launcher, make_request, trace_in  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Runs its model, and a helper that stands below it.
CALLED = '''\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        """Mix the features."""
        y = self.fc(x)
        return x + y


class Net(nn.Module):
    scale = 2

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.head = nn.Linear(8, count_classes())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        if x.dim() == 3:
            x = x.mean(1)
        return pool(self.head(x))

    @property
    def width(self):
        return self.head.in_features


def count_classes():
    return 5


def pool(x):
    return x.mean(0)


if __name__ == "__main__":
    net = Net()
    out = net(torch.randn(4, 6, 8))
    doubled = out * 2
    print(doubled.shape)
'''

#: Calls no model: its inputs are searched.
SEARCHED = CALLED.partition("if __name__")[0]

#: Edits inside functions that have not run before the model is called: a text, and the one in its place.
SHARED = [
    ("return x + y", "return x - y.relu()"),
    ("return x + y", "return x + y[..., :1]"),
    ("y = self.fc(x)", "y = self.fc(self.fc(x)); z = y * 2"),
    ("y = self.fc(x)", "y = self.fc(x.mT)"),
    ("y = self.fc(x)", "y = [self.fc(part) for part in x.unbind(1)][0].unsqueeze(1)"),
    ("            x = x.mean(1)", "            x = x[:, -1]"),
    ("        if x.dim() == 3:", "        if x.dim() == 4:"),
    ("return pool(self.head(x))", "return self.head(x)"),
    ("return pool(self.head(x))", "return pool(self.head(missing))"),
    ("return pool(self.head(x))", "return (lambda z: pool(z))(self.head(x))"),
    ("return pool(self.head(x))", "pool(self.head(x))"),
    ("    return x.mean(0)", "    return x.amax(0, keepdim=True)"),
    ("    return x.mean(0)", "    raise ValueError('no')"),
    ("return self.head.in_features", "return self.head.out_features"),
    ("    return x.mean(0)\n\n", "    x = x.mean(0)\n    return x\n"),
    ("", ""),
]
#: Edits of what has run by then, or of what more than a function reads.
OWN = [
    ("self.fc = nn.Linear(width, width)", "self.fc = nn.Linear(width, 2 * width)"),
    ("    return 5", "    return 6"),
    ("scale = 2", "scale = 3"),
    ("torch.randn(4, 6, 8)", "torch.randn(4, 7, 8)"),
    ("doubled = out * 2", "doubled = out * 3"),
    ('"""Mix the features."""', '"""Mix all features."""'),
    ("return x + y", "return x +\\\n            y"),
    ("def pool(x):", "def pool(x, dim=0):"),
    ("return x + y", "return x + y  # mase: ignore"),
    ("    @property", "    @torch.jit.ignore"),
    ("            x = x.mean(1)", "            nn = x.mean(1)"),
    ("    return x.mean(0)\n\n", "    return x.mean(0)\nVALUE = 1\n"),
]
#: Edits that only the child can tell from those that it shares.
REFUSED = [
    ("return x + y", "yield x + y"),
    ("            x = x.mean(1)", "            torch = x.mean(1)"),
    ("return self.head.in_features", "return super().width"),
    ("            x = x.mean(1)", "            class Inner: x = 3"),
    ("    return x.mean(0)\n\n", "    return x.mean(0)\nVALUE = 1\n"),
]


@pytest.mark.parametrize("text", [CALLED, SEARCHED], ids=["called", "searched"])
async def test_it_goes_on_as_a_fresh_trace(launcher, tmp_path, text):  # noqa: F811
    path = tmp_path / "net.py"
    path.write_text(text)
    fit = (await follow(launcher, path, prepared=True, unsaved=text))["fit"]
    for before, after in SHARED if text is CALLED else SHARED[::4]:
        edited = text.replace(before, after)
        fresh = await follow(launcher, path, prepared=True, unsaved=edited, fit=fit)
        ahead = await go_on(launcher, path, text, edited, fit)
        assert ahead == fresh, (before, after)
    back = await go_on(launcher, path, text.replace(*SHARED[2]), text, fit)
    assert back == await follow(launcher, path, prepared=True, unsaved=text, fit=fit)


async def test_it_goes_on_below_a_statement_that_fails(launcher, tmp_path):  # noqa: F811
    path, other = tmp_path / "net.py", "out = net(torch.randn(4, 6, 8))\n    lost = net.missing\n    more = out.sum(-1)"
    text = CALLED.replace("out = net(torch.randn(4, 6, 8))", other)
    path.write_text(text)
    edited = text.replace("return x + y", "y = y.relu().relu(); return x + y")
    fresh = await follow(launcher, path, prepared=True, unsaved=edited)
    assert await go_on(launcher, path, text, edited, None) == fresh


async def test_it_is_not_taken_for_what_has_run(launcher, tmp_path):  # noqa: F811
    path = tmp_path / "net.py"
    path.write_text(CALLED)
    for before, after in OWN:
        assert before in CALLED
        assert await go_on(launcher, path, CALLED, CALLED.replace(before, after), None) is None, (before, after)


async def test_it_refuses_a_function_of_another_kind(launcher, tmp_path):  # noqa: F811
    path = tmp_path / "net.py"
    path.write_text(CALLED)
    for before, after in REFUSED:
        assert before in CALLED
        assert await go_on(launcher, path, CALLED, CALLED.replace(before, after), None) is None, (before, after)


@pytest.mark.parametrize("reader", ["import inspect\ninspect.getsource(Net)\n", "import absent_package\n"])
async def test_it_shares_nothing_of_a_text_that_something_has_read(launcher, tmp_path, reader):  # noqa: F811
    path, text = tmp_path / "net.py", CALLED.replace("\n\nif __name__", f"\n\n{reader}\nif __name__")
    path.write_text(text)
    edited = text.replace("return x + y", "return x - y")
    assert await go_on(launcher, path, text, edited, None) is None


async def test_it_refuses_when_a_module_has_changed(launcher, tmp_path):  # noqa: F811
    path, text = tmp_path / "net.py", f"from sizes import WIDTH\n{CALLED}"
    (tmp_path / "sizes.py").write_text("WIDTH = 8\n")
    path.write_text(text)
    edited = text.replace("return x + y", "return x - y")
    assert await go_on(launcher, path, text, edited, None) is not None
    launcher.foresee(make_request(path, text, None))
    await launcher._preparing
    (tmp_path / "sizes.py").write_text("WIDTH = 16\n")
    ahead, launcher._ahead = launcher._ahead, None
    assert await trace_in(ahead, make_request(path, edited, None)) is None


def test_only_lines_of_functions_may_differ(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("a\nb\nc\n")
    ahead = Ahead(make_request(path, "a\nb\nc\n", None), ((2, 2),))
    assert ahead.may_go_on(str(path), b"a\nx\nc\n")
    assert ahead.may_go_on(str(path), b"a\nb\nc\n")
    assert not ahead.may_go_on(str(path), b"a\nb\nx\n")
    assert not ahead.may_go_on(str(path), b"a\nb\nb\nc\n")
    assert not ahead.may_go_on("/other.py", b"a\nb\nc\n")
