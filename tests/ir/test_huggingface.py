"""Hugging Face base models of every kind: traced without being given inputs, annotated, and equal to eager, also when
they come from a checkpoint.

A sample of `benchmarks/huggingface.py`, which has them all.
"""

from __future__ import annotations

import pytest
import small_models as models
import torch

from mase_server import MaseGraph

SAMPLE = (
    "bert", "deberta-v2", "funnel", "gpt2", "llama", "mixtral", "qwen2_moe", "mamba", "t5", "vit", "swin", "wav2vec2",
    "whisper", "clip",
)  # fmt: skip


KIND = {name: kind for kind, name in models.names()}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_is_traced_annotated_and_equal_to_eager_also_from_a_checkpoint(name):
    outcome = models.check(KIND[name], name)
    assert outcome.reason == ""
    assert (outcome.traced, outcome.annotated, outcome.equal, outcome.reloaded) == (True, True, True, True)
    assert outcome.nodes > 20


def test_the_list_has_at_least_sixty_models_of_all_kinds():
    counts = {kind: len(text.split()) for kind, text in models.KINDS.items()}
    assert sum(counts.values()) >= 60
    assert len(KIND) == sum(counts.values())
    assert counts["encoder"] >= 22
    assert counts["decoder"] >= 28
    assert min(counts.values()) >= 5


def test_the_comparison_notices_another_result():
    model = models.build("bert")
    graph = MaseGraph(model)
    arguments = dict(graph.arguments)
    assert models.same(graph, model, arguments)
    with torch.no_grad():
        graph.fx_graph  # noqa: B018 - the graph is bound to the model's own weights
    for node in graph.fx_graph.nodes:
        if node.op == "call_function" and "scaled_dot" in node.name:
            node.kwargs = {**node.kwargs, "is_causal": not node.kwargs.get("is_causal", False), "attn_mask": None}
    graph.model.recompile()
    assert not models.same(graph, model, arguments)
