"""How sparse weights and activations are, and which weights move in training."""

from __future__ import annotations

from mase_server.passes.sparsity.movement import add_movement_metadata_analysis_pass
from mase_server.passes.sparsity.natural import add_natural_sparsity_metadata_analysis_pass
from mase_server.passes.sparsity.pruned import add_pruning_metadata_analysis_pass

__all__ = [
    "add_movement_metadata_analysis_pass",
    "add_natural_sparsity_metadata_analysis_pass",
    "add_pruning_metadata_analysis_pass",
]
