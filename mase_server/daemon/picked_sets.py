"""Which named set of inputs a person picked for a model: kept in the user's state directory, never in the workspace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mase_server.private import changing, read_own, write_whole

_FILE = "input_sets.json"
#: Files whose picks are remembered; the oldest go first.
_MOST = 1000


class PickedSets:
    """The picks of all files of this user: read when they are asked for, since other servers write them too."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir

    def of(self, path: str) -> dict[str, str]:
        """model name -> set, "" for none of them, in the model file `path`."""
        return self._read().get(path, {})

    def pick(self, path: str, model: str, name: str | None) -> None:
        """Remember a pick, forget it for None; OSError when that cannot be kept."""
        with changing(self._dir / _FILE):
            known = self._read()
            picks = {**known.pop(path, {}), model: name}
            left = {model: name for model, name in picks.items() if name is not None}
            known |= {path: left} if left else {}
            write_whole(self._dir / _FILE, json.dumps(dict(list(known.items())[-_MOST:]), indent=1))

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            found = json.loads(read_own(self._dir / _FILE))
        except (OSError, ValueError):
            return {}
        entries = found.items() if isinstance(found, dict) else ()
        return {path: picks for path, picks in entries if isinstance(picks, dict) and _are_texts(picks)}


def _are_texts(picks: Mapping[object, object]) -> bool:
    return all(isinstance(each, str) for pair in picks.items() for each in pair)
