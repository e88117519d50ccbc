"""Run a sweep: take known results from the results file, measure the other points, and store their results."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

from mase_server.daemon.slots import end_tasks
from mase_server.programs import isolate_libraries
from mase_server.protocol.answers import Pass
from mase_server.sweep.bench import Bench, environment_of
from mase_server.sweep.points import (
    FIGURES,
    Figure,
    Hashes,
    Point,
    PointRecord,
    Result,
    ResultRecord,
    Surroundings,
    mark_front,
    sha256_of,
)

# Measure points on a Dask cluster: each worker keeps its own bench. Needs the extra `dask`.


class EngineError(Exception):
    """The cluster is not available; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Dask:
    """A cluster. address: of its scheduler, e.g. "tcp://10.0.0.1:8786"; "" for a new one with `jobs` processes.

    The workers read the model files, under the same paths as here.
    """

    address: str = ""
    jobs: int = 1
    python: str | None = None

    async def run(self, points: Sequence[Point]) -> AsyncGenerator[Measured, None]:
        """Measure the points; yields each with its result. EngineError if the cluster is unreachable."""
        distributed = _import_distributed()
        async with self._client(distributed) as client:
            given = [(point.to_wire(), sha256_of(point.file), self.python) for point in points]
            futures = client.map(measure, given, pure=False, retries=0)
            asked = {future.key: point for future, point in zip(futures, points, strict=True)}
            async for future in distributed.as_completed(futures):
                yield asked[future.key], await _await_result(future)

    @asynccontextmanager
    async def _client(self, distributed: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            try:
                where: Any = self.address or await stack.enter_async_context(
                    _start_local_cluster(distributed, self.jobs)
                )
                client = await stack.enter_async_context(distributed.Client(where, asynchronous=True))
            except (OSError, ValueError) as error:
                raise EngineError(f"no cluster of Dask answers at {self.address or 'this machine'}: {error}") from None
            yield client


def _start_local_cluster(distributed: Any, jobs: int) -> Any:
    isolate_libraries()
    return distributed.LocalCluster(
        n_workers=jobs, threads_per_worker=1, dashboard_address=None, asynchronous=True, silence_logs="CRITICAL",
        # Without a dashboard, Dask still serves on port 8787 of every interface, and warns where it is taken.
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    )  # fmt: skip


async def _await_result(future: Any) -> Result:
    """The worker's result; a failed result if the point ended several workers."""
    try:
        return Result(**await future)
    except Exception as error:  # noqa: BLE001  (a process's border: whatever a worker raised is the point's error)
        return Result(error=f"{type(error).__name__}: {error}", kind="died")


def measure(given: tuple[PointRecord, str, str | None]) -> ResultRecord:
    """Measure a point on a worker; `Result.to_wire`. given: the point as a map, its file's sha256, the interpreter."""
    told, sha256, python = given
    point = Point.from_wire(told)
    if sha256_of(point.file) != sha256:
        text = f"{point.file} is not the same file on the worker: the folder has to be shared"
        return Result(point.model, error=text, kind="files").to_wire()
    future = asyncio.run_coroutine_threadsafe(_worker_bench(python).measure(point), _worker_loop())
    return future.result().to_wire()


_LOCK = threading.Lock()
_RUNNING: dict[str, Any] = {}


def _worker_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this worker's benches, in a separate thread."""
    with _LOCK:
        if "loop" not in _RUNNING:
            loop = _RUNNING["loop"] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="mase-sweep", daemon=True).start()
        found: asyncio.AbstractEventLoop = _RUNNING["loop"]
        return found


def _worker_bench(python: str | None) -> Bench:
    with _LOCK:
        found: Bench = _RUNNING.setdefault(f"bench of {python}", Bench(python))
        return found


def _import_distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError as error:
        raise EngineError(f"{error}; to sweep on Dask: pip install 'mase-server[dask]'") from None


# Results in an SQLite file: each is stored as soon as it is known, so that killing a process loses none.
#
# Other tools read it: every figure is a column of the table `results`.

#: The version of the layout below; a file with another version is refused.
SCHEMA = 1
#: Seconds to wait while another sweep holds the file.
_BUSY = 60.0
_TEXTS = ("key", "file", "model", "pipeline", "budget", "error", "kind", "facts", "sources", "finished")
_COLUMNS = (*_TEXTS, "seconds", *FIGURES)
_TYPES = dict.fromkeys(_TEXTS, "TEXT NOT NULL") | {"key": "TEXT PRIMARY KEY"}


class StoreError(Exception):
    """The results file is not usable; the text says why, and what to do."""


class Store:
    """The results of sweeps. Several processes may use one file at once.

    surroundings: determines keys and relative paths.  StoreError for a file with other contents.
    """

    def __init__(self, path: Path, surroundings: Surroundings) -> None:
        self.path = path
        self._around = surroundings
        try:
            self._connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
            with self._told():
                self._prepare()
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def _prepare(self) -> None:
        types = ", ".join(f"{name} {_TYPES.get(name, 'NUMERIC')}" for name in _COLUMNS)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if found not in (0, SCHEMA) or (tables and not found):
                raise StoreError(f"{self.path} does not hold results of sweeps: name another file")
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS results ({types})")
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
        finally:
            self._connection.execute("COMMIT")

    def put(self, point: Point, key: str, result: Result) -> None:
        """Store a result, replacing an older one with the same key. It is on disk when this returns."""
        row = {
            "key": key,
            "file": self._around.relative(point.file),
            "model": result.model,
            "pipeline": json.dumps(point.pipeline),
            "budget": "" if point.build is None else json.dumps(point.build, sort_keys=True),
            "error": result.error,
            "kind": result.kind,
            "facts": json.dumps(result.facts),
            "sources": json.dumps({self._around.relative(path): text for path, text in result.sources.items()}),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": result.seconds,
            **{name: result.figures.get(name) for name in FIGURES},
        }
        holes = ", ".join("?" * len(_COLUMNS))
        with self._told():
            self._connection.execute(
                f"INSERT OR REPLACE INTO results VALUES ({holes})", [row[name] for name in _COLUMNS]
            )

    def find(self, key: str, hashes: Hashes) -> Result | None:
        """The result for a key, if no file that it depends on has changed."""
        with self._told():
            row = self._connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM results WHERE key = ?", [key]).fetchone()
        if row is None:
            return None
        told = dict(zip(_COLUMNS, row, strict=True))
        sources = {self._around.absolute(path): text for path, text in json.loads(told["sources"]).items()}
        if any(hashes.of(path) != text for path, text in sources.items()):
            return None
        return _result_from_row(told, sources)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None


