"""What a run costs, recorded without values: by hand, and beside PyTorch's own allocator in a real run."""

import runpy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mase_server.ir.run_costs import Plan, Run, find_optimizer, write_costs
from tests.ir.real_runs import make_step, measure_allocations


class Mixed(nn.Module):
    """Layers with saved results of all kinds: views, masks, tied weights, results in place."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(512, 32)
        self.norm, self.mixed = nn.LayerNorm(32), nn.Linear(32, 96)
        self.head = nn.Linear(32, 512, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = F.dropout(self.table(ids), 0.1, self.training)
        q, k, v = self.mixed(self.norm(x)).view(*ids.shape, 3, 4, 8).permute(2, 0, 3, 1, 4)
        x = x + (q * k + v).transpose(1, 2).reshape(x.shape)
        return self.head(F.gelu(x).relu_())


def record(model, *args, train="", **plan):
    return write_costs(Run(model, lambda sizes: (args, {}), Plan(train, **plan), __file__.rpartition("/")[0]))


def measure_peak(model, args, train):
    """The most that a real run holds, from the allocator's events; any step of training but the first."""
    step, state = make_step(model.train(bool(train)), args, {}, train)
    tensors = [*model.parameters(), *model.buffers(), *args, *state]
    before = sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())
    return before + measure_allocations(step)


def test_a_linear_layer_costs_what_is_worked_out_by_hand():
    told = record(nn.Linear(3, 5, bias=False), torch.randn(4, 3))

    assert told["facts"]["peak_bytes"] == 4 * (3 * 5 + 4 * 3 + 4 * 5)
    assert told["facts"]["kinds"] == {"parameter": 60, "input": 48, "activation": 80}
    ((phase, operator, dtype, _, _, _, flops, reads, writes, count),) = told["calls"]
    assert (phase, operator, dtype, count) == ("forward", "aten.mm", "f32", 1)
    assert (flops, reads, writes) == (2 * 4 * 3 * 5, 48 + 60, 80)


def test_adam_holds_two_more_of_each_parameter_and_a_gradient():
    told = record(nn.Linear(300, 500, bias=False), torch.randn(4, 300), train="adam")

    size = 4 * 300 * 500
    assert told["facts"]["parameters_bytes"] == told["facts"]["gradients_bytes"] == size
    assert told["facts"]["optimizer_bytes"] == 2 * size + 4  # and the number of the step
    assert record(nn.Linear(300, 500), torch.randn(4, 300), train="adam8bit")["facts"]["optimizer_bytes"] < size


@pytest.mark.parametrize("train", ["", "sgd", "momentum", "adamw"])
def test_the_peak_is_that_of_a_real_run(train):
    ids = torch.randint(0, 512, (3, 24))

    assert record(Mixed(), ids, train=train)["facts"]["peak_bytes"] == measure_peak(Mixed(), (ids,), train)


def test_another_element_type_halves_the_parameters():
    ids = torch.randint(0, 512, (3, 24))

    whole, half = record(Mixed(), ids), record(Mixed(), ids, dtype="bf16")

    assert 2 * half["facts"]["parameters_bytes"] == whole["facts"]["parameters_bytes"]


class Mixing(nn.Module):
    """A model that names the device of its autocast, as most do."""

    def __init__(self):
        super().__init__()
        self.inner = Deep()

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.inner(x)


@pytest.mark.parametrize("train", ["", "adamw"])
def test_autocast_holds_what_a_real_run_under_it_holds(train):
    x = torch.randn(256, 16)

    told = record(Deep(), x, train=train, dtype="amp")["facts"]["peak_bytes"]

    model = Deep()
    forward = model.forward
    model.forward = lambda x: torch.autocast("cpu", torch.bfloat16)(forward)(x)
    assert told == pytest.approx(measure_peak(model, (x,), train), rel=0.02)
    assert told < record(Deep(), x, train=train)["facts"]["peak_bytes"]
    on_gpu = record(Deep(), x, train=train, dtype="amp", gpu=True)["facts"]
    assert record(Mixing(), x, train=train, gpu=True)["facts"]["peak_bytes"] == on_gpu["peak_bytes"]


def test_the_backward_stands_at_the_line_of_its_forward():
    told = record(Mixed(), torch.randint(0, 512, (3, 24)), train="sgd")

    lines = {(phase, operator): line for phase, operator, _, _, line, *_ in told["calls"]}
    first = Mixed.forward.__code__.co_firstlineno
    assert lines["forward", "aten.gelu"] == lines["backward", "aten.gelu_backward"] == first + 4
    assert lines["backward", "aten.native_layer_norm_backward"] == first + 2
    modules = {told["modules"][module] for phase, *_, module, _, _, _, _ in told["calls"] if phase == "backward"}
    assert {"head", "norm", "mixed", "table"} <= modules


def test_the_largest_batch_fits_and_the_next_does_not():
    model, memory = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)), 1_000_000

    def feed(sizes):
        return (torch.empty((sizes or {"B": 4})["B"], 64, device="meta"),), {}

    def peak(size):
        run = Run(model, lambda sizes: feed({"B": size}), Plan("adamw"))
        return write_costs(run)["facts"]["peak_bytes"]

    found = write_costs(Run(model, feed, Plan("adamw", memory=memory), sizes={"B": 4}))["facts"]["fits"]["B"]

    assert peak(found) <= memory < peak(found + 1)


