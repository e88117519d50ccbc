"""Which folders may run their code: kept in the user's state directory, never in the workspace."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

_FILE = "trusted.json"


def is_trusted(state_dir: Path, folder: str) -> bool:
    """Was `folder`, or a folder that holds it, granted trust?"""
    where = Path(folder).resolve()
    return any(where.is_relative_to(granted) for granted in _read(state_dir))


def grant(state_dir: Path, folder: str) -> None:
    """Trust `folder` and all below it from now on; OSError when that cannot be kept."""
    _write(state_dir, _read(state_dir) | {str(Path(folder).resolve())})


def revoke(state_dir: Path, folder: str) -> bool:
    """Take back what was granted to exactly `folder`; was there anything?"""
    granted, where = _read(state_dir), str(Path(folder).resolve())
    _write(state_dir, granted - {where})
    return where in granted


def _read(state_dir: Path) -> set[str]:
    try:
        found = json.loads((state_dir / _FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return set()
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


def _write(state_dir: Path, granted: set[str]) -> None:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp makes the file 0600; the rename makes the change whole for other servers of the same user.
    fd, name = tempfile.mkstemp(dir=state_dir, prefix=_FILE)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(sorted(granted), file, indent=1)
    Path(name).replace(state_dir / _FILE)
