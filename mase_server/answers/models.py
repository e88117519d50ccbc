"""Models: what they are, what they cost, how two of them differ."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Transform(TypedDict):
    """The effect of passes on a model, with the keys of `snapshot.TRANSFORM_KEYS`. texts: the steps as texts."""

    model: int
    steps: list[dict[str, Any]]
    texts: list[str]
    formats: NotRequired[dict[str, float]]
    summary: dict[str, Any] | None
    inputs: str
    weights: str
    complete: bool
    problem: str | None
    failed: int | None


class ModelFacts(TypedDict):
    """A model, as `snapshot.MODEL_KEYS` has it, with its title. path: of a file."""

    name: str
    title: str
    path: str
    file_index: int
    line: int
    column: int
    end_line: int
    end_column: int
    arguments: dict[str, Any]
    inputs: dict[str, Any]
    inputs_from: str
    arguments_from: str
    found: str
    mode: str
    rung: str
    nodes: int
    parameters: int
    parameter_bytes: int
    flops: int | None
    generic: bool
    symbols: dict[str, int]
    fixed: list[str]
    guards: list[str]
    seconds: float
    rest: bool
    sets: list[str]
    set: str
    comment: dict[str, Any]


class Model(ModelFacts):
    """A model of the file `path`, which was traced from the text `sha256`."""

    sha256: str
    complete: bool
    transform: Transform | None


class ModuleCost(TypedDict):
    """A module with all below it; path "" is the whole model."""

    path: str
    type: str
    nodes: int
    flops: int


class OperatorCost(TypedDict):
    """All calls of an operator."""

    mase_op: str
    family: str
    nodes: int
    flops: int


class Costs(TypedDict):
    """The cost of one forward of a model."""

    model: str
    nodes: int
    flops: int | None
    parameters: int
    parameter_bytes: int
    modules: list[ModuleCost]
    operators: list[OperatorCost]


class CostHardware(TypedDict):
    """Hardware of a part of a model. cycles: from one sample to the next, of its slowest operation."""

    multipliers: int
    luts: int
    memory_bits: int
    cycles: int


class CostPlace(TypedDict):
    """A place in the traced text: lines from 1, columns from 0."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


class CostRow(TypedDict):
    """A part of a model with all below it. parent: the number of the row that holds it, -1 for the whole model."""

    id: str
    parent: int
    name: str
    kind: str
    type: str
    nodes: int
    parameters: int | None
    parameter_bytes: int | None
    shared: list[str]
    flops: int
    traffic: int
    results: int
    formats: list[str]
    bits: float | None
    sqnr: float | str | None
    max_error: float | None
    hardware: CostHardware | None
    places: list[CostPlace]


class ModelTrace(TypedDict):
    """A model as one trace saw it.

    stale: was it another text, because the present one cannot be traced?  complete: is the trace at its end?
    """

    path: str
    model: str
    sha256: str
    generation: int
    stale: bool
    complete: bool


class CostTable(ModelTrace):
    """The cost of each part of a model. steps: its passes, as texts."""

    steps: list[str]
    rows: list[CostRow]


class Side(TypedDict):
    """One of two models that are compared."""

    path: str
    model: str
    nodes: int
    parameters: int
    parameter_bytes: int
    flops: int | None


class NodeSide(TypedDict):
    """A node of one of them."""

    mase_op: str
    value: Any


class Changed(TypedDict):
    """A node that differs; format .. saturated: of what passes made."""

    name: str
    before: NodeSide
    after: NodeSide
    format: NotRequired[str | None]
    sqnr: NotRequired[float | str | None]
    max_error: NotRequired[float | None]
    note: NotRequired[str | None]
    saturated: NotRequired[float | None]


class Comparison(TypedDict):
    """How two models differ."""

    before: Side
    after: Side
    changed: list[Changed]
    added: list[str]
    removed: list[str]
    summary: dict[str, Any] | None
