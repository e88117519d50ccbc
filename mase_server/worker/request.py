"""A request from the server to a trace child. Standard library only: both halves load it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: In place of a model's name: all models.
EVERY = "*"


def owner_of(name: str) -> str:
    """Whose sets of inputs a model has: the class, function or variable, not what it gives: `build` of `build[0]`."""
    return name.partition("[")[0]


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to find the model and its inputs; empty means: find out.

    inputs: texts such as "x: f32[1, 3, 224, 224]".  arguments: constructor arguments as Python literals' text.
    inputs_from: where `inputs` came from, "option" or "settings".  run_main: may the file run as `__main__`?
    pipelines: the passes to apply to each model, by its title, as `steps.Step.to_wire` gives them.
    sets: the named set of inputs that was picked for a model, by its name, or for `EVERY` model that has it; "" for
    none of them.
    trial: {"model", "set", "text"}: trace as if the comments of that set of the model, by its name, said just `text`
    ("" for nothing; None: what they say), and tell the form of its inputs and arguments.
    """

    model: str | None = None
    inputs: tuple[str, ...] = ()
    arguments: dict[str, str] = field(default_factory=dict)
    inputs_from: str = "settings"
    run_main: bool = True
    pipelines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    trial: dict[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One trace of one file.

    path, folder: absolute.  sha256: of the bytes on disk that the server wants traced.  instrument: library files
    whose names should report their tensors too (they are open in an editor).  fit: what the last trace of this file
    sent as "fit".  scratch: a private folder for what user code writes, and for `fault.txt`.  bytecode_cache: where
    rewritten code of workspace modules is kept.  seconds: after how many the server ends the trace.  name: of the
    request that it is for, which the child says again when it is done.  gently: let others on the machine go first;
    there are more traces than processors.
    """

    path: str
    folder: str
    sha256: str
    generation: int
    options: TraceOptions = field(default_factory=TraceOptions)
    fit: bytes | None = None
    instrument: tuple[str, ...] = ()
    scratch: str = ""
    bytecode_cache: str = ""
    seconds: float = 30.0
    name: str = ""
    gently: bool = False

    def to_wire(self) -> dict[str, Any]:
        """As a map of plain values."""
        return asdict(self)

    @classmethod
    def from_wire(cls, data: dict[str, Any]) -> TraceRequest:
        """The inverse of `to_wire`."""
        options = dict(data["options"])
        options["inputs"] = tuple(options["inputs"])
        return cls(**{**data, "options": TraceOptions(**options), "instrument": tuple(data["instrument"])})
