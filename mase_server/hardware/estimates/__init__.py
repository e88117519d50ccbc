"""What hardware takes and how fast it is, before anybody synthesises or simulates it."""

from __future__ import annotations

from mase_server.hardware.estimates.estimating import Estimates, added, estimate, resources

__all__ = ["Estimates", "added", "estimate", "resources"]
