"""The pipelines of a file's models, applied again when it is traced: formats alone; errors are asked for."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mase_server.snapshot import TransformAssembler
from mase_server.worker.live import Live
from mase_server.worker.proof import can_fork
from mase_server.worker.transforms.ask import Ask
from mase_server.worker.transforms.forks import Fork, sender
from mase_server.worker.transforms.work import perform

#: Seconds that a payload waits for its transforms; whoever wants them asks again.
SECONDS = 10.0


def replayed(live: Live, pipelines: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The overlay of each model's pipeline, without errors; without the pipelines that fail or take too long."""
    if not can_fork():
        return []
    forks = [_fork(live, title, steps) for title, steps in pipelines.items() if steps]
    assemblers = {fork: TransformAssembler() for fork in forks}
    found: list[dict[str, Any]] = []
    end = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as selector:
        for fork in forks:
            selector.register(fork, selectors.EVENT_READ, fork)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for fork in [key.data for key, _ in selector.select(left)]:
                frames = [message["frame"] for message in fork.messages() if message.get("event") == "transform"]
                found += filter(None, map(assemblers[fork].add, frames))
                if fork.ended:
                    selector.unregister(fork)
    for fork in forks:
        fork.reap()
    return sorted(found, key=lambda transform: int(transform["model"]))


def _fork(live: Live, title: str, steps: Sequence[Mapping[str, Any]]) -> Fork:
    # Errors follow in a call of their own, which knows how much memory there is.
    ask = Ask.of({"model": title, "steps": steps, "measure": True, "memory": 1 << 62})

    def work(sock: socket.socket) -> None:
        perform("transform", live, ask, None, sender(sock))

    return Fork.of(work)
