"""Where the server keeps things between runs, by the system's conventions."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_NAME = "mase-server"


def cache_dir() -> Path:
    """What can be made again: learned preloads, rewritten bytecode."""
    return Path(platformdirs.user_cache_dir(_NAME, appauthor=False))


def state_dir() -> Path:
    """What the person said: trust."""
    return Path(platformdirs.user_state_dir(_NAME, appauthor=False))
