"""Splitting a model over devices: plans against all plans there are, and split runs against eager."""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.ir.feeding import tensors_of
from mase_server.ops.types import TensorType
from mase_server.passes.sharding.autosharding import Problem, evaluate_choices, solve_problem
from mase_server.passes.sharding.resharding import Distributed
from mase_server.passes.sharding.rules import Mesh, parse_layout, text_of
from tests.examples.cases import CASES
from tests.ir.models import bert_inputs, bert_tiny

local = pytest.importorskip("torch.distributed._local_tensor")
SLOW = {"flops": 1e9}


def mlp():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    return model, MaseGraph(model, {"input": torch.randn(8, 64)})


def planned(graph, **pass_args):
    return passes.autosharding_analysis_pass(graph, {**SLOW, **pass_args})[1]


def sharding(found, path):
    return found["tensor_sharding_map"][path]["sharding"]


# Layouts and costs


def test_layouts_are_written_and_read():
    assert text_of((1, "R", "P")) == "S(1),R,P"
    assert parse_layout("S(1), R,P") == (1, "R", "P")
    with pytest.raises(ValueError, match=re.escape("'S(1),Q' is no layout: 'Q' is none of R, P and S(dimension)")):
        parse_layout("S(1),Q")


@pytest.mark.parametrize(
    ("source", "target", "seconds"),
    [
        # 4,096 bytes over 4 devices at 1,024 bytes a second: each device needs three quarters from the others.
        (("R", 0), ("R", "R"), 3.0),
        (("R", 0), ("R", 1), 0.75),
        (("R", "P"), ("R", "R"), 6.0),
        (("R", "P"), ("R", 0), 3.0),
        (("R", "R"), ("R", 0), 0.0),
        # Over the first axis there are 2 devices, ten times slower; each holds a quarter by the second already.
        ((0, 1), ("R", 1), 5.0),
    ],
)
def test_a_transfer_takes_what_rings_take(source, target, seconds):
    mesh = Mesh((2, 4), (102.4, 1024.0), 1.0, latency=0.0)
    assert mesh.seconds(TensorType("float32", (32, 32)), source, target) == pytest.approx(seconds)


# Plans


def test_a_feed_forward_block_is_split_by_columns_then_by_rows():
    """As Megatron does: one sum at the end is all that is sent."""
    _, graph = mlp()
    found = planned(graph, mesh_shape=(1, 4))
    assert sharding(found, "0") == {"weight": "R,S(0)", "bias": "R,S(0)", "output": "R,S(1)"}
    assert sharding(found, "2") == {"weight": "R,S(1)", "bias": "R,R", "output": "R,P"}
    assert found["memory_bytes"] == 4 * (64 * 256 / 4 + 256 / 4 + 256 * 64 / 4 + 64)
    assert found["replicated_seconds"] == pytest.approx(graph.scope_costs()[""].flops / 1e9)
    assert found["compute_seconds"] == pytest.approx(found["replicated_seconds"] / 4)
    assert found["communication_seconds"] == pytest.approx(1e-6 + 2 * 3 / 4 * 8 * 64 * 4 / 100e9)
    assert found["optimal"]
    assert graph.nodes[1].meta["mase"]["software"]["autosharding"] == found["plan"]["_0"]


@pytest.mark.parametrize("memory", [None, 100e3])
@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_no_plan_is_better(shape, memory):
    _, graph = mlp()
    problem = Problem(graph, Mesh(shape, (1e7,) * len(shape), 1e9), False, memory)
    every = product(*(choice.strategies for choice in problem.choices.values()))
    plans = (evaluate_choices(problem, dict(zip(problem.choices, each, strict=True)), True) for each in every)
    best = min(each.computing + each.transferring for each in plans if memory is None or each.bytes <= memory)
    found = solve_problem(problem, 60)
    assert found.is_best
    assert found.computing + found.transferring == pytest.approx(best, rel=1e-4)


def test_where_sending_is_dear_nothing_is_split():
    _, graph = mlp()
    found = planned(graph, mesh_shape=(1, 2), intra_node_bandwidth=10.0)
    assert {entry["output"] for entry in found["plan"].values()} == {"R,R"}
    assert found["seconds"] == found["replicated_seconds"]


