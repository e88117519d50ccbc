"""Hardware, and its simulation."""

from __future__ import annotations

from typing import Any, TypedDict


class Build(TypedDict):
    """How hardware is made; see `building.Build`."""

    precision: str
    data: str
    multipliers: int | None
    interval: int | None
    scope: str
    max_multipliers: int
    max_memory_bits: int


class EmissionHead(TypedDict):
    """Hardware of a model without its text; see `building.EMISSION_KEYS`."""

    model: str
    build: Build
    steps: list[str]
    weights: str
    accuracy: dict[str, Any]
    module: str
    files: list[list[Any]]
    folder: str | None
    operations: list[dict[str, Any]]
    unsupported: list[dict[str, Any]]
    totals: dict[str, Any]
    refusal: str | None
    scopes: list[str]


class Emission(EmissionHead):
    """Hardware of a model."""

    text: str


class Verilog(TypedDict, total=False):
    """The hardware of a model; no keys if the file has no model."""

    model: str
    build: Build | None
    default: Build
    emission: EmissionHead | None
    stale: bool
    running: bool
    problem: str | None


class Simulation(TypedDict):
    """The result of a simulation; see `building.SIMULATION_KEYS`."""

    status: str
    vectors: int
    mismatches: int
    cycles_per_vector: float | None
    latency: int
    cycles: int
    first: dict[str, Any] | None
    folder: str
    seconds: dict[str, float]
    log: str
