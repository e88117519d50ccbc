"""Code for a GPU runs on the CPU, with the values that it has there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mase_server.tracing.recording.rungs import OnCpu

ASKS: list[Callable[[], torch.Tensor]] = [
    lambda: torch.ones(3, device="cuda"),
    lambda: torch.ones(3, device=torch.device("cuda:1")),
    lambda: torch.ones(3, device=0),
    lambda: torch.ones(3).cuda(),
    lambda: torch.ones(3).cuda(1, non_blocking=True),
    lambda: torch.ones(3).to("cuda"),
    lambda: torch.ones(3).to("mps:0", torch.float32),
    lambda: torch.ones(3).to(0),
    lambda: torch.ones(3).to(device="cuda"),
    lambda: torch.full((3,), 1.0).to(torch.device("xpu")),
    lambda: torch.tensor([1.0, 1.0, 1.0], device="cuda"),
    lambda: nn.Parameter(torch.ones(3, device="cuda")).detach(),
    lambda: torch.ones(3).pin_memory(),
]


@pytest.mark.parametrize("ask", ASKS, ids=range(len(ASKS)))
def test_what_asks_for_a_gpu_is_on_the_cpu(ask: Callable[[], torch.Tensor]):
    with OnCpu():
        found = ask()
    assert found.device.type == "cpu"
    assert torch.equal(found, torch.ones(3))


def test_layers_that_are_moved_stay_with_their_values():
    torch.manual_seed(2)
    layer = nn.Linear(3, 2)
    with OnCpu():
        moved = layer.cuda().to("cuda").to(torch.device("cuda", 1))
    assert moved is layer
    assert layer.weight.device.type == "cpu"


def test_meta_stays_meta():
    with OnCpu():
        assert torch.ones(3, device="meta").is_meta
        assert torch.ones(3).to("meta").is_meta
