"""`mase-server sweep` as a person runs it: what is measured, printed, kept and gone on with."""

import csv
import io
import json
import math
import signal

import numpy as np
import pytest
import torch

from tests.sweep.conftest import Net, wait_for

Q8, Q6 = "quantize(default='fixed(8,4)')", "quantize(default='fixed(6,3)')"
GATED = "gated(gate='{}')"


def told(done, status=0):
    assert (done.returncode, done.stderr) == (status, "")
    return json.loads(done.stdout)


def rounded(values, width, fraction):
    return np.clip(np.rint(values * 2**fraction), -(2 ** (width - 1)), 2 ** (width - 1) - 1) / 2**fraction


def sqnr_of(state, width, fraction):
    """The model in fixed point beside itself, worked out with numpy alone."""
    values = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8).astype(np.float64)
    exact, small = values, rounded(values, width, fraction)
    for name in ("a", "b"):
        weight, bias = (state[f"{name}.{part}"].double().numpy() for part in ("weight", "bias"))
        exact = exact @ weight.T + bias
        small = small @ rounded(weight, width, fraction).T + rounded(bias, width, fraction)
        small = rounded(small, width, fraction)
        if name == "a":
            exact, small = np.maximum(exact, 0), np.maximum(small, 0)
    return 10 * math.log10((exact**2).sum() / ((exact - small) ** 2).sum()), np.abs(exact - small).max()


def test_the_figures_are_those_of_the_model_and_of_its_hardware(sweeping, project, mase):
    done = sweeping(
        "net.py", "--pipeline", "quantize default='fixed({w},{f})'", "--vary", "w=8,6", "--vary", "f=4,3",
        "--multipliers", "8,64", "--format", "json",
    )  # fmt: skip
    found = told(done)
    assert (found["objectives"], found["pending"]) == (["sqnr", "luts", "cycles"], 0)
    state = torch.load(project / "net.pt")
    parameters = sum(value.numel() for value in Net().state_dict().values())
    assert len(found["points"]) == 8
    for point in found["points"]:
        assert (point["model"], point["error"], point["parameters"]) == ("Net", "", parameters)
        [text] = point["pipeline"]
        width, fraction = map(int, text.split("fixed(")[1].split(")")[0].split(","))
        sqnr, most = sqnr_of(state, width, fraction)
        assert point["sqnr"] == pytest.approx(sqnr, rel=1e-4)
        assert point["max_error"] == pytest.approx(most, rel=1e-4)
        assert (point["data_bits"], point["weight_bits"]) == (width, width)
        assert point["parameter_bytes"] == parameters * width // 8
        assert "net.pt" in point["facts"]["weights"]
    alone = json.loads(mase("verilog", "net.py", "--pass", Q8, "--multipliers", 64, "--format", "json").stdout)
    [same] = [p for p in found["points"] if (p["pipeline"], p["build"]) == ([Q8], {"multipliers": 64})]
    for name, total in [("luts", "luts"), ("cycles", "interval"), ("latency", "latency"), ("multipliers",) * 2]:
        assert same[name] == alone["totals"][total]


@pytest.fixture
def mase(sweeping):
    """Any other command, in the same project."""
    import subprocess
    import sys

    def run(*words):
        command = [sys.executable, "-m", "mase_server", *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, env=sweeping.environment, cwd=sweeping.folder, timeout=200
        )

    return run


def test_the_table_marks_the_best_and_leaves_out_the_others(sweeping):
    words = ("net.py", "--pipeline", "quantize default='fixed({w},4)'", "--vary", "w=6,8,16", "--objectives",
             "sqnr,weight_bits", "--jobs", 1)  # fmt: skip
    done = sweeping(*words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].endswith("net.py: Net")
    assert lines[1].endswith(" of 3 that no other point beats in high sqnr and low weight_bits")
    assert lines[2].split() == ["pipeline", "sqnr", "weight", "bits", "max", "error"]
    stars = [line.split() for line in lines if line.startswith("*")]
    every = [line.split() for line in sweeping(*words, "--all").stdout.splitlines() if "quantize" in line]
    assert len(every) == 3
    assert 1 <= len(stars) < 3
    assert [line for line in every if line[0] == "*"] == stars
    assert "weights of net.pt" in done.stdout
    assert lines[-1] == "3 points of 3 in sweep.sqlite"


