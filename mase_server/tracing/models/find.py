"""Finding the models of a file, with inputs for them: comment, option, `__main__`, instances, then search.

Functions that build a class are tried before its arguments are guessed, since they know them. At last come, alone and
silent if they fail, the classes that no shown model has (`rest`): where another model has values, theirs are left out,
because guessed sizes must not stand beside known ones.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from torch import nn

from mase_server.notebooks import is_notebook
from mase_server.protocol.request import TraceRequest, owner_of
from mase_server.protocol.snapshot import Problem
from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.diagnosis.problems import describe_error as told
from mase_server.tracing.execution.guard import guard_program
from mase_server.tracing.execution.program import Place, as_program, modules_kept
from mase_server.tracing.execution.running import (
    Instance,
    Lacking,
    MainRun,
    Running,
    iterate_held_models,
    problems_of,
    tell_in_file,
    unknown_bases,
)
from mase_server.tracing.execution.substitutes import simulate_single_process
from mase_server.tracing.importing.missing import MissingImports
from mase_server.tracing.importing.placeholders import stands_in
from mase_server.tracing.importing.source import Namespace, list_nodes, parse_text
from mase_server.tracing.inputs import trouble
from mase_server.tracing.inputs.comments import BadComment, Wishes, apply_trial, read_comments
from mase_server.tracing.inputs.showing import join_clauses
from mase_server.tracing.inputs.text import SpecError
from mase_server.tracing.models.arguments import Built, Surroundings, builds
from mase_server.tracing.models.classes import (
    class_nodes,
    explain_no_class,
    find_root_classes,
    further_entry,
    library_classes,
    model_classes,
)
from mase_server.tracing.models.constructions import (
    Constructions,
    construction_of,
    get_class_origin,
    key_of_arguments,
    list_required_parameters,
)
from mase_server.tracing.models.expressions import NAMES
from mase_server.tracing.models.found import Found, Hooks, Unshown
from mase_server.tracing.models.guesses import (
    Arguments,
    NoArgumentsError,
    lacking_arguments,
    make_arguments,
)
from mase_server.tracing.models.plans import Start, iterate_builder_starts
from mase_server.tracing.models.workspace import FILE_STEPS, Budget
from mase_server.tracing.recording.shadow import MetaMode

#: The most other ways to make a model for which inputs are searched.
MAX_WAYS = 4
#: Steps for classes that no shown model uses: the other models do not wait much longer for them.
REST_STEPS = 30_000
#: The most functions that are tried before guessing the arguments of the classes that they make.
MAX_FACTORIES = 3
#: A result of the search.
Item = Found | Unshown | Problem


def find_models(request: TraceRequest, source: str, hooks: Hooks) -> Iterator[Item]:
    """Every model of a file with example inputs, each that cannot be shown, and further problems of the file.

    Runs the file. Between the items the file's surroundings (argv, folder, guard) stay as its models need them.
    """
    try:
        tree = parse_text(source, request.path)
    except SyntaxError as error:
        yield trouble.in_run(request.path, request.folder, error)
        return
    with ExitStack() as stack:
        stack.enter_context(guard_program(request.scratch, request.bytecode_cache))
        stack.enter_context(as_program(request.path, request.folder))
        missing = MissingImports(request.folder, request.path)
        stack.enter_context(missing.tolerated())
        stack.enter_context(simulate_single_process(source))
        stack.enter_context(modules_kept("__main__", Place.of(request.path).name))
        comments = apply_trial(request.options.trial, read_comments(source, tree), tree)
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
            finder = _Finder(request, tree, hooks, wishes)
            yield from finder.run()
            yield from problems_of(missing, request.path, request.folder, finder.lacking, serious=not finder.shown)


class _Finder(Running):
    """The search. late: the models that it did not come to, each with its place, the reason and what would help.

    lacking: a statement of the file needs a missing package; it is told at the import of that package.
    """

    def __init__(self, request: TraceRequest, tree: ast.Module, hooks: Hooks, wishes: Wishes) -> None:
        super().__init__(request, tree, hooks, wishes)
        self.late: dict[str, tuple[ast.ClassDef | ast.FunctionDef | None, str, str]] = {}
        self.lacking: Lacking | None = None

    def run(self) -> Iterator[Item]:
        run, program = self.load()
        self.hooks.on_loaded()
        self.names = vars(run.module)
        self.factories = find_factories(self.names, self.tree)
        for factory in self.factories:
            # A function that makes several classes may return any of them.
            if len(factory.makes) == 1 and not list_required_parameters(self.names[factory.name]):
                self.builders.setdefault(next(iter(factory.makes)), []).append(f"{factory.name}()")
        program = [each for each in program if not self._is_builder_picked(each.name)]
        yield from map(self.cover, program)
        yield from self.refused.values()
        if program and run.error is not None and self.hooks.on_end is not None:
            self.hooks.on_end(run.error, run.failure)
        for absent in run.absent:
            told = trouble.of_absent_data(self.path, self.request.folder, absent)
            yield tell_in_file(told, self.path, self.request.folder)
        problem = None if program and not run.early else self.in_run(run)
        lack = trouble.find_lack(run.error) if problem is not None and run.error is not None else None
        if problem is not None and lack is not None and lack.name:
            self.lacking = Lacking(lack, problem)
        elif problem is not None:
            yield tell_in_file(problem, self.path, self.request.folder)
        unshown: set[str] = set()
        for item in self._show_remaining(run):
            if isinstance(item, Unshown):
                if item.name in unshown:
                    continue  # a function that builds a class that is not shown either
                unshown.add(item.name)
            # One problem is enough: its consequences are not reported as well.
            if problem is None or isinstance(item, Found):
                yield item
            elif isinstance(item, Unshown):
                yield replace(item, elsewhere=True)

    def _is_builder_picked(self, name: str) -> bool:
        """Is a function of the file picked to build this model, whatever the file itself runs?"""
        return self.wishes.picked_builder(name) in self.builders.get(owner_of(name), ())

    def _show_remaining(self, run: MainRun) -> Iterator[Item]:
        yield from self._show_instances(run)
        if is_notebook(self.path):
            yield from self._show_made_models(run)
        yield from self._search_classes(run.module)

    def _show_made_models(self, run: MainRun) -> Iterator[Found]:
        """Models that a notebook made and never called; cells reuse names, so a name may hold none of them."""
        before, parts = set(self.covered), run.constructions.children()
        for made in run.constructions:
            name = type(made.model).__name__
            known = name in self.nodes and not any(map(stands_in, made.bound().values()))
            wanted = name not in before | self.covered and self.wishes.wants(name)
            if known and wanted and id(made.model) not in parts:
                self.take_turn(1)
                found = self.complete(Built(made.model, made.bound(), "main", made.rebuild()), name)
                yield from (each for each in found if isinstance(each, Found))

    def _show_instances(self, run: MainRun) -> Iterator[Found | Unshown]:
        """Models that the file keeps in its own variables and never calls."""
        before, called = set(self.covered), run.shown_parts
        for instance in module_instances(vars(run.module), self.request.folder, self.nodes):
            name = self._name_instance(instance)
            # A wished constructor call makes another model than the one in the variable.
            asked = name in self.nodes and self.wishes.of(name).constructor(name) is not None
            asked |= self._is_builder_picked(name) or (id(instance.model) in called and not self._is_wished(name))
            if name not in before and self.wishes.wants(name) and not asked:
                self.take_turn(1)
                yield from self.complete(Built(instance.model, {}, "instance", None), name)

    def _is_wished(self, name: str) -> bool:
        """Does a comment or the request name this variable?"""
        return self.options.model == name or any(each.owner == name for each in self.wishes.comments)

    def _name_instance(self, instance: Instance) -> str:
        """The file's class of a model, else the expression that gives it."""
        kind = type(instance.model).__name__
        return kind if kind in self.classes else instance.name

    def _search_classes(self, module: ModuleType) -> Iterator[Item]:
        unknown = list(unknown_bases(self.path, self.request.folder, vars(module), self.nodes))
        yield from unknown
        classes = model_classes(vars(module), self.tree)
        if not classes and not self.shown:
            classes = library_classes(vars(module), self.tree, self.request.folder)
        calls = self.around(vars(module)).workspace.calls
        named = [self.options.model] if self.options.model else []
        names = named or find_root_classes(classes, self.tree, lambda name: next(calls(name), None) is not None)
        # Classes that need no guess come first.
        names.sort(key=lambda name: name in classes and bool(list_required_parameters(classes[name])))
        unshown: list[Unshown] = []
        made_by = sorted(self.factories, key=lambda each: not self.wishes.prefers_builder(each.name))
        # A builder of a class with required arguments knows them better than a guess.
        unasked = {name for name in names if name in self.nodes and not self.wishes.of(name).any()}
        needy = {name for name in unasked if name in classes and list_required_parameters(classes[name])}
        others = set(names) - needy
        first = [
            each for each in made_by
            if self.wishes.prefers_builder(each.name) or (each.names & needy and not each.names & others)
        ][:MAX_FACTORIES]  # fmt: skip
        yield from (item for item in self._from_factories(first, module, set(names)) if isinstance(item, Found))
        for index, name in enumerate(names):
            if name in classes and name not in self.covered and self.wishes.wants(name):
                if self.shown and self.is_late():
                    self._note_late(name, self.nodes.get(name))
                    continue
                self.take_turn(len(names) - index)
                for item in self._from_class(name, classes[name], vars(module)):
                    if isinstance(item, Found):
                        yield item
                    elif self.is_late() and not item.elsewhere:
                        self._note_late(name, self.nodes.get(name))
                    else:
                        unshown.append(item)
        yield from self._from_factories([each for each in made_by if each not in first], module, set(names))
        yield from self.show_last_resorts()
        if not self.options.model:
            yield from self._from_rest(classes, set(names), module)
        yield from (each for each in unshown if each.name not in self.covered)
        yield from self._describe_late()
        if not classes and not self.shown and not unknown and not self.late:
            message = f"{explain_no_class(vars(module), self.tree)}, and running it called no model"
            if self.explanation is not None:
                message += f" ({told(self.explanation)})"
            message += "."
            # The author of a comment for a model wants to know the outcome.
            severity = "warning" if self.wishes.comments else "information"
            yield trouble.at_class(self.path, None, severity, "no-model", message)
        elif self.options.model and self.options.model not in self.covered and self.options.model not in classes:
            message = f"No model {self.options.model!r} in this file; it has {', '.join(classes) or 'none'}."
            yield trouble.at_class(self.path, None, "error", "no-model", message)

    def _from_factories(
        self, made_by: Sequence[Factory], module: ModuleType, wholes: Set[str]
    ) -> Iterator[Found | Unshown]:
        """Models that functions of the file build and that are not shown yet. wholes: the root classes of the file."""
        budget = self.of_steps(REST_STEPS if self.shown else FILE_STEPS)
        for factory in made_by:
            if factory.names & wholes & self.covered or not self.wishes.wants(factory.name):
                continue
            if budget.is_spent():
                # Whether a function with another purpose gives a model is not known.
                if self.is_late():
                    self._note_late(factory.name, factory.node)
                continue
            asked = self.wishes.of(factory.name).call
            self.turn = budget.part(0.5)
            for instance, built in call_factory(factory, self.around(vars(module)), asked):
                name, kind = self._name_instance(instance), type(instance.model)
                shown = {name} if kind is nn.Sequential else {name, kind.__name__}
                if not shown & self.covered and is_model(instance.model, self.request.folder, self.classes):
                    made = self._as_made(built, name, factory)
                    # A function with another purpose gets no problem if it gives no model that could be shown.
                    for each in self.complete(made, name, builder=f"{factory.name}()", last=False):
                        if isinstance(each, Found) or not self.shown:
                            yield each

    def _note_late(self, name: str, node: ast.ClassDef | ast.FunctionDef | None) -> None:
        why = f"The time limit of {self.request.seconds:g} s was reached first."
        self.late.setdefault(name, (node, why, "Raise the setting mase.limits.seconds."))

    def _describe_late(self) -> Iterator[Unshown]:
        """The models that the search did not come to; the first one has the diagnostic for all."""
        left = {name: each for name, each in self.late.items() if name not in self.covered}
        for index, (name, (node, why, step)) in enumerate(left.items()):
            count = "One model is" if len(left) == 1 else f"{len(left)} models are"
            message = f"{count} not shown: {why[0].lower()}{why[1:]} {step}"
            problem = trouble.at_class(self.path, node, self._choose_severity(), "time-limit", message)
            yield Unshown(name, why, step, problem, elsewhere=index > 0)

    def _as_made(self, built: Built, name: str, factory: Factory) -> Built:
        """Complete a model of a class of the file with its own constructor's arguments, whoever called that."""
        made = construction_of(built.model)
        if name not in self.classes or made is None or built.source == "comment":
            return built
        how = join_clauses(f"built by {factory.name}", built.how)
        return replace(built, arguments=made.bound(), source="usage", how=how)

    def _from_rest(
        self, classes: Mapping[str, type[nn.Module]], tried: set[str], module: ModuleType
    ) -> Iterator[Found | Unshown]:
        """Classes that no shown model has, each alone, if that succeeds; and further entries of shown classes.

        A class with a comment is shown as the comment says, like any other model.
        """
        budget = self.of_steps(REST_STEPS)
        shown = [kind for name, kind in classes.items() if name in self.covered and further_entry(kind)]
        while left := {name: kind for name, kind in classes.items() if name not in self.covered | tried}:
            for name in find_root_classes(left, self.tree):
                tried.add(name)
                if self.wishes.of(name).any():
                    yield from self._from_class(name, left[name], vars(module))
                    yield from self.show_last_resorts()
                elif self.wishes.wants(name) and not budget.is_spent():
                    yield from self._search_class_quietly(name, left[name], module, budget)
        for kind in shown:
            if not budget.is_spent() and (entry := further_entry(kind)) is not None:
                yield from self._search_class_quietly(f"{kind.__name__}.{entry}", kind, module, budget)

    def _search_class_quietly(
        self, name: str, kind: type[nn.Module], module: ModuleType, budget: Budget
    ) -> Iterator[Found]:
        """A class that is worth showing, without a problem if it cannot be shown."""
        self.turn = budget.part(0.5)
        asked = self.wishes.of(kind.__name__).constructor(kind.__name__)
        for built in builds(kind, self.around(vars(module)), asked, []):
            built, searched = self.spread_sizes(built, name, self.search(built, name))
            if searched.spec is not None:
                yield self.cover(replace(self.of_search(built, name, searched), rest=True))
            return

    def _from_class(self, name: str, kind: type[nn.Module], namespace: Namespace) -> Iterator[Found | Unshown]:
        errors: list[BaseException] = []
        ways = builds(kind, self.around(namespace), self.wishes.of(name).constructor(name), errors)
        built = next(ways, None)
        if built is None:
            yield self.describe_unbuilt(name, kind, errors)
        else:
            others = itertools.islice(ways, MAX_WAYS)
            yield from self.complete(self.as_wished(built, name), name, others, last=False)


