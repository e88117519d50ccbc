"""The content of a recording, as plain data: calls in execution order, from which an fx graph can be built, and the
values that names were bound to.

Because a recording is data, recordings at several sizes can be compared call by call, and an argument that varies
becomes arithmetic on input sizes. User code meets no symbolic integer.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from mase_server.ops.types import Kwargs
from mase_server.tracing.importing.rewrite import Site
from mase_server.tracing.recording.positions import Stack
from mase_server.tracing.recording.sizes import SizeLog, TracedInt
from mase_server.tracing.recording.values import (
    DictOf,
    TupleOf,
    Value,
    describe_value,
    fields_of,
    holds_tensor,
)

if TYPE_CHECKING:
    from mase_server.tracing.recording.recorder import Recorder


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """In a call's arguments: the result of the call with this index. Made by `ref`, one object for each index."""

    index: int


_REFS: list[Ref] = []


def ref(index: int) -> Ref:
    """The one `Ref` to a call: arguments of two recordings can so be compared by identity, in C."""
    while len(_REFS) <= index:
        _REFS.append(Ref(len(_REFS)))
    return _REFS[index]


@dataclass(frozen=True, slots=True)
class Constant:
    """In a call's arguments, or as the target of a get_attr: an object that belongs to the graph, by its name."""

    name: str


#: What the names of the `Constant`s of a recording stand for.
Constants = dict[str, Any]


@dataclass(slots=True)
class Call:
    """One node to be: fx op, target, arguments with `Ref` for results of earlier calls, and what came out.

    For call_module and get_attr the target is the qualified name. `helper` marks a getitem or getattr that only takes
    a container apart: it is dropped where nothing uses it. `cast`: the type to which autocast casts while it runs.
    """

    kind: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Kwargs
    value: Value
    scope: int
    stack: Stack
    helper: bool = False
    cast: torch.dtype | None = None
    _sources: list[int] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def sources(self) -> list[int]:
        """The indices of the calls whose results it takes, in order; many ask for them once the recording is done."""
        if self._sources is None:
            self._sources = references((self.args, self.kwargs))
        return self._sources


@dataclass(frozen=True, slots=True)
class Look:
    """One look at values: the method's name, its arguments, and the value seen. after: the number of calls before."""

    asked: str
    arguments: tuple[Any, ...]
    seen: Any
    after: int
    stack: Stack


@dataclass(slots=True)
class Run:
    """One recording of one forward.

    scopes: (module path, module type), index 0 is the root.  inputs: forward's parameters by name, as descriptions.
    placeholders: parameter name -> index of its call.  constants: what `Constant` names stand for.  result: the
    description of what forward returned.  seconds: wall time of the recording.  reads: how often the forward looked at
    values; looks: those looks that the graph can check.  sizes: what the forward asked of sizes.
    state: the attribute by which a second call would compute something else, "" for none.  changed: the inputs, such as
    caches, in which the forward puts other tensors.
    """

    calls: list[Call]
    scopes: list[tuple[str, type]]
    events: list[Event]
    placeholders: dict[str, int]
    constants: Constants
    result: Value
    seconds: float
    untracked: list[str] = field(default_factory=list)
    reads: int = 0
    sizes: SizeLog | None = None
    looks: list[Look] = field(default_factory=list)
    state: str = ""
    changed: tuple[str, ...] = ()


_METHOD_TYPES = (types.MethodDescriptorType, types.WrapperDescriptorType)


def classify(func: Callable[..., Any]) -> tuple[str, Any]:
    """fx op and target of a torch callable: methods of Tensor become call_method, operators their `operator`."""
    name = getattr(func, "__name__", "")
    if name in _OPERATORS and getattr(torch.Tensor, name, None) == func:
        return "call_function", _OPERATORS[name]
    if isinstance(func, _METHOD_TYPES):
        return "call_method", name
    # `__pow__` is a wrapper of torch._tensor that is named `pow`.
    if isinstance(func, types.FunctionType) and func.__module__ == "torch._tensor" and hasattr(torch.Tensor, name):
        return "call_method", name
    return "call_function", func


def _load_operators() -> Mapping[str, Callable[..., Any]]:
    import operator

    return {"__getitem__": operator.getitem, "__setitem__": operator.setitem}


_OPERATORS = _load_operators()


def references(value: Any) -> list[int]:
    """Indices of the calls that nested arguments refer to, in order."""
    found: list[int] = []
    _collect_references(value, found)
    return found


def _collect_references(item: Any, found: list[int]) -> None:
    if type(item) is Ref:
        found.append(item.index)
    elif isinstance(item, (list, tuple)):
        for part in item:
            _collect_references(part, found)
    elif isinstance(item, dict):
        for part in item.values():
            _collect_references(part, found)
    elif isinstance(item, slice):
        _collect_references((item.start, item.stop, item.step), found)


def with_types(value: Any, calls: list[Call]) -> Any:
    """Nested arguments with every `Ref` replaced by the `TensorType` (or description) of that call's result."""
    if isinstance(value, Ref):
        return calls[value.index].value
    if isinstance(value, (list, tuple)):
        items = [with_types(item, calls) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: with_types(item, calls) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(with_types(item, calls) for item in (value.start, value.stop, value.step)))
    return value


