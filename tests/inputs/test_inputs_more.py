"""Inputs that models are handed beside their first: states, lists, options asserted on; and other ways to be made.

Ground truth: what is found runs in plain eager PyTorch.
"""

import pytest
import torch

from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.found import Found
from tests.inputs.test_inputs_repairs import HEAD, looked_at, runs_in_eager

#: What a model is handed -> its constructor's layers, its forward's parameters and body, and the inputs expected.
HANDED = {
    "the state of a GRU, time in front": (
        "self.table, self.rnn = nn.Embedding(50, 12), nn.GRU(12, 20, 3)",
        "tokens, hidden",
        "return self.rnn(self.table(tokens), hidden)[0]",
        "tokens: i64[T=16, B=2] < 50; hidden: f32[3, B, 20]",
    ),
    "the state of a GRU, batch in front": (
        "self.rnn = nn.GRU(12, 20, batch_first=True, bidirectional=True)",
        "x, h0",
        "return self.rnn(x, h0)[0]",
        "x: f32[B=2, T=16, 12]; h0: f32[2, B, 20]",
    ),
    "both states of an LSTM": (
        "self.rnn = nn.LSTM(12, 20, batch_first=True)",
        "x, hidden",
        "return self.rnn(x, hidden)[0]",
        "x: f32[B=2, T=16, 12]; hidden: (f32[1, B, 20], f32[1, B, 20])",
    ),
    "the state of a cell": (
        "self.cell = nn.GRUCell(12, 20)",
        "x, hx",
        "return self.cell(x, hx)",
        "x: f32[B=2, 12]; hx: f32[B, 20]",
    ),
    "a list of features": (
        "self.layer = nn.Conv2d(7, 5, 1)",
        "features: list[torch.Tensor]",
        "return sum(self.layer(each) for each in features)",
        None,
    ),
    "an option that it asserts on": (
        "self.layer, self.labels = nn.Conv2d(3, 8, 1), nn.Embedding(11, 8)",
        "x, labels_of=None, y=None",
        "assert y is not None, 'class-conditional'\n        return self.layer(x) + self.labels(y)[:, :, None, None]",
        "x: f32[B=2, 3, H=32, W=32]; y: i64[B] < 11",
    ),
    "a cloud of points": (
        "self.layer = nn.Linear(3, 9)",
        "xyz",
        "b, n, _ = xyz.shape\n        return self.layer(xyz).max(1).values",
        None,
    ),
    "images with channels behind": (
        "self.norm = nn.LayerNorm(6)",
        "x",
        "b, h, w, c = x.shape\n        return self.norm(x).reshape(b, h * w, c)",
        None,
    ),
    "edges with weights": (
        "self.layer = nn.Linear(5, 4)",
        "x, edge_index, edge_weight",
        "source, target = edge_index\n        sent = self.layer(x)[source] * edge_weight[:, None]\n"
        "        return torch.zeros(x.shape[0], 4).index_add(0, target, sent)",
        None,
    ),
}


@pytest.mark.parametrize(("layers", "parameters", "body", "expected"), HANDED.values(), ids=HANDED)
def test_what_a_model_is_handed_is_found(workspace, layers, parameters, body, expected):
    text = f"""{HEAD}class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, {parameters}):
        {body}
"""
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert isinstance(runs_in_eager(found), torch.Tensor)
    assert expected is None or format_inputs(found.spec) == expected
    assert found.found.startswith("found by search: ")


FACTORIES = '''
class Tower(nn.Module):
    """Defaults that do not go together, as where only factories are meant to be called."""

    def __init__(self, width=8, taken=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, width, 3), nn.Conv2d(taken, 4, 1))

    def forward(self, x):
        return self.layers(x)


def _create(**settings):
    return Tower(**settings)


def tower_small(**more):
    return _create(**dict(width=24, taken=24, **more))
'''


def test_defaults_that_do_not_go_together_give_way_to_a_factory(workspace):
    (found,) = looked_at(workspace, HEAD + FACTORIES)
    assert isinstance(found, Found), found
    assert (found.arguments, found.arguments_from) == ({"width": 24, "taken": 24}, "usage")
    assert runs_in_eager(found).shape == (2, 4, 30, 30)


def test_a_mistake_of_a_model_made_as_the_file_makes_it_is_not_made_away_with(workspace):
    text = HEAD + FACTORIES + "\n\ndef main():\n    return Tower(8, taken=16)\n"
    (found,) = looked_at(workspace, text)
    assert found.arguments == {"width": 8, "taken": 16}


def test_a_class_that_is_made_by_its_own_method_is_made_so(workspace):
    (workspace / "README.md").write_text('```python\nfrom net import Net\nmodel = Net.from_name("small")\n```\n')
    text = f"""{HEAD}class Net(nn.Module):
    SIZES = {{"small": {{"width": 5}}}}

    def __init__(self, sizes=None):
        super().__init__()
        assert isinstance(sizes, dict), "sizes should be a dict"
        self.layer = nn.Conv2d(3, sizes["width"], 1)

    @classmethod
    def from_name(cls, name):
        return cls(cls.SIZES[name])

    def forward(self, x):
        return self.layer(x)
"""
    (found,) = looked_at(workspace, text)
    assert (found.arguments, found.arguments_from) == ({"sizes": {"width": 5}}, "usage")
    assert runs_in_eager(found).shape[1] == 5
