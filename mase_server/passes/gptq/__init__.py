"""GPTQ: weights rounded one column after another, each making up for what the ones before it lost."""

from __future__ import annotations

from mase_server.passes.gptq.transform import gptq_transform_pass

__all__ = ["gptq_transform_pass"]
