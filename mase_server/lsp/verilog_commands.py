"""Commands for hardware. Each takes a map with `path` or `uri`, `model` if a file has several, and its own keys.

Any client can execute them. If a required key is missing, the user is asked, if the client can show questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.uris import from_fs_path

from mase_server.building import RESET_STYLES
from mase_server.lsp.calls import as_map, ask_person, call_api_with, model_of
from mase_server.lsp.hardware_texts import simulation_text
from mase_server.lsp.verilog import Place, Sheet, hardware_at, operations_on, python_of
from mase_server.protocol import answers
from mase_server.protocol.arguments import Argument
from mase_server.protocol.records import Answer
from mase_server.suggestions import suggest

if TYPE_CHECKING:
    from mase_server.lsp.server import Server


#: Maximum number of parts that are offered if the whole model is refused.
_OFFERED = 3
_OVERWRITE = "Overwrite"
#: Buttons of messages.
_OPEN, _OPEN_WAVE, _OPEN_PICTURE = "Open Folder", "Open Waveform", "Open Picture"


async def emit_verilog(ls: Server, given: Any = None) -> ShownEmission | None:
    """mase.emitVerilog {build?, scope?, show?}: emit and show.

    {"uri"} and the answer of `mase/emitVerilog` without text.

    The user is asked only for values that were never given; returns None if the user gives up.
    """
    target, asked = model_of(ls, given), as_map(given)
    known = await call_api_with(ls, "mase/verilog", target)
    build = await _determine_build(ls, target, asked, known)
    return None if build is None else await _emit_and_show(ls, target, build, asked.get("show") is not False)


async def build_form(ls: Server, params: Any) -> BuildForm:
    """mase/buildForm {uri or path, model?}: the form of a model's build, as of a pass."""
    return declare_build_form(await call_api_with(ls, "mase/verilog", model_of(ls, params)))


async def verilog_settings(ls: Server, given: Any = None) -> ShownEmission | None:
    """mase.verilogSettings {show?}: ask for the build again, and emit."""
    target = model_of(ls, given)
    build = await ask_for_build(ls, target, build_of_model(await call_api_with(ls, "mase/verilog", target)))
    return None if build is None else await _emit_and_show(ls, target, build, as_map(given).get("show") is not False)


async def simulate_verilog(ls: Server, given: Any = None) -> SimulationReport | None:
    """mase.simulateVerilog {vectors?, inputs?, stall?, wave?, show?}: the answer of `mase/simulate` with a summary."""
    target, asked = model_of(ls, given), as_map(given)
    wanted = {key: asked[key] for key in ("vectors", "inputs", "stall", "wave") if asked.get(key) is not None}
    told: answers.Simulation | None = await _run_with_progress(
        ls, target, f"Simulating {target['model']}", call_api_with(ls, "mase/simulate", {**target, **wanted})
    )
    if told is None:
        return None
    emission = ls.verilog.emission(Sheet(**target))
    emitted = None if emission is None or emission.stale else emission.told
    summary = simulation_text(target["model"], told, emitted)
    if asked.get("show") is not False:
        files = {_OPEN: told["folder"]}
        if told["wave"] is not None:
            files = {_OPEN_PICTURE: told["wave"]["picture"], _OPEN_WAVE: told["wave"]["file"], **files}
        ls.spawn(_show_files_message(ls, summary, files, told["status"] == "equal"))
    return {**told, "summary": summary}


async def record_waveform(ls: Server, given: Any = None) -> SimulationReport | None:
    """mase.recordWaveform {vectors?, inputs?, stall?, show?}: as `mase.simulateVerilog` with `wave`."""
    return await simulate_verilog(ls, {**as_map(given), "wave": True})


async def save_verilog(ls: Server, given: Any = None) -> answers.EmissionHead | None:
    """mase.saveVerilog {folder?, overwrite?, vectors?, inputs?, show?}: write a folder.

    Answers as `mase/emitVerilog`.
    """
    target, asked = model_of(ls, given), as_map(given)
    folder = asked.get("folder") or await _ask_for_folder(ls, target)
    if folder is None:
        return None
    wanted = {key: asked[key] for key in ("vectors", "inputs", "overwrite") if asked.get(key) is not None}
    order = {**target, **wanted, "folder": str(folder)}
    told = await _write_folder(ls, target, order)
    if told is not None and told["folder"] and asked.get("show") is not False:
        text = f"{len(told['files'])} files are in {told['folder']}"
        ls.spawn(_show_files_message(ls, text, {_OPEN: told["folder"]}, True))
    return None if told is None else _without_text(told)


async def close_verilog(ls: Server, given: Any = None) -> Any:
    """mase.closeVerilog: stop emitting and forget the build; returns whether there was any hardware."""
    return await call_api_with(ls, "mase/forgetVerilog", model_of(ls, given))


