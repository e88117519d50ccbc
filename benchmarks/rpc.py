"""How fast the daemon answers other tools: `python -m benchmarks.rpc`.

Starts `mase-server serve` on a folder of its own. Round trips of mase/nodeAt from 16 clients while files are traced;
pipelined requests while nothing else happens; a graph of 20,000 nodes fetched and decoded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgpack

from mase_server.client import AsyncClient, Client

CLIENTS, TOTAL_RATE = 16, 200.0
MODEL = """import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range({layers}))

    def forward(self, x):
        for layer in self.layers:
            y = layer(x)
            x = torch.relu(y)
        return x

if __name__ == "__main__":
    print(Net()(torch.randn(4, 64)).shape)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["MASE_RUNTIME_DIR"] = str(folder / "run")
        server, address = serve(folder)
        try:
            print(json.dumps(measure(folder, address, options), indent=1))
        finally:
            server.terminate()
            server.wait()


def serve(folder: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "mase_server", "serve", str(folder), "--trust", "--python", sys.executable]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


def measure(folder: Path, address: str, options: argparse.Namespace) -> dict[str, object]:
    small, busy, big = folder / "small.py", folder / "busy.py", folder / "big.py"
    small.write_text(MODEL.format(layers=4))
    busy.write_text(MODEL.format(layers=40))
    big.write_text(MODEL.format(layers=(options.nodes - 2) // 2))
    with Client(address) as client:
        client.open(str(small))
        found: dict[str, object] = {"nodeAt idle": asyncio.run(round_trips(address, small, None, options.seconds / 2))}
        found["nodeAt while tracing"] = asyncio.run(round_trips(address, small, busy, options.seconds))
        found["pipelined per second"] = {
            method: pipelined(address, method, params)
            for method, params in (
                ("mase/fileStatus", {"path": str(small)}),
                ("mase/nodeAt", {"path": str(small), "line": 11, "column": 12}),
            )
        }
        found["graph"] = fetched(client, big)
        found["statistics"] = client.statistics()
    return found


async def round_trips(address: str, path: Path, busy: Path | None, seconds: float) -> dict[str, float]:
    """Milliseconds of mase/nodeAt from all clients together; `busy` is saved again and again meanwhile."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    stop = asyncio.Event()
    saving = asyncio.create_task(save(address, busy, stop)) if busy is not None else None

    async def ask(number: int) -> None:
        async with AsyncClient(address) as client:
            await asyncio.sleep(number / TOTAL_RATE)
            while (began := time.perf_counter()) < end:
                await client.node_at(str(path), line=11, column=12)
                times.append(time.perf_counter() - began)
                await asyncio.sleep(max(0.0, CLIENTS / TOTAL_RATE - (time.perf_counter() - began)))

    await asyncio.gather(*map(ask, range(CLIENTS)))
    stop.set()
    traces = await saving if saving is not None else 0
    milliseconds = sorted(1000 * each for each in times)
    return {
        "requests": len(times),
        "traces": traces,
        "p50 ms": statistics.median(milliseconds),
        "p99 ms": milliseconds[int(0.99 * len(milliseconds))],
        "max ms": milliseconds[-1],
    }


async def save(address: str, path: Path, stop: asyncio.Event) -> int:
    """Retrace a file until told to stop; how often."""
    count = 0
    async with AsyncClient(address) as client:
        await client.open(str(path))
        while not stop.is_set():
            await client.retrace(str(path))
            count += 1
    return count


def pipelined(address: str, method: str, params: dict[str, object], number: int = 20_000) -> float:
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
    status = client.open(str(path))
    assert status["state"] == "ready", status
    times = []
    for _ in range(7):
        began = time.perf_counter()
        graph = client.graph(str(path))
        times.append(1000 * (time.perf_counter() - began))
    return {"nodes": graph["total"], "first ms": times[0], "median ms": statistics.median(times[1:])}


if __name__ == "__main__":
    main()
