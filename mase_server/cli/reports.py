"""The report on the trace of one file, from a running daemon or from a daemon of this process.

This module loads neither the daemon nor rich, because a command that queries a daemon must start fast.

Both ways make the same report of `mase/traced`, and tests compare them byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from mase_server import notebooks
from mase_server.cli.terminal import from_here
from mase_server.lsp.text import Text, decode_python_source
from mase_server.paths import canonical_path
from mase_server.protocol.answers import ModelFacts, Traced
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import Params, UnshownModel
from mase_server.protocol.snapshot import Problem
from mase_server.reading import UnreadableError

#: End states without shapes, which need their message as an explanation.
_UNSHOWN = frozenset({"no_model", "no_environment", "crashed", "failed", "superseded", "untrusted"})


@dataclass(frozen=True, slots=True)
class Value:
    """A value seen at a site: the title of its model, how often it was seen, and the paths of its modules."""

    value: Any
    model: str
    count: int
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A place that held tensors, like `daemon.graph_snapshot.SiteView`."""

    line: int
    column: int
    end_line: int
    end_column: int
    name: str
    kind: str
    function: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Report:
    """One file. file: as given.  source: its bytes.  told: the answer of `mase/traced`, with all pages joined."""

    file: str
    path: str
    source: bytes
    told: Traced

    @cached_property
    def text(self) -> Text:
        """The source as text."""
        return Text(decode_python_source(self.source))

    @property
    def state(self) -> str:
        """The end state of the trace, see `daemon.status`."""
        return "failed" if self.told["status"] is None else self.told["status"]["state"]

    @property
    def models(self) -> list[ModelFacts]:
        """Maps of `snapshot.MODEL_KEYS`, with "title" and "path"."""
        return self.told["models"]

    @property
    def unshown(self) -> list[UnshownModel]:
        """The models of the file that are not shown, each with the reason and what would help."""
        return [] if self.told["status"] is None else self.told["status"]["unshown"]

    @property
    def lenses(self) -> list[Any]:
        """The models whose class is in this file, with attributes in place of keys."""
        return [SimpleNamespace(**model) for model in self.models if model["path"] == self.path]

    def sites(self, kinds: Collection[str]) -> list[Site]:
        """The places of these kinds, in order."""
        return [
            Site(
                site["line"],
                site["column"],
                site["end_line"],
                site["end_column"],
                site["name"],
                site["kind"],
                site["function"],
                tuple(Value(one["value"], one["model"], one["count"], tuple(one["scopes"])) for one in site["values"]),
            )
            for site in self.told["sites"]
            if site["kind"] in kinds
        ]

    @property
    def told_problems(self) -> list[Problem]:
        """The problems of the trace, in its order, each moved to a place of this file."""
        return [move_problem_to_file(Problem(**problem), self.path) for problem in self.told["problems"]]

    @cached_property
    def problems(self) -> list[Problem]:
        """The problems by position; without shapes, at least one that gives the reason."""
        found = self.told_problems
        if self.told["python"] is None and self.state in _UNSHOWN and not found:
            code = self.state.replace("_", "-")
            message = (self.told["status"] and self.told["status"]["message"]) or code
            found.append(Problem(self.path, 1, 0, 1, len(self.text.line(0)), "error", code, message))
        return sorted(found, key=lambda problem: (problem.line, problem.column))

    @property
    def has_errors(self) -> bool:
        """Did the trace find an error, or show nothing?"""
        return not self.models or any(problem.severity == "error" for problem in self.problems)

    @property
    def is_complete(self) -> bool:
        """Is every model of the file shown, each to the end of its forward?"""
        whole = all(model.get("complete", True) for model in self.models)
        return self.state in ("ready", "no_model") and whole and not self.unshown

    @property
    def was_misused(self) -> bool:
        """Were the inputs from the command line unreadable, or is there no model of the named name?"""
        told = {(problem["code"], problem["severity"]) for problem in self.told["problems"]}
        return ("bad-inputs", "error") in told or ("no-model", "error") in told

    @property
    def status(self) -> int:
        """The exit status of a command that shows it."""
        return 2 if self.was_misused else int(self.has_errors)

    @property
    def same_text(self) -> bool:
        """Do the positions refer to `text`?"""
        return bool(self.told["sha256"] == hashlib.sha256(self.source).hexdigest())


