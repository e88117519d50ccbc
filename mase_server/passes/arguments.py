"""Options of passes: checked by name, completed with defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.ir.graph import MaseGraph

#: What every pass gives: the graph, and what it found.
Result = tuple[MaseGraph, dict[str, Any]]


def options(name: str, given: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults with the given options in place of theirs. Raises ValueError for one that the pass does not have."""
    given = given or {}
    for key in given:
        if key not in defaults:
            raise ValueError(f"{name} has no option {key!r}; it takes {', '.join(defaults) or 'none'}")
    return {**defaults, **given}
