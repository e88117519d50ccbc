"""What one of several devices holds and sends: by hand, and beside PyTorch's own sharding in one process of a group."""

import gc

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from mase_server.ir.graph import MaseGraph
from mase_server.ir.parallel_costs import parse_parallel
from mase_server.ir.run_costs import Plan, Run, write_costs
from mase_server.passes.sharding.autosharding import autosharding_analysis_pass
from tests.ir.real_runs import measure_allocations


class Deep(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, 64)) for _ in range(6)
        )
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def record(model, x, **plan):
    return write_costs(Run(model, lambda sizes: ((x,), {}), Plan(**plan)))


@pytest.fixture
def sharded():
    """A function that measures the peak of a step of training on one of so many devices, sharded by PyTorch.

    Its group of processes sends nothing, so that one process can be one of many.
    """

    def measure(width, x, devices):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=devices)
        mesh = init_device_mesh("cpu", (devices,))
        model = Deep(width)
        for part in (*model.blocks, model):
            fully_shard(part, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

        def step():
            model(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        step()
        gc.collect()
        states = [value for state in optimizer.state.values() for value in state.values()]
        own = [each.to_local() if hasattr(each, "to_local") else each for each in (*model.parameters(), *states)]
        return sum(each.untyped_storage().nbytes() for each in (*own, x)) + measure_allocations(step)

    yield measure
    dist.destroy_process_group()


@pytest.mark.parametrize(("devices", "width", "rows"), [(4, 1024, 8), (4, 1024, 256), (16, 2048, 32)])
def test_a_fully_sharded_model_holds_on_each_device_what_pytorch_holds_there(sharded, devices, width, rows):
    x = torch.randn(rows, 64)

    told = record(Deep(width), x, train="adamw", parallel=f"fsdp={devices}")["facts"]["peak_bytes"]

    assert told == pytest.approx(sharded(width, x, devices), rel=0.05)


def test_sharded_parameters_are_sent_three_times_in_training_and_once_without():
    size = 4 * 64 * 8
    linear = nn.Linear(64, 8, bias=False)

    train = record(linear, torch.randn(2, 64), train="adam", parallel="fsdp=4")["facts"]
    run = record(nn.Linear(64, 8, bias=False), torch.randn(2, 64), parallel="fsdp=4")["facts"]

    assert (train["parameters_bytes"], train["gradients_bytes"]) == (size // 4, size // 4)
    assert (train["sent_bytes"], run["sent_bytes"]) == (3 * size * 3 // 4, size * 3 // 4)


def test_data_parallel_devices_hold_all_and_send_gradients_twice_around_the_ring():
    size = 4 * 64 * 8

    told = record(nn.Linear(64, 8, bias=False), torch.randn(2, 64), train="sgd", parallel="ddp=8")["facts"]

    assert (told["parameters_bytes"], told["kinds"]["gathered"]) == (size, size)
    assert (told["sent_bytes"], told["devices"]) == (2 * size * 7 // 8, 8)


def test_split_tensors_leave_a_device_its_part_of_parameters_and_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no line that runs is of this folder

    def make():
        return nn.Sequential(nn.Linear(512, 2048, bias=False), nn.GELU(), nn.Linear(2048, 512, bias=False))

    x = torch.randn(64, 512)
    graph = MaseGraph(make(), {"input": x})
    _, found = autosharding_analysis_pass(graph, {"mesh_shape": (1, 4), "flops": 1e9})

    told = write_costs(Run(make(), lambda sizes: ((x,), {}), Plan(parallel="tp=4"), sharding=(graph, found)))

    assert told["facts"]["parameters_bytes"] == 4 * 2 * 512 * 2048 // 4
    assert [call[6] for call in told["calls"] if "mm" in call[1]] == [2 * 64 * 512 * 2048 // 4] * 2
    # Both layers' results of a whole layer: the hidden ones are split, and are two beside each other for a moment.
    assert told["facts"]["kinds"]["activation"] == 2 * 4 * 64 * 2048 // 4
    assert told["facts"]["split_seconds"] > 0


@pytest.mark.parametrize("text", ["dp=4", "fsdp", "fsdp=0", "tp=2,tp=4", "ddp=2,fsdp=2"])
def test_a_use_of_devices_that_is_not_known_is_refused(text):
    with pytest.raises(ValueError, match="devices"):
        parse_parallel(text)
