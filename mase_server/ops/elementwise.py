"""Element-wise operators, activations, reductions and losses: their rows and cost formulas.

Element-wise operators count 1 operation for each element of the result, whichever elementary function it is. Fused
ones (addcmul, lerp) count their parts. Comparisons and logic count as operations too; random values cost 1 each.
"""

from __future__ import annotations

from mase_server.ops.rows import (
    cost_nothing,
    each_input,
    each_output,
    get_argument,
    input_elements,
    input_tensors,
    output_elements,
    parse_rows,
)
from mase_server.ops.types import Formula, OpCall

BINARY = """
add=add,operator.add,operator.iadd,Tensor.__add__,Tensor.__radd__,Tensor.__iadd__
sub=sub,subtract,operator.sub,operator.isub,Tensor.__sub__,Tensor.__isub__,Tensor.__rsub__
mul=mul,multiply,operator.mul,operator.imul,Tensor.__mul__,Tensor.__rmul__,Tensor.__imul__
div=div,divide,true_divide,operator.truediv,operator.itruediv,Tensor.__div__,Tensor.__truediv__,Tensor.__itruediv__,Tensor.__idiv__,Tensor.__rdiv__,Tensor.__rtruediv__
pow=pow,operator.pow,operator.ipow,builtins.pow,Tensor.__pow__,Tensor.__rpow__,Tensor.__ipow__
floor_divide=floor_divide,operator.floordiv,operator.ifloordiv,Tensor.__floordiv__,Tensor.__rfloordiv__,Tensor.__ifloordiv__
remainder=remainder,operator.mod,operator.imod,Tensor.__mod__,Tensor.__rmod__,Tensor.__imod__
eq=eq,operator.eq,Tensor.__eq__ ne=ne,not_equal,operator.ne,Tensor.__ne__
lt=lt,operator.lt,Tensor.__lt__ le=le,less_equal,operator.le,Tensor.__le__
gt=gt,operator.gt,Tensor.__gt__ ge=ge,greater_equal,operator.ge,Tensor.__ge__
greater less
bitwise_and=bitwise_and,operator.and_,operator.iand,Tensor.__and__,Tensor.__rand__,Tensor.__iand__
bitwise_or=bitwise_or,operator.or_,operator.ior,Tensor.__or__,Tensor.__ror__,Tensor.__ior__
bitwise_xor=bitwise_xor,operator.xor,operator.ixor,Tensor.__xor__,Tensor.__rxor__,Tensor.__ixor__
bitwise_left_shift=bitwise_left_shift,operator.lshift,operator.ilshift,Tensor.__lshift__,Tensor.__rlshift__,Tensor.__ilshift__
bitwise_right_shift=bitwise_right_shift,operator.rshift,operator.irshift,Tensor.__rshift__,Tensor.__rrshift__,Tensor.__irshift__
rsub fmod maximum minimum fmax fmin atan2 arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside gcd lcm ldexp
xlogy logical_and logical_or logical_xor float_power isclose igamma igammac special.xlogy special.xlog1py
special.gammainc special.gammaincc special.zeta polar complex clamp_min clamp_max dist
"""

UNARY = """
exp sqrt log sin cos tan sinh cosh erf=erf,special.erf neg=neg,negative,operator.neg,Tensor.__neg__
abs=abs,absolute,operator.abs,builtins.abs,Tensor.__abs__ not=operator.not_ logical_not
invert=bitwise_not,operator.invert,operator.inv,Tensor.__invert__
rsqrt log1p log2 log10 exp2 expm1 atan acos asin acosh asinh atanh
arccos arcsin arctan arccosh arcsinh arctanh reciprocal square sign sgn signbit floor ceil round trunc fix frac
deg2rad rad2deg digamma lgamma mvlgamma polygamma erfc erfinv i0 sinc logit nan_to_num isnan isinf isfinite isneginf
isposinf isreal angle conj_physical positive=positive,operator.pos,Tensor.__pos__ clamp clip
round=builtins.round
special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
special.digamma special.entr special.erfc special.erfcx special.erfinv special.exp2 special.expm1 special.gammaln
special.i0 special.i0e special.i1 special.i1e special.log1p special.log_ndtr special.logit
special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1
special.multigammaln special.ndtr special.ndtri special.polygamma special.psi special.round
special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 special.sinc special.spherical_bessel_j0
fake_quantize_per_tensor_affine fake_quantize_per_channel_affine fused_moving_avg_obs_fake_quant
quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize int_repr quantise=formats.quantise
"""

