"""`mase-server shapes` on real files, traced for real. The expected shapes follow from the layers' definitions."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.in_process import unboxed

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.a = nn.Linear(8, width)
        self.b = nn.Linear(width, 3)

    def forward(self, x):
        h = self.a(x).relu()
        pair = (h, self.b(h))
        return pair


if __name__ == "__main__":
    Net()(torch.randn(4, 8))
"""
BROKEN = NET.replace("nn.Linear(width, 3)", "nn.Linear(width + 1, 3)")
FIELDS = {"file", "python", "torch", "seconds", "models", "tensors", "problems", "complete", "unshown"}


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


def reports(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def tensor(report, kind, name=""):
    [row] = [row for row in report["tensors"] if row["kind"] == kind and row["name"] == name and row["line"] > 9]
    return row


def test_the_report_has_exactly_its_fields(mase, net):
    done = mase("shapes", "--format", "json", net)
    assert (done.returncode, done.stderr) == (0, "")
    [report] = reports(done)
    assert set(report) == FIELDS
    assert report["file"] == str(net)
    assert report["problems"] == []
    [model] = report["models"]
    assert set(model) == {
        "name", "arguments", "inputs", "inputs_from", "arguments_from", "nodes", "parameters", "flops", "complete",
    }  # fmt: skip
    assert (model["name"], model["inputs_from"], model["parameters"]) == ("Net", "main", 8 * 64 + 64 + 64 * 3 + 3)
    assert model["inputs"] == {"x": {"dtype": "f32", "shape": [4, 8], "symbols": ["B", "8"]}}


def test_rows_stand_at_the_bound_names(mase, net):
    [report] = reports(mase("shapes", "--format", "json", net))
    lines = NET.splitlines()
    for row in report["tensors"]:
        assert set(row) == {"line", "column", "end_line", "end_column", "name", "kind", "function", "values"}
        text = lines[row["line"] - 1][row["column"] : row["end_column"]]
        assert text == (row["name"] or "pair")
        assert row["name"] != "self"
        assert row["kind"] in {"parameter", "binding", "return"}
    hidden = tensor(report, "binding", "h")
    assert hidden["function"] == "Net.forward"
    [value] = hidden["values"]
    assert set(value) == {"dtype", "shape", "symbols", "model", "count", "scopes"}
    assert (value["dtype"], value["shape"], value["symbols"]) == ("f32", [4, 64], ["B", "64"])


def test_containers_nest(mase, net):
    [report] = reports(mase("shapes", "--format", "json", net))
    [value] = tensor(report, "return")["values"]
    assert value["tuple"] == [
        {"dtype": "f32", "shape": [4, 64], "symbols": ["B", "64"]},
        {"dtype": "f32", "shape": [4, 3], "symbols": ["B", "3"]},
    ]
    assert {"model", "count", "scopes"} < set(value)


def test_expressions_are_told_only_with_all(mase, net):
    [report] = reports(mase("shapes", "--all", "--format", "json", net))
    calls = [row for row in report["tensors"] if row["kind"] == "expression"]
    texts = {NET.splitlines()[row["line"] - 1][row["column"] : row["end_column"]] for row in calls}
    assert {"self.a(x)", "self.a(x).relu()", "self.b(h)"} <= texts


def test_an_input_option_overrides_what_the_file_says(mase, net):
    net.write_text("# mase: x = f32[5, 8]\n" + NET)
    [report] = reports(mase("shapes", "--format", "json", "--input", "x: f32[7, 8]", net))
    [model] = report["models"]
    assert model["inputs_from"] == "option"
    assert model["inputs"]["x"]["shape"] == [7, 8]


def test_several_files_are_one_object_a_line_in_their_order(mase, net, tmp_path):
    other = tmp_path / "broken.py"
    other.write_text(BROKEN)
    done = mase("shapes", "--format", "json", other, net)
    assert [report["file"] for report in reports(done)] == [str(other), str(net)]
    assert done.returncode == 1


def test_an_error_is_told_at_its_line_with_the_shapes_up_to_it(mase, net):
    net.write_text(BROKEN)
    done = mase("shapes", "--format", "json", net)
    [report] = reports(done)
    assert done.returncode == 1
    [problem] = report["problems"]
    assert set(problem) == {"line", "column", "end_line", "end_column", "severity", "code", "message"}
    assert (problem["line"], problem["severity"]) == (13, "error")
    assert tensor(report, "binding", "h")["values"][0]["shape"] == [4, 64]


def test_a_syntax_error_is_a_problem_at_its_place(mase, net):
    net.write_text(NET + "def (\n")
    done = mase("shapes", "--format", "json", net)
    [report] = reports(done)
    assert done.returncode == 1
    assert [(p["line"], p["code"]) for p in report["problems"]] == [(len(NET.splitlines()) + 1, "syntax-error")]
    assert (report["models"], report["tensors"]) == ([], [])


def test_a_file_without_a_model_says_so(mase, net):
    net.write_text("open('ran', 'w').close()\n")
    done = mase("shapes", net, cwd=net.parent)
    assert done.returncode == 1
    assert "no-model" in done.stdout
    assert not (net.parent / "ran").exists()


def test_an_interpreter_without_torch_says_what_to_do(mase, net, tmp_path):
    done = mase("shapes", "--python", tmp_path / "nowhere" / "python", net)
    assert done.returncode == 1
    assert str(tmp_path / "nowhere" / "python") in done.stdout


def test_the_listing_is_the_source_with_hints_and_no_colours_in_a_pipe(mase, net):
    done = mase.process("shapes", net)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert "    def forward(self, x: f32[B, 8]):" in lines
    assert "        h: f32[B, 64] = self.a(x).relu()" in lines
    assert "        return pair -> (f32[B, 64], f32[B, 3])" in lines
    assert any(line.startswith("# Net: ") and "771 parameters" in line for line in lines)
    plain = [line for line in lines if not line.startswith("# Net: ")]
    assert len(plain) == len(NET.splitlines())


def test_the_listing_ends_with_the_problems(mase, net):
    net.write_text(BROKEN)
    done = mase("shapes", net)
    assert any(line.startswith(f"{net}:13:") and " error[" in line for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [("shapes",), ("shapes", "no/such/file.py"), ("shapes", "--format", "xml", "x.py"), ("nonsense",)],
)
def test_wrong_usage_is_status_two(mase, arguments):
    done = mase(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_inputs_that_cannot_be_read_are_wrong_usage(mase, net):
    done = mase("shapes", net, "--input", "x: f32[1, 9")
    assert done.returncode == 2
    assert "error[bad-inputs]: The inputs given could not be read: expected ',' or ']'" in done.stdout


def test_no_process_is_left_behind(mase, net, tmp_path):
    """Every process that the command started has inherited its environment, which names `tmp_path`."""
    assert mase.process("shapes", net).returncode == 0
    mark = str(tmp_path).encode()
    assert [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mark in read(path)] == []


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_long_message_goes_on_in_an_indented_line(mase, net):
    net.write_text(BROKEN)
    lines = mase("shapes", net).stdout.splitlines()
    [first] = [number for number, line in enumerate(lines) if "expects 65 features," in line]
    assert lines[first + 1].startswith("    but the last dimension of `h` f32[")


def test_a_folder_with_the_name_of_a_file_is_wrong_usage(mase, tmp_path):
    (tmp_path / "folder.py").mkdir()
    done = mase("shapes", tmp_path / "folder.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "folder.py" in unboxed(done.stderr)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "no-model"),
        (b"\x00\x01\xff" * 40, "not-text"),
        (b"# caf\xe9\n" + NET.encode(), "unknown-encoding"),
        (
            b"import not_there\nWIDTH = int(not_there.WIDTH)\n" + NET.replace("Linear(8,", "Linear(WIDTH,").encode(),
            "missing-package",
        ),
        (NET.replace("super().__init__()", "raise SystemExit(3)").encode(), "exited"),
        (NET.replace("super().__init__()", "raise KeyboardInterrupt").encode(), "constructor-error"),
        (NET.replace("h = self.a(x).relu()", "import os; os._exit(3)").encode(), "exited"),
    ],
)
def test_what_cannot_be_shown_is_one_error(mase, net, content, code):
    net.write_bytes(content)
    done = mase("shapes", "--format", "json", net)
    [report] = reports(done)
    found = [(problem["code"], problem["severity"]) for problem in report["problems"]]
    assert [each for each in found if each[1] == "error"] == [(code, "error")]
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + NET.encode(),
        NET.replace("\n", "\r\n").encode(),
        b"# -*- coding: latin-1 -*-\nNAME = 'caf\xe9'\n" + NET.encode(),
        NET.encode() + b"".join(b"TABLE_%d = '%s'\n" % (number, b"x" * 80) for number in range(54_000)),
    ],
    ids=["byte order mark", "carriage returns", "latin-1", "five megabytes"],
)
def test_other_ways_to_write_a_file_are_no_mistake(mase, net, content):
    net.write_bytes(content)
    done = mase("shapes", "--format", "json", net)
    [report] = reports(done)
    assert (done.returncode, report["problems"]) == (0, [])
    [hidden] = [row for row in report["tensors"] if row["name"] == "h"]
    assert hidden["values"][0]["symbols"] == ["B", "64"]


