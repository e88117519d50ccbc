"""Links of cards and hints: to the module behind a value, and to views of the model that only some editors have.

A link that runs a command is Markdown such as [costs](command:mase.showCosts?...), which VS Code understands. Others
would show a dead word, so a client names in its initialization options the commands that such links may run there:
{"commandLinks": ["mase.showGraph", ...]}. Links to files come with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lsprotocol import types as lsp

from mase_server.lsp.input_sets import CHANGE
from mase_server.lsp.outline import is_at_hand, outline, prepare
from mase_server.notebooks import is_notebook
from mase_server.visible import escape_markdown

if TYPE_CHECKING:
    from mase_server.daemon.store import GraphSnapshot, ModelView, SiteView
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server

OPTION = "commandLinks"
GRAPH, COSTS = "mase.showGraph", "mase.showCosts"
#: What a link to a view is called: of a place in a model, and of the model.
_AT_A_PLACE = {GRAPH: "show in the graph", COSTS: "show its costs", CHANGE: "change inputs"}
_AT_A_MODEL = {GRAPH: "show the graph", COSTS: "show the costs", CHANGE: "change inputs"}
#: What opens at one module of a model, and under which name it is told of it.
_PART = {GRAPH: "scope", COSTS: "row"}


def link_commands(options: Any) -> frozenset[str]:
    """The commands that the client's links may run; none where it does not say so in its initialization options."""
    told = options.get(OPTION) if isinstance(options, Mapping) else None
    return frozenset(each for each in told if isinstance(each, str)) if isinstance(told, Sequence) else frozenset()


def site_links(ls: Server, page: Page | None, site: SiteView) -> str:
    """A line of a card: to the module behind a value, and to views of it; "" for who cannot follow links."""
    module = _module(ls, site) if ls.links else None
    if module is None:
        return ""
    found = definition(ls, page, site)
    to_module = [f"[{module.title}]({_file_link(found)})"] if found is not None else []
    return " · ".join([*to_module, *_views(ls, module.target, module.path, _AT_A_PLACE)])


def model_links(ls: Server, model: ModelView) -> str:
    """The same of a model."""
    return " · ".join(_views(ls, {"path": model.snapshot.path, "model": model.title}, "", _AT_A_MODEL))


def definition(ls: Server, page: Page | None, site: SiteView) -> lsp.Location | None:
    """Where the layer behind a value is made, or else the class of the module that it stands in; by the present text.

    None where neither is in a file of the workspace, or its lines were edited since; and in notebooks, whose cells no
    link can name.
    """
    module = _module(ls, site)
    if module is None or is_notebook(module.snapshot.path):
        return None
    if page is not None and not module.type and page.traced == module.snapshot.sha256_of(page.document.path):
        if not is_at_hand(page.alignment.traced_text):
            ls.spawn(prepare(page.alignment.traced_text))  # the next hover has the link: this one does not wait
            return None
        made = _made(page, module)
        return None if made is None else lsp.Location(page.document.uri, made)
    return _class_of(ls, module)


@dataclass(frozen=True, slots=True)
class _Module:
    """A module of a model, by its path."""

    snapshot: GraphSnapshot
    model: int
    path: str

    def type_of(self, path: str) -> str:
        """The class of a module that others stand in, "" for a layer."""
        scopes = self.snapshot.payload["scopes"]
        return next((str(kind) for of, known, kind in scopes if of == self.model and known == path), "")

    @property
    def type(self) -> str:
        return self.type_of(self.path)

    @property
    def target(self) -> dict[str, str]:
        """As commands take a model."""
        return {"path": self.snapshot.path, "model": self.snapshot.titles[self.model]}

    @property
    def title(self) -> str:
        """`go to c_proj`, `go to class Block`."""
        return f"go to class {escape_markdown(self.type)}" if self.type else f"go to {escape_markdown(self.path)}"


def _module(ls: Server, site: SiteView) -> _Module | None:
    """The module behind a value: the layer that gave it, else the one in which it was computed, or bound."""
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


def _made(page: Page, module: _Module) -> lsp.Range | None:
    """The statement that makes a layer, or the list that it is in: the first that speaks of it."""
    file, parts = outline(page.alignment.traced_text), module.path.split(".")
    for cut in range(len(parts) - 1, -1, -1):
        kind = module.type_of(".".join(parts[:cut]))
        for name in dict.fromkeys((".".join(parts[cut:]), parts[cut])):
            for each in file.mentions:
                if each.name == name and kind in file.kin(each.owner):
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


def _views(ls: Server, target: Mapping[str, str], part: str, titles: Mapping[str, str]) -> Iterator[str]:
    for command, title in titles.items():
        if command in ls.links:
            given = {**target, **({_PART[command]: part} if part and command in _PART else {})}
            yield f"[{title}](command:{command}?{quote(json.dumps([given]), safe='')})"


def _file_link(place: lsp.Location) -> str:
    """A file with the line that it opens at, as VS Code's Markdown has it: counted from 1."""
    start = place.range.start
    return f"{place.uri.replace('(', '%28').replace(')', '%29')}#L{start.line + 1},{start.character + 1}"
