"""`mase-server apply`: passes on one model of one file, through the daemon's API as an editor would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mase_server.cli.reports import Report
from mase_server.cli.session import Outcome, Wanted, daemon_for, outcome_of, traced
from mase_server.cli.session import call as call
from mase_server.cli.steps import UsageError, meant
from mase_server.daemon.daemon import Daemon
from mase_server.daemon.graph_snapshot import GraphSnapshot, NodeView
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.quiet import Quiet
from mase_server.paths import canonical
from mase_server.steps import Step


@dataclass(frozen=True, slots=True)
class Request:
    """The passes to apply, and the model. title: of the model, None for the first.  code: show the new code?"""

    wanted: Wanted
    steps: tuple[Step, ...]
    title: str | None = None
    code: bool = False

    @property
    def path(self) -> str:
        """The file, absolute."""
        return canonical(self.wanted.files[0])

    @property
    def place(self) -> dict[str, Any]:
        """The parameters that name the model."""
        return {"path": self.path} | ({} if self.title is None else {"model": self.title})


@dataclass(frozen=True, slots=True)
class Applied:
    """The result. outcome: of the file, after the passes.  model: as in `mase/models`, {} if there is none.

    layers: the nodes that the transform reports on.  failure: why it stopped, None if every pass was applied.
    report: the file with its shapes after the passes.
    """

    outcome: Outcome
    model: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[NodeView] = ()
    failure: str | None = None
    code: str | None = None
    report: Report | None = None

    @property
    def was_applied(self) -> bool:
        """Is everything as it was asked for?"""
        told = self.model.get("transform") or {}
        return bool(self.model) and self.failure is None and told.get("failed") is None


class Reporter(Quiet):
    """A listener that has somebody told how far things are."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def progress(self, path: str, stage: str, message: str) -> None:
        """The trace of a file reached a stage."""
        self._tell(f"{Path(path).name}: {stage}")

    def pass_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Passes run."""
        self._tell(f"{model}: {message}" + ("" if fraction is None else f" ({100 * fraction:.0f} %)"))

    def verilog_progress(self, path: str, model: str, message: str, fraction: float | None) -> None:
        """Hardware is made."""
        self.pass_progress(path, model, message, fraction)


async def apply(request: Request, tell: Callable[[str], None]) -> Applied:
    """Trace the file and apply the steps in turn. UsageError for what cannot be meant."""
    file = request.wanted.files[0]
    async with daemon_for(request.wanted, Reporter(tell)) as daemon:
        status = await daemon.wait(request.path)
        before = outcome_of(daemon, file, status)
        if before.snapshot is None or not before.snapshot.titles:
            return Applied(before)
        failure = await _run(daemon, request)
        code = (await call(daemon, "mase/transformed", request.place))["text"] if request.code else None
        title = (await call(daemon, "mase/pipeline", request.place))["model"]
        models = await call(daemon, "mase/models", {"path": request.path})
        model = next(model for model in models if model["title"] == title)
        after = outcome_of(daemon, file, status)
        layers = _layers(after.snapshot, model["title"])
        return Applied(after, model, layers, failure, code, await traced(daemon, file, passes=True))


async def passes_of(wanted: Wanted, folder: str | None, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """The passes for a file, as `mase/passes` has them. PassError where its process cannot tell."""
    async with daemon_for(wanted, Reporter(tell), folder) as daemon:
        path = canonical(wanted.files[0])
        await daemon.wait(path)
        return await daemon.passes.refresh(path)


async def _run(daemon: Daemon, request: Request) -> str | None:
    """Apply one after the other; why one could not be applied, None if all could."""
    try:
        for step in meant(request.steps, await daemon.passes.refresh(request.path)):
            given = {"pass": step.name, "arguments": dict(step.arguments)}
            await call(daemon, "mase/applyPass", request.place | given)
    except PassError as error:
        if error.kind == "argument":
            raise UsageError(str(error)) from None
        return str(error)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return None


def _layers(snapshot: GraphSnapshot | None, title: str) -> list[NodeView]:
    if snapshot is None:
        return []
    transform = snapshot.transforms.get(snapshot.titles.index(title))
    return [snapshot.node(row) for row in sorted(transform.places)] if transform is not None else []
