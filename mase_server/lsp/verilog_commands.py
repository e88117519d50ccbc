"""Commands around hardware. Each takes one map: `path` or `uri`, `model` where a file has several, and what it says.

Any client can have them executed. What is needed and was not given is asked, where the client shows questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.uris import from_fs_path

from mase_server.lsp import builds
from mase_server.lsp.asking import as_map, ask
from mase_server.lsp.calls import called, model_of
from mase_server.lsp.hardware_texts import simulation_text
from mase_server.lsp.source_map import Place, hardware_at, operations_on, python_of
from mase_server.lsp.verilog import Sheet

if TYPE_CHECKING:
    from mase_server.lsp.server import Server

#: Most parts that are offered where the whole is refused.
_OFFERED = 3
_OVERWRITE = "Overwrite"
_OPEN = "Open Folder"


async def emit_verilog(ls: Server, given: Any = None) -> Any:
    """mase.emitVerilog {build?, scope?, show?}: emit and show; {"uri"} and what `mase/emitVerilog` tells, without text.

    Asked is only for what was neither given nor answered before; None where the person gave up.
    """
    target, asked = model_of(ls, given), as_map(given)
    known = await called(ls, "mase/verilog", target)
    build = await _build(ls, target, asked, known)
    return None if build is None else await _emitted(ls, target, build, asked.get("show") is not False)


async def build_form(ls: Server, params: Any) -> dict[str, Any]:
    """mase/buildForm {uri or path, model?}: the form of a model's build, as `builds.declared` has it."""
    return builds.declared(await called(ls, "mase/verilog", model_of(ls, params)))


async def verilog_settings(ls: Server, given: Any = None) -> Any:
    """mase.verilogSettings {show?}: ask for the build again, and emit."""
    target = model_of(ls, given)
    build = await builds.asked(ls, target, builds.of(await called(ls, "mase/verilog", target)))
    return None if build is None else await _emitted(ls, target, build, as_map(given).get("show") is not False)


async def simulate_verilog(ls: Server, given: Any = None) -> Any:
    """mase.simulateVerilog {vectors?, inputs?, stall?, show?}: what `mase/simulate` tells, and "summary", in words."""
    target, asked = model_of(ls, given), as_map(given)
    wanted = {key: asked[key] for key in ("vectors", "inputs", "stall") if asked.get(key) is not None}
    told = await _cancellable(
        ls, target, f"Simulating {target['model']}", called(ls, "mase/simulate", {**target, **wanted})
    )
    if told is None:
        return None
    emission = ls.verilog.emission(Sheet(**target))
    emitted = None if emission is None or emission.stale else emission.told
    summary = simulation_text(target["model"], told, emitted)
    if asked.get("show") is not False:
        ls.spawn(_tell(ls, summary, told["folder"], told["status"] == "equal"))
    return {**told, "summary": summary}


async def save_verilog(ls: Server, given: Any = None) -> Any:
    """mase.saveVerilog {folder?, overwrite?, vectors?, inputs?, show?}: write a folder; as `mase/emitVerilog`."""
    target, asked = model_of(ls, given), as_map(given)
    folder = asked.get("folder") or await _folder(ls, target)
    if folder is None:
        return None
    wanted = {key: asked[key] for key in ("vectors", "inputs", "overwrite") if asked.get(key) is not None}
    order = {**target, **wanted, "folder": str(folder)}
    told = await _written(ls, target, order)
    if told is not None and told["folder"] and asked.get("show") is not False:
        ls.spawn(_tell(ls, f"{len(told['files'])} files are in {told['folder']}", told["folder"], True))
    return None if told is None else _without_text(told)


async def close_verilog(ls: Server, given: Any = None) -> Any:
    """mase.closeVerilog: follow the model's text no longer, and forget what was asked for; was there anything?"""
    return await called(ls, "mase/forgetVerilog", model_of(ls, given))


async def show_verilog_line(ls: Server, given: Any) -> Any:
    """mase.showVerilogLine {uri, position}: show the first instance of what is there in Python; {"uri", "range"}."""
    position = _position(given)
    path = ls.path_of(str(as_map(given)["uri"]))
    match = next(iter(hardware_at(ls, path, lsp.Range(position, position))), None)
    if match is None or not match.ranges():
        return None
    shown = await ls.contents.show(ls.verilog.uri(match.sheet), match.ranges()[0], focus=False)
    return {"uri": shown["uri"], "range": match.ranges()[0]}


