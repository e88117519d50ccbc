"""Manners: what user code may not do while its models are looked at, and what has to keep working."""

import importlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest
import torch

from mase_server.tracing.execution.guard import RefusedError, change_environment, guard_program


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """(workspace, scratch); the workspace is the current folder."""
    workspace, scratch = tmp_path / "workspace", tmp_path / "scratch"
    workspace.mkdir()
    scratch.mkdir()
    (workspace / "data.txt").write_text("original")
    monkeypatch.chdir(workspace)
    return workspace, scratch


REFUSED = {
    "a connection": (lambda: socket.create_connection(("127.0.0.1", 9)), r"network .* refused .*127\.0\.0\.1"),
    "a look-up": (lambda: socket.getaddrinfo("example.invalid", 80), r"network address look-up .*example\.invalid"),
    "a program": (lambda: subprocess.run(["true"]), r"starting a program was refused .*: true"),
    "a shell": (lambda: os.system("true"), r"starting a program was refused .*true"),
    "a process": (os.fork, r"starting a process was refused"),
    "a signal": (lambda: os.kill(os.getpid(), 0), r"sending a signal was refused"),
    "a deletion": (lambda: os.remove("data.txt"), r"deleting 'data\.txt' was refused while the model is traced"),  # noqa: PTH107
    "a pathlib deletion": (lambda: Path("data.txt").unlink(), r"deleting .*data\.txt"),
    "a tree's deletion": (lambda: shutil.rmtree("."), r"deleting '\.'"),
    "a renaming": (lambda: os.rename("data.txt", "other.txt"), r"renaming 'data\.txt'"),  # noqa: PTH104
    "a raw write": (lambda: os.open("data.txt", os.O_WRONLY), r"writing 'data\.txt'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_and_named(folders, what):
    action, message = REFUSED[what]
    with guard_program(str(folders[1])), pytest.raises(RefusedError, match=message):
        action()
    assert (folders[0] / "data.txt").read_text() == "original"


def test_a_shell_that_would_install_a_package_ends_with_its_status(folders):
    with guard_program(str(folders[1])):
        assert os.system("pip install -U no-such-package-anywhere") != 0


def test_a_refused_download_fails_as_without_a_network(folders):
    with guard_program(str(folders[1])), pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen("http://example.invalid/weights.pt")


def test_writes_land_in_the_scratch_folder_and_are_read_back_from_there(folders):
    workspace, scratch = folders
    before = sorted(workspace.iterdir())
    with guard_program(str(scratch)):
        with open("data.txt", "w") as file:
            file.write("changed")
        Path("new.txt").write_text("new")
        os.makedirs("checkpoints/run1", exist_ok=True)  # noqa: PTH103
        torch.save({"a": torch.ones(2)}, "checkpoints/run1/model.pt")
        assert Path("data.txt").read_text() == "changed"
        assert torch.load("checkpoints/run1/model.pt")["a"].tolist() == [1, 1]
    assert sorted(workspace.iterdir()) == before
    assert (workspace / "data.txt").read_text() == "original"
    assert len(list(scratch.rglob("model.pt"))) == 1


def test_temporary_files_work(folders):
    with guard_program(str(folders[1])):
        with tempfile.TemporaryDirectory() as folder, open(f"{folder}/x", "w") as file:
            file.write("x")
        with tempfile.NamedTemporaryFile() as named:
            assert Path(named.name).is_relative_to(folders[1])


def test_other_folders_can_be_allowed(folders, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    with guard_program(str(folders[1]), str(cache)):
        (cache / "code").write_text("x")
    assert (cache / "code").read_text() == "x"


def test_a_module_can_still_be_imported_for_the_first_time(folders):
    (folders[0] / "late_module_of_guard_test.py").write_text("import torch._dynamo\nvalue = 3\n")
    sys.path.insert(0, str(folders[0]))
    try:
        with guard_program(str(folders[1])):
            assert importlib.import_module("late_module_of_guard_test").value == 3
    finally:
        sys.path.remove(str(folders[0]))
        sys.modules.pop("late_module_of_guard_test", None)


def test_everything_is_allowed_again_afterwards(folders):
    with pytest.raises(ZeroDivisionError), guard_program(str(folders[1])):
        1 / 0  # noqa: B018
    Path("data.txt").unlink()
    assert subprocess.run(["true"]).returncode == 0
    assert not Path("data.txt").exists()


def test_the_environment_is_as_before_whatever_the_program_did_to_it(monkeypatch):
    for name, value in {"KEPT": "1", "CHANGED": "2", "DELETED": "3"}.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with change_environment({"CHANGED": "mine", "ADDED": "mine"}):
        assert (os.environ["CHANGED"], os.environ["ADDED"], os.environ["KEPT"]) == ("mine", "mine", "1")
        os.environ["NEW"] = os.environ["KEPT"] = "program"
        del os.environ["DELETED"]
    assert dict(os.environ) == before
    assert os.system('test "$DELETED$KEPT$CHANGED$ADDED$NEW" = 312') == 0, "the process's own environment, too"


def test_an_environment_that_a_program_replaced_is_as_before_too(monkeypatch):
    monkeypatch.setattr(os, "environ", {"KEPT": "1", "CHANGED": "old"})
    with change_environment({"CHANGED": "mine", "ADDED": "mine"}):
        del os.environ["KEPT"]
    assert os.environ == {"KEPT": "1", "CHANGED": "old"}
