"""Watching a program for the calls of its models, and stopping it once there is nothing more to see.

A program that calls no model within two thirds of the time limit is stopped at its line by its own alarm, and the
rest of the time is for the classes that it had defined. It is not run again in that trace. Seconds in which it waits
for a processor or for a library's import do not count.
"""

from __future__ import annotations

import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from mase_server.ops.types import Kwargs
from mase_server.system import ALARM, set_alarm
from mase_server.tracing.execution.guard import TICK, OwnTime, Patience
from mase_server.tracing.inputs.spec import outside_modes
from mase_server.tracing.models.constructions import Constructions, get_class_origin
from mase_server.tracing.recording.calling import ModuleCalls, iterate_leaf_tensors, module_calls_routed
from mase_server.tracing.recording.positions import get_first_argument
from mase_server.tracing.recording.state import put_in_mode

#: Seconds that a program may run without calling a model.
PATIENCE = 20.0
#: Torch calls that a program may make after the last model that it called first: about a fifth of a second of them.
SPARE_STEPS = 2_000
#: Torch calls that the ended statements of a notebook may make together, and those of a script.
MOST_STEPS, MOST_STEPS_OF_SCRIPT = 50_000, 10_000
#: Torch calls that each of them counts, at least.
LEAST_STEPS = 500
#: Seconds that a step may take: what makes no torch calls ends by the clock, all else in the same place everywhere.
STEP_SECONDS = 0.0005

# The functions as they are outside of the guard that keeps programs from using them.
_signal = signal.signal

OnCall = Callable[[nn.Module, tuple[Any, ...], Kwargs], Any]


class Stop(BaseException):
    """Raised inside the person's program to end it; never leaves `mase_server.tracing.execution`."""


class StatementOver(Stop):
    """A model is trained here; the rest of the round of its loop may follow."""


