"""MaseTracer as fx knows tracers: leaves, create_node, and proxies for subclasses that override how these work."""

from __future__ import annotations

import functools
import inspect
import types

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from mase_server import MaseTracer
from mase_server.ir.build import build_graph_module


def squared_sum(x, y, *, scale=1.0):
    """A function with a body of several torch calls."""
    return (x * x + y * y) * scale


def pair(x):
    """Gives two results."""
    return x + 1, x - 1


def unchanged(x):
    """Gives what it takes."""
    return x


helpers = types.ModuleType("helpers")
helpers.squared_sum = squared_sum
helpers._private = unchanged
helpers.number = 3


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return functional.relu(self.linear(x))


class Model(nn.Module):
    """Calls everything above."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        up, down = pair(self.inner(x))
        return unchanged(squared_sum(up, down, scale=0.5))


X = torch.randn(3, 4)


def targets(graph):
    return [node.target for node in graph.nodes if node.op.startswith("call_")]


def test_the_signature_is_the_documented_one():
    parameters = inspect.signature(MaseTracer).parameters
    assert {name: one.default for name, one in parameters.items()} == {
        "custom_leaf_modules": (),
        "custom_leaf_layers": (),
        "custom_leaf_functions": (),
        "param_shapes_constant": False,
    }


# Leaves


def test_a_leaf_layer_is_one_node():
    graph = MaseTracer(custom_leaf_layers=(Inner,)).trace(Model(), {"x": X})
    assert "inner" in targets(graph)
    assert functional.relu not in targets(graph)


def test_a_leaf_function_is_one_node_whose_target_is_the_function():
    model = Model().eval()
    tracer = MaseTracer(custom_leaf_functions=(squared_sum, pair))
    graph = tracer.trace(model, {"x": X})
    assert [one for one in targets(graph) if one in (squared_sum, pair)] == [pair, squared_sum]
    node = next(node for node in graph.nodes if node.target is squared_sum)
    assert node.kwargs == {"scale": 0.5}
    traced = build_graph_module(graph, model, tracer.run.constants)
    assert torch.equal(traced(X), model(X))
    other = torch.randn(7, 4)
    assert torch.equal(traced(other), model(other))


def test_the_functions_of_a_leaf_module_are_leaves_but_not_its_private_ones():
    graph = MaseTracer(custom_leaf_modules=(helpers,)).trace(Model(), {"x": X})
    assert squared_sum in targets(graph)
    assert unchanged not in targets(graph)


def test_a_leaf_function_that_gives_its_argument_back_is_a_node_of_its_own():
    model = Model().eval()
    tracer = MaseTracer(custom_leaf_functions=(unchanged,))
    graph = tracer.trace(model, {"x": X})
    assert targets(graph)[-1] is unchanged
    assert torch.equal(build_graph_module(graph, model, tracer.run.constants)(X), model(X))


def make_scaled(factor):
    def scaled(x, extra=2.0):
        return x * factor + extra

    return scaled


def test_a_closure_with_defaults_is_caught_wherever_it_is_referred_to():
    scaled = make_scaled(3.0)
    bound = functools.partial(scaled, extra=1.0)

    class Holder(nn.Module):
        def forward(self, x, function=bound):
            return function(x) + scaled(x)

    model = Holder()
    tracer = MaseTracer(custom_leaf_functions=(scaled,))
    graph = tracer.trace(model, {"x": X})
    assert targets(graph).count(scaled) == 2
    assert torch.equal(build_graph_module(graph, model, tracer.run.constants)(X), model(X))
    assert torch.equal(scaled(X), X * 3.0 + 2.0)


def test_a_leaf_function_inside_of_a_leaf_function_is_part_of_it():
    def outer(x):
        return squared_sum(x, x)

    class Nested(nn.Module):
        def forward(self, x):
            return outer(x)

    graph = MaseTracer(custom_leaf_functions=(outer, squared_sum)).trace(Nested(), {"x": X})
    assert targets(graph) == [outer]


def test_a_leaf_function_without_tensors_is_no_node():
    def number():
        return 3

    class Plain(nn.Module):
        def forward(self, x):
            return x * number()

    graph = MaseTracer(custom_leaf_functions=(number,)).trace(Plain(), {"x": X})
    assert len(targets(graph)) == 1


def test_a_leaf_function_is_itself_again_after_it_failed():
    def failing(x):
        raise KeyError("no")

    class Fails(nn.Module):
        def forward(self, x):
            return failing(x)

    code = failing.__code__
    with pytest.raises(KeyError):
        MaseTracer(custom_leaf_functions=(failing,)).trace(Fails(), {"x": X})
    assert failing.__code__ is code


# create_node


def test_create_node_is_called_for_every_recorded_node_with_its_scope():
    class Counting(MaseTracer):
        def __init__(self):
            super().__init__()
            self.made = []

        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, name, type_expr)
            node.meta["seen"] = True
            self.made.append((node.name, self.scope.module_path))
            return node

    tracer = Counting()
    graph = tracer.trace(Model(), {"x": X})
    assert [name for name, _ in tracer.made] == [node.name for node in graph.nodes]
    assert all(node.meta["seen"] for node in graph.nodes)
    assert dict(tracer.made)["relu"] == "inner"
    assert tracer.node_name_to_scope["relu"] == ("inner", Inner)


def test_create_node_may_change_what_is_made():
    class Renaming(MaseTracer):
        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            return super().create_node(kind, target, args, kwargs, f"my_{kind}", type_expr)

    graph = Renaming().trace(Inner(), {"x": X})
    assert all(node.name.startswith("my_") for node in graph.nodes)
    graph.lint()


# Proxies


class Odd(nn.Module):
    """What its input is cannot be known: only proxies go through."""

    def forward(self, x):
        return x.frobnicate(2)


class WithProxy(MaseTracer):
    def proxy(self, node):
        node.meta["proxied"] = True
        return super().proxy(node)


class WithCallModule(MaseTracer):
    def call_module(self, m, forward, args, kwargs):
        out = super().call_module(m, forward, args, kwargs)
        out.node.meta["called"] = type(m)
        return out


class WithCreateArg(MaseTracer):
    def create_arg(self, a):
        self.seen = [*getattr(self, "seen", []), type(a)]
        return super().create_arg(a)


@pytest.mark.parametrize("kind", [WithProxy, WithCallModule, WithCreateArg])
def test_a_subclass_that_overrides_how_proxies_work_gets_proxies(kind):
    graph = kind().trace(Odd())
    assert targets(graph) == ["frobnicate"]


def test_call_module_sees_every_module():
    graph = WithCallModule().trace(Inner())
    assert [node.meta.get("called") for node in graph.nodes if node.op == "call_module"] == [nn.Linear]


def test_examples_become_inputs_where_proxies_are_used():
    graph = WithProxy().trace(Inner(), {"x": X})
    assert [node.op for node in graph.nodes] == ["placeholder", "call_module", "call_function", "output"]


def test_leaf_rules_hold_for_proxies_too():
    class Both(WithProxy):
        pass

    graph = Both(custom_leaf_layers=(Inner,)).trace(nn.Sequential(Inner(), nn.ReLU()))
    assert targets(graph) == ["0", "1"]


def test_a_subclass_that_changes_leaves_only_still_records():
    class Leaves(MaseTracer):
        def is_leaf_module(self, m, module_qualified_name):
            return isinstance(m, Inner) or super().is_leaf_module(m, module_qualified_name)

    tracer = Leaves()
    assert "inner" in targets(tracer.trace(Model(), {"x": X}))
    assert tracer.run is not None


def test_a_function_is_traced_with_proxies():
    graph = MaseTracer().trace(lambda x, y: torch.add(x, y))
    assert [node.op for node in graph.nodes] == ["placeholder", "placeholder", "call_function", "output"]


def test_fx_symbolic_trace_and_this_tracer_agree_on_a_plain_model():
    theirs = fx.Tracer().trace(Inner())
    ours = MaseTracer().trace(Inner(), {"x": X})
    assert [(node.op, node.name) for node in ours.nodes] == [(node.op, node.name) for node in theirs.nodes]
