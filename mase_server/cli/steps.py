"""The passes that a command line names: `quantize default=fixed(8,4) remove_dropout` is two steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mase_server.arguments import Argument, Checker
from mase_server.steps import Step
from mase_server.suggestions import suggest

#: A pass as `mase/passes` tells it.
Told = Mapping[str, Any]


class UsageError(Exception):
    """The typed words make no sense; the text says what would."""


def parsed(words: Sequence[str]) -> list[Step]:
    """A step for each word that is no `key=value`; those after it are its arguments, texts so far.

    A step may be written as a pipeline has it, too: "quantize(default='fixed(8,4)')".
    """
    found: list[Step] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or "(" in key:
            found.append(_step(word))
        elif not found:
            raise UsageError(f"{word!r} stands before any pass; write: mase-server apply FILE PASS {word}")
        elif key in found[-1].arguments:
            raise UsageError(f"{found[-1].name} has {key} twice")
        else:
            found[-1] = Step(found[-1].name, {**found[-1].arguments, key: value})
    if not found:
        raise UsageError("no pass is named; `mase-server passes` lists them")
    return found


def _step(word: str) -> Step:
    try:
        return Step.parse(word)
    except ValueError as error:
        raise UsageError(str(error)) from None


def meant(steps: Iterable[Step], passes: Sequence[Told]) -> list[Step]:
    """The steps with their passes' proper names and with values in place of texts.

    UsageError for a pass or an argument that there is not, and for values that do not fit; number formats are left to
    the pass. Paths are made absolute: passes run elsewhere.
    """
    return [_meant(step, found(step.name, passes)) for step in steps]


def found(name: str, passes: Sequence[Told]) -> Told:
    """The pass of a name, or of MASE's name for its function; UsageError with the nearest name."""
    known = {key: each for each in passes for key in (each["mase"], each["name"])}
    if name not in known:
        raise UsageError(
            f"there is no pass {name!r}{suggest(name, known, elsewhere='`mase-server passes` lists them')}"
        )
    return known[name]


def _meant(step: Step, told: Told) -> Step:
    arguments = [Argument.from_wire(each) for each in told["arguments"]]
    others = None if told["others"] is None else Argument.from_wire(told["others"])
    checker = Checker(told["name"], arguments, others)
    try:
        values = checker.check(step.arguments)
    except ValueError as error:
        raise UsageError(str(error)) from None
    files = {each.name for each in arguments if each.kind == "file"}
    given = {key: value for key, value in values.items() if _is_given(key, step.arguments)}
    return Step(told["name"], {key: _absolute(value) if key in files else value for key, value in given.items()})


def _is_given(key: str, arguments: Mapping[str, Any]) -> bool:
    """Was an argument typed, by its dotted name or in a map? Defaults are left to the pass."""
    return any(key == typed or key.startswith(f"{typed}.") for typed in arguments)


def _absolute(value: Any) -> Any:
    return str(Path(value).absolute()) if isinstance(value, str) else value
