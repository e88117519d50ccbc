"""remove_loss: what a model gives beside its losses stays as it was, against the model itself."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

from mase_server import MaseGraph, passes
from mase_server.building import Build
from mase_server.passes.verilog.told import build


class Trained(nn.Module):
    """A layer, its loss, and whatever is made of both."""

    def __init__(self, results):
        super().__init__()
        self.layer, self.results = nn.Linear(4, 3), results

    def forward(self, x, y):
        logits = self.layer(x)
        return self.results(logits, F.cross_entropy(logits, y))


def graph(results):
    torch.manual_seed(0)
    return MaseGraph(Trained(results).eval(), {"x": torch.randn(5, 4), "y": torch.tensor([0, 1, 2, 1, 0])})


def given(graph):
    torch.manual_seed(1)
    return graph.model(torch.randn(5, 4), torch.tensor([2, 2, 1, 0, 0]))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (lambda logits, loss: (logits, loss), lambda logits: (logits, None)),
        (lambda logits, loss: {"loss": loss / 2 + 1, "out": logits}, lambda logits: {"loss": None, "out": logits}),
        (lambda logits, loss: loss, lambda logits: logits),
        (lambda logits, loss: (logits.relu(), [loss, loss + 1]), lambda logits: (logits.relu(), [None, None])),
    ],
    ids=["beside", "computed", "alone", "several"],
)  # fmt: skip
def test_the_other_results_are_those_of_the_model(results, expected):
    logits, _ = given(graph(lambda *both: both))
    changed, found = passes.remove_loss_transform_pass(graph(results))
    assert found["removed"][0] == "cross_entropy"
    assert not any("cross_entropy" in node.name for node in changed.nodes)
    torch.testing.assert_close(given(changed), expected(logits), rtol=0, atol=0)


def test_a_graph_without_losses_stays_as_it_is():
    before = MaseGraph(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {"input": torch.randn(2, 4)})
    names = [node.name for node in before.fx_graph.nodes]
    changed, found = passes.remove_loss_transform_pass(before)
    assert (found, [node.name for node in changed.fx_graph.nodes]) == ({"removed": []}, names)


def test_results_in_an_object_keep_their_places():
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 20,
    }
    model = BertForSequenceClassification(BertConfig(**sizes)).eval()
    inputs = {"input_ids": torch.randint(0, 20, (2, 6)), "labels": torch.tensor([0, 1])}
    changed, found = passes.remove_loss_transform_pass(MaseGraph(model, inputs))
    assert found["removed"] == ["cross_entropy"]
    result = changed.model(*inputs.values())
    assert result.loss is None
    torch.testing.assert_close(result.logits, model(inputs["input_ids"]).logits)


def test_hardware_gives_what_a_loss_compares():
    told = build(graph(lambda logits, loss: (logits, loss)), Build(), "Trained")
    assert (told["unsupported"], told["refusal"]) == ([], None)
    assert told["steps"][0] == "remove_loss()"
    assert "data_out_1" not in told["text"]
    assert "data_in_1" not in told["text"]
