"""The types that the daemon reports with, and the settings of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from mase_server.building import Build
from mase_server.protocol.answers.files import EndState, TraceState, TraceStatus

if TYPE_CHECKING:
    from mase_server.protocol import answers
    from mase_server.protocol.records import UnshownModel

END_STATES: frozenset[str] = frozenset(get_args(EndState))
STATES: frozenset[str] = frozenset(get_args(TraceState))
#: The number of models that a text about many of them names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Status:
    """One `mase/status`: the state of one generation of one model file. A generation has exactly one end state.

    sha256: of the requested content.  shown_sha256: of the content whose hints are shown.  live: its child still holds
    the graphs.  seconds: since the generation was requested.  generation: counts the requested texts.
    stale: the shown results were traced from an older text.  models: names of the newest text's models that are shown.
    unshown: its models that are not, each with the reason.  unsaved: is what is shown, or is
    being traced, of a text that is not saved?
    """

    path: str
    state: str
    generation: int
    sha256: str
    shown_sha256: str | None
    stale: bool
    live: bool
    seconds: float
    message: str
    models: tuple[str, ...] = ()
    unshown: tuple[UnshownModel, ...] = ()
    unsaved: bool = False

    def to_wire(self) -> answers.Status:
        """As a map of plain values, under the names of the fields."""
        return {"path": self.path, **self.facts()}

    def facts(self) -> TraceStatus:
        """The same without the path."""
        return {
            "state": self.state, "generation": self.generation, "sha256": self.sha256,
            "shown_sha256": self.shown_sha256, "stale": self.stale, "live": self.live, "seconds": self.seconds,
            "message": self.message, "models": list(self.models), "unshown": list(self.unshown),
            "unsaved": self.unsaved,
        }  # fmt: skip

    @property
    def ended(self) -> bool:
        """Is this the generation's end state?"""
        return self.state in END_STATES


def explain_unshown(model: UnshownModel) -> str:
    """Why a model is not shown, and what would help, in sentences."""
    return f"{model['name']} is not shown. {model['why']} {model['step']}".strip()


def describe_unshown(unshown: Iterable[UnshownModel]) -> list[tuple[UnshownModel, str]]:
    """Sentences about the models that are not shown, one text for each reason, with the first model that has it."""
    groups: dict[tuple[str, str], list[UnshownModel]] = {}
    for model in unshown:
        groups.setdefault((model["why"], model["step"]), []).append(model)
    told = []
    for (why, step), models in groups.items():
        names = [model["name"] for model in models]
        listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} others" if len(names) > _NAMED else "")
        head = f"{listed} is not shown." if len(names) == 1 else f"{len(names)} models are not shown: {listed}."
        told.append((models[0], f"{head} {why} {step}".strip()))
    return told


class Listener:
    """Receives notifications of changes on the event loop; must not block. Each method does nothing by itself."""

    def status_changed(self, status: Status) -> None:
        """A generation entered a state; at an end state, its views can already be read."""

    def views_changed(self, paths: frozenset[str]) -> None:
        """The hints or problems of these files changed."""

    def progress(self, path: str, stage: str, message: str) -> None:
        """The trace of `path` reached a stage."""

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Passes run on a model of `path`. fraction: the part that is done, 0 to 1, None if unknown."""

    def pass_ended(self, path: str, model: str) -> None:
        """The passes ended, with or without success."""

    def verilog_changed(self, path: str, model: str) -> None:
        """A model's hardware changed: it has another build or emission, or the last one is stale now."""

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Hardware of a model is being made or simulated. fraction: as in `pass_progress`."""

    def verilog_ended(self, path: str, model: str) -> None:
        """This ended, with or without success."""

    def worker_ended(self, path: str, why: str) -> None:
        """The process that held the graphs of `path` ended after its trace. why: sentences."""

    def warned(self, text: str) -> None:
        """Something other than a file does not work as it should: users should be told, once."""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """Settings of one workspace folder. Limits in seconds and bytes.

    inputs: model name or file glob -> input texts.  pipelines: model title, model name or file glob -> steps as texts.
    build: of hardware, unless a user chooses another.
    """

    trusted: bool = False
    interpreter: str | None = None
    run_main: bool = True
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    time_limit: float = 30.0
    memory_limit: int = 4 << 30
    pipelines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pass_seconds: float = 300.0
    library_hints: bool = True
    build: Build = field(default_factory=Build)
