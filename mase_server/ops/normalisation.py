"""Normalisations. For each element of the result:

- batch_norm 4: subtract the mean, multiply by the reciprocal deviation, scale, shift (statistics given);
- layer, group and instance norm 8: mean 1, variance 3 (subtract, square, add), then the same 4;
- rms_norm 4: square, add, multiply by the reciprocal root, scale;
- normalize and the like 3: power, add, divide; local_response_norm 6 and a sum over its window.
"""

from __future__ import annotations

from mase_server.ops.costs import argument, each_output, output_elements, setting
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall


def local_response(call: OpCall) -> int:
    """A sum of `size` squares, then scale, add, power, divide and the square: size + 5 for each element."""
    return output_elements(call) * (int(setting(call, "size", argument(call, 1, "size", 5))) + 5)


ROWS = (
    *rows(
        "norm",
        each_output(4),
        "batch_norm batch_norm1d=nn.BatchNorm1d:LazyBatchNorm1d batch_norm2d=nn.BatchNorm2d:LazyBatchNorm2d "
        "batch_norm3d=nn.BatchNorm3d:LazyBatchNorm3d sync_batch_norm=nn.SyncBatchNorm native_batch_norm "
        "cudnn_batch_norm miopen_batch_norm quantized_batch_norm batch_norm_elemt "
        "rms_norm:RMSNorm",
    ),
    *rows(
        "norm",
        each_output(8),
        "layer_norm:LayerNorm group_norm:GroupNorm instance_norm native_layer_norm native_group_norm "
        "instance_norm1d=nn.InstanceNorm1d:LazyInstanceNorm1d instance_norm2d=nn.InstanceNorm2d:LazyInstanceNorm2d "
        "instance_norm3d=nn.InstanceNorm3d:LazyInstanceNorm3d",
    ),
    *rows("norm", each_output(3), "normalize renorm"),
    *rows("norm", local_response, "local_response_norm:LocalResponseNorm cross_map_lrn2d=nn.CrossMapLRN2d"),
    *rows(
        "norm",
        each_output(4),
        "batch_norm_stats batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_update_stats "
        "batch_norm_backward_reduce batch_norm_backward_elemt",
    ),
)
