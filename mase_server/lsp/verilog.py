"""Read-only documents of the hardware of models: `mase-verilog:` URIs, whose text follows saves and passes."""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from mase_server.components import rtl_folder
from mase_server.lsp.contents import file_name
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.emissions import Emission
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
    """The hardware as documents; see `contents.Source`. Their lines are those of what was emitted."""

    scheme = SCHEME

    def __init__(self, server: Server) -> None:
        self._server = server

    def uri(self, sheet: Sheet) -> str:
        """Its URI; it ends in .sv, so that editors know its language."""
        file = self._server.uri_of(sheet.path).removeprefix("file:")
        inside = f"/rtl/{sheet.component}" if sheet.component else ""
        return f"{SCHEME}:{file}/{quote(sheet.model, safe='')}{inside}.sv"

    def sheet(self, uri: str) -> Sheet | None:
        """The inverse of `uri`, whatever a client escapes, also for a file that holds the document; else None."""
        document = self._server.contents.document(uri)
        found = _COMPONENT.fullmatch(document) or _TOP.fullmatch(document)
        if found is None:
            return None
        path = self._server.path_of(f"file:{found['file']}")
        return Sheet(path, unquote(found["model"]), found.groupdict().get("component") or "")

    def emission(self, sheet: Sheet) -> Emission | None:
        """What was last emitted of its model."""
        return self._server.daemon.verilog.emission(sheet.path, sheet.model)

    def trouble(self, sheet: Sheet) -> str:
        """Why a document is of an older text than the file's, and stays so; "" where it is not, or is being made."""
        emission = self.emission(sheet)
        if emission is None or not emission.stale:
            return ""
        if self._server.daemon.store.entry(sheet.path).stale:
            return f"{Path(sheet.path).name} cannot be traced now"
        return _line(emission.problem).rstrip(".")

    def path(self, uri: str) -> str | None:
        """The model file of a document."""
        sheet = self.sheet(uri)
        return None if sheet is None else sheet.path

    def file(self, uri: str) -> str:
        """The name of a file that holds it: models of one name in several files have several folders."""
        sheet = self.sheet(uri)
        assert sheet is not None
        folder = f"{Path(sheet.path).stem}-{hashlib.sha256(sheet.path.encode()).hexdigest()[:8]}"
        inside = f"/rtl/{sheet.component}" if sheet.component else ""
        return f"{folder}/{file_name(sheet.model)}{inside}.sv"

    def state(self, uri: str) -> Any:
        """What decides a document's text."""
        sheet = self.sheet(uri)
        return None if sheet is None or sheet.component else self._top(sheet)

    async def text(self, uri: str) -> str:
        """SystemVerilog, or a comment that says why there is none."""
        sheet = self.sheet(uri)
        if sheet is None:
            return f"// {uri} names no hardware.\n"
        return await asyncio.to_thread(component_text, sheet.component) if sheet.component else self._top(sheet)

    def _top(self, sheet: Sheet) -> str:
        emission = self.emission(sheet)
        if emission is None:
            return f"// There is no hardware of {reveal(sheet.model)}: nothing was emitted, or it was closed.\n"
        text = str(emission.told["text"])
        if not text:
            why = emission.told["refusal"] or "nothing in it has hardware"
            return f"// Nothing was emitted of {reveal(sheet.model)}: {_line(why)}\n"
        # Within the first line: no line may move, since what is highlighted is told by lines.
        if (trouble := self.trouble(sheet)) and text.startswith(_COMMENT):
            return f"{_COMMENT}STALE, {trouble}: {text.removeprefix(_COMMENT)}"
        return text


def component_text(name: str) -> str:
    """The source of a component, or a comment that says that there is none of that name."""
    file = rtl_folder() / f"{name}.sv"
    return file.read_text(encoding="utf-8") if file.exists() else f"// There is no component {name}.\n"


def _line(text: object) -> str:
    return reveal(" ".join(str(text).split()))
