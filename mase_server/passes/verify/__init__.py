"""Passes that check metadata against its own rules and against the graph."""

from __future__ import annotations

from mase_server.passes.verify.errors import MetadataError
from mase_server.passes.verify.verify_common_metadata import verify_common_metadata_analysis_pass
from mase_server.passes.verify.verify_hardware_metadata import verify_hardware_metadata_analysis_pass
from mase_server.passes.verify.verify_software_metadata import verify_software_metadata_analysis_pass

__all__ = [
    "MetadataError",
    "verify_common_metadata_analysis_pass",
    "verify_hardware_metadata_analysis_pass",
    "verify_software_metadata_analysis_pass",
]
