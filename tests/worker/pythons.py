"""Makes interpreters to trace with."""

import subprocess
import sys
from pathlib import Path

_NOT_THE_USERS = ("msgpack", "mase", "__editable__", "_virtualenv", "pygls", "lsprotocol")


def make_python(prefix, torch=False):
    """A fresh environment without packages, or with torch and what it needs: (its python, its site-packages)."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    (site,) = (prefix / "lib").glob("python*/site-packages")
    if torch:
        import torch as ours

        for entry in Path(ours.__file__).parents[1].iterdir():
            if not entry.name.startswith(_NOT_THE_USERS):
                (site / entry.name).symlink_to(entry)
    return str(prefix / "bin" / "python"), site
