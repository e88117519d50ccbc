"""Showing a model that was made: with the wished inputs, or with inputs that a search finds."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from mase_server.protocol.answers.files import InputField, InputForm
from mase_server.protocol.request import TraceRequest, owner_of
from mase_server.protocol.snapshot import Problem
from mase_server.tracing.diagnosis.problems import describe_error as told
from mase_server.tracing.importing.packages import install_advice
from mase_server.tracing.importing.placeholders import GivenUpError
from mase_server.tracing.importing.source import Namespace, list_nodes
from mase_server.tracing.inputs import trouble
from mase_server.tracing.inputs.comments import (
    BLANK,
    Comment,
    Wish,
    Wishes,
    Written,
    comment_for,
    comment_naming,
    inputs_syntax,
    inputs_template,
    read_comment,
    without_text,
)
from mase_server.tracing.inputs.roles import name_dimensions
from mase_server.tracing.inputs.searching.failures import is_unavoidable
from mase_server.tracing.inputs.searching.search import (
    MAX_ATTEMPTS,
    Searched,
    can_run,
    digest_first,
    fails_alike,
    search_inputs,
)
from mase_server.tracing.inputs.spec import Inputs, Spec, complete_sizes, inputs_at, iterate_leaves, on_meta
from mase_server.tracing.inputs.text import write_spec
from mase_server.tracing.models.arguments import Built, Surroundings, build, rebuilt, resized
from mase_server.tracing.models.classes import (
    FORWARD,
    class_nodes,
    entry_of,
    explain_no_function,
    forward_owner,
    make_constructor,
    run_by,
)
from mase_server.tracing.models.constructions import construction_of, list_required_parameters, signature_of
from mase_server.tracing.models.expressions import NoTextError, value_text
from mase_server.tracing.models.found import Found, Hooks, KnownSearch, Unshown, call_arguments
from mase_server.tracing.models.guesses import NoArgumentsError
from mase_server.tracing.models.spreading import Sizes, join_kinds, spread_sizes
from mase_server.tracing.models.workspace import FILE_STEPS, Budget, Workspace
from mase_server.tracing.recording.positions import report_phase
from mase_server.tracing.recording.state import put_in_mode, require_tree

#: The most errors of a forward that are followed to the constructor's arguments.
MAX_ERRORS = 3
#: The tries for a model with guessed arguments before others are guessed, and for each of these.
OTHER_TRIES = 60
#: The most steps for making guessed sizes differ, and the most inputs that are tried with each change.
SPREAD_STEPS = 6_000
SPREAD_TRIES = 16


class Showing:
    """The models of one file that are shown so far, and the steps to show another.

    covered: names of the shown models, and of the classes that they consist of.  shown: the number of shown models.
    """

    def __init__(self, request: TraceRequest, tree: ast.Module, hooks: Hooks, wishes: Wishes) -> None:
        self.request, self.tree, self.hooks, self.wishes = request, tree, hooks, wishes
        self.options, self.path = request.options, request.path
        self.nodes = class_nodes(tree)
        #: Every class statement of the file, those inside functions too.
        self.classes = {node.name for node in list_nodes(tree) if isinstance(node, ast.ClassDef)}
        self.covered: set[str] = set()
        self.shown = 0
        self.explanation: BaseException | None = None
        #: The functions of the file that build a model and need no arguments, by the model's class: their calls.
        self.builders: dict[str, list[str]] = {}
        #: Models that are shown as they were, if no other way to make them is found: by name, with their builders.
        self.last_resorts: dict[str, tuple[Built, str]] = {}
        #: What the file's names stand for, once it has run.
        self.names: Namespace = {}
        self.workspace = Workspace(request.folder, request.path)
        #: The steps for all searches, from the first one on; and those of the class whose turn it is.
        self.budget: Budget | None = None
        self.turn = self.of_steps(0)

    def of_spec(self, built: Built, name: str, spec: Inputs, source: str, how: str) -> Found:
        """A model with inputs that are only described."""
        entry = entry_for(name, built.model)
        run_by(built.model, entry)
        # A user who writes numbers chooses the sizes to run with, without excluding others.
        spec = complete_sizes(spec) if spec.symbols() else name_dimensions(spec.entries, built.model)
        inputs = on_meta(inputs_at(spec), self.hooks.shadows)
        args, kwargs = call_arguments(built.model, inputs)
        return Found(
            built.model, name, args, kwargs, inputs, spec, source, built.arguments, built.source, how, False,
            make_constructor(built.construct, entry), sizes=built.sizes,
        )  # fmt: skip

    def of_search(self, built: Built, name: str, searched: Searched, why: str = "") -> Found:
        """A model with inputs that a search found. why: there was a search."""
        assert searched.spec is not None
        known = KnownSearch(
            searched.spec, searched.how, built.sizes, built.digest(), built.otherwise, searched.led, searched.first
        )
        told = join_clauses(searched.how, built.how) + why
        return replace(self.of_spec(built, name, searched.spec, "search", told), search=known)

    def cover(self, found: Found) -> Found:
        """Mark a model as shown; return it with the comment that asks for its assumptions."""
        self.shown += 1
        kinds = {type(part) for part in found.model.modules()}
        # Showing a class also shows the class whose forward it inherited.
        self.covered |= (
            {found.name} | {kind.__name__ for kind in kinds} | {forward_owner(kind).__name__ for kind in kinds}
        )
        about = tuple(self.wishes.about(found.name))
        sets, active = tuple(self.wishes.sets(found.name)), self.wishes.active(found.name)
        builders = tuple(self.builders.get(owner_of(found.name), ()))
        found = replace(
            found, comment=found.comment or self._write_comment(found), sets=sets, set=active, written=about,
            builders=builders,
        )  # fmt: skip
        if self.options.trial is None:
            return found
        form = form_of(found.model, owner_of(found.name), found.arguments, found.spec, self.names)
        return replace(found, form=form)

    def _write_comment(self, found: Found) -> Comment:
        """The comment that asks for the assumptions, after its call was tried exactly as written."""
        came_from = found.arguments_from, found.inputs_from, found.spec, self.names
        if found.name.partition(".")[0] in self.classes:
            comment = comment_for(found.model, *came_from)
        else:
            comment = comment_naming(found.name, found.arguments, *came_from)
        if comment.text is None or comment.text == comment.inputs or self._is_comment_runnable(comment.text, found):
            return comment
        return replace(comment, text=None, why="the constructor arguments as text make another model")

    def _is_comment_runnable(self, text: str, found: Found) -> bool:
        """Does the call in a comment make a model that runs with a model's inputs?"""
        wish = read_comment(Written(0, 0, 0, text.removeprefix("mase: ")), None, self.names)
        if not isinstance(wish, Wish) or wish.call is None:
            return True
        built = build(type(found.model), self.around(self.names), wish.call, [])
        if built is None:
            return False
        self.hooks.forget(built.trial)
        run_by(built.model, entry_for(found.name, built.model))
        put_in_mode(built.model, found.training)
        return can_run(built.model, found.spec, self.hooks)

    def around(self, namespace: Namespace) -> Surroundings:
        """The surroundings of a class of the file."""
        return Surroundings(namespace, self.tree, self.hooks.shadows, self.hooks.on_trial, self.workspace, self.turn)

    def of_steps(self, steps: float) -> Budget:
        """A budget of so many steps, which the time limit of the trace ends too."""
        return Budget.of(steps, lambda: self.hooks.shadows.steps, self.is_late)

    def is_late(self) -> bool:
        """Has the time for making models ended?"""
        return False

    def whole_budget(self) -> Budget:
        """The steps for all searches of the file, counted from the first one on."""
        self.budget = self.budget or self.of_steps(FILE_STEPS)
        return self.budget

    def take_turn(self, waiting: int) -> None:
        """Take a class's share of the steps: half of the rest, all of them for the last waiting one."""
        self.turn = self.whole_budget().part(1.0 if waiting == 1 else 0.5)

    def as_wished(self, built: Built, name: str) -> Built:
        """The same, noting arguments that came from an option."""
        wish = self.wishes.of(name)
        if wish.constructor(name) is None or wish.call is not None:
            return built
        return replace(built, source=self.options.inputs_from)

    def complete(
        self, built: Built, name: str, others: Iterable[Built] = (), *, builder: str = "", last: bool = True
    ) -> Iterator[Found | Unshown]:
        """Show a model that was never called: with wished inputs, or with those of a search.

        builder: the call of a function of the file that made it, "" for none.  last: does no other way to make a model
        of this name follow?  UnwalkableError if torch cannot traverse it.
        """
        for item in self._complete(built, name, others, builder, last):
            yield replace(item, builder=builder) if isinstance(item, Found) else item

    def _complete(
        self, built: Built, name: str, others: Iterable[Built], builder: str, last: bool
    ) -> Iterator[Found | Unshown]:
        require_tree(built.model)
        entry = entry_for(name, built.model)
        reason = explain_no_function(name, built.model.forward) if entry == FORWARD else None
        if reason is not None:
            message = f"{reason}. Calling the model fails."
            problem = trouble.at_class(self.path, self.nodes.get(name), "error", "missing-forward", message)
            yield Unshown(name, message, "Assign a function to it.", problem)
            return
        wish = self.wishes.of(name)
        if wish.inputs is not None:
            how = join_clauses(wish.said(), built.how)
            yield self.cover(self.of_spec(built, name, wish.inputs, wish.inputs_from, how))
            return
        run_by(built.model, entry)
        remembered = self.hooks.remembered.get(name)
        if remembered is not None and not _takes(built.model, remembered.inputs):
            remembered = None
        # A model that was made otherwise is, if the forward still asks for that: the search begins anew.
        if remembered is not None and not remembered.otherwise:
            known, alike = self._build_as_known(built, remembered)
            free = alike and self._is_free_now(built, known, name, remembered)
            if alike and not free and (found := self._still_works(known, name, remembered)) is not None:
                self._forget_other(known, built)
                yield self.cover(found)
                return
            if free or (known is not built and self.search(built, name, OTHER_TRIES).spec is not None):
                # Sizes may differ now, or have to be equal: the search begins anew.
                self.hooks.forget(known.trial)
                known, remembered = self._resize(built, {}) or built, None
            self._forget_other(known, built)
            built = known
        guessed = built.source == "search"
        searched = self.search(built, name, OTHER_TRIES if guessed else MAX_ATTEMPTS)
        if searched.spec is None:
            built, searched = self._build_otherwise(built, name, searched, others, remembered)
        if searched.spec is None and guessed:
            searched = self.search(built, name)
        if searched.spec is not None:
            built, searched = self.spread_sizes(built, name, searched)
        if searched.spec is None and remembered is not None:
            if last or built.digest() == remembered.built:
                yield self._show_as_known(built, name, remembered)
            else:  # it may have been made in a way that follows
                self.last_resorts.setdefault(name, (built, builder))
        elif (failing := _choose_failing_inputs(built, searched)) is not None:
            how = f"found by search: the likeliest inputs, though the forward fails with them ({searched.how})"
            found = self.of_spec(built, name, failing, "search", how)
            yield self.cover(replace(found, doubtful=searched.likely is None))
        elif searched.spec is None:
            yield self._describe_uncalled(name, built, searched)
        else:
            yield self.cover(self.of_search(built, name, searched, self._why_no_run()))

    def _show_as_known(self, built: Built, name: str, known: KnownSearch) -> Found:
        """A model that fails, with inputs that worked before the last edit: that is worth more than "nothing found"."""
        found = self.of_search(built, name, _as_searched(known), self._why_no_run())
        return self.cover(replace(found, search=known))

    def show_last_resorts(self) -> Iterator[Found]:
        """The models that were made in no other way after all."""
        while self.last_resorts:
            name, (built, builder) = self.last_resorts.popitem()
            if name in self.covered:
                self.hooks.forget(built.trial)
            else:
                yield replace(self._show_as_known(built, name, self.hooks.remembered[name]), builder=builder)

    def search(self, built: Built, name: str, attempts: int = MAX_ATTEMPTS, budget: Budget | None = None) -> Searched:
        """Search for inputs of a model, within its turn's steps."""
        run_by(built.model, entry_for(name, built.model))
        # If these inputs do not work, other arguments need steps too.
        with report_phase("inputs", name), self.hooks.searching():
            return search_inputs(built.model, self.hooks, attempts, budget or self.turn.part(0.6))

    def spread_sizes(self, built: Built, name: str, searched: Searched) -> tuple[Built, Searched]:
        """Give guessed sizes that are equal by chance different values, as far as the code leaves them free.

        All are changed at once, then those of one kind alike, else each alone, and those together that cannot be alone.
        """
        if built.source != "search" or built.plan is None or built.plan.arguments is None or searched.spec is None:
            return built, searched
        sizes = spread_sizes(built.plan.arguments, built.plan.free)
        original, chosen, tied = built, dict(built.sizes), list[str]()
        budget = self.turn.part(0.5, most=SPREAD_STEPS)
        changes = [sizes, *({place: size} for place, size in sizes.items())] if len(sizes) > 1 else [sizes]
        if (kinds := join_kinds(sizes)) != sizes:
            changes.insert(1, kinds)
        while changes and changes[0] and not budget.is_spent():
            change = changes.pop(0)
            other = self._resize(original, {**chosen, **change})
            again = None if other is None else self.search(other, name, SPREAD_TRIES, budget)
            if other is not None and again is not None and _has_same_ranks(again.spec, searched.spec):
                self.hooks.forget(built.trial)
                built, searched, chosen = other, again, {**chosen, **change}
                changes = [] if len(change) == len(sizes) else changes
            else:
                self.hooks.forget(None if other is None else other.trial)
                tied += change if len(change) == 1 < len(sizes) else ()
            if not changes and len(tied) > 1:
                changes, tied = [dict.fromkeys(tied, sizes[tied[0]])], []
        return built, searched

    def _resize(self, built: Built, sizes: Sizes) -> Built | None:
        namespace = vars(sys.modules[type(built.model).__module__])
        return resized(type(built.model), self.around(namespace), built, sizes)

    def _build_otherwise(
        self, built: Built, name: str, searched: Searched, others: Iterable[Built], remembered: KnownSearch | None
    ) -> tuple[Built, Searched]:
        """Make the model in another way, if the present way is why no inputs succeed.

        If they succeed in none, it is made as it was remembered.
        """
        if built.source == "search":
            namespace = vars(sys.modules[type(built.model).__module__])
            others = rebuilt(type(built.model), self.around(namespace), built, searched.errors[:MAX_ERRORS])
        elif built.source == "usage" and searched.likely is not None:
            # It is made as the user makes it, so the mistake is in its forward.
            return built, searched
        kept = built
        for other in others:
            if self.turn.is_spent():
                break
            again = self.search(other, name, OTHER_TRIES)
            other = replace(other, otherwise=True)
            if again.spec is not None and not _lost_layers(built.model, other.model):
                self.hooks.forget(kept.trial)
                return other, again
            if remembered is not None and kept is built and other.digest() == remembered.built:
                kept, other = other, built
            self.hooks.forget(other.trial)
        return kept, searched

    def _build_as_known(self, built: Built, known: KnownSearch) -> tuple[Built, bool]:
        """The model of the last search, and true; the one given if its constructor makes another one now."""
        other = self._resize(built, known.sizes) if known.sizes else built
        if other is None or other.digest() != known.built:
            self._forget_other(built, other)
            return built, False
        return other, True

    def _forget_other(self, kept: Built, other: Built | None) -> None:
        """Take back what the constructor of a model reported that is not shown."""
        if other is not None and other is not kept:
            self.hooks.forget(other.trial)

    def _is_free_now(self, plain: Built, built: Built, name: str, known: KnownSearch) -> bool:
        """May guessed sizes that are equal differ now, of which the last text needed that they are equal?

        plain: as it is guessed; built: with the sizes of the last search.
        """
        plan = built.plan
        if plan is None or plan.arguments is None or not spread_sizes(plan.arguments, plan.free):
            return False
        again, _ = self.spread_sizes(plain, name, _as_searched(known))
        self._forget_other(plain, again)
        return again.sizes != built.sizes

    def _still_works(self, built: Built, name: str, known: KnownSearch) -> Found | None:
        """The model with the inputs of its last search, recorded already if the caller can do that."""
        try:
            found = self.of_search(built, name, _as_searched(known), self._why_no_run())
        except (TypeError, ValueError):  # inputs of another signature
            return None
        run_by(built.model, entry_for(name, built.model))
        with self.hooks.searching():
            if known.first != digest_first(built.model) or not fails_alike(built.model, known.led, self.hooks):
                return None
        if self.hooks.record is not None:
            return replace(found, recorded=True) if self.hooks.record(found) else None
        return found if can_run(built.model, known.inputs, self.hooks) else None

    def describe_unbuilt(self, name: str, kind: type[nn.Module], errors: list[BaseException]) -> Unshown:
        """Why no instance of a class could be made."""
        said = self.wishes.of(name).called_at
        if said is not None and errors and trouble.find_failed_constructor(errors[0]) is None:
            problem = trouble.at_call(self.path, said, told(errors[0]))
            return Unshown(name, problem.message, "Correct the comment.", problem)
        if (unshown := self._describe_lack(name, errors)) is not None:
            return unshown
        if errors and trouble.find_failed_constructor(errors[0]):
            problem = trouble.in_constructor(self.path, self.request.folder, errors[0], name)
            return Unshown(name, f"Its constructor failed: {told(errors[0])}", "", problem)
        step = f"Give its constructor call in a comment above it: `# mase: {_call_syntax(kind)}`."
        reason = f" ({trouble.list_attempts(map(_get_failure_reason, errors))})" if errors else ""
        message = f"No constructor arguments were found for {name}{reason}. {step}"
        problem = self._with_template(name, self._choose_severity(), "no-arguments", message, _call_syntax(kind))
        return Unshown(name, "MASE found no arguments for its constructor.", step, problem)

    def _describe_lack(self, name: str, errors: Iterable[BaseException]) -> Unshown | None:
        """Why a model is not shown if it needs a package that is missing, which is told at the import alone."""
        lacks = [error for each in errors if (error := trouble.find_lack(each)) is not None]
        lack = next((error for error in lacks if error.name), None)
        if lack is None or not (module := lack.name):
            return None
        given_up = isinstance(lack, GivenUpError)  # its import is no problem
        top = module.partition(".")[0]
        known = given_up or top in sys.modules  # a part of it is missing
        why = f"{lack}." if known else f"It needs {top}, which cannot be imported in {sys.executable}."
        step = install_advice(module, [self.request.folder]).strip()
        problem = trouble.at_class(self.path, self.nodes.get(name), "warning", "missing-package", f"{why} {step}")
        return Unshown(name, why, step, problem, elsewhere=not given_up)

    def _with_template(self, name: str, severity: str, code: str, message: str, text: str) -> Problem:
        """A problem of a class that a comment would solve, with the fix that writes it; a class needs one template."""
        node = self.nodes.get(name)
        fixes = [] if name in self.wishes.templates else trouble.template_above(self.path, node, text)
        return replace(trouble.at_class(self.path, node, severity, code, message), fixes=fixes)

    def _describe_uncalled(self, name: str, built: Built, searched: Searched) -> Unshown:
        if (unshown := self._describe_lack(name, searched.errors)) is not None:
            return unshown
        step = inputs_syntax(built.model.forward)
        message = f"No inputs were found for {name}: {searched.how}{self._why_no_run()}. {step}"
        # A file is rarely opened only for its training step.
        severity = self._choose_severity() if entry_for(name, built.model) == FORWARD else "information"
        problem = self._with_template(name, severity, "no-inputs", message, inputs_template(built.model.forward))
        return Unshown(name, "MASE found no inputs that it runs with.", step, problem)

    def _why_no_run(self) -> str:
        """The end of a sentence that says why the file's own run gave no inputs."""
        if self.explanation is None:
            return ""
        return f" (its own run ended before any model was called: {told(self.explanation)})"

    def _choose_severity(self) -> str:
        return "information" if self.shown else "warning"


