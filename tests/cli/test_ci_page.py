"""The workflows and the container of docs/ci.md: their commands, run in a repository as the services would."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mase_server.paths import find_data_folder
from tests.cli.conftest import BROKEN, NET

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
OWN = yaml.safe_load(next(text for kind, text in BLOCKS if kind == "yaml" and "runs-on" in text))
REUSED = yaml.safe_load((ROOT / ".github" / "workflows" / "check-models.yml").read_text())


def commands(workflow):
    """The commands of its job that are ours, by their first words."""
    steps = workflow["jobs"]["check"]["steps"]
    return [step for step in steps if "mase-server " in step.get("run", "").removeprefix("pip install")]


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True).stdout

    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "good.py").write_text(NET)
    (folder / "pyproject.toml").touch()
    git("init", "-qb", "main")
    git("add", "-A")
    git("commit", "-qm", "first")
    base = git("rev-parse", "HEAD").strip()
    (folder / "net.py").write_text(BROKEN)
    git("add", "-A")
    git("commit", "-qm", "second")

    def run(command):
        home = tmp_path / "home"
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        known = {"PATH": places, "BASE": base, "HOME": str(home), "XDG_CACHE_HOME": str(home), "COLUMNS": "200"}
        return subprocess.run(
            ["bash", "-e", "-c", command], cwd=folder, env={**os.environ, **known}, capture_output=True, text=True
        )

    run.folder = folder
    return run


@pytest.mark.parametrize("workflow", [OWN, REUSED], ids=["own", "reused"])
def test_a_workflow_fails_for_an_error_shows_it_and_uploads_it(repository, workflow):
    shown, uploaded = [re.sub(r"\$\{\{.*?\}\}", "", step["run"]) for step in commands(workflow)][:2]
    done = repository(shown)
    assert done.returncode == 1
    assert "::error file=net.py,line=13," in done.stdout
    assert repository(uploaded).returncode == 1
    sarif = json.loads((repository.folder / "mase.sarif").read_text())
    [found] = sarif["runs"][0]["results"]
    assert found["ruleId"] == "shape-mismatch"


def test_the_reused_workflow_keeps_a_page_of_each_changed_model(repository):
    try:
        find_data_folder("mase_client_vscode/dist/pages", "pages", "view.js")
    except FileNotFoundError:
        pytest.fail("the pages are not built: run `make vsix`")
    [step] = [step for step in commands(REUSED) if "view" in step["run"]]
    assert repository(step["run"]).returncode == 0
    assert [path.name for path in (repository.folder / "pages").iterdir()] == ["net.py.html"]


def test_every_input_of_the_workflow_is_used_and_named_on_the_page():
    page = next(text for kind, text in BLOCKS if kind == "yaml" and "uses: OWNER" in text)
    inputs = REUSED[True]["workflow_call"]["inputs"]  # YAML reads `on` as true
    given = yaml.safe_load(page)["jobs"]["models"]["with"]
    assert set(given) <= set(inputs)
    text = (ROOT / ".github" / "workflows" / "check-models.yml").read_text()
    assert all(f"inputs.{name}" in text for name in inputs)


def test_the_container_checks_the_folder_that_it_is_given(repository):
    lines = dict(
        line.split(" ", 1) for line in next(text for kind, text in BLOCKS if kind == "dockerfile").splitlines() if line
    )
    run = next(text for kind, text in BLOCKS if kind == "sh").splitlines()[-1]
    given = shlex.split(run)[shlex.split(run).index("mase-server") + 1 :]
    start = json.loads(lines["ENTRYPOINT"])
    for path in repository.folder.rglob("*"):
        path.chmod(path.stat().st_mode & ~0o222)
    done = repository(shlex.join([*start, *given]))
    assert (done.returncode, "net.py:13:20: error[shape-mismatch]" in done.stdout) == (1, True)
    assert repository(shlex.join([*start, *json.loads(lines["CMD"])])).stdout == done.stdout
