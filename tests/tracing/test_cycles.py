"""A module that is a part of itself is told, with the line that makes it so; sharing is no cycle."""

import inspect
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from mase_server.ir.allowed import UnwritableName
from mase_server.tracing.recording.state import (
    HoldsItselfError,
    NestedTooDeepError,
    NotHashableError,
    NotInitialisedError,
    require_tree,
)


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


class Unmade(nn.Module):
    def __init__(self):
        self.size = 3

    def forward(self, x):
        return x * self.size


@pytest.mark.parametrize(
    ("model", "text"), [(Unmade(), "the model, of class Unmade"), (nn.Sequential(Unmade()), "the part '0'")]
)
def test_a_module_without_the_constructor_of_torch_is_told_with_its_own(model, text):
    with pytest.raises(AttributeError):
        model.eval()
    with pytest.raises(NotInitialisedError, match=rf"^{text}.*its __init__ does not call super\(\)") as caught:
        require_tree(model)
    assert caught.value.place == (__file__, line_of(Unmade, "def __init__"))


@dataclass
class Compared(nn.Module):
    size: int = 3

    def __post_init__(self):
        super().__init__()

    def forward(self, x):
        return x * self.size


def test_a_module_that_cannot_be_hashed_is_told_at_its_class():
    model = nn.Sequential(Compared())
    assert model(torch.ones(2)).tolist() == [3, 3]
    with pytest.raises(TypeError, match="unhashable"):
        model.eval()
    with pytest.raises(NotHashableError, match=r"^the part '0' of the model, of class Compared.*eq=False") as caught:
        require_tree(model)
    assert caught.value.place == (__file__, line_of(Compared, "@dataclass"))


def test_parts_that_are_shared_are_no_cycle():
    model, x = Shared().eval(), torch.randn(3, 4)
    assert torch.equal(MaseGraph(model, {"x": x}).model(x), model(x))


def test_a_cycle_whose_line_is_in_no_file_is_told_without():
    model = nn.Sequential()
    model.add_module("again", model)
    with pytest.raises(HoldsItselfError) as caught:
        require_tree(model)
    assert caught.value.place is None


def nested(depth):
    found = nn.Sequential(nn.Linear(4, 4))
    for _ in range(depth):
        found = nn.Sequential(found)
    return found


@pytest.fixture
def limit():
    """Python's usual limit, whatever ran before: torch.compile raises it for the rest of its process."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield 1000
    sys.setrecursionlimit(before)


def deepest_that_runs(x):
    """How deep parts may be nested so that torch runs the model: read from torch itself."""
    for depth in range(150, 400):
        try:
            nested(depth)(x)
        except RecursionError:
            return depth - 1
    raise AssertionError


def test_a_model_that_runs_is_recorded_however_deep_its_parts_are_nested(limit):
    x = torch.rand(2, 4)
    depth = deepest_that_runs(x)
    graph = MaseGraph(nested(depth), {"input": x})
    assert [node.target for node in graph.nodes if node.op == "call_module"] == [".".join(["0"] * (depth + 1))]
    with pytest.raises(UnwritableName, match=f"is {depth + 1} deep in containers"):
        graph.model(x)
    with pytest.raises(RecursionError):
        MaseGraph(nested(2 * depth), {"input": x}).model  # noqa: B018 - it is recorded when it is read
    assert sys.getrecursionlimit() == limit


def test_parts_that_no_walk_of_torch_reaches_are_told():
    model = nested(sys.getrecursionlimit())
    with pytest.raises(RecursionError):
        model.eval()
    with pytest.raises(NestedTooDeepError, match=f"nested more than {sys.getrecursionlimit()} deep"):
        MaseGraph(model).model  # noqa: B018 - it is recorded when it is read
