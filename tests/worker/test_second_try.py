"""A trace that is begun again with more values, because a forward or a constructor asked for some."""

from pathlib import Path

import pytest

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


CHECKED = """
import torch
from torch import nn

class Checked(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.layer = nn.Linear(width, width)
        nn.init.eye_(self.layer.weight)
        if not torch.allclose(self.layer.weight @ self.layer.weight.T, torch.eye(width)):
            raise ValueError("not orthogonal")
        self.small = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(width, 5)))
        self.turned = nn.utils.parametrizations.orthogonal(nn.Linear(5, 3))

    def forward(self, x):
        h = self.turned(self.small(self.layer(x)))
        return h
"""
CALLED = """
if __name__ == "__main__":
    Checked(width=4)(torch.randn(2, 4))
"""


@pytest.mark.parametrize(("code", "source", "width"), [(CHECKED + CALLED, "main", 4), (CHECKED, "search", 6)])
def test_constructors_that_read_weights_are_run_with_values(tmp_path: Path, code: str, source: str, width: int) -> None:
    payload = traced(tmp_path, {"net.py": code})
    assert payload["problems"] == []
    [model] = payload["models"]
    assert (model["inputs_from"], model["inputs"]["x"][1][-1], model["complete"]) == (source, width, True)
    [row] = [row for row, site in enumerate(payload["rows"]["site"]) if payload["sites"]["name"][site] == "h"]
    assert payload["values"][payload["rows"]["value"][row]][1][-1] == 3


def test_values_in_an_imported_file_are_reported_when_a_trace_is_begun_again(tmp_path: Path) -> None:
    payload = traced(tmp_path, {"gates.py": GATE, "net.py": NET})
    assert [one["rung"] for one in payload["models"]] == ["real"]
    sites = payload["sites"]
    names = {sites["name"][site] for site in payload["rows"]["site"] if sites["file"][site] != 0}
    assert "y" in names