T = TypeVar("T")
#: A sequence of queries: yields a method and its parameters, receives the answer, and returns the final result.
Talk = Generator[tuple[str, Params], Any, T]


def ask_each_model(
    method: str, path: str, model: str | None, given: Params, refused: Callable[[Exception], Any] | None = None
) -> Talk[list[tuple[str, Any]]]:
    """The title and the answer of the model of a title, else of all models of the file; ValueError if it has none.

    refused: makes the answer of one of several models from a refusal, which else ends all.
    """
    answer = yield "mase/models", {"path": path}
    titles = [each["title"] for each in answer["models"]] if model is None else [model]
    if not titles:
        raise ValueError(f"{from_here(path)} shows no model; `mase-server shapes` says why")
    found = []
    for title in titles:
        try:
            answer = yield method, {"path": path, "model": title, **given}
        except Exception as error:
            if refused is None or len(titles) == 1 or not (hasattr(error, "kind") or hasattr(error, "code")):
                raise
            answer = refused(error)
        found.append((title, answer))
    return found


def apply_and_ask(
    method: str, path: str, model: str | None, given: Params, steps: Sequence[Step]
) -> Talk[list[tuple[str, Any]]]:
    """The same after passes; for all models of the file these are applied to each."""
    for step in steps:
        yield from ask_each_model("mase/applyPass", path, model, {"pass": step.name, "arguments": dict(step.arguments)})
    return (yield from ask_each_model(method, path, model, given))


def drive_talk(talk: Talk[T], call: Callable[[str, Params], Any]) -> T:
    """The result of a sequence of queries, each answered by `call`; what it raises is raised in the talk."""
    try:
        question = next(talk)
        while True:
            try:
                answer = call(*question)
            except Exception as error:  # noqa: BLE001 - raised again, unless the talk goes on
                question = talk.throw(error)
            else:
                question = talk.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


def request_report(
    file: Path, everything: bool = False, passes: bool = False, text: bytes | None = None
) -> Talk[Report]:
    """Ask for the report of an open file; OSError if it is gone.

    everything: include expressions.  passes: as its passes changed it.  text: what was opened in place of it.
    """
    params: Params = {"path": canonical_path(file), "all": everything, "passes": passes}
    pages: list[Traced] = [(yield "mase/traced", params)]
    while (following := pages[-1]["next"]) is not None:
        pages.append((yield "mase/traced", {**params, "first": following}))
    return report_of(file, pages, text)


def report_of(file: Path, pages: Sequence[Traced], text: bytes | None = None) -> Report:
    """The report of a file from all pages of `mase/traced`; OSError if the file is gone.

    text: what was traced in place of the file.
    """
    sites = [site for page in pages for site in page["sites"]]
    source = source_of(file) if text is None else text
    return Report(str(file), pages[0]["path"], source, {**pages[0], "sites": sites})


def source_of(file: Path) -> bytes:
    """The text of a file; empty if it is unreadable, because a problem reports that. OSError if it is gone."""
    try:
        return notebooks.read_traced_bytes(str(file))
    except UnreadableError:
        return b""


def move_problem_to_file(problem: Problem, path: str) -> Problem:
    """A problem of another file, moved to the place in this file that led to it."""
    if problem.file == path:
        return problem
    message = f"{problem.file}:{problem.line}: {problem.message}"
    place = next((place for place in problem.related if place["file"] == path), None)
    at = (1, 0, 1, 0) if place is None else (place["line"], place["column"], place["end_line"], place["end_column"])
    return Problem(path, *at, problem.severity, problem.code, message, problem.related)
