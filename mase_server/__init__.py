"""A live compiler explorer for PyTorch models.

The compiler half (`MaseGraph`, `passes`, tracing) needs torch; the daemon half (`daemon`, `lsp`, `cli`) never imports
it. Importing this package imports neither: the public names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mase_server import passes
    from mase_server.ir.graph import MaseGraph
    from mase_server.ir.metadata import MaseMetadata
    from mase_server.ir.recording import trace_torch_module
    from mase_server.tracing.tracer import MaseTracer

__version__ = "0.1.0"
__all__ = ["MaseGraph", "MaseMetadata", "MaseTracer", "__version__", "passes", "trace_torch_module"]

_HOME = {
    "MaseGraph": "mase_server.ir.graph",
    "MaseMetadata": "mase_server.ir.metadata",
    "MaseTracer": "mase_server.tracing.tracer",
    "trace_torch_module": "mase_server.ir.recording",
}


def __getattr__(name: str) -> Any:
    if name == "passes":
        return import_module("mase_server.passes")
    if name not in _HOME:
        raise AttributeError(f"module 'mase_server' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
