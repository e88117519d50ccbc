"""What is known now: the newest snapshot of every model file, and what it says about each source file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mase_server.daemon.graph_snapshot import (
    GraphSnapshot,
    ModelView,
    NodeView,
    PartView,
    SiteView,
    ValueView,
)
from mase_server.daemon.indices import FileIndex, smallest
from mase_server.daemon.overlay_problems import overlay_problems
from mase_server.snapshot import Problem

__all__ = ["Entry", "FileView", "GraphSnapshot", "ModelView", "NodeView", "PartView", "SiteView", "Store", "ValueView"]

NodeRef = tuple[GraphSnapshot, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """One model file. `problems` and `sha256` are of the newest trace; `shown` may be older: then `stale`."""

    path: str
    sha256: str = ""
    shown: GraphSnapshot | None = None
    stale: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def told(self) -> tuple[Problem, ...]:
        """`problems`, and those of pipelines and hardware of what is shown, unless that is of an older text."""
        if self.shown is None or self.stale:
            return self.problems
        return *self.problems, *overlay_problems(self.shown)

    def paths(self) -> frozenset[str]:
        """Every file that this entry says something about."""
        shown = self.shown.files if self.shown is not None else ()
        return frozenset((self.path, *shown, *(problem.file for problem in self.problems)))


class FileView:
    """What every snapshot together says about one source file; immutable.

    `sha256` is of the text that sites and models speak of, `problems_sha256` of the text that problems speak of: they
    differ while the newest content cannot be traced (`stale`).
    """

    def __init__(
        self, path: str, sha256: str, problems_sha256: str, entries: Sequence[Entry], picked: str | None = None
    ) -> None:
        #: The root whose values alone are shown where it has any; None for all.
        self.path = path
        self.sha256 = sha256
        self.problems_sha256 = problems_sha256
        self.stale = any(entry.stale for entry in entries)
        self.picked = picked
        self._entries = entries
        shown = [entry.shown for entry in entries if entry.shown is not None]
        self._snapshots = [one for one in shown if one.sha256_of(path) == sha256]

    def sites(self, first_line: int, last_line: int, kinds: frozenset[str] | None = None) -> list[SiteView]:
        """The sites that start on these lines (from 1, both included), in position order."""
        found = [site for index in self._indices() for site in index.between(first_line, last_line, kinds)]
        return _merge(found) if len(self._snapshots) > 1 else found

    def at(self, line: int, column: int) -> SiteView | None:
        """The smallest site at a position; of equals, a parameter, binding or return before an expression."""
        found = [site for index in self._indices() for site in index.covering(line, column)]
        return smallest(_merge(found), line, column)

    def models(self) -> list[ModelView]:
        """The models whose class stands in this file."""
        return [model for snapshot in self._snapshots for model in snapshot.models(self.path)]

    def roots(self) -> list[ModelView]:
        """Every model that is part of what is shown in this file; those shown for want of better are not."""
        models = (model for snapshot in self._snapshots for model in snapshot.models(snapshot.path))
        return [model for model in models if not model.rest]

    def parts(self) -> list[PartView]:
        """The classes of this file that more than one root has modules of."""
        merged: dict[tuple[object, ...], PartView] = {}
        for part in (part for snapshot in self._snapshots for part in snapshot.parts(self.path)):
            key = (part.line, part.column)
            known = merged.get(key)
            merged[key] = part if known is None else replace(part, roots=(*known.roots, *part.roots))
        return [part for part in merged.values() if len(part.roots) > 1]

    def as_picked(self, site: SiteView) -> SiteView:
        """The site with the values of the picked root alone, all of them where it has none there."""
        values = tuple(value for value in site.values if value.model == self.picked)
        return replace(site, values=values) if values else site

    def problems(self) -> list[Problem]:
        """The problems positioned in this file, each once."""
        found = (problem for entry in self._entries for problem in entry.told if problem.file == self.path)
        unique: dict[tuple[object, ...], Problem] = {}
        for problem in found:
            unique.setdefault((problem.line, problem.column, problem.code, problem.message), problem)
        return list(unique.values())

    @property
    def told_by(self) -> frozenset[str]:
        """The model files whose traces say this."""
        return frozenset(entry.path for entry in self._entries)

    def _indices(self) -> list[FileIndex]:
        indices = (snapshot.index(self.path) for snapshot in self._snapshots)
        return [index for index in indices if index is not None]


def _merge(sites: Sequence[SiteView]) -> list[SiteView]:
    merged: dict[tuple[object, ...], SiteView] = {}
    for site in sites:
        key = (*site.extent, site.kind, site.name)
        known = merged.get(key)
        merged[key] = site if known is None else replace(known, values=known.values + site.values)
    return sorted(merged.values(), key=lambda site: (site.line, site.column))


class Store:
    """Entries by model file; each change replaces one entry, so that whoever holds a view keeps a whole one."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        #: What `Entry.paths` says of each: every request asks, for all entries.
        self._paths: dict[str, frozenset[str]] = {}
        self._picked: dict[str, str] = {}

    def entry(self, path: str) -> Entry:
        """The entry of the model file `path`, an empty one where there is none."""
        return self._entries.get(path) or Entry(path)

    def put(self, entry: Entry) -> frozenset[str]:
        """Swap one entry in; the files whose view changed."""
        before = self._paths.get(entry.path, frozenset())
        self._entries.pop(entry.path, None)  # the newest goes last, see `view`
        self._entries[entry.path] = entry
        self._paths[entry.path] = entry.paths()
        return before | self._paths[entry.path]

    def drop(self, path: str) -> frozenset[str]:
        """Forget a model file; the files whose view changed."""
        self._entries.pop(path, None)
        return self._paths.pop(path, frozenset())

    def pick(self, path: str, root: str | None) -> None:
        """Show the values of one root alone in the file `path`, by its title; of all for None."""
        self._picked.pop(path, None)
        if root is not None:
            self._picked[path] = root

    def snapshot(self, path: str) -> GraphSnapshot | None:
        """The snapshot that is shown for the model file `path`."""
        return self.entry(path).shown

    def snapshots(self) -> Iterable[GraphSnapshot]:
        """Every snapshot that is shown."""
        return [entry.shown for entry in self._entries.values() if entry.shown is not None]

    def view(self, path: str) -> FileView | None:
        """What is known about one source file; None where that is nothing.

        Snapshots may have met the file at different contents: a model file's own snapshot decides, else the newest.
        """
        entries = [entry for key, entry in self._entries.items() if path in self._paths[key]]
        if not entries:
            return None
        own = self._entries.get(path)
        ordered = [*entries, own] if own is not None else entries
        shas = [sha for entry in ordered if entry.shown and (sha := entry.shown.sha256_of(path))]
        asked = own.sha256 if own is not None else ""
        sha256 = shas[-1] if shas else asked
        return FileView(path, sha256, asked or sha256, entries, self._picked.get(path))
