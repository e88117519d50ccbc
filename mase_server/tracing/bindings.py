"""What the rewritten code reports: which tensors were bound to which names, and in which module instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from mase_server.tracing.loading.instrument import Site
from mase_server.tracing.sizes import TracedInt
from mase_server.tracing.values import DictOf, TupleOf, Value, describe, fields_of, holds_tensor, tensors_in

if TYPE_CHECKING:
    from mase_server.tracing.recorder import Recorder

#: Types that can hold no tensor, by far the most frequent ones.
_PLAIN = {int, float, str, bool, type(None), type, torch.Size, torch.dtype, torch.device, bytes, complex, TracedInt}
#: A site that ran more often than this in one recording is a loop over data: the rest adds nothing.
MAX_EVENTS = 200_000
#: A site with so many containers that hold no tensor is a loop over other things: it is not looked at any more.
PATIENCE = 128


@dataclass(frozen=True, slots=True)
class Event:
    """One value seen at one site. `scope` indexes the recording's scopes, `node` its calls (-1: made by no call).

    parts: for a container, the calls that made its tensors, in order.
    """

    site: int
    value: Value
    scope: int
    node: int
    parts: tuple[int, ...] = ()

    @property
    def calls(self) -> tuple[int, ...]:
        """The call that made each tensor of the value, in order; -1 for none."""
        return self.parts or (self.node,)


@dataclass(slots=True)
class Reports:
    """Collects events. Sites of all files share one numbering: `sites[i]` is (path, Site)."""

    sites: list[tuple[str, Site]] = field(default_factory=list)
    #: Events outside any recording: at import, in constructors, around the call of the model.
    outside: list[Event] = field(default_factory=list)
    recorder: Recorder | None = None
    #: The values of `outside`, so that a model's inputs and outputs are recognised there by identity.
    kept: list[Any] = field(default_factory=list)
    _muted: int = 0
    #: site -> how many containers without a tensor it has had.
    _barren: dict[int, int] = field(default_factory=dict)

    def reporter(self, path: str, sites: tuple[Site, ...]) -> Callable[[int, Any], Any]:
        """The function that the rewritten code of `path` calls as `__mase__`."""
        base = len(self.sites)
        self.sites.extend((path, site) for site in sites)
        plain, add = _PLAIN, self._add

        def see(index: int, value: Any) -> Any:
            kind = type(value)
            if kind not in plain:
                if isinstance(value, torch.Tensor):
                    add(base + index, value)
                elif kind not in _HOLDERS:
                    _classify(kind, value)
                    if _HOLDERS.get(kind):
                        self._add_container(base + index, value)
                elif _HOLDERS[kind]:
                    self._add_container(base + index, value)
            return value

        return see

    def _add_container(self, site: int, value: Any) -> None:
        # A tokenizer's tables are built in loops of a hundred thousand rounds.
        barren = self._barren.get(site, 0)
        if barren >= PATIENCE:
            return
        with torch._C.DisableTorchFunction():
            if holds_tensor(value):
                self._add(site, value)
            else:
                self._barren[site] = barren + 1

    @contextmanager
    def muted(self) -> Iterator[None]:
        """What runs inside is a trial: it reports nothing."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    @contextmanager
    def on_trial(self) -> Iterator[None]:
        """What runs inside is reported only if it raises nothing."""
        before = len(self.outside)
        try:
            yield
        except BaseException:
            del self.outside[before:], self.kept[before:]
            raise

    def _add(self, site: int, value: Any) -> None:
        if self._muted:
            return
        recorder = self.recorder
        if recorder is not None and recorder.doubts(value):
            return
        with torch._C.DisableTorchFunction():
            described = describe(value)
        if recorder is not None:
            if len(recorder.events) < MAX_EVENTS:
                node = recorder.node_of_value(value)
                alone = isinstance(value, torch.Tensor)
                parts = () if alone else tuple(map(recorder.node_of_value, tensors_in(value)))
                recorder.events.append(Event(site, described, recorder.scope, node, parts))
        elif len(self.outside) < MAX_EVENTS:
            self.kept.append(value)
            self.outside.append(Event(site, described, -1, -1))


#: type -> may instances hold tensors? Filled as types are met.
_HOLDERS: dict[type, bool] = {tuple: True, list: True, dict: True}


def _classify(kind: type, value: Any) -> None:
    if isinstance(value, torch.nn.Module | type) or callable(value):
        _HOLDERS[kind] = False
    else:
        _HOLDERS[kind] = isinstance(value, list | tuple) or fields_of(value) is not None


def is_shown(value: Value) -> bool:
    """Does a description hold a tensor, so that a hint is worth showing?"""
    if isinstance(value, TupleOf):
        return any(is_shown(item) for item in value.items)
    if isinstance(value, DictOf):
        return any(is_shown(item) for _, item in value.items)
    return not hasattr(value, "name")
