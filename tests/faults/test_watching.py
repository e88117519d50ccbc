"""The system's own limit of watched folders, set low for one server: saves by anything are seen all the same."""

import shutil
import subprocess

import pytest
from faulting import SERVER
from good_net import good, seen

#: A server in a namespace of its own, where so many folders can be watched and no more.
WATCHES = 1
LIMITED = ("unshare", "-Ur", "sh", "-c", f'echo {WATCHES} > /proc/sys/user/max_inotify_watches && exec "$@"', "sh")


def may_limit():
    """Does this machine let a test make such a namespace?"""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*LIMITED, "true"], capture_output=True, check=False).returncode == 0


async def test_beyond_the_limit_of_watches_files_are_polled_and_the_log_says_so_once(new_stand):
    if not may_limit():
        pytest.skip("this machine gives nobody a namespace of their own (unshare -Ur)")
    stand = await new_stand(command=(*LIMITED, *SERVER))
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
    await stand.stop()
    logs = "".join(each.read_text() for each in (stand.tmp / "state").rglob("*.jsonl"))
    assert logs.count("the system watches no more folders: its limit of watched folders is reached") == 1
