"""Watching a program for the calls of its models, and stopping it once there is nothing more to see."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from mase_server.inputs.execution.patience import TICK, OwnTime, Patience
from mase_server.inputs.making.constructions import Constructions, origin
from mase_server.inputs.modes import outside_modes
from mase_server.tracing.calling import leaves
from mase_server.tracing.state import put_in_mode

#: Seconds that a program may run without calling a model.
PATIENCE = 20.0
#: Seconds that those statements of a notebook may take together which are ended.
LONGEST = 5.0

# As they are outside of what keeps a program from using them.
_signal = signal.signal
_setitimer: Callable[..., tuple[float, float]] = getattr(signal, "setitimer", lambda *args: (0.0, 0.0))

OnCall = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]


class Stop(BaseException):
    """Raised inside the person's program to end it; never leaves `mase_server.inputs`."""


class TimeUp(Stop):
    """No model was called in time; its traceback leads to where the program was."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The first call of a model by the program.

    training: the mode, as the program set it; eval where it set none.  shown: was it handed to `on_call`?
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool
    shown: bool


class Watch:
    """While `active`, hands the first outermost call of each model to `on_call`, and raises Stop at the end.

    The end is, once every model that was made has been called: a second call of one, a backward pass, an optimizer
    step, or `budget` seconds of its own after the last first call; and `patience` of those without any call.
    excused: is told of seconds that are not its own.  quiet: given for a notebook, of which only the statement ends
    that trains or takes `budget` seconds. It surrounds a second call of a model, which ends nothing.
    """

    def __init__(
        self,
        on_call: OnCall,
        constructions: Constructions,
        folder: str,
        budget: float = 0.5,
        patience: float = PATIENCE,
        excused: Callable[[float], None] = lambda seconds: None,
        quiet: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.on_call, self.constructions, self.folder = on_call, constructions, folder
        self.budget, self.patience = budget, patience
        self.excused = excused
        self.quiet = quiet
        #: Seconds that statements may take which are ended.
        self._left = LONGEST
        self._patience = Patience(patience, folder, excused)
        #: What is left of `budget`, and what tells how much of it is used up.
        self._spare, self._spent = budget, OwnTime()
        self.reached: dict[int, Reached] = {}
        self.time_up: TimeUp | None = None
        self._moded: set[int] = set()
        self._undo: list[tuple[object, str, Any]] = []

    # ------------------------------------------------------------------------------------------------ switching

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch what runs inside; Stop ends the block silently."""
        step = register_optimizer_step_pre_hook(lambda *_: self._event())
        self._patch()
        try:
            self._patience = Patience(self.patience, self.folder, self.excused)
            with self._alarm(min(self.patience, TICK)):
                yield
        except TimeUp as stop:
            self.time_up = stop
        except Stop:
            pass
        finally:
            self._unpatch()
            step.remove()

    def _patch(self) -> None:
        watch, call, train = self, nn.Module.__call__, nn.Module.train

        def called(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            return watch._called(call, module, args, kwargs)

        def trained(module: nn.Module, mode: bool = True) -> nn.Module:
            watch._moded.add(id(module))
            return train(module, mode)

        self._set(nn.Module, "__call__", called)
        self._set(nn.Module, "train", trained)
        self._set(torch.autograd, "grad", self._gate(torch.autograd.grad, skip=False))
        self._set(torch.autograd, "backward", self._gate(torch.autograd.backward, skip=True))
        self._set(torch.Tensor, "backward", self._gate(torch.Tensor.backward, skip=True))

    def _gate(self, original: Callable[..., Any], *, skip: bool) -> Callable[..., Any]:
        """The original until a model was called; then an event, and with `skip` nothing else."""

        def gated(*args: Any, **kwargs: Any) -> Any:
            self._event()
            return None if skip and self.reached else original(*args, **kwargs)

        return gated

    def _set(self, owner: object, name: str, value: Any) -> None:
        self._undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def _unpatch(self) -> None:
        while self._undo:
            setattr(*self._undo.pop())

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Inside a model's own forward nothing counts as a call."""
        self._unpatch()
        try:
            yield
        finally:
            self._patch()

    # -------------------------------------------------------------------------------------------------- watching

    def _called(self, call: Callable[..., Any], model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._is_model(model) or not any(map(_holds_tensor, (*args, *kwargs.values()))):
            return call(model, *args, **kwargs)
        if id(model) in self.reached:
            if self.quiet is not None:
                with self.quiet():
                    return self._plain(model, args, kwargs)
            self._event()
            return self._plain(model, args, kwargs)
        part = id(model) in self.constructions.children()
        if id(model) not in self._moded:
            put_in_mode(model, False)
        self.reached[id(model)] = Reached(model, args, kwargs, model.training, shown=not part)
        if part:
            return self._plain(model, args, kwargs)
        try:
            with self._unwatched(), self._alarm(0), outside_modes():
                return self.on_call(model, args, kwargs)
        finally:
            self._rearm(self.budget)

    def _plain(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._unwatched():
            return model(*args, **kwargs)

    def _is_model(self, model: nn.Module) -> bool:
        """One of the person's own, or one of a library that has weights; torch's layers and losses are not."""
        where = origin(type(model), self.folder)
        if where == "workspace":
            return True
        whole = where == "library" or (type(model) is nn.Sequential and id(model) not in self.constructions.children())
        return whole and next(model.parameters(), None) is not None

    def _event(self) -> None:
        """Something that ends the program unless some model has not been called yet."""
        if self.reached and not self._missing():
            raise Stop

    def goes_on(self) -> bool:
        """A statement was ended: may the next one run?"""
        self._left -= self.budget
        self._rearm(self.budget)
        return self._left > 0

    def _missing(self) -> bool:
        children = self.constructions.children()
        models = (made.model for made in self.constructions if id(made.model) not in children)
        return any(
            id(model) not in self.reached and origin(type(model), self.folder) == "workspace" for model in models
        )

    # ---------------------------------------------------------------------------------------------------- timing

    @contextmanager
    def _alarm(self, seconds: float) -> Iterator[None]:
        if not _can_alarm():
            yield
            return
        handler = _signal(signal.SIGALRM, self._ring)
        left, _ = _setitimer(signal.ITIMER_REAL, seconds, 0.1 if seconds else 0)
        try:
            yield
        finally:
            _setitimer(signal.ITIMER_REAL, left, 0.1 if left else 0)
            _signal(signal.SIGALRM, handler)

    def _rearm(self, seconds: float) -> None:
        self._spare, self._spent = seconds, OwnTime()
        if _can_alarm():
            _setitimer(signal.ITIMER_REAL, seconds, 0.1)

    def _has_spent(self) -> bool:
        """Are the seconds used up that it has? The alarm's are those of the clock, and come again."""
        self._spare -= self._spent.passed()[0]
        return self._spare <= TICK / 100

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        if self.reached:
            # A library that was imported by half is none for the cells below.
            if self.quiet is not None and self._patience.imports_library(frame):
                return
            if self._has_spent():
                raise Stop
            return
        if self._patience.is_over(frame):
            raise TimeUp


def _holds_tensor(value: Any) -> bool:
    """Is there a tensor in an argument, which may be a graph or a batch with tensors as attributes?"""
    inside = getattr(value, "__dict__", {}) if not isinstance(value, nn.Module | type) else {}
    return next(leaves([value, *inside.values()]), None) is not None


def _can_alarm() -> bool:
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
