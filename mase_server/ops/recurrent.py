"""Recurrent networks: every weight matrix (input, hidden, projection; each layer and direction) multiplies every token.

So 2 * tokens * elements of the matrices, gates included because the matrices stack them (4 for LSTM, 3 for GRU).
Padding counts; a packed sequence counts its real tokens. Gates' element-wise work and biases do not count.
"""

from __future__ import annotations

from mase_server.ops.costs import inputs
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall, tensors


def network(call: OpCall) -> int:
    """A whole sequence: tokens are the input's elements over its last dimension."""
    first = inputs(call)[0]
    tokens = first.numel // first.shape[-1] if first.numel else 0
    return 2 * tokens * (_module_matrices(call) if call.module is not None else _listed_matrices(call))


def cell(call: OpCall) -> int:
    """One step: a batch of tokens."""
    first = inputs(call)[0]
    tokens = first.numel // first.shape[-1] if first.numel else 0
    given = sum(t.numel for t in tensors(call.args[2:]) if len(t.shape) == 2)
    return 2 * tokens * (_module_matrices(call) if call.module is not None else given)


def _module_matrices(call: OpCall) -> int:
    assert call.module is not None
    return sum(p.numel() for p in call.module.parameters() if p.dim() == 2)


def _listed_matrices(call: OpCall) -> int:
    """The weights of torch.lstm and its like come as one list; the states in lists have three dimensions."""
    lists = (item for item in call.args if isinstance(item, (list, tuple)))
    return sum(t.numel for item in lists for t in tensors(item) if len(t.shape) == 2)


ROWS = (
    *rows("recurrent", network, "lstm:LSTM gru:GRU rnn=nn.RNN rnn_tanh rnn_relu rnn_base=nn.RNNBase"),
    *rows("recurrent", cell, "lstm_cell:LSTMCell gru_cell:GRUCell rnn_cell=nn.RNNCell rnn_tanh_cell rnn_relu_cell"),
    *rows("recurrent", network, "quantized_lstm quantized_gru miopen_rnn _cudnn_rnn mkldnn_rnn_layer"),
    *rows("recurrent", cell, "quantized_lstm_cell quantized_gru_cell quantized_rnn_relu_cell quantized_rnn_tanh_cell"),
)
