# ruff: noqa: E501 - the tables below read best with one case a line
"""A layer of the wrong width: the fix is written where the number is, and the mended file runs in eager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mase_server.worker.proof import apply_edits
from tests.worker.jobs import Job

NET = """
{before}
class Net(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}


if __name__ == "__main__":
    out = Net({arguments})(torch.randn(2, {size}))
"""
BLOCK = """
class Block(nn.Module):
    def __init__(self, width, out=4):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, out)

    def forward(self, x):
        return self.layer(self.norm(x))

"""
#: before the class, parameters, init, forward, arguments, size of the input, the text that the fix replaces -> its new one.
CASES = {
    "number": ("", "", "self.l = nn.Linear(8, 4)", "self.l(x)", "", "6", "nn.Linear(6, 4)"),
    "product": ("", "", "self.l = nn.Linear(2 * 4, 4)", "self.l(x)", "", "6", "nn.Linear(6, 4)"),
    "only use of a local": ("", "", "n = 8; self.l = nn.Linear(n, 4)", "self.l(x)", "", "6", "n = 6;"),
    "factor of a name": ("", ", w=4", "self.w = w; self.l = nn.Linear(2 * w, 4)", "self.l(x)", "", "12", "3 * w"),
    "factor that goes": ("", ", w=6", "self.w = w; self.l = nn.Linear(w * 2, 4)", "self.l(x)", "", "6", "nn.Linear(w, 4)"),
    "multiple": ("", ", w=6", "self.w = w; self.l = nn.Linear(w, w)", "self.l(x)", "", "12", "nn.Linear(w * 2, w)"),
    "summand": ("", ", w=6", "self.w = w; self.l = nn.Linear(w + 1, 4)", "self.l(x)", "", "6", "nn.Linear(w, 4)"),
    "other parameter": ("", ", a=6, b=8", "self.l = nn.Linear(b, b)", "self.l(x)", "", "6", "nn.Linear(a, b)"),
    "default": ("", ", w=8", "self.l = nn.Linear(w, 4)", "self.l(x)", "", "6", "w=6"),
    "own call": ("", ", w", "self.l = nn.Linear(w, 4)", "self.l(x)", "8", "6", "Net(6)"),
    "own keyword": ("", ", w", "self.l = nn.Linear(w, 4)", "self.l(x)", "w=8", "6", "Net(w=6)"),
    "parent": (BLOCK, "", "self.b = Block(8)", "self.b(x)", "", "6", "Block(6)"),
    "grandparent": (BLOCK, ", w", "self.b = Block(w)", "self.b(x)", "8", "6", "Net(6)"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_number_is_changed_where_it_is_written(name: str, tmp_path: Path) -> None:
    before, parameters, init, forward, arguments, size, written = CASES[name]
    text = NET.format(
        before=before, parameters=parameters, init=init, forward=forward, arguments=arguments, size=size
    )  # fmt: skip
    job = Job(tmp_path, text)
    (problem,) = job.problems
    (fix,) = problem["fixes"]
    mended = apply_edits(job.text, fix["edits"])
    assert written in mended
    assert fix["preferred"]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(mended, names)
    assert len(names["out"]) == 2


#: What one edit cannot mend, or where the number may be right elsewhere.
UNSURE = {
    "a loop": ("", "", "self.l = nn.Sequential(*[nn.Linear(8, 6) for _ in range(2)])", "self.l(x)", "", "6"),
    "a helper": ("def make(n):\n    return nn.Linear(n, 4)\n\n", "", "self.l = make(8)", "self.l(x)", "", "6"),
    "a table": ("", "", "sizes = [8, 4]; self.l = nn.ModuleList(nn.Linear(n, 4) for n in sizes)", "self.l[0](x)", "", "6"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSURE)
def test_no_fix_where_more_than_this_layer_depends_on_the_number(name: str, tmp_path: Path) -> None:
    before, parameters, init, forward, arguments, size = UNSURE[name]
    text = NET.format(
        before=before, parameters=parameters, init=init, forward=forward, arguments=arguments, size=size
    )  # fmt: skip
    (problem,) = Job(tmp_path, text).problems
    assert (problem["code"], problem["fixes"]) == ("shape-mismatch", [])
