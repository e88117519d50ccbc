"""The folders whose code may run, kept in the user's state directory and never in the workspace.

Grants and revocations take place one after the other, even from different processes: a revocation covers every
earlier grant, and no grant is lost.
"""

from __future__ import annotations

import json
import logging
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mase_server.private import NotPrivate, change_file, own_folder, read_own, write_whole
from mase_server.system import user_id
from mase_server.visible import reveal, shorten_middle

_FILE = "trusted.json"
#: Folders for temporary files of all users.
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
#: Maximum number of characters of a folder's name in a question.
_LONGEST_NAME = 120
_LOG = logging.getLogger(__name__)


def is_trusted(state_dir: Path, folder: str) -> bool:
    """Was trust granted to `folder` or to a folder around it?"""
    where = Path(folder).resolve()
    return any(where.is_relative_to(granted) for granted in _read_granted(state_dir))


def grant_trust(state_dir: Path, folder: str) -> None:
    """Trust `folder` and everything below it from now on; OSError if that cannot be stored."""
    _change_granted(state_dir, lambda granted: granted | {str(Path(folder).resolve())})


def revoke_trust(state_dir: Path, folder: str) -> bool:
    """Revoke the grant for exactly `folder`; returns whether there was one. OSError if that cannot be stored."""
    where = str(Path(folder).resolve())
    return where in _change_granted(state_dir, lambda granted: granted - {where})


def name_folder(folder: str) -> str:
    """A folder's name for a question: on one line, with visible characters only, and not too long to read."""
    return shorten_middle(reveal(folder), _LONGEST_NAME)


def warn_of_folder(folder: str) -> list[str]:
    """Sentences that warn if trust in `folder` reaches further than users may think; none for a usual project."""
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
        return user_id() is not None and bool(folder.stat().st_mode & stat.S_IWOTH)  # Windows has other rights
    except OSError:
        return False


def _change_granted(state_dir: Path, change: Callable[[set[str]], set[str]]) -> set[str]:
    """Change the granted folders; returns those granted before."""
    with change_file(state_dir / _FILE):
        before = _read_granted(state_dir)
        write_whole(state_dir / _FILE, json.dumps(sorted(change(before)), indent=1))
    return before


def _read_granted(state_dir: Path) -> set[str]:
    try:
        if not state_dir.exists():
            return set()
        found = json.loads(read_own(own_folder(state_dir) / _FILE))
    except NotPrivate as error:
        _warn_once(str(error))
        return set()
    except (OSError, ValueError, RecursionError):
        return set()
    return {one for one in found if isinstance(one, str)} if isinstance(found, list) else set()


@cache
def _warn_once(why: str) -> None:
    """Log it once, because trust is looked up all the time."""
    _LOG.warning("no folder is trusted: %s, then grant trust again", why)
