"""The findings of `mase-server check`: the problems of all files, each once, at their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mase_server import notebooks
from mase_server.cli.reports import Report, here
from mase_server.lsp.text import Text, decode
from mase_server.snapshot import Problem

#: The severities, the worst first.
SEVERITIES = ("error", "warning", "information", "hint")


@dataclass(frozen=True)
class Checked:
    """The reports of the files with models, in order. others: how many files had none.  root: of relative paths."""

    reports: Sequence[Report]
    others: int = 0
    root: Path = Path()

    @cached_property
    def problems(self) -> list[Problem]:
        """By file and position. One that several models meet in a file that they share is one problem."""
        unique: dict[tuple[object, ...], Problem] = {}
        for report in self.reports:
            for problem in self._of(report):
                unique.setdefault((problem.file, problem.line, problem.column, problem.code, problem.message), problem)
        return sorted(unique.values(), key=lambda each: (each.file, each.line, each.column))

    def _of(self, report: Report) -> Iterator[Problem]:
        # A file that only looked as if it had a model is no mistake; `unchecked` names it.
        if not report.told["problems"] and report.state != "no_model":
            yield from report.problems
        for told in report.told["problems"]:
            problem = Problem(**told)
            yield problem if Path(problem.file).is_relative_to(self.root) else here(problem, report.path)

    @property
    def counts(self) -> Counter[str]:
        """How many problems of each severity there are."""
        return Counter(problem.severity for problem in self.problems)

    @property
    def unchecked(self) -> list[Report]:
        """The files of which nothing could be shown though nothing is said to be wrong with them."""
        wrong = {problem.file for problem in self.problems if problem.severity == "error"}
        return [each for each in self.reports if not each.models and each.path not in wrong]

    def fails(self, worst: str) -> bool:
        """Is there a problem at least as bad as `worst`?"""
        return any(self.counts[severity] for severity in SEVERITIES[: SEVERITIES.index(worst) + 1])

    def relative(self, path: str) -> str:
        """A path as services read it: relative to the root, if it is below."""
        return Path(path).relative_to(self.root).as_posix() if Path(path).is_relative_to(self.root) else path


class Sources:
    """The texts of files, read once; a file that cannot be read has no lines."""

    def __init__(self) -> None:
        self._texts: dict[str, Text] = {}

    def text(self, path: str) -> Text:
        """Of one file."""
        if path not in self._texts:
            try:
                self._texts[path] = Text(decode(notebooks.read(path)))
            except OSError:
                self._texts[path] = Text("")
        return self._texts[path]


def in_order(files: Iterable[Path], reports: dict[Path, Report]) -> list[Report]:
    """The reports in the order of their files."""
    return [reports[file] for file in files if file in reports]
