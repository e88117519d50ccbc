"""What holds for every test."""

import os

from hypothesis import HealthCheck, settings

# How long an example takes is measured in benchmarks/: a busy machine is no counterexample. The same commit is given
# the same examples every time, so that a failure is about what was changed; MASE_SEARCH=1 looks for new ones, as the
# nightly targets do.
SEARCH = os.environ.get("MASE_SEARCH") == "1"
settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not SEARCH
)
settings.load_profile("shared machine")
