"""Commands and custom requests, the start and end of a session, and the socket for other tools."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from mase_server.daemon.api import API
from mase_server.daemon.api_costs import row_ids
from mase_server.daemon.api_graphs import rows_of
from mase_server.daemon.pipelines import PassError
from mase_server.daemon.slots import Slices
from mase_server.daemon.unsaved import EDITOR
from mase_server.lsp import verilog_commands
from mase_server.lsp.assumptions import on_lines
from mase_server.lsp.calls import answers_for_argument, as_map, ask_person, call_api, call_api_with, model_of
from mase_server.lsp.contents import Graph
from mase_server.lsp.links import link_commands
from mase_server.lsp.outline import prepare_outline
from mase_server.lsp.pass_actions import applicable_passes
from mase_server.lsp.targets import rows_meant_by, target_in_model
from mase_server.lsp.text import Encoding, from_units
from mase_server.protocol import answers
from mase_server.protocol.arguments import Argument
from mase_server.protocol.records import Params, Plain, SourcePlace
from mase_server.rpc.dispatch import Front
from mase_server.rpc.listening import Listening
from mase_server.visible import reveal

if TYPE_CHECKING:
    from mase_server.daemon.store import GraphSnapshot
    from mase_server.lsp.page import Page
    from mase_server.lsp.server import Server


#: The choice that shows every model again.
ALL_ROOTS = "All of them"

Handler = Callable[..., Awaitable[Any]]


async def retrace_files(ls: Server, *uris: Any) -> None:
    """mase.retrace: trace the files of these URIs again, all open ones if none is given."""
    for path in [ls.path_of(str(uri)) for uri in uris] or ls.documents.paths():
        ls.daemon.retrace(path)


async def restart_folder_workers(ls: Server, *folders: Any) -> None:
    """mase.restart: start the workers of these folders anew, of all folders if none is given."""
    for folder in tuple(ls.path_of(str(uri)) for uri in folders) or (None,):
        ls.daemon.environment_changed(folder)


async def pick_root(ls: Server, uri: Any, root: Any = None) -> None:
    """mase.pickRoot: show one model alone in the file of a URI: the given one, all for "", else ask which."""
    path = ls.path_of(str(uri))
    if root is None:
        ls.spawn(_ask_for_root(ls, path))
    else:
        ls.daemon.pick(path, str(root) or None)


async def _ask_for_root(ls: Server, path: str) -> None:
    view = ls.daemon.store.view(path)
    roots = [model.title for model in view.roots()] if view is not None else []
    question = f"Several models show shapes in {reveal(Path(path).name)}. Which one should be shown?"
    answer = await ask_person(ls, question, [*roots, ALL_ROOTS])
    if answer is not None:
        ls.daemon.pick(path, answer if answer in roots else None)


def custom_requests() -> list[tuple[str, Handler]]:
    """Every API method as a request of the editor's protocol."""
    return [(method.name, _serve_api_method(method.name)) for method in API]


def _serve_api_method(method: str) -> Handler:
    async def handler(ls: Server, params: Any) -> Any:
        return await call_api_with(ls, method, _params_for_api(ls, params))

    return handler


def _params_for_api(ls: Server, params: Any) -> Params:
    """Translate the protocol's `uri` and `position` to the API's `path`, `line` and `column` in the traced text."""
    given = dict(params) if isinstance(params, dict) else {}
    document = given.pop("textDocument", None)
    uri = given.pop("uri", None) or (document or {}).get("uri")
    if uri is not None:
        given["path"] = ls.path_of(str(uri))
    position = given.pop("position", None)
    page = None if uri is None else ls.page(str(uri))
    if position is not None:
        traced = page.alignment.traced_line(position["line"]) if page else None
        text = page.document.text.line(position["line"]) if page else ""
        given["line"] = 0 if traced is None else traced + 1
        given["column"] = from_units(text, position["character"], ls.encoding)
    return given


# Requests of pages that show a model: the present place of a traced one, and the rows under the cursor.

_PLACE = ("line", "column", "end_line", "end_column")
#: Nodes that are processed before other requests get a turn.
_ROWS_AT_ONCE = 2000


class PresentPlace(TypedDict):
    """A place of the traced text in the present one."""

    uri: str
    range: lsp.Range


class NodesAt(TypedDict):
    """The nodes of a model at a place, by their "row". sha256: of the text that the graph was traced from."""

    rows: list[int]
    sha256: str


class CostRowsAt(TypedDict):
    """The rows of a cost table at a place. sha256: of the text that the table is of."""

    ids: list[str]
    sha256: str


