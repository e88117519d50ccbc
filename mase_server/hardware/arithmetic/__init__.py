"""The only definition of the arithmetic of the hardware's components, at tensor speed: one function for each.

All functions take and return int64 tensors: the integers of fixed-point values, value = integer / 2**fraction_width.
The pass that simulates hardware, the tables in memory files and the tests of `rtl/` all call these functions.
"""

from mase_server.hardware.arithmetic.elements import add, divide, look_up, multiply, requantise, round_blocks, table
from mase_server.hardware.arithmetic.floats import Floats, round_floats
from mase_server.hardware.arithmetic.images import Windows, average_pool2d, conv2d, max_pool2d, mean, reduced, top_k
from mase_server.hardware.arithmetic.linear import Affine, Recurrent, linear, matmul, recurrent
from mase_server.hardware.arithmetic.norms import Norm, norm
from mase_server.hardware.arithmetic.softmax import exp_table, softmax

__all__ = [
    "Affine",
    "Floats",
    "Norm",
    "Recurrent",
    "Windows",
    "add",
    "average_pool2d",
    "conv2d",
    "divide",
    "exp_table",
    "linear",
    "look_up",
    "matmul",
    "max_pool2d",
    "mean",
    "multiply",
    "norm",
    "recurrent",
    "reduced",
    "requantise",
    "round_blocks",
    "round_floats",
    "softmax",
    "table",
    "top_k",
]
