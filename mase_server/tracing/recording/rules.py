"""Meta rules: calls that torch's own meta kernels cannot make, or make more strictly or leniently than eager.

A rule is a function `(shadows, func, args, kwargs) -> result`, registered for a torch callable with
`@meta_rule(func)`. A project's own code may register more for its own kernels. `check_bounds` holds the indices of a
call against their bounds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only

from mase_server.ops.types import Kwargs
from mase_server.tracing.diagnosis.explainers import PRODUCTS, explain_call, stricter_than_meta
from mase_server.tracing.diagnosis.failure import Call
from mase_server.tracing.recording.calling import autocast_key
from mase_server.tracing.recording.values import tensor_type

if TYPE_CHECKING:
    from mase_server.tracing.recording.shadow import Shadows


# Calls that eager refuses and meta kernels accept, found by running eager itself on tensors without elements.
#
# Eager refuses a wrong convolution before it computes anything, so an empty batch and uninitialised weights cost only
# some microseconds. It refuses an element type without a kernel even for one element.

_HOMES = (torch, torch.Tensor, torch.nn.functional, torch.special, torch._C._nn)


def _get_callables(*names: str) -> frozenset[Callable[..., Any]]:
    return frozenset(getattr(home, name) for home in _HOMES for name in names if hasattr(home, name))


CONVOLUTIONS = _get_callables("conv1d", "conv2d", "conv3d")
TRANSPOSED = _get_callables("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")

#: Made for floating types only, or for all but bool; each call with another type is tried.
FLOATING = _get_callables(
    "abs", "absolute", "argmax", "argmin", "ceil", "celu", "elu", "floor", "frac", "gelu", "hardshrink", "hardsigmoid",
    "hardswish", "histc", "log_softmax", "logsigmoid", "median", "mish", "nanmedian", "relu", "round", "rrelu", "silu",
    "softmax", "softmin", "softplus", "softsign", "std", "tanhshrink", "trace", "trunc", "var",
)  # fmt: skip

#: Made for integers and bool only.
INTEGRAL = _get_callables("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "__and__", "__or__", "__xor__") | {
    operator.and_, operator.or_, operator.xor,
}  # fmt: skip

LENIENT = CONVOLUTIONS | TRANSPOSED | FLOATING | INTEGRAL


def ask_eager(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> None:
    """Raise whatever eager raises for the shapes and types of this call of one of `LENIENT`."""
    if func in CONVOLUTIONS or func in TRANSPOSED:
        args, kwargs = _without_images(args, kwargs)
        func(*args, **kwargs)
    elif func in LENIENT and _is_doubtful(func, args[0] if args else next(iter(kwargs.values()))):
        func(
            *tree_map_only(torch.Tensor, _make_single_element, args),
            **tree_map_only(torch.Tensor, _make_single_element, kwargs),
        )


def _is_doubtful(func: Callable[..., Any], first: Any) -> bool:
    if not isinstance(first, torch.Tensor):
        return False
    inexact = first.dtype.is_floating_point or first.dtype.is_complex
    return inexact if func in INTEGRAL else not inexact


def _without_images(args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    x = args[0] if args else kwargs["input"]
    weight = args[1] if len(args) > 1 else kwargs["weight"]

    def emptied(tensor: torch.Tensor) -> torch.Tensor:
        sizes = tuple(tensor.shape)
        shape = (0, *(sizes[1:] if tensor.dim() == weight.dim() else sizes)) if tensor is x else sizes
        # Which narrow types a processor can convolve does not matter here.
        dtype = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
        return torch.empty(shape, dtype=dtype, device="cpu")

    return tree_map_only(torch.Tensor, emptied, (args, kwargs))


def _make_single_element(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones((1,) * tensor.dim(), dtype=tensor.dtype, device="cpu")


Rule = Callable[["Shadows", Callable[..., Any], tuple[Any, ...], Kwargs], Any]

#: callable -> its rule.
RULES: dict[Callable[..., Any], Rule] = {}

#: Callables whose rule depends on types only, so that one result serves all calls with the same types.
BY_TYPE: frozenset[Callable[..., Any]] = PRODUCTS | LENIENT | {F.scaled_dot_product_attention}


def meta_rule(*functions: Callable[..., Any] | None) -> Callable[[Rule], Rule]:
    """Register a rule for torch callables; None (a callable that this torch does not have) is skipped."""

    def register(rule: Rule) -> Rule:
        RULES.update({function: rule for function in functions if function is not None})
        return rule

    return register


@meta_rule(torch.istft, torch.Tensor.istft)
def _istft(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Torch checks its windows by their values, so it has no kernel for meta."""
    return _make_signal(*args, **kwargs)


