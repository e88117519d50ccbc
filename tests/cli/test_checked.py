"""The pieces of `check` that need no trace: which files, each problem once, escapes, edits."""

import hashlib
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from mase_server.cli.check_text import _explained_problem_lines, github_annotation
from mase_server.cli.check_text import checked_to_sarif as sarif
from mase_server.cli.checking import Checked, Sources, Worst, apply_proved_fixes, find_files
from mase_server.cli.reports import Report
from mase_server.protocol.snapshot import Problem

MODEL = "from torch import nn\nclass Net(nn.Module):\n    pass\n"


def problem(file, line=1, column=0, end_line=1, end_column=1, severity="error", message="wrong", **more):
    return Problem(str(file), line, column, end_line, end_column, severity, "shape-mismatch", message, **more)


def checked(root, *problems, files=("net.py",), models=({"title": "Net"},), message=""):
    """What was found of files that all met the same problems."""
    reports = []
    for name in files:
        path = root / name
        source = path.read_bytes() if path.exists() else b""
        status = {"state": "ready", "message": message}
        told = {
            "sha256": hashlib.sha256(source).hexdigest(),
            "status": status,
            "python": "3.11",
            "models": list(models),
        }
        told |= {"problems": [asdict(each) for each in problems], "sites": []}
        reports.append(Report(str(path), str(path), source, told))
    return Checked(reports, root=root)


def names(paths, root):
    return [path.relative_to(root).as_posix() for path in paths]


def test_without_git_hidden_and_foreign_folders_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for folder in ("a", ".hidden", "node_modules", "env", "build"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text(MODEL)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "script.py").write_text("print('no model')\n")
    told = find_files([tmp_path])
    assert names(told.models, tmp_path) == ["a/net.py"]
    assert names(told.others, tmp_path) == ["script.py"]


