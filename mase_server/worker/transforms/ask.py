"""A call of the server about passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mase_server.building import Build
from mase_server.steps import Step

#: As much as a pass may take where nothing is said: seconds, and resident bytes.
SECONDS, MEMORY = 300.0, 4 << 30


class AskError(ValueError):
    """A call that failed. kind: pass | limit | cancelled | argument | internal."""

    def __init__(self, text: str, kind: str = "argument") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class HardwareAsk:
    """A call for hardware. folder: the folder to write, "" for the top module's text alone.

    vectors: samples for its simulation, None for the usual number.  inputs: an .npz file with samples, "" for random
    ones.
    """

    build: Build = field(default_factory=Build)
    folder: str = ""
    vectors: int | None = None
    inputs: str = ""

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> HardwareAsk:
        """Of the parameters of a call; AskError for a build that cannot be."""
        try:
            build = Build.from_wire(params.get("build") or {})
        except ValueError as error:
            raise AskError(str(error)) from error
        vectors = int(params["vectors"]) if params.get("vectors") else None
        return cls(build, str(params.get("folder") or ""), vectors, str(params.get("inputs") or ""))


@dataclass(frozen=True, slots=True)
class Ask:
    """A pipeline for one model. model: its title, "" for the first.  measure: errors too.  original: without any step.

    trial: the last step is new, so that errors are of no interest if it fails.  memory: resident bytes that a fork may
    use.  seconds: that the call may take.  name: of what is written, or how.  hardware: what is made of it, for the
    method that does.  names: of the arrays that are wanted, () for all.  start, count: bytes of them all.
    """

    model: str = ""
    steps: tuple[Step, ...] = ()
    measure: bool = False
    original: bool = False
    trial: bool = False
    memory: int = MEMORY
    seconds: float = SECONDS
    name: str = ""
    hardware: HardwareAsk = field(default_factory=HardwareAsk)
    names: tuple[str, ...] = ()
    start: int = 0
    count: int = 0

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Ask:
        """Of the parameters of a call."""
        return cls(
            str(params.get("model") or ""),
            tuple(Step.from_wire(step) for step in params.get("steps") or ()),
            bool(params.get("measure")),
            bool(params.get("original")),
            bool(params.get("trial")),
            int(params.get("memory") or MEMORY),
            float(params.get("seconds") or SECONDS),
            str(params.get("name") or ""),
            HardwareAsk.of(params),
            tuple(map(str, params.get("names") or ())),
            int(params.get("start") or 0),
            int(params.get("count") or 0),
        )
