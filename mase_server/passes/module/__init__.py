"""Passes on modules themselves, where no graph is wanted."""

from __future__ import annotations

from mase_server.passes.module.quantize_module import quantize_module_transform_pass

__all__ = ["quantize_module_transform_pass"]
