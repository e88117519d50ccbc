"""All commands share this: status 2 for wrong usage, and a reason in words where something cannot be done."""

import json
import sys

import pytest

from tests.cli.conftest import NET

WRONG = [
    ("shapes", "nowhere.py"),
    ("shapes", "net.py", "--model", "Nope"),
    ("shapes", "net.py", "--set", "nope"),
    ("shapes", "net.py", "--input", "garbage["),
    ("check", "nowhere.py"),
    ("check", "net.py", "--baseline", "net.py"),
    ("check", "--changed", "nowhere"),
    ("graph", "net.py", "--model", "Nope"),
    ("graph", "net.py", "--scope", "nope"),
    ("inputs", "net.py", "--model", "Nope"),
    ("inputs", "net.py", "one"),
    ("inputs", "net.py", "one", "two"),
    ("draw", "net.py", "--model", "Nope", "-o", "net.svg"),
    ("apply", "net.py", "nopass"),
    ("verilog", "net.py", "--model", "Nope"),
    ("verilog", "net.py", "--pass", "quantize(foo=1)"),
    ("view", "net.py", "--model", "Nope", "-o", "net.html"),
    ("view", "net.py", "--set", "nope", "-o", "net.html"),
    ("view", "net.py", "--pass", "nopass", "-o", "net.html"),
    ("view", "net.py", "--pass", "quantize(", "-o", "net.html"),
    ("passes", "nopass"),
    ("sweep", "net.py", "nowhere.py"),
    ("doctor", "nowhere"),
    ("report", "nowhere"),
    ("serve", "nowhere"),
    ("workers", "--nonsense"),
    ("trust", "nowhere"),
    ("lsp", "--nonsense"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("usage")
    (folder / "pyproject.toml").touch()
    (folder / "net.py").write_text(NET)
    return folder


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_usage_is_status_two_and_says_what_is_wrong(mase, folder, words):
    done = mase(*words, cwd=folder)
    assert done.returncode == 2
    assert done.stderr or "error" in done.stdout


@pytest.fixture
def bare(tmp_path):
    """An interpreter without torch."""
    path = tmp_path / "bare" / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("words", [("passes",), ("graph", "net.py"), ("inputs", "net.py")], ids=" ".join)
def test_without_torch_the_reason_is_the_interpreter(mase, folder, bare, words):
    done = mase(*words, "--python", bare, cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "No interpreter for this folder can trace: " in done.stderr
    assert f"{bare} was chosen by the setting `interpreter`." in done.stderr
    assert "any.py" not in done.stderr
    assert "no_environment" not in done.stderr


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (("quantize", "defualt=fixed(8,4)"), "error: quantize: it takes no 'defualt'; did you mean 'default'?\n"),
        (
            ("quantize", "default=fixed(8"),
            "error: quantize: default: 'fixed(8' is no number format: '(' was never closed; an example: fixed(8,4)\n",
        ),
        (
            ("quantize(default=fixed(8,4))",),
            "error: 'quantize(default=fixed(8,4))' is no step; an example: quantize(default='fixed(8,4)')\n",
        ),
    ],
    ids=lambda value: "",
)
def test_a_wrong_step_is_told_in_words_that_help(mase, folder, step, told):
    done = mase("apply", "net.py", *step, cwd=folder)
    assert (done.stdout + done.stderr).endswith(told)


FAILING = NET.replace("nn.Linear(width, 3)", "nn.Linear(width + 1, 3)")


def test_a_partial_trace_says_so_in_every_answer(mase, folder):
    (folder / "failing.py").write_text(FAILING)
    told = json.loads(mase("shapes", "failing.py", "--format", "json", cwd=folder).stdout)
    assert (told["complete"], [model["complete"] for model in told["models"]]) == (False, [False])
    assert json.loads(mase("graph", "failing.py", "--format", "json", cwd=folder).stdout)["complete"] is False
    assert "4.35 kFLOPs up to the error" in " ".join(mase("graph", "failing.py", cwd=folder).stdout.split())
    told = json.loads(mase("shapes", "net.py", "--format", "json", cwd=folder).stdout)
    assert (told["complete"], [model["complete"] for model in told["models"]]) == (True, [True])
    assert "up to the error" not in mase("graph", "net.py", cwd=folder).stdout


def test_inputs_of_an_option_are_not_mixed_with_those_of_the_files_own_run(mase, folder):
    done = mase("shapes", "net.py", "--input", "x: f32[2, 8]", cwd=folder)
    assert "def forward(self, x: f32[B, 8]):" in done.stdout
    assert "|" not in done.stdout
    done = mase("shapes", "net.py", "--input", "x: f32[2, 9]", cwd=folder)
    assert "def forward(self, x: f32[B, 9]):" in done.stdout
    assert "|" not in done.stdout
