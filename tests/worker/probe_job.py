"""A job that looks at the process it runs in, and does what the file's text names."""

import os
import sys
import threading
from pathlib import Path


def trace(request, emit):
    what = Path(request.path).read_text().strip()
    emit({"event": "stage", "stage": what, "message": repr(ACTIONS[what](request))})


def facts(request):
    import mase_server

    return {
        "threads": threading.active_count(),
        "tasks": len(list(Path("/proc/self/task").iterdir())),
        "path": sys.path,
        "environ": dict(os.environ),
        "package": mase_server.__file__,
        "msgpack": [name for name in sys.modules if "msgpack" in name],
        "leader": os.getpgid(0) == os.getpid(),
        "modules": sorted(sys.modules),
    }


def compute(request):
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    a = torch.randn(1200, 1200, requires_grad=True)
    (a @ a).exp().sum().backward()
    return before, torch.get_num_threads(), tuple(a.grad.shape), len(list(Path("/proc/self/task").iterdir()))


def priority(request):
    """Its niceness, and how its session's line ends where Linux tells one: nice N."""
    session = Path("/proc/self/autogroup")
    return os.nice(0), session.read_text().split()[-1] if session.exists() else ""


ACTIONS = {"facts": facts, "compute": compute, "priority": priority}
