"""The interpreter of a folder: what was meant wins, what is broken is named."""

import base64
import hashlib
import shutil
import sys

import pytest

from mase_server.daemon.environment import (
    Candidate,
    environment_problem,
    find_broken_venv,
    list_interpreters,
    survey_interpreters,
    version_of,
)


def make_python(prefix):
    python = prefix / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 7\n")
    python.chmod(0o755)
    return str(python)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work" / "sub" / "deep").mkdir(parents=True)
    return tmp_path / "work"


def paths(folder, interpreter=None, file="sub/deep/net.py", **env):
    return [one.path for one in list_interpreters(str(folder), str(folder / file), interpreter, env)]


def test_the_setting_is_the_only_one_tried(folder):
    make_python(folder / ".venv")
    assert paths(folder, "/opt/python") == ["/opt/python"]


def test_a_setting_may_be_relative_or_name_an_environments_folder(folder):
    python = make_python(folder / "env")
    assert paths(folder, "env/bin/python") == [python]
    assert paths(folder, str(folder / "env")) == [python]


def test_a_venv_of_the_folder_beats_the_environment(folder):
    python = make_python(folder / ".venv")
    other = make_python(folder.parent / "other")
    assert paths(folder, VIRTUAL_ENV=str(folder.parent / "other"), PATH="") == [python]
    assert other not in paths(folder, PATH="")


def test_the_nearest_venv_wins_and_none_above_the_folder_is_taken(folder):
    make_python(folder.parent / ".venv")
    assert paths(folder, PATH="") == [sys.executable]
    outer = make_python(folder / "venv")
    assert paths(folder, PATH="") == [outer]
    inner = make_python(folder / "sub" / ".venv")
    assert paths(folder, PATH="") == [inner]


def test_otherwise_virtual_env_conda_path_and_the_servers_own_in_this_order(folder):
    one, two = make_python(folder.parent / "one"), make_python(folder.parent / "two")
    on_path = folder.parent / "bin" / "python3"
    on_path.parent.mkdir()
    on_path.write_text("#!/bin/sh\n")
    on_path.chmod(0o755)
    env = {"VIRTUAL_ENV": str(folder.parent / "one"), "CONDA_PREFIX": str(folder.parent / "two")}
    found = list_interpreters(str(folder), str(folder / "net.py"), None, {**env, "PATH": str(on_path.parent)})
    assert [one.path for one in found] == [one, two, str(on_path), sys.executable]
    assert not any(candidate.chosen for candidate in found)


def test_a_venv_without_a_python_is_passed_over(folder):
    (folder / ".venv").mkdir()
    assert paths(folder, PATH="") == [sys.executable]


def test_a_file_outside_its_folder_still_finds_the_folders_venv(folder, tmp_path):
    python = make_python(folder / ".venv")
    found = list_interpreters(str(folder), str(tmp_path / "elsewhere" / "net.py"), None, {"PATH": ""})
    assert [one.path for one in found] == [python]


def test_the_problem_names_each_interpreter_why_and_what_to_do():
    one, two = Candidate("/a/python", "VIRTUAL_ENV", False), Candidate("/b/python", "python3 on PATH", False)
    problem = environment_problem("/w/net.py", "no-torch", [(one, "/a/python has no torch."), (two, "/b is too old.")])
    assert (problem.file, problem.line, problem.code, problem.severity) == ("/w/net.py", 1, "no-torch", "error")
    assert problem.message == (
        "No interpreter for this folder can trace: /a/python has no torch.\n"
        "/a/python was chosen by VIRTUAL_ENV.\n"
        "Also tried /b/python (python3 on PATH): /b is too old."
    )


@pytest.mark.parametrize(("line", "version"), [("version = 3.13.1", (3, 13)), ("version_info = 3.9.7.final.0", (3, 9))])
def test_a_virtual_environment_tells_its_version(tmp_path, line, version):
    python = make_python(tmp_path)
    assert version_of(python) is None
    (tmp_path / "pyvenv.cfg").write_text(f"home = /usr/bin\n{line}\n")
    assert version_of(python) == version
    assert version_of(sys.executable) in (None, sys.version_info[:2])


