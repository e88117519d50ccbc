"""What keeps pipelines and hardware from what was asked for, as diagnostics at the person's lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mase_server.daemon.emissions import Emission
from mase_server.snapshot import Problem

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import GraphSnapshot

_NEXT_STEP = "What the passes before it made is shown. Undo it, or change what the setting mase.pipelines asks for."
_EXTENT = ("line", "column", "end_line", "end_column")
_Place = tuple[str, int, int, int, int]
#: So many names of a kind are told.
_NAMED = 3


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
    if emission.problem:
        text = f"{title}: no hardware can be made of this text: {_sentence(emission.problem)} The last one stays shown."
        yield Problem(*at_class, "warning", "verilog-failed", text)
    if emission.stale:
        return
    for (place, operator, why), nodes in _missing(snapshot, emission, at_class).items():
        text = f"{title}: {operator} has no hardware ({_listed(nodes)}): {_sentence(why)}"
        yield Problem(*place, "information", "no-hardware", text)
    if refusal := emission.told["refusal"]:
        text = f"{title}: {_sentence(refusal)}{_alone(emission.told)}"
        yield Problem(*at_class, "information", "verilog-refused", text)


def _alone(told: Mapping[str, Any]) -> str:
    return f" A part can be built alone: {_listed(told['scopes'])}." if told["scopes"] else ""


def _missing(
    snapshot: GraphSnapshot, emission: Emission, otherwise: _Place
) -> dict[tuple[_Place, str, str], list[str]]:
    """Place, operator and reason -> the nodes without hardware: a line that runs for each layer is told once."""
    found: dict[tuple[_Place, str, str], list[str]] = {}
    for each in emission.told["unsupported"]:
        place = _row_place(snapshot, each["row"]) or otherwise
        found.setdefault((place, each["operator"], each["why"]), []).append(each["node"])
    return found


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
