"""Example inputs for a model that a program holds in its hands."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mase_server.tracing.inputs.examples import example_arguments


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)
        self.calls = 0

    def forward(self, ids, scale=1.0):
        self.calls += 1
        return self.head(self.embed(ids).mean(1)) * scale


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, image):
        return self.conv(image)


class Impossible(nn.Module):
    def forward(self, question):
        raise KeyError(question)


@pytest.mark.parametrize("make", [Classifier, Conv, lambda: nn.Linear(7, 2), lambda: nn.Sequential(nn.Linear(5, 2))])
def test_what_is_found_runs_in_eager(make):
    model = make()
    model(**example_arguments(model))


def test_given_tensors_are_taken_as_they_are():
    x = torch.randn(3, 7)
    assert example_arguments(nn.Linear(7, 2), {"input": x}) == {"input": x}


def test_other_given_arguments_stand_beside_what_is_found():
    found = example_arguments(Classifier(), {"scale": 2.5})
    assert found["scale"] == 2.5
    assert found["ids"].dtype == torch.int64


def test_the_search_leaves_the_model_as_it_was():
    model = Classifier()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    example_arguments(model)
    assert model.calls == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_where_nothing_is_found_the_error_says_what_to_pass():
    with pytest.raises(ValueError, match=r"no inputs were found for Impossible: .*; pass example inputs by the names"):
        example_arguments(Impossible())
