"""Files: where their traces are, with which inputs, what was found wrong."""

from __future__ import annotations

from typing import Any, TypedDict


class Status(TypedDict):
    """Where one trace of a file is; see `daemon.status.Status`."""

    path: str
    state: str
    generation: int
    sha256: str
    shown_sha256: str | None
    stale: bool
    live: bool
    seconds: float
    message: str


class FileStatus(TypedDict, total=False):
    """The same; nothing of it before the first trace began."""

    path: str
    state: str
    generation: int
    sha256: str
    shown_sha256: str | None
    stale: bool
    live: bool
    seconds: float
    message: str


class File(TypedDict):
    """A file that somebody looks at, or looked at."""

    path: str
    folder: str
    open: bool
    status: Status | None


class Closed(TypedDict):
    """open: does somebody else look at it?"""

    path: str
    open: bool


class Problem(TypedDict):
    """A diagnostic; see `snapshot.Problem`."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    severity: str
    code: str
    message: str
    related: list[dict[str, Any]]
    fixes: list[dict[str, Any]]


class Inputs(TypedDict):
    """With which inputs a model is traced. text: the comment that asks for the same.

    sets: the named sets that comments give it; set: the one that is used, "" for none.
    """

    model: str
    inputs: dict[str, Any]
    inputs_from: str
    found: str
    text: str | None
    sets: list[str]
    set: str


class Root(TypedDict):
    """A model that shows shapes in a file."""

    root: str
    path: str
    inputs_from: str
    found: str
    picked: bool
