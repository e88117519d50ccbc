"""The pieces of `shapes` that need no trace: values as JSON, listings, problems of other files, project roots."""

import asyncio
import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lsp"))

from fake_daemon import payload_of

from mase_server.cli import verilog
from mase_server.cli.reports import report_of
from mase_server.cli.session import project_of
from mase_server.cli.showing import annotated_lines, report_to_json, value_map
from mase_server.daemon import api_readings
from mase_server.daemon.api_readings import read_traced_file
from mase_server.daemon.methods import Api
from mase_server.daemon.status import Status
from mase_server.daemon.store import Entry, GraphSnapshot, Store
from mase_server.daemon.tracked import Tracked
from mase_server.protocol.snapshot import Problem

SOURCE = """\
# model Net
class Net:
    def forward(self, x):  # => f32[B:2, 64]
        y: Tensor = self.a(x)  # => f32[B:2, 10]
        return y  # => f32[B:2, 10]
"""
TENSOR = {"dtype": "f32", "shape": [2, 3], "symbols": ["B", "3"]}


class Traced:
    """A daemon that traced one file, for a function of the API."""

    def __init__(self, path, problems):
        snapshot = GraphSnapshot(payload_of(str(path), SOURCE))
        self.store = Store()
        self.store.put(Entry(str(path), snapshot.sha256, snapshot, problems=tuple(problems)))
        status = Status(str(path), "ready", 1, snapshot.sha256, snapshot.sha256, False, True, 0.5, "")
        self.tracked = Tracked(str(path), str(path.parent), status=status)

    def file(self, path):
        return self.tracked


def told(path, text=SOURCE, problems=(), everything=False):
    path.write_text(text)
    api = Api(Traced(path, problems))
    return report_of(path, [asyncio.run(read_traced_file(api, {"path": str(path), "all": everything}))])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["f32", [2, 3], ["B", "3"]], TENSOR),
        (("f32", (2, 3), ("B", "3")), TENSOR),
        (["f32", [2, 3], None], {"dtype": "f32", "shape": [2, 3], "symbols": ["2", "3"]}),
        ({"dtype": "f32", "shape": [2, 3], "symbols": ["B", "3"]}, TENSOR),
        (None, None),
        ({"python": "int"}, {"python": "int"}),
        ({"tuple": [["f32", [2, 3], ["B", "3"]], None]}, {"tuple": [TENSOR, None]}),
        ({"dict": {"a": {"tuple": [["f32", [2, 3], ["B", "3"]]]}}}, {"dict": {"a": {"tuple": [TENSOR]}}}),
    ],
)
def test_values_nest_as_deep_as_they_go(value, expected):
    assert value_map(value) == expected


def test_the_listing_puts_hints_behind_names_and_the_lens_above_the_class(tmp_path):
    lines = [line.plain for line in annotated_lines(told(tmp_path / "net.py"))]
    assert lines[1].startswith("# Net: guessed B=2 · 1,010 parameters")
    assert lines[3:] == [
        "    def forward(self, x: f32[B, 64]):  # => f32[B:2, 64]",
        "        y f32[B, 10]: Tensor = self.a(x)  # => f32[B:2, 10]",
        "        return y -> f32[B, 10]  # => f32[B:2, 10]",
    ]


def test_a_listing_of_another_text_than_the_traced_one_has_no_hints(tmp_path):
    text = SOURCE.replace("64", "65")
    assert [line.plain for line in annotated_lines(told(tmp_path / "net.py", text))] == text.splitlines()


def test_expressions_are_listed_on_request(tmp_path):
    lines = [line.plain for line in annotated_lines(told(tmp_path / "net.py", everything=True), everything=True)]
    assert "        y f32[B, 10]: Tensor = self.a(x): f32[B, 10]  # => f32[B:2, 10]" in lines


def test_a_report_leaves_out_what_is_no_tensor(tmp_path):
    made = told(tmp_path / "net.py")
    assert [(row["name"], row["kind"]) for row in report_to_json(made, everything=False)["tensors"]] == [
        ("x", "parameter"),
        ("y", "binding"),
        ("", "return"),
    ]


def test_only_errors_make_an_outcome_bad(tmp_path):
    def problem(severity):
        return Problem(str(tmp_path / "net.py"), 1, 0, 1, 1, severity, "code", "message")

    assert not told(tmp_path / "net.py", problems=[problem("warning"), problem("hint")]).has_errors
    assert told(tmp_path / "net.py", problems=[problem("warning"), problem("error")]).has_errors


def test_the_text_that_was_traced_is_known_by_its_hash(tmp_path):
    made = told(tmp_path / "net.py")
    assert made.same_text
    assert made.told["sha256"] == hashlib.sha256(SOURCE.encode()).hexdigest()
    assert not told(tmp_path / "net.py", "another text").same_text


def test_a_long_file_comes_in_pages_without_a_gap(tmp_path, monkeypatch):
    path = tmp_path / "net.py"
    whole = told(path)
    monkeypatch.setattr(api_readings, "_SITES", 1)
    monkeypatch.setattr(api_readings, "_LINES", 1)
    pages, following = [], 1
    while following is not None:
        params = {"path": str(path), "first": following}
        pages.append(asyncio.run(read_traced_file(Api(Traced(path, ())), params)))
        following = pages[-1]["next"]
    assert len(pages) == 3
    assert report_of(path, pages).told["sites"] == whole.told["sites"]


def test_nothing_is_told_of_an_older_text(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    daemon = Traced(path, ())
    daemon.store.put(replace(daemon.store.entry(str(path)), stale=True, sha256="newer"))
    answer = asyncio.run(read_traced_file(Api(daemon), {"path": str(path)}))
    assert (answer["models"], answer["sites"], answer["sha256"]) == ([], [], "newer")


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.py"])
def test_the_project_of_a_file_is_the_nearest_folder_that_looks_like_one(tmp_path, mark):
    inner = tmp_path / "project" / "models"
    inner.mkdir(parents=True)
    (tmp_path / "project" / mark).touch()
    assert project_of(str(inner / "net.py")) == str(tmp_path / "project")


def test_a_file_in_no_project_has_its_own_folder(tmp_path):
    assert project_of(str(tmp_path / "net.py")) == str(tmp_path)


def test_a_time_that_is_not_known_is_no_zero():
    estimate = {"multipliers": 0, "luts": 1500, "memory_bits": 0, "cycles": 28800, "latency": 0}
    row = verilog._operation_row({"name": "cat", "scope": "", "module": "stream_concat", "estimate": estimate})
    assert row == ["cat", "", "stream_concat", "0", "1,500", "0", "28,800", "-"]
