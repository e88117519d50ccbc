"""What the search for models gives, and what it needs from its caller."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mase_server.inputs.assumed import Comment
from mase_server.inputs.comments import Wish
from mase_server.inputs.execution.program import Loaded, compile_plainly
from mase_server.inputs.execution.watch import OnCall
from mase_server.inputs.modes import outside_modes
from mase_server.inputs.searching.tracking import TrackingMode
from mase_server.inputs.spec import Inputs
from mase_server.tracing.errors.failure import RAISED, Failure
from mase_server.tracing.shadow import Shadows

Attempt = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], BaseException | None]


@dataclass(frozen=True, slots=True)
class Found:
    """A model and example inputs.

    args, kwargs: meta tensors, whose values the caller's `Shadows` know.  inputs: the same by parameter name.
    spec: the same with named dimensions; `inputs_at(spec, sizes)` and `call_arguments` make them at other sizes.
    inputs_from: comment|option|settings|main|instance|search; arguments_from: the same words or default.
    training: the mode to trace in.  construct: makes the model again, None where nobody knows how.
    recorded: `hooks.on_call` has already been given this very call.  comment: asks for what was assumed.
    doubtful: the forward fails with these inputs, and other inputs may be what it wants.
    rest: shown alone because no other model has it: what others show counts more.  sets: the named sets of inputs that
    comments give; set: the one that is used, "" for none.  written: the comments about it.  form: what a person may
    change, where that was asked for.
    """

    model: nn.Module
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: dict[str, Any]
    spec: Inputs
    inputs_from: str
    arguments: dict[str, Any]
    arguments_from: str
    found: str
    training: bool
    construct: Callable[[], nn.Module] | None
    recorded: bool = False
    comment: Comment | None = None
    doubtful: bool = False
    rest: bool = False
    sets: tuple[str, ...] = ()
    set: str = ""
    written: tuple[Wish, ...] = ()
    form: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the caller does on behalf of the search. Both calls run outside of every torch function mode.

    on_call: a model was called by the person's program; gives the call's output back to it.
    attempt: does a forward succeed with these arguments?  load: a file's code, and the globals that it needs.
    on_trial: surrounds each try to construct a model.  remembered: what the last search found for each class, and how.
    record: records a model there and then, as `on_call` does; did its forward succeed?  on_end: an exception ended the
    person's program after it had called its models; with the torch call that raised it, if one did.  excused: seconds
    went by that are not the program's own.  endless: the program that called no model in time when it was last run.
    on_endless: this program did not.  quiet: surrounds each further call of a model that was recorded.
    """

    shadows: Shadows
    on_call: OnCall
    attempt: Attempt
    load: Callable[[str], Loaded] = field(default=compile_plainly)
    on_trial: Callable[[], AbstractContextManager[None]] = nullcontext
    remembered: Mapping[str, tuple[Inputs, str]] = field(default_factory=dict)
    record: Callable[[Found], bool] | None = None
    on_end: Callable[[BaseException, Failure | None], None] | None = None
    excused: Callable[[float], None] = lambda seconds: None
    endless: str = ""
    on_endless: Callable[[str], None] = lambda program: None
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext


def plain_hooks(shadows: Shadows) -> Hooks:
    """Hooks that only run forwards on meta."""

    def on_call(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with TrackingMode(shadows) as tracking, torch.no_grad():  # noqa: F841 - errors are read by it
            return model(*args, **kwargs)

    def attempt(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BaseException | None:
        try:
            with outside_modes():
                on_call(model, args, kwargs)
        except RAISED as error:  # the border to the person's code
            return error
        return None

    return Hooks(shadows, on_call, attempt)


def bind(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by forward's parameter names."""
    try:
        return dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {f"input{index}": value for index, value in enumerate(args)} | kwargs


def call_arguments(model: nn.Module, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inverse of `bind`: arguments by parameter name as a call takes them."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return tuple(inputs.values()), {}
    ordered: OrderedDict[str, Any] = OrderedDict()
    for name in signature.parameters:
        if name in inputs:
            ordered[name] = inputs[name]
    rest = {name: value for name, value in inputs.items() if name not in ordered}
    bound = inspect.BoundArguments(signature, ordered)
    return bound.args, {**bound.kwargs, **rest}