def reasons(folder, **env):
    return {
        one.path: (one.reason, one.unfit)
        for one in survey_interpreters(str(folder), str(folder / "net.py"), None, {"HOME": str(folder), **env})
    }


def make_environment(prefix, *packages):
    python = make_python(prefix)
    (prefix / "bin" / "python3").symlink_to("python")
    (prefix / "pyvenv.cfg").write_text("version = 3.11.4\n")
    for package in packages:
        (prefix / "lib" / "python3.11" / "site-packages" / f"{package}-1.0.dist-info").mkdir(parents=True)
    return python


def test_the_own_environment_of_pre_commit_is_recognised_and_the_one_before_it_is_taken(folder, tmp_path):
    hook, before = tmp_path / "cache" / "repo1" / "py_env", tmp_path / "before"
    own, project = make_environment(hook), make_environment(before, "torch")
    env = {
        "PRE_COMMIT_HOME": str(tmp_path / "cache"),
        "VIRTUAL_ENV": str(hook),
        "PATH": f"{hook / 'bin'}:{before / 'bin'}",
    }
    assert paths(folder, **env)[0] == project
    told = reasons(folder, **env)
    assert told[own] == ("VIRTUAL_ENV", "it is the own environment of a tool, without torch")
    assert told[project] == ("the environment that is active on PATH", "")
    # A person who gives the hook a torch of its own means that one.
    make_environment(tmp_path / "cache" / "repo2" / "py_env", "torch")
    env["VIRTUAL_ENV"] = str(tmp_path / "cache" / "repo2" / "py_env")
    assert paths(folder, **env)[0] == str(tmp_path / "cache" / "repo2" / "py_env" / "bin" / "python")


def test_uv_conda_and_poetry_are_asked_by_their_own_files(folder, tmp_path):
    named, conda = make_environment(folder / "env"), make_environment(tmp_path / "envs" / "proj")
    assert paths(folder, UV_PROJECT_ENVIRONMENT="env", PATH="") == [named]
    (folder / "environment.yml").write_text("name: proj\n")
    (folder / ".conda").mkdir()
    (folder / ".conda" / "environments.txt").write_text(f"{tmp_path}/envs/other\n{tmp_path}/envs/proj\n")
    assert reasons(folder, PATH="")[conda] == ("conda, by environment.yml", "")
    (folder / "pyproject.toml").write_text('[tool.poetry]\nname = "My_Net"\n')
    digest = base64.urlsafe_b64encode(hashlib.sha256(str(folder).encode()).digest()).decode()[:8]
    kept = make_environment(tmp_path / "poetry" / f"my-net-{digest}-py3.11")
    assert reasons(folder, PATH="", POETRY_VIRTUALENVS_PATH=str(tmp_path / "poetry"))[kept] == ("poetry", "")


def test_a_dangling_venv_is_told_where_another_interpreter_is_taken(folder, tmp_path):
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to("/gone/python3")
    other = make_environment(tmp_path / "other")
    [first, *_] = list_interpreters(
        str(folder), str(folder / "net.py"), None, {"VIRTUAL_ENV": str(tmp_path / "other"), "PATH": ""}
    )
    assert first.path == other
    assert first.reason == (
        f"VIRTUAL_ENV, since {folder}/.venv is broken: its python is a link to /gone/python3, which is not there"
    )
    (folder / "pyproject.toml").touch()
    assert find_broken_venv(str(folder / "net.py")).startswith(f"{folder}/.venv is broken")
    make_environment(folder / "venv")
    assert find_broken_venv(str(folder / "net.py")).startswith(f"{folder}/.venv is broken")
    shutil.rmtree(folder / ".venv")
    make_environment(folder / ".venv")
    assert find_broken_venv(str(folder / "net.py")) == ""
