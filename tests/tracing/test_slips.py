# ruff: noqa: E501 - the tables below read best with one case a line
"""Slips of plain Python: eager exceptions of real code, what is said of them, and what mends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mase_server.tracing.diagnosis.scenes import Scene
from mase_server.tracing.diagnosis.slips import explain_slip, find_closest_name
from mase_server.worker.proof import apply_edits

HEADER = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n\nclass Net(nn.Module):\n"
INIT = "    def __init__(self):\n        super().__init__()\n        {init}\n\n"


class Tried:
    """A file whose Net fails when it is made and called: what is said, and the file as mended."""

    def __init__(self, folder: Path, body: str, *inputs: Any) -> None:
        path = folder / "model.py"
        self.text = HEADER + body
        path.write_text(self.text)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each case raises something else
            run(self.text, str(path), *inputs)
        self.error = caught.value
        self.told = explain_slip(Scene(caught.value, None))

    @property
    def message(self) -> str:
        assert self.told is not None
        return self.told[0].text

    @property
    def mended(self) -> str:
        assert self.told is not None
        (fix,) = self.told[1]
        return apply_edits(self.text, fix["edits"])


def run(text: str, path: str, *inputs: Any) -> Any:
    names: dict[str, Any] = {"__name__": "model"}
    exec(compile(text, path, "exec"), names)
    return names["Net"]()(*inputs)


def net(init: str, *forward: str, parameters: str = "x") -> str:
    body = "\n".join(f"        {line}" for line in forward)
    return INIT.format(init=init) + f"    def forward(self, {parameters}):\n{body}\n"


x = torch.ones(2, 3, 4)
#: what is made, forward's lines, what is said, the line that the fix writes.
MENDED = {
    "variable": ("pass", ["width = 3", "return x * widht"], "Did you mean `width`?", "return x * width"),
    "self": ("self.layer = nn.ReLU()", ["return layer(x)"], "The model has it: `self.layer`", "return self.layer(x)"),
    "keyword": ("self.l = nn.LSTM(4, 5, batchfirst=True)", ["return x"], "Did you mean `batch_first`?", "batch_first=True"),
    "own keyword": ("self.l = nn.Conv1d(3, 5, kernel=1)", ["return x"], "takes no argument `kernel`", "kernel_size=1"),
    "pair": ("self.l = nn.GRU(4, 5)", ["h = self.l(x)", "return h * 2.0"], "`h` is a tuple", "h, _ = self.l(x)"),
    "pair into a layer": (
        "self.l, self.o = nn.LSTM(4, 5), nn.Linear(5, 1)", ["h = self.l(x)", "return self.o(h)"],
        "`h` is a tuple (tensor [2, 3, 5], (tensor [1, 3, 5], tensor [1, 3, 5]))", "h, _ = self.l(x)",
    ),
    "maximum": ("pass", ["m = x.max(dim=1)", "return F.relu(m)"], "take `.values`", "m = x.max(dim=1).values"),
    "sizes": ("pass", ["b, _ = x.shape", "return x"], "2 names are given the 3 sizes of `x` [2, 3, 4]", "b, _, _ = x.shape"),
    "fewer sizes": ("pass", ["b, t, _, _ = x.size()", "return x"], "4 names are given the 3 sizes", "b, t, _ = x.size()"),
    "chunks": ("pass", ["a, b = x.chunk(4, dim=-1)", "return a"], "another number of chunks", "a, b = x.chunk(2, dim=-1)"),
    "mask": ("pass", ["m = x > 1", "return 1 - m"], "cannot be subtracted", "return ~m"),
    "float mask": ("pass", ["return ~x"], "needs a mask of booleans", "return ~x.bool()"),
}  # fmt: skip


@pytest.mark.parametrize("name", MENDED)
def test_a_slip_is_told_and_the_mended_file_runs_in_eager(name: str, tmp_path: Path) -> None:
    init, forward, said, line = MENDED[name]
    tried = Tried(tmp_path, net(init, *forward), x)
    assert said in tried.message
    assert line in tried.mended
    run(tried.mended, "mended.py", x)


#: Slips that only the person can mend.
TOLD = {
    "unknown name": ("pass", ["return qwertz"], "define or import it"),
    "usual name of a module": (
        "pass",
        ["n = 3", "return x * np.pi"],
        "not defined here: `import numpy as np` is missing",
    ),
    "rows": ("pass", ["a, b, c = x", "return a"], "`x` [2, 3, 4] is taken apart into 3 names, but has 2 rows"),
    "layer": ("self.l = nn.ReLU()", ["return x + self.l"], "`self.l` is the layer ReLU itself"),
    "two chunks": ("pass", ["a, b = (x, x, x)", "return a"], "is taken apart into 2 names"),
}


@pytest.mark.parametrize("name", TOLD)
def test_where_nothing_is_sure_nothing_is_offered(name: str, tmp_path: Path) -> None:
    init, forward, said = TOLD[name]
    tried = Tried(tmp_path, net(init, *forward), x)
    assert said in tried.message
    assert tried.told is not None
    assert tried.told[1] == []


def test_an_argument_that_was_left_out_is_named(tmp_path: Path) -> None:
    tried = Tried(tmp_path, net("pass", "return x + mask", parameters="x, mask=None"), x)
    assert (
        tried.message == "`mask` is None here: it is an argument that may be left out. Ask `if mask is not None` first."
    )


def test_a_forward_that_returns_nothing_gets_its_return(tmp_path: Path) -> None:
    inner = "    class Inner(nn.Module):\n        def forward(self, x):\n            x * 2\n\n"
    tried = Tried(tmp_path, inner + net("self.inner = Net.Inner()", "h = self.inner(x)", "return h + 1"), x)
    assert "the forward of Inner (`self.inner`) returns nothing" in tried.message
    assert "            return x * 2\n" in tried.mended
    assert torch.equal(run(tried.mended, "mended.py", x), x * 2 + 1)


@pytest.mark.parametrize("docstring", ["", '        """Makes it."""\n'])
def test_the_missing_call_of_super_comes_first(docstring: str, tmp_path: Path) -> None:
    body = f"    def __init__(self):\n{docstring}        self.l = nn.ReLU()\n\n    def forward(self, x):\n        return self.l(x)\n"
    tried = Tried(tmp_path, body, x)
    assert f"{docstring}        super().__init__()\n        self.l = nn.ReLU()" in tried.mended
    run(tried.mended, "mended.py", x)


def test_errors_of_other_kinds_are_not_slips(tmp_path: Path) -> None:
    for line in ("raise ValueError('too big')", "return x @ x", "return {}['key']", "return open(3.5)"):
        assert Tried(tmp_path, net("pass", line), x).told is None


def test_the_closest_name() -> None:
    assert find_closest_name("fc_1", ["fc1", "conv"]) == "fc1"
    assert find_closest_name("bb", ["a", "b"]) == "b"
    assert find_closest_name("ort", ["sorted"]) is None
    assert find_closest_name("pepx", ["keys", "PEPX"]) == "PEPX"
    assert find_closest_name("conv2d", ["conv3d", "Conv2d"]) == "Conv2d"
    assert find_closest_name("weight", ["__weight__", "bias"]) is None


def test_values_are_read_off_the_frame_without_running_code(tmp_path: Path) -> None:
    class Loud(nn.Module):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("not to be asked")

    tried = Tried(tmp_path, net("pass", "return x + loud.thing", parameters="x, loud"), x, Loud())
    assert tried.told is None
