"""Which folders may run their code: kept in the user's state directory, never in the workspace.

Grants and revocations are made one after the other, whichever processes make them: a revocation takes back what was
granted before it, and a grant loses no other.
"""

from __future__ import annotations

import json
import logging
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mase_server.private import NotPrivate, changing, own_folder, read_own, write_whole
from mase_server.visible import reveal, shorten_middle

_FILE = "trusted.json"
#: Folders for temporary files of all users.
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
#: Characters of a folder's name in a question.
_LONGEST_NAME = 120
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


def name_folder(folder: str) -> str:
    """A folder as a question names it: on one line, visible, and no longer than anybody reads."""
    return shorten_middle(reveal(folder), _LONGEST_NAME)


def warn_of_folder(folder: str) -> list[str]:
    """Sentences on why trust in `folder` reaches further than a person may think; none for a usual project."""
    where, home = Path(folder).resolve(), Path.home().resolve()
    if where == Path(where.anchor):
        return ["This is the root of the file system: every file of this machine lies below it."]
    if where == home:
        return ["This is your home folder: everything that you download or unpack lies below it."]
    if home.is_relative_to(where):
        return ["Your home folder lies below it, with everything that you download or unpack."]
    if where in {Path(each).resolve() for each in (*_SHARED, tempfile.gettempdir())} or _is_open_to_all(where):
        return ["Other users and programs can put files into this folder: they would run with your rights."]
    return []


def _is_open_to_all(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


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
