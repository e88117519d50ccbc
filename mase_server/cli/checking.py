"""`mase-server check`: find mistakes in the models of some files and folders, and apply proved fixes.

The command counts problems, not files: a problem that several models report counts once, and a problem in a library is
reported where the user's code calls it. A file without results is reported as not checked, never as clean.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import json
import os
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mase_server import notebooks
from mase_server.cli.reports import Report, move_problem_to_file
from mase_server.cli.terminal import from_here, say
from mase_server.daemon.discovery import NAMES_LIBRARY, discover_model, follow_calls
from mase_server.daemon.environment import project_of
from mase_server.daemon.project import ProjectError, read_project
from mase_server.lsp.text import Text, decode_python_source
from mase_server.lsp.wording import describe_break, describe_recompile, format_with_prefix
from mase_server.paths import canonical_path
from mase_server.programs import command_for_program
from mase_server.protocol.codes import LACKS
from mase_server.protocol.records import Edit, Fix
from mase_server.protocol.snapshot import Problem
from mase_server.reading import is_file, is_folder, path_exists
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.cli.kept import KeptReports
    from mase_server.cli.reports import Talk
    from mase_server.daemon.daemon import Daemon
    from mase_server.protocol.answers import Compiled, DeviceCosts

    _Asks = Callable[[Talk[Any]], Awaitable[Any]]


#: How often fixes are applied: one fix may uncover the next error.
_ROUNDS = 5


class Output(StrEnum):
    """The output format of `check`."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


class Worst(StrEnum):
    """A reason for the exit status 1: the lowest severity, or a finding of PyTorch's compilers."""

    ERROR = "error"
    WARNING = "warning"
    BREAKS = "breaks"
    RECOMPILES = "recompiles"
    EXPORT = "export"


#: The device whose memory `--max-memory` counts in: it is the same on each GPU.
_ANY_GPU = "H100"
#: Findings of PyTorch's compilers that may fail a check -> their code.
_COMPILED = {Worst.BREAKS: "graph-break", Worst.RECOMPILES: "recompilation", Worst.EXPORT: "not-exported"}


def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATHS]...", exists=True, help="Files and folders; the current folder by default."),
    ] = None,
    output: Annotated[
        Output, typer.Option("--format", help="For people, programs, code scanning, or GitHub's annotations.")
    ] = Output.TEXT,
    fail_on: Annotated[
        list[Worst] | None,
        typer.Option(help="What makes the exit status 1, beside errors. It may be repeated; the last three compile."),
    ] = None,
    compiles: Annotated[
        bool, typer.Option("--compile", help="Tell also where torch.compile breaks its graph or compiles again.")
    ] = False,
    max_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="An error if a model holds more at its peak, such as 24GB.")
    ] = None,
    train: Annotated[str, typer.Option(metavar="OPTIMIZER", help="With --max-memory: of a step of training.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 also if a file could not be checked.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the fixes with which the file was traced without an error.")
    ] = False,
    changed: Annotated[
        str | None,
        typer.Option(metavar="REVISION", help="Check only what differs from this revision of git, such as main."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Leave out the problems in this output of `check --format json`."
        ),
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that the models run in.")] = None,
    daemon: Annotated[bool, typer.Option("--daemon/--no-daemon", help="Query a running daemon.")] = True,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep results until something that a file read changes.")
    ] = True,
) -> None:
    """Find mistakes in models without running them on data: shapes, types, devices, names, configurations.

    In a folder, the command checks only the files that define or build an nn.Module, and follows git's ignore rules. It
    executes the code of these files, on tensors without data: check only files that you trust.

    Examples:

        mase-server check

        mase-server check src/models --format sarif > mase.sarif

        mase-server check net.py --fix

        mase-server check --changed origin/main --baseline known.json

        mase-server check --fail-on breaks --fail-on export

        mase-server check --max-memory 24GB --train adamw

    Exit status: 0 no problems, 1 problems found, 2 wrong usage. A file that needs data, a download, a device, a
    program, an argument or a package that is missing is not checked, which is no problem unless `--strict` is given.
    """

    try:
        files = _find_files(paths or [Path()], cache)
        known = Counter[ProblemKey]() if baseline is None else read_baseline(baseline)
    except ProjectError as error:
        raise typer.BadParameter(str(error)) from error
    worst = frozenset(fail_on or ())
    if max_memory is None:
        most = 0
    else:
        from mase_server.cli.costing import parse_memory

        most = parse_memory(max_memory)
    compiles = compiles or not worst.isdisjoint(_COMPILED)
    run = _Run(python, daemon, cache, known, compiles, Worst.EXPORT in worst, most, train)
    if changed is not None:
        files.models[:] = run.choose_changed(files.models, list_changed_files(changed))
    checked = run.check(files)
    for _ in range(_ROUNDS if fix else 0):
        if not _apply_fixes(checked):
            break
        checked = run.check(files)
    _print_checked(checked, output)
    sys.stdout.flush()
    raise typer.Exit(1 if checked.fails(worst, strict) else 0)


