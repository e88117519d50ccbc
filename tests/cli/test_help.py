"""What the command line says of itself: help with examples, versions, completions."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from mase_server import __version__
from mase_server.cli.commands import build_app
from mase_server.cli.steps import _built_in
from mase_server.passes.registry import built_in
from tests.cli.conftest import NET

ROOT = Path(__file__).parents[2]
OWN = ("shapes", "passes", "apply", "check", "graph", "draw", "workers", "doctor")


@pytest.mark.parametrize("name", OWN)
def test_help_has_examples_that_the_command_takes(name):
    """Each example is read by the command's own parser, so that none can go out of date."""
    command = get_command(build_app()).commands[name]
    text = command.callback.__doc__
    examples = re.findall(rf"^ +mase-server {name}(.*?)(?: [|>] .*)?$", text, re.MULTILINE)
    assert len(examples) >= 2
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for example in examples:
        assert {word for word in example.split() if word.startswith("-") and word != "-"} <= known
    assert re.search(r"Exit status: 0 .*1 .*2 wrong usage\.", text, re.DOTALL)


def test_the_version_is_told_early_and_by_the_command(mase):
    assert mase.process("--version").stdout == f"mase-server {__version__}\n"
    assert mase("--version", "shapes").stdout == f"mase-server {__version__}\n"


def completed(mase, words, cwd):
    """What bash is told for the last of these words."""
    environment = {
        "_MASE_SERVER_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1),
    }  # fmt: skip
    return mase.process(env=environment, cwd=cwd).stdout.split()


def test_a_shell_completes_commands_models_and_passes(mase, tmp_path):
    (tmp_path / "net.py").write_text(NET + "\n\nclass Noise(Net):\n    pass\n\n\nclass Other:\n    pass\n")
    assert completed(mase, ["mase-server", "wo"], tmp_path) == ["workers"]
    assert completed(mase, ["mase-server", "graph", "net.py", "--model", "N"], tmp_path) == ["Net", "Noise"]
    assert completed(mase, ["mase-server", "apply", "net.py", "remove_d"], tmp_path) == ["remove_dropout"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(mase, shell, tmp_path):
    done = mase.process("--show-completion", shell, env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert done.returncode == 0
    assert "_MASE_SERVER_COMPLETE" in done.stdout


@pytest.fixture
def shell(mase, tmp_path):
    """A function that gives a shell's script of completions, as a file, and the environment to use it in."""
    environment = {**mase.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}
    environment |= {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "ZDOTDIR": str(tmp_path)}

    def script(name):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        asked = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
        path = tmp_path / f"completions.{name}"
        path.write_text(mase.process("--show-completion", name, env=asked).stdout)
        return path, environment

    return script


def test_fish_completes_with_its_script(shell, tmp_path):
    script, environment = shell("fish")
    words = ("mase-server wo", "mase-server apply net.py remove_d")
    asked = "; ".join(f"complete -C '{each}'" for each in words)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; {asked}"], capture_output=True, text=True, env=environment
    )
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["workers", "remove_dropout"], done.stderr


@pytest.mark.timeout(120)
def test_zsh_completes_with_its_script(shell, tmp_path):
    """In a terminal of its own: what stands on the line after the key Tab goes through a pipe, at the key Ctrl-T."""
    script, environment = shell("zsh")
    os.mkfifo(tmp_path / "line")
    (tmp_path / ".zshrc").write_text(
        f"autoload -U compinit; compinit -u -D; source {script}\n"
        'tell() { print -r -- "$BUFFER" > $HOME/line; }; zle -N tell; bindkey "^T" tell\n'
        "print ready > $HOME/line\n"
    )
    terminal, inside = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inside)
    process = subprocess.Popen(["zsh", "-i"], env=environment, start_new_session=True, **streams)
    try:
        assert (tmp_path / "line").read_text() == "ready\n"
        os.write(terminal, b"mase-server wo\t\x14")
        assert (tmp_path / "line").read_text() == "mase-server workers \n"
        os.write(terminal, b"\x15mase-server apply net.py remove_d\t\x14")
        assert (tmp_path / "line").read_text() == "mase-server apply net.py remove_dropout \n"
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(inside)


def test_completions_know_all_built_in_passes():
    assert sorted(_built_in()) == sorted(built_in())


def test_a_class_that_is_only_typed_is_no_reason_to_fail(mase, tmp_path):
    (tmp_path / "net.py").write_text("class Net(\n")
    assert completed(mase, ["mase-server", "graph", "net.py", "--model", "N"], tmp_path) == []


def test_workers_are_told_of_a_daemon(live):
    live("shapes", "broken.py", "net.py")
    told = json.loads(live("workers", "--json").stdout)
    assert (told["daemon"]["workspace"], told["daemon"]["pid"]) == (str(live.folder), live.pid)
    files = {each["path"]: each for each in told["files"]}
    assert files[str(live.folder / "net.py")]["state"] == "ready"
    assert files[str(live.folder / "broken.py")]["state"] == "failed"
    text = live("workers").stdout.splitlines()
    assert text[0].startswith(f"serve {__version__} of {live.folder} (process {live.pid}): ")
    assert text[1].split() == ["file", "state", "process", "memory", "idle", "why"]
    assert any(line.startswith("net.py ") for line in text)


def test_workers_can_be_restarted(live):
    live("shapes", "net.py")
    assert live("workers", "--restart").returncode == 0
    assert live("shapes", "net.py").returncode == 0


def test_workers_without_a_daemon_say_how_to_have_one(mase, tmp_path):
    done = mase("workers", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        f"error: no daemon serves {tmp_path}: open it in an editor, or run `mase-server serve {tmp_path}`\n",
    )


def test_the_hook_names_a_command_that_takes_files():
    """pre-commit puts the names of changed files behind `entry`."""
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, name = hook["entry"].split()
    command = get_command(build_app()).commands[name]
    assert (program, hook["id"], hook["types"]) == ("mase-server", "mase-server-check", ["python"])
    assert [parameter.name for parameter in command.params if parameter.nargs == -1] == ["paths"]


def test_the_page_on_the_command_line_speaks_of_what_there_is():
    page = (ROOT / "docs" / "cli.md").read_text()
    parameters = [parameter for each in get_command(build_app()).commands.values() for parameter in each.params]
    known = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--install-completion", "--help", "--index-url"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page)) <= known
    assert all(f"mase-server {name}" in page for name in OWN[3:])
