"""Activations: 1 operation for each element, softmax and its kin 5 (max, subtract, exp, add, divide).

Dropout is 0 here (it does nothing in eval); gated linear units are 2 for each element of the result.
"""

from __future__ import annotations

from mase_server.ops.costs import each_input, each_output, free
from mase_server.ops.rows import rows

ROWS = (
    *rows(
        "activation",
        each_output(1),
        """relu:ReLU relu6:ReLU6 hardshrink:Hardshrink silu:SiLU elu:ELU sigmoid=sigmoid,special.expit:Sigmoid
        softshrink:Softshrink logsigmoid:LogSigmoid selu:SELU tanh:Tanh gelu:GELU softplus:Softplus softsign:Softsign
        celu:CELU leaky_relu:LeakyReLU prelu:PReLU rrelu:RReLU hardsigmoid:Hardsigmoid hardswish:Hardswish
        hardtanh:Hardtanh mish:Mish tanhshrink:Tanhshrink threshold:Threshold""",
    ),
    *rows("activation", each_output(2), "glu:GLU"),
    *rows(
        "activation", each_output(5), "softmax=softmax,special.softmax:Softmax softmax2d=nn.Softmax2d softmin:Softmin"
    ),
    *rows(
        "activation",
        each_output(5),
        "log_softmax=log_softmax,special.log_softmax:LogSoftmax gumbel_softmax _softmax _log_softmax",
    ),
    *rows(
        "activation",
        free,
        """dropout:Dropout dropout1d:Dropout1d dropout2d:Dropout2d dropout3d:Dropout3d alpha_dropout:AlphaDropout
        feature_dropout feature_alpha_dropout:FeatureAlphaDropout native_dropout""",
    ),
    *rows("activation", free, "identity=nn.Identity", bytes=free),
    *rows("activation", each_input(5), "adaptive_log_softmax_with_loss=nn.AdaptiveLogSoftmaxWithLoss"),
)