def _find_files(paths: Iterable[Path], cache: bool) -> Files:
    if not cache:
        return find_files(paths)
    from mase_server.cli.kept import KnownTexts

    texts = KnownTexts()
    found = find_files(paths, texts.look_at)
    texts.keep()
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """The options that decide how files are checked. cache: use and keep results of other runs?  compiles, exports:
    what PyTorch's compilers make of the models, too.  most: bytes that a model may hold at its peak, 0 for any; in a
    step of training with `train`."""

    python: str | None
    daemon: bool
    cache: bool
    known: Counter[ProblemKey]
    compiles: bool = False
    exports: bool = False
    most: int = 0
    train: str = ""
    #: What compilers and costs found, by file.
    compiled: dict[str, list[Problem]] = field(default_factory=dict)

    def check(self, files: Files) -> Checked:
        """Trace the files, or take what is known of them."""
        with _checking_progress(len(files.models)) as advance:
            reports = dict(self._gather_reports(files.models, advance))
        ordered = in_order(files.models, reports)
        compiled = [found for each in ordered for found in self.compiled.get(each.path, ())]
        return Checked(ordered, len(files.others), _repository_root(), self.known, compiled)

    @property
    def asks_more(self) -> bool:
        """Is more wanted than a trace tells?"""
        return self.compiles or bool(self.most)

    async def ask_further(self, report: Report, ask: _Asks) -> None:
        """Keep what compilers and costs find in a traced file; standard error names what they refuse.

        ask: answers questions about its trace.
        """
        from mase_server.cli.graphing import View, request_compiled
        from mase_server.cli.session import Refused

        found = self.compiled[report.path] = []
        for view in (View.DYNAMO, View.EXPORT)[: self.compiles + self.exports] if report.models else ():
            try:
                for title, told in await ask(request_compiled(report.path, None, view)):
                    found += _list_compiled_problems(report, title, told)
                    if told["problem"] and not told["text"]:
                        say(f"{from_here(report.path)}: {title}: not compiled: {told['problem']}", error=True)
            except Refused as error:
                say(f"{from_here(report.path)}: not compiled: {error}", error=True)
        if self.most and report.models:
            from mase_server.cli.costing import COSTS
            from mase_server.cli.reports import ask_each_model

            given = {"device": _ANY_GPU, "train": self.train}
            try:
                costs = await ask(ask_each_model(COSTS, report.path, None, given))
            except Refused as error:
                say(f"{from_here(report.path)}: its memory is not known: {error}", error=True)
            else:
                found += (
                    _tell_too_much(report, told, self.most) for _, told in costs if told["peak_bytes"] > self.most
                )

    def choose_changed(self, files: Iterable[Path], changed: Set[str]) -> list[Path]:
        """The files that changed, and those of which an earlier check knows that they read one that did."""
        from mase_server.cli.kept import KeptReports

        kept = KeptReports(self.python)
        return [file for file in files if canonical_path(file) in changed or kept.read_by(file) & changed]

    def _gather_reports(self, files: list[Path], advance: Callable[[str], None]) -> Iterator[tuple[Path, Report]]:
        from mase_server.cli import attached

        done = set()
        for file, report in attached.stream_reports(files) if self.daemon and self.python is None else ():
            if self.asks_more:
                asyncio.run(self.ask_further(report, partial(_ask_running_daemon, file)))
            done.add(file)
            advance(report.file)
            yield file, report
        missing = [file for file in files if file not in done]
        kept = None
        if self.cache and missing:
            from mase_server.cli.kept import KeptReports

            kept = KeptReports(self.python)
            for file in () if self.asks_more else list(missing):
                if (found := kept.find(file)) is not None:
                    missing.remove(file)
                    advance(found.file)
                    yield file, found
        if missing:
            yield from asyncio.run(self._trace_missing(tuple(missing), advance, kept)).items()

    async def _trace_missing(
        self, files: tuple[Path, ...], advance: Callable[[str], None], kept: KeptReports | None
    ) -> dict[Path, Report]:
        from mase_server.cli.attached import print_note
        from mase_server.cli.session import Wanted, ask_own_daemon, trace_each
        from mase_server.daemon.environment import find_broken_venv

        for broken in sorted(
            {broken for file in files if not self.python and (broken := find_broken_venv(canonical_path(file)))}
        ):
            print_note(broken)

        async def follow(daemon: Daemon, report: Report) -> None:
            if kept is not None and (tracked := daemon.file(report.path)) is not None:
                kept.keep(report, tracked.freshness.dependencies)
            if self.asks_more:
                await self.ask_further(report, partial(ask_own_daemon, daemon))

        found = {}
        async for report in trace_each(Wanted(files, python=self.python), follow):
            advance(report.file)
            found[Path(report.file)] = report
        return found