class Halving(nn.Module):
    """Its skip connection needs a length that can be halved twice."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv1d(1, 4, 4, 4), nn.ConvTranspose1d(4, 1, 4, 4)

    def forward(self, x):
        return x + self.up(self.down(x))


def test_sizes_that_a_model_refuses_are_not_the_end():
    def feed(sizes):
        return (torch.empty(1, 1, (sizes or {"L": 32})["L"], device="meta"),), {}

    def peak(size):
        return write_costs(Run(Halving(), lambda sizes: feed({"L": size}), Plan()))["facts"]["peak_bytes"]

    memory = (peak(4000) + peak(4004)) // 2
    found = write_costs(Run(Halving(), feed, Plan(memory=memory), sizes={"L": 32}))["facts"]["fits"]["L"]

    assert found == 4000


def test_nothing_fits_where_the_weights_alone_do_not():
    def feed(sizes):
        return (torch.empty((sizes or {"B": 4})["B"], 64, device="meta"),), {}

    assert write_costs(Run(nn.Linear(64, 64), feed, Plan(memory=100), sizes={"B": 4}))["facts"]["fits"] == {"B": 0}


class Deep(nn.Module):
    """Blocks that save much more for the backward than they take and give."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 16)) for _ in range(6)
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Checkpointed(Deep):
    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False) if self.training else x + block(x)
        return self.head(x)


def test_blocks_are_checkpointed_as_a_person_would_do_it():
    x = torch.randn(64, 16)

    told = record(Deep(), x, train="adamw", checkpoint=True)["facts"]

    assert told["checkpointed"] == "6 Sequential"
    assert told["peak_bytes"] == record(Checkpointed(), x, train="adamw")["facts"]["peak_bytes"]
    assert told["peak_bytes"] == pytest.approx(measure_peak(Checkpointed(), (x,), "adamw"), rel=0.01)


def test_more_fits_when_blocks_are_checkpointed():
    memory = 3_000_000

    def fits(model, **plan):
        run = Run(model, lambda sizes: ((torch.empty((sizes or {"B": 4})["B"], 16, device="meta"),), {}),
                  Plan("adamw", memory=memory, **plan), sizes={"B": 4})  # fmt: skip
        return write_costs(run)["facts"]

    told = fits(Deep())
    assert told["fits"]["B"] < told["fits_checkpointed"]["B"] == fits(Checkpointed())["fits"]["B"]
    assert fits(nn.Linear(16, 4))["fits_checkpointed"] == {}


class Remembering(nn.Module):
    """Keeps keys and values of two layers, as models of transformers do."""

    def __init__(self):
        super().__init__()
        self.mixed = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))

    def forward(self, x):
        kept = []
        for mixed in self.mixed:
            q, k, v = mixed(x).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
            kept.append((k.contiguous(), v.contiguous()))
            x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return {"x": x, "past_key_values": kept}


def test_a_cache_of_keys_and_values_is_told_for_each_token():
    def feed(sizes):
        sizes = sizes or {"B": 3, "T": 5}
        return (torch.empty(sizes["B"], sizes["T"], 16, device="meta"),), {}

    told = write_costs(Run(Remembering(), feed, Plan(memory=100_000), sizes={"B": 3, "T": 5}))["facts"]

    # Keys and values of two layers, 16 numbers of 4 bytes each; three sequences beside two layers of weights.
    assert told["token_bytes"] == 2 * 2 * 16 * 4
    assert told["longest"] == (100_000 - 2 * 4 * (16 * 48 + 48)) // (3 * 2 * 2 * 16 * 4)
    assert record(Deep(), torch.randn(2, 16))["facts"]["token_bytes"] == 0


def test_an_optimizer_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="there is no optimizer 'adm'; there are sgd, momentum, adam"):
        Plan("adm")


def test_a_part_that_has_nothing_to_train_runs_forward_alone():
    told = record(nn.ReLU(), torch.randn(3), train="sgd")

    assert told["facts"]["loss"] == "none, nothing is trained"
    assert [(phase, operator) for phase, operator, *_ in told["calls"]] == [("forward", "aten.relu")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch.optim.AdamW(net.parameters(), lr=1e-3)", "adamw"),
        ("optim.SGD(net.parameters(), 0.1, momentum=0.9)", "momentum"),
        ("SGD(net.parameters(), 0.1)", "sgd"),
        ("bnb.optim.AdamW8bit(net.parameters())", "adam8bit"),
        ("net.sgd", ""),
    ],
)
def test_the_optimizer_of_a_file_is_read_from_its_text(tmp_path, text, found):
    (tmp_path / "train.py").write_text(text)

    assert find_optimizer(str(tmp_path / "train.py")) == found


def test_an_optimizer_that_changes_all_parameters_at_once_is_counted():
    told = record(nn.Linear(300, 500, bias=False), torch.randn(4, 300), train="adamw", gpu=True)

    written = {operator: writes for phase, operator, *_, writes, _ in told["calls"] if phase == "optimizer"}
    assert written["aten._foreach_addcdiv_"] == 4 * 300 * 500


def test_a_run_without_a_workspace_is_of_the_folder_that_it_is_in(tmp_path, monkeypatch):
    file = tmp_path / "project" / "net.py"
    file.parent.mkdir()
    file.write_text("def forward(x):\n    return x.exp()\n")
    model = nn.Identity()
    model.forward = runpy.run_path(str(file))["forward"]

    def tell(folder):
        monkeypatch.chdir(folder)
        return write_costs(Run(model, lambda sizes: ((torch.randn(2, 8),), {}), Plan()))["files"]

    assert [str(file) in tell(each) for each in (file.parent, tmp_path / "..", file.parent)] == [True, True, True]
    other = tmp_path / "other"
    other.mkdir()
    assert [str(file) in tell(each) for each in (other, file.parent, other)] == [False, True, False]
