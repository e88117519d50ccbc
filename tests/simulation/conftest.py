"""An emitted folder to simulate, and one cache of programs for all tests of this folder."""

import shutil

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from tests.rtl.build import KEPT

VECTORS = 60


def layers():
    """A small chain of layers that is the same each time."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


@pytest.fixture(scope="session")
def emitted(tmp_path_factory):
    """The folder of `layers()`; nobody writes to it."""
    folder = tmp_path_factory.mktemp("emitted")
    graph = MaseGraph(layers(), {"input": torch.randn(2, 6)})
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(8,4)"})
    given = {"folder": str(folder), "name": "Chain", "multipliers": 8, "vectors": VECTORS}
    passes.emit_verilog_top_analysis_pass(graph, given)
    return folder


@pytest.fixture
def folder(emitted, tmp_path):
    """A copy that may be changed."""
    return shutil.copytree(emitted, tmp_path / "design")


@pytest.fixture(scope="session")
def cache():
    """Where programs are kept, from one run of the tests to the next."""
    return KEPT
