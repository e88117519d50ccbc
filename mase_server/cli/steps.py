"""Read passes from a command line: `quantize default=fixed(8,4) remove_dropout` is two steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mase_server.protocol.answers import Pass
from mase_server.protocol.arguments import Argument, Checker, Step, name_pass
from mase_server.suggestions import suggest

#: A pass as in `mase/passes`.


class UsageError(Exception):
    """The command line is wrong; the text suggests a correct one."""


def parse_steps(words: Sequence[str]) -> list[Step]:
    """A step for each word without `=`; the `key=value` words after it are its arguments, still as texts.

    A step may also be written as in a pipeline: "quantize(default='fixed(8,4)')".
    """
    found: list[Step] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or "(" in key:
            found.append(_parse_step(word))
        elif not found:
            raise UsageError(f"{word!r} stands before any pass; write: mase-server apply FILE PASS {word}")
        elif key in found[-1].arguments:
            raise UsageError(f"{found[-1].name} has {key} twice")
        else:
            found[-1] = Step(found[-1].name, {**found[-1].arguments, key: value})
    if not found:
        raise UsageError("no pass is named; `mase-server passes` lists them")
    return found


def _parse_step(word: str) -> Step:
    try:
        return Step.parse(word)
    except ValueError as error:
        raise UsageError(str(error)) from None


def resolve_steps(steps: Iterable[Step], passes: Sequence[Pass]) -> list[Step]:
    """Resolve the names of passes, and convert texts to values.

    UsageError for an unknown pass or argument and for unfitting values; number formats are checked by the pass. Paths
    are made absolute, because passes run in another process.
    """
    return [_resolve_step(step, find_pass(step.name, passes)) for step in steps]


def find_pass(name: str, passes: Sequence[Pass]) -> Pass:
    """The pass of a name, or of MASE's name for its function; UsageError suggests the nearest name."""
    known = {key: each for each in passes for key in (each["mase"], each["name"])}
    if name not in known:
        raise UsageError(
            f"there is no pass {name!r}{suggest(name, known, elsewhere='`mase-server passes` lists them')}"
        )
    return known[name]


def _resolve_step(step: Step, told: Pass) -> Step:
    arguments = [Argument.from_wire(each) for each in told["arguments"]]
    others = None if told["others"] is None else Argument.from_wire(told["others"])
    checker = Checker(told["name"], arguments, others)
    try:
        values = checker.check(step.arguments)
    except ValueError as error:
        raise UsageError(str(error)) from None
    files = {each.name for each in arguments if each.kind == "file"}
    given = {key: value for key, value in values.items() if _is_given(key, step.arguments)}
    return Step(told["name"], {key: _absolute_path(value) if key in files else value for key, value in given.items()})


def _is_given(key: str, arguments: Mapping[str, Any]) -> bool:
    """Was an argument given, by its dotted name or in a map? Defaults are left to the pass."""
    return any(key == typed or key.startswith(f"{typed}.") for typed in arguments)


def _absolute_path(value: Any) -> Any:
    return str(Path(value).absolute()) if isinstance(value, str) else value


# Shell completion for models of the named file, and for passes.


def complete_models(context: typer.Context, incomplete: str) -> list[str]:
    """The matching classes of the named files, from their syntax trees: completion must not run code."""
    given: Any = context.params.get("file") or context.params.get("files") or []
    files = given if isinstance(given, list | tuple) else [given]
    # After an option that still lacks its value, the words are not assigned to parameters: search them all.
    words = [word for word in context.args if word.endswith(".py")]
    found: dict[str, None] = {}
    for file in (*files, *words):
        found |= dict.fromkeys(_read_class_names(Path(file)))
    return [name for name in found if name.startswith(incomplete)]


#: The file of a query and how it is traced, as parameters of commands.
FileArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A model file.")]
ModelOption = Annotated[
    str | None, typer.Option(help="The model, if the file has several.", autocompletion=complete_models)
]
InputOption = Annotated[list[str] | None, typer.Option("--input", help="An input, e.g. 'x: f32[1,3,224,224]'.")]
PythonOption = Annotated[str | None, typer.Option(help="The interpreter that the model runs in.")]
DaemonOption = Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")]


def _read_class_names(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]


def pass_names(context: typer.Context, incomplete: str) -> list[str]:
    """The matching built-in passes, from their declarations: importing them would load torch."""
    return [name for name in _built_in() if name.startswith(incomplete)]


#: The decorators that declare a pass.
_DECLARES = r"^@(transform|analysis|declare)\("


def _built_in() -> list[str]:
    folder = Path(__file__).parents[1] / "passes"
    found = []
    for file in sorted(folder.rglob("*.py")):
        source = file.read_text("utf-8")
        if re.search(_DECLARES, source, re.MULTILINE):
            functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
            found += [name_pass(node.name) for node in functions if any(map(_declares_pass, node.decorator_list))]
    return sorted(found)


def _declares_pass(decorator: ast.expr) -> bool:
    """Is this `@transform(...)`, `@analysis(...)` or `@declare(...)`?"""
    return re.match(_DECLARES, f"@{ast.unparse(decorator)}") is not None
