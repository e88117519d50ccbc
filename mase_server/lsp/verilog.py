"""Read-only documents of models' hardware: `mase-verilog:` URIs, whose text follows saves and passes.

Both sides refer to rows of the table of nodes. The cursor is located in the snapshot of the emission, through the
alignment with its text, so that highlights stay right while a newer text is typed, traced or fails. A stale text says
so within its first line, because its lines must not move.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote, unquote

from lsprotocol import types as lsp

from mase_server.building import rtl_folder
from mase_server.lsp.calls import CommandArgument
from mase_server.lsp.contents import file_name
from mase_server.lsp.hardware_texts import source_text, totals_text
from mase_server.lsp.targets import mentions_of_modules, rows_meant_by, target_in_model
from mase_server.lsp.text import from_units, split_lines
from mase_server.protocol.records import Operation
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


SCHEME = "mase-verilog"
_COMPONENT = re.compile(rf"{SCHEME}:(?P<file>.*)/(?P<model>[^/]+)/rtl/(?P<component>\w+)\.sv")
_TOP = re.compile(rf"{SCHEME}:(?P<file>.*)/(?P<model>[^/]+)\.sv")
_COMMENT = "/// "


@dataclass(frozen=True, slots=True)
class Sheet:
    """One document: the top module of a model, or a component that it uses."""

    path: str
    model: str
    component: str = ""


class Verilog:
    """The hardware as documents; see `contents.Source`. Their lines are those of the emission."""

    scheme = SCHEME

    def __init__(self, server: Server) -> None:
        self._server = server

    def uri(self, sheet: Sheet) -> str:
        """The URI; it ends in .sv, so that editors recognise the language."""
        file = self._server.uri_of(sheet.path).removeprefix("file:")
        inside = f"/rtl/{sheet.component}" if sheet.component else ""
        return f"{SCHEME}:{file}/{quote(sheet.model, safe='')}{inside}.sv"

    def sheet(self, uri: str) -> Sheet | None:
        """The inverse of `uri`, however the client escapes it; also accepts a file that holds the document.

        None for others.
        """
        document = self._server.contents.document(uri)
        found = _COMPONENT.fullmatch(document) or _TOP.fullmatch(document)
        if found is None:
            return None
        path = self._server.path_of(f"file:{found['file']}")
        return Sheet(path, unquote(found["model"]), found.groupdict().get("component") or "")

    def emission(self, sheet: Sheet) -> Emission | None:
        """The last emission of its model."""
        return self._server.daemon.verilog.emission(sheet.path, sheet.model)

    def trouble(self, sheet: Sheet) -> str:
        """Why a document stays at an older text than the file's; "" if it does not, or a new one is being made."""
        emission = self.emission(sheet)
        if emission is None or not emission.stale:
            return ""
        if self._server.daemon.store.entry(sheet.path).stale:
            return f"{Path(sheet.path).name} cannot be traced now"
        return _squeeze_to_line(emission.problem).rstrip(".")

    def path(self, uri: str) -> str | None:
        """The model file of a document."""
        sheet = self.sheet(uri)
        return None if sheet is None else sheet.path

    def file(self, uri: str) -> str:
        """The name of a file with this content; models with the same name in several files get several folders."""
        sheet = self.sheet(uri)
        assert sheet is not None
        folder = f"{Path(sheet.path).stem}-{hashlib.sha256(sheet.path.encode()).hexdigest()[:8]}"
        inside = f"/rtl/{sheet.component}" if sheet.component else ""
        return f"{folder}/{file_name(sheet.model)}{inside}.sv"

    def state(self, uri: str) -> Any:
        """The state that determines a document's text."""
        sheet = self.sheet(uri)
        return None if sheet is None or sheet.component else self._top_text(sheet)

    async def text(self, uri: str) -> str:
        """SystemVerilog, or a comment that says why there is none."""
        sheet = self.sheet(uri)
        if sheet is None:
            return f"// {uri} is not the address of hardware.\n"
        return await asyncio.to_thread(component_text, sheet.component) if sheet.component else self._top_text(sheet)

    def _top_text(self, sheet: Sheet) -> str:
        emission = self.emission(sheet)
        if emission is None:
            return f"// There is no hardware of {reveal(sheet.model)}: nothing was emitted, or it was closed.\n"
        text = str(emission.told["text"])
        if not text:
            why = emission.told["refusal"] or "nothing in it has hardware"
            return f"// Nothing was emitted of {reveal(sheet.model)}: {_squeeze_to_line(why)}\n"
        # Put the remark into the first line: lines must not move, because highlights refer to line numbers.
        if (trouble := self.trouble(sheet)) and text.startswith(_COMMENT):
            return f"{_COMMENT}STALE, {trouble}: {text.removeprefix(_COMMENT)}"
        return text


