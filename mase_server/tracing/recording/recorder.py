"""Recording by running: the model's own forward runs on meta tensors, and every torch call becomes a future node.

Real Python control flow is executed unchanged; tensors are followed by identity.

Every tensor that a recording saw stays alive, so ids are unique. A call that returns one of its inputs gives an alias,
and an in-place call, which torch's version counter shows, rebinds its tensor. The order of the graph is the order of
execution, and no call with an effect is dropped.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch
from torch import nn

from mase_server.ops.paths import identity, named_modules, paths_by_identity, plain_attribute_path
from mase_server.ops.types import Kwargs
from mase_server.tracing.diagnosis.failure import Failure
from mase_server.tracing.guards import seen_of
from mase_server.tracing.recording.calling import (
    GETTER,
    PRINTS,
    READS,
    Held,
    ModuleCalls,
    Vmapped,
    autocast_key,
    find_replaced,
    gives_data,
    module_calls_routed,
    read_version_counter,
    state_of,
    vmap_through,
)
from mase_server.tracing.recording.calls import Call, Constant, Constants, Event, Look, Reports, Run, classify, ref
from mase_server.tracing.recording.positions import Stack, capture_stack
from mase_server.tracing.recording.shadow import MetaMode, Shadows, asking_module
from mase_server.tracing.recording.sizes import Size, SizeLog, TracedInt, subscript_to_come
from mase_server.tracing.recording.values import (
    Attributes,
    Python,
    Rebuild,
    Seeded,
    Value,
    describe_value,
    fields_of,
    holds_tensor,
    tensors_in,
)

IsLeaf = Callable[[nn.Module, str], bool]

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
_SIMPLE = (
    bool, int, float, str, complex, torch.dtype, torch.device, torch.layout, torch.memory_format, range,
    type(None), type(Ellipsis),
)  # fmt: skip
#: Modules that check for a mask that a shorter way computes too: without it the result is the same.
_MASK_SHORTCUTS = (
    "transformers.masking_utils", "transformers.modeling_attn_mask_utils", "torch.nn.modules.transformer",
)  # fmt: skip
#: A module that looks at values only to warn of padding.
_ONLY_WARNS = "transformers.modeling_utils"
#: The most frames that a recorder adds between a module's caller and its forward, and around everything.
_FRAMES, _OUTER_FRAMES = 3, 100
#: Calls that return as many tensors as a dimension has parts -> the position of that argument.
PARTS = {"unbind": 1, "split": 2}
#: The original builtin, which is replaced while a forward is recorded.
len_of = len
_UNRECORDEDGETTERS = frozenset({"grad", "_base", "grad_fn"})


def _compiled_code_as_written() -> AbstractContextManager[None]:
    """Inside, functions and modules that the caller compiled run as they are written."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def is_torch_leaf(module: nn.Module, path: str) -> bool:
    """The default leaf rule: modules of torch.nn and torch.ao.nn, containers excepted."""
    home = type(module).__module__
    return home.startswith(("torch.nn", "torch.ao.nn")) and not isinstance(module, _CONTAINERS)


