"""Average bits and the memory of weights, against sums made by hand."""

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from tests.ir.models import Mlp


def figures(graph, **pass_args):
    graph.annotate(add_value=False)
    return passes.calculate_avg_bits_mg_analysis_pass(graph, pass_args)[1]


class Language(nn.Module):
    """Embedding shared with the head; 10 words of 4."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.inner = nn.Embedding(10, 4), nn.LayerNorm(4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.norm(self.inner(self.words(ids))))


def language(**pass_args):
    graph = MaseGraph(Language().eval(), {"ids": torch.zeros(1, 3, dtype=torch.long)})
    return passes.quantize_transform_pass(graph, pass_args)[0] if pass_args else graph


def test_bits_are_averaged_over_elements():
    graph = MaseGraph(Mlp(), {"x": torch.randn(1, 28, 28)}, add_metadata_args={})
    _, found = passes.calculate_avg_bits_mg_analysis_pass(graph)
    assert (found["data_avg_bit"], found["w_avg_bit"], found["memory_density"]) == (32.0, 32.0, 1.0)
    for name in ("fc1", "fc2", "fc3"):
        node = next(node for node in graph.nodes if node.name == name)
        node.meta["mase"]["common"]["args"]["weight"].update(type="fixed", precision=[8, 4])
    _, found = passes.calculate_avg_bits_mg_analysis_pass(graph)
    weights, biases = 784 * 784 * 2 + 7840, 784 * 2 + 10
    assert found["w_avg_bit"] == pytest.approx((8 * weights + 32 * biases) / (weights + biases))
    assert found["data_avg_bit"] == 32.0


def test_a_graph_without_products_has_no_bits():
    graph = MaseGraph(nn.Flatten(), {"input": torch.randn(2, 3, 4)}, add_metadata_args={})
    assert passes.calculate_avg_bits_mg_analysis_pass(graph)[1] == {
        "data_avg_bit": 0.0, "w_avg_bit": 0.0, "memory_bytes": 0, "original_bytes": 0, "memory_density": 1.0,
    }  # fmt: skip


def test_what_blocks_share_is_counted():
    """8 bits an element, and an exponent of 8 bits for every 16 of them."""
    model = nn.Sequential(nn.Linear(32, 32))
    graph = MaseGraph(model, {"input": torch.randn(2, 32)})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "mxint(8,block_size=(16,))"})
    found = figures(graph)
    assert (found["data_avg_bit"], found["w_avg_bit"]) == (8.5, 8.5)
    assert found["memory_bytes"] == (32 * 32 + 32) * 8.5 / 8


def test_memory_counts_every_parameter_once_in_its_widest_format():
    graph = language(by="type", linear="fixed(8,4)")
    shared, inner, norm = 40, 16 + 4, 8
    found = figures(graph)
    # The embedding reads the shared weight in f32, so that it has to be kept so.
    assert found["original_bytes"] == 4 * (shared + inner + norm)
    assert found["memory_bytes"] == 4 * shared + inner + 4 * norm
    assert found["w_avg_bit"] == 8.0
    both = figures(language(by="type", linear="fixed(8,4)", embedding="fixed(16,8)"))
    assert both["memory_bytes"] == 2 * shared + inner + 4 * norm
    assert both["memory_density"] == pytest.approx(4 * (shared + inner + norm) / (2 * shared + inner + 4 * norm))


def test_only_the_named_operators_are_counted():
    graph = language(by="type", embedding="fixed(8,4)")
    assert figures(graph)["w_avg_bit"] == 32.0
    assert figures(graph, operators=["embedding"])["w_avg_bit"] == 8.0


def test_a_parameter_that_is_multiplied_by_itself_is_a_weight():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(4, 6))

        def forward(self, x):
            return x @ self.matrix.t()

    graph = MaseGraph(Product(), {"x": torch.randn(2, 6)})
    graph, _ = passes.quantize_transform_pass(
        graph, {"by": "type", "matmul": {"config": {"name": "fixed", "data_in_width": 4, "data_in_frac_width": 2}}}
    )
    found = figures(graph)
    assert (found["data_avg_bit"], found["w_avg_bit"], found["memory_bytes"]) == (4.0, 4.0, 12)


def test_a_pruned_weight_has_the_bits_that_it_is_rounded_to():
    graph = MaseGraph(nn.Sequential(nn.Linear(4, 4, bias=False)), {"input": torch.randn(2, 4)})
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,4)"})
    graph, _ = passes.prune_transform_pass(graph, {"weight": {"sparsity": 0.5}})
    found = figures(graph)
    assert (found["w_avg_bit"], found["memory_bytes"]) == (8.0, 16)


def test_common_metadata_is_asked_for():
    graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    with pytest.raises(ValueError, match=r"node 'input_1' has no common metadata: run add_common_metadata_analysis"):
        passes.calculate_avg_bits_mg_analysis_pass(graph)
