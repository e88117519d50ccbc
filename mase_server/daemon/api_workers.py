"""API functions on the daemon itself: its processes, and what it counts."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from mase_server import answers
from mase_server.daemon.limits import resident_bytes
from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params
from mase_server.paths import canonical


async def workers(api: Api, params: Params) -> list[dict[str, Any]]:
    """The live trace children: {"path", "folder", "pid", "memory" (bytes), "generation", "idle" (seconds)} each."""
    live = [(each, each.worker) for each in api.daemon.files() if each.worker is not None and each.worker.live]
    return [
        {
            "path": each.path,
            "folder": each.folder,
            "pid": worker.child.pid,
            "memory": await resident_bytes(worker.child.pid),
            "generation": worker.request.generation,
            "idle": time.monotonic() - each.used_at,
        }
        for each, worker in live
    ]


async def restart_workers(api: Api, params: Params) -> dict[str, Any]:
    """End the processes of `folder`, of all without it, and trace what is open again: {"folders"} concerned."""
    folder = params.get("folder")
    files = api.daemon.files()
    known = sorted({each.folder for each in files})
    if folder is not None:
        folder = canonical(folder)
        if folder not in known:
            told = ", ".join(known) or "none"
            raise ApiError("not-open", f"no file of {folder} was traced; folders are {told}", {"folders": known})
    concerned = [each for each in files if folder in (None, each.folder) and each.open]
    if untrusted := [each.path for each in concerned if not api.daemon.trusts(each.path)]:
        raise ApiError("untrusted", f"the folder of {untrusted[0]} is not trusted: nothing of it is executed")
    api.daemon.environment_changed(folder)
    return {"folders": known if folder is None else [folder]}


async def statistics(api: Api, params: Params) -> dict[str, Any]:
    """What the daemon counts, in a fixed amount of memory; `answers.Statistics` says what each key means.

    memory: resident bytes of the server alone.  states: how many files are in each state.  nodes: of all graphs that
    are shown.  requests: what the front that was asked counted, {} for the editor's.  methods, traces: how often, how
    often in vain, and how long: 50 and 95 in a hundred took at most p50 and p95 seconds.
    """
    files = api.daemon.files()
    live = [each.worker for each in files if each.worker is not None and each.worker.live]
    states = [each.status.state for each in files if each.status is not None]
    snapshots = list(api.daemon.store.snapshots())
    return {
        "pid": os.getpid(),
        "memory": _own_memory(),
        "files": len(files),
        "open": sum(each.open for each in files),
        "states": {state: states.count(state) for state in sorted(set(states))},
        "live": len(live),
        "nodes": sum(len(snapshot.payload["nodes"]["name"]) for snapshot in snapshots),
        "requests": api.session.statistics() if api.session is not None else {},
        "workers": sum([await resident_bytes(worker.child.pid) for worker in live]),
        **api.daemon.counted(),
    }


def _own_memory() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


WORKERS = (
    ApiMethod("mase/workers", {}, workers, list[answers.Worker], answer="workers"),
    ApiMethod("mase/restartWorkers", {"folder?": str}, restart_workers, answers.Restarted),
    ApiMethod("mase/statistics", {}, statistics, answers.Statistics),
)
