"""The recorded graph computes what the model computes, bit for bit, with real weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from mase_server import MaseGraph
from tests.examples.cases import CASES, Case, Sizes

pytestmark = pytest.mark.slow

GENERIC = [pytest.param(case, sizes, id=f"{case.file}-{sizes}") for case in CASES for sizes in case.others]


@pytest.fixture(params=CASES, ids=lambda case: case.file)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def built(case: Case) -> nn.Module:
    """The example's model with weights that depend on nothing but the seed, norms and biases not left trivial."""
    torch.manual_seed(0)
    model = case.build(case.load())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def flat(value: Any) -> list[Any]:
    """The leaves of a result: tuples, lists, dicts and model outputs opened; None left out."""
    if isinstance(value, Mapping):
        return [leaf for inner in value.values() for leaf in flat(inner)]
    if isinstance(value, tuple | list):
        return [leaf for inner in value for leaf in flat(inner)]
    return [] if value is None else [value]


def results(model: nn.Module, inputs: Mapping[str, Any], seed: int = 1) -> list[torch.Tensor]:
    """The tensors that a forward with this seed gives."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return flat(model(**inputs))


def assert_equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    """Same number, dtypes, shapes and bits."""
    assert [(t.dtype, tuple(t.shape)) for t in ours] == [(t.dtype, tuple(t.shape)) for t in theirs]
    different = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not torch.equal(a, b)]
    assert not different, f"results {different} of {len(ours)} differ from eager"


def traced(model: nn.Module, case: Case, sizes: Sizes) -> nn.Module:
    """The graph module of a model that was traced on inputs of these sizes."""
    torch.manual_seed(7)
    return MaseGraph(model, cf_args=case.inputs(sizes)).model


def tensors_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs without plain Python values: these are constants of a graph, as fx's concrete arguments are."""
    return {name: value for name, value in inputs.items() if not isinstance(value, bool)}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_the_graph_equals_eager(case, training):
    model = built(case).train(training)
    graph = traced(model, case, case.sizes)
    inputs = case.inputs(case.sizes)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    theirs = results(model, inputs)
    model.load_state_dict(state)  # batch norm counts in train mode
    assert_equal(results(graph, tensors_of(inputs)), theirs)


@pytest.mark.parametrize(("case", "sizes"), GENERIC)
def test_a_generic_graph_equals_eager_at_other_sizes(case, sizes):
    model = built(case).eval()
    graph = traced(model, case, case.sizes)
    inputs = case.inputs(sizes)
    assert_equal(results(graph, tensors_of(inputs)), results(model, inputs))


def test_tracing_leaves_the_model_as_it_was(case):
    model = built(case).eval()
    inputs = case.inputs(case.sizes)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = results(model, inputs)
    traced(model, case, case.sizes)
    assert not model.training
    assert [(name, t.device.type) for name, t in model.state_dict().items()] == [(name, "cpu") for name in state]
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert_equal(results(model, inputs), before)


def test_the_graph_goes_into_every_module_of_the_file(case):
    model = built(case).eval()
    graph = traced(model, case, case.sizes)
    modules = dict(graph.named_modules())
    leaves = {type(modules[str(node.target)]) for node in graph.graph.nodes if node.op == "call_module"}
    assert not {leaf for leaf in leaves if leaf.__module__.startswith("example_")}
    assert sum(node.op.startswith("call_") for node in graph.graph.nodes) >= 7


def test_gradients_flow_through_the_graph():
    case = next(case for case in CASES if case.file == "mlp.py")
    model = built(case).eval()
    inputs = case.inputs(case.sizes)
    expected = torch.autograd.grad(model(**inputs).square().sum(), list(model.parameters()))
    graph = traced(model, case, case.sizes)
    given = torch.autograd.grad(graph(**inputs).square().sum(), list(model.parameters()))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(given, expected, strict=True))
