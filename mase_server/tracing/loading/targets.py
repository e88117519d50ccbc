"""The names that syntax binds: parameters, assignment and loop targets, pattern captures."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mase_server.tracing.loading.source import Places, Span

#: Nodes that have a position and stand for a value or a name.
Located = ast.expr | ast.arg | ast.pattern


class Target(NamedTuple):
    """One bound name: the node whose position its report carries, and where the name itself is."""

    name: str
    node: Located
    span: Span


def parameters(arguments: ast.arguments, places: Places, *, skip: int = 0) -> list[Target]:
    """Every parameter, `*args` and `**kwargs` included, but the first `skip` positional ones."""
    nodes = [*arguments.posonlyargs, *arguments.args][skip:]
    nodes += [node for node in (arguments.vararg, *arguments.kwonlyargs, arguments.kwarg) if node]
    return [Target(node.arg, node, places.argument(node)) for node in nodes]


def bound(target: ast.expr, places: Places) -> list[Target]:
    """The names that an assignment target binds, left to right; attributes and items are not names."""
    match target:
        case ast.Name(id=name):
            return [Target(name, target, places.span(target))]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return [name for part in parts for name in bound(part, places)]
        case ast.Starred(value=value):
            return bound(value, places)
    return []


def captured(pattern: ast.pattern, places: Places) -> Iterator[Target]:
    """The names that a pattern captures; each alternative of an or-pattern captures them again."""
    for node in ast.walk(pattern):
        match node:
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield Target(name, node, places.capture(node))


def last_of_each(targets: Sequence[Target]) -> list[Target]:
    """In `a, a = ...` the name holds the last value only."""
    return list({target.name: target for target in targets}.values())
