"""How the parameters of adapters are called: after the node of their layer, with one of these endings."""

from __future__ import annotations

A, B = "_lora_a", "_lora_b"
