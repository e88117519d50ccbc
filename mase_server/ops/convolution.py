"""Convolutions, pooling, normalisations, embeddings, recurrent networks and attention: their rows and cost formulas.

Convolutions count 2 operations per multiply-accumulate, padding included, biases not, as torch.utils.flop_counter
does. Each output element costs in_channels / groups * kernel; of a transposed convolution each *input* element costs
out_channels / groups * kernel.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch import nn

from mase_server.ops.rows import (
    cost_nothing,
    each_input,
    each_output,
    gathered_bytes,
    get_argument,
    input_elements,
    input_tensors,
    module_setting,
    output_elements,
    parse_rows,
)
from mase_server.ops.types import Formula, OpCall, TensorType, iterate_tensors


def convolution_flops(call: OpCall) -> int:
    """2 * elements of the result * in_channels / groups * kernel."""
    return 2 * output_elements(call) * _filter_size(call)


def transposed_convolution_flops(call: OpCall) -> int:
    """2 * elements of the input * out_channels / groups * kernel."""
    return 2 * input_elements(call) * _filter_size(call)


def _filter_size(call: OpCall) -> int:
    """Size of one filter: all of the weight's dimensions but the first."""
    if call.module is not None:
        module: Any = call.module
        channels: int = module.out_channels if module.transposed else module.in_channels
        kernel: tuple[int, ...] = module.kernel_size
        return channels // int(module.groups) * prod(kernel)
    weight: TensorType = get_argument(call, 1, "weight")
    return prod(weight.shape[1:])


def time_batch(call: OpCall) -> int:
    """conv_tbc, whose weight is (kernel, in_channels, out_channels)."""
    weight: TensorType = get_argument(call, 1, "weight")
    return 2 * output_elements(call) * prod(weight.shape[:2])


def any_convolution(call: OpCall) -> int:
    """torch.convolution, whose seventh argument says whether it is transposed."""
    return transposed_convolution_flops(call) if get_argument(call, 6, "transposed", False) else convolution_flops(call)


ROWS = (
    *parse_rows(
        "conv", convolution_flops, "conv1d:Conv1d,LazyConv1d conv2d:Conv2d,LazyConv2d conv3d:Conv3d,LazyConv3d"
    ),
    *parse_rows(
        "conv",
        transposed_convolution_flops,
        "conv_transpose1d:ConvTranspose1d,LazyConvTranspose1d conv_transpose2d:ConvTranspose2d,LazyConvTranspose2d "
        "conv_transpose3d:ConvTranspose3d,LazyConvTranspose3d",
    ),
    *parse_rows("conv", time_batch, "conv_tbc"),
    *parse_rows("conv", any_convolution, "convolution _convolution"),
    *parse_rows(
        "conv",
        convolution_flops,
        "cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution "
        "miopen_depthwise_convolution miopen_convolution_relu miopen_convolution_add_relu mkldnn_convolution",
    ),
    *parse_rows("conv", transposed_convolution_flops, "cudnn_convolution_transpose miopen_convolution_transpose"),
)


# Pooling and resampling. A fixed window costs its volume for each element of the result; an adaptive one costs 1 for
# each element of the input (the windows tile it, where the sizes divide); lp pooling 2 * volume + 1; unpooling nothing.
#
# Resampling costs the taps of its filter for each element of the result, 2 operations a tap: nearest 0, linear 2 taps a
# dimension, cubic 4.


def window_formula(dimensions: int) -> Formula:
    """The volume of the window for each element of the result."""
    return lambda call: output_elements(call) * window_volume(_kernel_size(call, 1), dimensions)


def power_window(dimensions: int) -> Formula:
    """A power and an addition for each element of the window, then one root."""
    return lambda call: output_elements(call) * (2 * window_volume(_kernel_size(call, 2), dimensions) + 1)


def window_volume(size: Any, dimensions: int) -> int:
    """Elements of a window: an int counts for every dimension, as does a sequence of one."""
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return prod(sizes) if len(sizes) == dimensions else int(sizes[0]) ** dimensions


def _kernel_size(call: OpCall, position: int) -> Any:
    return module_setting(call, "kernel_size", get_argument(call, position, "kernel_size", 1))