async def show_verilog_line(ls: Server, given: Any) -> Any:
    """mase.showVerilogLine {uri, position}: show the first hardware instance of a place in Python; {"uri", "range"}."""
    position = _position_from_params(given)
    path = ls.path_of(str(as_map(given)["uri"]))
    match = next(iter(hardware_at(ls, path, lsp.Range(position, position))), None)
    if match is None or not match.line_ranges():
        return None
    shown = await ls.contents.show(ls.verilog.uri(match.sheet), match.line_ranges()[0], focus=False)
    return {"uri": shown["uri"], "range": match.line_ranges()[0]}


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


async def _determine_build(
    ls: Server, target: Mapping[str, str], asked: Mapping[str, Any], known: Mapping[str, Any]
) -> BuildValues | None:
    """The build to use: as given, as remembered, or as the user answers now."""
    values = {
        **build_of_model(known),
        **({"scope": str(asked["scope"])} if asked.get("scope") is not None else {}),
    }
    if isinstance(asked.get("build"), Mapping):
        return {**values, **check_build_values(asked["build"])}
    return values if known.get("build") else await ask_for_build(ls, target, values)


async def _emit_and_show(
    ls: Server, target: Mapping[str, str], build: Mapping[str, Any], show: bool
) -> ShownEmission | None:
    """Emit, show the result, and offer parts if the whole model is refused."""
    work = call_api_with(ls, "mase/emitVerilog", {**target, "build": dict(build)})
    told = await _run_with_progress(ls, target, f"Emitting the Verilog of {target['model']}", work)
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
    elif (answer := await ask_person(ls, text, list(scopes), lsp.MessageType.Warning)) is not None:
        await emit_verilog(ls, {**target, "scope": scopes[answer]})


async def _write_folder(ls: Server, target: Mapping[str, str], order: Mapping[str, Any]) -> Any:
    """Write the folder; if it holds other files, the user decides."""
    title = f"Writing the Verilog of {target['model']}"
    try:
        return await _run_with_progress(ls, target, title, call_api_with(ls, "mase/emitVerilog", order))
    except JsonRpcException as error:
        if "overwrite" not in str(error) or order.get("overwrite"):
            raise
        if await ask_person(ls, str(error), [_OVERWRITE], lsp.MessageType.Warning) is None:
            return None
    return await _run_with_progress(
        ls, target, title, call_api_with(ls, "mase/emitVerilog", {**order, "overwrite": True})
    )


async def _run_with_progress(ls: Server, target: Mapping[str, str], title: str, work: Awaitable[Any]) -> Any:
    """Run `work` with progress that can cancel it; None if it was cancelled."""
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


async def _ask_for_folder(ls: Server, target: Mapping[str, str]) -> str | None:
    """Ask the user for a folder, for clients that cannot show a folder dialog."""
    home = Path(ls.folders.folder_of(target["path"]))
    name = "".join(letter if letter.isalnum() else "_" for letter in target["model"]).lower()
    places = [str(home / f"{name}_verilog"), str(home / "build" / name)]
    return await ask_person(ls, f"Which folder for the Verilog of {target['model']}?", places)


async def _show_files_message(ls: Server, text: str, files: Mapping[str, str], fine: bool) -> None:
    """Show a message with buttons that open files and folders, if the client opens such links."""
    kind = lsp.MessageType.Info if fine else lsp.MessageType.Warning
    if not ls.can("window", "show_document", "support"):
        ls.window_show_message(lsp.ShowMessageParams(kind, " · ".join([text, *files.values()])))
    elif (answer := await ask_person(ls, text, list(files), kind)) is not None:
        path = files[answer]
        await ls.window_show_document_async(lsp.ShowDocumentParams(from_fs_path(path) or path, external=True))


def _without_text(told: Answer) -> answers.EmissionHead:
    return cast("answers.EmissionHead", {key: value for key, value in told.items() if key != "text"})


def _python_places(ls: Server, asked: Mapping[str, Any]) -> list[Place]:
    sheet = ls.verilog.sheet(str(asked.get("uri")))
    emission = None if sheet is None else ls.verilog.emission(sheet)
    return (
        [] if emission is None else python_of(ls, emission, operations_on(emission, _position_from_params(asked).line))
    )


def _position_from_params(given: Any) -> lsp.Position:
    position = as_map(given).get("position")
    if not isinstance(position, Mapping):
        raise JsonRpcInvalidParams("name a place: {'uri': 'file:///...', 'position': {'line': 0, 'character': 0}}")
    return lsp.Position(int(position["line"]), int(position["character"]))


def _line_range(line: int) -> lsp.Range:
    return lsp.Range(lsp.Position(line - 1, 0), lsp.Position(line - 1, 0))


# The form of a build: the questions that a user answers once per model before hardware is made.

#: The name of this form, in the place of a pass's name.
FORM = "emitVerilog"
_PACE = "How fast should the hardware of {model} be?"
_EVERY = "One multiplier per layer"
_BUDGETS = (16, 64, 256, 1024)