POLYNOMIALS = """
special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
special.chebyshev_polynomial_w special.hermite_polynomial_h special.hermite_polynomial_he
special.laguerre_polynomial_l special.legendre_polynomial_p special.shifted_chebyshev_polynomial_t
special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w
"""

RANDOM = """
bernoulli normal poisson binomial multinomial cauchy_=Tensor.cauchy_ exponential_=Tensor.exponential_
geometric_=Tensor.geometric_ log_normal_=Tensor.log_normal_ uniform_=Tensor.uniform_ random_=Tensor.random_
rand rand_like randint randint_like randn randn_like randperm
"""

ROWS = (
    *parse_rows("elementwise", each_output(1), BINARY),
    *parse_rows("elementwise", each_output(1), UNARY),
    *parse_rows("elementwise", each_output(1), POLYNOMIALS),
    *parse_rows("elementwise", each_output(3), "addcmul addcdiv lerp"),
    *parse_rows("elementwise", each_output(2), "frexp"),
    *parse_rows("elementwise", each_output(1), "map_=Tensor.map_ map2_=Tensor.map2_ apply_=Tensor.apply_"),
    *parse_rows("creation", each_output(1), RANDOM),
)


# Activations: 1 operation for each element, softmax and its kin 5 (max, subtract, exp, add, divide).
#
# Dropout is 0 here (it does nothing in eval); gated linear units are 2 for each element of the result.

ACTIVATION_ROWS = (
    *parse_rows(
        "activation",
        each_output(1),
        """relu:ReLU relu6:ReLU6 hardshrink:Hardshrink silu:SiLU elu:ELU sigmoid=sigmoid,special.expit:Sigmoid
        softshrink:Softshrink logsigmoid:LogSigmoid selu:SELU tanh:Tanh gelu:GELU softplus:Softplus softsign:Softsign
        celu:CELU leaky_relu:LeakyReLU prelu:PReLU rrelu:RReLU hardsigmoid:Hardsigmoid hardswish:Hardswish
        hardtanh:Hardtanh mish:Mish tanhshrink:Tanhshrink threshold:Threshold""",
    ),
    *parse_rows("activation", each_output(2), "glu:GLU"),
    *parse_rows(
        "activation", each_output(5), "softmax=softmax,special.softmax:Softmax softmax2d=nn.Softmax2d softmin:Softmin"
    ),
    *parse_rows(
        "activation",
        each_output(5),
        "log_softmax=log_softmax,special.log_softmax:LogSoftmax gumbel_softmax _softmax _log_softmax",
    ),
    *parse_rows(
        "activation",
        cost_nothing,
        """dropout:Dropout dropout1d:Dropout1d dropout2d:Dropout2d dropout3d:Dropout3d alpha_dropout:AlphaDropout
        feature_dropout feature_alpha_dropout:FeatureAlphaDropout native_dropout""",
    ),
    *parse_rows("activation", cost_nothing, "identity=nn.Identity", bytes=cost_nothing),
    *parse_rows("activation", each_input(5), "adaptive_log_softmax_with_loss=nn.AdaptiveLogSoftmaxWithLoss"),
)


# Reductions and scans: 1 operation for each element of the input; means and norms 1 more for each result.
#
# Variances cost 3 for each element (subtract, square, add); log-sum-exp 4 (max, subtract, exp, add); sorting n elements
# costs n * log2(n) comparisons along the sorted dimension; distances between rows 3 for each element compared.


def mean_flops(call: OpCall) -> int:
    """An addition for each element of the input, a division for each of the result."""
    return input_elements(call) + output_elements(call)


def norm_flops(call: OpCall) -> int:
    """A power and an addition for each element of the input, a root for each of the result."""
    return 2 * input_elements(call) + output_elements(call)


def sorting_formula(position: int, default: int | None = -1) -> Formula:
    """n * ceil(log2 n) comparisons for each row of n; `dim` is argument `position`, None means all."""

    def flops(call: OpCall) -> int:
        tensor = input_tensors(call)[0]
        dim = get_argument(call, position, "dim", default)
        length = tensor.shape[dim] if tensor.shape and dim is not None else tensor.numel
        return tensor.numel * max(length - 1, 0).bit_length()

    return flops


def msort_flops(call: OpCall) -> int:
    """The cost of sorting along the first dimension."""
    tensor = input_tensors(call)[0]
    return tensor.numel * max(tensor.shape[0] - 1, 0).bit_length() if tensor.shape else 0