def test_a_grid_file_says_it_all_and_names_the_results(sweeping, project):
    (project / "grid.toml").write_text(f'models = "net.py"\npipelines = [[], ["{Q8}"]]\nobjectives = ["sqnr"]\n')
    done = sweeping("grid.toml", "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = csv.DictReader(io.StringIO(done.stdout))
    assert (first["pipeline"], first["sqnr"], first["max_error"], first["best"]) == ("", "inf", "0", "1")
    assert (second["pipeline"], second["best"], second["luts"]) == (Q8, "0", "")
    assert [row["pipeline"] for row in sweeping.rows("grid.sqlite")] == ["[]", json.dumps([Q8])]


def test_pipelines_keep_their_names_and_files_their_relative_paths(sweeping, project):
    pipelines = """plain = []\nint = ["quantize(default='fixed({w},4)')"]"""
    grid = f'models = "net.py"\nobjectives = ["sqnr"]\n[vary]\nw = [6, 8]\n[pipelines]\n{pipelines}\n'
    (project / "grid.toml").write_text(grid)
    points = told(sweeping("grid.toml", "--format", "json"))["points"]
    assert {(point["file"], point["name"]) for point in points} == {
        ("net.py", "plain"), ("net.py", "int w=6"), ("net.py", "int w=8"),
    }  # fmt: skip
    shown = sweeping("grid.toml", "--all").stdout
    assert shown.startswith("net.py: Net\n")
    assert "\n   int w=6 " in shown
    rows = csv.DictReader(io.StringIO(sweeping("grid.toml", "--format", "csv").stdout))
    assert {row["name"]: row["pipeline"] for row in rows}["int w=8"] == Q8


def test_what_is_known_is_not_measured_again_until_something_it_rests_on_changes(sweeping, project):
    (project / "grid.toml").write_text(
        f'models = "net.py"\npipelines = [["{Q8}"]]\nobjectives = ["sqnr"]\ndepends = ["net.pt"]\n'
    )

    def again(*words):
        [point] = told(sweeping("grid.toml", "--format", "json", *words))["points"]
        return point["seconds"]

    first = again()
    assert again() == first
    assert again("--retry") == first  # it had not failed
    seen = {first}
    (project / "parts.py").write_text("WIDTH = 16  # another text\n")
    seen.add(again())
    (project / "net.py").write_text((project / "net.py").read_text() + "\n")
    seen.add(again())
    torch.manual_seed(1)
    torch.save(Net().state_dict(), project / "net.pt")
    seen.add(again())
    seen.add(again("--again"))
    assert len(seen) == 5  # each time of its own: measured anew
    (project / "parts.py").write_text("WIDTH = 16\n")
    assert again() not in seen


def test_a_point_that_fails_is_named_kept_and_tried_again_only_when_asked(sweeping, project):
    words = ("net.py", "--pipeline", "broken", "--pipeline", "quantize default='fixed(8,4)'")
    done = sweeping(*words)
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if "broken()" in line]
    assert line.startswith("  net.py | broken(): ")
    assert "AttributeError" in line
    assert "1 point failed" in done.stdout
    failed, good = sweeping.rows() if sweeping.rows()[0]["error"] else sweeping.rows()[::-1]
    assert (failed["kind"], failed["sqnr"], good["error"]) == ("pass", None, "")
    (project / "gated.py").write_text((project / "gated.py").read_text().replace("mg.nothing", "mg, {}"))
    # Its pass stands in a file that the result rests on, so the mended one is tried.
    assert sweeping(*words).returncode == 0


def test_the_same_failure_is_not_met_twice_without_retry(sweeping):
    words = ("net.py", "--pipeline", "quantize default='fixed(8,4)' only=nowhere", "--format", "json")
    first = told(sweeping(*words), 1)["points"][0]
    assert first["error"]
    assert told(sweeping(*words), 1)["points"][0]["seconds"] == first["seconds"]
    assert told(sweeping(*words, "--retry"), 1)["points"][0]["seconds"] != first["seconds"]


def test_what_has_no_hardware_is_named_and_its_other_figures_are_there(sweeping, project):
    net = project / "net.py"
    net.write_text(net.read_text().replace("self.a(x).relu()", "torch.cumsum(self.a(x), 1)"))
    [point] = told(sweeping("net.py", "--multipliers", 64, "--format", "json"), 1)["points"]
    assert point["kind"] == "hardware"
    assert point["error"].startswith("no hardware for cumsum")
    assert (point["luts"], point["best"]) == (None, False)
    assert point["sqnr"] > 0