def component_text(name: str) -> str:
    """The source of a component, or a comment that none has this name."""
    file = rtl_folder() / f"{name}.sv"
    return file.read_text(encoding="utf-8") if file.exists() else f"// There is no component {name}.\n"


def _squeeze_to_line(text: object) -> str:
    return reveal(" ".join(str(text).split()))


# From Python to its hardware and back, by the rows of the graph that both sides refer to.

#: A path, and a present range in it.
Place = tuple[str, lsp.Range]
_NODE_PLACE = ("line", "column", "end_line", "end_column")


@dataclass(frozen=True, slots=True)
class Match:
    """Operations of one model's hardware."""

    sheet: Sheet
    emission: Emission
    operations: Sequence[Operation]

    def line_ranges(self) -> list[lsp.Range]:
        """Their whole lines in the document, in order."""
        lines = _split_text(str(self.emission.told["text"]))
        spans = dict.fromkeys(sorted(tuple(span) for operation in self.operations for span in operation["lines"]))
        return [
            lsp.Range(lsp.Position(first - 1, 0), lsp.Position(last - 1, len(lines[last - 1]))) for first, last in spans
        ]


@lru_cache(maxsize=4)
def _split_text(text: str) -> list[str]:
    return text.split("\n")


def hardware_at(ls: Server, path: str, place: lsp.Range) -> list[Match]:
    """The hardware of the Python in a range of an open file, for each emitted model that runs this code."""
    found = []
    for emission in emissions_of_file(ls, path):
        page = ls.page_at(path, emission.snapshot.sha256_of(path) or "")
        if page is not None and (operations := _operations_at(page, place, emission)):
            found.append(Match(Sheet(emission.snapshot.path, emission.title), emission, operations))
    return found


def operations_on(emission: Emission, line: int) -> list[Operation]:
    """The operations on a line, from 0, of the top module."""
    found = emission.told["operations"]
    return [each for each in found if any(first <= line + 1 <= last for first, last in each["lines"])]


def python_of(ls: Server, emission: Emission, operations: Iterable[Operation]) -> list[Place]:
    """The sources of operations: first their calls, then the mentions of their layers; each line once."""
    pages, rows = _Pages(ls, emission), {row for operation in operations for row in operation["rows"]}
    found: dict[tuple[str, int, int], Place] = {}
    for path, at in _places_in_python(emission, rows, pages):
        found.setdefault((path, at.start.line, at.end.line), (path, at))
    return list(found.values())


def calls_of(ls: Server, emission: Emission, operations: Iterable[Operation]) -> list[Place | None]:
    """The first call of each operation, None if it is unknown or its line was edited."""
    pages = _Pages(ls, emission)
    return [next(_call_places(emission, operation["rows"], pages), None) for operation in operations]


class _Pages:
    """The pages of the texts that an emission was made from, each looked up once."""

    def __init__(self, ls: Server, emission: Emission) -> None:
        self._ls, self._snapshot = ls, emission.snapshot
        self._known: dict[str, Page | None] = {}

    def of(self, path: str) -> Page | None:
        """The page of a file; None if its text is unknown."""
        if path not in self._known:
            self._known[path] = self._ls.page_at(path, self._snapshot.sha256_of(path) or "")
        return self._known[path]


