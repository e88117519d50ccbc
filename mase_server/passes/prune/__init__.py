"""Pruning as a rewrite of the graph: masks on weights, and activations made sparse as they come."""

from __future__ import annotations

from mase_server.passes.prune.detach import prune_detach_hook_transform_pass
from mase_server.passes.prune.transform import prune_transform_pass

__all__ = ["prune_detach_hook_transform_pass", "prune_transform_pass"]
