"""Trials: a model file traced with other inputs beside what is shown of it, to see what would come of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mase_server.daemon.environment import candidates, environment_problem
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.launcher import with_child
from mase_server.daemon.pool import NoInterpreter
from mase_server.daemon.refused import refused
from mase_server.daemon.supervisor import Events, Limits, TraceWorker
from mase_server.daemon.tracked import make_scratch
from mase_server.snapshot import Payload, Problem
from mase_server.worker.request import TraceOptions, TraceRequest

if TYPE_CHECKING:
    from mase_server.daemon.generation import Services
    from mase_server.daemon.tracked import Tracked


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one: the whole trace, None where nothing could be traced, and what was wrong."""

    snapshot: GraphSnapshot | None
    problems: tuple[Problem, ...] = ()


async def trial(services: Services, tracked: Tracked, options: TraceOptions) -> Trial:
    """Trace a file as it is on disk in a child of its own, which ends with it; cancelling this ends the child."""
    settings = services.settings_of(tracked.folder)
    found = candidates(tracked.folder, tracked.path, settings.interpreter, os.environ)
    async with services.slots.turn(""):
        try:
            _, child = await services.pool.child(tracked.folder, tracked.path, found)
            request = await with_child(child, lambda: _request(services, tracked, options, settings.time_limit))
        except NoInterpreter as error:
            return Trial(None, (environment_problem(tracked.path, error.code, error.tried),))
        except OSError as error:
            return Trial(None, (refused(tracked.path, error),))
        payloads: list[Payload] = []
        limits = Limits(settings.time_limit, settings.memory_limit)
        worker = TraceWorker(child, request, limits, Events(payloads.append, lambda stage, message: None))
        try:
            outcome = await worker.trace()
        finally:
            services.in_background(worker)
    if not payloads:
        return Trial(None, outcome.problems)
    snapshot = GraphSnapshot(payloads[-1])
    return Trial(snapshot, (*snapshot.problems, *outcome.problems))


def _request(services: Services, tracked: Tracked, options: TraceOptions, seconds: float) -> TraceRequest:
    return TraceRequest(
        path=tracked.path,
        folder=tracked.folder,
        sha256="",
        generation=0,
        options=options,
        fit=tracked.fit,
        scratch=make_scratch(),
        bytecode_cache=services.bytecode_cache,
        seconds=seconds,
    )
