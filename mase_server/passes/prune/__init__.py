"""Pruning as a rewrite of the graph: masks on weights, and activations that are made sparse at each run."""

from __future__ import annotations

from mase_server.passes.prune.transform import prune_detach_hook_transform_pass, prune_transform_pass

__all__ = ["prune_detach_hook_transform_pass", "prune_transform_pass"]
