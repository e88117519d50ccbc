"""Which folders may run their code: kept in the user's state directory, never in the workspace."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

from mase_server.directories import write_whole

_FILE = "trusted.json"
_LOG = logging.getLogger(__name__)


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
        with (state_dir / _FILE).open(encoding="utf-8") as file:
            if others := _open_to_others(state_dir.stat()) or _open_to_others(os.fstat(file.fileno())):
                _LOG.warning("no folder is trusted, since %s; grant trust again", f"{file.name} {others}")
                return set()
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return set()
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


def _open_to_others(found: os.stat_result) -> str:
    """Why somebody else may have written a file, or put it into its folder; "" where nobody else can have."""
    if os.name != "posix":
        return ""
    if found.st_uid not in (os.getuid(), 0):
        return f"belongs to user {found.st_uid}, or its folder does"
    return "can be written by other users, or its folder can" if stat.S_IMODE(found.st_mode) & 0o022 else ""


def _write(state_dir: Path, granted: set[str]) -> None:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if _open_to_others(state_dir.stat()):
        state_dir.chmod(0o700)
    write_whole(state_dir / _FILE, json.dumps(sorted(granted), indent=1))
