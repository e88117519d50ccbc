"""`mase-server costs`, and what of a project adds to its devices."""

import csv
import io
import json
import subprocess
import textwrap

import pytest

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 64, bias=False), nn.Linear(64, 4, bias=False)

    def forward(self, x):
        h = self.wide(x)
        return self.narrow(h)


Net()(torch.randn(8, 16))
torch.optim.SGD(Net().parameters(), lr=0.1)
"""


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "pyproject.toml").write_text(
        textwrap.dedent("""
            [tool.mase.devices.board]
            title = "A small board"
            memory = 100e3
            bandwidth = 1e9
            rates = { f32 = 1e9 }
        """)
    )
    return tmp_path / "net.py"


def test_costs_as_json_are_those_worked_out_by_hand(mase, net):
    (told,) = json.loads(mase("costs", net, "--device", "board", "--format", "json").stdout)["models"]

    assert told["parameters_bytes"] == 4 * (16 * 64 + 64 * 4)
    # The last result has 128 bytes, and the allocator of such a device gives multiples of 512.
    assert told["peak_bytes"] == told["parameters_bytes"] + 4 * 8 * (16 + 64) + 512
    assert told["flops"] == 2 * 8 * (16 * 64 + 64 * 4)
    wide, narrow = told["rows"]
    line = NET.splitlines().index("        h = self.wide(x)") + 1
    assert (wide["line"], wide["module"], narrow["line"], narrow["module"]) == (line, "wide", line + 1, "narrow")
    assert told["at_peak"][0] == {"kind": "parameter", "bytes": told["parameters_bytes"], "file": "", "line": 0,
                                  "module": ""}  # fmt: skip
    # Seven tenths of the rate of the board, which is what its products reach.
    assert wide["seconds"] == pytest.approx(2 * 8 * 16 * 64 / 0.7e9)


def test_training_takes_the_files_own_optimizer_and_the_batch_that_fits(mase, net):
    done = mase("costs", net, "--device", "board", "--train", "auto", "--fit", "--format", "json")
    (told,) = json.loads(done.stdout)["models"]

    assert (told["mode"], told["optimizer"], told["optimizer_bytes"]) == ("training", "sgd", 0)
    assert told["gradients_bytes"] == told["parameters_bytes"]
    (size,) = told["fits"].values()
    assert size > 8
    assert "fits 100 kB: B <= " in mase("costs", net, "--device", "board", "--train", "auto", "--fit").stdout


def test_costs_as_csv_have_a_row_for_each_operator(mase, net):
    rows = list(csv.DictReader(io.StringIO(mase("costs", net, "--device", "H100", "--format", "csv").stdout)))

    assert [(row["model"], row["operator"], row["bound"]) for row in rows] == [("Net", "aten.mm", "launch")] * 2


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--device", "H1000", "there is no device 'H1000'"),
        ("--train", "adm", "there is no optimizer 'adm'"),
        ("--memory", "24 apples", "'24 apples' is no size"),
    ],
)
def test_what_is_not_known_is_wrong_usage(mase, net, option, value, why):
    done = mase("costs", net, option, value)

    assert done.returncode == 2
    assert why in " ".join((done.stdout + done.stderr).split())


def test_a_device_of_a_project_that_lacks_a_figure_is_refused_with_its_name(mase, net):
    (net.parent / "pyproject.toml").write_text("[tool.mase.devices.board]\nmemory = 1e9\nrates = { f32 = 1e9 }\n")

    done = mase("costs", net, "--device", "board")

    assert "devices.board.bandwidth: expected the bytes a second of its memory" in done.stderr


def test_a_check_fails_if_a_model_holds_too_much_and_names_what_holds_it(mase, net):
    assert mase("check", net, "--max-memory", "1MB").returncode == 0

    done = mase("check", net, "--max-memory", "8kB", "--format", "json")

    (problem,) = json.loads(done.stdout)["problems"]
    assert (done.returncode, problem["code"], problem["line"]) == (1, "too-much-memory", 6)
    assert problem["message"].startswith("Net holds 8.19 kB in inference, more than 8.00 kB: 5.12 kB of it parameter")


def test_without_a_device_the_processors_of_this_machine_are_measured_and_kept(mase, net):
    (told,) = json.loads(mase("costs", net, "--format", "json").stdout)["models"]
    (again,) = json.loads(mase("costs", net, "--format", "json").stdout)["models"]

    assert (told["device"]["name"], told["device"]["source"]) == ("CPU", "measured here")
    assert told["device"]["rates"]["f32"] > 1e8
    assert 0 < told["seconds"] == again["seconds"]


def test_a_size_that_was_not_searched_further_says_so(mase, net):
    assert (
        "fits 1.00 TB: B <= 1048575 and more"
        in mase("costs", net, "--device", "H100", "--memory", "1TB", "--fit").stdout
    )


DEEP = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 256), nn.Linear(256, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(6)))

    def forward(self, x):
        return self.blocks(x)


Deep()(torch.randn(8, 16))
"""


