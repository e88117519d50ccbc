"""A running daemon answers in place of one of our own: what is told is the same, and nothing slow is loaded."""

import asyncio
import json
import re
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "rpc"))

from rpc_serving import STUB, Served

from mase_server import __version__
from mase_server.cli import attached
from mase_server.rpc.registry import Registration, write_registration
from mase_server.system import start_of

FILES = ("net.py", "broken.py")


def without_times(text):
    return re.sub(r"\d+ ms", "ms", re.sub(r'"seconds": [\d.]+', '"seconds": 0', text))


@pytest.mark.parametrize("options", [(), ("--all", "--format=json")])
def test_what_a_daemon_tells_is_what_is_traced_alone(live, options):
    attached_to, alone = live("shapes", *options, *FILES), live("shapes", "--no-daemon", *options, *FILES)
    assert (attached_to.returncode, attached_to.stderr) == (alone.returncode, alone.stderr) == (1, "")
    assert without_times(attached_to.stdout) == without_times(alone.stdout)
    assert "f32" in alone.stdout


@pytest.mark.parametrize("options", [(), ("--all",), ("--format=json",)])
def test_the_plain_form_is_the_command_itself(live, options):
    """`--daemon` says nothing new, and is read by the command alone."""
    quick, whole = live.process("shapes", *options, "net.py"), live("shapes", "--daemon", *options, "net.py")
    assert (quick.returncode, quick.stdout, quick.stderr) == (whole.returncode, whole.stdout, whole.stderr)


def test_nothing_slow_is_loaded_for_a_live_file(live):
    program = (
        "import sys; sys.argv = ['mase-server', 'shapes', 'net.py']\n"
        "from mase_server.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code)\n"
        "print(' '.join(sorted(sys.modules)))\n"
    )
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=live.folder,
        env=live.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    *_, status, loaded = done.stdout.splitlines()
    assert status == "0"
    slow = {"torch", "numpy", "pygls", "lsprotocol", "typer", "click", "rich", "asyncio", "mase_server.daemon.daemon"}
    assert not slow & set(loaded.split())


def test_a_save_is_seen_before_the_answer(live):
    path = live.write("saved.py", (live.folder / "net.py").read_text())
    assert "h: f32[B, 64] = " in live("shapes", path.name).stdout
    live.write("saved.py", path.read_text().replace("width=64", "width=96"))
    assert "h: f32[B, 96] = " in live("shapes", path.name).stdout


def test_a_text_that_cannot_be_parsed_shows_nothing_of_the_one_before(live):
    path = live.write("torn.py", (live.folder / "net.py").read_text())
    assert live("shapes", path.name).returncode == 0
    path.write_text(path.read_text() + "def (\n")
    done = live("shapes", "--format=json", path.name)
    report = json.loads(done.stdout)
    assert (done.returncode, report["models"], report["tensors"]) == (1, [], [])
    assert [problem["code"] for problem in report["problems"]] == ["syntax-error"]


def test_files_of_two_folders_are_told_in_their_order(live, tmp_path):
    other = tmp_path / "other.py"
    other.write_text((live.folder / "net.py").read_text().replace("Net", "Other"))
    done = live("shapes", "--format", "json", other, "net.py")
    assert [json.loads(line)["models"][0]["name"] for line in done.stdout.splitlines()] == ["Other", "Net"]


def test_inputs_of_a_command_are_its_own(live):
    """They go to no daemon: what it tells others stays as it was."""
    own = json.loads(live("shapes", "--format=json", "--input", "x: f32[7, 8]", "net.py").stdout)
    assert own["models"][0]["inputs"]["x"]["shape"] == [7, 8]
    others = json.loads(live("shapes", "--format=json", "net.py").stdout)
    assert others["models"][0]["inputs"]["x"]["shape"] == [4, 8]


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A folder of registrations, and the memory of what was asked before emptied."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("MASE_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(attached, "PATIENCE", 0.2)
    attached.cached_reports.cache_clear()
    return folder


@pytest.fixture
def silent(runtime, tmp_path):
    """A daemon that takes connections and says nothing."""
    with socket.socket(socket.AF_UNIX) as listening:
        path = runtime / "silent.sock"
        listening.bind(str(path))
        listening.listen()
        import os

        made = Registration(str(tmp_path), f"unix:{path}", os.getpid(), start_of(os.getpid()), "editor", __version__)
        write_registration(runtime, made)
        yield made


def test_a_silent_daemon_is_left_alone_after_a_short_time(silent, tmp_path, capsys):
    file = tmp_path / "net.py"
    file.write_text("")
    assert attached.cached_reports((file,)) == {}
    assert capsys.readouterr().err == (
        f"note: the daemon of {tmp_path} does not answer: mase/session had no answer within 0.2 s; traced without it\n"
    )
    assert attached.cached_reports((file,)) == {}
    assert capsys.readouterr().err == ""


def test_a_daemon_of_another_version_is_not_asked(silent, runtime, tmp_path, capsys):
    write_registration(runtime, replace(silent, version="0.0.1"))
    file = tmp_path / "net.py"
    file.write_text("")
    assert attached.cached_reports((file,)) == {}
    assert capsys.readouterr().err == (
        f"note: the daemon of {tmp_path} is mase-server 0.0.1, this is {__version__}; traced without it\n"
    )


async def test_a_daemon_without_trust_is_not_needed(runtime, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "workspace"
    folder.mkdir()
    served = await Served(folder, tmp_path, monkeypatch).start()
    served.trusted = False
    try:
        await served.listening.register([str(folder)], "editor")
        file = folder / "net.py"
        file.write_text(STUB)
        assert await asyncio.to_thread(attached.cached_reports, (file,)) == {}
        told = capsys.readouterr().err
        assert told == f"note: the daemon of {folder} does not trust this folder; traced without it\n"
    finally:
        await served.close()


def test_nobody_is_asked_where_nobody_serves(runtime, tmp_path, capsys):
    assert attached.cached_reports((tmp_path / "net.py",)) == {}
    assert capsys.readouterr().err == ""


def test_an_active_environment_that_is_another_is_told(monkeypatch, capsys):
    monkeypatch.setenv("VIRTUAL_ENV", "/home/me/other")
    attached._compare_interpreters("/home/me/project/.venv/bin/python")
    assert capsys.readouterr().err == (
        "note: the daemon traces with /home/me/project/.venv/bin/python, not with the active /home/me/other; "
        "--no-daemon takes that\n"
    )
    attached._compare_interpreters("/home/me/other/bin/python")
    assert capsys.readouterr().err == ""
