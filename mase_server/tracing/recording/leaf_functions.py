"""Python functions as leaves: while recording, each call of one becomes a single node.

Calls are caught however the function is referred to (imported names, closures, defaults), because its code object is
replaced for the time being.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch.autograd import Function
from torch.overrides import _get_current_function_mode_stack

from mase_server.ops.types import Kwargs
from mase_server.tracing.recording.calling import iterate_leaf_tensors, map_leaves, read_version_counter
from mase_server.tracing.recording.recorder import Recorder
from mase_server.tracing.recording.values import describe_value, holds_tensor

_PLACE = "the hook"


@contextmanager
def as_leaves(functions: Iterable[Callable[..., Any]]) -> Iterator[None]:
    """While inside, calls of these Python functions are one node each of the recording in progress.

    Functions that are not written in Python are left alone: torch's own are nodes already.
    """
    with ExitStack() as stack:
        for function in dict.fromkeys(functions):
            if isinstance(function, types.FunctionType):
                stack.enter_context(intercept_calls(function, partial(_call_leaf, function)))
        yield


def _call_leaf(function: types.FunctionType, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    recorder = listening_recorder()
    return (
        original(*args, **kwargs) if recorder is None else _record_leaf_call(recorder, function, original, args, kwargs)
    )


@contextmanager
def intercept_calls(function: types.FunctionType, instead: Callable[..., Any]) -> Iterator[None]:
    """While inside, calls of a function go to `instead`, which also gets the original function."""
    code = function.__code__
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__

    function.__code__ = _build_trampoline(code.co_freevars, partial(instead, original)).replace(co_name=code.co_name)
    try:
        yield
    finally:
        function.__code__ = code


def _build_trampoline(free: tuple[str, ...], hook: Callable[..., Any]) -> types.CodeType:
    """Code that only calls `hook`, with as many free variables as the code that it replaces."""
    code = _compile_trampoline(free)
    return code.replace(co_consts=tuple(hook if value == _PLACE else value for value in code.co_consts))


@cache
def _compile_trampoline(free: tuple[str, ...]) -> types.CodeType:
    makers = "".join(f"    {name} = None\n" for name in free)
    source = f"def outer():\n{makers}    def inner(*args, **kwargs):\n        return {_PLACE!r}(*args, **kwargs)\n"
    source += "".join(f"        {name}\n" for name in free) + "    return inner\n"
    space: dict[str, Callable[[], Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(source, __file__, "exec"), space)
    code: types.CodeType = space["outer"]().__code__
    return code


def listening_recorder() -> Recorder | None:
    """The recorder that listens, unless it is inside a leaf."""
    for mode in reversed(_get_current_function_mode_stack()):  # type: ignore[no-untyped-call]
        if isinstance(mode, Recorder):
            return None if mode._paused else mode
    return None


def _record_leaf_call(
    recorder: Recorder, function: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Kwargs
) -> Any:
    """One call of a leaf function: its node, and its result."""
    arguments = tuple(recorder._argument(value) for value in args)
    named = {name: recorder._argument(value) for name, value in kwargs.items()}
    with recorder.inside_leaf():
        out = original(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        if not holds_tensor(out):
            return out
        given = {id(tensor) for tensor in iterate_leaf_tensors((args, kwargs))}
        if not any(id(tensor) in given for tensor in iterate_leaf_tensors(out)) or type(out) in (tuple, list):
            out = recorder._fresh(out)
        recorder._bind(out, recorder._add("call_function", function, arguments, named, describe_value(out)))
    return out


# The user's `torch.autograd.Function`s: each `apply` becomes one node, which keeps its own backward.


@dataclass(frozen=True)
class CustomFunction:
    """The target of a node that applies an autograd.Function, under the name of its class."""

    kind: type[Function]

    @property
    def __name__(self) -> str:
        return self.kind.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function."""
        return self.kind.apply(*args, **kwargs)  # type: ignore[no-untyped-call]


@contextmanager
def custom_functions_kept() -> Iterator[None]:
    """While inside, an autograd.Function is one node of the current recording, however its `apply` is referred to.

    torch's own are run through, and so is one that gets modules or functions to run, as in checkpointing: its result
    and its gradient consist of their calls.
    """
    apply: Any = vars(Function)["apply"]

    def hook(original: Any, kind: type[Function], *args: Any, **kwargs: Any) -> Any:
        recorder = listening_recorder()
        runs_others = any(callable(value) and not isinstance(value, type) for value in (*args, *kwargs.values()))
        if recorder is None or runs_others or kind.__module__.startswith("torch."):
            return original(kind, *args, **kwargs)
        return _record_function_call(recorder, original, kind, args, kwargs)

    if (plain := getattr(apply, "__func__", None)) is not None:
        with intercept_calls(plain, hook):
            yield
        return

    # Since torch 2.15 it is written in C: what a file bound to a name before, such as `f = Fn.apply`, is run through.
    def replacement(kind: type[Function], *args: Any, **kwargs: Any) -> Any:
        return hook(lambda kind, *args, **kwargs: apply.__get__(None, kind)(*args, **kwargs), kind, *args, **kwargs)

    with patch.object(Function, "apply", classmethod(replacement)):
        yield


def _record_function_call(recorder: Recorder, original: Any, kind: type[Function], args: Any, kwargs: Kwargs) -> Any:
    arguments = tuple(recorder._argument(value) for value in args)
    named = {name: recorder._argument(value) for name, value in kwargs.items()}
    with torch._C.DisableTorchFunction():
        before = {id(tensor): read_version_counter(tensor) for tensor in iterate_leaf_tensors((args, kwargs))}
    with recorder.inside_leaf():
        out = original(kind, *args, **kwargs)
    with torch._C.DisableTorchFunction():
        if not holds_tensor(out):
            return out

        def settle(value: Any) -> Any:
            """An input that was written to stays itself; any other becomes an alias."""
            written = isinstance(value, torch.Tensor) and before.get(id(value), -2) not in (
                -2,
                read_version_counter(value),
            )
            return value if written else recorder._fresh(value)

        out = map_leaves(out, settle)
        target = CustomFunction(kind)
        recorder._bind(out, recorder._add("call_function", target, arguments, named, describe_value(out)))
    return out
