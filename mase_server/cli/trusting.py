"""`mase-server trust`: the person's word that the files of a folder may run."""

from __future__ import annotations

from pathlib import Path

from mase_server.daemon.trust import grant, revoke
from mase_server.directories import state_dir


def keep(folder: Path, taken_back: bool) -> str:
    """Grant or revoke; what was done, in a sentence. OSError when that cannot be kept."""
    path = str(folder.resolve())
    if taken_back:
        return f"{path} is no longer trusted." if revoke(state_dir(), path) else f"{path} was not trusted."
    grant(state_dir(), path)
    return f"{path} is trusted: its model files run when an editor opens them."
