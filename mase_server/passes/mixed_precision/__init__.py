"""Mixed precision: a format for each layer, within a budget of bits or of error."""

from __future__ import annotations

from mase_server.passes.mixed_precision.mixed_precision import mixed_precision_transform_pass

__all__ = ["mixed_precision_transform_pass"]
