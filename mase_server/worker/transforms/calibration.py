"""How fast the processors of this machine run each kind of operator: seconds of small benchmarks, kept afterwards."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from mase_server import system
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask
from mase_server.worker.transforms.forks import Send

#: Each is run for so many seconds, and at least so often; the median counts.
_SECONDS, _TIMES = 0.04, 5


def send_calibration(live: Live, ask: Ask, real: Any, send: Send) -> None:
    """Send what `measure_processor` finds; only the key if it is `name`, which is known."""
    key = _make_key()
    send({"event": "progress", "message": "measuring this machine", "fraction": None})
    send({"value": {"key": key} if ask.name == key else measure_processor()})


def _make_key() -> str:
    return f"2 {platform.processor() or platform.machine()} {system.count_cores()} {torch.__version__}"


def measure_processor() -> dict[str, Any]:
    """How long each kind of operator takes at several sizes, as points (work, seconds), and a layer without work."""
    cores = system.count_cores()
    torch.set_num_threads(cores)
    curves: dict[str, list[tuple[float, float]]] = {}
    # What Python and torch need for a layer that computes next to nothing.
    small = nn.Sequential(*(each for _ in range(20) for each in (nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8))))
    with torch.no_grad():
        for kind, work, run in _list_benchmarks():
            curves.setdefault(kind, []).append((work, _time(run)))
    return {
        "key": _make_key(),
        "title": f"the {cores} processors of this machine",
        "memory": system.physical_bytes(),
        "launch": _time(partial(small, torch.randn(4, 8))) / len(small),
        "curves": {kind: _make_monotone(sorted(points)) for kind, points in curves.items()},
    }


def _time(run: Callable[[], object]) -> float:
    """The median of the seconds that a call takes, once it is warm."""
    run()
    seconds: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(seconds) < _TIMES or time.perf_counter() < end:
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[len(seconds) // 2]


def _make_monotone(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """More work never takes less time, whatever disturbed a benchmark."""
    least = float("inf")
    for place in range(len(points) - 1, -1, -1):
        least = min(least, points[place][1])
        points[place] = points[place][0], least
    return points


def _list_benchmarks() -> Iterator[tuple[str, float, Callable[[], object]]]:
    """Kind, work (operations, or bytes read and written), and the call."""
    for size in (16, 64, 192, 512, 1024):
        left, right = torch.randn(size, size), torch.randn(size, size)
        yield "product", 2.0 * size**3, partial(torch.matmul, left, right)
    for size, channels in ((8, 8), (16, 32), (32, 64), (56, 64), (28, 256)):
        image, kernel = torch.randn(2, channels, size, size), torch.randn(channels, channels, 3, 3)
        yield "convolution", 36.0 * channels**2 * size**2, partial(F.conv2d, image, kernel, padding=1)
    for length, heads in ((16, 2), (64, 4), (256, 8), (512, 12)):
        query = torch.randn(2, heads, length, 64)
        yield "attention", 8.0 * heads * length**2 * 64, partial(F.scaled_dot_product_attention, query, query, query)
    for rows in (4, 64, 1024, 8192, 32768):
        values, scale = torch.randn(rows, 256), torch.ones(256)
        yield "copy", 3.0 * values.nbytes, partial(torch.add, values, values)
        yield "function", 2.0 * values.nbytes, partial(F.gelu, values)
        yield "row", 2.0 * values.nbytes, partial(F.layer_norm, values, (256,), scale, scale)