async def _ask_running_daemon(file: Path, talk: Talk[Any]) -> Any:
    from mase_server.cli.session import Subject, ask_daemon

    return await asyncio.to_thread(ask_daemon, Subject(file), lambda path: talk)


def _list_compiled_problems(report: Report, title: str, told: Compiled) -> Iterator[Problem]:
    for one in told["breaks"]:
        fixes = [] if one["fix"] is None else [one["fix"]]
        message = describe_break(one)
        file, line = one["file"] or report.path, max(one["line"], 1)
        yield Problem(file, line, one["column"], line + 1, 0, "information", "graph-break", message, fixes=fixes)
    for again in told["recompiles"]:
        message = describe_recompile(again)
        file, line = again["file"] or report.path, max(again["line"], 1)
        yield Problem(file, line, again["column"], line + 1, 0, "information", "recompilation", message)
    if told["problem"] and told["view"] == "export":
        model = next(model["line"] for model in report.models if model["title"] == title)
        file, line = told["place"] or (report.path, model)
        message = f"{title} cannot be exported: {told['problem']}"
        yield Problem(file, line, 0, line + 1, 0, "information", "not-exported", message)


def _tell_too_much(report: Report, told: DeviceCosts, most: int) -> Problem:
    largest = sorted(told["kinds"].items(), key=lambda pair: -pair[1])[:3]
    held = ", ".join(f"{format_with_prefix(size, 'B')} of it {kind}" for kind, size in largest)
    run = f"a step of training with {told['optimizer']}" if told["optimizer"] else "inference"
    peak, limit = (format_with_prefix(size, "B") for size in (told["peak_bytes"], most))
    line = next(model["line"] for model in report.models if model["title"] == told["model"])
    message = f"{told['model']} holds {peak} in {run}, more than {limit}: {held}; `mase-server costs` names the lines"
    return Problem(report.path, line, 0, line + 1, 0, "error", "too-much-memory", message)


def _apply_fixes(checked: Checked) -> bool:

    mended = apply_proved_fixes(checked)
    for title in mended:
        say(f"fixed {title}", error=True)
    return bool(mended)


def _print_checked(checked: Checked, output: Output) -> None:
    from mase_server.cli import check_text

    printers = {
        Output.TEXT: check_text.print_text,
        Output.JSON: check_text.print_json,
        Output.SARIF: check_text.print_sarif,
        Output.GITHUB: check_text.print_github,
    }
    printers[output](checked)


