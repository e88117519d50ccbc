"""What eager refuses is refused on meta too, with eager's own words; ground truth is eager itself, on real tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.tracing.recording.rules import LENIENT
from mase_server.tracing.recording.shadow import MetaMode, Shadows

REFUSED = {
    "fewer outputs than groups": lambda: F.conv2d(torch.rand(2, 16, 8, 8), torch.rand(3, 1, 3, 3), groups=16),
    "outputs that groups do not divide": lambda: F.conv2d(torch.rand(2, 4, 8, 8), torch.rand(6, 1, 3, 3), groups=4),
    "no outputs": lambda: F.conv2d(torch.rand(2, 3, 8, 8), torch.rand(0, 3, 1, 1)),
    "a bias of another size": lambda: F.conv2d(torch.rand(2, 3, 8, 8), torch.rand(4, 3, 1, 1), torch.rand(5)),
    "a bias by name": lambda: F.conv1d(input=torch.rand(2, 3, 8), weight=torch.rand(4, 3, 1), bias=torch.rand(5)),
    "negative padding": lambda: F.conv2d(torch.rand(2, 3, 8, 8), torch.rand(4, 3, 1, 1), padding=-1),
    "transposed, bias": lambda: F.conv_transpose1d(torch.rand(2, 4, 8), torch.rand(4, 3, 3), torch.rand(4)),
    "without a batch": lambda: F.conv2d(torch.rand(16, 8, 8), torch.rand(3, 1, 3, 3), groups=16),
    "softmax of integers": lambda: torch.ones(2, 3, dtype=torch.int64).softmax(-1),
    "gelu of integers": lambda: F.gelu(torch.ones(2, 3, dtype=torch.int64)),
    "relu of bools": lambda: F.relu(torch.ones(2, 3, dtype=torch.bool)),
    "deviation of integers": lambda: torch.ones(2, 3, dtype=torch.int64).std(dim=1),
    "and of floats": lambda: torch.rand(2) & torch.rand(2),
}
TAKEN = {
    "groups": lambda: F.conv2d(torch.rand(2, 16, 8, 8), torch.rand(32, 1, 3, 3), groups=16),
    "without a batch": lambda: F.conv2d(torch.rand(16, 8, 8), torch.rand(3, 16, 3, 3)),
    "same padding": lambda: F.conv1d(torch.rand(2, 3, 8), torch.rand(4, 3, 3), padding="same"),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1)(torch.rand(2, 4, 8, 8)),
    "half": lambda: F.conv2d(torch.rand(2, 3, 8, 8).half(), torch.rand(4, 3, 1, 1).half()),
    "softmax of floats": lambda: torch.rand(2, 3).softmax(-1),
    "softmax of integers as floats": lambda: torch.ones(2, 3, dtype=torch.int64).softmax(-1, dtype=torch.float32),
    "and of bools": lambda: (torch.rand(2) > 0) & (torch.rand(2) > 1),
    "absolute of integers": lambda: torch.ones(2, dtype=torch.int64).abs(),
    "an empty batch": lambda: F.conv2d(torch.rand(0, 3, 8, 8), torch.rand(4, 3, 1, 1)),
}


def on_meta(call):
    """The call under the mode in which models are traced, on tensors without values."""
    with MetaMode(Shadows(0)):
        return call()


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused_in_its_words(name):
    with pytest.raises((RuntimeError, NotImplementedError)) as eager:
        REFUSED[name]()
    with pytest.raises(type(eager.value)) as traced:
        on_meta(REFUSED[name])
    # A batch of no images is the one difference there may be.
    assert (
        str(traced.value).split(", but")[0].split("input[")[0] == str(eager.value).split(", but")[0].split("input[")[0]
    )


@pytest.mark.parametrize("name", TAKEN)
def test_what_eager_takes_has_eagers_type(name):
    eager, traced = TAKEN[name](), on_meta(TAKEN[name])
    assert (traced.shape, traced.dtype, traced.is_meta) == (eager.shape, eager.dtype, True)


def test_every_callable_is_one_that_torch_has():
    assert all(map(callable, LENIENT))
    assert len(LENIENT) > 60
