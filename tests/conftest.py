"""What holds for every test."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.fixture(scope="module", autouse=True)
def forgotten_afterwards() -> Iterator[None]:
    """What a file of tests left in cycles is freed at its end: whole runs grew to eight gigabytes a process.

    A server that runs inside of this process sets objects aside (`gc.freeze`) and looks at old ones only when it is
    quiet; here the next file begins with the collector as it was. Only Linux gives free memory back when it is told to.
    """
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    assert gc.isenabled(), "a test of this file switched the garbage collector off for all that follow"