class Recorder(MetaMode):
    """Records one forward of `root`.

    >>> run = Recorder(nn.Linear(4, 2), Shadows()).record((torch.randn(3, 4),), {})
    >>> [call.kind for call in run.calls]
    ['placeholder', 'call_module', 'output']
    """

    def __init__(
        self,
        root: nn.Module,
        shadows: Shadows,
        *,
        is_leaf: IsLeaf = is_torch_leaf,
        positions: bool = True,
        reports: Reports | None = None,
        leaf_functions: Mapping[Callable[..., Any], str] | None = None,
    ) -> None:
        super().__init__(shadows)
        self.root, self.is_leaf, self.positions, self.reports = root, is_leaf, positions, reports
        self.calls: list[Call] = []
        self.events: list[Event] = []
        self.scopes: list[tuple[str, type]] = [("", type(root))]
        self.scope = 0
        self.constants: Constants = {}
        self.untracked: list[str] = []
        #: How often the forward looked at values, on which its path may then depend.
        self.reads = 0
        self.looks: list[Look] = []
        self.sizes = SizeLog(positions)
        self.failure: Failure | None = None
        #: Is more than the first error wanted, of a recorder that can go on after one?
        self.goes_on = True
        self._nodes: dict[int, int] = {}
        self._keep: list[Any] = []
        #: The kept tensors by their memory, as far as they are indexed: a search through all would take ever longer.
        self._by_memory: dict[Any, list[torch.Tensor]] = {}
        self._indexed = 0
        self._paused = 0
        self._held: Held | None = None
        self._stop: FrameType | None = None
        #: The frame of the innermost module call, and the stack above it, which its calls have in common.
        self._near: FrameType | None = None
        self._outer: Stack = ()
        self._module_paths, self._attributes = paths_by_identity(root)
        self._scope_ids: dict[str, int] = {"": 0}
        self._plain_attributes: dict[int, str] | None = None

    # Running.

    def record(self, args: tuple[Any, ...], kwargs: Kwargs) -> Run:
        """Run the root's forward on `args` and `kwargs`, which may be real or meta, and return the recording.

        Exceptions of the forward pass through; `failure` and the calls so far then show how far it came.
        """
        self._stop = self._near = sys._getframe()
        started = time.perf_counter()
        args, kwargs = self._symbolic_inputs(args), self._symbolic_inputs(kwargs)
        placeholders = self._placeholders(args, kwargs)
        given = {part: (item, _held_tensors(item)) for part, item in self._iterate_inputs(args, kwargs)}
        self.sizes.muted = False
        try:
            with (
                _intercept_module_calls(self),
                vmap_through(self._record_vmap),
                self._listening(),
                _compiled_code_as_written(),
                torch.no_grad(),
                self,
            ):
                self.output = self.root(*args, **kwargs)
        finally:
            self.sizes.muted = True
        result = describe_value(self.output)
        self._add("output", "output", (self._output_argument(self.output),), {}, result, ())
        seconds = time.perf_counter() - started
        return Run(
            self.calls, self.scopes, self.events, placeholders, self.constants, result, seconds,
            self.untracked, self.reads, self.sizes, self.looks,
            changed=tuple(part for part, (item, held) in given.items() if not _are_same(_held_tensors(item), held)),
        )  # fmt: skip

    def partial(self) -> Run:
        """The recording up to the failure of the forward."""
        names = {str(call.target): index for index, call in enumerate(self.calls) if call.kind == "placeholder"}
        return Run(self.calls, self.scopes, self.events, names, self.constants, Python("unknown"), 0.0, self.untracked)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        if self.reports is None:
            yield
            return
        before, self.reports.recorder = self.reports.recorder, self
        try:
            yield
        finally:
            self.reports.recorder = before

    def _symbolic_inputs(self, value: Any) -> Any:
        """Inputs with real tensors replaced by their meta twins, containers rebuilt."""
        if isinstance(value, torch.Tensor):
            return value if value.is_meta or isinstance(value, nn.Parameter) else self._stand_in(value)
        if not (holds_tensor(value) or _get_tensor_state(value)):
            return value
        return Rebuild.of(value).changed(self._symbolic_inputs)

    def _placeholders(self, args: tuple[Any, ...], kwargs: Kwargs) -> dict[str, int]:
        found: dict[str, int] = {}
        for part, item in self._iterate_inputs(args, kwargs):
            found[part] = self._add("placeholder", part, (), {}, describe_value(item), ())
            self._bind(item, found[part])
        return found

    def _iterate_inputs(self, args: tuple[Any, ...], kwargs: Kwargs) -> Iterator[tuple[str, Any]]:
        """The arguments that hold tensors, by their names in the graph."""
        forward: object = self.root.forward
        if not callable(forward):
            return  # the call says so
        signature = inspect.signature(forward)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            kind = signature.parameters[name].kind
            parts: Iterable[tuple[str, Any]] = ((name, value),)
            if kind is inspect.Parameter.VAR_KEYWORD:
                parts = value.items()
            elif kind is inspect.Parameter.VAR_POSITIONAL:
                parts = ((f"{name}_{position}", item) for position, item in enumerate(value))
            for part, item in parts:
                if holds_tensor(item) or _get_tensor_state(item):
                    yield part, item

    # Torch calls.

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Kwargs | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        func = find_replaced(func)
        if self._held is not None:
            self._held.look((args, kwargs))
        muted, self.sizes.muted = self.sizes.muted, True
        try:
            return self._run_and_record(func, args, kwargs)
        finally:
            self.sizes.muted = muted

    def _run_and_record(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        try:
            out = self.run(func, args, kwargs)
        except Exception as error:
            if self.failure is None or self.failure.error is not error:
                self.failure = Failure.of(error, func, args, kwargs, self._scope_path())
            raise
        if self._paused:
            return out
        if func is torch.Tensor.size or (type(func) is GETTER and func.__self__.__name__ == "shape"):  # type: ignore[attr-defined]
            return self._trace_sizes(args[0], out, args[1] if len(args) > 1 else kwargs.get("dim"))
        if type(func) is GETTER:
            return self._record_getter(func, args, out)
        if func is torch.Tensor.__len__ and (call := self._nodes.get(identity(args[0]))) is not None:
            self.sizes.ask(call, 0)
        if func in READS and func not in PRINTS:
            self.reads += 1
            self._record_seen_value(func, args)
        if func in READS or not (holds_tensor(out) or func is torch.Tensor.__setitem__):
            return out
        return self._record_call(func, args, kwargs, out)

    def _trace_sizes(self, tensor: torch.Tensor, out: Any, dimension: int | None) -> Any:
        """A size, or all sizes, of a tensor that a call made: numbers that log what the code does with them."""
        call = self._nodes.get(identity(tensor))
        if call is None:
            return out
        if isinstance(out, int):
            place = int(dimension or 0) % max(1, tensor.dim())
            self.sizes.ask(call, place)
            return TracedInt.of(out, Size(call, place), self.sizes)
        index = subscript_to_come()
        self.sizes.ask(call, None if index is None or not out else index % len(out))
        return torch.Size(TracedInt.of(size, Size(call, place), self.sizes) for place, size in enumerate(out))

    def length(self, value: Any) -> int:
        """`len(value)` while recording: for a tensor a number that logs what the code does with it."""
        found = len_of(value)
        if (
            self.sizes.muted
            or not isinstance(value, torch.Tensor)
            or (call := self._nodes.get(identity(value))) is None
        ):
            return found
        return TracedInt.of(found, Size(call, 0), self.sizes)

    def _record_seen_value(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Remember a value that the forward saw, if the graph can look there again."""
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        if not tensors or not any(identity(each) in self._nodes for each in tensors):
            return
        values: list[Any] = [self.shadows.get(each) if isinstance(each, torch.Tensor) else each for each in args]
        values = [value if value is not None else each for value, each in zip(values, args, strict=True)]
        seen = seen_of(func.__name__, *values)
        home = asking_module()
        if home == _ONLY_WARNS or (seen is False and home in _MASK_SHORTCUTS):
            return
        stack = self._capture_stack(5)
        arguments = tuple(self._argument(each) for each in args)
        self.looks.append(Look(func.__name__, arguments, seen, len(self.calls), stack))

    def _record_getter(self, func: Callable[..., Any], args: tuple[Any, ...], out: Any) -> Any:
        name = func.__self__.__name__  # type: ignore[attr-defined]
        if gives_data(func):
            self._record_given_data(*args)
        if not isinstance(out, torch.Tensor) or name in _UNRECORDEDGETTERS:
            return out
        arguments = (self._argument(args[0]), name)
        out = self._fresh(out)
        self._bind(out, self._add("call_function", getattr, arguments, {}, describe_value(out)))
        return out

    def _record_given_data(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        """After `tensor.data = data`: the model's own tensors take its values, others are the data from now on."""
        described = describe_value(data)
        if identity(tensor) not in self._attributes:
            self._bind(tensor, self._add("call_method", "detach", (self._argument(data),), {}, described))
            return
        with torch._C.DisableTorchFunction():
            view = tensor.detach()
        self._bind(view, self._add("call_function", getattr, (self._argument(tensor), "data"), {}, described))
        self._add("call_method", "copy_", (self._argument(view), self._argument(data)), {}, described)

    def _record_call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs, out: Any) -> Any:
        mutated = self.mutated
        arguments = tuple(self._argument(value) for value in args)
        named = {name: self._argument(value) for name, value in kwargs.items()}
        kind, target = classify(func)
        if not mutated:
            out = self._fresh(out)
        index = self._add(kind, target, arguments, named, describe_value(out))
        self._bind(out, index)
        place = PARTS.get(getattr(func, "__name__", ""))
        if (
            place is not None
            and isinstance(args[0], torch.Tensor)
            and (source := self._nodes.get(identity(args[0]))) is not None
        ):
            dimension = args[place] if len(args) > place else kwargs.get("dim", 0)
            self.sizes.ask(source, int(dimension) % max(1, args[0].dim()))
        return out

    def _fresh(self, out: Any) -> Any:
        """Make an alias for a call that returned one of its inputs, so that identity still means data flow."""
        if isinstance(out, torch.Tensor):
            if identity(out) not in self._nodes and identity(out) not in self._attributes:
                return out
            with torch._C.DisableTorchFunction():
                alias = out.detach() if not out.requires_grad else torch.ops.aten.alias(out)
            real = self.shadows.get(out)
            return alias if real is None else self.shadows.put(alias, real)
        if type(out) in (tuple, list):
            return type(out)(self._fresh(item) for item in out)
        return out

    # Module calls.

    def call(self, module: nn.Module, args: Any, kwargs: Kwargs, original: Callable[..., Any]) -> Any:
        """Every `module(...)` while recording: a leaf becomes one node, others are run through."""
        path = self._module_paths.get(identity(module))
        if self._paused or path is None:
            return original(module, *args, **kwargs)
        if module is not self.root and self.is_leaf(module, path) and self._has_its_own(module):
            return self._call_leaf(module, path, args, kwargs, original)
        before = self.scope, self._near, self._outer
        self.scope = self._scope_of(path, module)
        if self.positions:
            self._outer, self._near = self._capture_stack(2), sys._getframe()
        try:
            return original(module, *args, **kwargs)
        finally:
            self.scope, self._near, self._outer = before

    def _has_its_own(self, module: nn.Module) -> bool:
        """Does it have the parameters that the model was given with? `torch.func.functional_call` lends it others."""
        return all(value is None or identity(value) in self._attributes for value in module._parameters.values())

    def _call_leaf(self, module: nn.Module, path: str, args: Any, kwargs: Kwargs, original: Callable[..., Any]) -> Any:
        arguments = tuple(self._argument(value) for value in args)
        named = {name: self._argument(value) for name, value in kwargs.items()}
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        self._paused += 1
        muted, self.sizes.muted = self.sizes.muted, True
        try:
            with torch._C.DisableTorchFunction():
                before = read_version_counter(first)
            out = original(module, *args, **kwargs)
        except Exception as error:
            if self.failure is None or self.failure.error is not error:
                with torch._C.DisableTorchFunction():
                    self.failure = Failure.of(error, module, args, kwargs, self._scope_path())
            if self.failure.module is None:
                self.failure = self.failure.inside(module, path)
            raise
        finally:
            self._paused -= 1
            self.sizes.muted = muted
        with torch._C.DisableTorchFunction():
            if not (out is first and read_version_counter(first) != before):
                out = self._fresh(out)
            index = self._add("call_module", path, arguments, named, describe_value(out), depth=3)
            self._bind(out, index)
        return out

    @contextmanager
    def inside_leaf(self) -> Iterator[None]:
        """While inside, calls are made and not recorded."""
        self._paused += 1
        muted, self.sizes.muted = self.sizes.muted, True
        try:
            yield
        finally:
            self._paused -= 1
            self.sizes.muted = muted

    def _record_vmap(
        self, original: Callable[..., Any], function: Callable[..., Any], *rest: Any, **kwargs: Any
    ) -> Any:
        """A call of a vmapped function; `rest`: in_dims, out_dims, randomness, chunk_size and the arguments."""
        if self._held is not None:
            self._held.look(rest)
        if self._paused:
            return original(function, *rest, **kwargs)
        options, args = rest[:4], rest[4:]
        self._paused, self._held, self.sizes.muted = 1, Held(self._is_known), True
        try:
            out = original(function, *rest, **kwargs)
            held = list(self._held.tensors.values())
        finally:
            self._paused, self._held, self.sizes.muted = 0, None, False
        target = self._add_constant(Vmapped(functools.partial(original, function, *options), held))
        with torch._C.DisableTorchFunction():
            given = [self._argument(value) for value in (list(args), kwargs, held)]
            index = self._add("call_function", target, (*given, state_of(function)), {}, describe_value(out), depth=3)
            self._bind(out, index)
        return out

    def _is_known(self, tensor: torch.Tensor) -> bool:
        known = identity(tensor) in self._nodes or identity(tensor) in self._attributes
        return known or self._plain_attribute(tensor) is not None

    def _scope_of(self, path: str, module: nn.Module) -> int:
        found = self._scope_ids.get(path)
        if found is None:
            found = self._scope_ids[path] = len(self.scopes)
            self.scopes.append((path, type(module)))
        return found

    def _scope_path(self) -> str:
        return self.scopes[self.scope][0]

    # Bookkeeping.

    def _add(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Kwargs,
        value: Value,
        stack: tuple[()] | None = None,
        *,
        depth: int = 4,
        helper: bool = False,
    ) -> int:
        found = self._capture_stack(depth + 1) if stack is None and self.positions else ()
        self.calls.append(Call(kind, target, args, kwargs, value, self.scope, found, helper, autocast_key()))
        return len(self.calls) - 1

    def _capture_stack(self, depth: int) -> Stack:
        return capture_stack(self._near, depth) + self._outer

    def _bind(self, value: Any, index: int, depth: int = 0) -> None:
        """From now on, the tensors in `value` are the result of call `index`."""
        if isinstance(value, torch.Tensor):
            self._nodes[identity(value)] = index
            self._keep.append(value)
            return
        if depth > 6:
            return
        access: Any = operator.getitem
        if isinstance(value, (list, tuple)):
            parts: Iterable[tuple[Any, Any]] = enumerate(value)
        elif isinstance(value, Mapping):
            parts = value.items()
        else:
            fields = fields_of(value)
            parts, access = (_get_tensor_state(value) if fields is None else fields).items(), getattr
        for key, part in parts:
            if holds_tensor(part) or (depth < 5 and _holds_state(part)):
                origin = self.calls[index]
                self.calls.append(
                    Call(
                        "call_function",
                        access,
                        (ref(index), key),
                        {},
                        describe_value(part),
                        origin.scope,
                        origin.stack,
                        True,
                    )
                )
                self._bind(part, len(self.calls) - 1, depth + 1)

    def node_of_value(self, value: Any) -> int:
        """The call that made a tensor, or the first tensor of a container; -1 if none did."""
        if isinstance(value, torch.Tensor):
            return self._nodes.get(identity(value), -1)
        if isinstance(value, (list, tuple)):
            for item in value:
                found = self.node_of_value(item)
                if found >= 0:
                    return found
        fields = fields_of(value) if value is not None else None
        return self.node_of_value(list(fields.values())) if fields else -1

    def origins(self, value: Any) -> tuple[int, tuple[int, ...]]:
        """The call that made a value, and for a container those of its tensors; a run at other sizes knows neither."""
        if not self.positions:
            return -1, ()
        alone = isinstance(value, torch.Tensor)
        return self.node_of_value(value), () if alone else tuple(map(self.node_of_value, tensors_in(value)))

    def made(self) -> set[int]:
        """The identities of the inputs, and of the tensors that calls computed."""
        return {each for each, index in self._nodes.items() if self.calls[index].kind != "get_attr"}

    def taken(self) -> set[int]:
        """The identities of the tensors that existed before."""
        return {each for each, index in self._nodes.items() if self.calls[index].kind == "get_attr"}

    def doubts(self, value: Any) -> bool:
        """Does a value depend on a guess? Nothing is reported of it then."""
        return False

    def _argument(self, value: Any) -> Any:
        """A call's argument as data: tensors as `Ref`, odd objects as `Constant`."""
        if isinstance(value, torch.Tensor):
            return ref(self._index_of(value))
        if isinstance(value, _SIMPLE):
            return self._encode_simple(value)
        if isinstance(value, torch.Size):
            return tuple(int(size) for size in value)
        if isinstance(value, tuple):
            items = tuple(self._argument(item) for item in value)
            if hasattr(value, "_fields") and holds_tensor(value):
                return ref(self._add("call_function", type(value), items, {}, describe_value(value)))
            return items
        if isinstance(value, list):
            return [self._argument(item) for item in value]
        if isinstance(value, slice):
            return slice(*(self._argument(item) for item in (value.start, value.stop, value.step)))
        if type(value) is dict:
            return {key: self._argument(item) for key, item in value.items()}
        return self._odd_argument(value)

    def _encode_simple(self, value: Any) -> Any:
        """Devices as the logical one; subclasses of int and float (numpy's, enums) as plain numbers."""
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, TracedInt) and isinstance(value.term, tuple):
            self.sizes.compare("==", value.term, int(value), True)
        if isinstance(value, int) and type(value) not in (int, bool):
            return int(value)
        if isinstance(value, float) and type(value) is not float:
            return float(value)
        return value

    def _odd_argument(self, value: Any) -> Any:
        if isinstance(value, torch.Generator):
            return self._encode_generator(value)
        if holds_tensor(value) or _get_tensor_state(value):
            template = Rebuild.of(value)
            found = [self._argument(tensor) for tensor in template.tensors]
            if found:
                return ref(
                    self._add("call_function", self._add_constant(template), (found,), {}, describe_value(value))
                )
        if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            return value.item()
        if hasattr(value, "__index__") and not callable(value) and not hasattr(value, "shape"):
            return int(value)
        return self._add_constant(value)

    def _encode_generator(self, value: torch.Generator) -> Any:
        """A generator of the user's: each run of the graph begins with a new one of the same seed."""
        found = self._nodes.get(identity(value))
        if found is None:
            template = self._add_constant(Seeded(value.initial_seed()))
            found = self._nodes[identity(value)] = self._add("call_function", template, (), {}, describe_value(value))
            self._keep.append(value)
        return ref(found)

    def _add_constant(self, value: Any) -> Constant:
        name = f"_constant{len(self.constants)}"
        self.constants[name] = value
        return Constant(name)

    def _index_of(self, tensor: torch.Tensor) -> int:
        found = self._nodes.get(identity(tensor))
        if found is not None:
            return found
        path = self._attributes.get(identity(tensor)) or self._plain_attribute(tensor)
        if path is None and (found := self._same_memory(tensor)) is not None:
            self._bind(tensor, found)
            return found
        target: Any = path
        if path is None:
            target = self._add_constant(self._value_of(tensor))
        index = self._add("get_attr", target, (), {}, describe_value(tensor))
        self._bind(tensor, index)
        return index

    def _same_memory(self, tensor: torch.Tensor) -> int | None:
        """The call that made another object for the same memory: `nn.Parameter(x)` bypasses the mode."""
        key = _get_memory_key(tensor)
        if key is None:
            return None
        for kept in self._keep[self._indexed :]:
            if isinstance(kept, torch.Tensor):
                self._by_memory.setdefault(_get_memory_key(kept), []).append(kept)
        self._indexed = len(self._keep)
        for kept in reversed(self._by_memory.get(key, ())):
            if _get_memory_key(kept) == key:  # still: a tensor may get other data
                if identity(kept) in self._nodes:
                    return self._nodes[identity(kept)]
                if self._plain_attribute(kept) is not None:
                    return self._index_of(kept)
        return None

    def _value_of(self, tensor: torch.Tensor) -> torch.Tensor:
        real = self.shadows.get(tensor)
        if real is None and tensor.is_meta:
            self.untracked.append(f"a tensor {describe_value(tensor)} of unknown origin")
        return tensor if real is None else real

    def _plain_attribute(self, tensor: torch.Tensor) -> str | None:
        """The path of a tensor that a module holds as an ordinary attribute."""
        if self._plain_attributes is None:
            self._plain_attributes = {}
            for path, module in named_modules(self.root):
                for name, value in vars(module).items():
                    if isinstance(value, torch.Tensor) and (found := plain_attribute_path(path, module, name)):
                        self._plain_attributes[identity(value)] = found
                        self._keep.append(value)
        return self._plain_attributes.get(identity(tensor))

    def _output_argument(self, value: Any) -> Any:
        if value is None or isinstance(value, (torch.Tensor, bool, int, float, str)):
            return self._argument(value)
        if type(value) in (tuple, list):
            return type(value)(self._output_argument(item) for item in value)
        if type(value) is dict:
            return {key: self._output_argument(item) for key, item in value.items()}
        template = Rebuild.of(value)
        found = [self._argument(tensor) for tensor in template.tensors]
        return ref(self._add("call_function", self._add_constant(template), (found,), {}, describe_value(value), ()))


