"""`mase-server trust`: the person's word that the files of a folder may run."""

from __future__ import annotations

from pathlib import Path

from mase_server.cli.terminal import say
from mase_server.daemon.trust import grant, revoke, warn_of_folder
from mase_server.directories import state_dir
from mase_server.visible import reveal


def keep(folder: Path, taken_back: bool) -> str:
    """Grant or revoke; what was done, in a sentence. OSError when that cannot be kept."""
    path = str(folder.resolve())
    name = reveal(path)
    if taken_back:
        return f"{name} is no longer trusted." if revoke(state_dir(), path) else f"{name} was not trusted."
    grant(state_dir(), path)
    for warning in warn_of_folder(path):
        say(f"warning: {warning} `--revoke` takes the trust back.", error=True)
    return f"{name} is trusted: its model files run when an editor opens them."
