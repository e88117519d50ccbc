"""Every component is accepted, without a single warning, by all that read it: Verilator, slang and Yosys."""

import re

import pyslang
import pytest

from mase_server.hardware.verilog import find_components
from tests.rtl.build import ASSERTIONS, CHECKERS, RTL, run

COMPONENTS = sorted(path.stem for path in RTL.glob("*.sv"))


def slang(paths, top):
    """What slang says with its extra warnings on; a cast that is useless for one width is not for others."""
    options = pyslang.driver.Driver()
    options.addStandardArgs()
    command = f"slang --top {top} -Wextra -Wno-useless-cast {' '.join(map(str, paths))}"
    assert options.parseCommandLine(command, pyslang.driver.CommandLineOptions())
    assert options.processOptions()
    assert options.parseAllSources()
    compilation = options.createCompilation()
    engine, ignored = options.diagEngine, pyslang.DiagnosticSeverity.Ignored
    told = [one for one in compilation.getAllDiagnostics() if engine.getSeverity(one.code, one.location) != ignored]
    return [engine.formatMessage(one) for one in told]


@pytest.mark.parametrize("name", COMPONENTS)
def test_verilator_has_no_warning(name):
    run(["verilator", "--lint-only", "-Wall", "--top-module", name, *find_components(name)])


@pytest.mark.parametrize("path", sorted(ASSERTIONS.glob("*.sv")), ids=lambda path: path.stem)
def test_verilator_has_no_warning_about_assertions(path):
    # A bind file has the name of the component that it looks at, not that of a module.
    if path in CHECKERS:
        run(["verilator", "--lint-only", "--assert", "-Wall", path])
        return
    bound = [*find_components(path.stem), *CHECKERS, path]
    run(["verilator", "--lint-only", "--assert", "-Wall", "-Wno-DECLFILENAME", "--top-module", path.stem, *bound])


@pytest.mark.parametrize("name", COMPONENTS)
def test_slang_has_no_warning(name):
    assert slang(find_components(name), name) == []


def test_slang_does_see_what_is_wrong(tmp_path):
    path = tmp_path / "wrong.sv"
    path.write_text("module wrong (input logic [7:0] a, output logic [3:0] b); assign b = c; endmodule")
    assert slang([path], "wrong")


@pytest.mark.parametrize("name", COMPONENTS)
def test_yosys_accepts_it(name, tmp_path):
    sources = find_components(name)
    for memory in re.findall(r'"(\w+\.mem)"', "".join(path.read_text() for path in sources)):
        (tmp_path / memory).write_text("0\n" * 4)
    script = f"read_verilog -sv -defer {' '.join(map(str, sources))}; hierarchy -check -top {name}; proc; check -assert"
    assert "Warning" not in run(["yosys", "-q", "-p", script], cwd=tmp_path)


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_contract_stands_above_each_module_and_a_file_holds_one(name):
    text = (RTL / f"{name}.sv").read_text()
    assert text.startswith("/// ")
    assert re.findall(r"^module (\w+)", text, re.M) == [name]
    contract = text.split("module")[0]
    assert "cycle" in contract or "Combinational" in contract or "latency" in contract, "it says nothing about time"


def test_the_table_lists_every_component():
    table = (RTL / "README.md").read_text()
    assert [name for name in COMPONENTS if f"[`{name}`]({name}.sv)" not in table] == []
