"""The methods that run in forks, and how what they raise becomes an answer."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mase_server.inputs.making.real import Real
from mase_server.tracing.devices import OnCpu
from mase_server.worker.live import Live
from mase_server.worker.transforms import hardware, outputs, runs
from mase_server.worker.transforms.ask import Ask, AskError
from mase_server.worker.transforms.forks import Send

_Method = Callable[[Live, Ask, Real | None, Send], None]

#: Method of the wire -> what a fork does; real: the model with values, None on meta.
_WORK: dict[str, _Method] = {
    "passes": lambda live, ask, real, send: runs.known(live, send),
    "transform": lambda live, ask, real, send: (
        runs.formats(live, ask, send) if real is None else runs.measured(live, ask, real, send)
    ),
    "code": runs.code,
    "verilog": hardware.emission,
    "export": outputs.checkpoint,
    "draw": outputs.drawing,
    "weights": outputs.weights,
}
METHODS = frozenset(_WORK)


def perform(method: str, live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """In a fork: do what a method does, where paths and imports are the workspace's; what it raises is its answer."""
    request = live.request
    with answering(send), nullcontext() if real is None else OnCpu():
        os.chdir(request.folder)
        sys.path[:0] = [folder for folder in (str(Path(request.path).parent), request.folder) if folder not in sys.path]
        _WORK[method](live, ask, real, send)


@contextmanager
def answering(send: Send) -> Iterator[None]:
    """An error that is raised inside becomes the answer of the call."""
    try:
        yield
    except AskError as error:
        send({"error": str(error), "kind": error.kind})
    except Exception as error:  # noqa: BLE001 - the call's border: its failure is its answer
        traceback.print_exc()
        send({"error": f"{type(error).__name__}: {error}", "kind": "internal"})