def test_a_file_without_a_model_is_a_failed_point_and_the_others_are_measured(sweeping, project):
    (project / "none.py").write_text("import torch\n")
    found = told(sweeping("none.py", "net.py", "--format", "json"), 1)["points"]
    assert [(point["file"].rpartition("/")[2], point["kind"]) for point in found] == [
        ("none.py", "trace"),
        ("net.py", ""),
    ]
    assert found[0]["error"].startswith("it shows no model: Nothing here defines or builds an nn.Module.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["net.py", "--pipeline", "quantise"], "error: there is no pass 'quantise'; did you mean 'quantize'?"),
        (["net.py", "--pipeline", "prune sparsity=2"], "error: prune has no argument 'sparsity'"),
        (["net.py", "--pipeline", "quantize default={w}"], "error: {w} stands in "),
        (["net.py", "--vary", "w"], "error: 'w' says no values; an example: --vary width=4,6,8"),
        (["net.py", "--multipliers", "8,x"], "error: --multipliers has 'x'; it takes whole numbers"),
        (["net.py", "--interval", "0"], "error: interval is 0; it takes a whole number from 1"),
        (["net.py", "--objectives", "speed"], "error: there is no figure 'speed' to compare"),
        (["net.py", "grid.toml"], "error: grid.toml is a grid: it names its models itself"),
        (["net.py", "--on", "ray"], "'ray' is none of local, dask and dask://HOST:PORT"),
        (["nat.py"], "does not exist"),
    ],
)
def test_what_cannot_be_meant_is_status_two(sweeping, project, words, message):
    (project / "grid.toml").write_text('models = "net.py"\n')
    done = sweeping(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.replace("│", "").split())


def test_a_file_that_holds_something_else_is_left_alone(sweeping, project):
    (project / "sweep.sqlite").write_text("my notes, longer than a header of a database would have to be" * 3)
    before = (project / "sweep.sqlite").read_bytes()
    done = sweeping("net.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: sweep.sqlite: file is not a database\n"
    assert (project / "sweep.sqlite").read_bytes() == before


def test_an_interruption_keeps_what_is_done_and_says_how_to_go_on(sweeping, gate):
    words = (
        "net.py",
        "--pipeline",
        "quantize default='fixed(8,4)'",
        "--pipeline",
        f"gated gate={gate.path}",
        "--jobs",
        1,
    )
    process = sweeping.start(*words)
    gate.reached()
    assert len(sweeping.rows()) == 1
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: 1 of 2 points are kept in sweep.sqlite; the same command goes on from there" in err
    assert "Traceback" not in err
    assert "fixed(8,4)" in out
    first = sweeping.rows()
    gate.open()
    assert sweeping(*words).returncode == 0
    assert sweeping.rows()[:1] == first
    assert [row["error"] for row in sweeping.rows()] == ["", ""]


def test_two_sweeps_on_one_file_leave_one_result_each(sweeping):
    words = ("net.py", "--pipeline", "quantize default='fixed({w},4)'", "--vary", "w=5,6,7,8", "--jobs", 2)
    both = [sweeping.start(*words) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=200)
        assert (process.returncode, err) == (0, "")
        assert "4 points of 4 in sweep.sqlite" in out
    rows = sweeping.rows()
    assert len(rows) == len({row["key"] for row in rows}) == 4
    assert not any(row["error"] for row in rows)


def test_help_teaches(sweeping):
    done = sweeping("--help")
    assert done.returncode == 0
    for word in ("--pipeline", "--vary", "--objectives", "--on", "--retry", "Exit status", "130 if interrupted"):
        assert word in done.stdout


def test_a_terminal_has_a_bar_and_a_pipe_has_none(sweeping):
    import os
    import pty
    import subprocess

    ours, theirs = pty.openpty()
    command = sweeping.command("net.py", "--pipeline", "quantize default='fixed(8,4)'")
    environment = {**sweeping.environment, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment, cwd=sweeping.folder
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while data := os.read(ours, 1 << 16):
                seen += data
        except OSError:
            pass  # the terminal's other end is closed
        out = process.stdout.read()
    assert b"0/1" in seen
    assert b"\x1b" in seen
    assert b"0/1" not in out
    wait_for(lambda: process.poll() == 0)
