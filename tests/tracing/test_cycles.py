"""A module that is a part of itself is told, with the line that makes it so; sharing is no cycle."""

import inspect

import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from mase_server.tracing.cycles import HoldsItselfError, require_tree


class Itself(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.me = self

    def forward(self, x):
        return self.fc(x)


class Below(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Sequential(nn.ReLU()))
        self.body[0].top = self


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.Linear(4, 4)
        self.body = nn.Sequential(layer, layer, nn.Sequential(layer))
        self.again, self.up, self.none = self.body, [self], nn.Identity()
        self.none = None

    def forward(self, x):
        return self.body(x) + self.again(x)


def line_of(kind, text):
    lines, first = inspect.getsourcelines(kind)
    return first + next(at for at, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(("kind", "path", "text"), [(Itself, "me", "self.me ="), (Below, "body.0.top", ".top =")])
def test_a_module_that_holds_itself_is_told_with_its_line(kind, path, text):
    model = kind()
    with pytest.raises(RecursionError):
        model.eval()
    with pytest.raises(HoldsItselfError, match=f"the part '{path}' of the model is the {kind.__name__} that") as caught:
        require_tree(model)
    assert caught.value.place == (__file__, line_of(kind, text))


def test_the_graph_of_one_is_refused_with_that():
    with pytest.raises(HoldsItselfError, match="Keep it in a list"):
        MaseGraph(Itself(), {"x": torch.zeros(3, 4)})


def test_parts_that_are_shared_are_no_cycle():
    model, x = Shared().eval(), torch.randn(3, 4)
    assert torch.equal(MaseGraph(model, {"x": x}).model(x), model(x))


def test_a_cycle_whose_line_is_in_no_file_is_told_without():
    model = nn.Sequential()
    model.add_module("again", model)
    with pytest.raises(HoldsItselfError) as caught:
        require_tree(model)
    assert caught.value.place is None
