"""Shape changes, copies, gathering and scattering, creation and queries: their rows and cost formulas.

Changing the shape, the order, the type or the device of data counts no operation. A view moves nothing, so its bytes
are 0; reshape and flatten count as views. Copies read and write each element.
"""

from __future__ import annotations

from mase_server.ops.rows import (
    cost_nothing,
    count_traffic,
    each_output,
    gathered_bytes,
    get_argument,
    input_tensors,
    parse_rows,
)
from mase_server.ops.types import OpCall, iterate_tensors

VIEWS = """
view view_as reshape reshape_as=Tensor.reshape_as flatten:Flatten unflatten:Unflatten squeeze unsqueeze
transpose=transpose,swapaxes,swapdims permute expand expand_as=Tensor.expand_as unbind chunk split split_with_sizes
tensor_split hsplit vsplit dsplit narrow select diagonal linalg.diagonal t adjoint movedim moveaxis detach alias
as_strided view_as_real view_as_complex real imag conj resolve_conj resolve_neg ravel atleast_1d atleast_2d atleast_3d
broadcast_to broadcast_tensors unfold=Tensor.unfold unsafe_chunk unsafe_split unsafe_split_with_sizes
meshgrid values=Tensor.values indices=Tensor.indices crow_indices=Tensor.crow_indices
col_indices=Tensor.col_indices ccol_indices=Tensor.ccol_indices row_indices=Tensor.row_indices
requires_grad_=Tensor.requires_grad_ as_subclass=Tensor.as_subclass data=Tensor.data set_=Tensor.set_
share_memory_=Tensor.share_memory_ rename=Tensor.rename,Tensor.rename_ refine_names=Tensor.refine_names
align_to=Tensor.align_to align_as=Tensor.align_as align_tensors=torch.align_tensors slice_inverse
"""

COPIES = """
contiguous=Tensor.contiguous clone cat=cat,concat,concatenate stack hstack vstack dstack column_stack row_stack
repeat=Tensor.repeat repeat_interleave tile flip fliplr flipud roll rot90 tril triu diag diagflat diag_embed
block_diag cartesian_prod combinations
constant_pad_nd pixel_shuffle:PixelShuffle pixel_unshuffle:PixelUnshuffle channel_shuffle:ChannelShuffle
native_channel_shuffle unfold=F.unfold:Unfold fold:Fold im2col col2im
to=Tensor.to type=Tensor.type type_as=Tensor.type_as bool=Tensor.bool byte=Tensor.byte char=Tensor.char
short=Tensor.short int=Tensor.int long=Tensor.long half=Tensor.half float=Tensor.float double=Tensor.double
bfloat16=Tensor.bfloat16 cfloat=Tensor.cfloat cdouble=Tensor.cdouble chalf=Tensor.chalf cpu=Tensor.cpu
cuda=Tensor.cuda xpu=Tensor.xpu mtia=Tensor.mtia ipu=Tensor.ipu copy_=Tensor.copy_ resize=Tensor.resize,Tensor.resize_
resize_as=Tensor.resize_as,Tensor.resize_as_,torch.resize_as_
resize_as_sparse=Tensor.resize_as_sparse_,torch.resize_as_sparse_
sparse_resize_=Tensor.sparse_resize_ sparse_resize_and_clear_=Tensor.sparse_resize_and_clear_
alias_copy as_strided_copy as_strided_scatter detach_copy diagonal_copy diagonal_scatter expand_copy narrow_copy
permute_copy select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy
unbind_copy unfold_copy unsqueeze_copy values_copy view_as_complex_copy view_as_real_copy view_copy indices_copy
ccol_indices_copy col_indices_copy crow_indices_copy row_indices_copy reshape_copy
to_dense=Tensor.to_dense to_sparse=Tensor.to_sparse
to_sparse_bsc=Tensor.to_sparse_bsc
to_sparse_bsr=Tensor.to_sparse_bsr
to_sparse_coo=Tensor.to_sparse_coo to_sparse_csc=Tensor.to_sparse_csc to_sparse_csr=Tensor.to_sparse_csr
to_mkldnn=Tensor.to_mkldnn to_padded_tensor=Tensor.to_padded_tensor coalesce=Tensor.coalesce
sparse_mask=Tensor.sparse_mask
pin_memory=Tensor.pin_memory fft.fftshift fft.ifftshift vander linalg.vander
"""

PADS = ",".join(
    f"{kind}Pad{d}d" for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular") for d in (1, 2, 3)
)