def test_a_bound_on_memory_is_kept():
    _, graph = mlp()
    found = planned(graph, mesh_shape=(1, 2), intra_node_bandwidth=10.0, memory=70e3)
    assert found["memory_bytes"] <= 70e3
    message = "autosharding: no plan fits into 1,000 bytes of parameters on each device; split as far as they can be"
    with pytest.raises(ValueError, match=message):
        planned(graph, mesh_shape=(1, 2), memory=1000.0)


class Attention(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(48, 48) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(x.shape))


def test_attention_is_split_by_heads():
    graph = MaseGraph(Attention(4).eval(), {"x": torch.randn(3, 7, 48)})
    found = planned(graph, mesh_shape=(1, 4), intra_node_bandwidth=1e8)
    assert {sharding(found, name)["weight"] for name in "qkv"} == {"R,S(0)"}
    assert sharding(found, "out")["weight"] == "R,S(1)"
    assert found["plan"]["scaled_dot_product_attention"]["output"] == "R,S(1)"


def test_heads_that_cannot_be_divided_are_not():
    graph = MaseGraph(Attention(3).eval(), {"x": torch.randn(3, 7, 48)})
    found = planned(graph, mesh_shape=(1, 4))
    assert found["plan"]["scaled_dot_product_attention"]["output"] == "R,R"


def test_the_batch_is_split_only_where_that_is_asked_for():
    graph = MaseGraph(Attention(3).eval(), {"x": torch.randn(4, 7, 48)})
    assert not any("S(0)" in entry["output"] for entry in planned(graph, mesh_shape=(4,))["plan"].values())
    found = planned(graph, mesh_shape=(4,), data_parallel=True)
    assert {entry["output"] for entry in found["plan"].values()} == {"S(0)"}
    assert found["memory_bytes"] == 4 * 4 * (48 * 48 + 48)


@pytest.mark.parametrize(
    ("pass_args", "message"),
    [
        ({"mesh_shape": (0, 2)}, "autosharding: mesh_shape is (0, 2), expected devices by axis"),
        ({"intra_node_bandwidth": 0}, "autosharding: intra_node_bandwidth is 0, expected more than 0 a second"),
        ({"mesh": (1, 2)}, "autosharding_analysis_pass has no option 'mesh'"),
    ],
)
def test_a_mesh_that_cannot_be_is_quoted(pass_args, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        planned(mlp()[1], **pass_args)


def test_without_scipy_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=r"pip install scipy \(or mase-server\[solve\]\)"):
        planned(mlp()[1])


# Split runs


@pytest.fixture(scope="module")
def devices():
    """A process group that sends nothing; LocalTensorMode computes what every rank would."""
    store = pytest.importorskip("torch.testing._internal.distributed.fake_pg").FakeStore()
    dist.init_process_group("fake", rank=0, world_size=4, store=store)
    yield
    dist.destroy_process_group()


def on_mesh(graph, shape):
    """The outputs of every rank, and the bytes of parameters that the first one held."""
    feed = graph.knowledge.feed(graph.arguments)
    with torch.no_grad(), local.LocalTensorMode(4):
        run = Distributed(graph, dist.device_mesh.init_device_mesh("cpu", shape))
        found = tensors_of(run.run(*feed, enable_io_processing=False))
        parameters = {name for name, _ in graph.module.named_parameters(remove_duplicate=False)}
        held = {name: tensor.to_local() for (name, _), tensor in run._held.items() if name in parameters}
    size = sum(each.numel() * each.element_size() for each in held.values())
    return {name: [tensor._local_tensors[rank] for rank in range(4)] for name, tensor in found.items()}, size


def split(model, graph, shape, **pass_args):
    """A graph split over a mesh computes what the model does, on whole tensors and on every rank."""
    found = planned(graph, **{"mesh_shape": shape, **pass_args})
    graph, made = passes.resharding_transform_pass(graph)
    graph.fx_graph.lint()
    assert graph.check_against(model, atol=1e-4)
    ranks, size = on_mesh(graph, shape)
    with torch.no_grad():
        eager = tensors_of(model(**graph.arguments))
    assert ranks.keys() == eager.keys()
    for name, values in ranks.items():
        for value in values:
            torch.testing.assert_close(value, eager[name], rtol=1e-4, atol=1e-4)
    return found, made["resharded"], size


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 2)])
@pytest.mark.parametrize("data_parallel", [False, True])
def test_a_split_model_computes_what_the_whole_one_does(devices, shape, data_parallel):
    found, _, size = split(*mlp(), shape, data_parallel=data_parallel)
    assert size == found["memory_bytes"]
    model = Attention(4).eval()
    found, made, size = split(model, MaseGraph(model, {"x": torch.randn(4, 7, 48)}), shape, data_parallel=data_parallel)
    assert size == found["memory_bytes"]
    assert made, "somewhere something is sent"