def _as_searched(known: KnownSearch) -> Searched:
    """The result of a search, as it was."""
    return Searched(known.inputs, known.how, led=known.led, first=known.first)


def _takes(model: nn.Module, inputs: Inputs) -> bool:
    """Has a model's forward parameters with the names of these inputs?"""
    parameters = _get_signature_parameters(model.forward)
    variable = any(each.kind in _VARIABLE for each in parameters.values())
    return variable or inputs.entries.keys() <= parameters.keys()


def _lost_layers(before: nn.Module, after: nn.Module) -> bool:
    """Is a list of layers empty that had some? The error was in these: it is only avoided."""
    kept = dict(after.named_modules())
    lists = ((path, held) for path, held in before.named_modules() if isinstance(held, nn.ModuleList | nn.Sequential))
    return any(len(held) > 0 and path in kept and not any(kept[path].children()) for path, held in lists)


def _has_same_ranks(spec: Inputs | None, other: Inputs) -> bool:
    """Are these inputs as those, but for their sizes?"""
    if spec is None or spec.entries.keys() != other.entries.keys():
        return False
    pairs = zip(map(_list_ranks, spec.entries.values()), map(_list_ranks, other.entries.values()), strict=True)
    return all(one == two for one, two in pairs)


def _list_ranks(spec: Spec) -> list[tuple[str, int]]:
    return [(leaf.dtype, len(leaf.dims)) for leaf in iterate_leaves(spec)]


