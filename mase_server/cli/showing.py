"""`mase-server shapes`, once; `watching` shows again at every save."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from mase_server.cli import attached
from mase_server.cli.reports import Report
from mase_server.cli.terminal import say


@dataclass(frozen=True, slots=True)
class Asked:
    """The file to show, and how. model, inputs, set, python: of this command alone; a daemon has its own.

    daemon: may the command query a running one?
    """

    files: tuple[Path, ...]
    everything: bool = False
    json: bool = False
    model: str | None = None
    inputs: tuple[str, ...] = ()
    python: str | None = None
    daemon: bool = True
    set: str | None = None

    @property
    def is_plain(self) -> bool:
        """Is it a question that a daemon can answer?"""
        own = self.model, self.python, self.set, *self.inputs
        return self.daemon and all(each is None for each in own)


def show(asked: Asked) -> int:
    """Print all of it; the exit status."""
    found = attached.reports(asked.files, asked.everything) if asked.is_plain else {}
    missing = tuple(file for file in asked.files if file not in found)
    if missing:
        found = found | dict(zip(missing, asyncio.run(_trace(asked, missing)), strict=True))
    told = [found[file] for file in asked.files]
    if asked.set and not any(asked.set in model["sets"] for report in told for model in report.models):
        say(f"error: no model has inputs named {asked.set!r}; write `# mase[{asked.set}]: ...`", error=True)
        return 2
    print_reports(told, asked)
    if any(report.was_misused for report in told):
        return 2
    return 1 if any(report.has_errors for report in told) else 0


async def _trace(asked: Asked, files: tuple[Path, ...]) -> list[Report]:
    from mase_server.cli.session import Wanted, trace

    return await trace(Wanted(files, asked.model, asked.inputs, asked.python, asked.set), asked.everything)


def print_reports(reports: list[Report], asked: Asked) -> None:
    """As text or as JSON."""
    if asked.json:
        from mase_server.cli.report import print_json

        print_json(reports, asked.everything)
    else:
        from mase_server.cli.listing import print_text

        print_text(reports, asked.everything)
    sys.stdout.flush()