def test_standard_input_is_traced_as_a_file_of_this_folder_that_need_not_exist(mase, net, tmp_path, monkeypatch):
    (tmp_path / "sizes.py").write_text("WIDTH = 5\n")
    text = NET.replace("import torch\n", "import torch\nfrom sizes import WIDTH\n", 1)
    text = text.replace("width=64", "width=WIDTH")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    done = mase("shapes", "-", "--stdin-path", "net.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "h: f32[B, 5] = self.a(x).relu()" in done.stdout
    assert net.read_text() == NET
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(BROKEN.encode())))
    [report] = reports(mase("shapes", "--format", "json", "-", cwd=tmp_path))
    assert report["file"] == "stdin.py"
    assert [problem["code"] for problem in report["problems"]] == ["shape-mismatch"]
    assert {path.name for path in tmp_path.glob("*.py")} == {"net.py", "sizes.py"}


def test_standard_input_is_read_once_and_in_a_folder_that_exists(mase, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(NET.encode())))
    done = mase("shapes", "-", "--watch", cwd=tmp_path)
    assert (done.returncode, "standard input is read once" in done.stderr) == (2, True)
    done = mase("shapes", "-", "--stdin-path", "none/net.py", cwd=tmp_path)
    assert (done.returncode, "there is no folder none" in done.stderr) == (2, True)
