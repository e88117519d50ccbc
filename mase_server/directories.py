"""Where the server keeps things between runs, by the system's conventions."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import platformdirs

from mase_server.private import NotPrivate, own_folder

_NAME = "mase-server"
_LOG = logging.getLogger(__name__)


def cache_dir() -> Path:
    """What can be made again: learned preloads, rewritten bytecode, programs that simulate.

    Some of it is executed. Where somebody else could have written the usual folder, a fresh one takes its place.
    """
    usual = usual_cache_dir()
    try:
        return own_folder(usual)
    except NotPrivate as error:
        return _instead_of_cache(str(error))
    except OSError:
        return usual  # it cannot be made: so it will be said where something is kept


def usual_cache_dir() -> Path:
    """Where the cache is, if nobody else can write there."""
    return _own(platformdirs.user_cache_dir, "cache")


def state_dir() -> Path:
    """What the person said: trust. Nothing in it is believed that somebody else could have written."""
    return _own(platformdirs.user_state_dir, "state")


def _own(usual: Callable[..., str], kind: str) -> Path:
    """A user without a home, as some containers have, gets a fresh folder: one that others can name is nobody's own."""
    with contextlib.suppress(RuntimeError):  # older versions of the library give a relative path instead
        if (path := Path(usual(_NAME, appauthor=False))).is_absolute():
            return path
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-{kind}-"))


@cache
def _instead_of_cache(why: str) -> Path:
    _LOG.warning("nothing is kept from one run to the next: %s", why)
    return Path(tempfile.mkdtemp(prefix="mase-scratch-cache-"))  # thrown away as scratch folders are


def why(error: OSError) -> str:
    """What an error says, for a person: with the file that it is about, where it knows one."""
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said
