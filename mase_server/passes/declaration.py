"""Declarations of passes: name, arguments and needs, from which menus, command line and docs are made.

Given values may be texts. Defaults are filled in when a pass runs, not in the pipeline, which says what the person
said.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

from torch import fx

from mase_server.formats import parse
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.protocol.answers.models import Pass as PassRecord
from mase_server.protocol.answers.models import PassKind
from mase_server.protocol.arguments import Argument, Checker, name_pass, nested
from mase_server.suggestions import suggest

# Options of passes: checked by name, completed with defaults.

#: The arguments of one pass as its function takes them (`pass_args` in MASE), by their names: any Python values.
PassArguments = dict[str, Any]
#: What one pass found or did, under the names that its docstring gives.
Findings = dict[str, Any]
#: The key of findings under which a pass tells why it left nodes as they were: a map of names to sentences.
LEFT = "left"
#: The result of every pass: the graph, and its findings.
Result = tuple[MaseGraph, Findings]


def complete_options(name: str, given: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> PassArguments:
    """The defaults, replaced by the given options. Raises ValueError for an option that the pass does not have."""
    given = given or {}
    for key in given:
        if key not in defaults:
            raise ValueError(f"{name} has no option {key!r}{suggest(key, defaults, 'it takes')}")
    return {**defaults, **given}


def with_common_metadata(graph: MaseGraph) -> None:
    """Make sure that every node has common metadata. If only some have, a transform made the others: all are annotated
    anew.

    Raises ValueError if the graph was never annotated.
    """
    lacking = [node for node in graph.fx_graph.nodes if "mase_op" not in metadata_of(node, graph.module)["common"]]
    if lacking and len(lacking) == len(graph.fx_graph.nodes):
        raise ValueError(
            f"node {lacking[0].name!r} has no common metadata: run add_common_metadata_analysis_pass first"
        )
    if lacking:
        graph.annotate(add_value=False)


# The nodes that a pass works on: the argument `only` of passes that select.

#: The key of a node that was the call of a layer and became the call of a function: it keeps the layer's path.
LAYER = "layer"


@dataclass(frozen=True, slots=True)
class Selection:
    """Nodes by texts: a node's name, a module's path, or a path above it. No text at all, or "", selects everything."""

    only: tuple[str, ...] = ()

    @classmethod
    def of(cls, only: Iterable[str] | None) -> Self:
        """Read a pass's argument `only`; TypeError for anything but a list of texts."""
        texts = (only,) if isinstance(only, str) else tuple(only or ())
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"only has {text!r}; it takes names of nodes and paths of modules, e.g. ['fc1']")
        return cls(texts)

    def covers(self, node: fx.Node) -> bool:
        """Does it select this node, the layer that the node calls, or a module around it?"""
        return not self.only or any(_is_named_by(text, node) for text in self.only)

    def checked(self, graph: fx.Graph) -> Self:
        """Return itself; ValueError for a text that names nothing in the graph."""
        for text in self.only:
            if not any(_is_named_by(text, node) for node in graph.nodes):
                known = {name for node in graph.nodes for name in (node.name, path_of(node)) if name}
                told = suggest(text, sorted(known))
                raise ValueError(f"only names {text!r}, which is no node and no module of this graph{told}")
        return self


def path_of(node: fx.Node) -> str:
    """The path of the layer that a node calls, of the parameter that it reads, else of the module around it."""
    if node.op in ("call_module", "get_attr"):
        return str(node.target)
    scope = node.meta.get("scope")
    return str(node.meta.get(LAYER) or ("" if scope is None else scope.module_path))


def _is_named_by(text: str, node: fx.Node) -> bool:
    path = path_of(node)
    return text in ("", node.name, path) or path.startswith(f"{text}.")


__all__ = ["ONLY", "Argument", "Need", "Pass", "PassFunction", "declare", "declared_pass"]

#: weights: the values of parameters, so the model is built for real.  data: it runs the model, on the data that the
#: argument `data` names, else on random inputs.  metadata: common metadata, which is added before the pass runs.
Need = Literal["weights", "data", "metadata"]

PassFunction = Callable[..., Result]

#: The further argument of passes that select.
ONLY = Argument("only", "texts", "nodes by name, or modules by path with everything in them; empty: the whole model")


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass. name: the user's name for it, e.g. "quantize"; the function's MASE name is `function.__name__`.

    title: the words of the menu.  kind: an analysis does not change the graph.  others: the meaning of further keys
    of pass_args, if the pass takes any.  selects: has it the argument `only`, the nodes, layers or scopes to work on
    (see `Selection`)?  menu: is it offered in editors?  source: the file of a pass of the workspace.
    """

    name: str
    title: str
    kind: PassKind
    function: PassFunction
    arguments: tuple[Argument, ...] = ()
    others: Argument | None = None
    needs: Set[Need] = frozenset()
    selects: bool = False
    menu: bool = True
    source: str = ""

    @property
    def help(self) -> str:
        """The first paragraph of the function's docstring."""
        return (inspect.getdoc(self.function) or "").strip().split("\n\n")[0]

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments, with `only` last if the pass selects."""
        return (*self.arguments, *([ONLY] if self.selects else []))

    def to_wire(self) -> PassRecord:
        """All of it except the function, as a map of plain values. arguments: `all_arguments`.  mase: MASE's name."""
        return {
            "name": self.name,
            "title": self.title,
            "kind": self.kind,
            "selects": self.selects,
            "menu": self.menu,
            "source": self.source,
            "help": self.help,
            "mase": self.function.__name__,
            "needs": sorted(self.needs),
            "arguments": [argument.to_wire() for argument in self.all_arguments],
            "others": None if self.others is None else self.others.to_wire(),
        }

    def checked(self, given: Mapping[str, Any]) -> PassArguments:
        """pass_args from given arguments, whose values may be texts (of a command line) and whose keys may be dotted.

        Declared defaults fill in missing arguments. ArgumentError, a ValueError, says which argument is unknown,
        missing or out of range, and the accepted values.
        """
        checker = Checker(self.name, self.all_arguments, self.others, parse)
        return nested(checker.check(given), [argument.name for argument in self.all_arguments])


class Facts(TypedDict, total=False):
    """The facts that a declaration may give beside the title, as `Pass` has them."""

    arguments: tuple[Argument, ...]
    others: Argument
    needs: Set[Need]
    selects: bool
    menu: bool


Function = TypeVar("Function", bound=PassFunction)


def declare(title: str, kind: PassKind, **facts: Unpack[Facts]) -> Callable[[Function], Function]:
    """Declare the decorated function as a pass; its name is the function's without `_transform_pass` and the like."""

    def add_declaration(function: Function) -> Function:
        vars(function)["declared"] = Pass(name_pass(function.__name__), title, kind, function, **facts)
        return function

    return add_declaration


def declared_pass(value: object) -> Pass | None:
    """The declaration of a function, None for anything else."""
    found = getattr(value, "declared", None)
    return found if isinstance(found, Pass) else None
