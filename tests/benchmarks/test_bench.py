"""`make bench` and the matrix: what is kept, what the tables say, which tests were counted, and the registers
that a memory takes in; worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import bench
import clock
import figures
import matrix
import pytest
import same_answer
from figures import FIGURES, Told, tell, told

ROOT = Path(__file__).parents[2]


def row(name, value, benchmark="rpc", load=1.0, **beside):
    return bench.Row(name, value, beside, benchmark, load, "2026-11-22 18:00")


# Figures


@pytest.mark.parametrize(
    ("name", "value", "holds"),
    [
        ("latency/mlp", 150.0, True),
        ("latency/mlp", 150.1, False),
        ("latency/mlp/ratio", 8.0, True),
        ("latency/mlp/ratio", 7.9, False),
        ("passes_editor/save", 9e9, True),
    ],
)
def test_a_goal_is_the_most_or_the_least_that_a_figure_may_be(name, value, holds):
    assert FIGURES[name].holds(value) is holds


def test_what_is_told_is_kept_only_where_a_file_is_named(tmp_path, monkeypatch):
    file = tmp_path / "figures.jsonl"
    monkeypatch.delenv(figures.KEPT, raising=False)
    tell("latency/mlp", 1.0)
    monkeypatch.setenv(figures.KEPT, str(file))
    tell("latency/mlp", 83.0, **{"fresh python": 1100.0})
    tell("latency/mlp/ratio", 13.3)
    assert list(told(file)) == [
        Told("latency/mlp", 83.0, {"fresh python": 1100.0}),
        Told("latency/mlp/ratio", 13.3, {}),
    ]
    assert list(told(tmp_path / "nothing.jsonl")) == []


def test_a_figure_that_nobody_declared_is_refused():
    with pytest.raises(KeyError, match="latency/none"):
        tell("latency/none", 1.0)


def test_every_benchmark_that_is_run_is_a_script_that_is_there():
    for benchmark in bench.BENCHMARKS.values():
        script = bench.words_of(benchmark)[1]
        assert script == "-m" or Path(script).exists(), script


def test_every_figure_is_told_by_some_script():
    texts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    for name in FIGURES:
        assert f'tell("{name}"' in texts or f'tell(f"{name.split("/")[0]}/' in texts or name.split("/")[0] in (
            "answer", "latency", "passes_editor",
        ), name  # fmt: skip


# Running


SCRIPT = """import os, sys
sys.path.insert(0, {folder!r})
from figures import tell
tell("latency/mlp", {value})
print("a table")
sys.exit({status})
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A benchmark named `one` that tells one figure."""

    def write(value, status=0, needs=()):
        path = tmp_path / "one.py"
        path.write_text(SCRIPT.format(folder=str(ROOT / "benchmarks"), value=value, status=status))
        monkeypatch.setattr(bench, "BENCHMARKS", {"one": bench.Benchmark((str(path),), 1, needs)})
        return tmp_path

    return write


def test_a_benchmark_keeps_its_figures_its_load_and_what_it_printed(script):
    folder = script(83.0)
    assert bench.run(["one"], folder)
    (found,) = bench.kept(folder)
    assert (found.name, found.value, found.benchmark) == ("latency/mlp", 83.0, "one")
    assert found.load >= 0
    log = (folder / "one.txt").read_text()
    assert "a table" in log
    assert "load" in log.splitlines()[1]


def test_a_benchmark_that_runs_again_replaces_its_figures_and_no_others(script):
    folder = script(83.0)
    bench.keep(folder, "rpc", [row("rpc/rest/p50", 0.6)])
    bench.run(["one"], folder)
    script(71.0)
    bench.run(["one"], folder)
    assert [(each.name, each.value) for each in bench.kept(folder)] == [("latency/mlp", 71.0), ("rpc/rest/p50", 0.6)]


def test_one_that_fails_is_told_and_what_it_measured_is_kept(script, capsys):
    folder = script(83.0, status=3)
    assert not bench.run(["one"], folder)
    assert [each.value for each in bench.kept(folder)] == [83.0]
    assert "exit status 3" in capsys.readouterr().out


def test_one_that_lacks_a_program_is_left_out_with_its_name(script, capsys):
    folder = script(83.0, needs=("no-such-program",))
    assert bench.run(["one"], folder)
    assert bench.kept(folder) == []
    assert "no-such-program not found" in capsys.readouterr().out


# Tables


def test_a_number_has_three_digits_that_count_and_its_unit():
    assert bench.number(1234.5, "ms") == "1,234 ms"
    assert bench.number(0.5846, "ms") == "0.585 ms"
    assert bench.number(13.333, "x") == "13.3x"
    assert bench.number(100.0, "%") == "100 %"


def test_a_row_says_whether_its_goal_is_met_and_how_many_times_ours_others_are():
    _, goal, value, verdict, beside, load, name = bench.cells(row("compare/edit", 200.0, pyrefly=100.0))
    assert (goal, value, verdict) == ("at most 300", "200 ms", "yes")
    assert beside == "pyrefly 100 ms (0.5x)"
    assert (load, name) == ("1.0", "rpc")
    assert bench.cells(row("rpc/rest/p50", 0.58))[3] == "missed"


def test_nothing_of_the_page_but_its_table_is_written():
    page = f"before\n{bench.BEGIN}\nstale figures\n{bench.END}\nafter\n"
    found = bench.page(page, [row("rpc/rest/p50", 0.58)])
    assert found.startswith(f"before\n{bench.BEGIN}\n| figure |")
    assert found.endswith(f"{bench.END}\nafter\n")
    assert "stale figures" not in found
    assert bench.page(found, [row("rpc/rest/p50", 0.58)]) == found


# The same answer


@pytest.mark.parametrize("tool", same_answer.TOOLS)
def test_what_a_tool_is_asked_is_a_program(tool):
    for model in same_answer.MODELS.values():
        compile(same_answer.program(tool, model), "<asked>", "exec")


def test_only_the_plain_forward_on_meta_has_no_weights():
    devices = {tool: same_answer.program(tool, same_answer.MODELS["bert"]) for tool in same_answer.TOOLS}
    assert [tool for tool, text in devices.items() if "device = 'meta'" in text] == ["meta forward"]


# The matrix


REPORT = """<testsuites><testsuite tests="5">
<testcase classname="tests.a" name="test_one"/>
<testcase classname="tests.a" name="test_two"><system-out>text</system-out></testcase>
<testcase classname="tests.a" name="test_three"><skipped message="no"/></testcase>
<testcase classname="tests.b" name="test_four"><failure message="no"/></testcase>
<testcase classname="tests.b" name="test_five"><error message="no"/></testcase>
</testsuite></testsuites>"""


def test_tests_are_counted_by_what_pytest_wrote():
    assert matrix.counted(REPORT) == (2, 1, ["tests.b::test_four", "tests.b::test_five"])


def test_pins_are_taken_but_for_what_the_environment_chooses():
    pinned = "# torch first\ntorch==2.13.0\nmsgpack==1.2.4\nnumpy==2.4.6\ntransformers==5.23.0\nruff==1\n"
    pinned += "# what these pull in\ntokenizers==0.23.3\n"
    whole = matrix.Environment("one", "3.11", "2.6.0", "4.57.6")
    assert list(matrix.requirements(pinned, whole)) == ["msgpack==1.2.4", "numpy", "scipy", "transformers==4.57.6"]
    assert list(matrix.requirements(pinned, matrix.Environment("server", "3.12"))) == ["msgpack==1.2.4"]


def test_every_suite_names_what_is_there():
    for suite in matrix.SUITES.values():
        for path in suite:
            assert (ROOT / path.removeprefix("--ignore=")).exists(), path


def test_an_interpreter_that_is_not_here_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(SystemExit, match=r"there is no Python 3\.99 here"):
        matrix.interpreter("3.99")


def test_a_row_takes_the_place_of_the_one_with_its_name(monkeypatch, tmp_path):
    monkeypatch.setattr(matrix, "KEPT", tmp_path / "kept.json")
    old = matrix.Row("one", "2026-11-21", "3.11.7", "2.6.0", "4.57.6", "smoke", 9, 1, ["tests.a::test"])
    new = matrix.Row("one", "2026-11-22", "3.11.7", "2.6.0", "4.57.6", "smoke", 10, 1)
    other = matrix.Row("server", "2026-11-22", "3.12.1", "", "", "pure", 5, 0, [], "12 of 12")
    for each in (old, other, new):
        matrix.keep(each)
    assert matrix.kept() == [new, other]


def test_the_table_says_what_ran_and_what_failed():
    rows = [
        matrix.Row("one", "2026-11-22", "3.11.7", "2.6.0", "4.57.6", "smoke", 1010, 1, ["tests.a::test"]),
        matrix.Row("server", "2026-11-22", "3.12.1", "", "", "pure", 5, 0, [], "12 of 12"),
    ]
    told_rows = list(matrix.table(rows))[2:]
    assert told_rows == [
        "| 3.11.7 | 2.6.0 | 4.57.6 | smoke | 1,010 | 1 | 1 | 2026-11-22 |",
        "| 3.12.1 | none: the server alone; 12 of 12 examples answered alike | none | pure | 5 | 0 | 0 | 2026-11-22 |",
    ]


def test_the_page_holds_the_table_of_what_was_kept():
    page = matrix.PAGE.read_text(encoding="utf-8")
    assert matrix.with_table(page, matrix.kept()) == page
    assert all(each["passed"] > 0 for each in json.loads(matrix.KEPT.read_text(encoding="utf-8")))


# The clock


def netlist(registers, **more_readers):
    """As Yosys writes it: a memory of the clock 2 with two bits, 10 and 11, and registers that read them."""
    wires = {"CLKA": [2], "CLKB": [2], "DOB0": [10], "DOB1": [11], "OCEB": ["1"], "ADB0": [3]}
    modes = {"REGMODE_A": "NOREG", "REGMODE_B": "NOREG"}
    memory = {"type": "DP16KD", "parameters": {"DATA_WIDTH_B": f"{9:032b}", **modes}, "connections": wires}
    cells = {"memory": memory}
    for number, (bit, changed) in enumerate(registers):
        wires = {"CLK": [2], "DI": [bit], "Q": [20 + number], "CE": [5], "LSR": ["0"], **changed}
        parameters = {"CEMUX": wires.pop("CEMUX", "CE"), "CLKMUX": "CLK", "LSRMUX": "LSR"}
        cells[f"register_{number}"] = {"type": "TRELLIS_FF", "parameters": parameters, "connections": wires}
    for name, bit in more_readers.items():
        cells[name] = {"type": "LUT4", "parameters": {}, "connections": {"A": [bit], "Z": [30]}}
    outputs = {"DOA0", "DOB0", "DOB1", "Q", "Z"}
    for cell in cells.values():
        cell["port_directions"] = {port: "output" if port in outputs else "input" for port in cell["connections"]}
    return {"cells": cells, "ports": {"q": {"direction": "output", "bits": [20, 21]}}}


def test_a_memory_takes_in_the_registers_that_stand_bare_behind_it():
    module = netlist([(10, {}), (11, {})])
    assert clock.use_memory_registers(module) == 1
    assert list(module["cells"]) == ["memory"]
    memory = module["cells"]["memory"]
    assert memory["parameters"] == {"DATA_WIDTH_B": f"{9:032b}", "REGMODE_A": "NOREG", "REGMODE_B": "OUTREG"}
    assert {port: memory["connections"][port] for port in ("DOB0", "DOB1", "OCEB")} == {
        "DOB0": [20],
        "DOB1": [21],
        "OCEB": [5],
    }


def test_a_memory_of_36_bits_has_registers_of_one_clock_on_both_sides():
    """Yosys leaves the clock of the side that writes at 0 where nothing is written."""
    module = netlist([(10, {}), (11, {}), (12, {})])
    memory = module["cells"]["memory"]
    memory["parameters"]["DATA_WIDTH_B"] = f"{36:032b}"
    memory["connections"] |= {"CLKA": ["0"], "DOA0": [12]}
    memory["port_directions"]["DOA0"] = "output"
    assert clock.use_memory_registers(module) == 1
    assert list(module["cells"]) == ["memory"]
    assert [memory["parameters"][f"REGMODE_{side}"] for side in "AB"] == ["OUTREG", "OUTREG"]


@pytest.mark.parametrize(
    ("registers", "more_readers"),
    [
        ([(10, {}), (11, {})], {"gate": 10}),
        ([(10, {})], {"gate": 11}),
        ([(10, {}), (11, {}), (11, {})], {}),
        ([(10, {}), (11, {"CE": [6]})], {}),
        ([(10, {"CEMUX": "INV"}), (11, {"CEMUX": "INV"})], {}),
        ([(10, {}), (11, {"CLK": [4]})], {}),
        ([(10, {}), (11, {"LSR": [7]})], {}),
        ([(12, {"CE": [10]}), (11, {})], {}),
    ],
    ids=[
        "a gate, too",
        "a gate alone",
        "two registers",
        "two enables",
        "inverted",
        "another clock",
        "a reset",
        "an enable",
    ],
)
def test_a_memory_takes_in_no_other_registers(registers, more_readers):
    module = netlist(registers, **more_readers)
    assert clock.use_memory_registers(module) == 0
    assert module == netlist(registers, **more_readers)


def test_a_memory_that_is_read_from_outside_takes_in_no_register():
    module = netlist([(10, {}), (11, {})])
    module["ports"]["q"]["bits"].append(11)
    assert clock.use_memory_registers(module) == 0