class AppliedPass(answers.Pipeline):
    """The passes on a model after one more. info: the result of that pass, in words."""

    info: str


class ComparedGraphs(TypedDict):
    """The documents of the graphs of a model, without and with its passes."""

    path: str
    model: str
    original: str
    transformed: str


class CheckedArgument(TypedDict, total=False):
    """The value that the text of an argument stands for, or the reason why it has none."""

    value: Plain
    problem: str


async def present_place(ls: Server, params: Any) -> PresentPlace | None:
    """mase/presentPlace {path, line, column, end_line, end_column}: {"uri", "range"} of a place in the traced text.

    Lines from 1, columns from 0 in code points, as in API functions; "range" is in the present text.  None if one of
    its lines was edited since, or the file cannot be read.
    """
    path = str(params["path"])
    line, column, end_line, end_column = (int(params[key]) for key in _PLACE)
    traced: SourcePlace = {
        "file": path, "line": line, "column": column, "end_line": end_line, "end_column": end_column,
    }  # fmt: skip
    view = ls.daemon.store.view(path)
    page = None if view is None else ls.page_at(path, view.sha256)
    place = ls.place_in(traced) if page is None else page.place_of(traced)
    return None if place is None else {"uri": ls.uri_of(path), "range": place}


async def nodes_at(ls: Server, params: Any) -> NodesAt:
    """mase/nodesAt {uri, position, path, model}: the nodes of a model under the cursor, by their "row".

    {"rows", "sha256"}: the cursor selects the same things as for passes: a class's modules, a layer, an operation, or
    the whole line.  sha256: of the text that the graph of `path` was traced from, "" if there is none.
    """
    asked, rows = _resolve_asked_place(ls, params), list[int]()
    if asked is None:
        return {"rows": rows, "sha256": ""}
    if asked.page is not None:
        await prepare_outline(asked.page.python)
    target = None if asked.page is None else target_in_model(asked.page, asked.here, asked.snapshot, asked.model)
    own, slices = () if target is None else rows_of(asked.snapshot, asked.model, None), Slices()
    for start in range(0, len(own), _ROWS_AT_ONCE):
        assert target is not None
        rows += rows_meant_by(asked.snapshot, own[start : start + _ROWS_AT_ONCE], target.only)
        await slices.pause()
    return {"rows": rows, "sha256": asked.snapshot.sha256}


async def cost_rows_at(ls: Server, params: Any) -> CostRowsAt:
    """mase/costRowsAt {uri, position, path, model}: {"ids", "sha256"} of the rows of `mase/costTable` at the cursor.

    The cursor selects the same things as for passes; the name of the model's class selects the whole model.  sha256:
    of the text that the table belongs to, "" if there is none.
    """
    asked = _resolve_asked_place(ls, params)
    if asked is None:
        return {"ids": [], "sha256": ""}
    ids = [] if asked.page is None else await _cost_rows(asked, asked.page)
    return {"ids": ids, "sha256": asked.snapshot.sha256}


async def _cost_rows(asked: _Asked, page: Page) -> list[str]:
    whole = asked.snapshot.all_models()[asked.model]
    at = page.range(whole)
    if whole.path == page.document.path and at is not None and on_lines(at, asked.here):
        return [""]
    await prepare_outline(page.python)
    target = target_in_model(page, asked.here, asked.snapshot, asked.model)
    return [] if target is None else await row_ids(asked.snapshot, asked.model, target.only)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A cursor and a model. page: the page of the cursor's file; None if the traced text is not known."""

    snapshot: GraphSnapshot
    model: int
    page: Page | None
    here: lsp.Range


def _resolve_asked_place(ls: Server, params: Any) -> _Asked | None:
    """Resolve {uri, position, path, model}; None if there is no such model."""
    snapshot, title = ls.daemon.store.snapshot(str(params["path"])), params["model"]
    if snapshot is None or title not in snapshot.titles:
        return None
    path, position = ls.path_of(str(params["uri"])), lsp.Position(**params["position"])
    page = ls.page_at(path, snapshot.sha256_of(path) or "")
    return _Asked(snapshot, snapshot.titles.index(title), page, lsp.Range(position, position))


# The start and end of a session.


async def initialize(ls: Server, params: lsp.InitializeParams) -> None:
    """initialize: pygls answers; this handler reads the client's options."""
    offered = params.capabilities.general and params.capabilities.general.position_encodings
    ls.encoding = Encoding(str(offered[0])) if offered else Encoding.UTF16
    ls.links = link_commands(params.initialization_options)
    ls.folders.initialize(params)
    ls.watch_client(params.process_id)


