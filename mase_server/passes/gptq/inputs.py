"""What the rows of a weight are multiplied with, as the Hessian of GPTQ: the mean of x x^T."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from torch import Tensor, fx, nn
from torch.nn import functional as F

from mase_server.formats import with_parameters
from mase_server.ir.build import attribute
from mase_server.passes.weighted import Weighted

#: Inputs of a layer up to which its Hessian is in float64; beyond, time and memory count.
EXACT = 1024
#: Inputs of one run that are heard, spread evenly, where a layer has more: rows of a linear one, places of each sample.
HEARD = 1 << 13
#: Arguments of a convolution, in torch's order.
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")


@dataclass(slots=True)
class Hessian:
    """The mean of x x^T over all inputs so far; total: [groups, inputs, inputs], float32 if inputs are many."""

    total: Tensor | None = None
    count: int = 0
    _read: Callable[[Tensor], Iterator[Tensor]] = field(default=lambda values: iter([values]))

    @classmethod
    def of(cls, layer: Weighted, module: nn.Module) -> Hessian:
        """For a layer of a graph."""
        if not layer.operator.startswith("conv"):
            return cls(_read=_rows)
        window = _window(layer.node, module, layer.weight(module))
        return cls(_read=window.inputs)

    def add(self, values: Tensor) -> None:
        """The inputs of one run."""
        for inputs in self._read(values.detach()):
            exact = inputs.double() if inputs.shape[-1] <= EXACT else inputs.float()
            products = exact.mT @ exact
            self.total = products if self.total is None else self.total + products
            self.count += exact.shape[1]

    def mean(self, group: int) -> Tensor:
        """[inputs, inputs] of one group of the outputs. ValueError where nothing was seen."""
        if self.total is None or not self.count:
            raise ValueError("gptq: a layer never got any input; give data that reaches it")
        return self.total[group] / self.count


def _rows(values: Tensor) -> Iterator[Tensor]:
    rows = values.reshape(1, -1, values.shape[-1])
    yield rows[:, :: max(1, ceil(rows.shape[1] / HEARD))]


@dataclass(frozen=True, slots=True)
class _Window:
    """What a convolution's kernel sees. pads: left and right of each dimension, the last dimension first."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    mode: str
    groups: int

    def inputs(self, values: Tensor) -> Iterator[Tensor]:
        """[groups, positions, channels of a group * kernel], sample by sample."""
        samples = values if values.dim() == len(self.kernel) + 2 else values[None]
        for sample in samples:
            seen = F.pad(sample[None], self.pads, mode=self.mode)[0]
            for axis, (size, step, apart) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True), 1):
                seen = seen.unfold(axis, (size - 1) * apart + 1, step)[..., ::apart]
            yield self._grouped(self._heard(seen))

    def _heard(self, seen: Tensor) -> Tensor:
        """Every n-th position in each direction, so that there are not too many."""
        count = len(self.kernel)
        step = max(1, ceil((prod(seen.shape[1 : 1 + count]) / HEARD) ** (1 / count)))
        return seen[(slice(None), *[slice(None, None, step)] * count)]

    def _grouped(self, seen: Tensor) -> Tensor:
        count = len(self.kernel)
        channels, positions = seen.shape[0], seen.shape[1 : 1 + count]
        split = seen.reshape(self.groups, channels // self.groups, positions.numel(), *self.kernel)
        return split.transpose(1, 2).reshape(self.groups, positions.numel(), -1)


def _window(node: fx.Node, module: nn.Module, weight: Tensor) -> _Window:
    given = _arguments(node, module)
    kernel = tuple(weight.shape[2:])
    dilation = _each(given.get("dilation", 1), kernel)
    return _Window(
        kernel,
        _each(given.get("stride", 1), kernel),
        dilation,
        _pads(given.get("padding", 0), kernel, dilation),
        {"zeros": "constant"}.get(mode := str(given.get("padding_mode", "zeros")), mode),
        int(given.get("groups", 1)),
    )


def _arguments(node: fx.Node, module: nn.Module) -> dict[str, Any]:
    if node.target is with_parameters or node.op == "call_module":
        layer = node.args[0] if node.op == "call_function" else node
        assert isinstance(layer, fx.Node)
        convolution = attribute(module, str(layer.target))
        return {name: getattr(convolution, name) for name in (*_CONVOLUTION[3:], "padding_mode")}
    return {**dict(zip(_CONVOLUTION, node.args, strict=False)), **node.kwargs}


def _each(value: int | Sequence[int], kernel: tuple[int, ...]) -> tuple[int, ...]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    return sizes * len(kernel) if len(sizes) == 1 else sizes


def _pads(padding: str | int | Sequence[int], kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
    if padding == "same":
        totals = [apart * (size - 1) for size, apart in zip(kernel, dilation, strict=True)]
        pairs = [(total // 2, total - total // 2) for total in totals]
    else:
        pairs = [(size, size) for size in _each(0 if isinstance(padding, str) else padding, kernel)]
    return tuple(size for pair in reversed(pairs) for size in pair)
