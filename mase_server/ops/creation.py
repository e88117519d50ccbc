"""Making tensors from nothing: filling counts no operation, a computed value (a window, a range) one each."""

from __future__ import annotations

from mase_server.ops.costs import each_output, free
from mase_server.ops.rows import rows

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

ROWS = (
    *rows("creation", free, FILLED),
    *rows("creation", each_output(1), COMPUTED),
)
