"""Read-only documents of what PyTorch's compilers make of models: `mase-compiled:` URIs, whose text follows saves.

A document keeps its last text while a newer one is not saved, and says STALE in its first line while the file cannot be
traced or compiled; lines must not move, because both sides refer to each other by their numbers. Graph breaks are told
as diagnostics to who asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from mase_server.daemon.api_graphs import find_kernels, is_same_operation
from mase_server.daemon.graph_snapshot import is_same_trace
from mase_server.lsp import diagnostics, verilog
from mase_server.lsp.assumptions import Offer
from mase_server.lsp.calls import as_map, ask_person, call_api, model_of, models_of
from mase_server.lsp.contents import Graph, file_name
from mase_server.lsp.verilog import Counterpart
from mase_server.lsp.wording import format_count, in_bytes
from mase_server.visible import escape_code, escape_markdown, reveal

if TYPE_CHECKING:
    from mase_server.daemon.graph_snapshot import GraphSnapshot
    from mase_server.daemon.pipelines import Steps
    from mase_server.daemon.store import ModelView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server
    from mase_server.protocol.answers import Compiled, GraphBreak, Kernel, Recompile

_Found = TypeVar("_Found", "GraphBreak", "Recompile")

SCHEME = "mase-compiled"
#: The views, and their names for people.
VIEWS = {
    "dynamo": "Dynamo: the captured graphs",
    "aten": "ATen: the same as primitive operators",
    "joint": "ATen in training: joint, forward and backward graphs",
    "inductor": "Inductor: the generated code",
    "export": "Exported program",
    "onnx": "ONNX: of the exported program",
}
#: Other documents of a view: its text before the last change, the model with its passes, and Inductor's code for the
#: CPU where there is a GPU.
BEFORE, PASSES, CPU = "before", "passes", "cpu"
_URI = re.compile(
    rf"{SCHEME}:(?P<file>.*)/(?P<model>[^/]+)\.(?P<view>{'|'.join(VIEWS)})(?:\.(?P<variant>{BEFORE}|{PASSES}|{CPU}))?\.py"
)
_COMMENT = "# "
#: A tensor as graphs name it: `relu: "f32[2, 4]"`.
_TENSOR = re.compile(r'(\w+): "([a-z]+)(\d+)\[([^\]]*)\]')
#: Where the code of a kernel begins.
_DEFINITION = re.compile(r"\w+ = async_compile\.")
#: Maximum number of remembered texts.
_KEPT = 32
#: Maximum number of names of operations in a hover.
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class Sheet:
    """One document: a view of a model. variant: `BEFORE`, `PASSES`, `CPU`, or "" for the model as it is written."""

    path: str
    model: str
    view: str
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A compiled model. snapshot: the trace that it was made of.  mended: were fixes of its breaks looked for?  steps:
    of passes."""

    snapshot: GraphSnapshot
    told: Compiled
    mended: bool = False
    steps: Steps = ()