PACKING = """
_pack_padded_sequence=_VF._pack_padded_sequence _pad_packed_sequence=_VF._pad_packed_sequence
pack_padded_sequence=rnn.pack_padded_sequence pad_packed_sequence=rnn.pad_packed_sequence pad_sequence=rnn.pad_sequence
pack_sequence=rnn.pack_sequence PackedSequence=rnn.PackedSequence
"""

ROWS = (
    *parse_rows("shape", cost_nothing, PACKING),
    *parse_rows("shape", cost_nothing, f"pad:{PADS}", count_traffic),
    *parse_rows("shape", cost_nothing, VIEWS, cost_nothing),
    *parse_rows("shape", cost_nothing, COPIES, count_traffic),
)

#: Attributes of a tensor that are views of it.
PROPERTIES = tuple(
    row
    for name in ("T", "mT", "H", "mH", "real", "imag", "data")
    for row in parse_rows("shape", cost_nothing, name, cost_nothing)
)


# Reading and writing chosen elements: no operation (accumulating forms count 1 for each element added).
#
# `getitem` without a tensor in its index is a view and moves nothing.


def getitem_bytes(call: OpCall) -> int:
    """0 for a view or an item of a tuple, else the bytes that a gather moves."""
    index = get_argument(call, 1, "idx")
    return gathered_bytes(call) if next(iterate_tensors(index), None) is not None else 0


def setitem_bytes(call: OpCall) -> int:
    """Bytes of the value and the index, which are read, and of the value's elements, which are written."""
    value = call.args[2] if len(call.args) > 2 else None
    return sum(t.nbytes for t in iterate_tensors(call.args[1:])) + sum(t.nbytes for t in iterate_tensors(value))


def accumulation_flops(call: OpCall) -> int:
    """One addition for each element of the source, which is the largest tensor after the first."""
    return max((t.numel for t in input_tensors(call)[1:]), default=0)


INDEXING_ROWS = (
    *parse_rows("index", cost_nothing, "getitem=operator.getitem,Tensor.__getitem__", getitem_bytes),
    *parse_rows("index", cost_nothing, "setitem=operator.setitem,Tensor.__setitem__", setitem_bytes),
    *parse_rows(
        "index",
        cost_nothing,
        "index=Tensor.index gather take take_along_dim index_select masked_select",
        gathered_bytes,
    ),
    *parse_rows(
        "index",
        cost_nothing,
        """where masked_fill=torch.masked_fill,Tensor.masked_fill masked_fill_=Tensor.masked_fill_
        masked_scatter scatter index_fill index_copy index_put put
        slice_scatter select_scatter nonzero nonzero_static argwhere unravel_index
        slice=builtins.slice,aten.slice""",
        count_traffic,
    ),
    *parse_rows("index", accumulation_flops, "scatter_add scatter_reduce index_add index_reduce", count_traffic),
)


# Creating tensors: filling counts no operation, a computed value (a window, a range) one each.

FILLED = """
zeros zeros_like ones ones_like full full_like empty empty_like empty_strided empty_permuted empty_quantized eye tensor
as_tensor asarray from_numpy frombuffer from_file scalar_tensor from_dlpack zero_=Tensor.zero_,torch.zero_
fill=fill,fill_ fill_diagonal_=Tensor.fill_diagonal_ new=Tensor.new new_empty=Tensor.new_empty
new_empty_strided=Tensor.new_empty_strided new_full=Tensor.new_full new_ones=Tensor.new_ones
new_tensor=Tensor.new_tensor new_zeros=Tensor.new_zeros tril_indices triu_indices get_rng_state
q_per_channel_scales q_per_channel_zero_points
sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor
"""

COMPUTED = """
arange range=range,builtins.range linspace logspace bartlett_window blackman_window hamming_window hann_window
kaiser_window fft.fftfreq fft.rfftfreq affine_grid affine_grid_generator
cudnn_affine_grid_generator choose_qparams_optimized
"""

CREATION_ROWS = (
    *parse_rows("creation", cost_nothing, FILLED),
    *parse_rows("creation", each_output(1), COMPUTED),
)


# Queries about a tensor, and Python's own builtins: they make no tensor, cost nothing and need no hardware.
#
# Control flow operators cost what their branches cost; the branches' own nodes count that.

QUERIES = parse_rows(
    "other",
    cost_nothing,
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
    cost_nothing,
)

QUERIES_ROWS = (*QUERIES, *parse_rows("other", cost_nothing, "cond while_loop"))
