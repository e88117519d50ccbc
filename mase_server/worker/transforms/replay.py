"""Applies the pipelines of a file's models again when the file is traced: formats only, without errors."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mase_server import system
from mase_server.protocol.records import TransformRecord
from mase_server.protocol.snapshot import TransformAssembler
from mase_server.worker.traced import Live
from mase_server.worker.transforms.ask import Ask
from mase_server.worker.transforms.forks import Fork, make_sender
from mase_server.worker.transforms.work import perform_method

#: Seconds that a payload waits for its transforms; a client that needs later ones asks again.
SECONDS = 10.0


def replay_pipelines(live: Live, pipelines: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[TransformRecord]:
    """The overlay of each model's pipeline, without errors; pipelines that fail or take too long are left out."""
    if not system.HAS_FORK:
        return []
    forks = [_fork_replay(live, title, steps) for title, steps in pipelines.items() if steps]
    assemblers = {fork: TransformAssembler() for fork in forks}
    found: list[TransformRecord] = []
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


def _fork_replay(live: Live, title: str, steps: Sequence[Mapping[str, Any]]) -> Fork:
    # Errors are measured in a separate call, which knows how much memory is available.
    ask = Ask.of({"model": title, "steps": steps, "measure": True, "memory": 1 << 62})

    def work(sock: socket.socket) -> None:
        perform_method("transform", live, ask, None, make_sender(sock))

    return Fork.of(work)
