"""Finds the function that a trace child runs: the tracing job, or a stand-in that the server names."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from mase_server.protocol.request import TraceRequest
from mase_server.protocol.wire import Message

Emit = Callable[[Message], None]
#: Given the lines, from 1, that may differ in the text to come, and a function that goes on with the request for it if
#: it can, waits for that request. Does not return if the trace cannot go on with it.
Await = Callable[[list[tuple[int, int]], Callable[[TraceRequest], bool]], None]
#: Runs ahead where it is given an `Await`.
Job = Callable[..., object]


def load_job(name: str) -> Job:
    """The function that `module:function` or `/path/file.py:function` names."""
    where, _, function = name.rpartition(":")
    module = _load_file(where) if where.endswith(".py") else import_module(where)
    job: Job = getattr(module, function)
    return job


def run_rehearsal(name: str) -> None:
    """Run the `rehearse` beside the job that `name` names, if there is one."""
    getattr(sys.modules[load_job(name).__module__], "rehearse", lambda: None)()


def _load_file(path: str) -> Any:
    name = "_mase_job"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
