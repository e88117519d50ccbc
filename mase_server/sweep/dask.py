"""Points on a cluster of Dask: each of its workers keeps a bench of its own. Needs the extra `dask`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mase_server.programs import isolate_libraries
from mase_server.sweep.bench import Bench
from mase_server.sweep.engines import Measured
from mase_server.sweep.points import Point, Result, sha256_of


class EngineError(Exception):
    """A cluster that cannot be had; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Dask:
    """A cluster. address: of its scheduler, e.g. "tcp://10.0.0.1:8786"; "" for one of `jobs` processes made here.

    The model files are read by the workers, under the same paths as here.
    """

    address: str = ""
    jobs: int = 1
    python: str | None = None

    async def run(self, points: Sequence[Point]) -> AsyncGenerator[Measured, None]:
        """Each point with its result. EngineError where the cluster cannot be reached."""
        distributed = _distributed()
        async with self._client(distributed) as client:
            given = [(point.to_wire(), sha256_of(point.file), self.python) for point in points]
            futures = client.map(measure, given, pure=False, retries=0)
            asked = {future.key: point for future, point in zip(futures, points, strict=True)}
            async for future in distributed.as_completed(futures):
                yield asked[future.key], await _result(future)

    @asynccontextmanager
    async def _client(self, distributed: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            try:
                where: Any = self.address or await stack.enter_async_context(_here(distributed, self.jobs))
                client = await stack.enter_async_context(distributed.Client(where, asynchronous=True))
            except (OSError, ValueError) as error:
                raise EngineError(f"no cluster of Dask answers at {self.address or 'this machine'}: {error}") from None
            yield client


def _here(distributed: Any, jobs: int) -> Any:
    isolate_libraries()
    return distributed.LocalCluster(
        n_workers=jobs, threads_per_worker=1, dashboard_address=None, asynchronous=True, silence_logs="CRITICAL"
    )


async def _result(future: Any) -> Result:
    """The worker's result; a failed result if several workers died of the point."""
    try:
        return Result(**await future)
    except Exception as error:  # noqa: BLE001  (a process's border: whatever a worker raised is the point's error)
        return Result(error=f"{type(error).__name__}: {error}", kind="died")


def measure(given: tuple[Mapping[str, Any], str, str | None]) -> dict[str, Any]:
    """On a worker: `Result.to_wire` of a point. given: the point as a map, its file's sha256, the interpreter."""
    told, sha256, python = given
    point = Point.from_wire(told)
    if sha256_of(point.file) != sha256:
        text = f"{point.file} is not the same file on the worker: the folder has to be shared"
        return Result(point.model, error=text, kind="files").to_wire()
    future = asyncio.run_coroutine_threadsafe(_bench(python).measure(point), _loop())
    return future.result().to_wire()


_LOCK = threading.Lock()
_RUNNING: dict[str, Any] = {}


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of this worker's benches, in a thread of its own."""
    with _LOCK:
        if "loop" not in _RUNNING:
            loop = _RUNNING["loop"] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="mase-sweep", daemon=True).start()
        found: asyncio.AbstractEventLoop = _RUNNING["loop"]
        return found


def _bench(python: str | None) -> Bench:
    with _LOCK:
        found: Bench = _RUNNING.setdefault(f"bench of {python}", Bench(python))
        return found


def _distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError as error:
        raise EngineError(f"{error}; to sweep on Dask: pip install 'mase-server[dask]'") from None
