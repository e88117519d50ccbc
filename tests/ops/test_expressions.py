"""What Python's own syntax does with tensors, as torch reports it while it runs, has the operator that was written."""

from __future__ import annotations

import functools
import operator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.ops.table import named_arguments, op_info
from mase_server.ops.types import TensorType
from ops.recording import Recording

X = torch.arange(1.0, 5.0)
N = torch.arange(1, 5)
M = torch.ones(4, 4)


def ran(expression):
    """The calls that an expression makes."""
    recording = Recording()
    with torch.no_grad(), recording:
        expression()
    return recording.calls


def item_set():
    X.clone()[0] = 1.0


def in_place(name, value):
    return lambda: getattr(operator, name)(X.clone(), value)


EXPRESSIONS = [
    (lambda: X + 1, "add"),
    (lambda: 1 + X, "add"),
    (lambda: X - X, "sub"),
    (lambda: 1 - X, "sub"),
    (lambda: X * 2, "mul"),
    (lambda: 2 * X, "mul"),
    (lambda: X / 2, "div"),
    (lambda: 2 / X, "div"),
    (lambda: X // 2, "floor_divide"),
    (lambda: X % 2, "remainder"),
    (lambda: X**2, "pow"),
    (lambda: 2**X, "pow"),
    (lambda: M @ X, "matmul"),
    (lambda: -X, "neg"),
    (lambda: +X, "positive"),
    (lambda: abs(X), "abs"),
    (lambda: ~N, "invert"),
    (lambda: N & 1, "bitwise_and"),
    (lambda: 1 & N, "bitwise_and"),
    (lambda: N | 1, "bitwise_or"),
    (lambda: N ^ 1, "bitwise_xor"),
    (lambda: N << 1, "bitwise_left_shift"),
    (lambda: N >> 1, "bitwise_right_shift"),
    (lambda: X == X, "eq"),
    (lambda: X != X, "ne"),
    (lambda: X < 2, "lt"),
    (lambda: X <= 2, "le"),
    (lambda: X > 2, "gt"),
    (lambda: X >= 2, "ge"),
    (lambda: X[0], "getitem"),
    (lambda: X[1:], "getitem"),
    (item_set, "setitem"),
    (in_place("iadd", 1), "add"),
    (in_place("isub", 1), "sub"),
    (in_place("imul", 2), "mul"),
    (in_place("itruediv", 2), "div"),
    (lambda: X.add_(0), "add"),
    (lambda: X.sum(), "sum"),
    (lambda: X.view(2, 2), "view"),
    (lambda: F.max_pool1d(M, 2), "max_pool1d"),
    (lambda: F.dropout(X, 0.0), "dropout"),
    (lambda: torch.split(X, 2), "split"),
    (lambda: X.norm(), "norm"),
]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_an_expression_is_the_operator_that_was_written(expression, expected):
    call = ran(expression)[-1]
    info = op_info(call.kind, call.target)
    assert (info.mase_op, info.known) == (expected, True)


@pytest.mark.parametrize("attribute", ["T", "mT", "H", "mH", "real", "data"])
def test_an_attribute_that_is_a_view_is_a_view(attribute):
    getter = getattr(torch.Tensor, attribute).__get__
    info = op_info("call_function", getter)
    assert (info.mase_op, info.family, info.arg_names, info.implicit) == (attribute, "shape", ("data_in_0",), True)


@pytest.mark.parametrize("expression", [lambda: 8.0 - X, lambda: 8.0 / X, lambda: 8.0**X, lambda: 8.0 // X])
def test_a_number_on_the_left_is_the_first_argument(expression):
    first, second, *_ = named_arguments(ran(expression)[-1]).values()
    assert (first, second) == (8.0, TensorType("float32", (4,)))


def test_a_partial_is_named_after_its_function():
    def gate(x, scale):
        return x * scale

    assert op_info("call_function", functools.partial(gate, scale=2)).mase_op == "gate"


def test_an_autograd_function_is_named_after_its_class():
    class StraightThrough(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

    assert op_info("call_function", StraightThrough.apply).mase_op == "StraightThrough"


class Network(nn.Module):
    """Modules, functions, methods and operators, all in one forward that fx can trace."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.features(x) * self.scale
        x = F.gelu(x) + x.tanh()
        return torch.log_softmax(self.head(x.mean((2, 3))), dim=-1)


def test_every_node_that_fx_traces_is_known():
    traced = torch.fx.symbolic_trace(Network())
    found = {}
    for node in traced.graph.nodes:
        module = traced.get_submodule(node.target) if node.op == "call_module" else None
        found[node.name] = op_info(node.op, node.target, module)
    assert all(info.known for info in found.values())
    assert [info.mase_op for info in found.values()] == [
        "placeholder", "conv2d", "batch_norm2d", "relu", "max_pool2d", "get_attr", "mul", "gelu", "tanh", "add", "mean",
        "linear", "log_softmax", "output",
    ]  # fmt: skip


def test_every_node_that_export_makes_is_known_too():
    program = torch.export.export(Network().eval(), (torch.ones(1, 3, 8, 8),))
    names = [op_info(n.op, n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert [info.mase_op for info in names if not info.known] == []
    assert {"conv2d", "batch_norm", "relu", "max_pool2d", "mul", "gelu", "linear"} <= {info.mase_op for info in names}


@pytest.mark.parametrize(
    ("positional", "keyword"),
    [
        (lambda: torch.flatten(M, 0, 1), lambda: torch.flatten(input=M, start_dim=0, end_dim=1)),
        (lambda: torch.transpose(M, 0, 1), lambda: torch.transpose(M, dim1=1, dim0=0)),
        (lambda: F.linear(M, M, X), lambda: F.linear(bias=X, weight=M, input=M)),
        (lambda: torch.where(X > 1, X, X), lambda: torch.where(X > 1, input=X, other=X)),
        (lambda: F.layer_norm(M, (4,), X, X), lambda: F.layer_norm(M, normalized_shape=(4,), bias=X, weight=X)),
        (lambda: torch.cat([X, X], 0), lambda: torch.cat(tensors=[X, X], dim=0)),
    ],
)
def test_arguments_are_the_same_by_position_and_by_keyword(positional, keyword):
    assert named_arguments(ran(positional)[-1]) == named_arguments(ran(keyword)[-1])


@pytest.mark.parametrize(
    "names",
    [
        ("add", "Tensor.add", "add_", "operator.add"),
        ("matmul", "Tensor.matmul", "operator.matmul"),
        ("relu", "Tensor.relu", "relu_", "functional.relu"),
        ("softmax", "Tensor.softmax", "functional.softmax", "special.softmax"),
    ],
)
def test_function_method_and_operator_are_one_operator(names):
    spaces = {"Tensor": torch.Tensor, "operator": operator, "functional": F, "special": torch.special, "": torch}
    infos = set()
    for spelling in names:
        space, _, name = spelling.rpartition(".")
        target = getattr(spaces[space], name, None) or getattr(torch.Tensor, name)
        info = op_info("call_function", target)
        infos.add((info.mase_op, info.mase_type, info.family, info.flops, info.bytes))
    assert len(infos) == 1