# Models that a file keeps in variables of its own; see `running.Instance`.


def module_instances(namespace: Mapping[str, Any], folder: str, classes: Container[str]) -> list[Instance]:
    """The models among a module's variables: of the file's classes, of a library, or an nn.Sequential with weights.

    Parts of other models are left out, and so are models made in the same way as an earlier one.
    """
    found: dict[int, Instance] = {}
    for name, value in namespace.items():
        for instance in iterate_held_models(name, value):
            found.setdefault(id(instance.model), instance)
    models = [instance for instance in found.values() if is_model(instance.model, folder, classes)]
    parts = {id(part) for instance in models for part in instance.model.modules() if part is not instance.model}
    wholes = (instance for instance in models if id(instance.model) not in parts)
    return list({_get_construction_key(instance.model): instance for instance in reversed(list(wholes))}.values())[::-1]


def _get_construction_key(model: nn.Module) -> object:
    """A key that is equal for two models made in the same way."""
    made = construction_of(model)
    return (
        id(model)
        if made is None or made.args or type(model) is nn.Sequential
        else (type(model), key_of_arguments(made.kwargs))
    )


def is_model(model: nn.Module, folder: str, classes: Container[str]) -> bool:
    """Should it be shown: is it of the file's classes, of a library, or an nn.Sequential with weights?"""
    if type(model).__name__ in classes:
        return True
    where = get_class_origin(type(model), folder)
    whole = where == "library" or type(model) is nn.Sequential
    return whole and next(model.parameters(), None) is not None


