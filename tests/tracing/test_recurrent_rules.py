"""Recurrent layers on meta: the types that eager gives, and as quickly for a thousand steps as for one."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from mase_server.tracing.recording.shadow import MetaMode, Shadows


def types(value):
    """Shape, strides and dtype of every tensor, in order; a dimension of one element may have any stride."""
    if isinstance(value, torch.Tensor):
        strides = tuple(step for step, size in zip(value.stride(), value.shape, strict=True) if size > 1)
        return [(tuple(value.shape), strides, value.dtype)]
    return [each for item in value for each in types(item)]


def on_meta(make, *shapes, kind=torch.float32):
    with MetaMode(Shadows()), torch.no_grad():
        return types(make()(*(torch.empty(shape, dtype=kind) for shape in shapes)))


def in_eager(make, *shapes, kind=torch.float32):
    with torch.no_grad():
        return types(make()(*(torch.zeros(shape, dtype=kind) for shape in shapes)))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_outputs_and_states_are_those_of_eager(layer, bidirectional, batch_first):
    def make():
        return layer(5, 7, num_layers=2, bidirectional=bidirectional, batch_first=batch_first).eval()

    assert on_meta(make, (4, 3, 5)) == in_eager(make, (4, 3, 5))
    assert on_meta(make, (4, 5)) == in_eager(make, (4, 5)), "without a batch"


def test_a_projection_narrows_the_output_and_one_state():
    def make():
        return nn.LSTM(5, 7, proj_size=2, batch_first=True).eval()

    assert on_meta(make, (4, 3, 5)) == in_eager(make, (4, 3, 5))


def test_states_that_are_handed_in_keep_their_type():
    def make():
        return nn.GRU(5, 7, num_layers=2).double().eval()

    shapes = (4, 3, 5), (2, 3, 7)
    assert on_meta(make, *shapes, kind=torch.float64) == in_eager(make, *shapes, kind=torch.float64)


def test_time_steps_are_not_gone_through_one_by_one():
    calls = []

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), MetaMode(Shadows()):
        layer, x = nn.LSTM(5, 7), torch.empty(1000, 2, 5)
        with Counting():
            layer(x)
    assert len(calls) < 50


def test_a_wrong_width_is_refused_as_in_eager():
    message = "Expected 5, got 6"
    with pytest.raises((RuntimeError, ValueError), match=message) as eager:
        in_eager(lambda: nn.LSTM(5, 7), (4, 3, 6))
    with pytest.raises(eager.type, match=message):
        on_meta(lambda: nn.LSTM(5, 7), (4, 3, 6))


@pytest.mark.parametrize("batch_first", [True, False])
def test_lengths_of_another_batch_are_refused_as_in_eager(batch_first):
    def pack() -> None:
        nn.utils.rnn.pack_padded_sequence(torch.randn(16, 16, 4), torch.tensor([5, 3]), batch_first=batch_first)

    with pytest.raises(RuntimeError) as eager:
        pack()
    with MetaMode(Shadows()), pytest.raises(RuntimeError) as ours:
        pack()
    assert str(ours.value) == str(eager.value)


@pytest.mark.parametrize("batch_first", [True, False])
def test_packed_rows_are_as_many_as_the_lengths_say(batch_first):
    lead = (2, 6) if batch_first else (6, 2)
    lengths = torch.tensor([5, 3])
    real = nn.utils.rnn.pack_padded_sequence(torch.randn(*lead, 4), lengths, batch_first=batch_first)
    with MetaMode(Shadows()):
        ours = nn.utils.rnn.pack_padded_sequence(torch.randn(*lead, 4), lengths, batch_first=batch_first)
        assert ours.data.shape == real.data.shape == (8, 4)
        assert ours.batch_sizes.tolist() == real.batch_sizes.tolist()


@pytest.mark.parametrize("shape", [(4, 3, 6), (4, 3)])
def test_a_packed_sequence_of_another_width_is_refused_as_in_eager(shape):
    layer = nn.LSTM(5, 7, batch_first=True)

    def packed():
        return layer(pack_padded_sequence(torch.zeros(shape), torch.tensor([3, 2, 2, 1]), batch_first=True))

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        packed()
    with MetaMode(Shadows()), torch.no_grad(), pytest.raises(RuntimeError, match="same reduction dim"):
        packed()