def search_flops(call: OpCall) -> int:
    """log2 of the boundaries for each value looked up."""
    given = input_tensors(call)
    length = max((t.shape[-1] for t in given if t.shape), default=1)
    return output_elements(call) * length.bit_length()


def all_pairs(call: OpCall) -> int:
    """Subtract, square and add for each element of each pair of rows."""
    return 3 * output_elements(call) * int(input_tensors(call)[0].shape[-1])


REDUCTION_ROWS = (
    *parse_rows(
        "reduction",
        each_input(1),
        """sum nansum prod max=max,builtins.max min=min,builtins.min amax amin aminmax argmax argmin all any cumsum
        cumprod cummax cummin count_nonzero median nanmedian mode kthvalue trace histc histogram histogramdd bincount
        hash_tensor equal allclose logcumsumexp unique_consecutive
        trapz trapezoid cumulative_trapezoid diff gradient segment_reduce
        sum_to_size=Tensor.sum_to_size sum=builtins.sum cov corrcoef""",
    ),
    *parse_rows("reduction", mean_flops, "mean nanmean"),
    *parse_rows("reduction", each_input(3), "std var std_mean var_mean"),
    *parse_rows("reduction", each_input(4), "logsumexp=logsumexp,special.logsumexp"),
    *parse_rows(
        "reduction",
        norm_flops,
        "norm linalg.norm linalg.vector_norm frobenius_norm nuclear_norm norm_except_dim native_norm",
    ),
    *parse_rows("reduction", sorting_formula(1), "sort argsort"),
    *parse_rows("reduction", sorting_formula(2), "topk"),
    *parse_rows("reduction", sorting_formula(3, None), "unique"),
    *parse_rows("reduction", sorting_formula(2, None), "quantile nanquantile"),
    *parse_rows("reduction", msort_flops, "msort"),
    *parse_rows("reduction", search_flops, "searchsorted bucketize isin"),
    *parse_rows("reduction", each_input(3), "pairwise_distance:PairwiseDistance"),
    *parse_rows("reduction", each_input(6), "cosine_similarity:CosineSimilarity"),
    *parse_rows("reduction", all_pairs, "cdist pdist"),
)


# Losses, for each element of the input: squared or absolute errors 3 (subtract, square, add), those with a
# logarithm 5, cross entropy on scores 6 (log-softmax 5, pick 1), hinge losses 3; triplet losses 8 (two distances).


def linear_cross_entropy(call: OpCall) -> int:
    """A linear layer to the classes (2 * tokens * features * classes), then cross entropy over its scores."""
    classes = int(get_argument(call, 1, "linear_weight").shape[0]) if call.module is None else _count_classes(call)
    features = input_elements(call)
    width = int(get_argument(call, 0, "input").shape[-1])
    return 2 * features * classes + 6 * (features // width) * classes


def _count_classes(call: OpCall) -> int:
    return max(int(p.shape[0]) for p in call.module.parameters()) if call.module is not None else 0


LOSS_ROWS = (
    *parse_rows(
        "loss", each_input(3), "mse_loss:MSELoss l1_loss:L1Loss smooth_l1_loss:SmoothL1Loss huber_loss:HuberLoss"
    ),
    *parse_rows(
        "loss",
        each_input(5),
        """binary_cross_entropy:BCELoss binary_cross_entropy_with_logits:BCEWithLogitsLoss kl_div:KLDivLoss
        poisson_nll_loss:PoissonNLLLoss gaussian_nll_loss:GaussianNLLLoss soft_margin_loss:SoftMarginLoss
        multilabel_soft_margin_loss:MultiLabelSoftMarginLoss ctc_loss:CTCLoss miopen_ctc_loss""",
    ),
    *parse_rows("loss", each_input(6), "cross_entropy:CrossEntropyLoss"),
    *parse_rows(
        "loss",
        each_input(3),
        """nll_loss=nll_loss:NLLLoss,NLLLoss2d margin_ranking_loss:MarginRankingLoss
        hinge_embedding_loss:HingeEmbeddingLoss multi_margin_loss:MultiMarginLoss
        multilabel_margin_loss:MultiLabelMarginLoss""",
    ),
    *parse_rows(
        "loss",
        each_input(8),
        """cosine_embedding_loss:CosineEmbeddingLoss triplet_margin_loss:TripletMarginLoss
        triplet_margin_with_distance_loss:TripletMarginWithDistanceLoss""",
    ),
    *parse_rows("loss", linear_cross_entropy, "linear_cross_entropy:LinearCrossEntropyLoss"),
)
