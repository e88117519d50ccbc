"""Code that goes round torch's ordinary ways, in small models of its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, weight_norm
from torch.utils.checkpoint import checkpoint

from mase_server import MaseGraph
from mase_server.tracing.recording.values import describe_value
from tests.tracing.recording import assert_equal_to_eager, record
from tests.tracing.test_recorder import Model, batch, linear


def legacy_constructors(model, x):
    return x + torch.Tensor([1, 2, 3, 4, 5, 6]) + torch.FloatTensor(6).fill_(2) * torch.LongTensor([2])


def parameter_made_in_forward(model, x):
    scale = nn.Parameter(torch.ones(6) * 3)
    return x * scale


def checkpointed(model, x):
    return checkpoint(lambda v: model.fc(v).relu(), x, use_reentrant=False)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        return x * by

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


def autograd_function(model, x):
    return Double.apply(x, 2) + 1


def functional_call(model, x):
    changed = {name: parameter * 2 for name, parameter in model.fc.named_parameters()}
    return torch.func.functional_call(model.fc, changed, (x,))


def autocast_off(model, x):
    with torch.autocast("cpu", enabled=False):
        return model.fc(x.float())


def weight_normed(model, x):
    return model.normed(x)


def parametrized(model, x):
    return model.orthogonal(x)


def inference_mode(model, x):
    with torch.inference_mode():
        y = model.fc(x)
    return y.clone()


def enable_grad(model, x):
    with torch.enable_grad():
        return model.fc(x)


def complex_numbers(model, x):
    z = torch.view_as_complex(x.view(-1, 3, 2).contiguous())
    rotated = z * torch.polar(torch.ones(3), torch.arange(3.0))
    return torch.view_as_real(rotated).flatten(1), torch.fft.rfft(x).abs()


def generators(model, x):
    noise = torch.randn(6, generator=torch.Generator().manual_seed(3))
    return x + noise


def powers(model, x):
    y = x.abs() ** 2
    y **= 3
    return 2**x, 2 - x, 1 / (x + 9), x // 2, 5 % (x + 9), y, +x, abs(x)


def generator_used_twice(model, x):
    generator = torch.Generator().manual_seed(3)
    return x + torch.rand(6, generator=generator), torch.rand(6, generator=generator)


def numpy_round_trip_of_a_known_value(model, x):
    table = torch.arange(6).float().numpy() ** 2
    return x + torch.from_numpy(table)


def list_of_numbers(model, x):
    return x * torch.tensor([float(n) for n in range(6)]) + torch.as_tensor(3.0)


def size_as_tensor(model, x):
    return x / torch.tensor(6.0).sqrt() + torch.tensor(x.shape[-1])


def finfo_mask(model, x):
    mask = torch.full((6, 6), torch.finfo(x.dtype).min).triu(1)
    return x[:, None, :] + mask


def apply_method(model, x):
    return x.clone().apply_(lambda v: v) if False else x.detach().requires_grad_(False)


def repeated_buffers(model, x):
    return x + model.table[: x.shape[1]].to(x.dtype)


def try_and_except(model, x):
    try:
        return x.view(7, 7)
    except RuntimeError:
        return x.view(-1)


def default_dtype(model, x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return x.double() + torch.ones(6)
    finally:
        torch.set_default_dtype(before)


def context_device(model, x):
    with torch.device("cpu"):
        return x + torch.ones(6)


def device_checks(model, x):
    if x.device.type != "cpu" or x.is_meta or model.fc.weight.device != x.device:
        raise ValueError("another device")
    return x.to(model.fc.weight.device) + torch.zeros(6, device=x.device)


def data_pointer_free(model, x):
    return x[:, torch.randperm(6, generator=torch.Generator().manual_seed(0))]


def multihead(model, x):
    y = x[None]
    return model.attention(y, y, y, need_weights=False)[0][0]


def transformer_layer(model, x):
    return model.encoder(x[None])[0]


def recurrent(model, x):
    out, (hidden, cell) = model.lstm(x[None])
    return out[0], hidden, cell


def packed(model, x):
    sequences = nn.utils.rnn.pad_sequence([x, x[:2]], batch_first=True)
    both = nn.utils.rnn.pack_padded_sequence(sequences, torch.tensor([4, 2]), batch_first=True)
    out, _ = model.lstm(both)
    return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)


def sparse(model, x):
    index = torch.tensor([[0, 1, 2], [2, 0, 1]])
    matrix = torch.sparse_coo_tensor(index, torch.ones(3), (6, 6))
    return torch.sparse.mm(matrix, x.t()).t()


def global_tensor(model, x):
    return x + TABLE


def losses(model, x):
    target = torch.zeros(x.shape[0], dtype=torch.long)
    return F.cross_entropy(x, target), F.mse_loss(x, x * 2, reduction="none")


def interpolation(model, x):
    image = x.view(-1, 1, 2, 3)
    return F.interpolate(image, scale_factor=2, mode="bilinear"), F.interpolate(image, size=(5, 5)), F.unfold(image, 2)


def gradient_inside(model, x):
    with torch.enable_grad():
        y = x.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad((y**2).sum(), y)
    return found + x


def function_gradient(model, x):
    return torch.func.grad(lambda v: (v**2).sum())(x)


TABLE = torch.linspace(0, 1, 6)
FORWARDS = [
    legacy_constructors, parameter_made_in_forward, checkpointed, autograd_function, functional_call,
    autocast_off, weight_normed, parametrized, inference_mode, enable_grad, complex_numbers, generators,
    powers, generator_used_twice,
    numpy_round_trip_of_a_known_value, list_of_numbers, size_as_tensor, finfo_mask, apply_method, repeated_buffers,
    try_and_except, default_dtype, context_device, device_checks, data_pointer_free, multihead, transformer_layer,
    recurrent, packed, sparse, global_tensor, losses, interpolation,
]  # fmt: skip


def model_of(forward):
    torch.manual_seed(0)
    model = Model(
        forward,
        fc=linear(),
        normed=weight_norm(nn.Linear(6, 6)),
        orthogonal=parametrizations.orthogonal(nn.Linear(6, 6)),
        attention=nn.MultiheadAttention(6, 2, batch_first=True),
        encoder=nn.TransformerEncoderLayer(6, 2, 12, batch_first=True),
        lstm=nn.LSTM(6, 5, batch_first=True, bidirectional=True),
    )
    model.register_buffer("table", torch.linspace(0, 3, 9, dtype=torch.float64), persistent=False)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("forward", FORWARDS, ids=lambda forward: forward.__name__)
def test_the_graph_computes_what_unusual_code_computes(forward):
    assert_equal_to_eager(model_of(forward), batch(4))


@pytest.mark.parametrize("forward", [gradient_inside, function_gradient], ids=lambda forward: forward.__name__)
def test_gradients_taken_in_a_forward_have_their_shapes(forward):
    run = record(model_of(forward).eval(), batch(4)["x"])
    assert run.result == describe_value(forward(None, batch(4)["x"]))


def test_borrowed_parameters_are_not_taken_for_the_layers_own():
    graph = MaseGraph(model_of(functional_call).eval(), batch(4))
    assert [node.op for node in graph.nodes if node.op == "call_module"] == []


@pytest.mark.filterwarnings("ignore")
def test_a_lazy_layer_is_traced_once_it_knows_its_size():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    model(torch.randn(2, 6))
    graph = MaseGraph(model.eval(), {"input": torch.randn(2, 6)})
    assert [node.op for node in graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
