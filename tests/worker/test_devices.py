"""Tensors that a move to another device leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.worker.jobs import Job

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        {table}

    def forward(self, x):
        return self.layer(x) + {use}


if __name__ == "__main__":
    {main}
    net(torch.randn(3, 4))
"""
PLAIN = "self.table = torch.arange(4.0)"


def warnings(tmp_path: Path, table: str, use: str, main: str) -> list[tuple[str, int]]:
    job = Job(tmp_path, NET.format(table=table, use=use, main=main))
    return [(problem["code"], problem["line"]) for problem in job.problems]


def test_a_plain_tensor_stays_where_it_is_in_torch_too():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain = torch.arange(4.0)
            self.register_buffer("buffer", torch.arange(4.0))

    moved = Net().to("meta")
    assert (moved.plain.device.type, moved.buffer.device.type) == ("cpu", "meta")


@pytest.mark.parametrize(
    ("table", "use", "main", "told"),
    [
        (PLAIN, "self.table", "net = Net().cuda()", [("device-mismatch", 9)]),
        (PLAIN, "self.table.to(x.device)", "net = Net().cuda()", []),
        (PLAIN, "self.table", "net = Net()", []),
        ('self.register_buffer("table", torch.arange(4.0))', "self.table", "net = Net().cuda()", []),
        ("self.table = nn.Parameter(torch.arange(4.0))", "self.table", "net = Net().cuda()", []),
        (PLAIN, "x", "net = Net().cuda()", []),
    ],
)
def test_only_what_is_used_where_it_was_left_is_told(tmp_path: Path, table: str, use: str, main: str, told: list):
    assert warnings(tmp_path, table, use, main) == told


def test_the_fix_makes_it_a_buffer(tmp_path: Path):
    job = Job(tmp_path, NET.format(table=PLAIN, use="self.table", main="net = Net().cuda()"))
    (fix,) = job.problems[0]["fixes"]
    assert fix["edits"][0]["new_text"] == 'self.register_buffer("table", torch.arange(4.0))'
    assert fix["preferred"]
