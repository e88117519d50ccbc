"""`mase-server passes`: which passes there are, and what one of them takes."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mase_server.arguments import Argument
from mase_server.cli.applying import passes_of
from mase_server.cli.interpreters import may_start
from mase_server.cli.session import Wanted, project_of
from mase_server.cli.steps import UsageError, found
from mase_server.cli.tables import columns
from mase_server.cli.terminal import say, say_json
from mase_server.daemon.environment import candidates
from mase_server.reading import is_file

#: Traced where no file was named: passes are told by a process that has a model.
_ANY_MODEL = "from torch import nn\n\nmodel = nn.Sequential(nn.Linear(2, 2))\n# mase: input = f32[1, 2]\n"


def listed(what: Sequence[str], python: str | None, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """The passes for the file among `what`, of the folder one is in without it; only those that are named, if any are.

    UsageError for a name that there is not.
    """
    files = [word for word in what if word.endswith(".py") or is_file(word)]
    if len(files) > 1:
        raise UsageError(f"one file at most, not {len(files)}: {', '.join(files)}")
    if files and not is_file(files[0]):
        raise UsageError(f"there is no file {files[0]!r}")
    passes = _of_file(Path(files[0]), python, tell) if files else _of_folder(python, tell)
    names = [word for word in what if word not in files]
    return [dict(found(name, passes)) for name in names] if names else passes


def _of_file(file: Path, python: str | None, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    return asyncio.run(passes_of(Wanted((file,), python=python), None, tell))


def _of_folder(python: str | None, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "any.py")
        file.write_text(_ANY_MODEL)
        folder = project_of(str(Path.cwd() / "any.py"))
        if not all(may_start(one, folder, python) for one in candidates(folder, str(file), python, os.environ)):
            python = sys.executable  # nobody has named that folder: nothing of it is started
        return asyncio.run(passes_of(Wanted((file,), python=python), folder, tell))


def print_passes(passes: Sequence[Mapping[str, Any]], whole: bool) -> None:
    """A line each, or a page each (`whole`)."""
    if not whole:
        for line in _table(passes):
            say(line)
        return
    for number, each in enumerate(passes):
        for line in page(each):
            say(("\n" if number and line == each["name"] else "") + line)


def print_json(passes: Sequence[Mapping[str, Any]]) -> None:
    """One list."""
    say_json(list(passes))


def _table(passes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    head = ("pass", "kind", "what it does")
    rows = [(each["name"], each["kind"], each["title"] + _origin(each)) for each in passes]
    return columns(head, rows)


def _origin(told: Mapping[str, Any]) -> str:
    return f" ({told['source']})" if told["source"] else ""


def page(told: Mapping[str, Any]) -> Iterator[str]:
    """The description of a pass for a person: its effect, its arguments, an example."""
    yield told["name"]
    yield f"  {told['title']} ({told['kind']}; in the library passes.{told['mase']})"
    yield from (f"  {line.strip()}" for line in told["help"].splitlines())
    if told["source"]:
        yield f"  from {told['source']}"
    arguments = [Argument.from_wire(each) for each in told["arguments"]]
    for argument in arguments:
        yield f"  {argument.name}={_shown(argument)}: {argument.help}. Takes {argument.takes}."
    if told["others"] is not None:
        others = Argument.from_wire(told["others"])
        yield f"  {others.name or 'NAME'}=...: {others.help}. Takes {others.takes}; as often as wanted."
    if told["needs"]:
        yield f"  needs {', '.join(told['needs'])}"
    needed = "".join(f" {each.name}=..." for each in arguments if each.required)
    yield f"  mase-server apply FILE {told['name']}{needed}"


def _shown(argument: Argument) -> str:
    if argument.required:
        return "..., required"
    return "..." if argument.default is None else f"{argument.default}"
