"""Requests in the documents of hardware, and from Python to them: highlights, definitions, lenses, both sides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from mase_server.components import rtl_folder
from mase_server.lsp.encoding import from_units
from mase_server.lsp.hardware_texts import source_text, totals_text
from mase_server.lsp.source_map import Match, Place, calls_of, hardware_at, operations_on, python_of
from mase_server.lsp.text import split_lines
from mase_server.lsp.verilog import Sheet, component_text

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

_WORD = re.compile(r"\w+")
#: The commands of the lenses in a document of hardware.
SIMULATE, SAVE, SETTINGS = "mase.simulateVerilog", "mase.saveVerilog", "mase.verilogSettings"
SHOW, PYTHON = "mase.emitVerilog", "mase.showPythonLine"


async def highlight(ls: Server, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight] | None:
    """textDocument/documentHighlight, in the hardware alone: all instances of what the cursor is on."""
    match = _match(ls, params.text_document.uri, params.position.line)
    return None if match is None else [lsp.DocumentHighlight(place) for place in match.ranges()]


async def definition(ls: Server, params: lsp.DefinitionParams) -> list[lsp.Location] | None:
    """textDocument/definition, in the hardware alone: a component at its name, else the Python that it comes from."""
    uri, position = params.text_document.uri, params.position
    sheet = ls.verilog.sheet(uri)
    if sheet is None:
        return None
    name = _word(await ls.verilog.text(ls.contents.document(uri)), position, ls)
    if name != sheet.component and (rtl_folder() / f"{name}.sv").exists():
        component = Sheet(sheet.path, sheet.model, name)
        return [lsp.Location(await ls.contents.place(ls.verilog.uri(component)), _module_line(name))]
    match = _match(ls, uri, position.line)
    return None if match is None else [lsp.Location(ls.uri_of(path), place) for path, place in _python(ls, match)]


async def implementation(ls: Server, params: lsp.ImplementationParams) -> list[lsp.Location] | None:
    """textDocument/implementation, in Python: the instances of what the cursor is on."""
    matches = hardware_at(ls, ls.path_of(params.text_document.uri), lsp.Range(params.position, params.position))
    uris = [await ls.contents.place(ls.verilog.uri(match.sheet)) for match in matches]
    found = zip(uris, matches, strict=True)
    return [lsp.Location(uri, place) for uri, match in found for place in match.ranges()] or None


async def counterparts(ls: Server, params: Any) -> list[dict[str, Any]]:
    """mase/counterparts {uri, position}: what to highlight on both sides, {"uri", "ranges", "names"} each.

    Of a place in Python its instances, of a place in the hardware its lines of Python; the file itself is last.
    names: of the operations.
    """
    uri, position = str(params["uri"]), lsp.Position(**params["position"])
    match = _match(ls, uri, position.line)
    if match is not None:
        return [*_sides(ls, match), _side(ls, uri, match.ranges(), match)]
    path = ls.path_of(uri)
    matches = hardware_at(ls, path, lsp.Range(position, position))
    own = [each for found in matches for each in _sides(ls, found) if each["uri"] == uri]
    return [*(_side(ls, ls.verilog.uri(each.sheet), each.ranges(), each) for each in matches), *own[:1]]


async def lenses(ls: Server, uri: str) -> list[lsp.CodeLens]:
    """The lenses of a document of hardware: the whole above, and where each operation comes from."""
    sheet = ls.verilog.sheet(uri)
    emission = None if sheet is None else ls.verilog.emission(sheet)
    if sheet is None or emission is None or sheet.component:
        return []
    target = {"path": sheet.path, "model": sheet.model}
    titles = {SHOW: totals_text(emission), SIMULATE: "simulate", SAVE: "save to folder", SETTINGS: "settings"}
    found = [_lens(0, title, command, target) for command, title in titles.items()]
    shown = [operation for operation in emission.told["operations"] if operation["lines"]]
    for operation, call in zip(shown, calls_of(ls, emission, shown), strict=True):
        place = None if call is None else (call[0], call[1].start.line + 1)
        given = target if place is None else {"path": place[0], "line": place[1]}
        first = min(line for line, _ in operation["lines"])
        found.append(_lens(first - 1, source_text(operation, place), PYTHON, given))
    return found


def _lens(line: int, title: str, command: str, given: dict[str, Any]) -> lsp.CodeLens:
    at = lsp.Position(line, 0)
    return lsp.CodeLens(lsp.Range(at, at), lsp.Command(title, command, None, [given]))


def _match(ls: Server, uri: str, line: int) -> Match | None:
    """The operations on a line of a document of hardware; None for other documents, and where there are none."""
    sheet = ls.verilog.sheet(uri)
    emission = None if sheet is None else ls.verilog.emission(sheet)
    if sheet is None or emission is None or sheet.component:
        return None
    operations = operations_on(emission, line)
    return Match(sheet, emission, operations) if operations else None


def _python(ls: Server, match: Match) -> list[Place]:
    return python_of(ls, match.emission, match.operations)


def _sides(ls: Server, match: Match) -> Iterator[dict[str, Any]]:
    """The Python of a match, file by file."""
    places: dict[str, list[lsp.Range]] = {}
    for path, place in _python(ls, match):
        places.setdefault(path, []).append(place)
    return (_side(ls, ls.uri_of(path), ranges, match) for path, ranges in places.items())


def _side(ls: Server, uri: str, ranges: list[lsp.Range], match: Match) -> dict[str, Any]:
    return {"uri": uri, "ranges": ranges, "names": [operation["name"] for operation in match.operations]}


def _word(text: str, position: lsp.Position, ls: Server) -> str:
    """The word at a position."""
    lines = split_lines(text)
    line = lines[position.line] if position.line < len(lines) else ""
    column = from_units(line, position.character, ls.encoding)
    return next((found[0] for found in _WORD.finditer(line) if found.start() <= column <= found.end()), "")


def _module_line(name: str) -> lsp.Range:
    """Where a component is declared."""
    lines = component_text(name).split("\n")
    return next(
        (
            lsp.Range(lsp.Position(row, found.start(1)), lsp.Position(row, found.end(1)))
            for row, line in enumerate(lines)
            if (found := re.match(rf"module ({name})\b", line))
        ),
        lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0)),
    )