def _choose_failing_inputs(built: Built, searched: Searched) -> Inputs | None:
    """The inputs to show although the forward fails with them, if the error is probably its own."""
    if any(map(is_unavoidable, searched.errors)):
        return searched.likely
    # Wrong arguments of the constructor make a forward fail too.
    assumed = built.source == "search" or bool(built.how)
    return None if assumed else searched.likely or searched.plausible


def _get_failure_reason(error: BaseException) -> str:
    """The reason why a class could not be made; for a failed guess, only its message."""
    return str(error) if isinstance(error, NoArgumentsError) else told(error)


def entry_for(name: str, model: nn.Module) -> str:
    """The method by which a model runs: the one in its name, as in `Net.training_step`, else its class's."""
    kind, _, method = name.partition(".")
    if method and kind == type(model).__name__:
        return method
    return entry_of(type(model)) or FORWARD


def _call_syntax(kind: type[nn.Module]) -> str:
    """A constructor call to fill in, `Net(dim=..., encoder=...)`, without values that were never tried."""
    return f"{kind.__name__}({', '.join(f'{each.name}={BLANK}' for each in list_required_parameters(kind)) or BLANK})"


def join_clauses(*clauses: str) -> str:
    """Clauses as one text; empty ones are left out."""
    return "; ".join(filter(None, clauses))


