"""Sets of inputs: what a person may change, what would come of it, how two sets differ."""

from __future__ import annotations

from typing import Any, TypedDict


class InputField(TypedDict):
    """An input or an argument as a text. text: "" where none is given, or where `why` says why it has none."""

    name: str
    text: str
    why: str
    required: bool
    default: str


class InputForm(TypedDict):
    """The inputs and arguments of a model, to be changed. call: makes the model; "" if no comment can express it."""

    call: str
    arguments: list[InputField]
    inputs: list[InputField]


class InputProblem(TypedDict):
    """A problem of a set of inputs. field: e.g. "inputs.x", "" if it belongs to no field."""

    severity: str
    field: str
    message: str


class InputFigures(TypedDict):
    """A model with a set of inputs. bytes: read and written by its operators.

    outputs, flops, bytes: None where the forward does not come to its end.
    """

    set: str
    inputs: dict[str, Any] | None
    inputs_from: str
    arguments_from: str
    found: str
    outputs: Any
    parameters: int | None
    parameter_bytes: int | None
    flops: int | None
    bytes: int | None
    nodes: int | None
    form: InputForm | None


class InputTrial(InputFigures):
    """The result of trying a set of inputs. comment: the comment that would be written, "" if none would be."""

    comment: str
    problems: list[InputProblem]


class InputRow(TypedDict):
    """A place with tensors, and its values with both sets; None where it was not reached."""

    line: int
    column: int
    name: str
    kind: str
    function: str
    before: list[Any] | None
    after: list[Any] | None
    differs: bool


class InputComparison(TypedDict):
    """How a model differs with two sets of inputs."""

    path: str
    model: str
    before: InputFigures | None
    after: InputFigures | None
    rows: list[InputRow]
    problems: list[InputProblem]
