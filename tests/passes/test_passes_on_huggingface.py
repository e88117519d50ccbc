"""Passes that must not change what a model gives, on small Hugging Face models of every kind."""

from functools import lru_cache

import pytest
import torch

from mase_server import MaseGraph, passes

pytest.importorskip("transformers")
pytest.importorskip("scipy")

import small_models

pytestmark = pytest.mark.slow

NAMES = [
    "bert", "deberta-v2", "albert", "gpt2", "llama", "mixtral", "t5", "bart", "vit", "swin", "convnext", "resnet",
    "whisper", "wav2vec2", "clip",
]  # fmt: skip
SLOW_DEVICES = {"mesh_shape": (1, 2), "flops": 1e8}


@lru_cache(maxsize=1)
def model_of(name):
    return small_models.build(name)


def graph_of(name):
    """The model's graph, made anew."""
    torch.manual_seed(0)
    model = model_of(name)
    return model, MaseGraph(model)


def found(name, transform, **pass_args):
    model, graph = graph_of(name)
    graph, result = transform(graph, pass_args)
    graph.fx_graph.lint()
    assert graph.check_against(model, rtol=1e-4, atol=1e-4)
    return graph, result


@pytest.mark.parametrize("name", NAMES)
def test_the_model_stays_what_it_computes(name):
    graph, raised = found(name, passes.raise_granularity_transform_pass)
    assert raised["raised"]
    graph.annotate(add_value=False)
    passes.verify_common_metadata_analysis_pass(graph)
    graph, lowered = passes.lower_granularity_transform_pass(graph)
    assert len(lowered["lowered"]) >= len(raised["raised"])
    assert graph.check_against(model_of(name))
    found(name, passes.raise_granularity_transform_pass, level="outermost")
    found(name, passes.attention_swap_transform_pass, to="eager")
    found(name, passes.attention_swap_transform_pass, to="sdpa")
    found(name, passes.logicnets_fusion_transform_pass)
    _, plan = found(name, passes.autosharding_analysis_pass, **SLOW_DEVICES)
    assert plan["seconds"] < plan["replicated_seconds"]
    _, resharded = found(name, passes.resharding_transform_pass, plan=plan["plan"])
    assert resharded["resharded"]


@pytest.mark.parametrize("name", NAMES)
def test_a_quantised_model_is_summarised_and_its_metadata_changed(name):
    _, graph = graph_of(name)
    count = sum(each.numel() for each in graph.module.parameters())
    graph, _ = passes.quantize_transform_pass(graph, {"default": "fixed(16,8)"})
    feed = graph.knowledge.feed(graph.arguments)
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(graph.model(*feed))
    graph.annotate()
    _, bits = passes.calculate_avg_bits_mg_analysis_pass(graph)
    assert bits["w_avg_bit"] == 16.0
    assert bits["memory_bytes"] < bits["original_bytes"] <= 4 * count
    _, summary = passes.summarize_quantization_analysis_pass(graph, {"measure": True})
    assert summary["parameters"] == {"original_bytes": bits["original_bytes"], "bytes": bits["memory_bytes"]}
    assert sum(each["total"] for each in summary["histogram"].values()) == len(summary["rows"])
    assert {row["format"] for row in summary["rows"] if row["mase_op"] == "linear"} <= {"fixed(16,8)"}
    q_config = {"data_out_width": 8, "data_out_frac_width": 4}
    graph, patched = passes.patch_metadata_transform_pass(graph, {"q_config": q_config})
    graph, cast = passes.metadata_value_type_cast_transform_pass(graph, {"fn": "list"})
    assert patched["patched"]
    assert cast["cast"] > len(graph.nodes)
    with torch.no_grad():
        for one, other in zip(torch.utils._pytree.tree_leaves(graph.model(*feed)), expected, strict=True):
            assert not isinstance(one, torch.Tensor) or torch.equal(one, other)