# The parts of a model's inputs and constructor arguments that a user may change, as texts to edit and read back.

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def input_fields(model: nn.Module, spec: Inputs) -> list[InputField]:
    """A field for each input: those that are given, then what forward takes besides."""
    parameters = _get_signature_parameters(model.forward)
    sizes = dict(spec.sizes)
    # In the order of the inputs: a symbol gives its size at its first place.
    fields = [
        _make_field(name, parameters.get(name), *_input_text(each, sizes), {}) for name, each in spec.entries.items()
    ]
    left = (name for name, each in parameters.items() if name not in spec.entries and each.kind not in _VARIABLE)
    return [*fields, *(_make_field(name, parameters[name], "", "", {}) for name in left)]


def _input_text(entry: Any, sizes: dict[str, int]) -> tuple[str, str]:
    """(text, reason why there is none) of one input."""
    if (trouble := next(without_text(entry), None)) is not None:
        return "", trouble
    return write_spec(entry, sizes), ""


def argument_fields(
    made_by: Callable[..., Any], given: Mapping[str, Any], names: Mapping[str, Any]
) -> list[InputField]:
    """A field for each argument of what makes a model. given: the arguments that it was given, by name."""
    fields = []
    for name, parameter in _get_signature_parameters(made_by).items():
        if parameter.kind in _VARIABLE:
            continue
        text, why = _value_text(given[name], names) if name in given else ("", "")
        fields.append(_make_field(name, parameter, text, why, names))
    return fields


