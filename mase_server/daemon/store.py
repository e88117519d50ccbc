"""The present results: the newest snapshot of every model file, and the combined view of each source file.

A picked root filters hints only; a hover always lists every model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mase_server.daemon.emissions import TOLD_ELSEWHERE, Emission
from mase_server.daemon.graph_snapshot import (
    FileIndex,
    GraphSnapshot,
    ModelView,
    NodeView,
    PartView,
    SiteView,
    ValueView,
    find_smallest_site,
)
from mase_server.protocol.records import Related, UnrunCode, UnshownModel
from mase_server.protocol.snapshot import Problem

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import GraphSnapshot


__all__ = ["Entry", "FileView", "GraphSnapshot", "ModelView", "NodeView", "PartView", "SiteView", "Store", "ValueView"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One model file. `problems` and `sha256` are of the newest trace; `shown` may be older: then `stale`.

    unsaved: the files whose text was traced and is not saved yet.
    """

    path: str
    sha256: str = ""
    shown: GraphSnapshot | None = None
    stale: bool = False
    problems: tuple[Problem, ...] = ()
    unsaved: frozenset[str] = frozenset()

    @property
    def told(self) -> tuple[Problem, ...]:
        """`problems`, and those of the shown trace's pipelines and hardware, unless that trace is of an older text."""
        if self.shown is None or self.stale:
            return self.problems
        return *self.problems, *overlay_problems(self.shown)

    def paths(self) -> frozenset[str]:
        """Every file that this entry has results for."""
        shown = self.shown.files if self.shown is not None else ()
        return frozenset((self.path, *shown, *(problem.file for problem in self.problems)))


class FileView:
    """The combined results of all snapshots for one source file; immutable.

    `sha256` is of the text that sites and models refer to, `problems_sha256` of the text that problems refer to: they
    differ while the newest content cannot be traced (`stale`).
    """

    def __init__(
        self, path: str, sha256: str, problems_sha256: str, entries: Sequence[Entry], picked: str | None = None
    ) -> None:
        #: The root whose values alone are shown, if it has any; None for all roots.
        self.path = path
        self.sha256 = sha256
        self.problems_sha256 = problems_sha256
        self.stale = any(entry.stale for entry in entries)
        #: Was any of it traced from a text that is not saved yet?
        self.unsaved = any(entry.unsaved for entry in entries)
        self.picked = picked
        self._entries = entries
        shown = [entry.shown for entry in entries if entry.shown is not None]
        self._snapshots = [one for one in shown if one.sha256_of(path) == sha256]

    def sites(self, first_line: int, last_line: int, kinds: frozenset[str] | None = None) -> list[SiteView]:
        """The sites that start on these lines (from 1, inclusive), in order of position."""
        found = [site for index in self._indices() for site in index.between(first_line, last_line, kinds)]
        return _merge_sites(found) if len(self._snapshots) > 1 else found

    def at(self, line: int, column: int) -> SiteView | None:
        """The smallest site at a position; among equals, a parameter, binding or return comes before an expression."""
        found = [site for index in self._indices() for site in index.covering(line, column)]
        return find_smallest_site(_merge_sites(found), line, column)

    def models(self) -> list[ModelView]:
        """The models whose class is in this file."""
        return [model for snapshot in self._snapshots for model in snapshot.models(self.path)]

    def roots(self) -> list[ModelView]:
        """Every model with shown results in this file, without those shown as a fallback."""
        models = (model for snapshot in self._snapshots for model in snapshot.models(snapshot.path))
        return [model for model in models if not model.rest]

    def parts(self) -> list[PartView]:
        """The classes of this file that have modules in more than one root."""
        merged: dict[tuple[object, ...], PartView] = {}
        for part in (part for snapshot in self._snapshots for part in snapshot.parts(self.path)):
            key = (part.line, part.column)
            known = merged.get(key)
            merged[key] = part if known is None else replace(part, roots=(*known.roots, *part.roots))
        return [part for part in merged.values() if len(part.roots) > 1]

    def unrun(self) -> list[UnrunCode]:
        """The code of this file that ran in none of the traces that have it."""
        if self.stale:
            return []
        each_trace = [snapshot.unrun(self.path) for snapshot in self._snapshots]
        return [one for trace in each_trace for one in trace if all(_is_covered(one, other) for other in each_trace)]

    def unshown(self) -> list[UnshownModel]:
        """The models of this file that its own trace does not show."""
        own = [snapshot for snapshot in self._snapshots if snapshot.path == self.path]
        return [] if self.stale else [one for snapshot in own for one in snapshot.payload["unshown"]]

    def as_picked(self, site: SiteView) -> SiteView:
        """The site with the values of the picked root alone, or with all values if it has none there."""
        values = tuple(value for value in site.values if value.model == self.picked)
        return replace(site, values=values) if values else site

    def problems(self) -> list[Problem]:
        """The problems positioned in this file, without duplicates."""
        found = (problem for entry in self._entries for problem in entry.told if problem.file == self.path)
        unique: dict[tuple[object, ...], Problem] = {}
        for problem in found:
            unique.setdefault((problem.line, problem.column, problem.code, problem.message), problem)
        return list(unique.values())

    def texts_of(self, path: str) -> frozenset[str]:
        """The hashes of the texts of a file that these results come from."""
        return frozenset(sha for one in self._snapshots if (sha := one.read_text_of(path)) is not None)

    def _indices(self) -> list[FileIndex]:
        indices = (snapshot.index(self.path) for snapshot in self._snapshots)
        return [index for index in indices if index is not None]


