"""Passes that add metadata to every node: init, common, software, hardware."""

from __future__ import annotations

from mase_server.passes.metadata.add_common_metadata import add_common_metadata_analysis_pass
from mase_server.passes.metadata.add_hardware_metadata import add_hardware_metadata_analysis_pass
from mase_server.passes.metadata.add_software_metadata import add_software_metadata_analysis_pass
from mase_server.passes.metadata.init_metadata import init_metadata_analysis_pass

__all__ = [
    "add_common_metadata_analysis_pass",
    "add_hardware_metadata_analysis_pass",
    "add_software_metadata_analysis_pass",
    "init_metadata_analysis_pass",
]
