"""How the values of large tensors are recognised, though only some of them are looked at first."""

import pytest
import torch

from mase_server.tracing.inputs.roles import SAMPLED, observe_value

SIDE = 128
COUNT = SIDE * SIDE


def fill_of(tensor):
    spec = observe_value(tensor, "x")
    return spec.fill, spec.argument


def late(tensor, value):
    """The tensor with another value behind all that is looked at first."""
    flat = tensor.clone().reshape(-1)
    flat[SAMPLED + 10] = value
    return flat.reshape(tensor.shape)


PAST = torch.zeros(SIDE, SIDE).masked_fill(~torch.ones(SIDE, SIDE, dtype=torch.bool).tril(), float("-inf"))


@pytest.mark.parametrize(
    ("tensor", "fill"),
    [
        (torch.rand(2, SIDE, SIDE), ("uniform", None)),
        (late(torch.rand(2, SIDE, SIDE), -0.5), ("", None)),
        (torch.randn(2, SIDE, SIDE), ("", None)),
        (torch.zeros(SIDE, SIDE), ("zeros", None)),
        (torch.full((SIDE, SIDE), 2.5), ("full", 2.5)),
        (late(torch.ones(SIDE, SIDE), 3.0), ("", None)),
        (PAST, ("causal", None)),
        (PAST.expand(2, 1, SIDE, SIDE), ("causal", None)),
        (late(PAST, float("-inf")), ("", None)),
        (torch.ones(SIDE, SIDE, dtype=torch.bool).triu(1), ("upper", None)),
    ],
    ids=["uniform", "late", "normal", "zeros", "full", "late one", "causal", "batch", "late hole", "upper"],
)
def test_large_tensors_are_recognised(tensor, fill):
    assert tensor.numel() > SAMPLED + 10
    assert fill_of(tensor) == fill