# Functions of a file that build models: `def build_model(width): return nn.Sequential(...)`.

#: Libraries whose functions may build models; torch's own functions compute, except its hub's.
_BUILDERS = frozenset({"torchvision", "timm", "transformers", "segmentation_models_pytorch", "monai", "open_clip"})
_HUB = "torch.hub"


@dataclass(frozen=True, slots=True)
class Factory:
    """A function that returns a model. names: those that it mentions, and those that the file's functions it calls
    mention.  makes: the classes of the file among those that these functions call."""

    name: str
    node: ast.FunctionDef
    names: frozenset[str]
    makes: frozenset[str]


def find_factories(namespace: Mapping[str, Any], tree: ast.Module) -> list[Factory]:
    """The functions at the top of the file whose result may be a model, without those that others of them call.

    The ones that the file itself tries out, in a function such as `test()` or `main()`, come first.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reader = _Reader(namespace, functions)
    classes = class_nodes(tree)
    found = []
    for name, node in functions.items():
        if inspect.isfunction(namespace.get(name)) and reader.gives_model(node):
            names = _collect_reached_names(node, functions)
            called = {
                each for one in {name} | names & functions.keys() for each in _collect_called_names(functions[one])
            }
            found.append(Factory(name, node, frozenset(names), frozenset(called & classes.keys())))
    if not found:
        return []
    others = functions.keys() - {factory.name for factory in found}
    parts = [*((node.name, node) for node in classes.values()), *functions.items()]
    mentioned = {owner: _collect_mentioned_names(node) - {owner} for owner, node in parts}
    tried = {name for owner in others for name in mentioned[owner]}
    used = {name for owner in mentioned.keys() - others for name in mentioned[owner]}
    return sorted((each for each in found if each.name not in used), key=lambda each: each.name not in tried)


def _collect_reached_names(node: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    found, waiting = set[str](), [node]
    while waiting:
        new = _collect_mentioned_names(waiting.pop()) - found
        found |= new
        waiting += [functions[name] for name in new & set(functions)]
    return found


def _collect_mentioned_names(node: ast.AST) -> set[str]:
    return {inner.id for inner in list_nodes(node) if isinstance(inner, ast.Name)}


def _collect_called_names(node: ast.AST) -> set[str]:
    calls = (inner.func for inner in list_nodes(node) if isinstance(inner, ast.Call))
    return {called.id for called in calls if isinstance(called, ast.Name)}


def call_factory(factory: Factory, around: Surroundings, asked: str | None) -> Iterator[tuple[Instance, Built]]:
    """The models that a function returns, and how; nothing if it fails. asked: the text of the call, if a comment gives
    one."""
    arguments: Arguments = {}
    guessed: Arguments = {}
    start: Start | None = None
    function = around.namespace[factory.name]

    def make() -> Any:
        return function(**make_arguments(arguments)) if asked is None else eval(asked, {**NAMES, **around.namespace})

    try:
        if asked is None:
            start = next(iterate_builder_starts(function, around), None)
            known = start.arguments if start is not None else {}
            guessed = lacking_arguments(function, known, around)
            arguments = {**known, **guessed}
        with around.on_trial(), Constructions().recording(), MetaMode(around.shadows):
            result = make()
    except (*RAISED, NoArgumentsError):  # the border to the user's functions
        return
    source = "comment" if asked is not None else "search" if guessed else "usage" if arguments else "default"
    how = "its builder's arguments are guessed from their names" if guessed else ""
    if start is not None:
        how = start.how_with(guessed)
    for instance in iterate_held_models(factory.name, result):
        yield instance, Built(instance.model, arguments, source, partial(_call_again, make, instance.name), how)


def _call_again(make: Callable[[], Any], name: str) -> nn.Module:
    """The model of this name among those that a function returns when it is called once more."""
    return {each.name: each.model for each in iterate_held_models(name.partition("[")[0], make())}[name]


class _Reader:
    """Reads from the syntax tree whether a function may return a model; nothing runs."""

    def __init__(self, namespace: Mapping[str, Any], functions: Mapping[str, ast.FunctionDef]) -> None:
        self.namespace, self.functions = namespace, functions
        self._known: dict[str, bool] = {}
        owners = (inner for node in functions.values() for inner in _iterate_own_nodes(node))
        self.local = {inner.name for inner in owners if isinstance(inner, ast.ClassDef)}

    def gives_model(self, node: ast.FunctionDef) -> bool:
        """May this function return a model, or several?"""
        if node.name not in self._known:
            self._known[node.name] = False  # where it calls itself
            assigned = _collect_assignments(node)
            results = (
                inner.value for inner in _iterate_own_nodes(node) if isinstance(inner, ast.Return) and inner.value
            )
            self._known[node.name] = any(self._is_model(value, assigned, 0) for value in results)
        return self._known[node.name]

    def _is_model(self, value: ast.expr, assigned: Mapping[str, list[ast.expr]], depth: int) -> bool:
        if depth > 8:
            return False
        match value:
            case ast.Name(id=name):
                return any(self._is_model(each, assigned, depth + 1) for each in assigned.get(name, ()))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return any(self._is_model(part, assigned, depth + 1) for part in parts)
            case ast.Dict(values=parts):
                return any(self._is_model(part, assigned, depth + 1) for part in parts)
            case ast.IfExp(body=one, orelse=other):
                return any(self._is_model(part, assigned, depth + 1) for part in (one, other))
            case ast.Call(func=ast.Attribute(value=ast.Call() | ast.Name() as owner, attr=attribute)) if hasattr(
                nn.Module, attribute
            ) and self._is_model(owner, assigned, depth + 1):
                return True  # `.to(device)`, `.eval()`
            case ast.Call(func=function):
                return self._makes_model(function, assigned)
        return False

    def _makes_model(self, function: ast.expr, assigned: Mapping[str, list[ast.expr]]) -> bool:
        if isinstance(function, ast.Name):
            if function.id in assigned:
                return False
            if function.id in self.local:
                return True
            if function.id in self.functions:
                return self.gives_model(self.functions[function.id])
        held = self._resolve_held(function)
        if inspect.isclass(held):
            return issubclass(held, nn.Module)
        module = getattr(held, "__module__", None) or ""
        return callable(held) and (module.partition(".")[0] in _BUILDERS or module == _HUB)

    def _resolve_held(self, expression: ast.expr) -> Any:
        match expression:
            case ast.Name(id=name):
                return self.namespace.get(name)
            case ast.Attribute(value=owner, attr=name):
                return getattr(self._resolve_held(owner), name, None)
        return None


def _iterate_own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function outside of the functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _iterate_own_nodes(child)


def _collect_assignments(node: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """The values that a function's names are given, one name at a time."""
    found: dict[str, list[ast.expr]] = {}
    for inner in _iterate_own_nodes(node):
        match inner:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
    return found