# The reports of the rewritten code: which tensors were bound to which names, and in which module instance.


# Scopes: the module instance that a node belongs to.


@dataclass(slots=True)
class Scope:
    """The module path and the module type that contain a node; `Scope("", None)` at the root.

    module_path: the module's qualified name in the model.  module_type: its class.
    Source: `dmx.compressor.fx.tracer.Scope`.

    >>> Scope("encoder.0", nn.Linear)
    Scope(module_path='encoder.0', module_type=<class 'torch.nn.modules.linear.Linear'>)
    """

    module_path: str
    module_type: Any


class ScopeContextManager:
    """Sets `scope` to a module while its forward runs, and restores the previous one on leaving, also after an
    exception.

    scope: the scope that is changed, also returned by `with`.  current_module, current_module_path: the module and
    its qualified name.
    Source: `dmx.compressor.fx.tracer.ScopeContextManager`.

    >>> scope = Scope("", None)
    >>> with ScopeContextManager(scope, nn.ReLU(), "act"):
    ...     scope.module_path
    'act'
    >>> scope
    Scope(module_path='', module_type=None)
    """

    def __init__(self, scope: Scope, current_module: torch.nn.Module, current_module_path: str) -> None:
        self.scope = scope
        self.prev_module_path = scope.module_path
        self.prev_module_type = scope.module_type
        self._path, self._type = current_module_path, type(current_module)

    def __enter__(self) -> Scope:
        self.scope.module_path, self.scope.module_type = self._path, self._type
        return self.scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.scope.module_path, self.scope.module_type = self.prev_module_path, self.prev_module_type


#: Types that can hold no tensor, by far the most frequent ones.
_PLAIN = {int, float, str, bool, type(None), type, torch.Size, torch.dtype, torch.device, bytes, complex, TracedInt}
#: A site that runs more often than this in one recording is a loop over data: its further values add nothing.
MAX_EVENTS = 200_000
#: A site with so many containers without tensors is a loop over other things: it is ignored from then on.
PATIENCE = 128


@dataclass(slots=True)
class Event:
    """One value seen at one site. `scope` indexes the recording's scopes, `node` its calls (-1: made by no call).

    parts: for a container, the calls that made its tensors, in order. It is not frozen, which makes it thrice as fast.
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
    #: site -> the number of its containers without a tensor.
    _barren: dict[int, int] = field(default_factory=dict)
    #: type -> may instances hold tensors? Filled as types are met.
    _holders: dict[type, bool] = field(default_factory=lambda: {tuple: True, list: True, dict: True})

    def reporter(self, path: str, sites: tuple[Site, ...]) -> Callable[[int, Any], Any]:
        """The function that the rewritten code of `path` calls as `__mase__`."""
        base = len(self.sites)
        self.sites.extend((path, site) for site in sites)
        plain, add, holders = _PLAIN, self._add_event, self._holders

        def see(index: int, value: Any) -> Any:
            kind = type(value)
            if kind not in plain:
                if isinstance(value, torch.Tensor):
                    add(base + index, value)
                else:
                    if kind not in holders:
                        holders[kind] = _may_hold_tensors(value)
                    if holders[kind]:
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
                self._add_event(site, value)
            else:
                self._barren[site] = barren + 1

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Inside, a trial runs: nothing is reported."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    @contextmanager
    def on_trial(self) -> Iterator[list[Event]]:
        """Inside, values are reported only if nothing is raised; gives the list of them, for `forget`."""
        before, reported = len(self.outside), list[Event]()
        try:
            yield reported
        except BaseException:
            del self.outside[before:], self.kept[before:]
            raise
        reported += self.outside[before:]

    def forget(self, reported: Sequence[Event] | None) -> None:
        """Take back what a trial reported: the model that it made is not the one that is shown."""
        gone = set(map(id, reported or ()))
        if gone:
            pairs = [pair for pair in zip(self.outside, self.kept, strict=True) if id(pair[0]) not in gone]
            self.outside[:], self.kept[:] = [event for event, _ in pairs], [value for _, value in pairs]

    def _add_event(self, site: int, value: Any) -> None:
        if self._muted:
            return
        recorder = self.recorder
        if recorder is not None and recorder.doubts(value):
            return
        with torch._C.DisableTorchFunction():
            described = describe_value(value)
        if recorder is not None:
            if len(recorder.events) < MAX_EVENTS:
                node, parts = recorder.origins(value)
                recorder.events.append(Event(site, described, recorder.scope, node, parts))
        elif len(self.outside) < MAX_EVENTS:
            self.kept.append(value)
            self.outside.append(Event(site, described, -1, -1))


def _may_hold_tensors(value: Any) -> bool:
    if isinstance(value, (torch.nn.Module, type)) or callable(value):
        return False
    return isinstance(value, (list, tuple)) or fields_of(value) is not None


def is_shown(value: Value) -> bool:
    """Does a description contain a tensor, so that a hint is worth showing?"""
    if isinstance(value, TupleOf):
        return any(is_shown(item) for item in value.items)
    if isinstance(value, DictOf):
        return any(is_shown(item) for _, item in value.items)
    return not hasattr(value, "name")
