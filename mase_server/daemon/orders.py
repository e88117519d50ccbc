"""Asking a child for the hardware of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mase_server.building import Build
from mase_server.daemon.calls import OnEvent
from mase_server.daemon.emissions import Emission
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.pipelines import PassError, Steps
from mase_server.daemon.runs import Callee, ask_child
from mase_server.daemon.supervisor import Limits
from mase_server.wire import Message


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asks for. folder: where all of it is written, "" for the top module's text alone.

    vectors: samples for the simulation, None for the usual number.  inputs: an .npz file with them, "" for random ones.
    ValueError for what cannot be.
    """

    build: Build
    folder: str = ""
    vectors: int | None = None
    inputs: str = ""

    def __post_init__(self) -> None:
        if self.vectors is not None and self.vectors < 1:
            raise ValueError(f"vectors is {self.vectors}; at least one is needed")

    def to_wire(self) -> dict[str, Any]:
        """As the parameters of the child's method."""
        given = {"build": self.build.to_wire(), "folder": self.folder, "inputs": self.inputs}
        return given if self.vectors is None else given | {"vectors": self.vectors}


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that hardware is made of, and the steps that are applied to it first."""

    snapshot: GraphSnapshot
    title: str
    steps: Steps


async def emission_of(
    worker: Callee, subject: Subject, order: Order, limits: Limits, on_event: OnEvent | None = None
) -> Emission:
    """What a child makes of a model. PassError where it cannot, or says what cannot be read; WorkerGone if it ends."""
    pieces: list[Any] = []

    def heard(message: Message) -> None:
        if message["event"] == "operations":
            pieces.extend(message["operations"])
        elif on_event is not None:
            on_event(message)

    snapshot, title = subject.snapshot, subject.title
    params = {"model": title, "steps": [step.to_wire() for step in subject.steps], **order.to_wire()}
    told = await ask_child(worker, "verilog", params, limits, f"the steps to hardware of {title}", heard)
    try:
        told |= {"operations": [*pieces, *told["operations"]]}
        texts = tuple(map(str, subject.steps))
        return Emission.of(snapshot, snapshot.titles.index(title), order.build, texts, told)
    except (KeyError, TypeError, ValueError) as error:
        text = f"What the worker said of the hardware of {title} cannot be read"
        raise PassError("internal", f"{text}: {type(error).__name__}: {error}") from error