def test_with_git_what_is_new_counts_and_what_is_ignored_does_not(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("made_*.py\n")
    for name in ("net.py", "made_net.py", "with space.py"):
        (tmp_path / name).write_text(MODEL)
    subprocess.run(["git", "-C", tmp_path, "add", "net.py"], check=True)
    (tmp_path / "gone.py").write_text(MODEL)
    subprocess.run(["git", "-C", tmp_path, "add", "gone.py"], check=True)
    (tmp_path / "gone.py").unlink()
    assert names(find_files([tmp_path]).models, tmp_path) == ["net.py", "with space.py"]


def test_a_file_is_looked_at_once_however_often_it_is_named(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    assert find_files([path, tmp_path / "." / "net.py", tmp_path]).models == [path]


@pytest.mark.parametrize(("source", "counts"), [("import torch\ndef (\n", True), ("print 'old'\n", False)])
def test_what_cannot_be_parsed_counts_if_it_looks_like_models(tmp_path, source, counts):
    (tmp_path / "net.py").write_text(source)
    assert bool(find_files([tmp_path / "net.py"]).models) == counts


def test_a_problem_that_several_models_meet_in_one_file_is_one(tmp_path):
    shared = problem(tmp_path / "blocks.py", 3)
    told = checked(tmp_path, shared, files=("a.py", "b.py"))
    assert told.problems == [shared]
    assert told.fails()


def test_a_problem_in_a_library_is_told_where_the_person_called_it(tmp_path):
    place = {
        "file": str(tmp_path / "net.py"),
        "line": 7,
        "column": 4,
        "end_line": 7,
        "end_column": 9,
        "message": "here",
    }
    told = checked(tmp_path, problem("/usr/lib/python/torch/nn/linear.py", 134, related=[place]))
    [one] = told.problems
    assert (one.file, one.line, one.column) == (str(tmp_path / "net.py"), 7, 4)
    assert one.message == "/usr/lib/python/torch/nn/linear.py:134: wrong"


@pytest.mark.parametrize(
    ("severity", "error", "warning"), [("error", True, True), ("warning", False, True), ("information", False, False)]
)
def test_what_fails_is_a_matter_of_severity(tmp_path, severity, error, warning):
    told = checked(tmp_path, problem(tmp_path / "net.py", severity=severity))
    assert (told.fails(), told.fails({Worst.WARNING})) == (error, warning)


def test_a_file_of_which_nothing_is_shown_is_not_called_clean(tmp_path):
    hint = problem(tmp_path / "net.py", severity="information")
    told = checked(tmp_path, hint, models=(), message="no inputs were found")
    [invocation] = sarif(told)["runs"][0]["invocations"]
    [missed] = invocation["toolExecutionNotifications"]
    assert missed["message"] == {"text": "not checked: no inputs were found"}
    assert [report.path for report, _ in told.unchecked] == [str(tmp_path / "net.py")]
    assert not checked(tmp_path, problem(tmp_path / "net.py"), models=()).unchecked


def test_what_github_would_read_as_its_own_is_escaped(tmp_path):
    told = checked(tmp_path)
    one = problem(tmp_path / "a,b:c.py", 2, 0, 4, 0, "warning", "100 % wrong:\r\n::error::")
    assert github_annotation(told, one) == (
        "::warning file=a%2Cb%3Ac.py,line=2,endLine=3,title=mase-server shape-mismatch::100 %25 wrong:%0A::error::"
    )


def test_sarif_paths_are_uris(tmp_path):
    inside, outside = problem(tmp_path / "mit leer" / "größe.py"), {"file": "/else/where.py", "message": "there"}
    place = dict.fromkeys(("line", "column", "end_line", "end_column"), 1)
    inside.related.append({**outside, **place})
    [result] = sarif(checked(tmp_path, inside))["runs"][0]["results"]
    where = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert where == {"uri": "mit%20leer/gr%C3%B6%C3%9Fe.py", "uriBaseId": "SRCROOT"}
    [related] = result["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"] == {"uri": "file:///else/where.py"}


def test_marks_stand_below_tabs_and_wide_places_end_with_their_line(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("if x:\n\ty = (a +\n\t\tb)\n")
    lines = [line.plain for line in _explained_problem_lines(checked(tmp_path), Sources(), problem(path, 2, 5, 3, 4))]
    assert lines[1:] == ["    2 | \ty = (a +", "      | \t    ^^^^"]


def test_a_place_that_cannot_be_read_has_no_excerpt(tmp_path):
    lines = [
        line.plain for line in _explained_problem_lines(checked(tmp_path), Sources(), problem(tmp_path / "gone.py"))
    ]
    assert lines == [f"{tmp_path}/gone.py:1:1: error[shape-mismatch]: wrong"]


def fix(path, *edits, preferred=True):
    keys = ("line", "column", "end_line", "end_column", "new_text")
    return {
        "title": "t",
        "preferred": preferred,
        "edits": [{"file": str(path), **dict(zip(keys, one, strict=True))} for one in edits],
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1; b = 2\n", "a = 10; b = 20\n"),
        ("a = 1; b = 2\r\n", "a = 10; b = 20\r\n"),
        ("\ufeffa = 1; b = 2\n", "\ufeffa = 10; b = 20\n"),
    ],
)
def test_edits_keep_everything_else_as_it_was(tmp_path, before, after):
    path = tmp_path / "net.py"
    path.write_bytes(before.encode())
    done = apply_proved_fixes(
        checked(tmp_path, problem(path, 1, fixes=[fix(path, (1, 4, 1, 5, "10"), (1, 11, 1, 12, "20"))]))
    )
    assert done == [f"{path}:1: t"]
    assert path.read_bytes() == after.encode()


def test_a_file_keeps_its_encoding(tmp_path):
    path = tmp_path / "net.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\nNAME = 'caf\xe9', 1\n")
    apply_proved_fixes(checked(tmp_path, problem(path, 2, fixes=[fix(path, (2, 15, 2, 16, "2"))])))
    assert path.read_bytes() == b"# -*- coding: latin-1 -*-\nNAME = 'caf\xe9', 2\n"


def other(path):
    return Path(path).with_name("other.py")


@pytest.mark.parametrize(
    "made",
    [
        lambda path: fix(path, (1, 4, 1, 5, "10"), preferred=False),
        lambda path: fix(other(path), (1, 4, 1, 5, "10")),
        lambda path: fix(path, (1, 0, 1, 5, "x"), (1, 4, 1, 5, "y")),
    ],
    ids=["not proved", "of another file", "twice at a place"],
)
def test_other_fixes_are_left_to_the_person(tmp_path, made):
    path = tmp_path / "net.py"
    path.write_text("a = 1\n")
    assert apply_proved_fixes(checked(tmp_path, problem(path, fixes=[made(path)]))) == []
    assert path.read_text() == "a = 1\n"


def test_a_file_that_was_saved_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("a = 1\n")
    told = checked(tmp_path, problem(path, fixes=[fix(path, (1, 4, 1, 5, "10"))]))
    path.write_text("b = 1\n")
    assert apply_proved_fixes(told) == []
    assert path.read_text() == "b = 1\n"
