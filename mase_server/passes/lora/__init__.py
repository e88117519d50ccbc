"""Low-rank adapters beside linear layers (LoRA): inserted without changing the output, and fused into the weights."""

from __future__ import annotations

from mase_server.passes.lora.fuse_lora_weights import fuse_lora_weights_transform_pass
from mase_server.passes.lora.insert_lora_adapter import insert_lora_adapter_transform_pass

__all__ = [
    "fuse_lora_weights_transform_pass",
    "insert_lora_adapter_transform_pass",
]
