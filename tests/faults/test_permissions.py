"""What a person may not read or write: told at the file, and in nobody's way elsewhere.

Permission bits do not bind root, so as root the server runs without the capabilities that lift them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faulting import SERVER
from good_net import GOOD, good, seen

LIFT = "-dac_override,-dac_read_search"
AS_OTHERS = ("setpriv", "--bounding-set", LIFT, "--inh-caps", LIFT) if os.geteuid() == 0 else ()
PROGRAM = (sys.executable, "-m", "mase_server")
DENIED = "This file is not readable (permission denied); `chmod u+r` makes it readable for its owner."


@pytest.fixture(autouse=True)
def bound_by_permissions(tmp_path):
    """A file of mode 0 is closed to what the tests start."""
    if AS_OTHERS and shutil.which("setpriv") is None:
        pytest.skip("as root, this needs setpriv of util-linux")
    closed = tmp_path / "closed_to_all"
    closed.touch(mode=0)
    assert subprocess.run([*AS_OTHERS, "cat", closed], capture_output=True, check=False).returncode == 1
    yield
    for path in tmp_path.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


async def test_a_file_without_permission_is_told_and_traced_once_it_is_given(new_stand):
    stand = await new_stand(command=(*AS_OTHERS, *SERVER))
    path = stand.folder / "secret.py"
    path.write_text(good(20))
    path.chmod(0)
    stand.editor.open(path)  # an editor may know it from before
    stand.texts[path] = good(20)
    assert await stand.editor.end_state(path) == "failed"
    assert await stand.problem("secret.py") == (
        "unreadable", f"{DENIED} It is traced again as soon as it can be read.", "import torch"
    )  # fmt: skip
    path.chmod(0o644)
    assert await stand.editor.end_state(path) == "ready"
    assert await stand.shown("secret.py") == seen(20)
    part = stand.folder / "part.py"
    part.write_text("WIDTH = 20\n")
    part.chmod(0)
    uses = "import part\n" + good(20)
    assert await stand.open("uses.py", uses) == "ready"
    code, message, line = await stand.problem("uses.py")
    assert (code, line) == ("missing-package", "import part")
    assert DENIED in message
    assert await stand.shown("uses.py") == seen(20)
    await stand.others_answer()


@pytest.mark.parametrize("mode", [0o555, 0])
async def test_nothing_that_a_server_keeps_is_needed_for_a_trace(tmp_path, new_stand, mode):
    home = tmp_path / "home"
    (home / "tmp").mkdir(parents=True)
    nowhere = {name: str(home / name.lower()) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR")}
    for folder in map(Path, nowhere.values()):
        folder.mkdir(parents=True)
        folder.chmod(mode)
    home.chmod(mode)
    nowhere |= {"HOME": str(home), "XDG_RUNTIME_DIR": "", "MASE_RUNTIME_DIR": ""}
    stand = await new_stand(command=(*AS_OTHERS, *SERVER), environment=nowhere)
    assert await stand.save("one.py", good(20)) == "ready"
    assert await stand.shown("one.py") == seen(20)
    assert not await stand.problems("one.py")


def run(folder, *arguments):
    """A command in a folder, with all that it keeps below it."""
    below = {name: str(folder / ".kept") for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "MASE_RUNTIME_DIR")}
    command = [*AS_OTHERS, *PROGRAM, *arguments]
    environment = {**os.environ, **below}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_check_of_a_folder_tells_what_it_may_not_read_and_checks_the_rest(tmp_path):
    (tmp_path / "closed").mkdir()
    for name in ("good.py", "secret.py", "closed/net.py"):
        (tmp_path / name).write_text(GOOD)
    (tmp_path / "secret.py").chmod(0)
    (tmp_path / "closed").chmod(0)
    os.mkfifo(tmp_path / "pipe.py")
    done = run(tmp_path, "check", ".")
    assert (done.returncode, done.stderr) == (1, "")
    assert f"secret.py:1:1: error[unreadable]: {DENIED}" in done.stdout
    assert "pipe.py:1:1: error[unreadable]: This is a named pipe, not a file." in done.stdout
    assert done.stdout.strip().endswith("3 model files checked: 2 errors")
    for command in (("shapes", "closed/net.py"), ("passes", "closed/net.py")):
        done = run(tmp_path, *command)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_what_cannot_be_kept_is_told(tmp_path):
    (tmp_path / ".kept").mkdir(mode=0)
    done = run(tmp_path, "trust", ".")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "Permission denied" in done.stderr
    assert run(tmp_path, "report").returncode == 0


def test_an_interpreter_that_may_not_be_looked_at_is_told_as_one_that_does_not_start(tmp_path):
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "python").symlink_to(sys.executable)
    (tmp_path / "closed").chmod(0)
    (tmp_path / "net.py").write_text(GOOD)
    done = run(tmp_path, "check", "--python", "closed/python", "net.py")
    assert done.returncode == 1
    assert "error[no-interpreter]" in done.stdout
    assert "closed/python does not start: Permission denied." in done.stdout
