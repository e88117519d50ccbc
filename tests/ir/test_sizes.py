"""Graphs at other sizes than their examples': equal to eager, whatever the sizes of the examples were."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import transformers
from torch import nn

from mase_server import MaseGraph
from mase_server.ir.session import Session


@pytest.fixture(scope="module")
def t5():
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=50, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0, use_cache=False
    )
    return transformers.T5Model(config).eval()


def lengths(batch, source, target):
    return {
        "input_ids": torch.randint(0, 50, (batch, source)),
        "decoder_input_ids": torch.randint(0, 50, (batch, target)),
    }


@pytest.mark.parametrize("traced", [(3, 9), (4, 10), (7, 5), (8, 10), (10, 4)])
def test_lengths_of_encoder_and_decoder_are_never_taken_for_each_other(t5, traced):
    graph = MaseGraph(t5, lengths(2, *traced))
    assert graph.symbols == {"B": 2, "T": traced[0], "S": traced[1]}
    for source, target in (traced, (9, 6), (6, 9), (3, 14)):
        given = lengths(3, source, target)
        assert torch.allclose(graph.model(**given)[0], t5(**given)[0], atol=1e-5)


@pytest.mark.parametrize("traced", [(1, 5), (2, 6), (3, 5)])
def test_a_batch_and_a_length_are_never_taken_for_each_other(traced):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    graph = MaseGraph(model, {"input_ids": torch.randint(0, 50, traced)})
    assert set(graph.symbols) == {"B", "T"}
    for shape in (traced, (1, 6), (4, 6), (2, 11)):
        given = torch.randint(0, 50, shape)
        assert torch.allclose(graph.model(given)[0], model(given)[0], atol=1e-5)


class Strided(nn.Module):
    """Convolutions of one dimension; rows of patches where the input has two."""

    def __init__(self, strides, border, dims):
        super().__init__()
        kind = nn.Conv1d if dims == 1 else nn.Conv2d
        self.layers = nn.Sequential(
            *(kind(2, 2, each + border, stride=each, padding=border and each // 2) for each in strides)
        )

    def forward(self, x):
        return self.layers(x).flatten(2)


@pytest.mark.parametrize("dims", [1, 2])
def test_no_chain_of_strides_is_given_a_wrong_formula(dims):
    """A divisor that no table lists is found, or the size stays a number: 77 of 102 such chains were wrong."""
    right = 0
    for strides, border, length in product(
        [(15,), (21,), (36,), (5, 5), (14, 2), (2, 3, 5), (24,)], (0, 1, 3), (160, 224)
    ):
        model, shape = Strided(strides, border, dims).to("meta"), (2, 2, *[length] * dims)
        session = Session(model, {"x": torch.empty(shape, device="meta")})
        probed = session.probe(session.record())
        names = [name for name, size in probed.symbols.items() if name != "B"]
        text = probed.fitter.text(tuple(run.calls[-1].value.shape[-1] for run in probed.runs))
        if text == "?" or not names:
            continue
        for sizes in ([size + 7 * place for place in range(dims)] for size in range(90, 500, 7)):
            want = model(torch.empty(1, 2, *sizes, device="meta")).shape[-1]
            assert eval(text, {}, {"B": 1, **dict(zip(names, sizes, strict=True))}) == want, (
                strides,
                border,
                text,
                sizes,
            )
        right += 1
    assert right > (20 if dims == 1 else 3)
