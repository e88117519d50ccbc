"""Recording a model and comparing its graph with eager."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from mase_server import MaseGraph
from mase_server.ir.session import Session
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.recorder import Recorder
from mase_server.tracing.recording.shadow import Shadows


def record(model: nn.Module, *args: Any, **kwargs: Any) -> Run:
    """One recording on these arguments."""
    return Recorder(model, Shadows()).record(args, kwargs)


def graph_of(model: nn.Module, arguments: Mapping[str, Any]) -> MaseGraph:
    """The probed graph."""
    return MaseGraph(model.eval(), dict(arguments))


def flat(value: Any) -> list[Any]:
    """The tensors and numbers of a result, in order, whatever holds them."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in flat(item)]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in flat(item)]
    if dataclasses.is_dataclass(value):
        return [leaf for field in dataclasses.fields(value) for leaf in flat(getattr(value, field.name))]
    if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor):
        return flat(vars(value))
    return [] if value is None else [value]


def run_once(model: nn.Module, inputs: Mapping[str, Any]) -> Any:
    """One forward with a fixed seed, on copies of the inputs."""
    torch.manual_seed(0)
    with torch.no_grad():
        return model(**{name: copied(value) for name, value in inputs.items()})


def copied(value: Any) -> Any:
    """The same value with tensors that nobody else holds."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    return {key: copied(item) for key, item in value.items()} if type(value) is dict else value


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal in number, dtype, shape and every bit."""
    mine, other = flat(ours), flat(theirs)
    assert [kind(value) for value in mine] == [kind(value) for value in other]
    for one, two in zip(mine, other, strict=True):
        assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two


def kind(value: Any) -> Any:
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else type(value)


def assert_equal_to_eager(model: nn.Module, inputs: Mapping[str, Any], *others: Mapping[str, Any]) -> MaseGraph:
    """The graph traced on `inputs` gives what the model gives, there and on `others`; and the model is unchanged."""
    model.eval()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    graph = graph_of(model, {name: copied(value) for name, value in inputs.items()})
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    names = {node.target for node in graph.nodes if node.op == "placeholder"}
    for given in (inputs, *others):
        tensors = {name: value for name, value in given.items() if name in names}
        model.load_state_dict(state)
        theirs = run_once(model, given)
        model.load_state_dict(state)
        assert_same(run_once(graph.model, tensors), theirs)
    return graph


def targets(graph: MaseGraph | fx.Graph) -> list[str]:
    """The targets of all calls, as text."""
    nodes = graph.nodes if isinstance(graph, MaseGraph) else list(graph.nodes)
    return [
        node.target if isinstance(node.target, str) else node.target.__name__
        for node in nodes
        if node.op.startswith("call_")
    ]


def session(model: nn.Module, **arguments: Any) -> Session:
    """A session on these arguments."""
    return Session(model.eval(), arguments)