def _repository_root() -> Path:
    """The root of the current repository, or else the current folder."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if path_exists(folder / ".git")), here)


@contextmanager
def _checking_progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, only on a terminal; yields the function that advances it."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda file: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("checking"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda file: bar.update(task, advance=1, description=reveal(file))


# The files that `mase-server check` checks: the named ones, and in folders those that define models.

#: Folders of third-party or generated files.
_NEVER = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages", "build", "dist"})
#: Disables the programs that a repository's own configuration could make git start, such as a file monitor.
_NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")


@dataclass(slots=True)
class Files:
    """models: files that define or build an nn.Module.  others: named files that do not, and need no check."""

    models: list[Path] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)


def find_files(
    paths: Iterable[Path],
    look_at: Callable[[bytes, Callable[[], bool | list[str]]], bool | list[str]] = lambda source, look: look(),
) -> Files:
    """The files among these files and folders, without duplicates, in order. Only their syntax trees are read.

    look_at: what a text tells of its models. It may call its second argument, which parses the text.
    """
    sorted_out, seen = Files(), set[str]()
    for path in paths:
        for file in sorted(_python_files(path)) if is_folder(path) else [path]:
            if (key := canonical_path(file)) not in seen and not read_project(project_of(key)).excludes(key):
                seen.add(key)
                try:
                    source = notebooks.read_traced_bytes(str(file))
                    told = look_at(source, partial(_look_at_text, file, source))
                    found = told if isinstance(told, bool) else follow_calls(key, told)
                except OSError:
                    found = True  # the trace reports it
                (sorted_out.models if found else sorted_out.others).append(file)
    return sorted_out


def _look_at_text(file: Path, source: bytes) -> bool | list[str]:
    """Has a text a model? If not, the names that it imports and calls, which other files of the workspace may make.

    A text that Python cannot parse has one if it looks like a file with models.
    """
    told = discover_model(str(file), source)
    if told.has_model or (told.problem is not None and NAMES_LIBRARY.search(source) is not None):
        return True
    return list(told.calls)


def _python_files(folder: Path) -> Iterator[Path]:
    """The files that git would commit, so .gitignore applies.

    Without git, all except hidden and third-party folders.
    """
    asked = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"]
    try:
        done = command_for_program("git", *_NO_PROGRAMS, "-C", folder, *asked).run(capture_output=True)
    except OSError:
        return _walk_python_files(folder)
    if done.returncode:
        return _walk_python_files(folder)
    named = (folder / os.fsdecode(name) for name in set(done.stdout.split(b"\0")) if name)
    return (file for file in named if is_file(file))


def _walk_python_files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_own(Path(where, name))]
        yield from (Path(where, name) for name in names if name.endswith(".py"))


def _is_own(folder: Path) -> bool:
    return not folder.name.startswith(".") and folder.name not in _NEVER and not path_exists(folder / "pyvenv.cfg")


def list_changed_files(revision: str) -> frozenset[str]:
    """The files of this repository that differ from where the present branch left a revision, and new ones."""
    root = _repository_root()
    asked = [["diff", "--name-only", "-z", "--merge-base", revision, "--"], ["ls-files", "-zo", "--exclude-standard"]]
    found: set[str] = set()
    for arguments in asked:
        try:
            done = command_for_program("git", *_NO_PROGRAMS, "-C", root, *arguments).run(capture_output=True)
        except OSError as error:
            raise typer.BadParameter(f"git does not start: {error.strerror}", param_hint="--changed") from error
        if done.returncode or revision.startswith("-"):
            why = os.fsdecode(done.stderr).strip().partition("\n")[0] or f"git knows no {revision!r}"
            raise typer.BadParameter(why, param_hint="--changed")
        found |= {canonical_path(root / os.fsdecode(name)) for name in done.stdout.split(b"\0") if name}
    return frozenset(found)


def read_revision(file: Path, revision: str) -> bytes | None:
    """A file as a revision of its repository has it; None if git knows none."""
    asked = ("show", "--end-of-options", f"{revision}:./{file.name}")
    try:
        done = command_for_program("git", *_NO_PROGRAMS, "-C", file.resolve().parent, *asked).run(capture_output=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout


# Problems that are known: those in the output of an earlier run.

#: file, code, and message without the numbers of lines, which other edits change.
ProblemKey = tuple[str, str, str]
_LINE_NUMBER = re.compile(r"\bline \d+")


def read_baseline(path: Path) -> Counter[ProblemKey]:
    """The problems of an earlier run, from its JSON; its paths count from the present folder."""
    try:
        told = json.loads(path.read_bytes())
        return Counter(_key_of_problem(each["file"], each["code"], each["message"]) for each in told["problems"])
    except (ValueError, KeyError, TypeError) as error:
        text = f"{path} is no output of `mase-server check --format json`"
        raise typer.BadParameter(text, param_hint="--baseline") from error


def _key_of_problem(file: str, code: str, message: str) -> ProblemKey:
    return canonical_path(Path(file)), code, _LINE_NUMBER.sub("line", message)


# The findings of `mase-server check`: the problems of all files, without duplicates, at their places.

#: The severities, the most severe first.
SEVERITIES = ("error", "warning", "information", "hint")


@dataclass(frozen=True)
class Checked:
    """The reports of the files with models, in order. others: the number of files without any.

    root: of relative paths.  known: problems that are left out.  compiled: what PyTorch's compilers found.
    """

    reports: Sequence[Report]
    others: int = 0
    root: Path = Path()
    known: Counter[ProblemKey] = field(default_factory=Counter)
    compiled: Sequence[Problem] = ()

    @cached_property
    def problems(self) -> list[Problem]:
        """The problems by file and position, without the reasons why a file was not checked.

        If several models report the same problem in a shared file, it counts once.
        """
        return self._sorted_out[0]

    @property
    def known_count(self) -> int:
        """The number of problems that were left out because they are known."""
        return self._sorted_out[1]

    @cached_property
    def _sorted_out(self) -> tuple[list[Problem], int]:
        unchecked = {report.path for report, _ in self.unchecked}
        every: list[Problem] = []
        for report, told in zip(self.reports, self._told, strict=True):
            for problem in told:
                if self._is_lack(report, problem):
                    if report.path in unchecked:
                        continue
                    problem = replace(problem, severity=max(problem.severity, "warning", key=SEVERITIES.index))
                every.append(problem)
        unique: dict[tuple[object, ...], Problem] = {}
        for problem in (*every, *self.compiled):
            key = (problem.file, problem.line, problem.column, problem.code, problem.message)
            unique.setdefault(key, problem)
        left, found = Counter(self.known), []
        for problem in sorted(unique.values(), key=lambda each: (each.file, each.line, each.column)):
            if left[known := _key_of_problem(problem.file, problem.code, problem.message)]:
                left[known] -= 1
            else:
                found.append(problem)
        return found, len(unique) - len(found)

    @cached_property
    def _told(self) -> list[list[Problem]]:
        """The problems of each report, with the severities that its project gives them."""
        return [
            [
                replace(problem, severity=rule) if rule else problem
                for problem in self._problems_of_report(report)
                if (rule := self._rule_of(report, problem)) != "off"
            ]
            for report in self.reports
        ]

    @staticmethod
    def _rule_of(report: Report, problem: Problem) -> str:
        return read_project(project_of(report.path)).rules.get(problem.code, "")

    def _is_lack(self, report: Report, problem: Problem) -> bool:
        """Does a problem only say what the trace lacked?"""
        return problem.code in LACKS and not self._rule_of(report, problem)

    def _problems_of_report(self, report: Report) -> Iterator[Problem]:
        # A file that only looked like one with a model is not a mistake; `unchecked` lists it.
        if not report.told["problems"] and report.state != "no_model":
            yield from report.problems
        for told in report.told["problems"]:
            problem = Problem(**told)
            yield (
                problem if Path(problem.file).is_relative_to(self.root) else move_problem_to_file(problem, report.path)
            )

    @cached_property
    def unchecked(self) -> list[tuple[Report, Problem]]:
        """The files without shapes for which no mistake was reported, each with the reason."""
        pairs = list(zip(self.reports, self._told, strict=True))
        mistakes = (one for report, told in pairs for one in told if not self._is_lack(report, one))
        wrong = {one.file for one in mistakes if one.severity == "error"}
        return [
            (report, self._find_reason(report, told))
            for report, told in pairs
            if not report.models and report.path not in wrong
        ]

    @staticmethod
    def _find_reason(report: Report, told: Sequence[Problem]) -> Problem:
        lacks = [one for one in told if one.code in LACKS]
        lacks.sort(key=lambda one: SEVERITIES.index(one.severity))
        status = report.told["status"]
        message = (status and status["message"]) or "nothing of it could be traced"
        return lacks[0] if lacks else Problem(report.path, 1, 0, 1, 0, "information", "no-model", message)

    @property
    def counts(self) -> Counter[str]:
        """The number of problems of each severity."""
        return Counter(problem.severity for problem in self.problems)

    def fails(self, worst: Set[Worst] = frozenset(), strict: bool = False) -> bool:
        """Is there an error, one of the `worst` findings, or, if `strict`, a file that was not checked?"""
        severe = SEVERITIES[: 1 + (Worst.WARNING in worst)]
        codes = {_COMPILED[each] for each in worst if each in _COMPILED}
        return (
            any(self.counts[severity] for severity in severe)
            or any(problem.code in codes for problem in self.problems)
            or (strict and bool(self.unchecked))
        )

    def relative(self, path: str) -> str:
        """The path for services: relative to the root if it is below it."""
        return Path(path).relative_to(self.root).as_posix() if Path(path).is_relative_to(self.root) else path


class Sources:
    """The texts of files, read once; a file that cannot be read has no lines."""

    def __init__(self) -> None:
        self._texts: dict[str, Text] = {}

    def text(self, path: str) -> Text:
        """The text of one file."""
        if path not in self._texts:
            try:
                self._texts[path] = Text(decode_python_source(notebooks.read_traced_bytes(path)))
            except OSError:
                self._texts[path] = Text("")
        return self._texts[path]


def in_order(files: Iterable[Path], reports: dict[Path, Report]) -> list[Report]:
    """The reports in the order of the files."""
    return [reports[file] for file in files if file in reports]


# Quick fixes written to the files: only those that were proved by tracing the fixed text.

Place = tuple[int, int]


def apply_proved_fixes(checked: Checked) -> list[str]:
    """Apply the first proved fix of each file; returns what was done, in words.

    Only one at a time: it was proved with the rest of the file unchanged, and it often removes the next error, too.
    """
    done = []
    for report in checked.reports:
        own = (each for each in checked.problems if each.file == report.path)
        for problem in own if _is_unchanged(report.path, report.told["sha256"]) else ():
            fix = next((fix for fix in problem.fixes if fix["preferred"] and _is_within(fix, report.path)), None)
            if fix is not None:
                _write_edits(Path(report.path), fix["edits"])
                done.append(f"{reveal(from_here(report.path))}:{problem.line}: {fix['title']}")
                break
    return done


def _is_unchanged(path: str, sha256: str) -> bool:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() == sha256
    except OSError:
        return False


def _is_within(fix: Fix, path: str) -> bool:
    """Does the fix touch only this file, and no place twice?"""
    places = sorted(_edit_extent(edit) for edit in fix["edits"])
    apart = all(before[1] <= after[0] for before, after in itertools.pairwise(places))
    return bool(places) and apart and all(edit["file"] == path for edit in fix["edits"])


def _edit_extent(edit: Edit) -> tuple[Place, Place]:
    return (edit["line"] - 1, edit["column"]), (edit["end_line"] - 1, edit["end_column"])


def _write_edits(path: Path, edits: list[Edit]) -> None:
    source = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    text = Text(decode_python_source(source))
    for (start, end), new in _from_the_end(edits):
        text.replace(start, end, new)
    path.write_bytes(str(text).encode(encoding))


def _from_the_end(edits: list[Edit]) -> Iterator[tuple[tuple[Place, Place], str]]:
    """The edits from the end of the file to its start, so that none moves the place of another."""
    for edit in sorted(edits, key=_edit_extent, reverse=True):
        yield _edit_extent(edit), edit["new_text"]
