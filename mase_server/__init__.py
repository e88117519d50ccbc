"""A live compiler explorer for PyTorch models.

The compiler half (`MaseGraph`, `passes`, tracing) needs torch; the daemon half (`daemon`, `lsp`, `cli`) never imports
it. Importing this package imports neither: the public names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mase_server import passes
    from mase_server.ir.allowed import CheckpointError
    from mase_server.ir.custom import CustomOps
    from mase_server.ir.feeding import Check
    from mase_server.ir.graph import MaseGraph
    from mase_server.ir.hf import (
        DmxHFTracer,
        HFQuantTracer,
        QuantTracer,
        disable_hooked_forward,
        hf_symbolic_trace,
        symbolic_trace,
    )
    from mase_server.ir.metadata import MaseMetadata
    from mase_server.ir.recording import trace_torch_module
    from mase_server.ir.tracer import MaseTracer
    from mase_server.ops.table import Cost
    from mase_server.tools import get_logger
    from mase_server.tracing.guards import GuardError
    from mase_server.tracing.recording.calls import Scope, ScopeContextManager

__version__ = "0.1.0"
#: Where this project is kept; a release names the real place.
PROJECT_URL = "https://example.org/mase-server"
__all__ = [
    "Check",
    "CheckpointError",
    "Cost",
    "CustomOps",
    "DmxHFTracer",
    "GuardError",
    "HFQuantTracer",
    "MaseGraph",
    "MaseMetadata",
    "MaseTracer",
    "QuantTracer",
    "Scope",
    "ScopeContextManager",
    "__version__",
    "disable_hooked_forward",
    "get_logger",
    "hf_symbolic_trace",
    "passes",
    "symbolic_trace",
    "trace_torch_module",
]

#: The module of each public name, inside this package.
_HOME = {
    "Check": "ir.feeding",
    "CheckpointError": "ir.allowed",
    "Cost": "ops.table",
    "CustomOps": "ir.custom",
    "DmxHFTracer": "ir.hf",
    "GuardError": "tracing.guards",
    "HFQuantTracer": "ir.hf",
    "MaseGraph": "ir.graph",
    "MaseMetadata": "ir.metadata",
    "MaseTracer": "ir.tracer",
    "QuantTracer": "ir.hf",
    "Scope": "tracing.recording.calls",
    "ScopeContextManager": "tracing.recording.calls",
    "disable_hooked_forward": "ir.hf",
    "get_logger": "tools",
    "hf_symbolic_trace": "ir.hf",
    "symbolic_trace": "ir.hf",
    "trace_torch_module": "ir.recording",
}


def __getattr__(name: str) -> Any:
    if name == "passes":
        return import_module("mase_server.passes")
    if name not in _HOME:
        raise AttributeError(f"module 'mase_server' has no attribute {name!r}")
    return getattr(import_module(f"mase_server.{_HOME[name]}"), name)
