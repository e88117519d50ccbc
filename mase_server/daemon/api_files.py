"""API functions on files: open and close them, report the state of their traces, and choose their inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params
from mase_server.daemon.unsaved import EDITOR
from mase_server.protocol import answers
from mase_server.protocol.request import TraceOptions
from mase_server.reading import is_file

if TYPE_CHECKING:
    from mase_server.daemon.tracked import Tracked


def tracked_of(api: Api, path: str) -> Tracked:
    """The daemon's record of a model file; ApiError `not-open` if it was never opened."""
    if (found := api.daemon.file(path)) is None:
        raise not_open(path)
    return found


def not_open(path: str) -> ApiError:
    """The error for a question about a file that no client has open."""
    return ApiError("not-open", f"{path} is not open: open it with mase/open first", {"path": path})


def is_open(api: Api, path: str) -> bool:
    """Does a client have the file `path` open, or a model file whose trace covers it?"""
    own = api.daemon.file(path)
    if own is not None and own.open:
        return True
    return any(path in api.daemon.store.entry(each.path).paths() for each in api.daemon.files() if each.open)


async def open_file(api: Api, params: Params) -> answers.FileStatus:
    """Open the model file `path` until `mase/close` or the end of the connection: it is traced now and at every save.

    Returns its status, as `mase/status` has it, once that trace has ended, or at once if `wait` is false.  model,
    inputs: as in `mase/setInputs`.  text: what is traced in place of the file, which need not exist, until the file is
    closed or opened without a text. An editor's text cannot be replaced.
    """
    path, text = params["path"], params.get("text")
    if text is None and not is_file(path):
        raise ApiError("not-found", f"there is no file {path}", {"path": path})
    if text is not None and not (folder := Path(path).parent).is_dir():
        raise ApiError("not-found", f"there is no folder {folder}", {"path": path})
    found, who = api.daemon.file(path), get_opener_name(api, path)
    if text is not None and found is not None and EDITOR in found.openers - {who}:
        raise ApiError("in-editor", f"an editor has {path} open: its text is the one that is traced", {"path": path})
    if text is not None:
        api.daemon.use_text(path, text.encode("utf-8", "surrogatepass"), who)
    elif api.session is not None:
        api.daemon.forget_text(path, by=who)
    given = {key: params[key] for key in ("model", "inputs") if key in params}
    api.daemon.opened(path, _merge_options(TraceOptions(), given) if given else None, by=who)
    if params.get("wait", True):
        return {**(await api.daemon.wait(path)).to_wire()}
    return await get_status(api, params)


def get_opener_name(api: Api, path: str) -> str:
    """The name under which the asking front opens files; a connection closes its files when it ends."""
    if api.session is None:
        return EDITOR
    api.session.opened.add(path)
    return api.session.ident


async def close_file(api: Api, params: Params) -> answers.Closed:
    """Close a file: {"path", "open": does another client have it open?}. Its trace is kept for a while."""
    path = params["path"]
    found = tracked_of(api, path)
    who = EDITOR if api.session is None else api.session.ident
    if who not in found.openers:
        raise ApiError("not-open", f"{path} was not opened by this connection", {"path": path})
    if api.session is not None:
        api.session.opened.discard(path)
    api.daemon.closed(path, by=who)
    return {"path": path, "open": found.open}


async def list_files(api: Api, params: Params) -> list[answers.File]:
    """Every file that is or was open: {"path", "folder", "open", "status"} each."""
    return [
        {
            "path": each.path,
            "folder": each.folder,
            "open": each.open,
            "status": None if each.status is None else each.status.to_wire(),
        }
        for each in api.daemon.files()
    ]


async def get_status(api: Api, params: Params) -> answers.FileStatus:
    """The state of the newest trace of the file `path`; {} before it begins."""
    found = tracked_of(api, params["path"])
    return {} if found.status is None else {**found.status.to_wire()}


async def list_inputs(api: Api, params: Params) -> list[answers.Inputs]:
    """The inputs of a file's models: {"model", "inputs", "inputs_from", "found", "text", "sets", "set"} each.

    text: the `# mase:` comment, without its `#`, that asks for the same inputs; None if no comment can.  sets: the
    names of the sets of inputs that comments give the model; set: the one in use, "" for none.  builders: calls of
    functions of the file that build it; builder: the one that built it.
    """
    tracked_of(api, params["path"])
    snapshot = api.daemon.store.snapshot(params["path"])
    return (
        [
            {
                "model": title,
                "inputs": model["inputs"],
                "inputs_from": model["inputs_from"],
                "found": model["found"],
                "sets": model["sets"],
                "set": model["set"],
                "builders": model["builders"],
                "builder": model["builder"],
                "text": model["comment"].get("inputs"),
            }
            for title, model in zip(snapshot.titles, snapshot.payload["models"], strict=True)
        ]
        if snapshot is not None
        else []
    )


async def set_inputs(api: Api, params: Params) -> answers.Status:
    """Trace a file with other inputs from now on: texts such as "x: f32[1, 3, 224, 224]"; [] finds them anew.

    model: the class to trace, "" for all that are found.  Returns the status once the file is traced.
    """
    path = params["path"]
    found = tracked_of(api, path)
    api.daemon.opened(path, _merge_options(found.options or TraceOptions(), params), by=get_opener_name(api, path))
    return (await api.daemon.wait(path)).to_wire()


def _merge_options(before: TraceOptions, params: Params) -> TraceOptions:
    texts = params.get("inputs", list(before.inputs))
    model = params.get("model", before.model) or None
    return replace(before, inputs=tuple(texts), model=model, inputs_from="option" if texts else "settings")


FILES = (
    ApiMethod(
        "mase/open",
        {"path": str, "model?": str, "inputs?": list[str], "wait?": bool, "text?": str},
        open_file,
        answers.FileStatus,
        executes=True,
    ),
    ApiMethod("mase/close", {"path": str}, close_file, answers.Closed),
    ApiMethod("mase/files", {}, list_files, list[answers.File], answer="files"),
    ApiMethod("mase/fileStatus", {"path": str}, get_status, answers.FileStatus),
    ApiMethod("mase/inputs", {"path": str}, list_inputs, list[answers.Inputs], answer="inputs"),
    ApiMethod(
        "mase/setInputs", {"path": str, "inputs": list[str], "model?": str}, set_inputs, answers.Status, executes=True
    ),
)
