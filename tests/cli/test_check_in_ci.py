"""`mase-server check` in continuous integration: rules, the table in pyproject.toml, kept results, diffs, baselines."""

import json
import os
import subprocess
import sys

import pytest

from mase_server.cli import session
from mase_server.daemon.supervisor import TraceWorker
from tests.cli.conftest import BROKEN, NET

#: Imports a module that may be made later.
TRIES = "try:\n    from more import WIDTH\nexcept ImportError:\n    pass\n"


@pytest.fixture
def project(mase, tmp_path):
    """A repository with `net.py`, which imports its width, and the command `check` in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "sizes.py").write_text("WIDTH = 64\n")
    (folder / "net.py").write_text("from sizes import WIDTH\n" + TRIES + NET.replace("width=64", "width=WIDTH"))
    (folder / "pyproject.toml").touch()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")

    def check(*arguments, process=False, **more):
        run = mase.process if process else mase
        return run("check", "--no-daemon", "--python", sys.executable, *arguments, cwd=folder, **more)

    check.folder = folder
    return check


def git(folder, *arguments):
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", "-C", folder, *arguments], check=True, env={**os.environ, **who})


IGNORED = {
    "the rule at the line": BROKEN.replace("self.b(h))", "self.b(h))  # mase: ignore[shape-mismatch]"),
    "all rules at the line": BROKEN.replace("self.b(h))", "self.b(h))  # noqa: E501  # mase: ignore"),
    "alone above the line": BROKEN.replace(
        "        pair", "        # mase: ignore[index-error, shape-mismatch]\n        # as it should be\n        pair"
    ),
    "in the file": "# mase: ignore-file[shape-mismatch]\n" + BROKEN,
}


@pytest.mark.parametrize("text", IGNORED.values(), ids=IGNORED)
def test_a_comment_ignores_a_rule(project, text):
    (project.folder / "net.py").write_text(text)
    done = project("net.py")
    assert (done.returncode, done.stdout) == (0, "1 model file checked: no problem found\n")


def test_a_comment_ignores_no_other_rule_and_no_other_line(project):
    text = BROKEN.replace("self.b(h))", "self.b(h))  # mase: ignore[index-error]")
    (project.folder / "net.py").write_text(text.replace("h = self", "# mase: ignore[shape-mismatch]\n        h = self"))
    assert project("net.py").returncode == 1


def test_an_unknown_rule_is_told(project):
    (project.folder / "net.py").write_text("# mase: ignore-file[shape-mismach]\n" + BROKEN)
    done = project("net.py")
    assert "there is no rule 'shape-mismach'; did you mean 'shape-mismatch'?" in done.stdout
    assert "error[shape-mismatch]" in done.stdout


def test_the_table_of_the_project_decides_rules_paths_inputs_and_limits(project):
    (project.folder / "old").mkdir()
    (project.folder / "old" / "net.py").write_text(BROKEN)
    (project.folder / "net.py").write_text("import not_there\n" + NET.partition("if __name__")[0])
    table = project.folder / "pyproject.toml"
    table.write_text(
        '[tool.mase]\nexclude = ["old"]\nrules = {missing-package = "error"}\n'
        '[tool.mase.inputs]\nNet = "x: f32[7, 8]"\n[tool.mase.limits]\nseconds = 20\nmemory = 2.5\n'
    )
    done = project("--format", "json")
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert [each["file"] for each in told["files"]] == ["net.py"]
    assert [(each["code"], each["severity"]) for each in told["problems"]] == [("missing-package", "error")]
    table.write_text(table.read_text().replace('"error"', '"off"'))
    assert project().stdout == "1 model file checked: no problem found\n"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("exclud = []", "has no 'exclud'; did you mean 'exclude'?"),
        ('rules = {shape-mismach = "off"}', "has no 'rules.shape-mismach'; did you mean 'shape-mismatch'?"),
        ('rules = {shape-mismatch = "no"}', "rules.shape-mismatch: expected one of off, information, warning, error"),
        ("limits = {seconds = 0}", "limits.seconds: expected a number above 0, not 0"),
        ("inputs = {Net = 3}", "inputs.Net: expected a text or a list of texts, not 3"),
    ],
)
def test_a_wrong_table_is_wrong_usage(project, table, why):
    (project.folder / "pyproject.toml").write_text(f"[tool.mase]\n{table}\n")
    done = project(env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})
    assert (done.returncode, done.stdout) == (2, "")
    assert why in " ".join(done.stderr.replace("\u2502", " ").split())


def test_a_second_run_traces_nothing_and_says_the_same(project, monkeypatch):
    first = project("--format", "json")
    traced = list((project.folder.parent / "cache").rglob("check/*.json"))
    assert len(traced) == 2  # the report, and which texts have models
    monkeypatch.setattr(session, "trace_each", None)
    second = project("--format", "json")
    assert (second.returncode, second.stdout) == (first.returncode, first.stdout)
    stamps = {path: path.stat().st_mtime_ns for path in traced}
    assert stamps == {path: path.stat().st_mtime_ns for path in traced}


CHANGES = {
    "its text": lambda folder: (folder / "net.py").write_text(BROKEN),
    "a file that it imports": lambda folder: (folder / "sizes.py").write_text("WIDTH = '64'\n"),
    "a module that it looked for": lambda folder: (folder / "more.py").write_text("WIDTH = '64'\n"),
    "its package": lambda folder: (folder / "sizes.py").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_kept_result_ends_with_any_change_of_what_it_was_made_of(project, change):
    assert project("net.py").returncode == 0
    change(project.folder)
    changed = project("net.py")
    assert changed.stdout != "1 model file checked: no problem found\n"
    assert changed.stdout == project("net.py", "--no-cache").stdout


def test_only_what_differs_from_a_revision_is_checked(project):
    (project.folder / "other.py").write_text(NET)
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "second")
    assert project("--changed", "main").stdout == "0 model files checked: no problem found\n"
    project()
    (project.folder / "sizes.py").write_text("WIDTH = 32\n")
    (project.folder / "new.py").write_text(NET)
    told = json.loads(project("--changed", "main", "--format", "json").stdout)
    assert [each["file"] for each in told["files"]] == ["net.py", "new.py"]
    done = project("--changed", "nowhere", env={"COLUMNS": "400"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr


def test_known_problems_are_left_out(project):
    (project.folder / "net.py").write_text(BROKEN)
    known = project.folder / "known.json"
    known.write_text(project("--format", "json").stdout)
    (project.folder / "net.py").write_text("# one line more\n" + BROKEN)
    done = project("--baseline", "known.json")
    assert (done.returncode, done.stdout) == (0, "1 model file checked: no problem found; 1 known\n")
    (project.folder / "new.py").write_text(BROKEN)
    assert project("--baseline", "known.json").returncode == 1
    known.write_text("{}")
    assert project("--baseline", "known.json").returncode == 2


def test_what_compilers_find_is_asked_of_the_trace_that_was_checked(project, monkeypatch):
    text = (project.folder / "net.py").read_text()
    (project.folder / "net.py").write_text(text.replace("pair =", "print('here')\n        pair ="))
    traced, trace = [], TraceWorker.trace

    def count(worker):
        traced.append(worker.request.path)
        return trace(worker)

    monkeypatch.setattr(TraceWorker, "trace", count)
    done = project("net.py", "--fail-on", "breaks", "--fail-on", "export")
    assert (done.returncode, "graph-break" in done.stdout) == (1, True)
    assert traced == [str(project.folder / "net.py")]
