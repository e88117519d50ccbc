"""A trace that is begun again with more values, because a forward asked for some."""

from pathlib import Path

from tests.inputs.test_inputs_missing import traced

GATE = """
import torch
from torch import nn

class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        if y.sum() > 1e9:
            y = y[:1]
        return y
"""
NET = """
import torch
from torch import nn
from gates import Gate

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.head = Gate(), nn.Linear(4, 7)

    def forward(self, x):
        h = self.head(self.gate(x))
        return h
"""


def test_values_in_an_imported_file_are_reported_when_a_trace_is_begun_again(tmp_path: Path) -> None:
    payload = traced(tmp_path, {"gates.py": GATE, "net.py": NET})
    assert [one["rung"] for one in payload["models"]] == ["real"]
    sites = payload["sites"]
    names = {sites["name"][site] for site in payload["rows"]["site"] if sites["file"][site] != 0}
    assert "y" in names
