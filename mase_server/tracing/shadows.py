"""Real values of meta tensors, kept by identity."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch

from mase_server.tracing.calling import like
from mase_server.tracing.results import Result

#: Tensors with more elements keep no real value; code that needs one is traced again with the larger limit.
SHADOW_LIMIT = 1 << 14
LARGE_SHADOW_LIMIT = 1 << 20


class Shadows:
    """Real values of meta (or fake) tensors, kept by identity.

    Every tensor that was ever given a value stays alive, so that ids are unique.
    """

    def __init__(self, limit: int = SHADOW_LIMIT) -> None:
        self.limit = limit
        #: What calls gave that depend on nothing but the types of their arguments: meta kernels are slow.
        self.results: dict[Any, Result] = {}
        self._real: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._tainted: set[int] = set()
        self._undo: list[tuple[torch.Tensor, torch.Tensor]] | None = None
        self._watched = 0, frozenset[int]()

    def get(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The real value of `tensor`, None where it is not known."""
        entry = self._real.get(id(tensor))
        if entry is None:
            return None
        real = entry[1]
        if self._tainted:
            with torch._C.DisableTorchFunction():
                if real.untyped_storage()._cdata in self._tainted:
                    return None
        return real

    def put(self, tensor: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Remember `real` as the value of `tensor`, if it is small; gives `tensor` back."""
        if _weight(real) <= self.limit:
            self._real[id(tensor)] = (tensor, real)
        return tensor

    def twin(self, real: torch.Tensor, *, known: bool = True) -> torch.Tensor:
        """The meta tensor that stands for `real`: always the same one for the same tensor."""
        entry = self._twins.get(id(real))
        if entry is not None:
            return entry[1]
        meta = like(real, "meta")
        self._twins[id(real)] = (real, meta)
        if known:
            self._real[id(meta)] = (meta, real)
        return meta

    def taint(self, tensor: torch.Tensor) -> None:
        """An unknown value was written into `tensor`: neither it nor its views and bases are known any more."""
        real = self.get(tensor)
        if real is not None:
            with torch._C.DisableTorchFunction():
                self._tainted.add(real.untyped_storage()._cdata)

    def written(self, real: torch.Tensor) -> None:
        """`real` is about to be changed in place: keep a copy while a `rewind` watches."""
        if self._undo is not None:
            self._undo.append((real, real.clone()))

    def watch(self) -> None:
        """From now on, remember what is overwritten."""
        self._undo = []
        self._watched = len(self._real), frozenset(self._tainted)

    def rewind(self) -> None:
        """Put back every value that was overwritten since `watch`; what was known then is known again."""
        undo, self._undo = self._undo or [], None
        for real, before in reversed(undo):
            if real.shape == before.shape:
                with torch.no_grad():
                    real.copy_(before)
        count, tainted = self._watched
        if new := self._tainted - tainted:
            with torch._C.DisableTorchFunction():
                known = (real for _, real in islice(self._real.values(), count))
                self._tainted -= new & {real.untyped_storage()._cdata for real in known}


def _weight(real: torch.Tensor) -> int:
    """Elements that a value takes in memory; one that repeats a few (`mask.expand(...)`) takes only those."""
    count = real.numel()
    if count > LARGE_SHADOW_LIMIT or real.layout is not torch.strided:
        return count
    with torch._C.DisableTorchFunction():
        return min(count, real.untyped_storage().nbytes() // max(1, real.element_size()))
