"""Running a file as `__main__`, to see which models its author calls, and with what."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from types import CodeType, ModuleType

from mase_server.inputs.execution.program import Loaded, as_program, compile_plainly, execute, module_for
from mase_server.inputs.execution.watch import PATIENCE, OnCall, Reached, Stop, TimeUp, Watch
from mase_server.inputs.making.constructions import Constructions
from mase_server.notebooks import is_notebook
from mase_server.tracing.errors.failing import FailureMode
from mase_server.tracing.errors.failure import RAISED, Failure
from mase_server.tracing.loading.resume import Cuts, Start
from mase_server.tracing.shadow import Shadows


@dataclass(frozen=True, slots=True)
class MainRun:
    """What a program did.

    reached: the first call of each model, in order.  error: what ended the program, if it was an exception of its own
    (SystemExit included).  failure: the torch call that raised it, if one did.  time_up: no model was called in time;
    where the program was then is in its traceback.  made_up: command-line arguments that nobody gave.  early: did a
    statement fail before any model was called?
    """

    module: ModuleType
    reached: tuple[Reached, ...]
    constructions: Constructions
    error: BaseException | None
    time_up: TimeUp | None = None
    failure: Failure | None = None
    made_up: tuple[str, ...] = ()
    early: bool = False

    @property
    def how(self) -> str:
        """How its models are called, as a sentence."""
        told = "as the file calls it when it runs"
        return f"{told}, with the arguments `{' '.join(self.made_up)}` made up" if self.made_up else told


def run_main(
    path: str,
    folder: str,
    on_call: OnCall,
    shadows: Shadows,
    load: Callable[[str], Loaded] = compile_plainly,
    name: str = "__main__",
    patience: float = PATIENCE,
    excused: Callable[[float], None] = lambda seconds: None,
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> MainRun:
    """Run `path` on meta as `name`; each model's first outermost call goes to `on_call(model, args, kwargs)`.

    The module stays in `sys.modules`. `on_call` runs outside of every torch function mode and returns the call's
    output to the program. It is stopped when it has called no model for `patience` seconds of its own; `excused` is
    told of those in which it waited for a processor, or for the import of a library. `quiet` surrounds a notebook's
    further calls of a model.
    """
    constructions = Constructions()
    # A cell that trains ends there; the next one may hold another model.
    in_cells = is_notebook(path)
    watch = Watch(on_call, constructions, folder, patience=patience, excused=excused, quiet=quiet if in_cells else None)
    cuts = Cuts(Stop, watch.goes_on) if in_cells else None
    error: BaseException | None = None
    mode = FailureMode(shadows)
    early: list[bool] = []

    def code_from(start: Start) -> CodeType:
        early.append(not watch.reached)
        return loaded.code_from(start)

    with ExitStack() as stack:
        made_up = stack.enter_context(as_program(path, folder))
        module = module_for(path, name)
        stack.enter_context(constructions.recording())
        try:
            loaded = load(path)
            with watch.active(), mode:
                module, error = execute(replace(loaded, code_from=code_from), module, cuts)
        except RAISED as raised:  # the border to the person's program
            error = raised
    reached = tuple(watch.reached.values())
    return MainRun(
        module, reached, constructions, error, watch.time_up, mode.failure, tuple(made_up), early[:1] == [True]
    )
