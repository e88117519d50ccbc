"""What the daemon tells whoever listens, and what it is told about a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mase_server.building import Build

END_STATES = frozenset({"ready", "failed", "crashed", "superseded", "untrusted", "no_model", "no_environment"})
STATES = frozenset({"queued", "starting", "tracing"}) | END_STATES


@dataclass(frozen=True, slots=True)
class Status:
    """One `mase/status`: where one generation of one model file is. Exactly one end state a generation.

    sha256: of the content asked for.  shown_sha256: of the content whose hints are shown.  live: its child still holds
    the graphs.  seconds: since the generation was asked for.  generation: counts the texts that were asked for.
    stale: what is shown was traced from an older text.
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

    @property
    def ended(self) -> bool:
        """Is this the generation's end state?"""
        return self.state in END_STATES


class Listener(Protocol):
    """Hears of changes, on the event loop; must not block."""

    def status_changed(self, status: Status) -> None:
        """A generation entered a state; at an end state its views can already be read."""

    def views_changed(self, paths: frozenset[str]) -> None:
        """The hints or problems of these files changed."""

    def progress(self, path: str, stage: str, message: str) -> None:
        """The trace of `path` reached a stage."""

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Passes run on a model of `path`. fraction: how much of it is done, 0 to 1, None where nobody knows."""

    def pass_ended(self, path: str, model: str) -> None:
        """They are over, whichever way."""

    def verilog_changed(self, path: str, model: str) -> None:
        """What is told of a model's hardware changed: another build, another emission, or the last one is stale now."""

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Hardware of a model is made or simulated. fraction: as in `pass_progress`."""

    def verilog_ended(self, path: str, model: str) -> None:
        """That is over, whichever way."""

    def warned(self, text: str) -> None:
        """Something that is no file's does not work as it should: a person should know, once."""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """Settings of one workspace folder. Limits in seconds and bytes.

    inputs: model name or file glob -> input texts.  pipelines: model title, model name or file glob -> steps as texts.
    build: of hardware, where a person says nothing else.
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
