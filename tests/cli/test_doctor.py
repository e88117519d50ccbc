"""`mase-server doctor`: each finding with what mends it. Interpreters that are no good are played by scripts."""

import json
import os
import shutil
import sys
import tempfile

import pytest

from mase_server.cli import findings
from mase_server.cli.findings import (
    Place,
    _check_daemons,
    _check_folders,
    _check_interpreter,
    _check_tools,
    _check_trust,
    _check_watches,
)
from mase_server.daemon.trust import grant_trust
from mase_server.private import state_dir


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project of one's own, and folders of one's own for what is kept."""
    for variable, name in {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state"}.items():
        monkeypatch.setenv(variable, str(tmp_path / name))
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(tmp_path / "run"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    return Place(folder, None)


def python(path, printed="", status=0, stderr=""):
    """A script in an interpreter's place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{stderr}' >&2\necho '{printed}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def told(**facts):
    return json.dumps({"python": [3, 12, 1], "executable": "x", "packages": {}, "torch": "2.7.0+cpu", **facts})


def test_a_sound_environment_is_all_well_but_for_what_is_optional(mase, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    mase("trust", project)
    done = mase("doctor", project, "--python", sys.executable, "--format", "json")
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert (done.returncode, done.stderr) == (0, "")
    assert all(set(each) == {"check", "state", "text", "mend"} for each in found.values())
    assert not [each for each in found.values() if each["state"] == "fail"]
    assert found["interpreter"]["text"].startswith(f"{sys.executable} (the setting `interpreter`), Python 3.")
    assert found["trust"] == {
        "check": "trust", "state": "ok", "text": f"{project} is trusted: daemons run its model files", "mend": "",
    }  # fmt: skip


def test_what_fails_is_status_one_and_told_with_its_mend(mase, tmp_path):
    nowhere = tmp_path / "nowhere" / "python"
    done = mase.process("doctor", tmp_path, "--python", nowhere)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    first = lines.index("fail interpreter  none can trace:")
    assert lines[first + 1 : first + 3] == [
        f"{'':18}{nowhere} (the setting `interpreter`): does not start: No such file or directory",
        f"{'':18}to fix it: python3 -m venv --clear {tmp_path}/.venv && {tmp_path}/.venv/bin/python -m pip install "
        "torch; or choose another: --python, or the setting mase.interpreter",
    ]
    assert lines[-1].startswith("1 to fix, ")


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (told(python=[3, 9, 2]), "is Python 3.9.2; 3.11 is the oldest that can trace"),
        (told(missing="No module named torch"), "has no torch (No module named torch)"),
        (told(broken="OSError: libtorch.so"), "its torch cannot be imported: OSError: libtorch.so"),
        (told(torch="2.1.2"), "has torch 2.1.2; 2.6 is the oldest that can trace"),
    ],
)
def test_an_interpreter_that_cannot_trace_says_why(place, printed, why):
    path = python(place.folder.parent / "bin" / "python", printed)
    [finding] = _check_interpreter(Place(place.folder, str(path)))
    assert (finding.state, finding.text) == ("fail", f"none can trace:\n{path} (the setting `interpreter`): {why}")
    old = "is Python 3.9.2" in why
    assert finding.mend.startswith("python3 -m venv" if old else f"{path} -m pip install --upgrade torch; or choose")


def test_an_interpreter_that_ends_early_is_told_with_its_last_words(place):
    path = python(place.folder.parent / "bin" / "python", "", 3, "cannot open shared object")
    [finding] = _check_interpreter(Place(place.folder, str(path)))
    assert finding.text.endswith("python (the setting `interpreter`): ended with status 3: cannot open shared object")


def test_an_interpreter_that_hangs_is_given_up(place, monkeypatch):
    path = place.folder.parent / "python"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    monkeypatch.setattr(findings, "_SECONDS", 0.2)
    [finding] = _check_interpreter(Place(place.folder, str(path)))
    assert finding.text.endswith(f"{path} (the setting `interpreter`): did not import torch within 0 s")


def test_packages_that_are_not_there_are_told_with_what_they_are_for(place):
    path = python(place.folder.parent / "bin" / "python", told(packages={"scipy": "1.17.1"}))
    found = list(_check_interpreter(Place(place.folder, str(path))))
    assert [(each.check, each.state) for each in found] == [
        ("interpreter", "ok"), ("torch", "ok"), ("transformers", "warn"), ("igraph", "warn"), ("scipy", "ok"),
    ]  # fmt: skip
    assert found[3].text == "is not there; it lays out drawings (`mase-server draw`)"
    assert found[3].mend == f"{path} -m pip install igraph"


