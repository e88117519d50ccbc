"""The server's calls about passes: their parameters and their error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mase_server.building import Build
from mase_server.ops.table import parameters_of
from mase_server.protocol.arguments import Step
from mase_server.worker.traced import Traced

#: The default limits of a pass: seconds, and resident bytes.
SECONDS, MEMORY = 300.0, 4 << 30


class AskError(ValueError):
    """A call that failed. kind: pass | limit | cancelled | argument | internal."""

    def __init__(self, text: str, kind: str = "argument") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class HardwareAsk:
    """A call for hardware. folder: the folder to write, "" for only the top module's text.

    vectors: samples for its simulation, None for the usual number.  inputs: an .npz file with samples, "" for random
    ones.
    """

    build: Build = field(default_factory=Build)
    folder: str = ""
    vectors: int | None = None
    inputs: str = ""

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> HardwareAsk:
        """Read it from the parameters of a call; AskError for an impossible build."""
        try:
            build = Build.from_wire(params.get("build") or {})
        except ValueError as error:
            raise AskError(str(error)) from error
        vectors = int(params["vectors"]) if params.get("vectors") else None
        return cls(build, str(params.get("folder") or ""), vectors, str(params.get("inputs") or ""))


@dataclass(frozen=True, slots=True)
class Ask:
    """A pipeline for one model. model: its title, "" for the first.  measure: errors too.  original: without any step.

    trial: the last step is new, so errors need not be measured if it fails.  memory: resident bytes that a fork may
    use.  seconds: that the call may take.  name: of the files to write, of the drawing's colours, or of a module or
    parameter.  hardware: the parameters of the method that makes hardware.  names: the wanted arrays, () for all.
    start, count: the wanted bytes.  further: run a compiled model at other sizes, and try edits that remove graph
    breaks?  device: "cpu" for code for the CPU alone.  run: what `device_costs` reads.
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
    further: bool = False
    device: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Ask:
        """Read it from the parameters of a call."""
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
            bool(params.get("further")),
            str(params.get("device") or ""),
            params.get("run") or {},
        )


# Is there enough memory for a model with values?

#: Running a model takes this many times the bytes of its parameters: for rounded copies and activations.
FACTOR = 2
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def explain_lack_of_memory(traced: Traced, memory: int) -> str:
    """The reason why a model cannot be made with values within `memory` bytes; "" if it can."""
    _, size = parameters_of(traced.found.model)
    wanted = size * FACTOR
    if wanted <= memory:
        return ""
    return (
        f"{traced.name} has {in_units(size)} of parameters; with values it would take about {in_units(wanted)}, and "
        f"the limit is {in_units(memory)}: errors are not measured, and what needs weights cannot run. Raise the "
        "memory limit to change this."
    )


def in_units(size: float) -> str:
    """Bytes as a text, e.g. 3.5 GiB."""
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