class Compilations:
    """The documents of compiled models; see `contents.Source`."""

    scheme = SCHEME

    def __init__(self, server: Server) -> None:
        self._server = server
        self._made: dict[Sheet, Made] = {}
        #: The texts before the last change of what was compiled.
        self._before: dict[Sheet, str] = {}
        self._running: set[Sheet] = set()
        #: The files whose breaks were asked for in a lens.
        self.wanted: set[str] = set()

    def uri(self, sheet: Sheet) -> str:
        """The URI; it ends in .py, so that editors recognise the language."""
        file = self._server.uri_of(sheet.path).removeprefix("file:")
        return f"{SCHEME}:{file}/{quote(sheet.model, safe='')}.{'.'.join(filter(None, (sheet.view, sheet.variant)))}.py"

    def sheet(self, uri: str) -> Sheet | None:
        """The inverse of `uri`, however the client escapes it; also accepts a file that holds the document.

        None for others.
        """
        found = _URI.fullmatch(self._server.contents.document(uri))
        if found is None:
            return None
        path = self._server.path_of(f"file:{found['file']}")
        return Sheet(path, unquote(found["model"]), found["view"], found["variant"] or "")

    def made(self, sheet: Sheet) -> Made | None:
        """The last result of a document."""
        return self._made.get(sheet)

    def all_made(self) -> list[tuple[Sheet, Made]]:
        """Every kept result."""
        return list(self._made.items())

    def path(self, uri: str) -> str | None:
        """The model file of a document."""
        sheet = self.sheet(uri)
        return None if sheet is None else sheet.path

    def file(self, uri: str) -> str:
        """The name of a file with this content."""
        return file_name(unquote(uri.rpartition("/")[2]))

    def state(self, uri: str) -> Any:
        """The trace that determines a document's text, and whether it is of an older text of the file."""
        sheet = self.sheet(uri)
        shown = None if sheet is None else self._find_snapshot(sheet)
        if sheet is None or shown is None:
            return None
        if sheet.variant == BEFORE:
            return self._before.get(sheet)
        stale = self._server.daemon.store.entry(sheet.path).stale
        return shown.sha256, shown.generation, stale, self._list_steps(sheet)

    def _list_steps(self, sheet: Sheet) -> Steps:
        """The passes that a document shows."""
        try:
            return self._server.daemon.passes.steps(sheet.path, sheet.model) if sheet.variant == PASSES else ()
        except ValueError:  # the model is gone
            return ()

    def _find_snapshot(self, sheet: Sheet) -> GraphSnapshot | None:
        """The trace to show: the last one, but while that is of a text that is not saved, the one that was compiled."""
        view, made = self._server.daemon.store.view(sheet.path), self._made.get(sheet)
        if view is not None and view.unsaved and made is not None:
            return made.snapshot
        return self._server.daemon.store.snapshot(sheet.path)

    async def text(self, uri: str) -> str:
        """The text of a view; if it is not available, its last text, or a comment that says why."""
        sheet = self.sheet(uri)
        if sheet is None:
            return f"# {uri} is not the address of a compiled model.\n"
        if sheet.variant == BEFORE:
            return self._before.get(sheet, "# Nothing yet: the text before the next save, or with other inputs.\n")
        made, why = await self._make(sheet)
        if made is None:
            return f"# There is no such view of {reveal(sheet.model)} now: {why}\n"
        text = str(made.told["text"])
        return f"{_COMMENT}STALE, {why}: {text.removeprefix(_COMMENT)}" if why else text

    async def _make(self, sheet: Sheet, further: bool = False) -> tuple[Made | None, str]:
        """The result to show, and why it is not of the present text; "" if it is. further: with fixes of breaks."""
        store, made = self._server.daemon.store, self._made.get(sheet)
        snapshot = self._find_snapshot(sheet)
        if store.entry(sheet.path).stale and made is not None:
            return made, f"{Path(sheet.path).name} cannot be traced now"
        steps = self._list_steps(sheet)
        if made is not None and is_same_trace(made.snapshot, snapshot) and made.steps == steps and not further:
            return made, ""
        asked = {"path": sheet.path, "model": sheet.model, "view": sheet.view, "further": further}
        asked |= {"passes": True} if sheet.variant == PASSES else {}
        asked |= {"device": "cpu"} if sheet.variant == CPU else {}
        try:
            told = await call_api(self._server, "mase/compiled", **asked)
        except JsonRpcException as error:
            return made, reveal(" ".join(str(error).split())).rstrip(".")
        now = store.snapshot(sheet.path)
        if now is None or not is_same_trace(now, snapshot):
            return made, "" if made is not None else "it was traced again meanwhile"  # which asks for the text again
        if made is not None and not sheet.variant and made.told["text"] != told["text"]:
            self._before[replace(sheet, variant=BEFORE)] = made.told["text"]
            self._server.contents.changed([sheet.path])
        made = Made(now, told, further, steps)
        self._made = {**dict([each for each in self._made.items() if each[0] != sheet][1 - _KEPT :]), sheet: made}
        return made, ""

    # Graph breaks as diagnostics.

    def tells_breaks(self, path: str) -> bool:
        """Are the breaks of this file's models told?"""
        return path in self.wanted or self._server.settings_of(path).compiled_diagnostics

    def follow_breaks(self, paths: Iterable[str]) -> None:
        """Compile the models of these open files, if their breaks are told and not known."""
        for path in paths:
            if self._server.documents.get(path) is None or not self.tells_breaks(path):
                continue
            for model in models_of(self._server, path):
                sheet = Sheet(model.snapshot.path, model.title, "dynamo")
                if sheet not in self._running and not self._is_known(sheet):
                    self._running.add(sheet)
                    self._server.spawn(self._tell_breaks(sheet, path))

    def _is_known(self, sheet: Sheet) -> bool:
        made = self._made.get(sheet)
        return made is not None and made.mended and is_same_trace(made.snapshot, self._find_snapshot(sheet))

    async def _tell_breaks(self, sheet: Sheet, path: str) -> None:
        """Tell the breaks as soon as they are known, then again with the edits that remove them, and recompilations."""
        begun = self._find_snapshot(sheet)
        try:
            made, _ = await self._make(sheet)
            self._publish(path)
            if made is not None:
                await self._make(sheet, further=True)
                self._publish(path)
        finally:
            self._running.discard(sheet)
            if begun is not None and not is_same_trace(begun, self._find_snapshot(sheet)):
                self.follow_breaks([path])

    def _publish(self, path: str) -> None:
        self._server.listener.refresh()
        diagnostics.publish_diagnostics(self._server, [path])

    def lens_texts(self, model: ModelView) -> tuple[str, ...]:
        """The texts of the lens of a model, from long to short: what is known if it is told, else what a click does."""
        path, title = model.snapshot.path, model.title
        made = self._made.get(Sheet(path, title, "dynamo")) if self.tells_breaks(path) else None
        kernels = self._server.daemon.kernels(model.snapshot, title)
        made = self._made.get(Sheet(path, title, "inductor")) if kernels is not None else made
        if made is None:
            return ("breaks",)
        graphs, breaks = format_count(made.told["graphs"], "graph"), format_count(len(made.told["breaks"]), "break")
        made_of = ""
        if kernels is not None:
            fused = sum(len(each["operations"]) > 1 for each in kernels)
            made_of = f", {format_count(len(kernels), 'kernel')}, {fused} fused"
        return f"compiled: {graphs}, {breaks}{made_of}", f"{breaks}{made_of}", breaks

    def describe_node(self, snapshot: GraphSnapshot, row: int) -> str:
        """The kernel of a node: `fused into 1 kernel with 2 others: gelu, add; reads 1.2 MiB, writes 0.4 MiB`; "" if
        Inductor's view of its model is not known."""
        nodes = snapshot.payload["nodes"]
        kernels = self._server.daemon.kernels(snapshot, snapshot.titles[nodes["model"][row]])
        own = find_kernels(kernels or (), snapshot, row)
        if not own:
            return ""
        place = snapshot.payload["files"][nodes["file"][row]]["path"], nodes["line"][row]
        others = {
            tuple(one): one[2]
            for each in own
            for one in each["operations"]
            if not is_same_operation(one, place, nodes["mase_op"][row])
        }
        names, counted = [*dict.fromkeys(others.values())], format_count(len(own), "kernel")
        text = f"computed by {counted} of its own"
        if others:
            told = ", ".join([*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])])
            text = f"fused into {counted} with {format_count(len(others), 'other')}: {told}"
        reads, writes = (sum(each[key] // each["calls"] for each in own) for key in ("reads_bytes", "writes_bytes"))
        return f"{text}; reads {in_bytes(reads)}, writes {in_bytes(writes)}"

    def list_breaks(self, page: Page) -> Iterator[tuple[GraphBreak, lsp.Range]]:
        """The breaks on the lines of a page, if they are told and its text is the one that was compiled."""
        return self._list_placed(page, lambda told: told["breaks"])

    def list_recompiles(self, page: Page) -> Iterator[tuple[Recompile, lsp.Range]]:
        """The same of what is compiled again at other sizes, at the lines that asked for these."""
        return self._list_placed(page, lambda told: told["recompiles"])

    def _list_placed(
        self, page: Page, list_found: Callable[[Compiled], list[_Found]]
    ) -> Iterator[tuple[_Found, lsp.Range]]:
        path = page.document.path
        told = set()
        for sheet, made in self._made.items() if self.tells_breaks(path) else ():
            if (sheet.view, sheet.variant) != ("dynamo", "") or made.snapshot.sha256_of(path) != page.traced:
                continue
            for each in list_found(made.told):
                key = each["line"], each["reason"]
                place = page.place(each["line"], each["column"], each["line"] + 1, 0)
                if each["file"] == path and place is not None and key not in told:
                    told.add(key)
                    yield each, place


def describe_line(ls: Server, uri: str, line: int) -> str:
    """The hover of a line, from 0, of a document: its kernel or its tensors, with their bytes, and its source."""
    made = _find_made(ls, uri)
    text = [] if made is None else made.told["text"].split("\n")
    if made is None or not 0 <= line < len(text):
        return ""
    sources = sorted({(file, source) for number, file, source in made.told["lines"] if number == line + 1})
    kernels = [each for each in made.told["kernels"] if not set(sources).isdisjoint(map(tuple, each["lines"]))]
    told = [_describe_kernel(each) for each in kernels if _is_kernel_line(text, line, each["name"])]
    told += _describe_tensors(text, line)
    told += [escape_markdown(f"{Path(file).name}:{source}") for file, source in sources[:_MOST_NAMES]]
    return "\n\n".join(told)


def _describe_kernel(kernel: Kernel) -> str:
    names = list(dict.fromkeys(name for _, _, name in kernel["operations"]))
    made_of = escape_markdown(", ".join([*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])]))
    calls = format_count(kernel["calls"], "call")
    moved = f"reads {in_bytes(kernel['reads_bytes'])}, writes {in_bytes(kernel['writes_bytes'])}"
    return f"{escape_code(kernel['name'])}: {made_of}; {calls}: {moved}"


