"""Guards as a part of an fx graph: its code checks the sizes of its inputs before it computes anything.

They belong to the graph's way of writing code, so that copies of the graph, and modules made of it, keep them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from mase_server.ir.errors import CheckpointError
from mase_server.tracing.guards import Guard, GuardError, SizeGuards, Source, check_value, describe_look
from mase_server.tracing.sizes import ARITHMETIC, RELATIONS, Term

_CHECK = "_mase_check_sizes"
#: Expressions in files are no deeper.
_MOST_LEVELS = 40


class GuardedCode(fx.graph.CodeGen):
    """Writes a graph's code with a check of its inputs' sizes at the top."""

    def __init__(self, guards: SizeGuards) -> None:
        super().__init__()
        self.guards = guards
        self.calls = 0

    def check(self, inputs: Mapping[str, Any]) -> None:
        """Raise GuardError unless all guards hold for these inputs."""
        self.guards.check(inputs)
        if self.guards.state:
            self.calls += 1
            if self.calls > 1:
                raise GuardError(f"{self.guards.state_text}; give the state to the model as an input instead")

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        """The head of the function, and the check."""
        names = [variable.partition(":")[0].partition("=")[0].strip().lstrip("*") for variable in free_vars]
        head = super().gen_fn_def(free_vars, maybe_return_annotation, **options)
        given = ", ".join(f"{name!r}: {name}" for name in names if name != "self")
        return f"{head}\n    {_CHECK}({{{given}}})"

    def additional_globals(self) -> list[tuple[str, Any]]:
        """The function that the code calls."""
        return [*super().additional_globals(), (_CHECK, self.check)]


def set_guards(graph: fx.Graph, guards: SizeGuards) -> None:
    """Let the code of `graph` check these guards."""
    if guards.guards or guards.state:
        graph.set_codegen(GuardedCode(guards))


def guards_of(graph: fx.Graph) -> SizeGuards:
    """The guards of a graph that speak of sizes."""
    code = graph._codegen
    return code.guards if isinstance(code, GuardedCode) else SizeGuards()


def texts_of(graph: fx.Graph) -> list[str]:
    """Everything that a graph takes for granted, one text for each guard."""
    texts = guards_of(graph).texts()
    for node in graph.nodes:
        if node.op == "call_function" and node.target is check_value:
            asked, _, seen, place = node.args
            texts.append(describe_look(str(asked), seen, str(place)))
    return texts


def write_guards(guards: SizeGuards) -> list[Any]:
    """Guards as plain data."""
    sources = [[each.name, each.input, [list(step) for step in each.path], each.dimension] for each in guards.sources]
    conditions = [[each.relation, _plain(each.left), _plain(each.right), each.place] for each in guards.guards]
    return [sources, conditions, guards.state]


def _plain(term: Term) -> Any:
    return [_plain(part) for part in term] if isinstance(term, tuple) else term


def read_guards(data: Any) -> SizeGuards:
    """Guards from plain data of a file, each part checked; CheckpointError for anything else."""
    try:
        rows, conditions, state = data
        sources = tuple(
            Source(
                _text(name), _text(given), tuple((flag is True, _key(flag, key)) for flag, key in path), int(dimension)
            )
            for name, given, path, dimension in rows
        )
        names = {source.name for source in sources}
        guards = tuple(
            Guard(_text(relation, RELATIONS), _term(left, names), _term(right, names), _text(place))
            for relation, left, right, place in conditions
        )
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"its guards are not understood: {error}") from None
    return SizeGuards(sources, guards, _text(state))


def _text(value: Any, known: Any = None) -> str:
    if not isinstance(value, str) or (known is not None and value not in known):
        raise ValueError(f"{value!r:.80}")
    return value


def _key(is_attribute: Any, key: Any) -> Any:
    if not isinstance(key, str | int) or (is_attribute and not (isinstance(key, str) and not key.startswith("_"))):
        raise ValueError(f"{key!r:.80}")
    return key


def _term(value: Any, names: set[str], level: int = 0) -> Term:
    if type(value) is int or (isinstance(value, str) and value in names):
        return value
    operator, left, right = value
    if level > _MOST_LEVELS or not isinstance(value, list):
        raise ValueError(f"{value!r:.80}")
    return _text(operator, ARITHMETIC), _term(left, names, level + 1), _term(right, names, level + 1)
