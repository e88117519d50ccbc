"""The pipelines of models: applied steps, undone steps, and their results on the newest trace.

A pipeline belongs to a file and a model's title, and outlives traces, children and closed editors. The steps in the
settings apply until a user changes them; from then on the user's list applies.
"""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mase_server.daemon.graph_snapshot import GraphSnapshot, Transform
from mase_server.daemon.status import FolderSettings
from mase_server.protocol.arguments import Step
from mase_server.protocol.snapshot import Payload

_log = logging.getLogger(__name__)
#: Maximum number of pipelines of one model whose results are remembered.
_KEPT = 32

Steps = tuple[Step, ...]


class PassError(Exception):
    """A pass was not applied; the text tells users why.

    kind: "pass" (it failed), "argument", "limit", "cancelled", "untrusted", "gone" (no live child) or "internal".
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The passes applied to one model. undone: the steps that redo would apply again, the next one first."""

    steps: Steps = ()
    undone: Steps = ()

    def undo(self) -> Pipeline:
        """The pipeline without its last step."""
        return Pipeline(self.steps[:-1], (*self.steps[-1:], *self.undone))

    def redo(self) -> Pipeline:
        """The pipeline with the step applied again that was undone last."""
        return Pipeline((*self.steps, *self.undone[:1]), self.undone[1:])

    def reset(self) -> Pipeline:
        """The pipeline with all steps taken back."""
        return Pipeline((), (*self.steps, *self.undone))


class Pipelines:
    """The pipeline of each model, by file and title: that of the settings until a user changes it."""

    def __init__(self, settings_of: Callable[[str], FolderSettings], folder_of: Callable[[str], str]) -> None:
        self._settings_of = settings_of
        self._folder_of = folder_of
        self._own: dict[tuple[str, str], Pipeline] = {}

    def of(self, path: str, title: str, rest: bool = False) -> Pipeline:
        """The pipeline of a model; file patterns do not apply to a model that is shown as a fallback (`rest`)."""
        own = self._own.get((path, title))
        return own if own is not None else Pipeline(self._from_settings(path, title, rest))

    def put(self, path: str, title: str, pipeline: Pipeline) -> None:
        """Store a pipeline that a user has changed."""
        self._own[path, title] = pipeline

    def asked(self, path: str, snapshot: GraphSnapshot | None) -> dict[str, Steps]:
        """The steps, by title, for the next trace of a file; the last one, `snapshot`, suggests its models."""
        named = (key for key in self._get_settings(path) if not _is_pattern(key))
        own = (title for file, title in self._own if file == path)
        found = {title: self.of(path, title).steps for title in (*named, *own)}
        found |= {title: self.of(path, title, rest).steps for title, rest in models_of(snapshot)}
        return {title: steps for title, steps in found.items() if steps}

    def _get_settings(self, path: str) -> Mapping[str, tuple[str, ...]]:
        return self._settings_of(self._folder_of(path)).pipelines

    def _from_settings(self, path: str, title: str, rest: bool) -> Steps:
        names = (title, title.partition(" #")[0])
        files = () if rest else (os.path.relpath(path, self._folder_of(path)), Path(path).name)
        for key, texts in self._get_settings(path).items():
            if key in names or any(fnmatch.fnmatch(file, key) for file in files):
                return _parse_steps(texts)
        return ()


def models_of(snapshot: GraphSnapshot | None) -> list[tuple[str, bool]]:
    """(title, is it shown as a fallback?) of each model of a trace."""
    if snapshot is None:
        return []
    models = snapshot.payload["models"]
    return [(title, bool(model.get("rest"))) for title, model in zip(snapshot.titles, models, strict=True)]


def _is_pattern(key: str) -> bool:
    return any(character in key for character in "*?[/") or key.endswith(".py")


def _parse_steps(texts: Iterable[str]) -> Steps:
    try:
        return tuple(Step.parse(text) for text in texts)
    except ValueError as error:
        _log.warning("a pipeline of the settings is ignored: %s", error)
        return ()


class Overlays:
    """Results of pipelines on the newest trace of each file, so that undo and redo need not compute them again."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[Payload, dict[tuple[str, ...], Transform]]] = {}

    def find(self, snapshot: GraphSnapshot, title: str, steps: Steps) -> Transform | None:
        """The result of these steps on a model of this trace, as far as it is known."""
        payload, known = self._files.get(snapshot.path, (None, {}))
        return known.get(_get_overlay_key(title, steps)) if payload is snapshot.payload else None

    def put(self, snapshot: GraphSnapshot, title: str, steps: Steps, transform: Transform) -> None:
        """Remember a result and forget those of older traces of the file."""
        payload, known = self._files.get(snapshot.path, (None, {}))
        if payload is not snapshot.payload:
            known = {}
            self._files[snapshot.path] = (snapshot.payload, known)
        key = _get_overlay_key(title, steps)
        known.pop(key, None)
        known[key] = transform
        for old in [one for one in known if one[0] == title][:-_KEPT]:
            del known[old]


def _get_overlay_key(title: str, steps: Steps) -> tuple[str, ...]:
    return (title, *map(str, steps))
