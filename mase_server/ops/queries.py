"""Questions about a tensor, and Python's own builtins: they make no tensor, cost nothing and need no hardware.

Control flow operators cost what their branches cost, which their own nodes say."""

from __future__ import annotations

from mase_server.ops.costs import free
from mase_server.ops.rows import rows

QUERIES = rows(
    "other",
    free,
    """size=Tensor.size dim=Tensor.dim ndimension=Tensor.ndimension numel nelement=Tensor.nelement
    stride=Tensor.stride storage_offset=Tensor.storage_offset element_size=Tensor.element_size item=Tensor.item
    tolist=Tensor.tolist numpy=Tensor.numpy is_contiguous=Tensor.is_contiguous is_floating_point is_complex is_tensor
    is_nonzero is_same_size is_signed is_conj is_neg is_inference result_type can_cast promote_types get_device
    getattr=builtins.getattr setattr=builtins.setattr len=builtins.len isinstance=builtins.isinstance
    int=builtins.int float=builtins.float bool=builtins.bool tuple=builtins.tuple list=builtins.list
    contains=operator.contains,Tensor.__contains__ truth=operator.truth _assert=torch._assert finfo=torch.finfo
    iinfo=torch.iinfo broadcast_shapes
    _set_grad_enabled=torch._C._set_grad_enabled len=Tensor.__len__ bool=Tensor.__bool__ int=Tensor.__int__
    float=Tensor.__float__ index=Tensor.__index__,operator.index""",
    free,
)

ROWS = (*QUERIES, *rows("other", free, "cond while_loop"))