def _make_signal(
    input: torch.Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> torch.Tensor:  # fmt: skip
    if not input.is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor")
    if input.dim() not in (2, 3):
        raise RuntimeError(f"istft(): expected a tensor with 2 or 3 dimensions, but got {input.dim()}D")
    onesided = input.shape[-2] != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if onesided else n_fft
    if input.shape[-2] != wanted:
        raise RuntimeError(f"istft(): expected {wanted} frequencies in dimension -2, but got {input.shape[-2]}")
    hop = n_fft // 4 if hop_length is None else hop_length
    whole = n_fft + hop * (input.shape[-1] - 1) - (2 * (n_fft // 2) if center else 0)
    dtype = input.dtype if return_complex else input.dtype.to_real()
    return torch.empty((*input.shape[:-2], whole if length is None else length), dtype=dtype, device=input.device)


@meta_rule(F.scaled_dot_product_attention)
def _attend(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Where heads were split off by a view, the CPU's kernel lays its result out as the query; meta composes the call,
    slowly, of others that do not."""
    names = "query", "key", "value", "attn_mask", "dropout_p", "is_causal"
    given = dict(zip(names, args, strict=False)) | kwargs
    if autocast_key() is None and not torch.is_grad_enabled() and _has_own_kernel(given):
        query = given["query"]
        out = query.new_empty([query.shape[each] for each in (0, 2, 1, 3)]).transpose(1, 2)
        if out.stride() == query.stride():
            return out
    return func(*args, **kwargs)


def _has_own_kernel(given: Kwargs) -> bool:
    """Does one kernel of the CPU compute this attention?"""
    tensors: list[Any] = [given.get(name) for name in ("query", "key", "value")]
    query, key, value = tensors
    if not all(_as_plain(each) is not None and each.dim() == 4 and each.numel() for each in tensors):
        return False
    batch, heads, _, width = query.shape
    whole = all(each.stride(-1) == 1 and each.dtype == query.dtype for each in tensors) and query.dtype in _COMPUTED
    alike = key.shape == value.shape == (batch, heads, key.shape[2], width)
    plain = given.get("attn_mask") is None and not given.get("dropout_p") and not given.get("enable_gqa")
    return whole and alike and plain


@meta_rule(torch.Tensor.type)
def _read_type(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """The name of a tensor's type without the device, as on the CPU; with a type, the tensor of that type."""
    out = func(*args, **kwargs)
    return out.replace("torch.meta.", "torch.") if isinstance(out, str) else out


@meta_rule(getattr(torch, "_grouped_mm", None), getattr(torch.nn.functional, "grouped_mm", None))
def _grouped_mm(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """The meta kernel insists on bfloat16, and so on its alignment; eager insists on that of the real type."""
    first, second, *rest = args
    try:
        out = func(first.to(torch.bfloat16), second.to(torch.bfloat16), *rest, **kwargs)
    except RuntimeError as error:
        if "16 bytes" not in str(error) or not (_is_aligned(first) and _is_aligned(second)):
            raise
        groups = rest[0] if rest else kwargs.get("offs")
        return first.new_empty(_GROUPED[first.dim(), second.dim()](first.shape, second.shape, groups))
    return out.to(first.dtype)


#: Numbers of dimensions -> the shape of a grouped product.
_GROUPED: dict[tuple[int, int], Callable[[Any, Any, Any], tuple[int, ...]]] = {
    (2, 2): lambda first, second, groups: (len(groups), first[0], second[1]),
    (2, 3): lambda first, second, groups: (first[0], second[2]),
    (3, 2): lambda first, second, groups: (first[1], second[1]),
    (3, 3): lambda first, second, groups: (first[0], first[1], second[2]),
}


def _is_aligned(matrix: torch.Tensor) -> bool:
    """Do its rows, or its contiguous columns, begin at multiples of 16 bytes?"""
    row, column = matrix.stride()[-2:]
    return (row if column == 1 else column) * matrix.element_size() % 16 == 0


# Results whose type is that of an argument, told without their meta kernels: these are slow Python, and make half of a
# recording's time. Only plain calls are told; `None` leaves all others, and all that may be refused, to the kernels.


def make_plain_result(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> torch.Tensor | None:
    """A tensor of the type that eager returns for a float input and fitting operands of its element type."""
    if (plain := _PLAIN.get(func)) is None or torch.is_grad_enabled():
        return None
    names, tell_shape = plain
    given = dict(zip(names, args, strict=False))
    given.update(kwargs)
    x = _as_plain(given.pop("input", None))
    if x is None or not x.is_meta or not x.dtype.is_floating_point or not x.numel():
        return None
    shape = tell_shape(x, given)
    if shape is None:
        return None
    out = torch.empty(shape, dtype=x.dtype, device="meta")
    # An elementwise call keeps the strides of dimensions of size 1, which say nothing.
    return None if tell_shape is _tell_elementwise and out.stride() != x.stride() else out


def _as_plain(value: Any) -> torch.Tensor | None:
    """A tensor of torch's own types; None for anything else, subclasses too."""
    return value if type(value) in (torch.Tensor, torch.nn.Parameter) else None


_Shape = Sequence[int] | None


def _tell_activation(x: torch.Tensor, given: Kwargs) -> _Shape:
    plain = not given.get("inplace") and given.get("approximate", "none") in ("none", "tanh")
    return x.shape if plain and x.is_contiguous() else None


def _tell_linear(x: torch.Tensor, given: Kwargs) -> _Shape:
    weight = given.get("weight")
    if not isinstance(weight, torch.Tensor) or not x.is_contiguous() or x.dim() < 2 or weight.dim() != 2:
        return None
    fits = weight.shape[1] == x.shape[-1] and weight.dtype == x.dtype and _fit(x, weight.shape[:1], given, "bias")
    return (*x.shape[:-1], weight.shape[0]) if fits else None


def _tell_layer_norm(x: torch.Tensor, given: Kwargs) -> _Shape:
    shape = given.get("normalized_shape")
    if not isinstance(shape, (list, tuple)) or not x.is_contiguous() or tuple(x.shape[-len(shape) :]) != (*shape,):
        return None
    return x.shape if _fit(x, shape, given, "weight", "bias") else None


def _tell_batch_norm(x: torch.Tensor, given: Kwargs) -> _Shape:
    if given.get("training") is not False or not x.is_contiguous() or x.dim() < 2:
        return None
    known = given.get("running_mean") is not None and given.get("running_var") is not None
    vectors = "running_mean", "running_var", "weight", "bias"
    return x.shape if known and _fit(x, x.shape[1:2], given, *vectors) else None


def _tell_elementwise(x: torch.Tensor, given: Kwargs) -> _Shape:
    other = given.get("other")
    if len(given) != 1 or not x.is_contiguous():
        return None
    if (tensor := _as_plain(other)) is not None:
        fits = tensor.is_meta and tensor.dtype == x.dtype and tensor.is_contiguous()
        return x.shape if fits and _is_spread(tensor.shape, x.shape) else None
    return x.shape if type(other) in (int, float) else None


def _is_spread(small: Sequence[int], large: Sequence[int]) -> bool:
    """Is it broadcast to the larger shape, and that one to none?"""
    ends = zip(reversed(small), reversed(large), strict=False)
    return len(small) <= len(large) and all(size in (1, whole) for size, whole in ends)


def _tell_convolution(x: torch.Tensor, given: Kwargs) -> _Shape:
    weight = _as_plain(given.get("weight"))
    if weight is None or not weight.dim() == x.dim() == 4 or x.dtype not in _COMPUTED[:2]:
        return None
    groups, options = given.get("groups", 1), (("stride", 1), ("padding", 0), ("dilation", 1))
    stride, padding, dilation = (_read_pair(given.get(name, usual)) for name, usual in options)
    if not stride or not padding or not dilation or min(*stride, *dilation, groups) < 1 or min(padding) < 0:
        return None
    whole = weight.dtype == x.dtype and weight.numel() and weight.is_contiguous() and x.is_contiguous()
    joined = x.shape[1] == groups * weight.shape[1] and weight.shape[0] % groups == 0
    if not whole or not joined or not _fit(x, weight.shape[:1], given, "bias"):
        return None
    steps = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    sizes = [(size + 2 * pad - wide * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, wide in steps]
    return (x.shape[0], weight.shape[0], *sizes) if min(sizes) > 0 else None


def _read_pair(value: Any) -> Sequence[int] | None:
    """A number for each of two dimensions; None for one that is given in another way."""
    if isinstance(value, int):
        return value, value
    fits = isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(each, int) for each in value)
    return value if fits else None


def _tell_product(x: torch.Tensor, given: Kwargs) -> _Shape:
    other = _as_plain(given.get("other"))
    if len(given) != 1 or other is None or not other.is_meta or other.dtype != x.dtype:
        return None
    one, two = x.shape, other.shape
    fits = len(one) == len(two) > 1 and one[:-2] == two[:-2] and one[-1] == two[-2] and x.dtype in _COMPUTED
    return (*one[:-1], two[-1]) if fits and other.numel() else None


#: Element types that eager multiplies.
_COMPUTED = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _tell_cross_entropy(x: torch.Tensor, given: Kwargs) -> _Shape:
    target = _as_plain(given.get("target"))
    if target is None or target.dtype != torch.int64 or x.dim() != 2 or x.dtype not in _COMPUTED[:2]:
        return None
    usual = all(given.get(name) is None for name in ("weight", "size_average", "reduce"))
    usual &= given.get("reduction", "mean") in ("mean", "sum") and given.get("label_smoothing", 0.0) == 0.0
    return () if usual and target.shape == x.shape[:1] else None


_TWO = "input", "other"
#: The names of the arguments of each such call, in order, and what tells the shape of its result.
_PLAIN: dict[Callable[..., Any], tuple[tuple[str, ...], Callable[[torch.Tensor, Kwargs], _Shape]]] = {
    **dict.fromkeys((torch.relu, torch.Tensor.relu), (("input",), _tell_activation)),
    **dict.fromkeys((F.relu, F.silu), (("input", "inplace"), _tell_activation)),
    F.gelu: (("input", "approximate"), _tell_activation),
    F.linear: (("input", "weight", "bias"), _tell_linear),
    F.layer_norm: (("input", "normalized_shape", "weight", "bias", "eps"), _tell_layer_norm),
    F.batch_norm: (
        ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"), _tell_batch_norm,
    ),
    **dict.fromkeys(_get_callables("add", "sub", "mul", "div"), (_TWO, _tell_elementwise)),
    F.conv2d: (("input", "weight", "bias", "stride", "padding", "dilation", "groups"), _tell_convolution),
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__), (_TWO, _tell_product)),
    F.cross_entropy: (
        ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
        _tell_cross_entropy,
    ),
}  # fmt: skip


def _fit(x: torch.Tensor, shape: Sequence[int], given: Kwargs, *names: str) -> bool:
    """Is each of these arguments None, or a tensor of this shape and of the element type of `x`?"""
    for name in names:
        one = given.get(name)
        if one is not None and not (
            isinstance(one, torch.Tensor) and tuple(one.shape) == (*shape,) and one.dtype == x.dtype
        ):
            return False
    return True


@meta_rule(*LENIENT)
def _run_with_eager_check(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Check a call in eager, because the meta kernel accepts calls that no eager kernel does."""
    out = func(*args, **kwargs)
    ask_eager(func, args, kwargs)
    return out


@meta_rule(torch.Tensor.masked_fill_)
def _check_mask(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Refuse a mask of numbers in place, as eager does."""
    mask = args[1] if len(args) > 1 else kwargs.get("mask")
    if isinstance(mask, torch.Tensor) and mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    return func(*args, **kwargs)


@meta_rule(*PRODUCTS)
def _check_product(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Refuse mixed types in products, as eager does; meta kernels multiply them."""
    found = stricter_than_meta(Call(func, *tree_map_only(torch.Tensor, tensor_type, (args, kwargs))))
    if found is not None:
        raise RuntimeError(found.text)
    return _run_with_eager_check(shadows, func, args, kwargs)


@meta_rule(*(getattr(torch.nn.functional, name) for name in ("binary_cross_entropy", "cross_entropy", "nll_loss")))
def _check_loss(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Check the type of a target, which meta kernels ignore."""
    found = explain_call(Call(func, *tree_map_only(torch.Tensor, tensor_type, (args, kwargs))))
    if found is not None:
        raise RuntimeError(found.text)
    return func(*args, **kwargs)


@meta_rule(torch.Tensor.__getitem__)
def _select_by_mask(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Index by positions: a boolean mask of known value selects a known number of elements."""
    tensor, index = args
    items = index if isinstance(index, tuple) else (index,)
    out: list[Any] = []
    for item in items:
        mask = shadows.get(item) if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8) else None
        if mask is None or mask.dim() == 0:
            out.append(item)
        else:
            out.extend(shadows.twin(positions) for positions in mask.nonzero(as_tuple=True))
    # A list may still be read as a tuple: `x[[slice(None), 0]]` is `x[:, 0]`, as torch decides.
    return func(tensor, index if isinstance(index, list) else tuple(out))


@meta_rule(torch.masked_select, torch.Tensor.masked_select)
def _masked_select(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    tensor = args[0]
    mask = shadows.get(args[1] if len(args) > 1 else kwargs["mask"])
    if mask is None:
        return func(*args, **kwargs)
    shape = torch.broadcast_shapes(mask.shape, tensor.shape)  # type: ignore[no-untyped-call]
    return tensor.new_empty(int(mask.expand(shape).sum()))


@meta_rule(torch.repeat_interleave, torch.Tensor.repeat_interleave)
def _repeat_interleave(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    repeats = args[1] if len(args) > 1 else kwargs.get("repeats")
    real = shadows.get(repeats) if isinstance(repeats, torch.Tensor) else None
    if real is None:
        return func(*args, **kwargs)
    size = int(real.sum()) if real.numel() > 1 else None
    rest = {key: value for key, value in kwargs.items() if key not in ("repeats", "output_size")}
    if size is None:
        return func(args[0], int(real), *args[2:], **rest)
    return func(args[0], repeats, *args[2:], **rest, output_size=size)


# Packed sequences: the C++ kernels read lengths and batch sizes, which are known, on the CPU.


@meta_rule(torch._VF._pack_padded_sequence, torch._pack_padded_sequence)
def _pack_sequence(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    data, lengths, batch_first = args
    real = shadows.get(lengths) if lengths.is_meta else lengths
    if real is None:
        return func(*args, **kwargs)
    # As many rows and steps as the data has, so that wrong lengths are refused as in eager.
    _, sizes = func(torch.zeros(*data.shape[:2], 1), real, batch_first)
    packed = data.new_empty(int(sizes.sum()), *data.shape[2:])
    return packed, shadows.twin(sizes)


@meta_rule(torch._VF._pad_packed_sequence, torch._pad_packed_sequence)
def _pad_sequence(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    data, batch_sizes, batch_first, value, total = args
    real = shadows.get(batch_sizes) if batch_sizes.is_meta else batch_sizes
    if real is None:
        return func(*args, **kwargs)
    padded, lengths = func(torch.zeros(int(real.sum()), 1), real, batch_first, value, total)
    return data.new_empty(*padded.shape[:2], *data.shape[1:]), shadows.twin(lengths)


@meta_rule(torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
def _infer_recurrent_shapes(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Compute only shapes, since the meta kernel goes through every time step.

    The arguments are (data, hidden, weights, ...), or (data, batch_sizes, hidden, weights, ...) of a packed
    sequence.
    """
    if isinstance(args[1], torch.Tensor) and isinstance(args[3], (list, tuple)):
        data, _, hidden, weights, _, _, _, _, bidirectional = args
        batch_first = False
        # The layer itself does not check a packed sequence: eager's first product refuses a wrong one.
        torch.nn.functional.linear(data, weights[0])
    else:
        data, hidden, _, _, _, _, _, bidirectional, batch_first = args
    states = tuple(hidden) if isinstance(hidden, (list, tuple)) else (hidden,)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    # Kernels compute time first, so a batch-first result is a view.
    lead = data.shape[:-1][::-1] if batch_first else data.shape[:-1]
    out = data.new_empty(*lead, width)
    return out.transpose(0, 1) if batch_first else out, *(state.new_empty(state.shape) for state in states)


@meta_rule(getattr(torch, "_nested_tensor_from_mask_left_aligned", None))
def _left_aligned(shadows: Shadows, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
    """Return False to nn.TransformerEncoder, so that it skips its nested-tensor path, which gives the same shapes."""
    return False


# Indices of known value, and their bounds: eager PyTorch checks them, meta tensors do not.


IndexBounds = Iterator[tuple[Any, int]]
IndexRow = Callable[..., IndexBounds]


class OutOfRangeError(IndexError):
    """An index of known value is too large, or negative in a table.

    index: the tensor of indices; bound: they have to be below it.
    """

    def __init__(self, index: torch.Tensor, bound: int, largest: int) -> None:
        super().__init__(f"index {largest} is out of range of {bound}")
        self.index, self.bound, self.largest = index, bound, largest


class MaskShapeError(IndexError):
    """A mask has another shape than the dimensions that it selects from, which start at `at`."""

    def __init__(self, mask: torch.Tensor, tensor: torch.Tensor, at: int) -> None:
        shapes = zip(mask.shape, tensor.shape[at:], strict=False)
        wrong = at + next((index for index, (one, other) in enumerate(shapes) if one != other), 0)
        super().__init__(
            f"The shape of the mask {list(mask.shape)} at index {wrong - at} does not match the shape of the indexed "
            f"tensor {list(tensor.shape)} at index {wrong}"
        )


def check_bounds(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs, shadows: Shadows) -> None:
    """Raise `OutOfRangeError` for a call whose index of known value is out of range."""
    row = BOUNDS.get(func)
    if row is None:
        return
    try:
        pairs = list(row(*args, **kwargs))
    except MaskShapeError:
        raise
    except (TypeError, IndexError, AttributeError):  # the call itself will report what is wrong with its arguments
        return
    for index, bound in pairs:
        if not isinstance(index, torch.Tensor) or index.dtype in (torch.bool, torch.uint8) or index.is_floating_point():
            continue
        real = shadows.get(index)
        with torch._C.DisableTorchFunction():
            largest = int(real.max()) if real is not None and real.numel() else -1
            below = real is not None and largest < bound and row is _bound_embedding and bool((real < 0).any())
        if largest >= bound or below:
            raise OutOfRangeError(index, bound, int(real.min()) if real is not None and below else largest)


def _bound_embedding(input: torch.Tensor, weight: torch.Tensor, *more: Any, **options: Any) -> IndexBounds:
    yield input, weight.shape[0]


def _bound_subscript(tensor: torch.Tensor, index: Any, *value: Any) -> IndexBounds:
    items = index if isinstance(index, tuple) else (index,)
    at = 0
    for item in items:
        if item is Ellipsis:
            return
        if item is None or isinstance(item, bool):
            continue
        if isinstance(item, torch.Tensor) and item.dtype == torch.bool:
            selected = tensor.shape[at : at + item.dim()]
            if len(selected) == item.dim() and tuple(selected) != tuple(item.shape):
                raise MaskShapeError(item, tensor, at)
            at += item.dim()
            continue
        yield item, tensor.shape[at]
        at += 1


def _bound_index_select(input: torch.Tensor, dim: int, index: torch.Tensor, *more: Any, **options: Any) -> IndexBounds:
    if index.dim() > 1:
        raise RuntimeError("index_select(): Index is supposed to be a vector")
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    yield index, input.shape[dim]


def _no_bools(*values: Any, **options: Any) -> IndexBounds:
    if any(isinstance(value, torch.Tensor) and value.dtype == torch.bool for value in values):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
    yield from ()


def _bound_index_along(input: torch.Tensor, dim: int, index: Any, *more: Any, **options: Any) -> IndexBounds:
    yield index, input.shape[dim]


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> IndexBounds:
    if num_classes > 0:
        yield tensor, num_classes


def _bound_target(
    input: torch.Tensor, target: torch.Tensor, *more: Any, ignore_index: int = -1, **options: Any
) -> IndexBounds:
    if ignore_index < 0:
        yield target, input.shape[1 if input.dim() > 1 else 0]


def _bound_lengths(data: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> IndexBounds:
    yield lengths, data.shape[1 if batch_first else 0] + 1


#: callable -> from a call's arguments, pairs of an index and its bound.
BOUNDS: dict[Callable[..., Any], IndexRow] = {
    F.embedding: _bound_embedding,
    F.embedding_bag: _bound_embedding,
    torch.embedding: lambda weight, indices, *more, **options: _bound_embedding(indices, weight),
    F.one_hot: _one_hot,
    F.cross_entropy: _bound_target,
    F.nll_loss: _bound_target,
    torch._VF._pack_padded_sequence: _bound_lengths,
    **dict.fromkeys((torch.Tensor.__getitem__, torch.Tensor.__setitem__), _bound_subscript),
    **dict.fromkeys(
        (
            torch.gather, torch.Tensor.gather, torch.Tensor.scatter,
            torch.Tensor.scatter_, torch.Tensor.scatter_add, torch.Tensor.scatter_add_, torch.Tensor.index_add,
            torch.Tensor.index_add_, torch.scatter, torch.scatter_add, torch.index_add,
        ),
        _bound_index_along,
    ),
    **dict.fromkeys((torch.index_select, torch.Tensor.index_select), _bound_index_select),
    **dict.fromkeys(
        (torch.sub, torch.rsub, torch.Tensor.sub, torch.Tensor.__sub__, torch.Tensor.__rsub__, torch.Tensor.__isub__),
        _no_bools,
    ),
}  # fmt: skip
