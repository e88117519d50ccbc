"""Machines that lack what most have, and clocks that jump: a trace needs neither."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faulting import SERVER
from good_net import good, seen

#: Runs a program where /dev has the usual devices and nothing else, as in small containers; the rest of its arguments.
WITHOUT_SHARED_MEMORY = (
    "unshare", "-Urm", "sh", "-ec", """
for name in null zero full random urandom; do touch "$0/$name"; mount --bind "/dev/$name" "$0/$name"; done
ln -s /proc/self/fd "$0/fd"
mount --rbind "$0" /dev
exec "$@"
""",
)  # fmt: skip


async def test_without_shared_memory_a_file_with_loaders_is_traced(new_stand, tmp_path):
    devices = tmp_path / "dev"
    devices.mkdir()
    lacking = (*WITHOUT_SHARED_MEMORY, str(devices))
    if (
        shutil.which("unshare") is None
        or subprocess.run([*lacking, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine gives nobody a namespace of their own (unshare -Urm)")
    for path in devices.iterdir():
        path.unlink()
    stand = await new_stand(command=(*lacking, *SERVER))
    assert not Path(f"/proc/{stand.server}/root/dev/shm").exists()
    shared = good(20).replace('if __name__ == "__main__":\n    Net()(', (
        "from multiprocessing import shared_memory\nfrom torch.utils.data import DataLoader\n"
        'if __name__ == "__main__":\n    torch.zeros(3).share_memory_()\n'
        "    for x in DataLoader(torch.randn(8, 8), batch_size=4, num_workers=2):\n        Net()(x)\n    print("
    ))  # fmt: skip
    assert await stand.open("shared.py", shared) == "ready", await stand.problems("shared.py")
    assert await stand.shown("shared.py") == seen(20)
    await stand.others_answer()


#: A server whose wall clock, and that of the processes forked for it, is as many seconds off as a file says.
SKEWED = """
import runpy, sys, time
from pathlib import Path
offset, real, real_ns = Path(sys.argv[1]), time.time, time.time_ns
time.time = lambda: real() + int(offset.read_text())
time.time_ns = lambda: real_ns() + int(offset.read_text()) * 10**9
sys.argv[:] = ["mase-server", "lsp"]
runpy.run_module("mase_server", run_name="__main__")
"""
YEAR = 365 * 86400


async def test_a_clock_that_jumps_stops_nothing_and_ends_nothing(new_stand, tmp_path):
    offset = tmp_path / "offset"
    offset.write_text("0")
    stand = await new_stand(command=(sys.executable, "-c", SKEWED, str(offset)))
    path = stand.folder / "clocked.py"
    assert await stand.open(path.name, good()) == "ready"
    for jump, width in ((-YEAR, 20), (30 * YEAR, 24), (-3600, 28)):
        offset.write_text(str(jump))
        path.write_text(good(width))  # not by this editor, which would tell of it
        os.utime(path, (1_000_000_000 + jump, 1_000_000_000 + jump))
        assert await stand.editor.end_state(path) == "ready"
        stand.editor.retype(path, stand.texts[path], good(width))
        stand.texts[path] = good(width)
        assert await stand.shown(path.name) == seen(width)
        assert not await stand.is_stale(path.name)
    await stand.others_answer()
