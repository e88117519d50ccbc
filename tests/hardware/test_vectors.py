"""Samples of a simulation: as many as a second is enough for, computed a few at a time."""

import pytest
import torch
from torch import nn

from mase_server.hardware import emission
from mase_server.hardware.emission import random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from tests.hardware.test_lowering import Twice, config, mlp, quantised


@pytest.mark.parametrize("at_once", [1, 17, 64, 1 << 22])
def test_a_few_at_a_time_give_what_all_at_once_give(monkeypatch, at_once):
    design = lower_graph(quantised(Twice(), torch.randn(2, 4), config()))
    inputs = random_inputs(design, 23)
    wanted = integer_graph(design).model(*inputs)
    monkeypatch.setattr(emission, "_AT_ONCE", at_once)
    found = emission.expected_outputs(design, inputs)
    assert all(torch.equal(*each) for each in zip(found, wanted, strict=True))


def test_they_are_few_for_large_models():
    small = lower_graph(quantised(mlp(8, 4), torch.randn(2, 8), config()))
    large = lower_graph(quantised(nn.Sequential(nn.Linear(2048, 2048)), torch.randn(1, 40, 2048), config()))
    assert emission.usual_count(fold_design(small)) == 100
    # 40 rows of 2048 x 2048 products are 168 million a sample.
    assert emission.usual_count(fold_design(large)) == emission.usual_count(fold_design(large, multipliers=64)) == 5


def test_of_several_copies_the_first_gives_the_last_result():
    """Results of copies may come close together: their time is that from one of a copy to its next."""
    design = lower_graph(quantised(mlp(8, 4), torch.randn(2, 8), config()))
    folding = fold_design(design).repeat(3)
    assert emission.usual_count(folding) == 100
    assert [emission.count_rounds(folding, samples) for samples in (1, 5, 60)] == [4, 4, 58]