def _places_in_python(emission: Emission, rows: set[int], pages: _Pages) -> Iterator[Place]:
    yield from _call_places(emission, rows, pages)
    snapshot, nodes = emission.snapshot, emission.snapshot.payload["nodes"]
    layers = frozenset(str(nodes["target"][row]) for row in rows if nodes["op"][row] == "call_module")
    files = [
        *filter(None, (_file_of_row(emission, row) for row in sorted(rows))),
        snapshot.path,
    ]  # that one creates layers
    for path in dict.fromkeys(files):
        if (page := pages.of(path)) is not None:
            yield from ((path, place) for place in mentions_of_modules(page, snapshot, emission.model, layers))


def _call_places(emission: Emission, rows: Iterable[int], pages: _Pages) -> Iterator[Place]:
    nodes = emission.snapshot.payload["nodes"]
    for row in sorted(rows):
        path = _file_of_row(emission, row)
        page = pages.of(path) if path else None
        place = None if page is None else page.place(*(nodes[key][row] for key in _NODE_PLACE))
        if place is not None:
            yield path, place


def _file_of_row(emission: Emission, row: int) -> str:
    index = emission.snapshot.payload["nodes"]["file"][row]
    return str(emission.snapshot.payload["files"][index]["path"]) if index >= 0 else ""


def _operations_at(page: Page, place: lsp.Range, emission: Emission) -> list[Operation]:
    """The operations of the target in a range."""
    target = target_in_model(page, place, emission.snapshot, emission.model)
    rows = () if target is None else rows_meant_by(emission.snapshot, emission.places, target.only)
    found = sorted({index for row in rows for index in emission.places[row]})
    return [emission.told["operations"][index] for index in found]


def emissions_of_file(ls: Server, path: str) -> list[Emission]:
    """The emissions of the models that run code of a file, that of the picked model first."""
    view = ls.daemon.store.view(path)
    picked = None if view is None else view.picked
    known = [emission for snapshot in ls.daemon.store.snapshots() for emission in snapshot.hardware.values()]
    found = [emission for emission in known if emission.snapshot.sha256_of(path) is not None]
    return sorted(found, key=lambda emission: emission.title != picked)


# Requests in hardware documents, and from Python to them: highlights, definitions, lenses, counterparts.

_WORD = re.compile(r"\w+")
#: The commands of the lenses in a hardware document.
SIMULATE, SAVE, SETTINGS = "mase.simulateVerilog", "mase.saveVerilog", "mase.verilogSettings"
SHOW, PYTHON = "mase.emitVerilog", "mase.showPythonLine"


async def highlight_hardware(ls: Server, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight] | None:
    """textDocument/documentHighlight in hardware documents: all instances of the name under the cursor."""
    match = _match_at_line(ls, params.text_document.uri, params.position.line)
    return None if match is None else [lsp.DocumentHighlight(place) for place in match.line_ranges()]


async def definition_in_hardware(ls: Server, params: lsp.DefinitionParams) -> list[lsp.Location] | None:
    """textDocument/definition in hardware documents: a component at its name, else the Python it comes from."""
    uri, position = params.text_document.uri, params.position
    sheet = ls.verilog.sheet(uri)
    if sheet is None:
        return None
    name = _word_at_position(await ls.verilog.text(ls.contents.document(uri)), position, ls)
    if name != sheet.component and (rtl_folder() / f"{name}.sv").exists():
        component = Sheet(sheet.path, sheet.model, name)
        return [lsp.Location(await ls.contents.place(ls.verilog.uri(component)), _module_line(name))]
    match = _match_at_line(ls, uri, position.line)
    return (
        None
        if match is None
        else [lsp.Location(ls.uri_of(path), place) for path, place in _python_places_of_match(ls, match)]
    )


async def implementation_in_hardware(ls: Server, params: lsp.ImplementationParams) -> list[lsp.Location] | None:
    """textDocument/implementation in Python: the hardware instances of the code under the cursor."""
    matches = hardware_at(ls, ls.path_of(params.text_document.uri), lsp.Range(params.position, params.position))
    uris = [await ls.contents.place(ls.verilog.uri(match.sheet)) for match in matches]
    found = zip(uris, matches, strict=True)
    return [lsp.Location(uri, place) for uri, match in found for place in match.line_ranges()] or None


class Counterpart(TypedDict):
    """The lines to highlight in one document. names: of the operations."""

    uri: str
    ranges: list[lsp.Range]
    names: list[str]


