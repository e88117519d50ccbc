"""Trials: trace a model file with other inputs without changing what is shown; also the user's picks of sets.

A trial runs in its own child with one text in place of a set's comments, as line 0, so that the form and a comparison
know what a save would show, while the shown results stay. Picks are kept in the user's state folder, never in the
workspace.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server.daemon.death import make_refused_problem
from mase_server.daemon.environment import environment_problem, list_interpreters
from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.launcher import with_child
from mase_server.daemon.pool import NoInterpreter
from mase_server.daemon.supervisor import Events, Limits, TraceWorker
from mase_server.daemon.tracked import make_scratch
from mase_server.private import change_file, read_own, write_whole
from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.protocol.snapshot import Payload, Problem

if TYPE_CHECKING:
    from mase_server.daemon.generation import Services
    from mase_server.daemon.tracked import Tracked


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial: the whole trace, None if nothing could be traced, and the problems."""

    snapshot: GraphSnapshot | None
    problems: tuple[Problem, ...] = ()


async def run_trial(
    services: Services,
    tracked: Tracked,
    options: TraceOptions,
    text: str | None = None,
    then: Callable[[TraceWorker], Awaitable[None]] | None = None,
) -> Trial:
    """Trace a file, or a text in its place, in a separate child; the child ends with the trial or its cancellation.

    then: a call of the child once it has traced.
    """
    settings = services.settings_of(tracked.folder)
    found = list_interpreters(tracked.folder, tracked.path, settings.interpreter, os.environ)
    async with services.slots.turn(""):
        try:
            _, child = await services.pool.child(tracked.folder, tracked.path, found)
            request = await with_child(
                child, lambda: _make_trial_request(services, tracked, options, settings.time_limit, text)
            )
        except NoInterpreter as error:
            return Trial(None, (environment_problem(tracked.path, error.code, error.tried),))
        except OSError as error:
            return Trial(None, (make_refused_problem(tracked.path, error),))
        payloads: list[Payload] = []
        limits = Limits(settings.time_limit, settings.memory_limit)
        worker = TraceWorker(child, request, limits, Events(payloads.append, lambda stage, message: None))
        try:
            outcome = await worker.trace()
            if then is not None and payloads:
                await then(worker)
        finally:
            services.in_background(worker)
    if not payloads:
        return Trial(None, outcome.problems)
    snapshot = GraphSnapshot(payloads[-1])
    return Trial(snapshot, (*snapshot.problems, *outcome.problems))


def _make_trial_request(
    services: Services, tracked: Tracked, options: TraceOptions, seconds: float, text: str | None
) -> TraceRequest:
    texts = services.unsaved.texts_for(tracked.path, tracked.folder)
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
        texts=texts if text is None else {**texts, tracked.path: text.encode()},
    )


# The named sets of inputs that users picked: kept in the user's state directory, never in the workspace.

#: Maximum number of files whose picks are remembered; the oldest are dropped first.
_MOST = 1000


class PickedSets:
    """The picks of all files of this user, read on each request, because other servers write them too."""

    def __init__(self, state_dir: Path, name: str = "input_sets.json") -> None:
        self._file = state_dir / name

    def of(self, path: str) -> dict[str, str]:
        """model name -> picked set, "" for the comments without a name, of the model file `path`."""
        return self._read_picks().get(path, {})

    def pick(self, path: str, model: str, name: str | None) -> None:
        """Remember a pick, or forget it for None; OSError if that cannot be stored."""
        with change_file(self._file):
            known = self._read_picks()
            picks = {**known.pop(path, {}), model: name}
            left = {model: name for model, name in picks.items() if name is not None}
            known |= {path: left} if left else {}
            write_whole(self._file, json.dumps(dict(list(known.items())[-_MOST:]), indent=1))

    def _read_picks(self) -> dict[str, dict[str, str]]:
        try:
            found = json.loads(read_own(self._file))
        except (OSError, ValueError):
            return {}
        entries = found.items() if isinstance(found, dict) else ()
        return {path: picks for path, picks in entries if isinstance(picks, dict) and _are_texts(picks)}


def _are_texts(picks: Mapping[object, object]) -> bool:
    return all(isinstance(each, str) for pair in picks.items() for each in pair)
