"""The file's own run: which of its models it calls, and what it says against the file."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from torch import nn

from mase_server.inputs import trouble
from mase_server.inputs.execution.main import MainRun, run_main
from mase_server.inputs.execution.patience import AGAIN, program_of
from mase_server.inputs.execution.program import Place
from mase_server.inputs.execution.watch import Reached
from mase_server.inputs.found import Found, Hooks, bind, plain_hooks
from mase_server.inputs.making.arguments import Built, build
from mase_server.inputs.roles import describe
from mase_server.inputs.showing import Showing
from mase_server.inputs.wishes import ClassWishes, Wishes
from mase_server.snapshot import Problem
from mase_server.tracing.cycles import require_tree
from mase_server.tracing.phases import phase
from mase_server.worker.request import TraceRequest


class Running(Showing):
    """What a file's own run shows, under the name `__main__` if that calls a model, else as it is imported."""

    def __init__(self, request: TraceRequest, tree: ast.Module, hooks: Hooks, wishes: Wishes) -> None:
        super().__init__(request, tree, hooks, wishes)
        #: Seconds that the file may run by itself; the rest of the time is for what it defines.
        self.patience = request.seconds * 2 / 3
        self.program = program_of(tree)
        #: What is told of calls that comments ask for and that cannot be made, by class.
        self.refused: dict[str, Problem] = {}

    def load(self) -> tuple[MainRun, list[Found]]:
        """The last run of the file, and the models that it called by itself."""
        if self.options.run_main:
            run = self._execute("__main__")
            found = [self._of_call(run, reached) for reached in self._worth_showing(run)]
            if found or run.time_up is not None or (run.error is None and not trouble.has_guard(self.tree)):
                return run, found
            self.explanation = run.error
        run = self._execute(Place.of(self.path).name)
        return run, [self._of_call(run, reached) for reached in self._worth_showing(run)]

    def in_run(self, run: MainRun) -> Problem | None:
        """What the file's own run says against it; nothing, if it only ended as a program before it called a model."""
        where = self.path, self.request.folder
        if run.time_up is not None:
            # What is never done with its constructor would not be the next time either.
            made = trouble.constructing(run.time_up)
            self.covered |= {made} if made is not None else set()
            if made is None:
                self.hooks.on_endless(self.program)
            return trouble.out_of_time(*where, run.time_up, self.patience, self.tree)
        if run.error is not None:
            return trouble.in_run(*where, run.error)
        if self.explanation is not None and trouble.is_of_constructor(self.explanation):
            return trouble.in_run(*where, self.explanation)
        return None

    def _execute(self, name: str) -> MainRun:
        plain = plain_hooks(self.hooks.shadows).on_call

        def on_call(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            chosen = plain if self._replaced(model) else self.hooks.on_call
            return chosen(model, args, kwargs)

        again = self.hooks.endless == self.program
        patience = self.patience * AGAIN if again else self.patience
        where, hooks = (self.path, self.request.folder), self.hooks
        with phase("running", Path(self.path).name):
            return run_main(
                *where, on_call, hooks.shadows, hooks.load, name, patience, hooks.excused, hooks.quiet
            )  # fmt: skip

    def _replaced(self, model: nn.Module) -> bool:
        """Is this model shown otherwise than by the program's own call, or not at all?"""
        name = type(model).__name__
        return self.wishes.of(name).any() or not self.wishes.wants(name)

    def _worth_showing(self, run: MainRun) -> list[Reached]:
        """Called models; a part only where the whole that holds it was not called.

        UnwalkableError where there is one that torch cannot walk over.
        """
        for reached in run.reached:
            require_tree(reached.model)
        whole = {id(part) for reached in run.reached if reached.shown for part in reached.model.modules()}
        wanted = [reached for reached in run.reached if self.wishes.wants(type(reached.model).__name__)]
        return [reached for reached in wanted if reached.shown or id(reached.model) not in whole]

    def _of_call(self, run: MainRun, reached: Reached) -> Found:
        model, made = reached.model, run.constructions.of(reached.model)
        wish = self.wishes.of(type(model).__name__)
        built = Built(model, made.bound() if made else {}, "main", made.rebuild() if made else None)
        if wish.constructor(type(model).__name__) is not None:
            built = self._build(type(model), vars(run.module), wish) or built
        if wish.inputs is not None:
            name = type(built.model).__name__
            return self.of_spec(built, name, wish.inputs, wish.inputs_from, wish.said())
        inputs = bind(model, reached.args, reached.kwargs)
        spec = describe(inputs, model, self.hooks.shadows.get)
        return Found(
            built.model, type(model).__name__, reached.args, reached.kwargs, inputs, spec, "main", built.arguments,
            built.source, run.how, reached.training, built.construct,
            recorded=reached.shown and built.model is model,
        )  # fmt: skip

    def _build(
        self,
        kind: type[nn.Module],
        namespace: dict[str, Any],
        wish: ClassWishes,
    ) -> Built | None:
        errors: list[BaseException] = []
        built = build(kind, self.around(namespace), wish.constructor(kind.__name__), errors)
        if built is None and wish.called_at is not None:
            self.refused.setdefault(kind.__name__, self.unbuilt(kind.__name__, kind, errors))
        return None if built is None else self.as_wished(built, kind.__name__)
