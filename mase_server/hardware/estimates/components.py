"""What each component of `rtl/` that a netlist may have takes: one row a component."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mase_server.hardware.estimates import arithmetic, images, rows, storage, streams
from mase_server.hardware.estimates.cost import Cost
from mase_server.hardware.timing.parameters import Given

#: By the name of the module.
COSTS: Mapping[str, Callable[[Given], Cost]] = {
    "constant_stream": storage.of_constant_stream,
    "embedding": storage.of_embedding,
    "fifo": storage.of_fifo,
    "fixed_add": arithmetic.of_add,
    "fixed_average_pool2d": images.of_average_pool2d,
    "fixed_cast": arithmetic.of_cast,
    "fixed_conv2d": images.of_conv2d,
    "fixed_linear": arithmetic.of_linear,
    "fixed_matmul": arithmetic.of_matmul,
    "fixed_max_pool2d": images.of_max_pool2d,
    "fixed_multiply": arithmetic.of_multiply,
    "fixed_norm": rows.of_norm,
    "fixed_mean": images.of_mean,
    "fixed_reduce": images.of_reduce,
    "fixed_softmax": rows.of_softmax,
    "fixed_table": storage.of_fixed_table,
    "image_padding": images.of_padding,
    "repeat_buffer": storage.of_repeat_buffer,
    "skid_buffer": storage.of_skid_buffer,
    "stream_concat": streams.of_concat,
    "stream_fork": streams.of_fork,
    "stream_gather": storage.of_stream_gather,
    "stream_split": streams.of_split,
    "swap_buffer": storage.of_swap_buffer,
    "width_converter": streams.of_width_converter,
}