ARGUMENTS = (
    Argument(
        "precision",
        "format",
        "the number format, unless the passes have given the model one",
        choices=("fixed(8,auto)", "fixed(6,auto)", "fixed(12,auto)", "fixed(16,auto)", "fixed(8,4)"),
    ),
    Argument(
        "data",
        "text",
        "the data that calibrates formats with `auto`: a file of tensors or a function; else the file's own inputs",
    ),
    Argument(
        "multipliers",
        "integer",
        "the maximum number; the design is as fast as they allow, with 0 of additions. Empty: one for each layer",
        minimum=0,
    ),
    Argument(
        "interval",
        "integer",
        "the maximum number of cycles from one sample to the next, with as few multipliers as possible",
        minimum=1,
    ),
    Argument(
        "copies",
        "integer",
        "at most so many copies that take samples in turn; 1 for the least memory. Empty: as many as use the budget",
        minimum=1,
    ),
    Argument(
        "max_multipliers", "integer", "the maximum number of multipliers; a larger design is only estimated", minimum=1
    ),
    Argument(
        "max_memory_bits", "integer", "the maximum number of memory bits; a larger design is only estimated", minimum=1
    ),
    Argument("target", "text", "the part that it has to fit, e.g. ecp5-85k, or sky130 for a chip; empty for any"),
    Argument("bus", "text", "axi (32 bits a beat) or axi64 to axi512 for a shell on a bus; empty for none"),
    Argument(
        "weights",
        "text",
        "axi to axi512 to read weights from a memory outside: with a target those that do not fit; empty: none",
    ),
    Argument("reset_style", "choice", "how the reset acts on registers", choices=RESET_STYLES),
    Argument("scope", "text", "the path of a module or the name of a node to build alone; empty for the whole model"),
)


#: The keys of a build with their values, or some of them.
BuildValues = dict[str, str | int | None]


class BuildForm(answers.Pass):
    """The form of a build, declared as a pass is. given: what the person gave before."""

    given: BuildValues


class ShownEmission(answers.EmissionHead):
    """The hardware of a model without its text, and the document that shows it."""

    uri: str


class SimulationReport(answers.Simulation):
    """The result of a simulation. summary: the same in words."""

    summary: str


def declare_build_form(known: Mapping[str, Any]) -> BuildForm:
    """The form in the shape of a pass (`Pass.to_wire`), and "given": the user's earlier answers.

    known: as in `mase/verilog`.
    """
    default, build = known.get("default") or {}, build_of_model(known)
    arguments: list[answers.PassArgument] = [
        {**each.to_wire(), "default": default.get(each.name) or None} for each in ARGUMENTS
    ]
    given = {name: value for name, value in build.items() if value != default.get(name)}
    about = "SystemVerilog that opens beside the source and follows every save."
    return {
        "name": FORM,
        "title": "Emit the Verilog of",
        "kind": "transform",
        "help": about,
        "mase": "",
        "source": "",
        "arguments": arguments,
        "others": None,
        "needs": [],
        "selects": False,
        "menu": False,
        "given": given,
    }


def build_of_model(known: Mapping[str, Any]) -> BuildValues:
    """The build of a model as in `mase/verilog`: the remembered one, else that of the settings."""
    build = known.get("build") or known.get("default") or {}
    # The server finds the part by its name.
    return {name: value for name, value in build.items() if name != "part"}


def check_build_values(given: Mapping[str, Any]) -> BuildValues:
    """The values of a build, given as values or as texts; None for fields that a form leaves empty.

    JsonRpcInvalidParams says which value does not fit.
    """
    arguments = {each.name: each for each in ARGUMENTS}
    if unknown := sorted(set(given) - set(arguments)):
        raise JsonRpcInvalidParams(f"a build has no {', '.join(unknown)}{suggest(unknown[0], arguments, 'it has')}")
    try:
        values = {name: arguments[name].value(value) for name, value in given.items()}
    except ValueError as error:
        raise JsonRpcInvalidParams(str(error)) from error
    return {name: "" if arguments[name].kind == "text" and value is None else value for name, value in values.items()}


async def ask_for_build(ls: Server, target: Mapping[str, str], values: BuildValues) -> BuildValues | None:
    """Ask for a build by two questions, for clients without a form; None if the user gives up.

    The format is asked only if the model's passes leave it open.
    """
    build = dict(values)
    pipeline = await call_api_with(ls, "mase/pipeline", target)
    if not any(step.startswith("quantize") for step in pipeline.get("steps", ())):
        precision = str(build["precision"])
        formats = [precision, *(each for each in ARGUMENTS[0].choices if each != precision)]
        answer = await ask_person(ls, f"Which number format for the hardware of {target['model']}?", formats)
        if answer is None:
            return None
        build["precision"] = answer
    budgets: dict[str, int | None] = {_EVERY: None, **{f"At most {number} multipliers": number for number in _BUDGETS}}
    answer = await ask_person(ls, _PACE.format(model=target["model"]), list(budgets))
    return None if answer is None else {**build, "multipliers": budgets[answer], "interval": None}
