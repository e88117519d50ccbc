"""Statistics of tensors, gathered sample by sample: one class for each, found by its name in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from mase_server.suggestions import suggest

Dims = str | int | list[int] | None


class Statistic(Protocol):
    """Takes samples of one tensor, then tells what it found."""

    def update(self, sample: torch.Tensor) -> None:
        """Take one sample."""

    def result(self) -> dict[str, Any]:
        """What was found, as the metadata has it."""


def _axes(sample: torch.Tensor, dims: Dims) -> list[int]:
    """The dimensions that are reduced: "all" or None for every one."""
    if dims is None or dims == "all":
        return list(range(sample.dim()))
    return [dims] if isinstance(dims, int) else [int(dim) for dim in dims]


class _Gathered:
    """Keeps all samples, stacked along a new first dimension (or joined along the present one)."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", add_new_dim_before_concat: bool = False) -> None:
        self.device, self.dims, self.stack = device, dims, add_new_dim_before_concat
        self.samples: list[torch.Tensor] = []

    def update(self, sample: torch.Tensor) -> None:
        """Keep a copy of the sample."""
        kept = sample.detach().to(self.device, copy=True)
        self.samples.append(kept.unsqueeze(0) if self.stack or kept.dim() == 0 else kept)

    @property
    def data(self) -> torch.Tensor:
        """All samples together."""
        return torch.cat(self.samples, dim=0)


class Record(_Gathered):
    """Every sample: {"data", "count"}."""

    def result(self) -> dict[str, Any]:
        """The samples joined along the first dimension, and how many elements they have."""
        return {"data": self.data, "count": self.data.numel()}


class VariancePrecise(_Gathered):
    """Variance and mean over all samples at once: {"variance", "mean", "count"}."""

    def result(self) -> dict[str, Any]:
        """The unbiased variance, as torch.var."""
        data = self.data.double()
        axes = _axes(data, self.dims)
        return {"variance": data.var(dim=axes), "mean": data.mean(dim=axes), "count": _counted(data, axes)}


class VarianceOnline:
    """Variance and mean by Chan's update, keeping no sample: {"variance", "mean", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all") -> None:
        self.device, self.dims = device, dims
        self.count = 0
        self.mean: torch.Tensor = torch.zeros(())
        self.squares: torch.Tensor = torch.zeros(())

    def update(self, sample: torch.Tensor) -> None:
        """Merge the moments of one sample."""
        data = sample.detach().to(self.device).double()
        axes = _axes(data, self.dims)
        count, mean = _counted(data, axes), data.mean(dim=axes)
        squares = data.var(dim=axes, correction=0) * count
        delta, total = mean - self.mean, self.count + count
        self.mean = self.mean + delta * count / total
        self.squares = self.squares + squares + delta * delta * self.count * count / total
        self.count = total

    def result(self) -> dict[str, Any]:
        """The unbiased variance, as torch.var."""
        return {"variance": self.squares / (self.count - 1), "mean": self.mean, "count": self.count}


class RangeMinMax:
    """The smallest and largest element: {"min", "max", "count"}; abs: of the absolute values."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", abs: bool = False) -> None:
        self.device, self.dims, self.abs = device, dims, abs
        self.low: torch.Tensor | None = None
        self.high: torch.Tensor | None = None
        self.count = 0

    def update(self, sample: torch.Tensor) -> None:
        """Widen the range."""
        data = sample.detach().to(self.device)
        data = data.abs() if self.abs else data
        axes = _axes(data, self.dims)
        low, high = (data.amin(dim=axes), data.amax(dim=axes)) if axes else (data, data)
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)
        self.count += _counted(data, axes)

    def result(self) -> dict[str, Any]:
        """The range over all samples."""
        return {"min": self.low, "max": self.high, "count": self.count}


class RangeNSigma(VarianceOnline):
    """Mean plus and minus some standard deviations: {"min", "max", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", abs: bool = False, num_sigma: float = 3) -> None:
        super().__init__(device, dims)
        self.abs, self.sigmas = abs, num_sigma

    def update(self, sample: torch.Tensor) -> None:
        """Merge the moments of one sample."""
        super().update(sample.abs() if self.abs else sample)

    def result(self) -> dict[str, Any]:
        """The range by the moments of all samples."""
        reach = self.sigmas * (self.squares / (self.count - 1)).sqrt()
        return {"min": self.mean - reach, "max": self.mean + reach, "count": self.count}


class RangeQuantile(_Gathered):
    """The range that leaves (1 - quantile) of the elements out at each end: {"min", "max", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all", abs: bool = False, quantile: float = 0.99) -> None:
        super().__init__(device, dims)
        self.abs, self.quantile = abs, quantile

    def result(self) -> dict[str, Any]:
        """Both ends by linear interpolation, as torch.quantile."""
        data = self.data.double()
        data = data.abs() if self.abs else data
        axes = _axes(data, self.dims)
        rest = [axis for axis in range(data.dim()) if axis not in [a % data.dim() for a in axes]]
        flat = data.permute(*rest, *axes).reshape(*(data.shape[axis] for axis in rest), -1)
        low, high = _quantile(flat, 1 - self.quantile), _quantile(flat, self.quantile)
        return {"min": low, "max": high, "count": flat.shape[-1]}


class AbsMean:
    """The mean of the absolute values: {"abs_mean", "count"}."""

    def __init__(self, device: str = "cpu", dims: Dims = "all") -> None:
        self.device, self.dims = device, dims
        self.total: torch.Tensor = torch.zeros(())
        self.count = 0

    def update(self, sample: torch.Tensor) -> None:
        """Add one sample."""
        data = sample.detach().to(self.device).double().abs()
        axes = _axes(data, self.dims)
        self.total = self.total + data.sum(dim=axes)
        self.count += _counted(data, axes)

    def result(self) -> dict[str, Any]:
        """The mean over all samples."""
        return {"abs_mean": self.total / self.count, "count": self.count}


def _counted(data: torch.Tensor, axes: list[int]) -> int:
    """How many elements each result is made of."""
    count = 1
    for axis in axes:
        count *= data.shape[axis]
    return count


def _quantile(data: torch.Tensor, share: float) -> torch.Tensor:
    """torch.quantile without its limit of 2**24 elements."""
    ordered = data.sort(dim=-1).values
    place = share * (data.shape[-1] - 1)
    below = int(place)
    above = min(below + 1, data.shape[-1] - 1)
    return torch.lerp(ordered[..., below], ordered[..., above], place - below)


STATISTICS: Mapping[str, Callable[..., Statistic]] = {
    "record": Record,
    "variance_online": VarianceOnline,
    "variance_precise": VariancePrecise,
    "range_n_sigma": RangeNSigma,
    "range_quantile": RangeQuantile,
    "range_min_max": RangeMinMax,
    "abs_mean": AbsMean,
}


def make(wanted: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Statistic]:
    """Statistics by name with their options. Raises ValueError for an unknown name or option."""
    found: dict[str, Statistic] = {}
    for name, settings in wanted.items():
        if name not in STATISTICS:
            raise ValueError(f"there is no statistic {name!r}{suggest(name, STATISTICS, 'known are')}")
        try:
            found[name] = STATISTICS[name](**(settings or {}))
        except TypeError as error:
            raise ValueError(f"the statistic {name} does not take {settings!r}: {error}") from error
    return found
