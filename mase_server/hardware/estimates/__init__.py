"""Estimates of a design's size and speed, before it is synthesised or simulated."""

from __future__ import annotations

from mase_server.hardware.estimates.estimating import Estimates, Ram, added, estimate, list_rams, resources

__all__ = ["Estimates", "Ram", "added", "estimate", "list_rams", "resources"]