async def show_python_line(ls: Server, given: Any) -> Any:
    """mase.showPythonLine {uri, position} in the hardware, or {path, line}: show its Python; {"uri", "range"}."""
    asked = as_map(given)
    places = [(str(asked["path"]), _line_range(asked["line"]))] if "line" in asked else _python_places(ls, asked)
    if not places:
        return None
    path, place = places[0]
    if ls.can("window", "show_document", "support"):
        params = lsp.ShowDocumentParams(ls.uri_of(path), take_focus=True, selection=place)
        await ls.window_show_document_async(params)
    return {"uri": ls.uri_of(path), "range": place}


async def _build(
    ls: Server, target: Mapping[str, str], asked: Mapping[str, Any], known: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The build that is meant: as given, as remembered, or as the person answers now."""
    values = {**builds.of(known), **({"scope": str(asked["scope"])} if asked.get("scope") is not None else {})}
    if isinstance(asked.get("build"), Mapping):
        return {**values, **builds.checked(asked["build"])}
    return values if known.get("build") else await builds.asked(ls, target, values)


async def _emitted(ls: Server, target: Mapping[str, str], build: Mapping[str, Any], show: bool) -> Any:
    """Emit, show, and offer parts where the whole is refused."""
    work = called(ls, "mase/emitVerilog", {**target, "build": dict(build)})
    told = await _cancellable(ls, target, f"Emitting the Verilog of {target['model']}", work)
    if told is None:
        return None
    uri = ls.verilog.uri(Sheet(**target))
    if told["refusal"]:
        ls.spawn(_offer_parts(ls, target, told))
    elif show:
        uri = (await ls.contents.show(uri, focus=False))["uri"]
    return {"uri": uri, **_without_text(told)}


async def _offer_parts(ls: Server, target: Mapping[str, str], told: Mapping[str, Any]) -> None:
    scopes = {f"Build {scope}": scope for scope in told["scopes"][:_OFFERED]}
    text = f"{target['model']}: {told['refusal']}"
    if not scopes:
        ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, text))
    elif (answer := await ask(ls, text, list(scopes), lsp.MessageType.Warning)) is not None:
        await emit_verilog(ls, {**target, "scope": scopes[answer]})


async def _written(ls: Server, target: Mapping[str, str], order: Mapping[str, Any]) -> Any:
    """Write the folder; where it holds something else, the person decides."""
    title = f"Writing the Verilog of {target['model']}"
    try:
        return await _cancellable(ls, target, title, called(ls, "mase/emitVerilog", order))
    except JsonRpcException as error:
        if "overwrite" not in str(error) or order.get("overwrite"):
            raise
        if await ask(ls, str(error), [_OVERWRITE], lsp.MessageType.Warning) is None:
            return None
    return await _cancellable(ls, target, title, called(ls, "mase/emitVerilog", {**order, "overwrite": True}))


async def _cancellable(ls: Server, target: Mapping[str, str], title: str, work: Awaitable[Any]) -> Any:
    """Do it with progress that can cancel it; None where that happened."""
    running = asyncio.ensure_future(work)
    ls.listener.verilog_begins(target["path"], target["model"], title, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        if not running.cancelled():
            running.cancel()
            raise
        return None
    finally:
        ls.listener.verilog_ended(target["path"], target["model"])


async def _folder(ls: Server, target: Mapping[str, str]) -> str | None:
    """Where the person wants it, for clients that cannot ask for a folder."""
    home = Path(ls.folders.folder_of(target["path"]))
    name = "".join(letter if letter.isalnum() else "_" for letter in target["model"]).lower()
    places = [str(home / f"{name}_verilog"), str(home / "build" / name)]
    return await ask(ls, f"Into which folder goes the Verilog of {target['model']}?", places)


async def _tell(ls: Server, text: str, folder: str, fine: bool) -> None:
    """A message with a link to a folder, where the client opens such links."""
    kind = lsp.MessageType.Info if fine else lsp.MessageType.Warning
    if not ls.can("window", "show_document", "support"):
        ls.window_show_message(lsp.ShowMessageParams(kind, f"{text} · {folder}"))
    elif await ask(ls, text, [_OPEN], kind) is not None:
        await ls.window_show_document_async(lsp.ShowDocumentParams(from_fs_path(folder) or folder, external=True))


def _without_text(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key != "text"}


def _python_places(ls: Server, asked: Mapping[str, Any]) -> list[Place]:
    sheet = ls.verilog.sheet(str(asked.get("uri")))
    emission = None if sheet is None else ls.verilog.emission(sheet)
    return [] if emission is None else python_of(ls, emission, operations_on(emission, _position(asked).line))


def _position(given: Any) -> lsp.Position:
    position = as_map(given).get("position")
    if not isinstance(position, Mapping):
        raise JsonRpcInvalidParams("name a place: {'uri': 'file:///...', 'position': {'line': 0, 'character': 0}}")
    return lsp.Position(int(position["line"]), int(position["character"]))


def _line_range(line: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line - 1, 0), lsp.Position(line - 1, 0))
