"""Passes, and what is written of the graphs that they make."""

from __future__ import annotations

from typing import Any, TypedDict


class PassArgument(TypedDict):
    """An argument of a pass; see `arguments.Argument`."""

    name: str
    kind: str
    help: str
    default: Any
    required: bool
    choices: list[str]
    minimum: float | None
    maximum: float | None


class Pass(TypedDict):
    """A pass; see `passes.declaration.Pass`."""

    name: str
    title: str
    kind: str
    selects: bool
    menu: bool
    source: str
    help: str
    mase: str
    needs: list[str]
    arguments: list[PassArgument]
    others: PassArgument | None


class Pipeline(TypedDict, total=False):
    """The passes on a model; nothing where no model is shown."""

    model: str
    steps: list[str]
    undone: list[str]
    summary: dict[str, Any] | None
    problem: str | None
    complete: bool
    running: bool


class Text(TypedDict):
    """A text to be shown."""

    text: str
    language: str


class Checkpoint(TypedDict):
    """A checkpoint that was written. weights: their origin, in words."""

    files: list[str]
    weights: str


class ArrayPart(TypedDict):
    """Bytes of an array. size: of the whole array, in bytes.  offset: of `data` in it."""

    name: str
    dtype: str
    shape: list[int]
    size: int
    offset: int
    data: bytes


class Weights(TypedDict):
    """A page of parameters and buffers. total: bytes of all pages.  weights: whose, in words."""

    arrays: list[ArrayPart]
    total: int
    next: int | None
    weights: str


class Drawing(TypedDict, total=False):
    """The text, or the file that it was written to."""

    svg: str
    file: str
