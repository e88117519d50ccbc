"""A model that is made is to be shown: with the inputs that somebody wishes, or with some that a search finds."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from mase_server.inputs import trouble
from mase_server.inputs.assumed import Comment, comment_for, comment_naming
from mase_server.inputs.budget import FILE_SECONDS, Budget
from mase_server.inputs.classes import class_nodes
from mase_server.inputs.comments import BLANK, Wish, Written, inputs_syntax, inputs_template, read_comment
from mase_server.inputs.entries import FORWARD, entry_of, forward_owner, makes, run_by
from mase_server.inputs.form import form_of
from mase_server.inputs.found import Found, Hooks, call_arguments
from mase_server.inputs.generate import complete, inputs_at
from mase_server.inputs.making.arguments import Built, Surroundings, build, rebuilt
from mase_server.inputs.making.guesses import NoArgumentsError, required
from mase_server.inputs.making.workspace import Workspace
from mase_server.inputs.modes import on_meta
from mase_server.inputs.roles import name_dimensions
from mase_server.inputs.searching.failures import unavoidable
from mase_server.inputs.searching.search import Searched, search, works
from mase_server.inputs.spec import Inputs
from mase_server.inputs.wishes import Wishes
from mase_server.snapshot import Problem
from mase_server.tracing.cycles import require_tree
from mase_server.tracing.errors.problems import describe as told
from mase_server.tracing.phases import phase
from mase_server.tracing.state import put_in_mode
from mase_server.worker.request import TraceRequest, owner_of

#: Errors of a forward that are followed to the constructor's arguments.
MAX_ERRORS = 3


class Showing:
    """What is shown of one file so far, and how a model comes to be shown.

    covered: names of the classes that shown models consist of.  shown: how many models are.
    """

    def __init__(self, request: TraceRequest, tree: ast.Module, hooks: Hooks, wishes: Wishes) -> None:
        self.request, self.tree, self.hooks, self.wishes = request, tree, hooks, wishes
        self.options, self.path = request.options, request.path
        self.nodes = class_nodes(tree)
        #: Every class statement of the file, those inside functions too.
        self.classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        self.covered: set[str] = set()
        self.shown = 0
        self.explanation: BaseException | None = None
        #: What the file's names stand for, once it has run.
        self.names: dict[str, Any] = {}
        self.workspace = Workspace(request.folder, request.path)
        #: The time for all that is searched for, from the first search on; and that of the class whose turn it is.
        self.budget: Budget | None = None
        self.turn = Budget.of(0.0)

    def of_spec(self, built: Built, name: str, spec: Inputs, source: str, how: str) -> Found:
        """A model with inputs that are only described."""
        entry = entry_for(name, built.model)
        run_by(built.model, entry)
        # Whoever writes numbers says which sizes to run with, not that no others are possible.
        spec = complete(spec) if spec.symbols() else name_dimensions(spec.entries, built.model)
        inputs = on_meta(inputs_at(spec), self.hooks.shadows)
        args, kwargs = call_arguments(built.model, inputs)
        return Found(
            built.model, name, args, kwargs, inputs, spec, source, built.arguments, built.source, how, False,
            makes(built.construct, entry),
        )  # fmt: skip

    def cover(self, found: Found) -> Found:
        """The same, known to be shown, with the comment that asks for what was assumed."""
        self.shown += 1
        kinds = {type(part) for part in found.model.modules()}
        # Whose forward a shown class has inherited is shown by that.
        self.covered |= {kind.__name__ for kind in kinds} | {forward_owner(kind).__name__ for kind in kinds}
        about = tuple(self.wishes.about(found.name))
        sets, active = tuple(self.wishes.sets(found.name)), self.wishes.active(found.name)
        found = replace(found, comment=found.comment or self._comment(found), sets=sets, set=active, written=about)
        if self.options.trial is None:
            return found
        form = form_of(found.model, owner_of(found.name), found.arguments, found.spec, self.names)
        return replace(found, form=form)

    def _comment(self, found: Found) -> Comment:
        """The comment that asks for what was assumed, once the call that it says was tried as it stands there."""
        came_from = found.arguments_from, found.inputs_from, found.spec, self.names
        if found.name.partition(".")[0] in self.classes:
            comment = comment_for(found.model, *came_from)
        else:
            comment = comment_naming(found.name, found.arguments, *came_from)
        if comment.text is None or comment.text == comment.inputs or self._makes(comment.text, found):
            return comment
        return replace(comment, text=None, why="the constructor arguments as text make another model")

    def _makes(self, text: str, found: Found) -> bool:
        """Does the call in a comment make a model that runs with a model's inputs?"""
        wish = read_comment(Written(0, 0, 0, text.removeprefix("mase: ")), None, self.names)
        if not isinstance(wish, Wish) or wish.call is None:
            return True
        built = build(type(found.model), self.around(self.names), wish.call, [])
        if built is None:
            return False
        run_by(built.model, entry_for(found.name, built.model))
        put_in_mode(built.model, found.training)
        return works(built.model, found.spec, self.hooks)

    def around(self, namespace: dict[str, Any]) -> Surroundings:
        """What a class of the file is made with and among."""
        return Surroundings(namespace, self.tree, self.hooks.shadows, self.hooks.on_trial, self.workspace, self.turn)

    def take_turn(self, waiting: int) -> None:
        """A class's share of the time: half of what is left, all of it for the last of those that wait."""
        self.budget = self.budget or Budget.of(FILE_SECONDS)
        self.turn = self.budget.part(1.0 if waiting == 1 else 0.5)

    def as_wished(self, built: Built, name: str) -> Built:
        """The same, its arguments known to come from an option where one gave them."""
        wish = self.wishes.of(name)
        if wish.constructor(name) is None or wish.call is not None:
            return built
        return replace(built, source=self.options.inputs_from)

    def complete(self, built: Built, name: str, others: Iterable[Built] = ()) -> Iterator[Found | Problem]:
        """A model without a call: wished inputs, or a search for some.

        UnwalkableError where torch cannot walk over it.
        """
        require_tree(built.model)
        wish = self.wishes.of(name)
        if wish.inputs is not None:
            how = sentence(wish.said(), built.how)
            yield self.cover(self.of_spec(built, name, wish.inputs, wish.inputs_from, how))
            return
        remembered, how = self.hooks.remembered.get(name, (None, ""))
        if remembered is not None and (found := self._still_works(built, name, remembered, how)) is not None:
            yield self.cover(found)
            return
        searched = self.search(built, name)
        if searched.spec is None and remembered is None:
            built, searched = self._otherwise(built, name, searched, others)
        if searched.spec is None and remembered is not None:
            # They worked before the last edit: the error that they meet now is worth more than "nothing found".
            yield self.cover(self.of_spec(built, name, remembered, "search", how))
        elif (failing := _failing(built, searched)) is not None:
            how = f"found by search: the likeliest inputs, though the forward fails with them ({searched.how})"
            found = self.of_spec(built, name, failing, "search", how)
            yield self.cover(replace(found, doubtful=searched.likely is None))
        elif searched.spec is None:
            yield self._uncalled(name, built, searched)
        else:
            how = sentence(searched.how, built.how) + self._why_no_run()
            yield self.cover(self.of_spec(built, name, searched.spec, "search", how))

    def search(self, built: Built, name: str) -> Searched:
        """Look for inputs of a model, in its turn's time."""
        run_by(built.model, entry_for(name, built.model))
        # Where these inputs do not work, other arguments want their time too.
        with phase("inputs", name):
            return search(built.model, self.hooks, budget=self.turn.part(0.6))

    def _otherwise(
        self, built: Built, name: str, searched: Searched, others: Iterable[Built]
    ) -> tuple[Built, Searched]:
        """The model made in another way, if the way in which it was made is why no inputs succeed."""
        if built.source == "search":
            namespace = vars(sys.modules[type(built.model).__module__])
            others = rebuilt(type(built.model), self.around(namespace), built, searched.errors[:MAX_ERRORS])
        elif built.source == "usage" and searched.likely is not None:
            # It is made as the person makes it, and its forward has a mistake.
            return built, searched
        for other in others:
            if self.turn.is_spent():
                break
            again = self.search(other, name)
            if again.spec is not None:
                return other, again
        return built, searched

    def _still_works(self, built: Built, name: str, remembered: Inputs, how: str) -> Found | None:
        """The model with the inputs of its last search, recorded already where the caller can do that."""
        try:
            found = self.of_spec(built, name, remembered, "search", how)
        except (TypeError, ValueError):  # inputs of another signature
            return None
        if self.hooks.record is not None:
            return replace(found, recorded=True) if self.hooks.record(found) else None
        return found if works(built.model, remembered, self.hooks) else None

    def unbuilt(self, name: str, kind: type[nn.Module], errors: list[BaseException]) -> Problem:
        """What is told of a class that nothing could make."""
        said = self.wishes.of(name).called_at
        if said is not None and errors and trouble.constructing(errors[0]) is None:
            return trouble.at_call(self.path, said, told(errors[0]))
        step = f"Say how it is made with a comment above it: `# mase: {_call_syntax(kind)}`"
        if errors and trouble.constructing(errors[0]):
            return trouble.in_constructor(self.path, self.request.folder, errors[0], name)
        reason = f" ({trouble.tried(map(_reason, errors))})" if errors else ""
        message = f"No constructor arguments were found for {name}{reason}. {step}."
        return self._with_template(name, self._severity(), "no-arguments", message, _call_syntax(kind))

    def _with_template(self, name: str, severity: str, code: str, message: str, text: str) -> Problem:
        """A problem of a class that a comment would mend, with the fix that writes it; a class needs one template."""
        node = self.nodes.get(name)
        fixes = [] if name in self.wishes.templates else trouble.template_above(self.path, node, text)
        return replace(trouble.at_class(self.path, node, severity, code, message), fixes=fixes)

    def _uncalled(self, name: str, built: Built, searched: Searched) -> Problem:
        message = (
            f"No inputs were found for {name}: {searched.how}{self._why_no_run()}. {inputs_syntax(built.model.forward)}"
        )
        # Only a training step to show is not what most people open the file for.
        severity = self._severity() if entry_for(name, built.model) == FORWARD else "information"
        return self._with_template(name, severity, "no-inputs", message, inputs_template(built.model.forward))

    def _why_no_run(self) -> str:
        """Why the file's own run gave no inputs, as the end of a sentence."""
        if self.explanation is None:
            return ""
        return f" (its own run ended before any model was called: {told(self.explanation)})"

    def _severity(self) -> str:
        return "information" if self.shown else "warning"


def _failing(built: Built, searched: Searched) -> Inputs | None:
    """The inputs to show although the forward fails with them, where the error is likely to be its own."""
    if any(map(unavoidable, searched.errors)):
        return searched.likely
    # Wrong arguments of the constructor make a forward fail too.
    assumed = built.source == "search" or bool(built.how)
    return None if assumed else searched.likely or searched.plausible


def _reason(error: BaseException) -> str:
    """Why a class could not be made; of a guess that failed, only what it says."""
    return str(error) if isinstance(error, NoArgumentsError) else told(error)


def entry_for(name: str, model: nn.Module) -> str:
    """The method that a model is run by: the one that its name says, as in `Net.training_step`, else its class's."""
    kind, _, method = name.partition(".")
    if method and kind == type(model).__name__:
        return method
    return entry_of(type(model)) or FORWARD


def _call_syntax(kind: type[nn.Module]) -> str:
    """A constructor call to be filled in, `Net(dim=..., encoder=...)`, without values that nobody has tried."""
    return f"{kind.__name__}({', '.join(f'{each.name}={BLANK}' for each in required(kind)) or BLANK})"


def sentence(*clauses: str) -> str:
    """Clauses as one text; empty ones are left out."""
    return "; ".join(filter(None, clauses))
