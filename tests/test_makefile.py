"""The Makefile, hosted CI, pre-commit and the issue forms name files, programs and commands that exist."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from mase_server.cli.commands import build_app

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
NAMED = sorted(set(re.findall(r"(?:tests|benchmarks|docs)/[\w/]+\.py", MAKEFILE)))
FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]


def test_a_file_that_the_makefile_names_is_there():
    assert NAMED
    assert [file for file in NAMED if not (ROOT / file).is_file()] == []


def test_make_quick_runs_a_test_of_every_package():
    quick = {package: files for package, *files in map(str.split, (ROOT / "tests" / "quick.txt").open())}
    packages = {path.parent for path in (ROOT / "mase_server").rglob("*.py")}
    assert set(quick) == {".".join(path.relative_to(ROOT).parts) for path in packages}
    assert [package for package, files in quick.items() if not files] == []
    named = [name.partition("::") for names in quick.values() for name in names]
    assert [file for file, _, test in named if f"def {test}" not in (ROOT / file).read_text()] == []


def test_hosted_ci_runs_the_whole_check_with_the_oldest_supported_python():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    [job] = workflow["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]]
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert re.fullmatch(rf"python:{re.escape(oldest)}-\w+", job["container"]["image"])
    [cache] = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/cache")]
    hashed = re.findall(r"'([^']+)'", cache["key"])
    assert hashed
    assert [path for path in hashed if not (ROOT / path).is_file()] == []


def test_pre_commit_checks_what_make_lint_and_make_types_check():
    [local] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["id"]: hook for hook in local["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format", "mypy"}
    for hook in hooks.values():
        program = Path(hook["entry"].split()[0])
        assert program.parent == Path(".venv/bin")
        assert (Path(sys.executable).parent / program.name).is_file()
    folders = re.search(r"^CODE := (.*)$", MAKEFILE, re.M)[1].replace("/*.py", "").split()
    for folder in folders:
        assert all(re.search(hooks[each]["files"], f"{folder}/a.py") for each in ("ruff-check", "ruff-format"))
    assert re.search(hooks["mypy"]["files"], "mase_server/rpc/channel.py")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_each_question_once_and_names_commands_that_exist(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    assert {field["type"] for field in form["body"]} <= {"textarea", "input", "dropdown", "checkboxes", "markdown"}
    names = [field["id"] for field in form["body"]]
    assert len(set(names)) == len(names)
    assert all(field["attributes"]["label"] for field in form["body"])
    commands = set(re.findall(r"`mase-server (\w+)`", path.read_text()))
    assert commands <= {*get_command(build_app()).commands, "report"}
