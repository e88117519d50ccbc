"""Which models a file holds, and what to call them with: comment, option, `__main__`, instances, then search."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import nn

from mase_server.inputs import trouble
from mase_server.inputs.budget import Budget
from mase_server.inputs.classes import library_classes, model_classes, roots
from mase_server.inputs.comments import BadComment, read_comments, tried
from mase_server.inputs.entries import further_entry
from mase_server.inputs.execution.absences import problems_of, unknown_bases
from mase_server.inputs.execution.distributed import alone
from mase_server.inputs.execution.guard import guarded
from mase_server.inputs.execution.main import MainRun
from mase_server.inputs.execution.program import Place, as_program, modules_kept
from mase_server.inputs.execution.running import Running
from mase_server.inputs.found import Found, Hooks
from mase_server.inputs.instances import Instance, is_model, module_instances
from mase_server.inputs.making.arguments import Built, builds
from mase_server.inputs.making.constructions import construction_of
from mase_server.inputs.making.factories import Factory, called, factories
from mase_server.inputs.making.guesses import required
from mase_server.inputs.showing import sentence
from mase_server.inputs.text import SpecError
from mase_server.inputs.wishes import Wishes
from mase_server.notebooks import is_notebook
from mase_server.snapshot import Problem
from mase_server.tracing.errors.problems import describe as told
from mase_server.tracing.loading.missing import MissingImports
from mase_server.tracing.loading.placeholders import stands_in
from mase_server.worker.request import TraceRequest

#: Other ways to make a model, each of which is searched for inputs.
MAX_WAYS = 4
#: Seconds for classes that no shown model uses: what others show does not wait for them much longer.
REST_SECONDS = 3.0
#: Functions that are tried before the arguments of the classes that they make are guessed.
MAX_FACTORIES = 3


def find(request: TraceRequest, source: str, hooks: Hooks) -> Iterator[Found | Problem]:
    """Every model of a file with example inputs, and a problem for each that could not be shown.

    Runs the file. Between the items the file's surroundings (argv, folder, guard) stay as its models need them.
    """
    try:
        tree = ast.parse(source, request.path)
    except SyntaxError as error:
        yield trouble.in_run(request.path, request.folder, error)
        return
    with ExitStack() as stack:
        stack.enter_context(guarded(request.scratch, request.bytecode_cache))
        stack.enter_context(as_program(request.path, request.folder))
        missing = MissingImports(request.folder)
        stack.enter_context(missing.tolerated())
        stack.enter_context(alone(source))
        stack.enter_context(modules_kept("__main__", Place.of(request.path).name))
        comments = tried(request.options.trial, read_comments(source, tree), tree)
        yield from (trouble.at_comment(request.path, each) for each in comments if isinstance(each, BadComment))
        try:
            wishes = Wishes(request.options, comments)
        except SpecError as error:
            message = (
                f"The inputs given could not be read: {error.message}. They are written as `NAME: TYPE[SIZE, ...]`."
            )
            yield trouble.at_class(request.path, None, "error", "bad-inputs", message)
            return
        if not wishes.skips_file():
            yield from _Finder(request, tree, hooks, wishes).run()
            yield from problems_of(missing, request.path, request.folder)


class _Finder(Running):
    def run(self) -> Iterator[Found | Problem]:
        run, program = self.load()
        self.names = vars(run.module)
        yield from map(self.cover, program)
        yield from self.refused.values()
        if program and run.error is not None and self.hooks.on_end is not None:
            self.hooks.on_end(run.error, run.failure)
        problem = None if program and not run.early else self.in_run(run)
        if problem is not None:
            yield problem
        # One problem is enough: what it keeps from being found is not told as well.
        yield from (item for item in self._rest(run) if problem is None or isinstance(item, Found))

    def _rest(self, run: MainRun) -> Iterator[Found | Problem]:
        yield from self._instances(run.module)
        if is_notebook(self.path):
            yield from self._made(run)
        yield from self._searched(run.module)

    def _made(self, run: MainRun) -> Iterator[Found]:
        """Models that a notebook made and never called: cells use one name again and again, so it may hold none."""
        before, parts = set(self.covered), run.constructions.children()
        for made in run.constructions:
            name = type(made.model).__name__
            known = name in self.nodes and not any(map(stands_in, made.bound().values()))
            wanted = name not in before | self.covered and self.wishes.wants(name)
            if known and wanted and id(made.model) not in parts:
                self.take_turn(1)
                found = self.complete(Built(made.model, made.bound(), "main", made.rebuild()), name)
                yield from (each for each in found if isinstance(each, Found))

    def _instances(self, module: ModuleType) -> Iterator[Found | Problem]:
        """Models that the file keeps in its own variables and never calls."""
        before = set(self.covered)
        for instance in module_instances(vars(module), self.request.folder, self.nodes):
            name = self._name(instance)
            # A constructor call that somebody asks for makes another model than the one in the variable.
            asked = name in self.nodes and self.wishes.of(name).constructor(name) is not None
            if name not in before and self.wishes.wants(name) and not asked:
                self.take_turn(1)
                yield from self.complete(Built(instance.model, {}, "instance", None), name)

    def _name(self, instance: Instance) -> str:
        """The class of the file that a model is of, else the expression that gives it."""
        kind = type(instance.model).__name__
        return kind if kind in self.classes else instance.name

    def _searched(self, module: ModuleType) -> Iterator[Found | Problem]:
        unknown = list(unknown_bases(self.path, self.request.folder, vars(module), self.nodes))
        yield from unknown
        classes = model_classes(vars(module), self.tree)
        if not classes and not self.shown:
            classes = library_classes(vars(module), self.tree, self.request.folder)
        names = [self.options.model] if self.options.model else roots(classes, self.tree)
        # What needs no guess comes first.
        names.sort(key=lambda name: name in classes and bool(required(classes[name])))
        problems: list[tuple[str, Problem]] = []
        made_by = factories(vars(module), self.tree)
        # Who builds a class that has to be given arguments knows them better than a guess.
        unasked = {name for name in names if name in self.nodes and not self.wishes.of(name).any()}
        needy = {name for name in unasked if name in classes and required(classes[name])}
        others = set(names) - needy
        first = [each for each in made_by if each.names & needy and not each.names & others][:MAX_FACTORIES]
        yield from (item for item in self._from_factories(first, module, set(names)) if isinstance(item, Found))
        for index, name in enumerate(names):
            if name in classes and name not in self.covered and self.wishes.wants(name):
                self.take_turn(len(names) - index)
                for item in self._from_class(name, classes[name], vars(module)):
                    if isinstance(item, Found):
                        yield item
                    else:
                        problems.append((name, item))
        yield from self._from_factories([each for each in made_by if each not in first], module, set(names))
        if not self.options.model:
            yield from self._from_rest(classes, set(names), module)
        yield from (problem for name, problem in problems if name not in self.covered)
        if not classes and not self.shown and not unknown:
            message = "No class of this file extends torch.nn.Module, and running it called no model"
            if self.explanation is not None:
                message += f" ({told(self.explanation)})"
            message += "."
            # Whoever wrote a comment for a model wants to hear of it.
            severity = "warning" if self.wishes.comments else "information"
            yield trouble.at_class(self.path, None, severity, "no-model", message)
        elif self.options.model and self.options.model not in self.covered and self.options.model not in classes:
            message = f"No model {self.options.model!r} in this file; it has {', '.join(classes) or 'none'}."
            yield trouble.at_class(self.path, None, "error", "no-model", message)

    def _from_factories(
        self, made_by: Sequence[Factory], module: ModuleType, wholes: Set[str]
    ) -> Iterator[Found | Problem]:
        """What functions of the file build, where nothing has shown it. wholes: the root classes of the file."""
        budget = Budget.of(REST_SECONDS)
        for factory in made_by:
            if factory.names & wholes & self.covered or not self.wishes.wants(factory.name) or budget.is_spent():
                continue
            asked = self.wishes.of(factory.name).call
            self.turn = budget.part(0.5)
            for instance, built in called(factory, self.around(vars(module)), asked):
                name, kind = self._name(instance), type(instance.model)
                shown = {name} if kind is nn.Sequential else {name, kind.__name__}
                if not shown & self.covered and is_model(instance.model, self.request.folder, self.classes):
                    found = self.complete(self._as_made(built, name, factory), name)
                    # Nobody is told that something of use to others gives no model that could be shown.
                    yield from (each for each in found if isinstance(each, Found) or not self.shown)

    def _as_made(self, built: Built, name: str, factory: Factory) -> Built:
        """A model of a class of the file was made with the arguments of its own constructor, whoever called that."""
        made = construction_of(built.model)
        if name not in self.classes or made is None or built.source == "comment":
            return built
        how = sentence(f"made by {factory.name}", built.how)
        return replace(built, arguments=made.bound(), source="usage", how=how)

    def _from_rest(
        self, classes: Mapping[str, type[nn.Module]], tried: set[str], module: ModuleType
    ) -> Iterator[Found]:
        """Classes that no shown model has, each alone, where that succeeds; and what shown classes have besides."""
        budget = Budget.of(REST_SECONDS)
        shown = [kind for name, kind in classes.items() if name in self.covered and further_entry(kind)]
        while left := {name: kind for name, kind in classes.items() if name not in self.covered | tried}:
            for name in roots(left, self.tree):
                tried.add(name)
                if self.wishes.wants(name) and not budget.is_spent():
                    yield from self._alone(name, left[name], module, budget)
        for kind in shown:
            if not budget.is_spent() and (entry := further_entry(kind)) is not None:
                yield from self._alone(f"{kind.__name__}.{entry}", kind, module, budget)

    def _alone(self, name: str, kind: type[nn.Module], module: ModuleType, budget: Budget) -> Iterator[Found]:
        """A class that is worth showing, but no problem if it cannot be."""
        self.turn = budget.part(0.5)
        asked = self.wishes.of(kind.__name__).constructor(kind.__name__)
        for built in builds(kind, self.around(vars(module)), asked, []):
            searched = self.search(built, name)
            if searched.spec is not None:
                found = self.of_spec(built, name, searched.spec, "search", sentence(searched.how, built.how))
                yield self.cover(replace(found, rest=True))
            return

    def _from_class(self, name: str, kind: type[nn.Module], namespace: dict[str, Any]) -> Iterator[Found | Problem]:
        errors: list[BaseException] = []
        ways = builds(kind, self.around(namespace), self.wishes.of(name).constructor(name), errors)
        built = next(ways, None)
        if built is None:
            yield self.unbuilt(name, kind, errors)
        else:
            yield from self.complete(self.as_wished(built, name), name, itertools.islice(ways, MAX_WAYS))