def _is_kernel_line(text: Sequence[str], line: int, name: str) -> bool:
    """Does a line of Inductor's code define or call the kernel?"""
    name = name.partition(" (graph ")[0]
    if re.search(rf"(?<![\w.]){re.escape(name)}\(", text[line]):
        return True
    above = (each for each in reversed(text[: line + 1]) if each == "''')" or _DEFINITION.match(each))
    return next(above, "").startswith(f"{name} = ")


def _describe_tensors(text: Sequence[str], line: int) -> Iterator[str]:
    """`x: f32[2, 4], 32 B` for each tensor that a line of a graph defines or takes."""
    start = max((number for number in range(line + 1) if text[number].startswith(("class ", "# Graph"))), default=0)
    known = {found[1]: found for each in text[start : line + 1] for found in _TENSOR.finditer(each)}
    if text[line].lstrip().startswith(("#", "def ")):
        return
    for name in dict.fromkeys(re.findall(r"\w+", text[line].partition(";")[0])):
        if (found := known.get(name)) is not None:
            dims = [each.strip() for each in found[4].split(",") if each.strip()]
            size = prod(int(each) for each in dims if each.isdigit()) * int(found[3]) // 8
            varies = "".join(f" x {each}" for each in dims if not each.isdigit())
            tensor = escape_code(f"{name}: {found[2]}{found[3]}[{found[4]}]")
            yield f"{tensor}, {in_bytes(size)}{escape_markdown(varies)}"


