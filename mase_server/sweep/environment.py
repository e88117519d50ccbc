"""Which torch a file will meet, told from the files of its interpreter: nothing is started for it."""

from __future__ import annotations

import os
from pathlib import Path

from mase_server.daemon.environment import candidates
from mase_server.daemon.projects import project_of


def environment_of(file: str, python: str | None) -> str:
    """E.g. "torch-2.13.0", of the first interpreter that has one; "" where no interpreter tells."""
    for candidate in candidates(project_of(file), file, python, os.environ):
        prefix = Path(candidate.path).parent.parent
        for places in ("lib/python3*/site-packages", "lib/python3/dist-packages", "Lib/site-packages"):
            for found in sorted(prefix.glob(f"{places}/torch-*.dist-info")):
                return found.name.removesuffix(".dist-info")
    return ""
