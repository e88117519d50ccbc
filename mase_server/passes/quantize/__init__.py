"""Quantisation as a rewrite of the graph."""

from __future__ import annotations

from mase_server.passes.quantize.transform import quantize_transform_pass

__all__ = ["quantize_transform_pass"]
