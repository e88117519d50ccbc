"""The workspace's own passes: functions in its files with the signature of a pass, found without running them."""

from __future__ import annotations

from mase_server.passes.workspace.finding import workspace_passes

__all__ = ["workspace_passes"]
