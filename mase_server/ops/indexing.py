"""Reading and writing chosen elements: no operation (accumulating forms 1 for each element added).

`getitem` without a tensor in its index is a view and moves nothing.
"""

from __future__ import annotations

from mase_server.ops.costs import argument, free, gathered, inputs, traffic
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall, tensors


def getitem_bytes(call: OpCall) -> int:
    """0 for a view or an item of a tuple; else what a gather moves."""
    index = argument(call, 1, "idx")
    return gathered(call) if next(tensors(index), None) is not None else 0


def setitem_bytes(call: OpCall) -> int:
    """The value and the index read, and the value's elements written."""
    value = call.args[2] if len(call.args) > 2 else None
    return sum(t.nbytes for t in tensors(call.args[1:])) + sum(t.nbytes for t in tensors(value))


def accumulated(call: OpCall) -> int:
    """One addition for each element of the source, which is the largest tensor after the first."""
    return max((t.numel for t in inputs(call)[1:]), default=0)


ROWS = (
    *rows("index", free, "getitem=operator.getitem,Tensor.__getitem__", getitem_bytes),
    *rows("index", free, "setitem=operator.setitem,Tensor.__setitem__", setitem_bytes),
    *rows("index", free, "index=Tensor.index gather take take_along_dim index_select masked_select", gathered),
    *rows(
        "index",
        free,
        """where masked_fill=torch.masked_fill,Tensor.masked_fill masked_fill_=Tensor.masked_fill_
        masked_scatter scatter index_fill index_copy index_put put
        slice_scatter select_scatter nonzero nonzero_static argwhere unravel_index
        slice=builtins.slice,aten.slice""",
        traffic,
    ),
    *rows("index", accumulated, "scatter_add scatter_reduce index_add index_reduce", traffic),
)