def find_maker(model: nn.Module, owner: str, names: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The class or function of the file that a comment must call to make a model of this name."""
    found = type(model) if type(model).__name__ == owner else names.get(owner)
    return None if found is None or isinstance(found, nn.Module) or not callable(found) else found


def given_to(model: nn.Module, owner: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments that a model's maker was given."""
    made = construction_of(model)
    return made.bound() if type(model).__name__ == owner and made is not None else arguments


def _make_field(
    name: str, parameter: inspect.Parameter | None, text: str, why: str, names: Mapping[str, Any]
) -> InputField:
    empty = inspect.Parameter.empty
    required = parameter is not None and parameter.default is empty and parameter.kind not in _VARIABLE
    optional = parameter is None or parameter.default is empty
    default = "" if optional or parameter is None else _value_text(parameter.default, names)[0]
    return {"name": name, "text": text, "why": why, "required": required, "default": default}


def _value_text(value: Any, names: Mapping[str, Any]) -> tuple[str, str]:
    try:
        return value_text(value, names), ""
    except NoTextError as error:
        return "", str(error)


def _get_signature_parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        is_model = isinstance(function, type) and issubclass(function, nn.Module)
        found = signature_of(function) if is_model else inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {}
    return found.parameters


def form_of(
    model: nn.Module, owner: str, arguments: Mapping[str, Any], spec: Inputs, names: Mapping[str, Any]
) -> InputForm:
    """{"call", "arguments", "inputs"}: call: what makes the model, "" where nobody can say that in a comment."""
    makes = find_maker(model, owner, names)
    fields = [] if makes is None else argument_fields(makes, given_to(model, owner, arguments), names)
    return {"call": "" if makes is None else owner, "arguments": fields, "inputs": input_fields(model, spec)}
