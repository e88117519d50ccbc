"""Python functions as leaves: while recording, each call of one becomes a single node.

However the function is referred to (imported names, closures, defaults), its calls are caught, because for the time
being its code object is another one.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack

from mase_server.tracing.calling import leaves
from mase_server.tracing.recorder import Recorder
from mase_server.tracing.values import describe, holds_tensor

_PLACE = "the hook"


@contextmanager
def as_leaves(functions: Iterable[Callable[..., Any]]) -> Iterator[None]:
    """While inside, calls of these Python functions are one node each of the recording in progress.

    Functions that are not written in Python are left alone: torch's own are nodes already.
    """
    with ExitStack() as stack:
        for function in dict.fromkeys(functions):
            if isinstance(function, types.FunctionType):
                stack.enter_context(caught(function, partial(_call_leaf, function)))
        yield


def _call_leaf(function: types.FunctionType, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    recorder = listening_recorder()
    return original(*args, **kwargs) if recorder is None else _call(recorder, function, original, args, kwargs)


@contextmanager
def caught(function: types.FunctionType, instead: Callable[..., Any]) -> Iterator[None]:
    """While inside, calls of a function go to `instead`, which is also given the function as it was."""
    code = function.__code__
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__

    function.__code__ = _trampoline(code.co_freevars, partial(instead, original)).replace(co_name=code.co_name)
    try:
        yield
    finally:
        function.__code__ = code


def _trampoline(free: tuple[str, ...], hook: Callable[..., Any]) -> types.CodeType:
    """Code that only calls `hook`, with as many free variables as the code that it replaces."""
    makers = "".join(f"    {name} = None\n" for name in free)
    source = f"def outer():\n{makers}    def inner(*args, **kwargs):\n        return {_PLACE!r}(*args, **kwargs)\n"
    source += "".join(f"        {name}\n" for name in free) + "    return inner\n"
    space: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        exec(compile(source, __file__, "exec"), space)
    code: types.CodeType = space["outer"]().__code__
    return code.replace(co_consts=tuple(hook if value == _PLACE else value for value in code.co_consts))


def listening_recorder() -> Recorder | None:
    """The recorder that listens, unless it is inside of a leaf."""
    for mode in reversed(_get_current_function_mode_stack()):  # type: ignore[no-untyped-call]
        if isinstance(mode, Recorder):
            return None if mode._paused else mode
    return None


def _call(
    recorder: Recorder, function: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Any:
    """One call of a leaf function: its node, and its result."""
    arguments = tuple(recorder._argument(value) for value in args)
    named = {name: recorder._argument(value) for name, value in kwargs.items()}
    with recorder.inside_leaf():
        out = original(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        if not holds_tensor(out):
            return out
        given = {id(tensor) for tensor in leaves((args, kwargs))}
        if not any(id(tensor) in given for tensor in leaves(out)) or type(out) in (tuple, list):
            out = recorder._fresh(out)
        recorder._bind(out, recorder._add("call_function", function, arguments, named, describe(out)))
    return out