async def find_counterparts(ls: Server, params: Any) -> list[Counterpart]:
    """mase/counterparts {uri, position}: the ranges to highlight on both sides, {"uri", "ranges", "names"} each.

    For a place in Python its instances, for a place in the hardware its lines of Python; the file itself comes last.
    names: of the operations.
    """
    uri, position = str(params["uri"]), lsp.Position(**params["position"])
    match = _match_at_line(ls, uri, position.line)
    if match is not None:
        return [*_python_sides(ls, match), _describe_side(ls, uri, match.line_ranges(), match)]
    path = ls.path_of(uri)
    matches = hardware_at(ls, path, lsp.Range(position, position))
    own = [each for found in matches for each in _python_sides(ls, found) if each["uri"] == uri]
    return [*(_describe_side(ls, ls.verilog.uri(each.sheet), each.line_ranges(), each) for each in matches), *own[:1]]


async def hardware_lenses(ls: Server, uri: str) -> list[lsp.CodeLens]:
    """The lenses of a hardware document: one for the whole at its top, and one for the source of each operation."""
    sheet = ls.verilog.sheet(uri)
    emission = None if sheet is None else ls.verilog.emission(sheet)
    if sheet is None or emission is None or sheet.component:
        return []
    target: CommandArgument = {"path": sheet.path, "model": sheet.model}
    titles = {SHOW: totals_text(emission), SIMULATE: "simulate", SAVE: "save to folder", SETTINGS: "settings"}
    found = [_build_lens(0, title, command, target) for command, title in titles.items()]
    shown = [operation for operation in emission.told["operations"] if operation["lines"]]
    for operation, call in zip(shown, calls_of(ls, emission, shown), strict=True):
        place = None if call is None else (call[0], call[1].start.line + 1)
        given: CommandArgument = target if place is None else {"path": place[0], "line": place[1]}
        first = min(line for line, _ in operation["lines"])
        found.append(_build_lens(first - 1, source_text(operation, place), PYTHON, given))
    return found


def _build_lens(line: int, title: str, command: str, given: CommandArgument) -> lsp.CodeLens:
    at = lsp.Position(line, 0)
    return lsp.CodeLens(lsp.Range(at, at), lsp.Command(title, command, None, [given]))


def _match_at_line(ls: Server, uri: str, line: int) -> Match | None:
    """The operations on a line of a hardware document; None for other documents and lines without operations."""
    sheet = ls.verilog.sheet(uri)
    emission = None if sheet is None else ls.verilog.emission(sheet)
    if sheet is None or emission is None or sheet.component:
        return None
    operations = operations_on(emission, line)
    return Match(sheet, emission, operations) if operations else None


def _python_places_of_match(ls: Server, match: Match) -> list[Place]:
    return python_of(ls, match.emission, match.operations)


def _python_sides(ls: Server, match: Match) -> Iterator[Counterpart]:
    """The Python of a match, file by file."""
    places: dict[str, list[lsp.Range]] = {}
    for path, place in _python_places_of_match(ls, match):
        places.setdefault(path, []).append(place)
    return (_describe_side(ls, ls.uri_of(path), ranges, match) for path, ranges in places.items())


def _describe_side(ls: Server, uri: str, ranges: list[lsp.Range], match: Match) -> Counterpart:
    return {"uri": uri, "ranges": ranges, "names": [operation["name"] for operation in match.operations]}


def _word_at_position(text: str, position: lsp.Position, ls: Server) -> str:
    """The word at a position."""
    lines = split_lines(text)
    line = lines[position.line] if position.line < len(lines) else ""
    column = from_units(line, position.character, ls.encoding)
    return next((found[0] for found in _WORD.finditer(line) if found.start() <= column <= found.end()), "")


def _module_line(name: str) -> lsp.Range:
    """The range that declares a component."""
    lines = component_text(name).split("\n")
    return next(
        (
            lsp.Range(lsp.Position(row, found.start(1)), lsp.Position(row, found.end(1)))
            for row, line in enumerate(lines)
            if (found := re.match(rf"module ({name})\b", line))
        ),
        lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0)),
    )
