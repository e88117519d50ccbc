"""The diagnostics among the results of a search for models."""

from mase_server.protocol.snapshot import Problem
from mase_server.tracing.models.found import Unshown


def problems_in(items):
    """The problems a person is told, and the models that are not shown unless another diagnostic says why."""
    for item in items:
        if isinstance(item, Problem):
            yield item
        elif isinstance(item, Unshown) and not item.elsewhere:
            yield item.problem
