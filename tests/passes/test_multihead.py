"""nn.MultiheadAttention and the layers that have one, written out: what eager torch gives."""

import math

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes

ROWS, KEYS, WIDTH = 5, 7, 8


class Layer(nn.Module):
    """One call, with other sizes for keys and values and masks from buffers."""

    def __init__(self, mask=None, padding=None, weights=False, average=True, **settings):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, **settings)
        self.register_buffer("mask", mask)
        self.register_buffer("padding", padding)
        self.given = {"need_weights": weights, "average_attn_weights": average}

    def forward(self, query, key, value):
        result, weights = self.attention(
            query, key, value, attn_mask=self.mask, key_padding_mask=self.padding, **self.given
        )
        return result if weights is None else (result, weights)


CAUSAL = torch.ones(ROWS, KEYS).triu(1).bool()
LAYERS = {
    "batch first": Layer(batch_first=True),
    "rows first": Layer(),
    "no bias": Layer(batch_first=True, bias=False),
    "separate sizes": Layer(batch_first=True, kdim=6, vdim=4),
    "boolean mask": Layer(mask=CAUSAL, batch_first=True),
    "added mask": Layer(mask=torch.zeros(ROWS, KEYS).masked_fill(CAUSAL, -math.inf), batch_first=True),
    "padding": Layer(padding=torch.arange(KEYS).expand(2, -1) > 4, batch_first=True),
    "weights": Layer(weights=True, batch_first=True),
    "weights of each head": Layer(weights=True, average=False, batch_first=True),
}


def inputs(layer):
    attention = layer.attention
    sizes = (ROWS, WIDTH), (KEYS, attention.kdim), (KEYS, attention.vdim)
    shapes = [(2, *size) if attention.batch_first else (size[0], 2, size[1]) for size in sizes]
    return [torch.randn(shape) for shape in shapes]


def written_out(model, *values, names=("query", "key", "value")):
    graph = MaseGraph(model.eval(), dict(zip(names, values, strict=True)))
    graph, found = passes.attention_swap_transform_pass(graph, {"to": "eager"})
    graph.propagate()
    return graph, found


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_written_out_gives_what_the_layer_gives(name):
    torch.manual_seed(1)
    layer = LAYERS[name].eval()
    values = inputs(layer)
    graph, found = written_out(layer, *values)
    assert len(found["swapped"]) == 1
    assert not [node for node in graph.nodes if node.target == "attention"]
    given, wanted = graph.model(*values), layer(*values)
    for one, other in zip(
        *([each] if isinstance(each, torch.Tensor) else each for each in (given, wanted)), strict=True
    ):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_layer_with_keys_of_its_own_stays():
    layer = Layer(batch_first=True, add_bias_kv=True)
    values = inputs(layer)
    graph, found = written_out(layer, *values)
    assert (found["swapped"], list(found["kept"].values())) == ([], ["it adds keys of its own"])
    assert torch.equal(graph.model(*values), layer(*values))


@pytest.mark.parametrize("first", [True, False])
def test_a_transformer_of_torch_is_written_out_after_it_was_taken_apart(first):
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.1, batch_first=True, norm_first=first)
    model, values = (
        nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)),
        torch.randn(2, ROWS, WIDTH),
    )
    graph = MaseGraph(model.eval(), {"input": values})
    graph, _ = passes.lower_granularity_transform_pass(graph)
    graph.propagate()
    graph, found = passes.attention_swap_transform_pass(graph, {"to": "eager"})
    assert len(found["swapped"]) == 2
    assert torch.allclose(graph.model(values), model(values), rtol=1e-5, atol=1e-5)