def test_every_interpreter_is_listed_with_the_reason(place, monkeypatch):
    broken = place.folder / ".venv" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.symlink_to("/gone/python3")
    active = python(place.folder.parent / "active" / "bin" / "python", told())
    monkeypatch.setenv("VIRTUAL_ENV", str(active.parents[1]))
    monkeypatch.setenv("CONDA_PREFIX", str(python(place.folder.parent / "conda" / "bin" / "python").parents[1]))
    monkeypatch.setenv("PATH", "")
    first, second, *_ = _check_interpreter(place)
    assert first.text.splitlines() == [
        f"{active} (VIRTUAL_ENV), Python 3.12.1",
        f"comes later: {place.folder.parent}/conda/bin/python (CONDA_PREFIX)",
        f"comes later: {sys.executable} (the server's own interpreter)",
    ]
    assert second.text == (
        f"passed over: {broken} (.venv in {place.folder}): {place.folder}/.venv is broken: its python is a link to "
        "/gone/python3, which is not there"
    )


def test_an_interpreter_of_a_folder_without_trust_is_not_started(place):
    """Whoever unpacks a project and asks what it lacks has not said that its programs may run."""
    canary = place.folder / "ran"
    path = place.folder / ".venv" / "bin" / "python"
    python(path)
    path.write_text(f"#!/bin/sh\ntouch {canary}\necho '{told()}'\n")
    [finding] = _check_interpreter(place)
    assert (finding.state, finding.text) == (
        "warn",
        f"{path} (.venv in {place.folder}) lies in a folder that is not trusted: it was not started",
    )
    assert not canary.exists()
    grant_trust(state_dir(), str(place.folder))
    assert next(_check_interpreter(place)).state == "ok"
    assert canary.exists()


def test_trust_is_told_with_what_it_means(place):
    [finding] = _check_trust(place)
    assert (finding.state, finding.mend) == ("warn", f"mase-server trust {place.folder}, if you know what is in it")
    grant_trust(state_dir(), str(place.folder))
    assert [each.state for each in _check_trust(place)] == ["ok"]


def test_a_folder_that_others_can_read_is_no_place_for_sockets(place):
    folder = place.folder.parent / "run"
    folder.chmod(0o755)
    found = {each.check: each for each in _check_folders(place)}
    assert found["runtime"].state == "fail"
    assert found["runtime"].mend == f"{folder} is open to other users (mode 755); run chmod go= {folder}"
    assert {found[name].state for name in ("cache", "state", "scratch")} == {"ok"}


def test_a_folder_that_is_a_file_cannot_be_written(place):
    (place.folder.parent / "cache").write_text("")
    [finding] = [each for each in _check_folders(place) if each.check == "cache"]
    assert finding.state == "fail"
    assert finding.mend.startswith(f"make {place.folder.parent / 'cache'}")


def test_tools_that_are_not_there_are_told_with_what_they_are_for(place, monkeypatch):
    monkeypatch.setenv("PATH", str(place.folder))
    found = {each.check: each for each in _check_tools(place)}
    assert found["yosys"].state == "warn"
    assert found["yosys"].text == "is not there; it counts what hardware takes (`verilog --synthesize`)"
    assert found["yosys"].mend == "sudo apt-get install yosys"
    python(place.folder / "yosys")
    assert {each.check: each for each in _check_tools(place)}["yosys"].text == str(place.folder / "yosys")


def test_registrations_of_dead_daemons_are_removed(place):
    (place.folder.parent / "run" / "0123456789abcdef-1.json").write_text("{}")
    assert [each.text for each in _check_daemons(place)] == [
        "1 left behind by daemons that died: removed",
        "none runs; commands trace by themselves",
    ]
    assert [each.text for each in _check_daemons(place)] == ["none runs; commands trace by themselves"]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_an_exhausted_inotify_is_told(place, monkeypatch):
    import ctypes

    assert [each.state for each in _check_watches(place)] == ["ok"]

    class Exhausted:
        def inotify_init1(self, flags):
            ctypes.set_errno(24)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: Exhausted())
    [finding] = _check_watches(place)
    assert finding.state == "warn"
    assert finding.text.startswith("no inotify instance is left (Too many open files; max_user_instances = ")
    assert finding.mend == "sudo sysctl fs.inotify.max_user_instances=512"

    class Full(Exhausted):
        def inotify_init1(self, flags):
            return os.open(place.folder, os.O_RDONLY)

        def inotify_add_watch(self, descriptor, path, mask):
            ctypes.set_errno(28)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: Full())
    [finding] = _check_watches(place)
    assert finding.text.startswith("no watch of a folder is left (No space left on device; max_user_instances = ")
    assert finding.mend == "sudo sysctl fs.inotify.max_user_watches=524288"


def test_a_disk_that_takes_nothing_fails_and_one_with_little_left_is_told(place, monkeypatch):
    class Disk:
        free = 150 << 20

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Disk)
    found = {each.check: each for each in _check_folders(place)}
    assert {each.state for each in found.values()} == {"warn"}
    assert found["cache"].text.endswith("takes what can be made again, but its disk has only 150 MiB left")
    real = tempfile.TemporaryFile

    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Full() if dir.parent.name == "cache" else real(dir=dir))
    found = {each.check: each for each in _check_folders(place)}
    assert (found["cache"].state, found["state"].state) == ("fail", "warn")
    assert "cannot be written: it: No space left on device" in found["cache"].text
