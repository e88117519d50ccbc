"""Disks that are full, folders that went, limits of open files: told with the path and the next step, and got over."""

import contextlib
import errno
import os
import resource
import shutil
import tempfile
from pathlib import Path

import pytest
from editing import Editor
from good_net import good, seen
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from mase_server import private
from mase_server.daemon.trials import PickedSets
from mase_server.daemon.trust import grant_trust, is_trusted
from mase_server.private import write_whole

pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextlib.contextmanager
def limited(processes, what, number):
    """These processes with a lower limit, until the end of the block."""
    before = {}
    for each in processes:
        with contextlib.suppress(ProcessLookupError):  # a child that has just ended
            before[each.pid] = resource.prlimit(each.pid, what)
            resource.prlimit(each.pid, what, (number, before[each.pid][1]))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, what, limits)


@contextlib.contextmanager
def no_file_grows(processes):
    """As on a full disk: what is written to a file fails, folders and empty files can still be made."""
    with limited(processes, resource.RLIMIT_FSIZE, 0):
        yield


async def refusal(stand, method, **params):
    params = {"path": str(stand.folder / "one.py"), "model": "Net", **params}
    with pytest.raises(JsonRpcException) as told:
        await stand.editor.request(method, params)
    return told.value.message


async def test_shapes_are_shown_though_nothing_can_be_kept(stand):
    with no_file_grows(stand.processes()):
        assert await stand.open("full.py", good()) == "ready"
        assert await stand.save("full.py", good(20)) == "ready"
        assert await stand.shown("full.py") == seen(20)
        state = stand.tmp / "state" / "mase-server"
        said = await refusal(stand, "mase/pickInputs", set="")
        file = state / "input_sets.json"
        assert said == f"the choice of inputs is not kept: {file} cannot be written: File too large"
        assert not [each for each in state.iterdir() if each.is_file() and each.stat().st_size]
        said = await refusal(stand, "mase/draw", file=str(stand.tmp / "net.svg"))
        assert said == f"cannot write {stand.tmp / 'net.svg'}: File too large"
        await stand.others_answer()
    stand.close("full.py")


async def test_a_temporary_folder_that_went_is_replaced(stand):
    shutil.rmtree(stand.environment["TMPDIR"])
    try:
        assert await stand.open("swept.py", good()) == "ready"
        assert await stand.save("swept.py", good(20)) == "ready"
        assert await stand.shown("swept.py") == seen(20)
        await stand.others_answer()
    finally:
        Path(stand.environment["TMPDIR"]).mkdir()
    stand.close("swept.py")


def one_left(pid):
    """The limit with which a process can open one more file, and no second one."""
    used = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    return [number for number in range(max(used) + 3) if number not in used][1]


async def test_the_limit_of_open_files_is_told_and_a_save_after_it_works(stand):
    assert await stand.open("files.py", good()) == "ready"
    server = [each for each in stand.processes() if each.pid == stand.server]
    with limited(server, resource.RLIMIT_NOFILE, one_left(stand.server)):
        assert await stand.save("files.py", good(20)) == "failed"
        code, message, _ = await stand.problem("files.py")
        assert code == "system-limit"
        assert message == (
            "This file cannot be traced now: as many files are open as may be. Close files in the editor, or raise the "
            "limit: `ulimit -n 4096`. Then save again."
        )
        assert await stand.is_stale("files.py")
        await stand.others_answer()
    assert await stand.save("files.py", good(24)) == "ready"
    assert await stand.shown("files.py") == seen(24)
    assert not await stand.problems("files.py")
    stand.close("files.py")


async def test_trust_that_cannot_be_kept_holds_for_the_session_and_says_so(tmp_path):
    state = tmp_path / ".state"
    state.write_text("no folder")
    editor = Editor(tmp_path, options={}, answer=lsp.MessageActionItem("Trust"))
    await editor.start()
    path = tmp_path / "net.py"
    editor.open(path, good())
    await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    told = await editor.expect(lsp.WINDOW_SHOW_MESSAGE)
    assert told.message == f"{tmp_path} is trusted until this server ends: {state} is no folder; remove it"
    await editor.stop()


@pytest.fixture
def disk_full(monkeypatch):
    """Every file that is written meets the end of the disk, having been made."""
    real = os.fdopen

    def fdopen(descriptor, mode="r", *args, **kwargs):
        if "w" not in mode:
            return real(descriptor, mode, *args, **kwargs)
        os.close(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", fdopen)


KEPT = {
    "trusted.json": lambda folder: grant_trust(folder, str(folder)),
    "input_sets.json": lambda folder: PickedSets(folder).pick("/a.py", "Net", "small"),
    "token": lambda folder: write_whole(folder / "token", "secret"),
}


@pytest.mark.parametrize("name", KEPT)
async def test_what_is_kept_is_named_where_the_disk_is_full_and_nothing_half_is_left(tmp_path, disk_full, name):
    (tmp_path / name).write_text("before")
    with pytest.raises(OSError, match="No space left on device") as told:
        KEPT[name](tmp_path)
    assert told.value.strerror == f"{tmp_path / name} cannot be written: No space left on device"
    assert [each.name for each in tmp_path.iterdir() if each.suffix != ".lock"] == [name]
    assert (tmp_path / name).read_text() == "before"
    assert not is_trusted(tmp_path, str(tmp_path))


async def test_a_user_without_a_home_gets_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what Python gives where nobody has such a number
    found = [private.cache_dir(), private.state_dir()]
    assert [each.is_absolute() and each.stat().st_mode & 0o777 for each in found] == [0o700] * 2
    assert sorted(tmp_path.iterdir()) == sorted(found)  # and no folder called "~"
