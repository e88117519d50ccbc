"""The hook of `.pre-commit-hooks.yaml`, run by pre-commit itself in a repository that is committed to.

Its environment is pre-commit's own and has no torch: the models run in the one that was active at the commit.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs import release
from mase_server import PROJECT_URL

GOOD = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        return self.layer(x)


net = Net()(torch.randn(2, 8))
"""


def git(folder, *words):
    settings = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
    done = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_commit_is_refused_for_a_mistake_in_a_model_and_goes_through_without_it(tmp_path):
    source, work = tmp_path / "source", tmp_path / "work"
    release.copy_tracked(source, PROJECT_URL)
    for folder in (source, work):
        folder.mkdir(exist_ok=True)
        git(folder, "init", "--quiet")
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "-m", "the hook")
    rev = git(source, "rev-parse", "HEAD")
    hook = f"repos:\n- repo: {source}\n  rev: {rev}\n  hooks: [{{id: mase-server-check}}]\n"
    (work / ".pre-commit-config.yaml").write_text(hook)
    (work / "net.py").write_text(GOOD.replace("randn(2, 8)", "randn(2, 7)"))
    (work / "notes.py").write_text("print('no model')\n")

    def commit():
        git(work, "add", "--all")
        state = {f"XDG_{each}_HOME": str(tmp_path / each) for each in ("CACHE", "STATE")}
        # What `source bin/activate` sets. pre-commit then sets VIRTUAL_ENV to its own environment.
        active = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        settings = os.environ | state | active | {"PRE_COMMIT_HOME": str(tmp_path / "hooks")}
        words = ["git", "-c", "user.name=A Person", "-c", "user.email=person@example.org", "commit", "-m", "a model"]
        return subprocess.run(words, cwd=work, env=settings, capture_output=True, text=True, check=False)

    subprocess.run([sys.executable, "-m", "pre_commit", "install"], cwd=work, check=True, capture_output=True)
    refused = commit()
    assert refused.returncode == 1, refused
    assert "net.py:14" in refused.stderr
    assert "Failed" in refused.stderr

    (work / "net.py").write_text(GOOD)
    passed = commit()
    assert passed.returncode == 0, passed
    assert git(work, "log", "--format=%s") == "a model"