async def initialized(ls: Server, params: lsp.InitializedParams) -> None:
    """initialized: start the daemon and request the settings."""
    ls.initialized = True
    await ls.daemon.start()
    if ls.tools is not None:
        ls.spawn(ls.tools.start())
    await ls.folders.pull()


async def shutdown(ls: Server, params: None) -> None:
    """shutdown: end every worker before the answer, so that the editor may end this process at once."""
    await ls.stop()


async def exit_session(ls: Server, params: None) -> None:
    """exit: the exit status tells whether shutdown was requested before."""
    ls.end(0 if ls.stopped else 1)


# Commands for passes. Each takes a map with `path` or `uri`, `model` if a file has several, and its own keys.
#
# Any client can execute them. If a required key is missing, the user is asked, if the client can show questions.

_UNDO, _REDO, _RESET, _COMPARE = "Undo", "Redo", "Remove all", "Compare with the original"
_REQUESTS = {_UNDO: "mase/undoPass", _REDO: "mase/redoPass", _RESET: "mase/resetPasses"}


async def apply_pass(ls: Server, given: Any = None) -> AppliedPass | None:
    """mase.applyPass {pass, arguments?, only?}: as `mase/applyPass`, plus "info", its result.

    None if the user gave up.
    """
    target, asked = model_of(ls, given), as_map(given)
    declared = await _find_declared_pass(ls, target, asked.get("pass"))
    arguments = {**(asked.get("arguments") or {}), **({"only": list(asked["only"])} if asked.get("only") else {})}
    for argument in map(Argument.from_wire, declared["arguments"]):
        if argument.required and arguments.get(argument.name) is None:
            answer = await ask_person(ls, f"{declared['title']}: {argument.help}", answers_for_argument(argument))
            if answer is None:
                return None
            arguments[argument.name] = argument.value(answer)
    running = asyncio.ensure_future(
        call_api(ls, "mase/applyPass", **target, **{"pass": declared["name"]}, arguments=arguments)
    )
    ls.listener.pass_begins(target["path"], target["model"], f"{declared['title']}: {target['model']}", running.cancel)
    try:
        pipeline: answers.Pipeline = await running
        return {**pipeline, "info": _last_pass_info(ls, **target)}
    except asyncio.CancelledError:
        return None
    finally:
        ls.listener.pass_ended(target["path"], target["model"])


def _last_pass_info(ls: Server, path: str, model: str) -> str:
    """The result of the last pass on a model, in words."""
    shown = ls.daemon.store.snapshot(path)
    if shown is None or model not in shown.titles:
        return ""
    transform = shown.transforms.get(shown.titles.index(model))
    steps = transform.told["steps"] if transform is not None else ()
    return str(steps[-1].get("info") or "") if steps else ""


async def choose_pass(ls: Server, given: Any = None) -> Any:
    """mase.choosePass {only?}: ask the user for a pass, and apply it."""
    target, asked = model_of(ls, given), as_map(given)
    only = asked.get("only") or ()
    passes = applicable_passes(await _wait_for_passes(ls, **target, only=only), only)
    name = await ask_person(
        ls, f"Which pass for {asked.get('name') or target['model']}?", [each["name"] for each in passes]
    )
    return None if name is None else await apply_pass(ls, {**asked, **target, "pass": name})


async def undo_pass(ls: Server, given: Any = None) -> Any:
    """mase.undoPass: take back the last pass."""
    return await call_api_with(ls, "mase/undoPass", model_of(ls, given))


async def redo_pass(ls: Server, given: Any = None) -> Any:
    """mase.redoPass: apply the pass again that was taken back last."""
    return await call_api_with(ls, "mase/redoPass", model_of(ls, given))


async def reset_passes(ls: Server, given: Any = None) -> Any:
    """mase.resetPasses: take back all passes."""
    return await call_api_with(ls, "mase/resetPasses", model_of(ls, given))


async def show_pipeline(ls: Server, given: Any = None) -> Any:
    """mase.pipeline: show the passes of a model and the possible actions; returns the answer of `mase/pipeline`."""
    target = model_of(ls, given)
    known = await call_api_with(ls, "mase/pipeline", target)
    steps = "; ".join(f"{number}. {step}" for number, step in enumerate(known["steps"], 1)) or "none"
    possible = {_UNDO: known["steps"], _REDO: known["undone"], _RESET: known["steps"], _COMPARE: known["steps"]}
    choice = await ask_person(
        ls, f"Passes on {target['model']}: {steps}", [name for name, those in possible.items() if those]
    )
    if choice == _COMPARE:
        await ls.graphs.show_difference(**target)
    elif choice is not None:
        return await call_api_with(ls, _REQUESTS[choice], target)
    return known