class TimeUp(Stop):
    """No model was called in time; the traceback shows where the program was."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The first call of a model by the program.

    training: the mode, as the program set it; eval where it set none.  shown: was it handed to `on_call`?
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Kwargs
    training: bool
    shown: bool


class Watch:
    """While `active`, hands the first outermost call of each model to `on_call`, and raises Stop at the end.

    The end comes once every model that was made has been called: at a second call of one from the same place;
    `SPARE_STEPS` torch calls, or `budget` seconds of its own, after the last first call; after `patience` of those
    without any call; and at a first call once `late()`. It is the end of a loop or a statement, if `goes_on`. A
    backward pass or a step of training ends its own statement alone. count: the torch calls so far. excused: is called
    with seconds that are not its own. quiet: surrounds further calls of a model. in_cells: is it a notebook, where
    these end nothing? path: the program.
    """

    def __init__(
        self,
        on_call: OnCall,
        constructions: Constructions,
        folder: str,
        budget: float = SPARE_STEPS * STEP_SECONDS,
        patience: float = PATIENCE,
        excused: Callable[[float], None] = lambda seconds: None,
        quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
        in_cells: bool = False,
        late: Callable[[], bool] = lambda: False,
        count: Callable[[], int] = lambda: 0,
        path: str = "",
    ) -> None:
        self.late, self.count = late, count
        self.on_call, self.constructions, self.folder = on_call, constructions, folder
        self.budget, self.patience = budget, patience
        self.excused = excused
        self.quiet, self.in_cells = quiet, in_cells
        #: Torch calls that ended statements may still make, and seconds that they may take.
        self._left = MOST_STEPS if in_cells else MOST_STEPS_OF_SCRIPT
        self._left_seconds = self._left * STEP_SECONDS
        #: The places in the program that have called a model, with its id.
        self._called: set[tuple[int, object, int]] = set()
        self._path, self._patience = path, Patience(patience, folder, excused, path)
        #: Has a statement been ended that trains a model, and none been called since?
        self._trained = False
        #: The remaining `budget`, and the clock that measures its use.
        self._spare, self._spent = budget, OwnTime()
        #: The count of torch calls at which the program ends: unlike seconds, it is the same in every run.
        self._last_step = 0
        #: Is a model called for the first time, and the budget about to begin?
        self._changing = False
        self.reached: dict[int, Reached] = {}
        self.time_up: TimeUp | None = None
        self._moded: set[int] = set()
        #: The person's classes that define a forward: `model.forward(x)` is a call of the model, too.
        self._forwarding: set[type] = set()
        constructions.on_class = self._watch_forward
        #: What is patched: owner, name, the value before, and the patch.
        self._undo: list[tuple[object, str, Any, Any]] = []

    # ------------------------------------------------------------------------------------------------ switching

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch what runs inside; Stop ends the block silently."""
        step = register_optimizer_step_pre_hook(lambda *_: self._end_training())
        with module_calls_routed():
            self._patch_torch()
            try:
                self._patience = Patience(self.patience, self.folder, self.excused, self._path)
                with self._set_alarm(min(self.patience, TICK)):
                    yield
            except TimeUp as stop:
                self.time_up = stop
            except Stop:
                pass
            finally:
                self._unpatch_torch()
                step.remove()

    def _patch_torch(self) -> None:
        watch, call, train = self, ModuleCalls.current, nn.Module.train

        def called(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            return watch._handle_call(call, module, args, kwargs)

        def trained(module: nn.Module, mode: bool = True) -> nn.Module:
            watch._moded.add(id(module))
            return train(module, mode)

        self._patch_attribute(ModuleCalls, "current", called)
        self._patch_attribute(nn.Module, "train", trained)
        for kind in self._forwarding:
            self._gate_forward(kind)
        self._patch_attribute(torch.autograd, "grad", self._gate_function(torch.autograd.grad, skip=False))
        self._patch_attribute(torch.autograd, "backward", self._gate_function(torch.autograd.backward, skip=True))
        self._patch_attribute(torch.Tensor, "backward", self._gate_function(torch.Tensor.backward, skip=True))

    def _watch_forward(self, kind: type[nn.Module]) -> None:
        owner = next((each for each in kind.__mro__ if "forward" in vars(each)), nn.Module)
        if owner in self._forwarding or get_class_origin(owner, self.folder) != "workspace":
            return
        self._forwarding.add(owner)
        if self._undo:
            self._gate_forward(owner)

    def _gate_forward(self, kind: type) -> None:
        forward = vars(kind).get("forward")
        if not inspect.isfunction(forward):
            return

        @wraps(forward)
        def called(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            # A program that replaced it may have kept it, to call it as a part.
            own = self._undo and vars(kind).get("forward") is called
            return self._handle_call(forward, module, args, kwargs) if own else forward(module, *args, **kwargs)

        self._patch_attribute(kind, "forward", called)

    def _gate_function(self, original: Callable[..., Any], *, skip: bool) -> Callable[..., Any]:
        """Run the original until a model was called; then count an event, and with `skip` do nothing else."""

        def gated(*args: Any, **kwargs: Any) -> Any:
            if not self._undo:  # a program that replaced it has kept it
                return original(*args, **kwargs)
            self._end_training()
            return None if skip and self.reached else original(*args, **kwargs)

        return gated

    def _patch_attribute(self, owner: object, name: str, value: Any) -> None:
        self._undo.append((owner, name, vars(owner)[name], value))
        setattr(owner, name, value)

    def _unpatch_torch(self) -> None:
        """Undo the patches that the program has not replaced."""
        while self._undo:
            owner, name, before, patch = self._undo.pop()
            if vars(owner).get(name) is patch:
                setattr(owner, name, before)

    @contextmanager
    def _pause_watching(self) -> Iterator[None]:
        """Inside a model's own forward nothing counts as a call."""
        self._unpatch_torch()
        try:
            yield
        finally:
            self._patch_torch()

    # -------------------------------------------------------------------------------------------------- watching

    def _handle_call(self, call: Callable[..., Any], model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        if not self._is_model(model) or not any(map(_holds_tensor, (*args, *kwargs.values()))):
            return call(model, *args, **kwargs)
        self._trained = False
        if id(model) in self.reached:
            if not self._note_place(model) and not self.in_cells and not self._has_missing_models():
                raise Stop
            with self.quiet():
                return self._call_unwatched(call, model, args, kwargs)
        if _is_being_made(model):  # its constructor measures what a part gives
            return self._call_unwatched(call, model, args, kwargs)
        part = id(model) in self.constructions.children()
        if self.reached and (self.late() or self.count() > self._last_step):
            raise Stop
        if id(model) not in self._moded:
            put_in_mode(model, False)
        self._changing = True  # an alarm that is still due, or is due again before the new one, is of no budget
        self._note_place(model)
        self.reached[id(model)] = Reached(model, args, kwargs, model.training, shown=not part)
        try:
            if not part:
                with self._pause_watching(), self._set_alarm(0), outside_modes():
                    return self.on_call(model, args, kwargs)
        finally:
            self._rearm_alarm(self.budget)
            self._changing = False
        return self._call_unwatched(call, model, args, kwargs)

    def _note_place(self, model: nn.Module) -> bool:
        """Remember the place of the program that calls a model. Is it a new one? A loop calls from the same one."""
        frame = self._find_program_frame()
        if frame is None:
            return False
        place = (id(model), frame.f_code, frame.f_lasti)
        known = place in self._called
        self._called.add(place)
        return not known

    def _call_unwatched(self, call: Callable[..., Any], model: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        with self._pause_watching():
            return call(model, *args, **kwargs)

    def _is_model(self, model: nn.Module) -> bool:
        """Is it one of the user's own models, or one of a library with weights?

        torch's losses are not, and its layers only where a program has no other model: `model = nn.Linear(4, 2)`.
        """
        where = get_class_origin(type(model), self.folder)
        if where == "workspace":
            return True
        if where == "torch" and (not self._may_be_whole(model) or id(model) in self.constructions.children()):
            return False
        return next(model.parameters(), None) is not None

    def _may_be_whole(self, model: nn.Module) -> bool:
        """Is it an nn.Sequential, or a layer in a variable of a program that has defined and made such layers alone?"""
        if type(model) is nn.Sequential:
            return True
        frame = self._find_program_frame()
        held = (*frame.f_globals.values(), *frame.f_locals.values()) if frame is not None else ()
        if self._forwarding or not any(value is model for value in held):
            return False
        kinds = (type(made.model) for made in self.constructions)
        return all(kind is not nn.Sequential and get_class_origin(kind, self.folder) == "torch" for kind in kinds)

    def _find_program_frame(self) -> FrameType | None:
        """The innermost frame of the program's own file."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back
        return frame

    def _end_training(self) -> None:
        """Handle a backward pass or a step. One that follows another has nothing more to end."""
        if not self._trained and self.reached and not self._has_missing_models():
            self._trained = True
            raise StatementOver

    def goes_on(self) -> bool:
        """After a statement was ended: may the next one run?"""
        self._spare -= self._spent.passed()[0]
        self._left_seconds -= self.budget - self._spare
        self._left -= max(self.count() - self._last_step + SPARE_STEPS, LEAST_STEPS)
        self._rearm_alarm(self.budget)
        return self._left > 0 and self._left_seconds > 0

    def _has_missing_models(self) -> bool:
        children = self.constructions.children()
        models = (made.model for made in self.constructions if id(made.model) not in children)
        return any(
            id(model) not in self.reached and get_class_origin(type(model), self.folder) == "workspace"
            for model in models
        )

    # ---------------------------------------------------------------------------------------------------- timing

    @contextmanager
    def _set_alarm(self, seconds: float) -> Iterator[None]:
        if not _can_alarm():
            yield
            return
        handler = _signal(ALARM, self._handle_alarm)
        left = set_alarm(seconds, 0.1 if seconds else 0)
        try:
            yield
        finally:
            set_alarm(left, 0.1 if left else 0)
            _signal(ALARM, handler)

    def _rearm_alarm(self, seconds: float) -> None:
        self._spare, self._spent, self._last_step = seconds, OwnTime(), self.count() + SPARE_STEPS
        if _can_alarm():
            set_alarm(seconds, 0.1)

    def _has_spent(self) -> bool:
        """Are its steps or its seconds used up? The alarm goes by the clock, and repeats."""
        self._spare -= self._spent.passed()[0]
        return self._spare <= TICK / 100 or self.count() > self._last_step

    def _handle_alarm(self, signum: int, frame: FrameType | None) -> None:
        if self._changing:
            return
        if self.reached:
            # A half-imported library would be useless to the statements below.
            if self._patience.imports_library(frame):
                return
            if self._has_spent():
                raise Stop
            return
        if self._patience.is_over(frame):
            raise TimeUp
        self._patience.end_slow_import()


def _is_being_made(model: nn.Module) -> bool:
    """Does a constructor of this very model run?"""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and get_first_argument(frame) is model:
            return True
        frame = frame.f_back
    return False


def _holds_tensor(value: Any) -> bool:
    """Does an argument contain a tensor? It may be a graph or a batch with tensors as attributes."""
    inside = getattr(value, "__dict__", {}) if not isinstance(value, nn.Module | type) else {}
    return next(iterate_leaf_tensors([value, *inside.values()]), None) is not None


def _can_alarm() -> bool:
    return threading.current_thread() is threading.main_thread()
