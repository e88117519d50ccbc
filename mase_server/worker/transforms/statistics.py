"""Statistics of the weights of a model whose values a file gave: mean, deviation, range, zeros and a histogram."""

from __future__ import annotations

from collections.abc import Iterator, Set

import torch
from torch import nn

from mase_server.protocol.answers.models import ParameterStatistics, ValueStatistics
from mase_server.suggestions import suggest

BINS = 48
#: Parameters in one answer.
_MOST = 100
#: Elements that are converted to doubles at once.
_AT_ONCE = 1 << 22
_UNKNOWN: ValueStatistics = {
    "mean": None, "std": None, "min": None, "max": None, "zeros": None, "not_finite": None, "bins": [],
}  # fmt: skip


def describe_parameters(model: nn.Module, path: str, given: Set[str] | None) -> tuple[list[ParameterStatistics], int]:
    """The statistics of the parameter `path`, or of those of the module `path`, and how many there are.

    given: the names of those whose values a file gave, None for all; of others only the shape is told.  ValueError if
    there is no such parameter.
    """
    known = dict(model.named_parameters(remove_duplicate=False))
    names = [name for name in known if not path or name == path or name.startswith(f"{path}.")]
    if not names:
        modules = dict.fromkeys(name.rpartition(".")[0] for name in known)
        raise ValueError(f"the model has no parameters in {path!r}{suggest(path, [*modules, *known], 'it has')}")
    return [
        _describe_parameter(name, known[name], given is not None and name not in given) for name in names[:_MOST]
    ], len(names)


def _describe_parameter(name: str, tensor: torch.Tensor, random: bool) -> ParameterStatistics:
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_complex()
    values = _summarize_values(tensor.detach()) if plain and not random else _UNKNOWN
    return {
        "name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
        "count": tensor.numel(), "random": random, **values,
    }  # fmt: skip


def _summarize_values(tensor: torch.Tensor) -> ValueStatistics:
    """The statistics of the finite values, computed in double precision piece by piece."""
    count = zeros = 0
    total, low, high = 0.0, float("inf"), float("-inf")
    for values in _iterate_finite_values(tensor):
        count, zeros = count + values.numel(), zeros + int((values == 0).sum())
        total, low, high = total + float(values.sum()), min(low, float(values.min())), max(high, float(values.max()))
    if not count:
        return {**_UNKNOWN, "not_finite": tensor.numel()}
    mean, squares, bins = total / count, 0.0, torch.zeros(BINS, dtype=torch.float64)
    for values in _iterate_finite_values(tensor):
        squares += float(((values - mean) ** 2).sum())
        bins += torch.histc(values, BINS, low, high)
    deviation = (squares / max(1, count - 1)) ** 0.5
    return {
        "not_finite": tensor.numel() - count, "mean": mean, "std": deviation, "min": low, "max": high,
        "zeros": zeros / tensor.numel(), "bins": [int(each) for each in bins] if low < high else [count],
    }  # fmt: skip


def _iterate_finite_values(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _AT_ONCE):
        values = flat[start : start + _AT_ONCE].double()
        finite = values[values.isfinite()]
        if finite.numel():
            yield finite
