"""What keeps pipelines and hardware from what was asked for, as diagnostics at the person's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mase_server.daemon.emissions import TOLD_ELSEWHERE, Emission
from mase_server.snapshot import Problem

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import GraphSnapshot

_NEXT_STEP = "What the passes before it made is shown. Undo it, or change what the setting mase.pipelines asks for."
_EXTENT = ("line", "column", "end_line", "end_column")
_Place = tuple[str, int, int, int, int]
#: So many names of a kind are told, and so many other places of one cause.
_NAMED, _RELATED = 3, 20


def overlay_problems(snapshot: GraphSnapshot) -> Iterator[Problem]:
    """Those of every model of a trace: of its pipeline, and of its hardware, if that was asked for."""
    for model, transform in snapshot.transforms.items():
        if transform.failed:
            text = f"{snapshot.titles[model]}: {_sentence(transform.told['problem'])} {_NEXT_STEP}"
            yield Problem(*_class_place(snapshot, model), "warning", "pass-failed", text)
    for model, emission in snapshot.hardware.items():
        yield from _of_hardware(snapshot, model, emission)


def _of_hardware(snapshot: GraphSnapshot, model: int, emission: Emission) -> Iterator[Problem]:
    """That nothing can be made of the present text, or what is missing, or why too much was wanted."""
    title, at_class = snapshot.titles[model], _class_place(snapshot, model)
    if emission.problem and not emission.problem.startswith(TOLD_ELSEWHERE):
        text = f"{title}: no hardware can be made of this text: {_sentence(emission.problem)} The last one stays shown."
        yield Problem(*at_class, "warning", "verilog-failed", text)
    if emission.stale:
        return
    for cause in _causes(snapshot, emission, at_class):
        yield cause.problem(title)
    if (refusal := emission.told["refusal"]) and (emission.told["operations"] or not emission.told["unsupported"]):
        text = f"{title}: {_sentence(refusal)}{_alone(emission.told)}"
        yield Problem(*at_class, "information", "verilog-refused", text)


def _alone(told: Mapping[str, Any]) -> str:
    return f" A part can be built alone: {_listed(told['scopes'])}." if told["scopes"] else ""


@dataclass(slots=True)
class _Cause:
    """Why some nodes have no hardware. found: (place, operator, reason) -> nodes, the place that is told first."""

    keys: set[object] = field(default_factory=set)
    found: dict[tuple[_Place, str, str], list[str]] = field(default_factory=dict)

    def problem(self, title: str) -> Problem:
        """One diagnostic, whatever it spreads to."""
        (place, operator, why), *others = self.found
        nodes = self.found[place, operator, why]
        text = f"{title}: {operator} has no hardware ({_listed(nodes)}): {_sentence(why)}"
        related = [_related(each, self.found[each]) for each in others[:_RELATED]]
        return Problem(*place, "information", "no-hardware", text, related)


def _related(found: tuple[_Place, str, str], nodes: Sequence[str]) -> dict[str, Any]:
    place, operator, why = found
    told = f"{operator} has none either ({_listed(nodes)}): {_sentence(why)}"
    return {**dict(zip(("file", *_EXTENT), place, strict=True)), "message": told}


def _causes(snapshot: GraphSnapshot, emission: Emission, otherwise: _Place) -> list[_Cause]:
    """What nodes lack: those of one call are one cause, and so are those of one operator for one reason, which may name
    other nodes at each of its lines."""
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


def _listed(names: Sequence[str]) -> str:
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return ", ".join(names[:_NAMED]) + more


def _sentence(text: str) -> str:
    return f"{str(text).rstrip('.')}."


def _class_place(snapshot: GraphSnapshot, model: int) -> _Place:
    found = snapshot.payload["models"][model]
    line, column, end_line, end_column = (found[key] for key in _EXTENT)
    return snapshot.payload["files"][found["file_index"]]["path"], line, column, end_line, end_column


def _row_place(snapshot: GraphSnapshot, row: int) -> _Place | None:
    """Where a node's call stands; in the person's files, if it was made from there."""
    nodes = snapshot.payload["nodes"]
    if not 0 <= row < len(nodes["file"]):
        return None
    for file, *extent in _marks(snapshot, row):
        if file >= 0 and not snapshot.payload["files"][file]["library"]:
            line, column, end_line, end_column = extent
            return snapshot.payload["files"][file]["path"], line, column, end_line, end_column
    return None


def _marks(snapshot: GraphSnapshot, row: int) -> Iterator[list[int]]:
    nodes = snapshot.payload["nodes"]
    yield [nodes["file"][row], *(nodes[key][row] for key in _EXTENT)]
    for mark in snapshot.node(row).details.get("stack", ()):
        yield mark[:5]
