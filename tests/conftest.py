"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long an example takes is measured in benchmarks/: a busy machine is no counterexample.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
