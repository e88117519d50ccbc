"""A person may stand in any folder: no command, and nothing that the server starts, runs a file that lies there."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from hostile import SERVER
from traps import Traps

from mase_server import programs

PACKAGE = Path(__file__).parents[2] / "mase_server"
NET = "import torch\nclass Net(torch.nn.Linear):\n    pass\nNet(4, 2)(torch.zeros(3, 4))\n"


@pytest.fixture(scope="module")
def traps(tmp_path_factory):
    return Traps(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A model file of the person's own, elsewhere."""
    path = tmp_path_factory.mktemp("project") / "net.py"
    path.write_text(NET)
    return str(path)


@pytest.fixture
def environment(private_home):
    """PATH and other lists of folders name the current one, as a `:` too many does; nothing is found in a cache."""
    away = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONSAFEPATH")
    kept = {key: value for key, value in os.environ.items() if key not in away}
    return {
        **kept, **private_home, "PATH": f".::{os.environ['PATH']}:", "VIRTUAL_ENV": "env",
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def ran(traps, environment, *arguments, python=SERVER, **more):
    """The traps that a command in the folder sets off, and what it printed."""
    done = subprocess.run(
        [*python, *arguments], cwd=traps.folder, env=environment | more, capture_output=True, text=True, timeout=200
    )
    return traps.gone_off(), done


COMMANDS = {
    "version": ["--version"],
    "help": ["--help"],
    "doctor": ["doctor", "--python", sys.executable],
    "report": ["report", "--json"],
    "workers": ["workers"],
    "passes": ["passes", "--format", "json"],
    "check": ["check"],
    "rpc": ["rpc", "info"],
    "trust": ["trust", "."],
    "lsp": ["lsp", "--help"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_command_runs_what_lies_in_the_folder_that_one_is_in(arguments, traps, environment, tmp_path):
    environment |= {"XDG_STATE_HOME": str(tmp_path)}  # a folder that `trust` trusts is that for this one command
    found, done = ran(traps, environment, *arguments)
    assert found == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["passes"], ["doctor"]], ids=lambda words: words[0])
def test_nor_is_its_interpreter_started_that_nobody_trusts(arguments, traps, environment):
    traps.program(traps.folder / ".venv" / "bin" / "python", "venv")
    assert ran(traps, environment, *arguments)[0] == []
    assert ran(traps, environment, python=[".venv/bin/python"])[0] == ["venv"]
    shutil.rmtree(traps.folder / ".venv")


@pytest.mark.parametrize("command", ["shapes", "check"])
def test_nor_does_one_about_a_file_elsewhere(command, traps, environment, net):
    found, done = ran(traps, environment, command, net)
    assert (found, done.returncode) == ([], 0)


@pytest.mark.parametrize("words", ["mase-server shapes --model ", "mase-server apply net.py qu"])
def test_nor_does_a_completion(words, traps, environment):
    asked = {"_MASE_SERVER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    found, done = ran(traps, environment, **asked)
    assert (found, done.returncode) == ([], 0)
    assert "quantize" in done.stdout or "qu" not in words


def test_nor_does_a_server_in_that_folder_that_is_asked_about_its_files(traps, environment):
    (traps.folder / "net.py").write_text(NET)
    command = [*SERVER, "serve", "."]
    with subprocess.Popen(command, cwd=traps.folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline().startswith("unix:")
            path = json.dumps({"path": str(traps.folder / "net.py")})
            for method in ("open", "models", "passes", "statistics"):
                assert ran(traps, environment, "rpc", method, path)[0] == []
            assert "untrusted" in ran(traps, environment, "rpc", "open", path)[1].stderr
        finally:
            server.send_signal(signal.SIGTERM)
    assert traps.gone_off() == []
    (traps.folder / "net.py").unlink()


def test_an_interpreter_too_old_for_the_variable_imports_nothing_from_there_either(traps, environment):
    """Python before 3.11 knows neither -P nor PYTHONSAFEPATH: the program itself is the first to run."""
    _, *words = programs.person_code(sys.executable, "import torch, json, argparse, linecache, rich").words
    found, done = ran(traps, environment, python=[sys.executable, *words])
    assert (found, done.returncode) == ([], 0)
    first = ast.parse((PACKAGE / "worker" / "boot.py").read_text()).body[1:4]
    assert list(map(ast.unparse, first)) == [
        "from __future__ import annotations",
        "import sys",
        "if not getattr(sys.flags, 'safe_path', False):\n    del sys.path[0]",
    ]


@pytest.mark.parametrize("variable", ["PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PERL5LIB"])
def test_what_is_started_gets_no_list_of_folders_that_names_the_current_one(variable, traps, monkeypatch):
    monkeypatch.chdir(traps.folder)
    for given, left in ((":/usr/bin:.:sub:/bin:", "/usr/bin:/bin"), (":.", None), ("", None)):
        monkeypatch.setenv(variable, given)
        commands = (
            programs.own_code(""), programs.own_server(), programs.command_for_program("/bin/sh"),
            programs.person_code(sys.executable, ""), programs.person_script(sys.executable, Path("boot.py"), "/else"),
        )  # fmt: skip
        assert [each.environment.get(variable) for each in commands] == [left] * 5


def test_a_relative_pythonpath_counts_in_the_folder_that_is_trusted(traps, monkeypatch):
    """`PYTHONPATH=src mase-server shapes src/net.py`: as the person would run it. An empty entry nobody means."""
    monkeypatch.chdir(traps.folder)
    monkeypatch.setenv("PYTHONPATH", ":src:/lib:../other")
    start = partial(programs.person_script, sys.executable, Path("boot.py"))
    assert start(str(traps.folder)).environment["PYTHONPATH"] == f"{traps.folder}/src:/lib"
    assert start("/elsewhere").environment["PYTHONPATH"] == "/lib"


def test_a_persons_code_sees_the_environment_as_it_was(environment, tmp_path):
    model = tmp_path / "net.py"
    model.write_text(f"import os\nraise ValueError(os.environ.get('PYTHONSAFEPATH'))\n{NET}")
    for value in (None, "1"):
        given = environment if value is None else environment | {"PYTHONSAFEPATH": value}
        done = subprocess.run([*SERVER, "shapes", model], env=given, capture_output=True, text=True)
        assert f"ValueError: {value}" in done.stdout


#: Calls that start a program, by the end of their names.
_STARTS = {
    "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "Popen", "system", "popen",
    "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "posix_spawn",
    "posix_spawnp", "startfile",
    *(f"{name}{kind}{end}" for name in ("exec", "spawn") for kind in "lv" for end in ("", "e", "p", "pe")),
}  # fmt: skip
_OWNERS = {"subprocess", "os", "asyncio", "asyncio.subprocess", "loop", "pty", "multiprocessing"}


def starts(path):
    """The calls in a file that start a program, and what it imports by name that could."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in _STARTS and ast.unparse(node.value) in _OWNERS:
            if (name := ast.unparse(node)) != "asyncio.run":
                yield name
        elif isinstance(node, ast.ImportFrom) and node.module in _OWNERS:
            yield from (f"{node.module}.{each.name}" for each in node.names if each.name in _STARTS)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "shutil.which":
            yield "shutil.which"


def test_programs_are_looked_up_and_started_in_one_module_alone():
    found = {str(path.relative_to(PACKAGE)): set(starts(path)) for path in PACKAGE.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == {
        "programs.py": {"subprocess.run", "subprocess.Popen", "asyncio.create_subprocess_exec", "shutil.which"},
        "tracing/execution/guard.py": {"os.system"},  # the person's own, which does not install packages there
    }


def test_the_traps_are_real(traps, environment):
    """What Python itself does in that folder, and a shell with that PATH."""
    found, _ = ran(traps, environment, python=[sys.executable, "-c", "import torch, json, argparse, linecache"])
    assert found == ["argparse", "json", "linecache", "torch"]
    assert ran(traps, environment, python=["/bin/sh", "-c", "git; python3; setpriv"])[0] == [
        "git",
        "python3",
        "setpriv",
    ]
