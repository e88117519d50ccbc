"""Attention: the two products of scores and values, and the projections where the operator has them.

Scores: 2 * batch * heads * queries * keys * head size; values the same with the values' size. A causal mask saves
nothing (as torch.utils.flop_counter has it); softmax, scaling and masks inside do not count, nor do biases.
Transformer layers add their two linear layers; norms, activations and residuals inside them do not count.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch import nn

from mase_server.ops.costs import argument
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall, TensorType


def scaled_dot_product(call: OpCall) -> int:
    """2 * batch * query heads * queries * keys * (query size + value size)."""
    query, key, value = _operands(call)
    return 2 * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _operands(call: OpCall) -> list[TensorType]:
    return [argument(call, i, name) for i, name in enumerate(("query", "key", "value"))]


def multihead_module(call: OpCall) -> int:
    """nn.MultiheadAttention on (query, key, value), in its own order of dimensions."""
    query, key, value = _operands(call)
    return multihead(call.module, query, key, value)


def multihead(module: Any, query: TensorType, key: TensorType, value: TensorType) -> int:
    """Projections of queries, keys, values and outputs, and the attention between them."""
    embed: int = module.embed_dim
    sequence = 1 if module.batch_first and len(query.shape) == 3 else 0
    keys: int = key.shape[sequence] + (module.bias_k is not None) + bool(module.add_zero_attn)
    projections = 2 * query.numel * embed + key.numel * embed + value.numel * embed
    return 2 * projections + 4 * query.numel // query.shape[-1] * keys * embed


def multihead_function(call: OpCall) -> int:
    """F.multi_head_attention_forward: sequence first, batch second."""
    query, key, value = _operands(call)
    embed = query.shape[-1]
    extra = (argument(call, 7, "bias_k") is not None) + bool(argument(call, 9, "add_zero_attn", False))
    projections = (2 * query.numel + key.numel + value.numel) * embed
    return int(2 * projections + 4 * query.numel * (key.shape[0] + extra))


def encoder_layer(call: OpCall) -> int:
    """nn.TransformerEncoderLayer on its source."""
    return _layer(call.module, argument(call, 0, "src"), None)


def decoder_layer(call: OpCall) -> int:
    """nn.TransformerDecoderLayer on target and memory."""
    return _layer(call.module, argument(call, 0, "tgt"), argument(call, 1, "memory"))


def encoder(call: OpCall) -> int:
    """nn.TransformerEncoder: the sum of its layers."""
    return _stack(call.module, argument(call, 0, "src"), None)


def decoder(call: OpCall) -> int:
    """nn.TransformerDecoder: the sum of its layers."""
    return _stack(call.module, argument(call, 0, "tgt"), argument(call, 1, "memory"))


def transformer(call: OpCall) -> int:
    """nn.Transformer: its encoder on the source, its decoder on the target with the source's shape as memory."""
    module: Any = call.module
    source, target = argument(call, 0, "src"), argument(call, 1, "tgt")
    return _stack(module.encoder, source, None) + _stack(module.decoder, target, source)


def _stack(module: Any, tokens: TensorType, memory: TensorType | None) -> int:
    return sum(_layer(layer, tokens, memory) for layer in module.layers)


def _layer(layer: Any, tokens: TensorType, memory: TensorType | None) -> int:
    """One layer; 0 for a layer that is not one of torch.nn's."""
    if not isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return 0
    total = multihead(layer.self_attn, tokens, tokens, tokens)
    if memory is not None:
        total += multihead(layer.multihead_attn, tokens, memory, memory)
    return total + 4 * tokens.numel * int(layer.linear1.out_features)


ROWS = (
    *rows("attention", scaled_dot_product, "scaled_dot_product_attention"),
    *rows("attention", multihead_module, "multihead_attention=nn.MultiheadAttention"),
    *rows("attention", multihead_function, "multi_head_attention_forward"),
    *rows("attention", encoder_layer, "transformer_encoder_layer=nn.TransformerEncoderLayer"),
    *rows("attention", decoder_layer, "transformer_decoder_layer=nn.TransformerDecoderLayer"),
    *rows("attention", encoder, "transformer_encoder=nn.TransformerEncoder"),
    *rows("attention", decoder, "transformer_decoder=nn.TransformerDecoder"),
    *rows("attention", transformer, "transformer=nn.Transformer"),
)