TAPS = {"linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}


def resampling_formula(position: int) -> Formula:
    """2 * taps for each element of the result, by the mode given at `position`."""

    def flops(call: OpCall) -> int:
        mode = module_setting(call, "mode", get_argument(call, position, "mode", "nearest"))
        return 2 * TAPS.get(mode, 0) * output_elements(call)

    return flops


def grid_sampled(call: OpCall) -> int:
    """Linear taps in 2 or 3 dimensions (2 operations each), none for "nearest"."""
    mode = get_argument(call, 2, "mode", "bilinear")
    if mode in ("nearest", 1):
        return 0
    dimensions = len(next(iterate_tensors(call.result)).shape) - 2
    return 2 * (16 if mode in ("bicubic", 2) else 2**dimensions) * output_elements(call)


def _each_dimension() -> tuple[Any, ...]:
    made: list[Any] = []
    for d in (1, 2, 3):
        made += parse_rows(
            "pool",
            window_formula(d),
            f"avg_pool{d}d:AvgPool{d}d max_pool{d}d=max_pool{d}d,F._max_pool{d}d:MaxPool{d}d "
            f"max_pool{d}d_with_indices=max_pool{d}d_with_indices,F.max_pool{d}d_with_indices "
            f"quantized_max_pool{d}d mkldnn_max_pool{d}d "
            f"fractional_max_pool{d}d=fractional_max_pool{d}d,F._fractional_max_pool{d}d:FractionalMaxPool{d}d "
            f"fractional_max_pool{d}d_with_indices",
        )
        made += parse_rows("pool", power_window(d), f"lp_pool{d}d:LPPool{d}d")
        made += parse_rows(
            "pool",
            each_input(1),
            f"adaptive_avg_pool{d}d:AdaptiveAvgPool{d}d mkldnn_adaptive_avg_pool{d}d "
            f"adaptive_max_pool{d}d=adaptive_max_pool{d}d,F._adaptive_max_pool{d}d:AdaptiveMaxPool{d}d "
            f"adaptive_max_pool{d}d_with_indices",
        )
        made += parse_rows("pool", cost_nothing, f"max_unpool{d}d:MaxUnpool{d}d")
    return tuple(made)


POOLING_ROWS = (
    *_each_dimension(),
    *parse_rows("pool", resampling_formula(3), "interpolate upsample:Upsample"),
    *parse_rows("pool", lambda call: 8 * output_elements(call), "upsample_bilinear:UpsamplingBilinear2d"),
    *parse_rows("pool", cost_nothing, "upsample_nearest:UpsamplingNearest2d"),
    *parse_rows("pool", grid_sampled, "grid_sample grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler"),
)


# Normalisations. For each element of the result:
#
# - batch_norm 4: subtract the mean, multiply by the reciprocal deviation, scale, shift (statistics given);
# - layer, group and instance norm 8: mean 1, variance 3 (subtract, square, add), then the same 4;
# - rms_norm 4: square, add, multiply by the reciprocal root, scale;
# - normalize and the like 3: power, add, divide; local_response_norm 6 and a sum over its window.


def local_response(call: OpCall) -> int:
    """A sum of `size` squares, then scale, add, power, divide and the square: size + 5 for each element."""
    return output_elements(call) * (int(module_setting(call, "size", get_argument(call, 1, "size", 5))) + 5)


NORMALISATION_ROWS = (
    *parse_rows(
        "norm",
        each_output(4),
        "batch_norm batch_norm1d=nn.BatchNorm1d:LazyBatchNorm1d batch_norm2d=nn.BatchNorm2d:LazyBatchNorm2d "
        "batch_norm3d=nn.BatchNorm3d:LazyBatchNorm3d sync_batch_norm=nn.SyncBatchNorm native_batch_norm "
        "cudnn_batch_norm miopen_batch_norm quantized_batch_norm batch_norm_elemt "
        "rms_norm:RMSNorm",
    ),
    *parse_rows(
        "norm",
        each_output(8),
        "layer_norm:LayerNorm group_norm:GroupNorm instance_norm native_layer_norm native_group_norm "
        "instance_norm1d=nn.InstanceNorm1d:LazyInstanceNorm1d instance_norm2d=nn.InstanceNorm2d:LazyInstanceNorm2d "
        "instance_norm3d=nn.InstanceNorm3d:LazyInstanceNorm3d",
    ),
    *parse_rows("norm", each_output(3), "normalize renorm"),
    *parse_rows("norm", local_response, "local_response_norm:LocalResponseNorm cross_map_lrn2d=nn.CrossMapLRN2d"),
    *parse_rows(
        "norm",
        each_output(4),
        "batch_norm_stats batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_update_stats "
        "batch_norm_backward_reduce batch_norm_backward_elemt",
    ),
)


# Embeddings: a lookup costs no operation; a bag adds its rows. Only the rows looked up are read.


def embedding_bag_flops(call: OpCall) -> int:
    """One addition for each looked-up element."""
    ids = sum(t.numel for t in iterate_tensors(call.args) if t.dtype in ("int64", "int32"))
    width = next(iterate_tensors(call.result)).shape[-1]
    return ids * width


EMBEDDING_ROWS = (
    *parse_rows("embedding", cost_nothing, "embedding:Embedding embedding_renorm_", gathered_bytes),
    *parse_rows("embedding", embedding_bag_flops, "embedding_bag:EmbeddingBag _embedding_bag", gathered_bytes),
    *parse_rows("embedding", cost_nothing, "one_hot"),
)


# Recurrent networks: every weight matrix (input, hidden, projection; each layer and direction) multiplies every token.
#
# That is 2 * tokens * elements of the matrices, gates included because the matrices stack them (4 for LSTM, 3 for GRU).
# Padding counts; a packed sequence counts its real tokens. Gates' element-wise work and biases do not count.


def recurrent_flops(call: OpCall) -> int:
    """A whole sequence: tokens are the input's elements over its last dimension."""
    first = input_tensors(call)[0]
    tokens = first.numel // first.shape[-1] if first.numel else 0
    return 2 * tokens * (_module_matrices(call) if call.module is not None else _listed_matrices(call))


def recurrent_cell_flops(call: OpCall) -> int:
    """One step: a batch of tokens."""
    first = input_tensors(call)[0]
    tokens = first.numel // first.shape[-1] if first.numel else 0
    given = sum(t.numel for t in iterate_tensors(call.args[2:]) if len(t.shape) == 2)
    return 2 * tokens * (_module_matrices(call) if call.module is not None else given)


def _module_matrices(call: OpCall) -> int:
    assert call.module is not None
    return sum(p.numel() for p in call.module.parameters() if p.dim() == 2)


def _listed_matrices(call: OpCall) -> int:
    """Elements of the weights, which torch.lstm and its like take in a list; states in lists have three dimensions."""
    lists = (item for item in call.args if isinstance(item, (list, tuple)))
    return sum(t.numel for item in lists for t in iterate_tensors(item) if len(t.shape) == 2)


RECURRENT_ROWS = (
    *parse_rows("recurrent", recurrent_flops, "lstm:LSTM gru:GRU rnn=nn.RNN rnn_tanh rnn_relu rnn_base=nn.RNNBase"),
    *parse_rows(
        "recurrent",
        recurrent_cell_flops,
        "lstm_cell:LSTMCell gru_cell:GRUCell rnn_cell=nn.RNNCell rnn_tanh_cell rnn_relu_cell",
    ),
    *parse_rows("recurrent", recurrent_flops, "quantized_lstm quantized_gru miopen_rnn _cudnn_rnn mkldnn_rnn_layer"),
    *parse_rows(
        "recurrent",
        recurrent_cell_flops,
        "quantized_lstm_cell quantized_gru_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell",
    ),
)


# Attention: the two products of scores and values, and the projections where the operator has them.
#
# Scores: 2 * batch * heads * queries * keys * head size; values the same with the values' size. A causal mask saves
# nothing (as torch.utils.flop_counter has it); softmax, scaling and masks inside do not count, nor do biases.
# Transformer layers add their two linear layers; norms, activations and residuals inside them do not count.


def scaled_dot_product(call: OpCall) -> int:
    """2 * batch * query heads * queries * keys * (query size + value size)."""
    query, key, value = _attention_operands(call)
    return 2 * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _attention_operands(call: OpCall) -> list[TensorType]:
    return [get_argument(call, i, name) for i, name in enumerate(("query", "key", "value"))]


def multihead_module(call: OpCall) -> int:
    """nn.MultiheadAttention on (query, key, value), in its own order of dimensions."""
    query, key, value = _attention_operands(call)
    return multihead_flops(call.module, query, key, value)


def multihead_flops(module: Any, query: TensorType, key: TensorType, value: TensorType) -> int:
    """Projections of queries, keys, values and outputs, and the attention between them."""
    embed: int = module.embed_dim
    sequence = 1 if module.batch_first and len(query.shape) == 3 else 0
    keys: int = key.shape[sequence] + (module.bias_k is not None) + bool(module.add_zero_attn)
    projections = 2 * query.numel * embed + key.numel * embed + value.numel * embed
    return 2 * projections + 4 * query.numel // query.shape[-1] * keys * embed


def multihead_function(call: OpCall) -> int:
    """F.multi_head_attention_forward: sequence first, batch second."""
    query, key, value = _attention_operands(call)
    embed = query.shape[-1]
    extra = (get_argument(call, 7, "bias_k") is not None) + bool(get_argument(call, 9, "add_zero_attn", False))
    projections = (2 * query.numel + key.numel + value.numel) * embed
    return int(2 * projections + 4 * query.numel * (key.shape[0] + extra))


def encoder_layer(call: OpCall) -> int:
    """nn.TransformerEncoderLayer on its source."""
    return _layer_flops(call.module, get_argument(call, 0, "src"), None)


def decoder_layer(call: OpCall) -> int:
    """nn.TransformerDecoderLayer on target and memory."""
    return _layer_flops(call.module, get_argument(call, 0, "tgt"), get_argument(call, 1, "memory"))


def encoder_flops(call: OpCall) -> int:
    """nn.TransformerEncoder: the sum of its layers."""
    return _stack_flops(call.module, get_argument(call, 0, "src"), None)


def decoder_flops(call: OpCall) -> int:
    """nn.TransformerDecoder: the sum of its layers."""
    return _stack_flops(call.module, get_argument(call, 0, "tgt"), get_argument(call, 1, "memory"))


def transformer_flops(call: OpCall) -> int:
    """nn.Transformer: its encoder on the source, its decoder on the target with the source's shape as memory."""
    module: Any = call.module
    source, target = get_argument(call, 0, "src"), get_argument(call, 1, "tgt")
    return _stack_flops(module.encoder, source, None) + _stack_flops(module.decoder, target, source)


def _stack_flops(module: Any, tokens: TensorType, memory: TensorType | None) -> int:
    return sum(_layer_flops(layer, tokens, memory) for layer in module.layers)


def _layer_flops(layer: Any, tokens: TensorType, memory: TensorType | None) -> int:
    """One layer; 0 for a layer that is not one of torch.nn's."""
    if not isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return 0
    total = multihead_flops(layer.self_attn, tokens, tokens, tokens)
    if memory is not None:
        total += multihead_flops(layer.multihead_attn, tokens, memory, memory)
    return total + 4 * tokens.numel * int(layer.linear1.out_features)


ATTENTION_ROWS = (
    *parse_rows("attention", scaled_dot_product, "scaled_dot_product_attention"),
    *parse_rows("attention", multihead_module, "multihead_attention=nn.MultiheadAttention"),
    *parse_rows("attention", multihead_function, "multi_head_attention_forward"),
    *parse_rows("attention", encoder_layer, "transformer_encoder_layer=nn.TransformerEncoderLayer"),
    *parse_rows("attention", decoder_layer, "transformer_decoder_layer=nn.TransformerDecoderLayer"),
    *parse_rows("attention", encoder_flops, "transformer_encoder=nn.TransformerEncoder"),
    *parse_rows("attention", decoder_flops, "transformer_decoder=nn.TransformerDecoder"),
    *parse_rows("attention", transformer_flops, "transformer=nn.Transformer"),
)
