"""Instances and wires of a top module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mase_server.formats.fixed import FixedPoint


@dataclass(frozen=True, slots=True)
class Wide:
    """A parameter of 64 bits."""

    value: int


Parameters = dict[str, int | str | Wide]


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a stream is read or written: expressions of its wires. lanes: elements of a beat.  bits: of an element."""

    data: str
    valid: str
    ready: str
    lanes: int
    bits: int

    @property
    def width(self) -> int:
        """Bits of a beat."""
        return self.lanes * self.bits


@dataclass(frozen=True, slots=True)
class Wires:
    """The three wires of a stream, by the name of its data."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One component. operation: whose it is; "" for what merely joins others."""

    name: str
    module: str
    parameters: Mapping[str, int | str | Wide]
    ports: Mapping[str, str]
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The words of a memory file, each as one number, made when they are read. width: bits of a word.

    operation: whose it is.
    """

    file: str
    width: int
    words: Sequence[int]
    operation: str = ""


@dataclass(slots=True)
class Netlist:
    """A top module. inputs, outputs: the streams of its ports, `data_in_0` and so on, with the tap inside.

    handshakes: pairs of vectors for forks, by name and length.  dropped: streams that nobody reads.
    """

    inputs: list[Tap] = field(default_factory=list)
    outputs: list[Tap] = field(default_factory=list)
    wires: list[Wires] = field(default_factory=list)
    handshakes: list[tuple[str, int]] = field(default_factory=list)
    dropped: list[Tap] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)


def streams(source: Tap, to: Tap) -> dict[str, str]:
    """The ports of a component with one input and one output."""
    return {
        "data_in_0": source.data,
        "data_in_0_valid": source.valid,
        "data_in_0_ready": source.ready,
        "data_out_0": to.data,
        "data_out_0_valid": to.valid,
        "data_out_0_ready": to.ready,
    }


def precision(prefix: str, format: FixedPoint) -> Parameters:
    """MASE's two parameters of a format."""
    return {f"{prefix}_PRECISION_0": format.width, f"{prefix}_PRECISION_1": format.fraction_width}
