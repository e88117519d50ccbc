"""Which folders may run their code: kept in the user's state directory, never in the workspace.

Grants and revocations are made one after the other, whichever processes make them: a revocation takes back what was
granted before it, and a grant loses no other.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mase_server.private import NotPrivate, changing, own_folder, read_own, write_whole

_FILE = "trusted.json"
_LOG = logging.getLogger(__name__)


def is_trusted(state_dir: Path, folder: str) -> bool:
    """Was `folder`, or a folder that holds it, granted trust?"""
    where = Path(folder).resolve()
    return any(where.is_relative_to(granted) for granted in _read(state_dir))


def grant(state_dir: Path, folder: str) -> None:
    """Trust `folder` and all below it from now on; OSError when that cannot be kept."""
    _change(state_dir, lambda granted: granted | {str(Path(folder).resolve())})


def revoke(state_dir: Path, folder: str) -> bool:
    """Take back what was granted to exactly `folder`; was there anything? OSError when that cannot be kept."""
    where = str(Path(folder).resolve())
    return where in _change(state_dir, lambda granted: granted - {where})


def _change(state_dir: Path, change: Callable[[set[str]], set[str]]) -> set[str]:
    """What was granted before."""
    with changing(state_dir / _FILE):
        before = _read(state_dir)
        write_whole(state_dir / _FILE, json.dumps(sorted(change(before)), indent=1))
    return before


def _read(state_dir: Path) -> set[str]:
    try:
        if not state_dir.exists():
            return set()
        found = json.loads(read_own(own_folder(state_dir) / _FILE))
    except NotPrivate as error:
        _warn(str(error))
        return set()
    except (OSError, ValueError, RecursionError):
        return set()
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


@cache
def _warn(why: str) -> None:
    """Say it once: trust is asked for at every turn."""
    _LOG.warning("no folder is trusted: %s, then grant trust again", why)
