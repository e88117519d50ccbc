"""Attention written in another way gives what eager gives; what is not the same attention stays."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from tests.ir.models import bert_inputs, bert_tiny

LOW = torch.finfo(torch.float32).min


class Attention(nn.Module):
    """Attention by a function of (q, k, v, mask)."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, q, k, v, mask):
        return self.function(q, k, v, mask)


def softmaxed(scores, v):
    return F.softmax(scores, dim=-1) @ v


def scaled_later(q, k, v, mask):
    """The scaling comes after the bias, and so scales it."""
    return softmaxed((q @ k.mT + mask.float()) * 0.25, v)


def filled_twice(q, k, v, mask):
    causal = torch.ones(5, 7, dtype=torch.bool).tril()
    scores = (q @ k.transpose(2, 3) / math.sqrt(8)).masked_fill(~causal, LOW)
    return softmaxed(scores.masked_fill(mask, LOW), v)


def chosen(q, k, v, mask):
    scores = torch.where(mask, torch.tensor(-math.inf), torch.matmul(q, k.transpose(-1, -2)))
    return softmaxed(scores, v)


def flat(q, k, v, mask):
    """Batch and heads are one dimension."""
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v).view(2, 3, 5, 8)


def dropped(q, k, v, mask):
    return F.dropout(torch.softmax((q * 0.5) @ k.mT, dim=-1), 0.3, training=False).to(v.dtype) @ v


WRITTEN = [scaled_later, filled_twice, chosen, flat, dropped]


def data():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    mask = torch.rand(2, 1, 5, 7) < 0.4
    mask[..., 0] = False
    return {"q": q, "k": k, "v": v, "mask": mask}


def operators(graph):
    return [getattr(node.target, "__name__", node.target) for node in graph.nodes if node.op.startswith("call")]


def swapped(function, to, inputs=None):
    model, inputs = Attention(function).eval(), inputs or data()
    graph, found = passes.attention_swap_transform_pass(MaseGraph(model, inputs), {"to": to})
    graph.fx_graph.lint()
    return model, inputs, graph, found


@pytest.mark.parametrize("function", WRITTEN, ids=lambda function: function.__name__)
def test_written_out_attention_becomes_one_operator(function):
    model, inputs, graph, found = swapped(function, "sdpa")
    assert len(found["swapped"]) == 1
    assert found["kept"] == {}
    assert "softmax" not in operators(graph)
    assert operators(graph).count("scaled_dot_product_attention") == 1
    torch.testing.assert_close(graph.model(**inputs), model(**inputs))
    other = {**inputs, "q": torch.randn(2, 3, 5, 8)}
    torch.testing.assert_close(graph.model(**other), model(**other))


def whole_rows(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~mask)


def biased(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, torch.where(mask, -2.0, 1.0), scale=0.3)


def causal(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True)


@pytest.mark.parametrize("function", [whole_rows, biased, causal, grouped], ids=lambda function: function.__name__)
def test_one_operator_is_written_out(function):
    inputs = data()
    inputs["mask"][0, 0, 2] = True
    model, inputs, graph, found = swapped(function, "eager", inputs)
    assert len(found["swapped"]) == 1
    assert "scaled_dot_product_attention" not in operators(graph)
    expected = model(**inputs)
    assert not expected.isnan().any()
    torch.testing.assert_close(graph.model(**inputs), expected)
    back, found = passes.attention_swap_transform_pass(graph, {"to": "sdpa", "only": [""]})
    torch.testing.assert_close(back.model(**inputs), expected)


def test_what_is_written_out_says_which_call_it_was_part_of():
    before = MaseGraph(Attention(causal), data())
    names = {node.name for node in before.fx_graph.nodes}
    (call,) = [node.name for node in before.fx_graph.nodes if "scaled_dot" in str(node.target)]
    graph, _ = passes.attention_swap_transform_pass(before, {"to": "eager"})
    new = [node for node in graph.fx_graph.nodes if node.name not in names]
    assert {"matmul", "softmax"} <= {node.name.partition("_")[0] for node in new}
    assert {node.meta.get("part_of") for node in new} == {call}


def weights_too(q, k, v, mask):
    weights = torch.softmax(q @ k.mT, dim=-1)
    return weights @ v, weights


def scores_too(q, k, v, mask):
    scores = q @ k.mT
    return softmaxed(scores * 0.3, v) + scores.mean()


def capped(q, k, v, mask):
    return softmaxed(torch.tanh(q @ k.mT / 30) * 30, v)


def near(q, k, v, mask):
    return softmaxed((q @ k.mT).masked_fill(mask, -100.0), v)


def by_a_tensor(q, k, v, mask):
    return softmaxed((q @ k.mT) * q.abs().max(), v)


def over_heads(q, k, v, mask):
    return torch.softmax(q @ k.mT, dim=1) @ v


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (weights_too, "its weights are used elsewhere too"),
        (scores_too, "its scores are used elsewhere too, at matmul"),
        (capped, "tanh changes its scores in another way"),
        (near, "masked_fill replaces scores by -100.0, which is not far enough below them"),
        (by_a_tensor, "mul scales its scores by something that is no number"),
        (over_heads, "the softmax is over dimension 1"),
    ],
)
def test_what_one_operator_does_not_compute_stays(function, reason):
    model, inputs, graph, found = swapped(function, "sdpa")
    assert found == {"swapped": [], "kept": {"softmax": reason}}
    for mine, eager in zip(graph.model(**inputs), model(**inputs), strict=True):
        assert torch.equal(mine, eager)


def test_weights_that_are_dropped_at_random_stay():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = nn.Dropout(0.5)

        def forward(self, q, k, v):
            return self.dropout(torch.softmax(q @ k.mT, dim=-1)) @ v

    inputs = {name: torch.randn(2, 4, 8) for name in "qkv"}
    _, found = passes.attention_swap_transform_pass(MaseGraph(Dropping().train(), inputs))
    assert found["kept"] == {"softmax": "it drops weights at random, and one operator would drop other ones"}
    _, found = passes.attention_swap_transform_pass(MaseGraph(Dropping().eval(), inputs))
    assert found["swapped"] == ["matmul_1"]


def test_a_softmax_that_is_no_attention_is_not_mentioned():
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 2))
    _, found = passes.attention_swap_transform_pass(MaseGraph(model, {"input": torch.randn(3, 4)}))
    assert found == {"swapped": [], "kept": {}}


def test_the_graph_of_a_model_is_generic_and_annotated_afterwards():
    model, inputs = bert_tiny(), dict(bert_inputs())
    graph, found = passes.attention_swap_transform_pass(MaseGraph(model, inputs), {"to": "eager"})
    assert len(found["swapped"]) == 2
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    assert graph.check_against(model)
    longer = {name: torch.cat([value, value], dim=1) for name, value in inputs.items()}
    assert graph.check_against(model, longer)
    graph, found = passes.attention_swap_transform_pass(graph, {"only": ["bert.encoder.layer.1"]})
    assert len(found["swapped"]) == 1
    assert graph.check_against(model, longer)


def test_another_word_is_quoted():
    with pytest.raises(ValueError, match="attention_swap: to is 'flash', expected sdpa or eager"):
        swapped(causal, "flash")
