"""A request from the server to a trace child. Standard library only: both halves load it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mase_server.protocol.records import StepRecord

#: Stands for all models in place of a model's name.
EVERY = "*"
#: What compilers make of a model: each view, and the modules that it imports beside those of a trace.
VIEWS: Mapping[str, tuple[str, ...]] = {
    "dynamo": ("torch._dynamo",),
    "aten": ("torch._dynamo", "torch._dynamo.backends.common", "torch._functorch.aot_autograd"),
    "joint": ("torch._dynamo", "torch._dynamo.backends.common", "torch._functorch.aot_autograd"),
    "inductor": ("torch._dynamo", "torch._inductor.compile_fx"),
    "export": ("torch._dynamo", "torch.export"),
    "onnx": ("torch._dynamo", "torch.export", "torch.onnx"),
}


def owner_of(name: str) -> str:
    """The owner of a model's sets of inputs: the class, function or variable in a name, e.g. `build` of `build[0]`."""
    return name.partition("[")[0]


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to find the model and its inputs; empty fields are found out.

    inputs: texts such as "x: f32[1, 3, 224, 224]".  arguments: constructor arguments as Python literals' text.
    inputs_from: the source of `inputs`, "option" or "settings".  run_main: may the file run as `__main__`?
    pipelines: the passes to apply to each model, by its title, in the form of `steps.Step.to_wire`.
    sets: the named set of inputs picked for a model, by its name, or for every model that has it (`EVERY`); "" for
    the comments without a name.
    trial: {"model", "set", "text"}: trace as if the comments of that set of the model, by its name, were just `text`
    ("" for none; None: as they are), and return the form of its inputs and arguments.
    """

    model: str | None = None
    inputs: tuple[str, ...] = ()
    arguments: dict[str, str] = field(default_factory=dict)
    inputs_from: str = "settings"
    run_main: bool = True
    pipelines: dict[str, list[StepRecord]] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    trial: dict[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One trace of one file.

    path, folder: absolute.  sha256: of the bytes that the server wants traced.  instrument: library files whose
    names should report their tensors too (they are open in an editor).  fit: the "fit" sent by the last trace of this
    file.  scratch: a private folder for files of user code, and for `fault.txt`.  bytecode_cache: the folder of
    rewritten code of workspace modules.  seconds: the time limit of the trace.  name: of the request it belongs to,
    which the child repeats when it is done.  gently: run with a low priority, because there are more traces than
    processors.  texts: what stands in an editor, unsaved, in place of files, by path, as `notebooks.read_traced_bytes`
    gives files; the priority is lower then, too, but less.
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
    texts: dict[str, bytes] = field(default_factory=dict)

    def follows(self, other: TraceRequest) -> bool:
        """Does it ask for the same as another one, but for the text of the file that is traced?"""
        own = {"sha256", "generation", "name", "gently", "texts"}
        if any(getattr(self, each.name) != getattr(other, each.name) for each in fields(self) if each.name not in own):
            return False
        here, there = ({**each.texts, self.path: b""} for each in (self, other))
        return here == there and self.path in self.texts

    def become(self, other: TraceRequest) -> None:
        """Take the place of another request, in all that refers to this one."""
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(other, each.name))

    def to_wire(self) -> dict[str, Any]:
        """As a map of plain values."""
        return asdict(self)

    @classmethod
    def from_wire(cls, data: dict[str, Any]) -> TraceRequest:
        """The inverse of `to_wire`."""
        options = dict(data["options"])
        options["inputs"] = tuple(options["inputs"])
        return cls(**{**data, "options": TraceOptions(**options), "instrument": tuple(data["instrument"])})
