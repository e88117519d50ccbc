"""Branches that a forward took because of a value: its graph holds only for inputs with the same answer."""

from __future__ import annotations

import dis
import linecache
from collections.abc import Iterator

from mase_server.snapshot import Problem
from mase_server.tracing.calls import Constant, Run, references
from mase_server.tracing.errors.problems import Context
from mase_server.tracing.guards import CONDITIONS
from mase_server.tracing.positions import Mark, Position, resolve
from mase_server.tracing.symbols import Expr
from mase_server.worker.places import Places
from mase_server.worker.traced import Traced

#: Characters of an expression or of a value that are shown.
_MOST = 60


def branches_taken(traced: Traced, places: Places, context: Context) -> Iterator[Problem]:
    """What the person's own code asked of values, and the answer: an information at each such expression."""
    answers: dict[Position, dict[str, None]] = {}
    conditions: set[Position] = set()
    varying = _varying_calls(traced.run)
    for look, seen in traced.looks():
        asked_of = references(look.arguments)
        if not isinstance(seen, Expr) and look.stack and not varying.isdisjoint(asked_of):  # sizes are no values
            position = resolve(_asker(look.stack[0]))
            answers.setdefault(position, {})[_shortened(repr(look.seen))] = None
            if look.asked in CONDITIONS:
                conditions.add(position)
    for position, seen_there in answers.items():
        if context.owns(position.file):
            _, line, column, end_line, end_column = places.row(position)
            span = line, column, end_line, end_column
            told = f"{_source(position)} was {', then '.join(seen_there)}"
            if position in conditions:
                text = f"Branch taken because {told}: the graph holds only for inputs with the same answer."
            else:
                text = f"{told} in this trace: the graph holds only for inputs with the same value."
            yield Problem(position.file, *span, "information", "value-taken", text)


def _varying_calls(run: Run) -> set[int]:
    """The calls whose values follow from inputs or weights; all others give the same in every call of the model."""
    found: set[int] = set()
    for index, call in enumerate(run.calls):
        attribute = call.kind == "get_attr" and not isinstance(call.target, Constant)
        given = references((call.args, list(call.kwargs.values())))
        if call.kind in ("placeholder", "call_module") or attribute or not found.isdisjoint(given):
            found.add(index)
    return found


def _asker(mark: Mark) -> Mark:
    """The instruction that made the value, where the marked one tests it: tests may have their statement's place."""
    code, last = mark
    before = -1
    for instruction in dis.get_instructions(code):
        if instruction.offset >= last:
            tests = "JUMP" in instruction.opname or instruction.opname in ("TO_BOOL", "UNARY_NOT")
            return (code, before) if tests and before >= 0 else mark
        before = instruction.offset
    return mark


def _source(position: Position) -> str:
    """The expression that stands there, on one line."""
    lines = linecache.getlines(position.file)[position.line - 1 : position.end_line]
    if not lines or position.column < 0:
        return "a value"
    lines[-1] = lines[-1].encode()[: position.end_column].decode(errors="ignore")
    lines[0] = lines[0].encode()[position.column :].decode(errors="ignore")
    return f"`{_shortened(' '.join(' '.join(lines).split()))}`"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
