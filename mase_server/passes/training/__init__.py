"""Graphs that train: roundings in both directions, and what a model does in training only."""

from __future__ import annotations

from mase_server.passes.training.base import training_base_pass

__all__ = ["training_base_pass"]