def offer_break_fixes(ls: Server, page: Page, place: lsp.Range | None) -> Iterator[Offer]:
    """The edits that remove the breaks on the lines of a range."""
    for number, (found, at) in enumerate(ls.compiled.list_breaks(page)):
        touched = place is None or (at.start.line <= place.end.line and place.start.line <= at.end.line)
        if found["fix"] is not None and touched:
            told = [diagnostics.of_break(found, at)]
            yield Offer(found["fix"], lsp.CodeActionKind.QuickFix, [number], diagnostics=told)


async def toggle_breaks(ls: Server, given: Any = None) -> None:
    """mase.showBreaks: tell the graph breaks of a model's file as diagnostics, or no longer."""
    path = model_of(ls, given)["path"]
    ls.compiled.wanted ^= {path}
    ls.compiled.follow_breaks([path])
    ls.listener.refresh()
    diagnostics.publish_diagnostics(ls, [path])


async def show_compiled(ls: Server, given: Any = None) -> Any:
    """mase.showCompiled {view?, device?, show?}: {"uri", "text"} of what a compiler makes of a model.

    Without a view, the person is asked for it.  With `show` false, only {"uri"}.  device: "cpu" for Inductor's code for
    the CPU, also where there is a GPU.
    """
    target, view = model_of(ls, given), str(as_map(given).get("view") or "")
    variant = CPU if as_map(given).get("device") == "cpu" else ""
    if not view:
        chosen = await ask_person(ls, f"What compilers make of {target['model']}:", list(VIEWS.values()))
        view = next((name for name, title in VIEWS.items() if title == chosen), "")
        if not view:
            return None
    if view not in VIEWS:
        raise JsonRpcInvalidParams(f"there is no view {view!r}; there are {', '.join(VIEWS)}")
    uri = ls.compiled.uri(Sheet(**target, view=view, variant=variant))
    return {"uri": uri} if as_map(given).get("show") is False else await ls.contents.show(uri, focus=False)


