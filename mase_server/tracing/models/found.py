"""The results of the search for models, and the services that it needs from its caller."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mase_server.ops.types import Kwargs
from mase_server.protocol.answers.files import InputForm
from mase_server.protocol.snapshot import Problem
from mase_server.tracing.diagnosis.failure import RAISED, Failure
from mase_server.tracing.execution.program import Loaded, compile_plainly
from mase_server.tracing.execution.watch import OnCall
from mase_server.tracing.inputs.comments import Comment, Wish
from mase_server.tracing.inputs.searching.operands import TrackingMode
from mase_server.tracing.inputs.spec import Inputs, InputValues, outside_modes
from mase_server.tracing.models.guesses import Arguments
from mase_server.tracing.recording.shadow import Shadows

Attempt = Callable[[nn.Module, tuple[Any, ...], Kwargs], BaseException | None]


#: Inputs that failed, each with its error, one line.
Led = tuple[tuple[Inputs, str], ...]


@dataclass(frozen=True, slots=True)
class KnownSearch:
    """A search for inputs that succeeded.

    inputs: what it found; how: as a clause.  sizes: as of `Found`.  built: of the model, as `Built.digest` gives it.
    otherwise: no inputs were found for the model as it is made first, so it was made in another way.
    led: the inputs whose errors led to these, from the first on; first: of those that are tried first, a hash.  The
    result counts only while both are the same: otherwise a search would find others.
    """

    inputs: Inputs
    how: str
    sizes: Mapping[str, int]
    built: str
    otherwise: bool = False
    led: Led = ()
    first: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A model and example inputs.

    args, kwargs: meta tensors, whose values the caller's `Shadows` know.  inputs: the same by parameter name.
    spec: the same with named dimensions; `inputs_at(spec, sizes)` and `call_arguments` make them at other sizes.
    inputs_from: comment|option|settings|main|instance|search; arguments_from: the same words or default.
    training: the mode to trace in.  construct: makes the model again, None if unknown.
    recorded: `hooks.on_call` has already been given this very call.  comment: asks for the assumptions.
    doubtful: the forward fails with these inputs, and may need other ones.
    rest: shown alone because no other model has it: other models count more.  sets: the named sets of inputs in
    comments; set: the one in use, "" for none.  builders: the calls of functions of the file that build it, such as
    `resnet18()`; builder: the one that built it, "" if none did.  written: the comments about it.  form: the parts that
    a user may change, if requested.  sizes: guessed constructor arguments that were changed to differ from others.
    search: what the next trace of the file should know of a search that found the inputs.
    """

    model: nn.Module
    name: str
    args: tuple[Any, ...]
    kwargs: Kwargs
    inputs: InputValues
    spec: Inputs
    inputs_from: str
    arguments: Arguments
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
    builders: tuple[str, ...] = ()
    builder: str = ""
    written: tuple[Wish, ...] = ()
    form: InputForm | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    search: KnownSearch | None = None


@dataclass(frozen=True, slots=True)
class Unshown:
    """A model that cannot be shown. why: the reason, and step: what would help, both as sentences.

    problem: the same as a diagnostic at its class.  elsewhere: another diagnostic says it already, such as the one
    of a missing package at its import.
    """

    name: str
    why: str
    step: str
    problem: Problem
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Hooks:
    """The services of the search's caller. Both calls run outside of every torch function mode.

    on_call: the user's program called a model; returns the call's output to it.
    attempt: does a forward succeed with these arguments?  load: a file's code, and the globals that it needs.
    on_trial: surrounds each try to construct a model.  remembered: the last search's result for each class.
    forget: takes back what a trial reported, given what `on_trial` gave.
    record: records a model immediately, as `on_call` does; did its forward succeed?  on_end: an exception ended the
    user's program after it had called its models; with the torch call that raised it, if one did.  excused: seconds
    went by that are not the program's own.  endless: the program that called no model in time when it last ran.
    on_endless: this program did not.  on_loaded: the file has run by itself.  quiet: surrounds each further call of a
    model that was recorded.  searching: surrounds each search of inputs.
    """

    shadows: Shadows
    on_call: OnCall
    attempt: Attempt
    load: Callable[[str], Loaded] = field(default=compile_plainly)
    on_trial: Callable[[], AbstractContextManager[Any]] = nullcontext
    remembered: Mapping[str, KnownSearch] = field(default_factory=dict)
    record: Callable[[Found], bool] | None = None
    on_end: Callable[[BaseException, Failure | None], None] | None = None
    excused: Callable[[float], None] = lambda seconds: None
    endless: str = ""
    on_endless: Callable[[str], None] = lambda program: None
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext
    searching: Callable[[], AbstractContextManager[None]] = nullcontext
    forget: Callable[[Any], None] = lambda trial: None
    on_loaded: Callable[[], None] = lambda: None


def plain_hooks(shadows: Shadows) -> Hooks:
    """Hooks that only run forwards on meta."""

    def on_call(model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        with TrackingMode(shadows) as tracking, torch.no_grad():  # noqa: F841 - errors are read by it
            return model(*args, **kwargs)

    def attempt(model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> BaseException | None:
        try:
            with outside_modes():
                on_call(model, args, kwargs)
        except RAISED as error:  # the border to the user's code
            return error
        return None

    return Hooks(shadows, on_call, attempt)


def bind_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> InputValues:
    """A call's arguments by forward's parameter names."""
    try:
        return dict(inspect.signature(model.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {f"input{index}": value for index, value in enumerate(args)} | kwargs


def call_arguments(model: nn.Module, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Kwargs]:
    """The inverse of `bind_inputs`: arguments by parameter name in the form of a call."""
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
