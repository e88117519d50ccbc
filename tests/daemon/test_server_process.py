"""The server as a process: what it holds, and what it leaves behind when it is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from .conftest import JOB, MODEL, gone, is_running

DAEMON_ONLY = """
import json, sys
from pathlib import Path
import mase_server.daemon.daemon
import asyncio, tempfile
async def main():
    from mase_server.daemon.daemon import Daemon, FolderSettings
    where = Path(tempfile.mkdtemp())
    daemon = Daemon(None, cache_dir=where, state_dir=where, settings_of=lambda _: FolderSettings(), folder_of=str)
    await daemon.start()
    await daemon.shutdown()
asyncio.run(main())
rss = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if Path("/proc/self/statm").exists() else 0
print(json.dumps({"modules": sorted(sys.modules), "rss": rss}))
"""

SERVER = """
import asyncio, sys
from pathlib import Path
from mase_server.daemon.daemon import Daemon, FolderSettings
where, job = Path(sys.argv[1]), sys.argv[2]
class Deaf:
    def __getattr__(self, name):
        return lambda *_: None
async def main():
    settings = FolderSettings(trusted=True, interpreter=sys.executable)
    daemon = Daemon(Deaf(), cache_dir=where / "c", state_dir=where / "s", settings_of=lambda _: settings,
                    folder_of=lambda _: str(where), job=job)
    for name in ("calm.py", "busy.py"):
        daemon.opened(str(where / name))
    await daemon.wait(str(where / "calm.py"))
    while not (where / "pids").exists():
        await asyncio.sleep(0.02)
    print(daemon.worker(str(where / "calm.py")).child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_the_daemon_half_holds_no_torch_no_numpy_and_little_memory():
    done = subprocess.run([sys.executable, "-c", DAEMON_ONLY], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    heavy = {"torch", "numpy", "transformers", "lsprotocol", "pygls", "rich", "typer"}
    assert not heavy & set(found["modules"])
    half = {name for name in found["modules"] if name.startswith("mase_server.")}
    assert not [name for name in half if name.split(".")[1] in ("ir", "tracing", "inputs", "ops", "lsp", "cli")]
    assert not [name for name in half if name.startswith("mase_server.worker")]
    assert 0 <= found["rss"] < 80 << 20


async def test_a_server_that_is_killed_leaves_no_process(tmp_path):
    (tmp_path / "calm.py").write_text(f"{MODEL}x = 1  # shape f32[2]\n")
    code = "import os, signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += (
        "one = subprocess.Popen(['sleep', '600'])\ntwo = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    )
    target, fresh = str(tmp_path / "pids"), str(tmp_path / "pids.new")
    code += f"open({fresh!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}} {{one.pid}} {{two.pid}}')\n"
    code += f"os.rename({fresh!r}, {target!r})\nwhile True: pass\n"
    (tmp_path / "busy.py").write_text(MODEL + code)
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path), JOB], stdout=subprocess.PIPE, text=True)
    calm = int(server.stdout.readline())
    pids = [calm, *map(int, Path(target).read_text().split())]
    assert all(map(is_running, pids))
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    server.stdout.close()
    assert [await gone(pid) for pid in pids] == [True] * 5