@pytest.mark.parametrize("file", ["lenet.py", "resnet.py", "gpt.py", "vit.py", "llama.py"])
def test_an_example_is_split(devices, file):
    case = next(case for case in CASES if case.file == file)
    torch.manual_seed(0)
    model = case.build(case.load()).eval()
    graph = MaseGraph(model, case.inputs(case.sizes))
    found, _, size = split(model, graph, (2, 2))
    whole = sum(each.numel() * each.element_size() for each in model.parameters())
    assert size == found["memory_bytes"] < whole
    assert found["seconds"] < found["replicated_seconds"] / 1.5


class Recurrent(nn.Module):
    """No rule speaks of a layer that gives a tensor and a pair."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(6, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x):
        y, (hidden, _) = self.inner(torch.tanh(self.first(x)))
        return torch.relu(self.last(y)), hidden


def test_what_has_no_rule_gets_whole_tensors(devices):
    model = Recurrent().eval()
    found, made, _ = split(model, MaseGraph(model, {"x": torch.randn(4, 5, 6)}), (4,), flops=1e6)
    assert found["plan"]["tanh"]["output"] != "R"
    assert [found["plan"]["tanh"]["output"], "R"] in list(made.values())


def test_bert_and_a_quantised_graph_are_split(devices):
    model, inputs = bert_tiny(), dict(bert_inputs())
    split(model, MaseGraph(model, inputs), (2, 2))
    model, graph = mlp()
    graph, _ = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(16,10)"})
    expected = graph.model(*graph.knowledge.feed(graph.arguments))
    found = planned(graph, mesh_shape=(1, 4))
    assert any("S" in entry["output"] for entry in found["plan"].values())
    graph, _ = passes.resharding_transform_pass(graph, {"plan": found["plan"]})
    for value in on_mesh(graph, (1, 4))[0]["output"]:
        # Sums are rounded after they were added up.
        torch.testing.assert_close(value, expected, rtol=0, atol=2**-10)


def test_a_layout_that_several_users_want_is_made_once():
    graph = MaseGraph(Attention(4).eval(), {"x": torch.randn(3, 7, 48)})
    plan = planned(graph, mesh_shape=(1, 4), intra_node_bandwidth=1e8)["plan"]
    for name in "qkv":
        plan[name] = {**plan[name], "inputs": ["R,S(2)"]}
    graph, found = passes.resharding_transform_pass(graph, {"plan": plan})
    assert list(found["resharded"].values()).count(["R,R", "R,S(2)"]) == 1


def test_a_plan_of_another_graph_is_refused():
    _, graph = mlp()
    with pytest.raises(ValueError, match="resharding: the plan names 'other', which is no node of this graph"):
        passes.resharding_transform_pass(graph, {"plan": {"other": {"inputs": [], "output": "R"}}})
    graph, found = passes.resharding_transform_pass(graph)
    assert set(map(tuple, found["resharded"].values())) <= {("R,P", "R,R"), ("R,S(1)", "R,R")}, "made for two devices"


PROGRAM = """
import os, sys, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from mase_server import passes
from mase_server.passes.sharding.resharding import Distributed
from tests.passes.test_sharding import mlp, planned

dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
model, graph = mlp()
planned(graph, mesh_shape=(2,))
graph, _ = passes.resharding_transform_pass(graph)
feed = graph.knowledge.feed(graph.arguments)
with torch.no_grad():
    run = Distributed(graph, init_device_mesh("cpu", (2,)))
    torch.testing.assert_close(run.run(*feed, enable_io_processing=False), model(*feed))
    assert run._held["0.weight", "S(0)"].to_local().shape == (128, 64)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path):
    root = Path(__file__).parents[2]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", PROGRAM]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], cwd=root, env=env, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=200)
        assert rank.returncode == 0, errors.decode()
