"""The system's own limit of watched folders, set low for one server: saves by anything are seen all the same."""

import shutil
import subprocess

import pytest
from faulting import SERVER
from good_net import good, seen
from lsprotocol import types as lsp

#: A server in a namespace of its own, where only one folder can be watched; and why that is.
FEW_FOLDERS = ("max_inotify_watches", 1, "its limit of watched folders is reached")
#: One where nobody can watch anything any more, as where a hundred editors of one user do.
NO_WATCHER = ("max_inotify_instances", 0, "its limit of open files or of watchers is reached")


def limited(name, count):
    """What starts a program with so many and no more."""
    return ("unshare", "-Ur", "sh", "-c", f'echo {count} > /proc/sys/user/{name} && exec "$@"', "sh")


def may_limit(name, count):
    """Does this machine let a test make such a namespace?"""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*limited(name, count), "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("name", "count", "why"), [FEW_FOLDERS, NO_WATCHER], ids=["folders", "watchers"])
async def test_beyond_the_systems_limits_files_are_polled_and_the_person_is_told_once(new_stand, name, count, why):
    if not may_limit(name, count):
        pytest.skip("this machine gives nobody a namespace of their own (unshare -Ur)")
    stand = await new_stand(command=(*limited(name, count), *SERVER))
    (stand.folder / "deeper").mkdir()
    for name in ("deeper/net.py", "net.py"):
        assert await stand.open(name, good()) == "ready"
    for name in ("deeper/net.py", "net.py"):
        path = stand.folder / name
        path.write_text(good(20))  # not by this editor, which would tell of it
        assert await stand.editor.end_state(path) == "ready"
        stand.editor.retype(path, good(), good(20))
        stand.texts[path] = good(20)
        assert await stand.shown(name) == seen(20)
    await stand.others_answer()
    told = await stand.editor.expect(lsp.WINDOW_SHOW_MESSAGE)
    assert told.type == lsp.MessageType.Warning
    assert told.message.startswith(f"The system watches no more folders: {why}")
    assert told.message.endswith(" Files are looked at every 0.5 s instead.")
    await stand.stop()  # nothing is told twice: what nobody expected is an error here
    logs = "".join(each.read_text() for each in (stand.tmp / "state").rglob("*.jsonl"))
    assert logs.count(f"The system watches no more folders: {why}") == 1
