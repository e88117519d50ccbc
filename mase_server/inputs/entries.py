"""Which method of a model is run: its forward, a `__call__` of its own, or the training step of a Lightning module."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from torch import nn

FORWARD, CALL, STEP = "forward", "__call__", "training_step"


def entry_of(kind: type[nn.Module]) -> str | None:
    """The method that a class is run by; None for one that leaves it to others, such as an abstract base."""
    if inspect.isabstract(kind):
        return None
    for name in (FORWARD, CALL, STEP):
        method = _own(kind, name)
        if method is not None:
            return None if is_left_open(method) else name
    return None


def further_entry(kind: type[nn.Module]) -> str | None:
    """The training step of a class that has a forward too."""
    method = _own(kind, STEP) if entry_of(kind) == FORWARD else None
    return STEP if method is not None and not is_left_open(method) else None


def forward_owner(kind: type[nn.Module]) -> type:
    """The class that a class has its forward from."""
    return next(base for base in kind.__mro__ if FORWARD in vars(base))


def run_by(model: nn.Module, entry: str) -> nn.Module:
    """The same model, which now runs this method when it is called."""
    if entry != FORWARD:
        # Its class would do for `__call__`, but whoever asks for the parameters of a model asks its forward.
        model.forward = MethodType(_outermost(getattr(type(model), entry)), model)
    return model


def _outermost(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method in place of forward, inside of which forward is the class's own again: a step calls `self(batch)`."""

    @functools.wraps(method)
    def forward(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        mine = vars(self).pop(FORWARD)
        try:
            return method(self, *args, **kwargs)
        finally:
            vars(self)[FORWARD] = mine

    return forward


def makes(construct: Callable[[], nn.Module] | None, entry: str) -> Callable[[], nn.Module] | None:
    """A constructor of models that run this method."""
    if construct is None or entry == FORWARD:
        return construct
    return lambda: run_by(construct(), entry)


def _own(kind: type[nn.Module], name: str) -> Any:
    """A method that somebody wrote for this class: not what nn.Module or a Lightning module has for all of them."""
    owner = next((base for base in kind.__mro__ if name in vars(base)), None)
    if owner is None or owner is nn.Module or owner.__name__ in ("LightningModule", "Protocol", "object"):
        return None
    return vars(owner)[name] if callable(vars(owner)[name]) else None


def is_left_open(method: Any) -> bool:
    """Does a method do nothing but raise NotImplementedError, or nothing at all?"""
    if not isinstance(method, FunctionType):
        return False
    if "NotImplementedError" not in method.__code__.co_names and len(method.__code__.co_names) > 0:
        return False
    try:
        [function] = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    except (OSError, SyntaxError, ValueError):
        return False
    return isinstance(function, ast.FunctionDef) and all(map(_says_nothing, function.body))


def _says_nothing(statement: ast.stmt) -> bool:
    """A docstring, `pass`, `...`, or a raised NotImplementedError."""
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))):
            return True
    return False
