"""An emitted folder as its user takes it: lint, simulation, and that nothing else is needed."""

import re
import shutil
import subprocess

import pytest
import torch
from torch import nn

from mase_server.hardware.emission import emit_folder, module_name, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.verilog import RESERVED, make_identifier
from tests.hardware.simulating import check, simulated
from tests.hardware.test_lowering import Rows, Turned, Twice, config, mlp, quantised

VERILATOR = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")


def emitted(model, values, vectors=20, **wishes):
    design = lower_graph(quantised(model, values, config()))
    return emit_folder(design, fold_design(design, **wishes), type(model).__name__, random_inputs(design, vectors))


def make(folder, *what):
    return subprocess.run(["make", *what], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("emitted")
    emitted(mlp(8, 12, 6, 3), torch.randn(2, 8), 200, multipliers=20).write(path)
    return path


@VERILATOR
def test_the_simulation_gives_the_integers_of_the_graph(folder):
    done = make(folder, "sim")
    assert done.returncode == 0, done.stderr
    moved, expected, mismatches = done.stdout.split("out data_out_0 ")[1].split()[:3]
    assert (int(moved), mismatches) == (200 * 3 // lanes(folder), "0")
    assert moved == expected


def lanes(folder):
    return int((folder / "sim" / "plan").read_text().split("out data_out_0 ")[1].split()[1]) // 8


@VERILATOR
def test_it_does_so_when_both_sides_stall_and_after_a_reset(folder):
    assert make(folder, "sim", "ARGS=--stall 40 --seed 7 --reset 99").returncode == 0


@VERILATOR
def test_a_wrong_weight_is_seen(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "wrong", symlinks=True)
    memory = tmp_path / "wrong" / "_2_weight.mem"
    first, rest = memory.read_text().split("\n", 1)
    memory.write_text(f"{int(first, 16) ^ 0x40:0{len(first)}x}\n{rest}")
    done = make(tmp_path / "wrong", "sim")
    assert done.returncode != 0
    assert int(done.stdout.split("out data_out_0 ")[1].split()[2]) > 0


@VERILATOR
@pytest.mark.parametrize("model", [mlp(8, 12, 6, 3), Twice()], ids=["chain", "fork"])
@pytest.mark.parametrize("multipliers", [4, 40])
def test_what_is_emitted_is_clean(tmp_path, model, multipliers):
    values = torch.randn(2, 8 if isinstance(model, nn.Sequential) else 4)
    emitted(model, values, multipliers=multipliers).write(tmp_path)
    done = make(tmp_path, "lint")
    assert (done.returncode, done.stderr) == (0, "")


@VERILATOR
def test_a_value_with_two_users_reaches_both(tmp_path):
    made = emitted(Twice(), torch.randn(2, 4), 50)
    check(made, tmp_path)
    assert len(simulated(made, tmp_path)[1]) == 2


@VERILATOR
@pytest.mark.parametrize(("model", "shape"), [(Turned(), (2, 3, 4)), (Rows(), (5, 6))], ids=["turned", "rows"])
def test_whatever_order_elements_come_in(tmp_path, model, shape):
    check(emitted(model, torch.randn(2, *shape), 50, multipliers=6), tmp_path)


def test_the_same_design_gives_the_same_bytes():
    model, values = mlp(8, 12, 6, 3), torch.randn(2, 8)
    assert emitted(model, values).files == emitted(model, values).files


@pytest.mark.parametrize("name", ["Ram", "Fifo", "Bench", "AxiMemory"])
def test_a_model_with_the_name_of_a_component_has_a_module_of_its_own(name):
    design = lower_graph(quantised(mlp(4, 3), torch.randn(2, 4), config()))
    made = emit_folder(design, fold_design(design), name, random_inputs(design, 2))
    texts = "".join(text for path, text in made.files.items() if path.endswith(".sv"))
    modules = re.findall(r"^module (\w+)", texts, re.M)
    assert len(modules) == len({*modules})


def test_every_operation_is_found_in_the_text():
    made = emitted(mlp(8, 12, 6, 3), torch.randn(2, 8))
    lines = made.files["sequential.sv"].splitlines()
    for operation in ("_0", "_2", "_4"):
        first, last = made.top.lines[operation][-1]
        assert lines[first - 1].strip() == "fixed_linear #("
        assert any(f") {operation}_i (" in line for line in lines[first - 1 : last])
        assert lines[last - 1].strip() == ");"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("JetMLP", "jet_mlp"),
        ("LeNet5", "le_net5"),
        ("Table", "op_table_op"),
        ("3D Net", "op_3_d_net_op"),
        ("é", "model"),
    ],
)
def test_names_of_modules(name, module):
    assert module_name(name) == module


def test_no_name_is_a_word_of_the_language_or_another_ones():
    assert all(make_identifier(word) not in RESERVED for word in RESERVED)
    assert make_identifier("x_valid") != "x_valid"
    assert make_identifier("a", {"a"}) != "a"
