"""The methods that run in forks, and how what they raise becomes an answer."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mase_server.inputs.making.real import Real
from mase_server.worker.live import Live
from mase_server.worker.transforms import runs
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send

Method = Callable[[Live, Ask, Real | None, Send], None]

#: Method of the wire -> what a fork does; real: the model with values, None on meta.
WORK: dict[str, Method] = {
    "passes": lambda live, ask, real, send: runs.known(live, send),
    "transform": lambda live, ask, real, send: (
        runs.formats(live, ask, send) if real is None else runs.measured(live, ask, real, send)
    ),
    "code": lambda live, ask, real, send: runs.code(live, ask, real, send),
}


@contextmanager
def answering(send: Send) -> Iterator[list[Any]]:
    """What is raised inside becomes the answer of the call."""
    try:
        yield []
    except AskError as error:
        send({"error": str(error), "kind": error.kind})
    except Exception as error:  # noqa: BLE001 - the call's border: its failure is its answer
        traceback.print_exc()
        send({"error": f"{type(error).__name__}: {error}", "kind": "internal"})