def test_the_batch_that_checkpointing_would_allow_is_told_and_is_the_one_with_it(mase, net):
    net.write_text(DEEP)
    asked = ("costs", net, "--device", "board", "--memory", "1MB", "--train", "sgd", "--fit")

    (told,) = json.loads(mase(*asked, "--format", "json").stdout)["models"]
    (more,) = json.loads(mase(*asked, "--checkpoint", "--format", "json").stdout)["models"]

    assert told["checkpointed"] == more["checkpointed"] == "6 Block"
    assert told["fits"]["B"] < told["fits_checkpointed"]["B"] == more["fits"]["B"]
    assert f"; checkpointing 6 Block would allow B <= {more['fits']['B']}" in mase(*asked).stdout


def test_several_devices_share_a_run(mase, net):
    asked = ("costs", net, "--device", "H100", "--train", "sgd", "--parallel")

    (told,) = json.loads(mase(*asked, "ddp=16", "--format", "json").stdout)["models"]

    size = 4 * (16 * 64 + 64 * 4)
    assert told["sent_bytes"] == 2 * size * 15 // 16
    # More than eight devices: between hosts, at 50 GB a second.
    assert told["communication_seconds"] == pytest.approx(told["sent_bytes"] / 50e9)
    assert "on NVIDIA H100 SXM, 80 GB, one of ddp=16" in mase(*asked, "ddp=16").stdout
    wrong = mase(*asked, "dp=16")
    assert wrong.returncode == 2
    assert "'dp=16' is no way to use several devices; write ddp=8, fsdp=8, tp=8" in wrong.stderr


def test_a_revision_inputs_and_passes_are_compared_line_by_line(mase, net):
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *arguments], cwd=net.parent, check=True)
    net.write_text("# A line more.\n" + NET.replace("64", "128"))
    line = NET.splitlines().index("        h = self.wide(x)") + 2

    def compare(what):
        answer = mase("costs", net, "--device", "board", "--compare", what, "--format", "json")
        (told,) = json.loads(answer.stdout)["models"]
        return told, {row["line"]: row for row in told["lines"]}

    told, lines = compare("HEAD")
    parameters = [4 * (16 * 64 + 64 * 4), 4 * (16 * 128 + 128 * 4)]
    assert [told[side]["parameters_bytes"] for side in ("before", "after")] == parameters
    assert lines.keys() == {line, line + 1}
    assert (lines[line]["before_line"], lines[line]["modules"]) == (line - 1, ["wide"])
    assert lines[line]["seconds"] == pytest.approx([2 * 8 * 16 * 64 / 0.7e9, 2 * 8 * 16 * 128 / 0.7e9])
    assert lines[line]["held"] == [4 * 8 * 64, 4 * 8 * 128]

    told, lines = compare("x: f32[16, 16]")
    assert told["before"]["flops"] == 2 * told["after"]["flops"]
    assert lines[line]["seconds"][0] == pytest.approx(2 * lines[line]["seconds"][1])

    told, lines = compare("quantize default=fixed(8,4)")
    before, after = (told[side] for side in ("before", "after"))
    assert lines[line]["moved"] == [4 * (8 * 16 + 16 * 128 + 8 * 128), 8 * 16 + 16 * 128 + 8 * 128]
    assert lines[line]["held"] == [4 * 8 * 128, 8 * 128]
    assert after["peak_bytes"] < before["peak_bytes"] / 2

    text = mase("costs", net, "--device", "board", "--compare", "HEAD").stdout
    assert (
        f"+{(told['before']['peak_bytes'] - 4 * (16 * 64 + 64 * 4) - 4 * 8 * (16 + 64) - 512) / 1e3:.2f} kB peak"
        in text
    )
    assert f"net.py:{line} " in text


def test_what_is_neither_a_revision_nor_passes_is_no_comparison(mase, net):
    done = mase("costs", net, "--device", "board", "--compare", "nothing")

    assert done.returncode == 2
    assert "is no inputs and no revision that git knows" in " ".join((done.stdout + done.stderr).split())


def test_a_part_that_hardware_is_built_for_is_a_device(mase, net):
    (told,) = json.loads(mase("costs", net, "--device", "xc7a100t", "--format", "json").stdout)["models"]

    # 240 multipliers at 100 MHz, and seven tenths of that in products; 1.3 GB a second, and eight tenths of that.
    wide, _ = told["rows"]
    moved = wide["reads_bytes"] + wide["writes_bytes"]
    assert wide["seconds"] == pytest.approx(max(2 * 8 * 16 * 64 / (0.7 * 2 * 240 * 100e6), moved / (0.8 * 1.3e9)))
    assert (told["memory"], wide["bound"]) == (0, "memory")
