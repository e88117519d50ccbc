"""The start of a worker: it imports what tracing needs, shakes hands, then serves as warm parent or as spare."""

from __future__ import annotations

import gc
import os
import platform
import re
import socket
import sys
from importlib import import_module

from mase_server import wire
from mase_server.worker import child, parent, processes
from mase_server.worker.jobs import load_job

MIN_TORCH = (2, 6)

#: What tracing needs sooner or later, some of it imported lazily by torch. It must be whole before user code runs.
IMPORTS = (
    "torch",
    "torch.fx",
    "torch._refs",
    "torch._decomp",
    "torch._meta_registrations",
    "torch._subclasses.fake_tensor",
    "torch._dynamo",
    "torch.utils.checkpoint",
    "torch.nn.utils.rnn",
)


class Unusable(Exception):
    """This interpreter cannot trace; `code` is one of no-torch, torch-too-old, import-failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def import_torch() -> str:
    """Import everything of IMPORTS and return torch's version; Unusable names the interpreter and what to do."""
    try:
        torch = import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise Unusable("import-failed", _import_failed(error)) from error
        raise Unusable(
            "no-torch", f"{sys.executable} has no torch. Install it there (pip install torch), or choose another "
            "interpreter for this folder."
        ) from error  # fmt: skip
    except Exception as error:
        raise Unusable("import-failed", _import_failed(error)) from error
    version = str(getattr(torch, "__version__", "unknown"))
    if _numbers(version) < MIN_TORCH:
        raise Unusable(
            "torch-too-old", f"{sys.executable} has torch {version}; tracing needs 2.6 or newer. Upgrade it there "
            "(pip install -U torch), or choose another interpreter for this folder."
        )  # fmt: skip
    return version


def _import_failed(error: Exception) -> str:
    return (
        f"torch is installed in {sys.executable} but does not import: {type(error).__name__}: {error}. "
        "Repair that installation, or choose another interpreter for this folder."
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def prepare(job: str) -> str:
    """Import all that a child of this process will need, without running any op; torch's version."""
    version = import_torch()
    try:
        for name in IMPORTS[1:]:
            import_module(name)
        load_job(job)
    except Exception as error:
        raise Unusable("import-failed", _import_failed(error)) from error
    gc.collect()
    gc.freeze()
    return version


def run(role: str, sock: socket.socket, *, folder: str, job: str) -> int:
    """Shake hands over `sock` and serve until it ends; the process's exit status."""
    connection = wire.Connection(sock)
    processes.leave_no_core()
    processes.die_with_parent(os.getppid())  # nothing hangs below it yet, and importing torch takes seconds
    if _has_ended(sock):
        return 1
    try:
        version = prepare(job)
    except Unusable as error:
        reason = {"code": error.code, "message": str(error), "python": sys.executable}
        connection.send({"handshake_failed": reason})
        return 1
    connection.send({"handshake": handshake(version)})
    if role == "spare":
        child.wait_and_run(connection, job)
    return parent.WarmParent(connection, job, folder).serve()


def _has_ended(sock: socket.socket) -> bool:
    """Has the server gone while this process was starting, before it could ask to be told of that?"""
    if not hasattr(socket, "MSG_DONTWAIT"):
        return False
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False


def handshake(torch_version: str) -> wire.Message:
    """The facts on this interpreter that the server needs."""
    return {
        "protocol": wire.PROTOCOL,
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": torch_version,
        "pid": os.getpid(),
        "codec": wire.CODEC,
    }
