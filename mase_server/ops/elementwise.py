"""Element-wise operators: 1 operation for each element of the result, whichever elementary function it is.

Fused ones (addcmul, lerp) count their parts. Comparisons and logic count as operations too; random values cost 1 each.
"""

from __future__ import annotations

from mase_server.ops.costs import each_output
from mase_server.ops.rows import rows

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
    *rows("elementwise", each_output(1), BINARY),
    *rows("elementwise", each_output(1), UNARY),
    *rows("elementwise", each_output(1), POLYNOMIALS),
    *rows("elementwise", each_output(3), "addcmul addcdiv lerp"),
    *rows("elementwise", each_output(2), "frexp"),
    *rows("elementwise", each_output(1), "map_=Tensor.map_ map2_=Tensor.map2_ apply_=Tensor.apply_"),
    *rows("creation", each_output(1), RANDOM),
)
