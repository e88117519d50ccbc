"""How fast the daemon answers other tools: `python -m benchmarks.rpc`.

Round trips of mase/nodeAt from 16 clients, 200 a second in all, over the socket of an editor's server: at rest, and
while the editor hovers and saves a file again and again, so that a trace always runs. Then, of `mase-server serve`:
pipelined requests while nothing else happens, and a graph of 20,000 nodes fetched and decoded. The clients are another
process. On a busy machine, a priority (`nice -n -20`) keeps other work out of the times.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack

from benchmarks import figures
from benchmarks.editor import Editor
from mase_server.client import AsyncClient, Client
from mase_server.rpc.registry import find_registration, runtime_dir

CLIENTS, TOTAL_RATE, HOVER_RATE = 16, 200.0, 20.0
PIPELINED = 20_000
LINE, COLUMN = 11, 12
MODEL = """import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(min({layers}, 64)))

    def forward(self, x):
        for index in range({layers}):
            y = self.layers[index % 64](x)
            x = torch.relu(y)
        return x

if __name__ == "__main__":
    print(Net()(torch.randn(4, 64)).shape)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--load", nargs=2, metavar=("ADDRESS", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        print(json.dumps(asyncio.run(round_trips(options.load[0], options.load[1], options.seconds))))
        return
    found: dict[str, Any] = {"load average": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as name:
        os.environ["MASE_RUNTIME_DIR"] = str(Path(name) / "run")
        (folder := Path(name) / "project").mkdir()
        found |= tell(asyncio.run(beside_an_editor(folder, options)))
        server, address = serve(folder)
        try:
            found |= measure(folder, address, options)
        finally:
            server.terminate()
            server.wait()
    print(json.dumps(found, indent=1))
    tell_figures(found)


def tell_figures(found: Mapping[str, Any]) -> None:
    """For `bench.py`."""
    for name, key in (("rest", "nodeAt at rest"), ("busy", "nodeAt while hovering and tracing")):
        for share in ("p50", "p99"):
            figures.tell(f"rpc/{name}/{share}", found[key][f"{share} ms"])
    figures.tell("rpc/pipelined", found["pipelined"]["mase/nodeAt"]["per second"])
    figures.tell("rpc/graph", found["graph"]["median ms"], first=found["graph"]["first ms"])


def tell(found: dict[str, object]) -> dict[str, object]:
    """Show on standard error what is known already."""
    print(json.dumps(found, indent=1), file=sys.stderr, flush=True)
    return found


async def beside_an_editor(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Round trips to an editor's server, first at rest, then while the editor works; `runs` of each."""
    small, busy = folder / "small.py", folder / "busy.py"
    small.write_text(MODEL.format(layers=4))
    busy.write_text(MODEL.format(layers=40))
    found: dict[str, list[dict[str, float]]] = {"nodeAt at rest": [], "nodeAt while hovering and tracing": []}
    async with Editor(folder) as editor:
        for path in (small, busy):
            editor.open(path)
            await editor.settled(path)
        registered = await asyncio.to_thread(lambda: find_registration(runtime_dir(), str(folder)))
        assert registered is not None
        for _ in range(options.runs):
            found["nodeAt at rest"].append(await load(registered.address, small, options.seconds))
            stop = asyncio.Event()
            working = [asyncio.create_task(hover(editor, small, stop)), asyncio.create_task(save(editor, busy, stop))]
            times = await load(registered.address, small, options.seconds)
            stop.set()
            times["hovers"], times["traces"] = await asyncio.gather(*working)
            found["nodeAt while hovering and tracing"].append(times)
    return {name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in found.items()}


async def load(address: str, path: Path, seconds: float) -> dict[str, float]:
    """The 16 clients, as a process of their own."""
    command = [sys.executable, "-m", "benchmarks.rpc", "--load", address, str(path), "--seconds", str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    told: dict[str, float] = json.loads(out)
    return told


async def hover(editor: Editor, path: Path, stop: asyncio.Event) -> int:
    """Hover until told to stop, as fast as a hand does; how often."""
    count = 0
    while not stop.is_set():
        assert await editor.hover(path, LINE - 1, COLUMN) is not None
        count += 1
        await asyncio.sleep(1 / HOVER_RATE)
    return count


async def save(editor: Editor, path: Path, stop: asyncio.Event) -> int:
    """Save a file with a change, wait for its shapes, and again, until told to stop; how often."""
    count = 0
    while not stop.is_set():
        editor.save(path, MODEL.format(layers=40) + f"# {count}\n")
        await editor.settled(path)
        count += 1
    return count


async def round_trips(address: str, path: str, seconds: float) -> dict[str, float]:
    """Milliseconds of mase/nodeAt from all clients together."""
    times: list[float] = []
    gc.disable()
    end = time.perf_counter() + seconds

    async def ask(number: int) -> None:
        async with AsyncClient(address) as client:
            await asyncio.sleep(number / TOTAL_RATE)
            while (began := time.perf_counter()) < end:
                assert await client.node_at(path, line=LINE, column=COLUMN) is not None
                times.append(time.perf_counter() - began)
                await asyncio.sleep(max(0.0, CLIENTS / TOTAL_RATE - (time.perf_counter() - began)))

    await asyncio.gather(*map(ask, range(CLIENTS)))
    milliseconds = sorted(1000 * each for each in times)
    return {
        "requests": len(times),
        "p50 ms": statistics.median(milliseconds),
        "p99 ms": milliseconds[int(0.99 * len(milliseconds))],
        "max ms": milliseconds[-1],
    }


def serve(folder: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "mase_server", "serve", str(folder), "--trust", "--python", sys.executable]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


def measure(folder: Path, address: str, options: argparse.Namespace) -> dict[str, object]:
    """Pipelined requests, and a big graph."""
    small, big = folder / "small.py", folder / "big.py"
    big.write_text(MODEL.format(layers=(options.nodes - 2) // 2))
    with Client(address) as client:
        client.open(str(small))
        asked: dict[str, dict[str, object]] = {
            "mase/fileStatus": {"path": str(small)},
            "mase/nodeAt": {"path": str(small), "line": LINE, "column": COLUMN},
        }
        pid = client.info()["pid"]
        found = tell({"pipelined": {name: flood(address, pid, name, asked[name], options.runs) for name in asked}})
        return {**found, "graph": fetched(client, big), "statistics": client.statistics()}


def flood(address: str, pid: int, method: str, params: dict[str, object], runs: int) -> dict[str, float]:
    """Requests a second, and for each second that the server's process worked: other load changes the first alone."""
    rates, works = [], []
    for _ in range(runs):
        before = worked(pid)
        rates.append(pipelined(address, method, params))
        works.append(round(PIPELINED / (worked(pid) - before)))
    return {"per second": statistics.median(rates), "per CPU second of the server": statistics.median(works)}


def worked(pid: int) -> float:
    """CPU seconds of a process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pipelined(address: str, method: str, params: dict[str, object], number: int = PIPELINED) -> float:
    """Requests a second that one plain client gets answered when it sends all before it reads."""
    import socket
    import threading

    made = socket.socket(socket.AF_UNIX)
    made.connect(address.removeprefix("unix:"))
    messages = b"".join(msgpack.packb([0, ident, method, [params]]) for ident in range(number))
    began = time.perf_counter()
    sending = threading.Thread(target=made.sendall, args=(messages,))
    sending.start()
    unpacker, left = msgpack.Unpacker(raw=False), number
    while left:
        unpacker.feed(made.recv(1 << 18))
        for answer in unpacker:
            assert answer[2] is None, answer
            left -= 1
    seconds = time.perf_counter() - began
    sending.join()
    made.close()
    return round(number / seconds)


def fetched(client: Client, path: Path) -> dict[str, float]:
    """Milliseconds to fetch and decode all of a graph: the first time, and then."""
    status: Mapping[str, object] = client.open(str(path))
    for _ in range(3):  # on a busy machine a trace may be over its limit
        status = status if status["state"] == "ready" else client.retrace(str(path))
    assert status["state"] == "ready", status
    times = []
    for _ in range(7):
        began = time.perf_counter()
        graph = client.graph(str(path))
        times.append(1000 * (time.perf_counter() - began))
    return {"nodes": graph["total"], "first ms": times[0], "median ms": statistics.median(times[1:])}


if __name__ == "__main__":
    main()
