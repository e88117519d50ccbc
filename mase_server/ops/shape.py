"""Changing the shape, the order, the type or the device of data: no operation is counted.

A view moves nothing, so its bytes are 0; reshape and flatten count as views. Copies read and write each element.
"""

from __future__ import annotations

from mase_server.ops.costs import free, traffic
from mase_server.ops.rows import rows

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
    *rows("shape", free, PACKING),
    *rows("shape", free, f"pad:{PADS}", traffic),
    *rows("shape", free, VIEWS, free),
    *rows("shape", free, COPIES, traffic),
)

#: Attributes of a tensor that give a view of it.
PROPERTIES = tuple(
    row for name in ("T", "mT", "H", "mH", "real", "imag", "data") for row in rows("shape", free, name, free)
)