def _get_tensor_state(value: Any) -> Attributes:
    """The attributes of an object that holds tensors in them, such as a key-value cache; {} for everything else."""
    if isinstance(value, (nn.Module, type, torch.Tensor)) or callable(value):
        return {}
    data = getattr(value, "__dict__", None)
    if not data or type(value).__module__ == "builtins":
        return {}
    return data if Rebuild.of(value).tensors else {}


def _holds_state(value: Any) -> bool:
    """Does an object hold tensors in its attributes, or a container of such objects, like a cache of layers?"""
    if isinstance(value, (list, tuple, dict)):
        return any(map(_get_tensor_state, value.values() if isinstance(value, dict) else value))
    return bool(_get_tensor_state(value))


def _get_memory_key(tensor: torch.Tensor) -> Any:
    """A key that is equal for two tensors that differ only as objects; None for those without plain storage."""
    if tensor.layout is not torch.strided or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None
    where = tensor.untyped_storage()._cdata, tensor.storage_offset()
    return (*where, tensor.dtype, tuple(tensor.shape), tensor.stride())


@contextmanager
def _intercept_module_calls(recorder: Recorder) -> Iterator[None]:
    """While inside, `module(...)` goes through the recorder.

    Its own frames count for Python, so the limit is raised by them: a forward may call as deep as without a
    recorder.
    """
    depth = deepest = 0

    def intercept(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth, deepest
        depth += 1
        try:
            if depth > deepest:
                sys.setrecursionlimit(sys.getrecursionlimit() + _FRAMES)  # or RecursionError: the limit was not raised
                deepest = depth
            return recorder.call(module, args, kwargs, original)
        finally:
            depth -= 1

    with module_calls_routed():
        original, ModuleCalls.current = ModuleCalls.current, intercept
        before, builtins.len = builtins.len, recorder.length
        sys.setrecursionlimit(sys.getrecursionlimit() + _OUTER_FRAMES)
        try:
            yield
        finally:
            ModuleCalls.current, builtins.len = original, before
            sys.setrecursionlimit(sys.getrecursionlimit() - _OUTER_FRAMES - deepest * _FRAMES)


def _held_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """The tensors inside of an object or a container; none of a tensor itself."""
    return () if isinstance(value, torch.Tensor) else Rebuild.of(value).tensors


def _are_same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