def _result_from_row(told: dict[str, Any], sources: dict[str, str]) -> Result:
    figures = {name: told[name] for name in FIGURES if told[name] is not None}
    return Result(
        told["model"], figures, told["error"], told["kind"], json.loads(told["facts"]), sources, told["seconds"]
    )


def keys_of(points: Sequence[Point], surroundings: Surroundings, hashes: Hashes) -> dict[str, Point]:
    """Points by their keys, in order, without duplicates."""
    return {surroundings.key(point, hashes): point for point in points}


# Engines that measure many points: this machine's workers, or a cluster.

Measured = tuple[Point, Result]
#: Checks a point against the passes available for its file before it is measured; raises an exception for a mistake.
Check = Callable[[Point, list[Pass]], Point]


class Engine(Protocol):
    """Measures points, in any order."""

    def run(self, points: Sequence[Point]) -> AsyncGenerator[Measured, None]:
        """Measure the points; yields each with its result."""


def usual_jobs() -> int:
    """One point per processor available to this process."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Local:
    """This machine. jobs: points at once.  wanted: called just before a point is started.  check: see `Check`."""

    jobs: int
    python: str | None = None
    wanted: Callable[[Point], bool] = lambda point: True
    check: Check = lambda point, passes: point

    async def run(self, points: Sequence[Point]) -> AsyncGenerator[Measured, None]:
        """Measure the points; yields each with its result. An exception from `check` ends the run."""
        bench = Bench(self.python)
        queue = list(reversed(points))
        news = asyncio.Queue[Measured | asyncio.Task[None]]()

        async def work() -> None:
            while queue:
                point = queue.pop()
                checked = self.check(point, await bench.passes(point))
                if self.wanted(point):
                    news.put_nowait((point, await bench.measure(checked)))

        workers = [asyncio.create_task(work()) for _ in range(min(self.jobs, len(points)))]
        for worker in workers:
            worker.add_done_callback(news.put_nowait)
        try:
            running = len(workers)
            while running:
                if isinstance(found := await news.get(), asyncio.Task):
                    running -= 1
                    found.result()
                else:
                    yield found
        finally:
            await end_tasks(workers)
            await bench.close()


@dataclass(slots=True)
class Sweep:
    """The points of a grid with their results so far, None if missing.

    retry: measure failed points again?  again: measure all points again?
    """

    store: Store
    keys: dict[str, Point]
    retry: bool = False
    again: bool = False
    results: dict[str, Result] = field(default_factory=dict)
    #: Keys by the identity of a point, because a point holds a map and is not hashable.
    _key_of: dict[int, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._key_of = {id(point): key for key, point in self.keys.items()}
        hashes = Hashes()
        for key in () if self.again else self.keys:
            if (known := self._known(key, hashes)) is not None:
                self.results[key] = known

    def _known(self, key: str, hashes: Hashes) -> Result | None:
        known = self.store.find(key, hashes)
        return None if known is None or (known.error and self.retry) else known

    @property
    def pending(self) -> list[Point]:
        """The points that are still to be measured."""
        return [point for key, point in self.keys.items() if key not in self.results]

    def wants(self, point: Point) -> bool:
        """Is a point still to be measured, i.e. has no other sweep on the same file measured it meanwhile?"""
        if self.again:
            return True
        known = self._known(key := self._key_of[id(point)], Hashes())
        if known is not None:
            self.results[key] = known
        return known is None

    async def run(self, engine: Engine, tell: Callable[[Point, Result], None]) -> None:
        """Measure the pending points; each result is stored before it is reported."""
        async with aclosing(engine.run(self.pending)) as found:
            async for point, result in found:
                key = self._key_of[id(point)]
                self.store.put(point, key, result)
                self.results[key] = result
                tell(point, result)

    def rows(self, objectives: Sequence[Figure]) -> list[Row]:
        """Every point with a result; each model has its own front."""
        known = [(point, self.results[key]) for key, point in self.keys.items() if key in self.results]
        best: dict[int, bool] = {}
        for model in dict.fromkeys((point.file, result.model) for point, result in known):
            places = [index for index, (point, result) in enumerate(known) if (point.file, result.model) == model]
            best |= zip(places, mark_front([known[place][1].figures for place in places], objectives), strict=True)
        return [Row(point, result, best[index]) for index, (point, result) in enumerate(known)]


@dataclass(frozen=True, slots=True)
class Row:
    """A point with its result. best: is it beaten by no other point of the same model?"""

    point: Point
    result: Result
    best: bool


def plan_sweep(
    points: Sequence[Point], results: Path, python: str | None, depends: Sequence[str]
) -> tuple[Surroundings, dict[str, Point]]:
    """The surroundings of the points, and the points by their keys."""
    environments = sorted({environment_of(point.file, python) for point in points})
    around = Surroundings(str(results.parent.absolute()), ", ".join(environments), tuple(depends))
    return around, keys_of(points, around, Hashes())