async def compare_compiled(ls: Server, given: Any = None) -> Any:
    """mase.compareCompiled {view?, with?, show?}: a diff, {"uri", "text"}; if `show` is false, {"before", "after"}.

    with: "before", the text before the last save or with the inputs before; "passes", the model with its passes;
    "cpu", Inductor's code for the CPU where there is a GPU; "fx", the model as it is called, without a compiler; or
    another view.
    """
    target, asked = model_of(ls, given), as_map(given)
    view, other = str(asked.get("view") or "dynamo"), str(asked.get("with") or BEFORE)
    if view not in VIEWS or other not in (*VIEWS, BEFORE, PASSES, CPU, "fx"):
        raise JsonRpcInvalidParams(f"{view!r} cannot be compared with {other!r}")
    own = ls.compiled.uri(Sheet(**target, view=view))
    if other == "fx":
        sides = ls.graphs.uri(Graph(**target, original=True)), own
    elif other == BEFORE:
        sides = ls.compiled.uri(Sheet(**target, view=view, variant=BEFORE)), own
    else:
        sheet = Sheet(**target, view=other) if other in VIEWS else Sheet(**target, view=view, variant=other)
        sides = own, ls.compiled.uri(sheet)
    if asked.get("show") is False:
        return {"before": sides[0], "after": sides[1]}
    before, after = [(await ls.contents.text(uri)).splitlines(True) for uri in sides]
    old, new = (file_name(unquote(uri.rpartition("/")[2])) for uri in sides)
    text = "".join(unified_diff(before, after, old, new)) or "Both are the same.\n"
    return await ls.contents.show_text(f"{target['model']}.{view}.diff", text)


# From Python to what was compiled, and back: by the lines of both texts.


