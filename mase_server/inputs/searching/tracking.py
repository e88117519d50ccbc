"""Running a forward on meta so that its error tells which call raised it, and which inputs that came from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from mase_server.tracing.calling import GETTER, Values, leaves
from mase_server.tracing.errors.bounds import check
from mase_server.tracing.shadow import MetaMode, Shadows


class TrackingMode(MetaMode):
    """MetaMode that remembers what every tensor was computed from, until it is dropped.

    lines: how many lines outside of torch completed torch calls, one after another.  made: their tensors, in order.
    """

    def __init__(self, shadows: Shadows) -> None:
        super().__init__(shadows)
        self.lines = 0
        self._line: tuple[Any, int] | None = None
        self.made: list[torch.Tensor] = []
        self.sources: dict[int, frozenset[int]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Values = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Reading a shape is no progress, and copies nothing.
        if type(func) is GETTER:
            return self.run(func, args, kwargs or {})
        check(func, args, kwargs or {}, self.shadows)
        out = self.run(func, args, kwargs or {})
        self._count()
        came_from = frozenset[int]().union(*(self.sources_of(tensor) for tensor in leaves((args, kwargs))))
        for tensor in leaves(out):
            if id(tensor) not in self.sources:
                self.made.append(tensor)
                self.sources[id(tensor)] = came_from
        return out

    def _count(self) -> None:
        """A layer may make more calls for one input than for another: only whose line it is counts."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_globals.get("__name__", "").startswith(("torch.", "mase_server.")):
            frame = frame.f_back
        line = (frame.f_code, frame.f_lineno) if frame is not None else None
        if line != self._line:
            self._line = line
            self.lines += 1

    def sources_of(self, tensor: torch.Tensor) -> frozenset[int]:
        """Ids of the tensors, made by no call, that a tensor was computed from; its own if it is one."""
        return self.sources.get(id(tensor), frozenset((id(tensor),)))


@dataclass(frozen=True, slots=True)
class Trail:
    """What the traceback of an error tells: the torch call that raised it, if one did, and the run's mode."""

    func: Callable[..., Any] | None = None
    args: Values = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    mode: TrackingMode | None = None

    @property
    def progress(self) -> int:
        """How far the run came, in lines."""
        return self.mode.lines if self.mode is not None else 0

    @property
    def name(self) -> str:
        """The call's plain name: `add` for `__add__`, `__radd__` and `torch.add` alike."""
        name = getattr(self.func, "__name__", "").strip("_")
        return {"radd": "add", "rsub": "sub", "rmul": "mul", "iadd": "add", "imul": "mul"}.get(name, name)


def trail_of(error: BaseException) -> Trail:
    """Read an error that came out of a `TrackingMode`; empty where it did not."""
    found, trace = Trail(), error.__traceback__
    while trace is not None:
        held = trace.tb_frame.f_locals
        code = trace.tb_frame.f_code
        if code is TrackingMode.__torch_function__.__code__:
            found = Trail(held["func"], held["args"], held["kwargs"] or {}, held["self"])
        elif found.mode is None and isinstance(held.get("tracking"), TrackingMode):
            found = Trail(mode=held["tracking"])
        trace = trace.tb_next
    return found


def operands(trail: Trail) -> Iterator[torch.Tensor]:
    """The tensors of the call that raised."""
    return leaves((trail.args, trail.kwargs))
