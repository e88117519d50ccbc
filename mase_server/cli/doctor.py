"""`mase-server doctor`: find problems of the environment, and say how to solve them."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mase_server.cli.findings import Finding, examine_environment
from mase_server.cli.terminal import say, say_json

# The interpreter that would run a folder's models, chosen as the daemon does, and whether it can.


_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Output(StrEnum):
    """The output format of `doctor`."""

    TEXT = "text"
    JSON = "json"


def doctor(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder of the models.")] = Path(),
    python: Annotated[str | None, typer.Option(help="The interpreter that is to run the models.")] = None,
    output: Annotated[Output, typer.Option("--format", help="A line for each finding, or a JSON list.")] = Output.TEXT,
) -> None:
    """Find problems of this environment, and say how to solve them.

    The command examines the interpreter that would run the models of a folder, and says why it is that one; its torch
    and packages; the watching of processes and files; the folders of caches and state; the hardware tools; daemons;
    trust. It does not start an interpreter inside an untrusted folder, unless --python names it.

    Examples:

        mase-server doctor

        mase-server doctor ~/project --format json | jq '.[] | select(.state != "ok")'

    Exit status: 0 no failures, though there may be warnings; 1 at least one failure; 2 wrong usage.
    """

    found = []
    for finding in examine_environment(folder.resolve(), python):
        found.append(finding)
        if output is Output.TEXT:
            _print_finding(finding)
    if output is Output.JSON:
        told = ("check", "state", "text", "mend")
        say_json([{key: getattr(each, key) for key in told} for each in found])
    else:
        _print_summary(found)
    sys.stdout.flush()
    raise typer.Exit(1 if any(each.state == "fail" for each in found) else 0)


def _print_finding(finding: Finding) -> None:
    from mase_server.cli.terminal import Line, print_lines

    style = _STYLE[finding.state]
    first, *rest = finding.text.split("\n")
    lines = [Line(((f"{finding.state:4} ", style), (f"{finding.check:12} ", "bold"), (first, "")))]
    lines += [Line(((f"{'':18}{line}", ""),)) for line in rest]
    if finding.mend:
        lines.append(Line(((f"{'':18}to fix it: ", "dim"), (finding.mend, ""))))
    print_lines(lines)
    sys.stdout.flush()


def _print_summary(found: list[Finding]) -> None:
    states = [each.state for each in found]
    bad, odd = states.count("fail"), states.count("warn")
    told = f"{bad} to fix, {odd} to note" if bad else f"nothing to fix, {odd} to note" if odd else "no problems"
    say(f"\n{told}")


# The examinations of `mase-server doctor`: each function reports only what it has tried.
