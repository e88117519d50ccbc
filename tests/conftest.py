"""What holds for every test."""

import ctypes
import functools
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

# The benchmarks drive the server as tests do; last on the path, because one of them is named as a package is.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

# A shell starts `make test &` with interruptions ignored, and the programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before torch is imported: kernels of one thread round and hold alike everywhere, and processes share cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes is measured in benchmarks/: a busy machine is no counterexample. The same commit is given
# the same examples every time, so that a failure is about what was changed; MASE_SEARCH=1 looks for new ones
# and for many more, as the nightly targets do.
SEARCH = os.environ.get("MASE_SEARCH") == "1"
settings.register_profile(
    "shared machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not SEARCH,
    max_examples=500 if SEARCH else 30,
)
settings.load_profile("shared machine")

# MASE_LINES=93: the lines of the package that run are counted, and fewer than 93 % fail.
pytest_plugins = ["tests.line_coverage"] if "MASE_LINES" in os.environ else []

#: How many bytes a process may grow by before what its tests left in cycles is freed.
_GROWTH = 256 << 20
_process = psutil.Process()
_Cached = type(functools.cache(int))
_thresholds = gc.get_threshold()
_after_freeing = _process.memory_info().rss


def _free_garbage() -> None:
    """Free what tests left in cycles, and give the memory back, which Linux does only when it is told to.

    A server that runs inside of this process sets objects aside (`gc.freeze`) and looks at old ones only when it is
    quiet; the next test begins with the collector as it was.
    """
    global _after_freeing
    gc.set_threshold(*_thresholds)
    gc.unfreeze()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    _after_freeing = _process.memory_info().rss


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Free garbage when memory has grown. A graph is few objects and much memory: Python alone waits for too long."""
    yield
    if nextitem is not None and _process.memory_info().rss - _after_freeing > _GROWTH:
        _free_garbage()


@pytest.fixture(scope="module", autouse=True)
def forgotten_afterwards() -> Iterator[None]:
    """Free what each file of tests leaves.

    The tracer keeps its tables of files for as long as its process lives: in the product that is one trace.
    """
    yield
    if (constructions := sys.modules.get("mase_server.tracing.models.constructions")) is not None:
        constructions._marks.clear()
    for name in list(sys.modules):
        if name.startswith(("mase_server.tracing.", "mase_server.ops.")):
            for cached in vars(sys.modules[name]).values():
                if type(cached) is _Cached:
                    cached.cache_clear()
    _free_garbage()
    assert gc.isenabled(), "a test of this file switched the garbage collector off for all that follow"
