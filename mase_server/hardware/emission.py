"""A folder that stands alone: top module, components, memories, vectors, a simulation and a Makefile."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mase_server.hardware.bench import bench_files
from mase_server.hardware.design import Design
from mase_server.hardware.estimates import Estimates, estimate
from mase_server.hardware.folding import Folding
from mase_server.hardware.library import components
from mase_server.hardware.memories import hexadecimal
from mase_server.hardware.names import identifier
from mase_server.hardware.netlist import netlist
from mase_server.hardware.page import page, template
from mase_server.hardware.vectors import expected
from mase_server.hardware.verilog import Text, top_text
from mase_server.hardware.wiring import Netlist


@dataclass(frozen=True, slots=True)
class Emitted:
    """What was emitted. files: text by relative path.  top: the top module, with the lines of each operation."""

    name: str
    files: Mapping[str, str]
    top: Text

    def write(self, folder: Path) -> None:
        """Write every file; what else is in the folder stays. OSError names the first that cannot be written."""
        for path, text in self.files.items():
            place = folder / path
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            except OSError as error:
                told = f"cannot write {place}: {error.strerror}. The folder is not whole: emit again once it can be"
                raise OSError(error.errno, told) from error


@dataclass(frozen=True, slots=True)
class Top:
    """The top module of a design, without what its memories hold."""

    name: str
    title: str
    folding: Folding
    made: Netlist
    text: Text

    def component(self, operation: str) -> str:
        """The component that an operation is; "" for one that only names or widens streams."""
        own = [each for each in self.made.instances if each.operation == operation]
        return next((each.module for each in own if each.name == f"{operation}_i"), own[0].module if own else "")


def top(design: Design, folding: Folding, name: str, weights: str = "") -> Top:
    """The top module. name: of the model; the module gets it in snake case.  weights: whose they are, in words."""
    made, module = netlist(design, folding), module_name(name, design.operations)
    return Top(module, name, folding, made, top_text(module, made, _about(name, design, folding, weights)))


def emit(design: Design, folding: Folding, name: str, inputs: list[Tensor]) -> Emitted:
    """The folder of a design: `whole` of its `top`."""
    return whole(design, top(design, folding, name), inputs)


def whole(design: Design, made: Top, inputs: list[Tensor], figures: Estimates | None = None) -> Emitted:
    """The folder around a top module. figures: its estimates, where they are there already.

    inputs: integers for each input, [vectors, ...]; what has to come out is `vectors.expected`.
    A design that is not whole has streams in place of what is missing.  The same design gives the same bytes.
    """
    outputs = expected(design, inputs)
    needed = components(*dict.fromkeys(instance.module for instance in made.made.instances))
    bench = bench_files(made.name, made.made, design, made.folding, inputs, outputs)
    files = {f"{made.name}.sv": made.text.text}
    files |= {f"rtl/{path.name}": path.read_text(encoding="utf-8") for path in needed}
    files |= {memory.file: hexadecimal(memory.words, memory.width) for memory in made.made.memories}
    files |= {f"sim/{path}": content for path, content in bench.items()}
    files["files.f"] = "".join(f"{path}\n" for path in (*(f"rtl/{path.name}" for path in needed), f"{made.name}.sv"))
    files["Makefile"] = template("Makefile").replace("@TOP@", made.name)
    figures = estimate(design, made.folding, made.made) if figures is None else figures
    files["README.md"] = page(made.title, made.name, design, made.made, figures)
    return Emitted(made.name, files, made.text)


def random_inputs(design: Design, vectors: int, seed: int = 0) -> list[Tensor]:
    """Integers over the whole range of every input's format, so that saturation happens too."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for operation in design.inputs:
        low, high = operation.out.format.integers
        high = operation.options.get("below", high + 1) - 1
        found.append(torch.randint(low, high + 1, (vectors, *operation.out.shape), generator=generator))
    return found


def module_name(name: str, taken: Container[str] = ()) -> str:
    """A model's name as the name of a module, which is not taken: `JetMLP` is jet_mlp."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return identifier(re.sub(r"\W+", "_", words, flags=re.ASCII).strip("_").lower() or "model", taken)


def _about(name: str, design: Design, folding: Folding, weights: str) -> list[str]:
    about = [
        f"{name}: {len(design.operations)} operations, {folding.multipliers} multipliers.",
        f"A sample takes {folding.interval} cycles; the slowest: {_first(folding.bottlenecks) or 'its streams'}.",
        *([f"Its memories hold {weights}."] if weights else []),
    ]
    return about + (_lacks(design) if design.unsupported else [])


def _first(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _lacks(design: Design) -> list[str]:
    """What is missing, and which ports are in its place."""
    told = ["It is not whole. Without hardware:"]
    told += [f"- {each.node} ({each.operator}): {' '.join(each.why.split())}" for each in design.unsupported]
    for index, operation in enumerate(design.inputs):
        if operation.name in design.cut:
            told.append(f"data_in_{index} takes what {operation.nodes[0]} would give.")
    for index, output in enumerate(design.outputs):
        if output in design.cut:
            told.append(f"data_out_{index} gives what of {output} a missing node would read.")
    return told