async def find_counterparts(ls: Server, params: Any) -> list[Counterpart]:
    """mase/counterparts {uri, position}: the ranges to highlight on both sides, {"uri", "ranges", "names"} each.

    For a place in Python its lines in hardware and in compiled documents, for a place in one of these its lines of
    Python; the file itself comes last. names: of operations of hardware.
    """
    uri, line = str(params["uri"]), int(params["position"]["line"])
    sheet = ls.compiled.sheet(uri)
    if sheet is not None:
        made = ls.compiled.made(sheet)
        return [] if made is None else [*_list_python_sides(ls, made, line), _describe_own_line(made, uri, line)]
    found = await verilog.find_counterparts(ls, params)
    own = [each for each in found if each["uri"] == uri]
    path = ls.path_of(uri)
    others = [
        Counterpart(uri=ls.compiled.uri(each), ranges=ranges, names=[])
        for each, made in ls.compiled.all_made()
        if (ranges := _list_document_lines(ls, made, path, line))
    ]
    if others and not own:
        own = [Counterpart(uri=uri, ranges=[_whole_line(line)], names=[])]
    return [*(each for each in found if each["uri"] != uri), *others, *own]


async def highlight_lines(ls: Server, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight] | None:
    """textDocument/documentHighlight in documents beside the code: all lines that belong to the same Python."""
    uri = params.text_document.uri
    made = _find_made(ls, uri)
    if made is None:
        return await verilog.highlight_hardware(ls, params)
    return [lsp.DocumentHighlight(each) for each in _describe_own_line(made, uri, params.position.line)["ranges"]]


async def find_definition(ls: Server, params: lsp.DefinitionParams) -> list[lsp.Location] | None:
    """textDocument/definition in documents beside the code: the Python of a line; a component at its name."""
    made = _find_made(ls, params.text_document.uri)
    if made is None:
        return await verilog.definition_in_hardware(ls, params)
    sides = _list_python_sides(ls, made, params.position.line)
    return [lsp.Location(side["uri"], each) for side in sides for each in side["ranges"]] or None


async def find_implementation(ls: Server, params: lsp.ImplementationParams) -> list[lsp.Location] | None:
    """textDocument/implementation in Python: the lines of a place in hardware and in compiled documents."""
    path, line = ls.path_of(params.text_document.uri), params.position.line
    found = await verilog.implementation_in_hardware(ls, params) or []
    for sheet, made in ls.compiled.all_made():
        if ranges := _list_document_lines(ls, made, path, line):
            uri = await ls.contents.place(ls.compiled.uri(sheet))
            found += [lsp.Location(uri, each) for each in ranges]
    return found or None


def _find_made(ls: Server, uri: str) -> Made | None:
    sheet = ls.compiled.sheet(uri)
    return None if sheet is None else ls.compiled.made(sheet)


def _list_python_sides(ls: Server, made: Made, line: int) -> Iterator[Counterpart]:
    """The Python of a line of a document, file by file."""
    places: dict[str, list[lsp.Range]] = {}
    for number, file, source in made.told["lines"]:
        if number == line + 1 and (place := _present_line(ls, made, file, source)) is not None:
            places.setdefault(file, []).append(place)
    return (Counterpart(uri=ls.uri_of(file), ranges=ranges, names=[]) for file, ranges in places.items())


def _list_document_lines(ls: Server, made: Made, path: str, line: int) -> list[lsp.Range]:
    sources = {source for _, file, source in made.told["lines"] if file == path}
    here = {
        source for source in sources if (place := _present_line(ls, made, path, source)) and place.start.line == line
    }
    numbers = sorted({number for number, file, source in made.told["lines"] if file == path and source in here})
    return [_whole_line(number - 1) for number in numbers]


def _present_line(ls: Server, made: Made, file: str, line: int) -> lsp.Range | None:
    """The present place of a line, from 1, of the text that was compiled; None if it was edited since."""
    page = ls.page_at(file, made.snapshot.sha256_of(file) or "")
    return None if page is None else page.place(line, 0, line + 1, 0)


def _describe_own_line(made: Made, uri: str, line: int) -> Counterpart:
    """All lines of the document that belong to the same lines of the source."""
    sources = {(file, source) for number, file, source in made.told["lines"] if number == line + 1}
    numbers = sorted({number for number, file, source in made.told["lines"] if (file, source) in sources})
    return {"uri": uri, "ranges": [_whole_line(number - 1) for number in numbers], "names": []}


def _whole_line(line: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0))