def _is_covered(code: UnrunCode, others: Sequence[UnrunCode]) -> bool:
    start = code["line"], code["column"]
    return any((each["line"], each["column"]) <= start and code["end_line"] <= each["end_line"] for each in others)


def _merge_sites(sites: Sequence[SiteView]) -> list[SiteView]:
    merged: dict[tuple[object, ...], SiteView] = {}
    for site in sites:
        key = (*site.extent, site.kind, site.name)
        known = merged.get(key)
        merged[key] = site if known is None else replace(known, values=known.values + site.values)
    return sorted(merged.values(), key=lambda site: (site.line, site.column))


class Store:
    """Entries by model file. Each change replaces one entry, so a view that a caller holds stays consistent."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        #: The `Entry.paths` of each entry: every request asks for those of all entries.
        self._paths_of_mention: dict[str, frozenset[str]] = {}
        self._picked: dict[str, str] = {}

    def entry(self, path: str) -> Entry:
        """The entry of the model file `path`, an empty one if it has none."""
        return self._entries.get(path) or Entry(path)

    def put(self, entry: Entry) -> frozenset[str]:
        """Replace one entry; returns the files whose view changed."""
        before = self._paths_of_mention.get(entry.path, frozenset())
        self._entries.pop(entry.path, None)  # the newest entry goes last, see `view`
        self._entries[entry.path] = entry
        self._paths_of_mention[entry.path] = entry.paths()
        return before | self._paths_of_mention[entry.path]

    def drop(self, path: str) -> frozenset[str]:
        """Forget a model file; returns the files whose view changed."""
        self._entries.pop(path, None)
        return self._paths_of_mention.pop(path, frozenset())

    def pick(self, path: str, root: str | None) -> None:
        """Show the values of one root alone in the file `path`, by its title; None shows all."""
        self._picked.pop(path, None)
        if root is not None:
            self._picked[path] = root

    def snapshot(self, path: str) -> GraphSnapshot | None:
        """The shown snapshot of the model file `path`."""
        return self.entry(path).shown

    def snapshots(self) -> Iterable[GraphSnapshot]:
        """Every shown snapshot."""
        return [entry.shown for entry in self._entries.values() if entry.shown is not None]

    def view(self, path: str) -> FileView | None:
        """The view of one source file; None if nothing is known about it.

        Snapshots may have read the file at different contents: a model file's own snapshot decides, else the newest.
        """
        entries = [entry for key, entry in self._entries.items() if path in self._paths_of_mention[key]]
        if not entries:
            return None
        own = self._entries.get(path)
        ordered = [*entries, own] if own is not None else entries
        shas = [sha for entry in ordered if entry.shown and (sha := entry.shown.sha256_of(path))]
        asked = own.sha256 if own is not None else ""
        sha256 = shas[-1] if shas else asked
        entries.sort(key=lambda entry: (entry.path != path, entry.path))  # in whatever order their traces ended
        return FileView(path, sha256, asked or sha256, entries, self._picked.get(path))


# Diagnostics at the user's lines for pipelines and hardware that could not be made as requested.

_NEXT_STEP = "The result of the passes before it is shown. Undo it, or change the setting mase.pipelines."
_EXTENT = ("line", "column", "end_line", "end_column")
_Place = tuple[str, int, int, int, int]
#: Maximum number of names in a list, and of related places of one cause.
_NAMED, _RELATED = 3, 20


def overlay_problems(snapshot: GraphSnapshot) -> Iterator[Problem]:
    """The problems of every model of a trace: of its pipeline, and of its hardware if it was requested."""
    for model, transform in snapshot.transforms.items():
        if transform.failed:
            text = f"{snapshot.titles[model]}: {_end_text(str(transform.told['problem']))} {_NEXT_STEP}"
            yield Problem(*_class_place(snapshot, model), "warning", "pass-failed", text)
    for model, emission in snapshot.hardware.items():
        yield from _of_hardware(snapshot, model, emission)


def _of_hardware(snapshot: GraphSnapshot, model: int, emission: Emission) -> Iterator[Problem]:
    """The problems of an emission: the present text gives none, nodes lack hardware, or a request was impossible."""
    title, at_class = snapshot.titles[model], _class_place(snapshot, model)
    if emission.problem and not emission.problem.startswith(TOLD_ELSEWHERE):
        why = _end_text(emission.problem)
        text = f"{title}: the changed model gives no hardware: {why} The last hardware stays shown."
        yield Problem(*at_class, "warning", "verilog-failed", text)
    if emission.stale:
        return
    for cause in _causes(snapshot, emission, at_class):
        yield cause.problem(title)
    if (refusal := emission.told["refusal"]) and (emission.told["operations"] or not emission.told["unsupported"]):
        text = f"{title}: {_end_text(refusal)}{_describe_scopes(emission.told)}"
        yield Problem(*at_class, "information", "verilog-refused", text)


def _describe_scopes(told: Mapping[str, Any]) -> str:
    return f" A part can be built alone: {_list_names(told['scopes'])}." if told["scopes"] else ""


@dataclass(slots=True)
class _Cause:
    """One reason for missing hardware. found: (place, operator, reason) -> nodes; the first place gets the text."""

    keys: set[object] = field(default_factory=set)
    found: dict[tuple[_Place, str, str], list[str]] = field(default_factory=dict)

    def problem(self, title: str) -> Problem:
        """One diagnostic for all affected nodes."""
        (place, operator, why), *others = self.found
        nodes = self.found[place, operator, why]
        text = f"{title}: {operator} has no hardware ({_list_names(nodes)}): {_end_text(why)}"
        related = [_related(each, self.found[each]) for each in others[:_RELATED]]
        return Problem(*place, "information", "no-hardware", text, related)


def _related(found: tuple[_Place, str, str], nodes: Sequence[str]) -> Related:
    place, operator, why = found
    told = f"{operator} has none either ({_list_names(nodes)}): {_end_text(why)}"
    file, line, column, end_line, end_column = place
    return {
        "file": file, "line": line, "column": column, "end_line": end_line, "end_column": end_column, "message": told,
    }  # fmt: skip


def _causes(snapshot: GraphSnapshot, emission: Emission, otherwise: _Place) -> list[_Cause]:
    """The causes of missing hardware. Nodes of one call share a cause, and so do those of one operator with the same
    reason, whose text may name other nodes at each of its lines.
    """
    missing = emission.told["unsupported"]
    names = {each["node"] for each in missing}
    if len(missing) > 1:
        names.update(snapshot.payload["nodes"]["name"])
    causes: list[_Cause] = []
    for each in missing:
        at = _row_place(snapshot, each["row"])
        reason = re.sub(r"\w+", lambda word: "" if word[0] in names else word[0], each["why"])
        keys: set[object] = {key for key in (at, (each["operator"], reason)) if key is not None}
        same = [cause for cause in causes if cause.keys & keys]
        first = same[0] if same else _Cause()
        for cause in same[1:]:
            causes.remove(cause)
            first.found |= cause.found
            keys |= cause.keys
        first.keys |= keys
        first.found.setdefault((at or otherwise, each["operator"], each["why"]), []).append(each["node"])
        if not same:
            causes.append(first)
    return causes


def _list_names(names: Sequence[str]) -> str:
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return ", ".join(names[:_NAMED]) + more


def _end_text(text: str) -> str:
    return f"{str(text).rstrip('.')}."


def _class_place(snapshot: GraphSnapshot, model: int) -> _Place:
    found = snapshot.payload["models"][model]
    file = snapshot.payload["files"][found["file_index"]]["path"]
    return file, found["line"], found["column"], found["end_line"], found["end_column"]


def _row_place(snapshot: GraphSnapshot, row: int) -> _Place | None:
    """The place of a node's call, in the user's files if the call was made from there."""
    nodes = snapshot.payload["nodes"]
    if not 0 <= row < len(nodes["file"]):
        return None
    for file, *extent in _iterate_marks(snapshot, row):
        if file >= 0 and not snapshot.payload["files"][file]["library"]:
            line, column, end_line, end_column = extent
            return snapshot.payload["files"][file]["path"], line, column, end_line, end_column
    return None


def _iterate_marks(snapshot: GraphSnapshot, row: int) -> Iterator[list[int]]:
    nodes = snapshot.payload["nodes"]
    yield [nodes["file"][row], *(nodes[key][row] for key in _EXTENT)]
    for mark in snapshot.node(row).details.get("stack", ()):
        yield mark[:5]
