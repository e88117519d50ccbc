"""Is what is shown of a file still true? What its trace depended on, and when it has to be traced again."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from mase_server.dependencies import MOST, Dependency, Kind, is_transient, look

_log = logging.getLogger(__name__)
#: Folders that are watched for one file beside those of source files; each costs the system a watch.
MOST_FOLDERS = 64
#: A path that changed during more traces than `_PATIENCE`, one after the other, is changed by them: from then on the
#: next trace waits, twice as long each time.
_PATIENCE, _PAUSE, _LONGEST_PAUSE = 3, 5.0, 300.0
#: So many traces for dependencies within so many seconds; after them the next one waits for `_PAUSE`, too.
_TRACES, _WITHIN = 8, 10.0

_Key = tuple[Kind, str]
#: Which are watched first where there are too many folders.
_ORDER: Sequence[Kind] = ("content", "size", "listing", "modules", "presence")


class Freshness:
    """The dependencies of one file's newest trace, and how often they changed lately."""

    def __init__(self) -> None:
        self._known: dict[_Key, Dependency] = {}
        self._environment: dict[_Key, Dependency] = {}
        self._restless: Counter[str] = Counter()
        self._traces: deque[float] = deque(maxlen=_TRACES)
        self.folders: frozenset[str] = frozenset()
        #: Paths that are dependencies, and folders of which every name is one.
        self.paths: frozenset[str] = frozenset()
        self.listed: frozenset[str] = frozenset()

    def learn(self, path: str, rows: Iterable[Sequence[Any]]) -> list[Dependency]:
        """Take the dependencies that a trace of the file `path` told; gives those that were not known before."""
        before, now = self._known, [Dependency(*row) for row in rows]
        if len(now) >= MOST:
            _log.warning("%s depends on more than %d files and folders; changes of the others are not seen", path, MOST)
        self._known = {(one.kind, one.path): one for one in now}
        self._index(path)
        return [one for one in now if before.get((one.kind, one.path)) != one]

    def learn_environment(self, path: str, places: Iterable[_Key]) -> bool:
        """Take what the choice of the interpreter for the file `path` depends on, as it is now; is it anything new?"""
        before = self._environment.keys()
        self._environment = {(kind, place): Dependency(kind, place, look(kind, place)) for kind, place in places}
        if self._environment.keys() != before:
            self._index(path)
        return self._environment.keys() != before

    def changes_at(self, path: str) -> bool:
        """Something happened at a path: does the trace see another thing there now? Each change is told once."""
        return bool(self.changed(self._concerned(path)))

    def changed(self, dependencies: Iterable[Dependency] | None = None) -> list[Dependency]:
        """Those (None: of all) that are others now; from now on they are compared with what they are now."""
        found = []
        for one in list((self._environment | self._known).values()) if dependencies is None else dependencies:
            if (now := look(one.kind, one.path, one.seen)) != one.seen:
                found.append(one)
                for known in (self._known, self._environment):
                    if (one.kind, one.path) in known:
                        known[one.kind, one.path] = Dependency(one.kind, one.path, now)
        return found

    def pause(self, paths: Iterable[str], tracing: bool) -> float:
        """Seconds to wait before the file is traced again because these paths changed.

        tracing: does a trace run, or did one a moment ago, so that perhaps the program itself changes them?
        """
        now, most = time.monotonic(), 0
        for path in paths:
            self._restless[path] = self._restless[path] + 1 if tracing else 0
            most = max(most, self._restless[path])
        if most > _PATIENCE:
            return float(min(_PAUSE * 2 ** (most - _PATIENCE - 1), _LONGEST_PAUSE))
        if len(self._traces) == _TRACES and now - self._traces[0] < _WITHIN:
            return _PAUSE
        self._traces.append(now)
        return 0.0

    def settle(self) -> None:
        """A person saved the file, or wants it traced: paths that changed during every trace get another chance."""
        self._restless.clear()

    def _concerned(self, path: str) -> list[Dependency]:
        folder, name = os.path.split(path)
        keys: list[_Key] = [("content", path), ("size", path), ("presence", path), ("listing", path), ("modules", path)]
        if not is_transient(name):
            keys += [("listing", folder), ("modules", folder)]
            if name.startswith("__init__."):
                keys.append(("modules", os.path.dirname(folder)))  # noqa: PTH120
        known = self._environment | self._known if self._environment else self._known
        return [known[key] for key in keys if key in known]

    def _index(self, path: str) -> None:
        every = [*self._known.values(), *self._environment.values()]
        every.sort(key=lambda one: _ORDER.index(one.kind))
        own, folders = os.path.dirname(path), dict[str, None]()  # noqa: PTH120
        for one in every:
            folders.update(dict.fromkeys(_folders(one)))
        others = [folder for folder in folders if folder != own]
        sources = {os.path.dirname(one.path) for one in every if one.path.endswith(".py") and one.kind == "content"}  # noqa: PTH120
        kept = [folder for folder in others if folder not in sources][:MOST_FOLDERS]
        if len(others) - len(sources & set(others)) > MOST_FOLDERS:
            _log.warning("%s depends on more than %d folders; changes in the others are not seen", path, MOST_FOLDERS)
        self.folders = frozenset((*kept, *sources))
        self.listed = frozenset(one.path for one in every if one.kind in ("listing", "modules"))
        self.paths = frozenset(one.path for one in every)


def _folders(one: Dependency) -> list[str]:
    """The folders where something happens when a dependency changes."""
    if one.kind not in ("listing", "modules"):
        return [os.path.dirname(one.path)]  # noqa: PTH120
    # A folder that is no package yet becomes one by what appears in it.
    inner = [name for name, seen in one.seen.items() if seen == "folder"] if isinstance(one.seen, dict) else []
    return [one.path, *(os.path.join(one.path, name) for name in inner)]  # noqa: PTH118
