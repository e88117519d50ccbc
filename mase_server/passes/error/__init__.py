"""The error of a transformed graph against its original."""

from __future__ import annotations

from mase_server.passes.error.measuring import Errors, measure
from mase_server.passes.error.original import original_of
from mase_server.passes.error.sums import Error

__all__ = ["Error", "Errors", "measure", "original_of"]
