"""Embeddings: looking up costs no operation; a bag adds its rows. Only the rows looked up are read."""

from __future__ import annotations

from mase_server.ops.costs import free, gathered
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall, tensors


def bag(call: OpCall) -> int:
    """One addition for each looked-up element."""
    ids = sum(t.numel for t in tensors(call.args) if t.dtype in ("int64", "int32"))
    width = next(tensors(call.result)).shape[-1]
    return ids * width


ROWS = (
    *rows("embedding", free, "embedding:Embedding embedding_renorm_", gathered),
    *rows("embedding", bag, "embedding_bag:EmbeddingBag _embedding_bag", gathered),
    *rows("embedding", free, "one_hot"),
)
