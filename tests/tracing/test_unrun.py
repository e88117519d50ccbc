"""Code that did not run, against plain Python: the lines that `sys.settrace` sees when eager PyTorch runs the model."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from mase_server.protocol.request import TraceRequest
from mase_server.worker.job import trace

HEAD = """import contextlib
import functools
import torch
from torch import nn
"""
#: Each line of which the trace should say that it did not run ends with `#- ` and the reason, or `#-` for none;
#: ^1: the line above the first one of the code decides.
BRANCHES = """
def attend(x, mask=None):
    if mask is not None:
        x = x + mask  #- runs if `mask` is given (^1)
    return x


def never_called_helper(x):
    return x


class Block(nn.Module):
    def forward(self, x, first, scale=None):
        if first:
            x = x + 1
        else:
            x = x - 1
        if scale is None:
            return x
        scale = scale * 2  #- runs if `scale` is given (^2)
        return x * scale  #- runs if `scale` is given (^2)


class Unshown(nn.Module):
    def __init__(self, thing):
        super().__init__()
        thing.unknown()

    def forward(self, x):
        if x is None:
            return x
        return x


# mase: x: f32[2, 8]
class Net(nn.Module):
    def __init__(self, deep=False):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 4)
        self.aux = nn.ModuleList()
        if deep:
            self.extra = nn.Linear(4, 4)
        self.reset()

    def reset(self):
        for parameter in self.parameters():
            if parameter.dim() > 7:
                nn.init.zeros_(parameter)

    def forward(self, x, y=None):
        if self.training: x = x * 2  #- `self.training` was false: runs in training mode (^0)
        if x.shape[0] > 4:
            x = x[:4]  #- `x.shape[0] > 4` was False (^1)
        elif (x.dim()
              == 3):
            x = (  #- `x.dim() == 3` was False (^2)
                x.mean(1)  #- `x.dim() == 3` was False (^2)
            )  #- `x.dim() == 3` was False (^2)
        else:
            x = x + 0
        for index, block in enumerate(self.blocks):
            x = block(x, index == 0)
        for layer in self.aux:
            x = layer(x)  #- runs for each element of `self.aux` (^1)
        if x.dim() % 2:
            x = x[0]  #- `x.dim() % 2` was false (^1)
        while x.dim() < 2:
            x = x[None]  #- `x.dim() < 2` was False (^1)
        x = attend(x)
        try:
            x = self.head(x)
        except (RuntimeError, ValueError):
            return x  #- runs on `(RuntimeError, ValueError)` (^1)
        else:
            x = x + 1
        finally:
            x = x * 1
        try:
            self.missing(x)
            x = x + 1
        except AttributeError:
            x = x - 1
        match x.dim():
            case 1:
                return x  #- runs in the case `1` (^1)
            case 2 if self.aux:
                return -x  #- runs in the case `2 if self.aux` (^1)
            case _:
                x = x * 1
        with torch.no_grad():
            if y is None and x.dim() == 2:
                y = x
            else:
                y = y + x  #- `y is None and x.dim() == 2` was True (^3)
        total = sum(self.each(v) for v in [x, y])

        def nested(v):
            return v  #- `nested` was not called

        return self.decorated(total) if x.dim() == 2 else nested(
            total
        )

    def each(self, v):
        for index in range(3):
            if index == 1:
                break
            if index < 5:
                continue
            v = v + 1  #- `index < 5` was True (^2)
        else:
            v = v * 2  #-
        return v

    @torch.no_grad()
    def decorated(self, v):
        return v

    @functools.cache
    def cached(self, v):
        return v

    @torch.no_grad()
    def loss(self, v):
        \"\"\"Text.\"\"\"
        if v is None:  #- `loss` was not called
            return 0  #- `loss` was not called
        return v  #- `loss` was not called

    @property
    def width(self):
        return 4  #- `width` was not called
"""
#: A program that calls a method of its model after the forward; nothing is certain about `later` and `generate`.
PROGRAM = """
class Net(nn.Module):
    def forward(self, x):
        return x + 1

    def generate(self, x):
        for _ in range(3):
            x = self(x)
            if x.dim() == 2:
                x = x * 2
        return x

    def later(self, x):
        return x

    def unused(self, x):
        return x  #- `unused` was not called


if __name__ == "__main__":
    net = Net()
    y = net.generate(torch.zeros(2, 3))
    net.later(y)
"""
#: Nothing is said of a model whose forward fails, and of functions that it shares with another one.
FAILING = """
class Shared(nn.Module):
    def forward(self, x, twice=None):
        if twice is not None:
            x = x + x
        return x

    def extra(self, x):
        return x


# mase: x: f32[2, 3]
class Good(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = Shared()

    def forward(self, x):
        if x is None:
            return x  #- `x is None` was False (^1)
        return self.shared(x)


# mase: x: f32[2, 3]
class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = Shared()

    def forward(self, x):
        if x is None:
            return x
        x = self.shared(x)
        x = x @ x
        if x is None:
            return x
        return x
"""


def unrun_of(folder: Path, text: str) -> dict[int, str]:
    """The lines that a trace says did not run -> the reason."""
    (folder / "scratch").mkdir()
    path, sent = folder / "net.py", []
    path.write_text(text)
    trace(TraceRequest(str(path), str(folder), "", 1, scratch=str(folder / "scratch")), sent.append)
    payload = [message["payload"] for message in sent if message["event"] == "snapshot"][-1]
    found: dict[int, str] = {}
    for each in payload["unrun"]:
        assert payload["files"][each["file_index"]]["path"] == str(path)
        before, code, after = each["reason"]
        line = f" (^{each['line'] - each['decider']})" if each["decider"] else ""
        told = f"{before}`{code}`{after}{line}" if any(each["reason"]) else ""
        found |= dict.fromkeys(range(each["line"], each["end_line"]), told)
    return found


@pytest.mark.parametrize("body", [BRANCHES, PROGRAM, FAILING], ids=["branches", "program", "failing"])
def test_every_line_that_certainly_did_not_run_says_why(body: str, tmp_path: Path) -> None:
    text = HEAD + body
    expected = {
        number: found[1].strip()
        for number, line in enumerate(text.split("\n"), 1)
        if (found := re.search(r"#-(.*)$", line))
    }
    assert unrun_of(tmp_path, text) == expected


def lines_run(path: str, namespace: dict[str, Any], call: Any) -> set[int]:
    """The lines of functions of a file that run in a call."""
    found: set[int] = set()

    def see(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != path:
            return None
        if event == "line":
            found.add(frame.f_lineno)
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        call()
    finally:
        sys.settrace(before)
    return found


def test_no_line_that_eager_runs_is_told_as_not_run(tmp_path: Path) -> None:
    text = HEAD + BRANCHES
    namespace: dict[str, Any] = {"__name__": "eager"}
    exec(compile(text, "eager.py", "exec"), namespace)
    model = namespace["Net"]().eval()
    ran = lines_run("eager.py", namespace, lambda: model(torch.randn(2, 8)))
    unrun = unrun_of(tmp_path, text)
    assert len(ran) > 40
    halves = {number for number, line in enumerate(text.split("\n"), 1) if "if self.training: x" in line}
    assert not (ran & unrun.keys()) - halves