async def show_transformed(ls: Server, given: Any = None) -> Any:
    """mase.showTransformed {original?, show?}: {"uri", "text"} of the graph as Python, shown unless `show` is false."""
    graph = Graph(**model_of(ls, given), original=bool(as_map(given).get("original")))
    if as_map(given).get("show") is False:
        return {"uri": ls.graphs.uri(graph)}
    return await ls.contents.show(ls.graphs.uri(graph))


async def compare_graphs(ls: Server, given: Any = None) -> ComparedGraphs | Any:
    """mase.compare {show?}: show a diff, {"uri", "text"}; if `show` is false, return the URIs of both documents."""
    target = model_of(ls, given)
    if as_map(given).get("show") is False:
        original, transformed = (ls.graphs.uri(Graph(**target, original=original)) for original in (True, False))
        return ComparedGraphs(path=target["path"], model=target["model"], original=original, transformed=transformed)
    return await ls.graphs.show_difference(**target)


async def write_pipeline(ls: Server, given: Any = None) -> Any:
    """mase.writePipeline: show and return the setting `mase.pipelines` that holds the passes on a file's models."""
    form = await call_api(ls, "mase/pipelineSettings", path=model_of(ls, given)["path"])
    if as_map(given).get("show") is not False:
        text = f'To keep these passes, put into the settings: "mase.pipelines": {json.dumps(form)}'
        ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, text))
    return form


async def check_argument(ls: Server, params: Any) -> CheckedArgument:
    """mase/checkArgument {uri, pass, argument, value}: {"value": the parsed value}, or {"problem": text}."""
    asked = as_map(params)
    declared = await _find_declared_pass(ls, model_of(ls, params), asked.get("pass"))
    known = {each["name"]: each for each in declared["arguments"]}
    argument = known.get(str(asked.get("argument")), declared["others"])
    if argument is None:
        raise JsonRpcInvalidParams(f"{declared['name']} has no argument {asked.get('argument')!r}")
    try:
        return {"value": Argument.from_wire(argument).value(asked.get("value"))}
    except ValueError as error:
        return {"problem": str(error)}


async def _wait_for_passes(
    ls: Server, path: str, model: str | None = None, only: Sequence[str] = ()
) -> Sequence[Mapping[str, Any]]:
    """Every available pass. Shapes arrive a little before the list of passes, so early requests wait for the list."""
    whose = {} if model is None else {"model": model, "only": list(only)}
    known: Sequence[Mapping[str, Any]] = await call_api(ls, "mase/passes", path=path, **whose)
    if known:
        return known
    try:
        return await ls.daemon.passes.refresh(path)
    except PassError as error:
        raise JsonRpcInvalidParams(str(error)) from error


async def _find_declared_pass(ls: Server, target: Mapping[str, str], name: Any) -> Mapping[str, Any]:
    if name == verilog_commands.FORM:
        return verilog_commands.declare_build_form({})
    passes = await _wait_for_passes(ls, target["path"])
    found: Mapping[str, Any] | None = next((each for each in passes if name in (each["name"], each["mase"])), None)
    if found is None:
        told = ", ".join(each["name"] for each in passes) or "none yet: the file is being traced"
        raise JsonRpcInvalidParams(f"there is no pass {name!r}; there are {told}")
    return found


# Other tools beside the editor: the same daemon answers them over a socket, with the same graphs.

_LOG = logging.getLogger(__name__)


class Tools:
    """The socket of one editor's server. If it cannot be made, the editor is served all the same."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening: Listening | None = None
        self._stopped = False

    async def start(self) -> None:
        """Listen, and register for the workspace's folders, so that tools find this server."""
        listening = Listening(Front(self._server.daemon))
        try:
            await listening.start()
        except (OSError, ValueError) as error:
            _LOG.warning("other tools cannot connect: %s", error)
            await listening.close()
            return
        if self._stopped:
            await listening.close()
            return
        self._listening = listening
        await self.follow()

    async def follow(self) -> None:
        """Register for the present folders, and for those of open files that are in none of them."""
        if self._listening is not None:
            own = [each.folder for each in self._server.daemon.files() if EDITOR in each.openers]
            folders = dict.fromkeys((*self._server.folders.paths(), *own))
            await self._listening.register(list(folders), "editor")

    async def stop(self) -> None:
        """End every connection."""
        self._stopped = True
        if self._listening is not None:
            await self._listening.close()
            self._listening = None
