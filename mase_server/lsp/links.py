"""Links in cards and hints: to the module behind a value, and to views of the model in editors that have them.

A link that runs a command is Markdown such as [costs](command:mase.showCosts?...), which VS Code understands. Other
editors would show a dead word, so a client lists in its initialization options the commands that such links may run:
{"commandLinks": ["mase.showGraph", ...]}. Links to files are shown to these clients only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lsprotocol import types as lsp

from mase_server.lsp.input_sets import CHANGE
from mase_server.lsp.outline import get_outline, is_at_hand, prepare_outline
from mase_server.notebooks import is_notebook
from mase_server.visible import escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.store import GraphSnapshot, ModelView, SiteView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

OPTION = "commandLinks"
GRAPH, COSTS = "mase.showGraph", "mase.showCosts"
#: The texts of links to views: of a place in a model, and of the model.
_AT_A_PLACE = {GRAPH: "show in the graph", COSTS: "show its costs", CHANGE: "change inputs"}
_AT_A_MODEL = {GRAPH: "show the graph", COSTS: "show the costs", CHANGE: "change inputs"}
#: Views that open at one module of a model -> the parameter for that module.
_PART = {GRAPH: "scope", COSTS: "row"}


def link_commands(options: Any) -> frozenset[str]:
    """The commands that the client's links may run; none unless its initialization options list them."""
    told = options.get(OPTION) if isinstance(options, Mapping) else None
    return frozenset(each for each in told if isinstance(each, str)) if isinstance(told, Sequence) else frozenset()


def site_links(ls: Server, page: Page | None, site: SiteView) -> str:
    """A line of a card with links to the module behind a value and to views of it; "" for clients without links."""
    module = _module_behind_site(ls, site) if ls.links else None
    if module is None:
        return ""
    found = definition_of_site(ls, page, site)
    to_module = [f"[{module.title}]({_file_link(found)})"] if found is not None else []
    return " · ".join([*to_module, *_view_links(ls, module.target, module.path, _AT_A_PLACE)])


def model_links(ls: Server, model: ModelView) -> str:
    """A line of links to the views of a model."""
    return " · ".join(_view_links(ls, {"path": model.snapshot.path, "model": model.title}, "", _AT_A_MODEL))


def definition_of_site(ls: Server, page: Page | None, site: SiteView) -> lsp.Location | None:
    """The present place where the layer behind a value is created, or else the class of the module around it.

    None if neither is in a file of the workspace, if its lines were edited since, and in notebooks, because no link can
    address a cell.
    """
    module = _module_behind_site(ls, site)
    if module is None or is_notebook(module.snapshot.path):
        return None
    if page is not None and not module.type and page.traced == module.snapshot.sha256_of(page.document.path):
        if not is_at_hand(page.alignment.traced_text):
            ls.spawn(prepare_outline(page.alignment.traced_text))  # this hover does not wait; the next one has the link
            return None
        made = _find_making_statement(page, module)
        return None if made is None else lsp.Location(page.document.uri, made)
    return _class_of(ls, module)


@dataclass(frozen=True, slots=True)
class _Module:
    """A module of a model, by its path."""

    snapshot: GraphSnapshot
    model: int
    path: str

    def type_of(self, path: str) -> str:
        """The class of a module that contains others, "" for a layer."""
        scopes = self.snapshot.payload["scopes"]
        return next((str(kind) for of, known, kind in scopes if of == self.model and known == path), "")

    @property
    def type(self) -> str:
        return self.type_of(self.path)

    @property
    def target(self) -> dict[str, str]:
        """The parameters of commands about its model."""
        return {"path": self.snapshot.path, "model": self.snapshot.titles[self.model]}

    @property
    def title(self) -> str:
        """`go to c_proj`, `go to class Block`."""
        return f"go to class {escape_markdown(self.type)}" if self.type else f"go to {escape_markdown(self.path)}"


def _module_behind_site(ls: Server, site: SiteView) -> _Module | None:
    """The module behind a value: the layer that returned it, else the one in which it was computed or bound."""
    value = site.values[0] if site.values else None
    if value is None:
        return None
    scope = value.scopes[0][0] if value.scopes else ""
    if value.node is None:
        known = (one for one in ls.daemon.store.snapshots() if value.model in one.titles)
        snapshot = next(known, None)
        return None if snapshot is None else _Module(snapshot, snapshot.titles.index(value.model), scope)
    snapshot, index = value.node
    nodes = snapshot.payload["nodes"]
    layer = nodes["op"][index] == "call_module" and site.kind != "parameter"
    return _Module(snapshot, nodes["model"][index], str(nodes["target"][index]) if layer else scope)


def _find_making_statement(page: Page, module: _Module) -> lsp.Range | None:
    """The statement that creates a layer or the list that holds it: the first that mentions it."""
    file, parts = get_outline(page.alignment.traced_text), module.path.split(".")
    for cut in range(len(parts) - 1, -1, -1):
        kind = module.type_of(".".join(parts[:cut]))
        for name in dict.fromkeys((".".join(parts[cut:]), parts[cut])):
            for each in file.mentions:
                if each.name == name and kind in file.class_and_heirs(each.owner):
                    return page.range(each)
    return None


def _class_of(ls: Server, module: _Module) -> lsp.Location | None:
    for each in module.snapshot.payload.get("classes") or ():
        file = module.snapshot.payload["files"][each["file_index"]]
        page = ls.page_at(file["path"], file["sha256"]) if each["name"] == module.type else None
        place = None if page is None else page.place_of(each)
        if place is not None:
            return lsp.Location(ls.uri_of(file["path"]), place)
    return None


def _view_links(ls: Server, target: Mapping[str, str], part: str, titles: Mapping[str, str]) -> Iterator[str]:
    for command, title in titles.items():
        if command in ls.links:
            given = {**target, **({_PART[command]: part} if part and command in _PART else {})}
            yield f"[{title}](command:{command}?{quote(json.dumps([given]), safe='')})"


def _file_link(place: lsp.Location) -> str:
    """A file link that opens at a line, in the form of VS Code's Markdown: counted from 1."""
    start = place.range.start
    return f"{place.uri.replace('(', '%28').replace(')', '%29')}#L{start.line + 1},{start.character + 1}"
