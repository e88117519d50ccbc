"""Passes: functions `(graph, pass_args) -> (graph, dict)` over a MaseGraph."""

from __future__ import annotations

from mase_server.passes.metadata import (
    add_common_metadata_analysis_pass,
    add_hardware_metadata_analysis_pass,
    add_software_metadata_analysis_pass,
    init_metadata_analysis_pass,
)

__all__ = [
    "add_common_metadata_analysis_pass",
    "add_hardware_metadata_analysis_pass",
    "add_software_metadata_analysis_pass",
    "init_metadata_analysis_pass",
]
