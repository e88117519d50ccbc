"""Linear layers without multipliers: every integer, the cycles and the tables that are told."""

import asyncio

import pytest
import torch
from torch import nn

from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.estimates import estimate
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.simulation.building import synthesise
from tests.hardware.simulating import check, latency, simulated
from tests.hardware.test_emission import VERILATOR
from tests.hardware.test_lowering import Rows, config, mlp, quantised


class Halves(nn.Module):
    """A layer of a row, one without bias of what is behind a view, and a sum of two streams between them."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 3, bias=False)

    def forward(self, x):
        y = torch.relu(self.up(x))
        return self.down((y + torch.tanh(y)).reshape(-1, 2, 4).transpose(1, 2).flatten(1))


MODELS = {"mlp": (lambda: mlp(9, 12, 5), (9,)), "rows": (Rows, (5, 6)), "halves": (Halves, (6,))}


def lowered(name, seed=0):
    torch.manual_seed(seed)
    make, shape = MODELS[name]
    return lower_graph(quantised(make(), torch.randn(2, *shape), config()))


@VERILATOR
@pytest.mark.parametrize(("name", "interval"), [("mlp", None), ("mlp", 2), ("rows", 20), ("halves", 3)])
def test_every_integer_is_right_and_the_cycles_are_as_told(tmp_path, name, interval):
    design = lowered(name)
    folding = fold_design(design, multipliers=0, interval=interval)
    made = emit_folder(design, folding, "Model", random_inputs(design, 60))
    assert "fixed_product" not in "".join(made.files)
    check(made, tmp_path)
    _, (stream,) = simulated(made, tmp_path)
    totals = estimate(design, folding).totals
    assert totals["multipliers"] == 0
    assert (totals["interval"], totals["latency"]) == (stream.interval(60), latency(made, tmp_path))
    assert interval is None or totals["interval"] <= interval


@pytest.mark.parametrize("interval", [1, 2])
def test_tables_are_within_a_quarter_of_those_of_yosys(tmp_path, interval):
    design = lowered("mlp")
    folding = fold_design(design, multipliers=0, interval=interval)
    made = emit_folder(design, folding, "Model", random_inputs(design, 1))
    made.write(tmp_path)
    found = asyncio.run(synthesise(tmp_path, made.name, lambda message, fraction: None))
    assert found.multipliers == 0
    assert estimate(design, folding).totals["luts"] == pytest.approx(found.luts, rel=0.25)


def test_the_same_weights_give_the_same_text():
    texts = []
    for _ in range(2):
        design = lowered("mlp")
        made = emit_folder(design, fold_design(design, multipliers=0), "Model", random_inputs(design, 1))
        texts.append({path: text for path, text in made.files.items() if path.endswith("_constants.sv")})
    assert texts[0] == texts[1]
    assert len(texts[0]) == 2
