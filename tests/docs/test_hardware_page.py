"""docs/hardware.md says what is so: options, targets, defaults and components that there are, and code that runs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from torch import nn

from mase_server.building import Build
from mase_server.cli.commands import build_app
from mase_server.hardware.attaching import read_template
from mase_server.simulation.simulating import Integers, write_npz

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hardware.md").read_text("utf-8")
BEFORE_EDITORS = re.sub(r"^```toml.*?^```", "", PAGE.partition("## Beside the source")[0], flags=re.M | re.S)
SHELL, *BLOCKS = re.findall(r"^```(?:python)?\n(.*?)^```", BEFORE_EDITORS, re.M | re.S)


def test_every_option_that_is_named_is_one_of_the_command():
    command = typer.main.get_command(build_app()).commands["verilog"]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*\b", PAGE.partition("## Beside the source")[0]))
    assert {"--multipliers", "--vectors", "--stall", "-o"} <= named <= known


def test_the_ceilings_are_those_of_a_build():
    assert f"`--max-multipliers` ({Build().max_multipliers:,})" in PAGE
    assert re.search(r"`--max-memory-bits` \(2\^(\d+)\)", PAGE)[1] == str(Build().max_memory_bits.bit_length() - 1)
    assert f"`--precision` (`{Build().precision}`)" in PAGE


def test_the_table_of_targets_is_the_makefile():
    targets = set(re.search(r"^\.PHONY: (.*)$", read_template("Makefile"), re.M)[1].split())
    assert set(re.findall(r"^\| `make (\w+)` \|", PAGE, re.M)) == targets - {"clean"}


def test_every_component_that_is_named_is_there():
    table = PAGE.partition("## Operators")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\|[^|]*\|([^|]*)\|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 10
    assert named <= {path.stem for path in (ROOT / "rtl").glob("*.sv")}


def test_the_code_for_a_quantised_graph_runs():
    code = next(block for block in BLOCKS if "as_hardware" in block)
    names = {"model": nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=-1)), "images": torch.randn(3, 4)}
    exec(code.replace('"x"', '"input"'), names)
    assert names["told"]["replaced"]
    assert torch.equal(names["scores"], (names["scores"] * 16).round() / 16)


def test_the_code_that_reads_results_runs(tmp_path, monkeypatch):
    results = {"data_out_0": Integers((2, 2), [16, -8, 0, 1]), "data_out_0_fraction_width": Integers((), [4])}
    write_npz(tmp_path / "mine.hardware.npz", results)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(next(block for block in BLOCKS if "data_out_0" in block), names)
    assert names["scores"].tolist() == np.array([[1, -0.5], [0, 1 / 16]]).tolist()


@pytest.mark.parametrize("word", ["mase-server verilog model.py", "-o out", "--simulate 1000"])
def test_the_first_command_writes_and_simulates(word):
    assert word in SHELL
