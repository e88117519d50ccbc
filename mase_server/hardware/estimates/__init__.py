"""Estimates of a design's size and speed, before it is synthesised or simulated."""

from __future__ import annotations

from mase_server.hardware.estimates.estimating import Estimates, added, estimate, resources

__all__ = ["Estimates", "added", "estimate", "resources"]
