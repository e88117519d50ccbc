"""API functions on files: open and close them, where their traces are, and which inputs they are traced with."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from mase_server import answers
from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params
from mase_server.reading import is_file
from mase_server.worker.request import TraceOptions

if TYPE_CHECKING:
    from mase_server.daemon.tracked import Tracked

_EDITOR = "editor"


def tracked_of(api: Api, path: str) -> Tracked:
    """What the daemon has of a model file; ApiError `not-open` where it was never opened."""
    if (found := api.daemon.file(path)) is None:
        raise not_open(path)
    return found


def not_open(path: str) -> ApiError:
    """What is answered to a question about a file that nobody looks at."""
    return ApiError("not-open", f"{path} is not open: open it with mase/open first", {"path": path})


def is_open(api: Api, path: str) -> bool:
    """Does somebody look at the file `path`, or at a model file whose trace says something about it?"""
    own = api.daemon.file(path)
    if own is not None and own.open:
        return True
    return any(path in api.daemon.store.entry(each.path).paths() for each in api.daemon.files() if each.open)


async def open_file(api: Api, params: Params) -> dict[str, Any]:
    """Look at the model file `path` until `mase/close` or the connection's end: it is traced now and at every save.

    Its status once that trace has ended, as `mase/status` has it; at once with `wait` false.  model, inputs: as
    `mase/setInputs` has them.
    """
    path = params["path"]
    if not is_file(path):
        raise ApiError("not-found", f"there is no file {path}", {"path": path})
    given = {key: params[key] for key in ("model", "inputs") if key in params}
    api.daemon.opened(path, _options(TraceOptions(), given) if given else None, by=opener(api, path))
    if params.get("wait", True):
        return asdict(await api.daemon.wait(path))
    return await status(api, params)


def opener(api: Api, path: str) -> str:
    """Under which name whoever asks opens files; a connection closes them at its end."""
    if api.session is None:
        return _EDITOR
    api.session.opened.add(path)
    return api.session.ident


async def close_file(api: Api, params: Params) -> dict[str, Any]:
    """Look at a file no longer: {"path", "open": does somebody else?}. What was traced stays for a while."""
    path = params["path"]
    found = tracked_of(api, path)
    who = _EDITOR if api.session is None else api.session.ident
    if who not in found.openers:
        raise ApiError("not-open", f"{path} was not opened by this connection", {"path": path})
    if api.session is not None:
        api.session.opened.discard(path)
    api.daemon.closed(path, by=who)
    return {"path": path, "open": found.open}


async def files(api: Api, params: Params) -> list[dict[str, Any]]:
    """Every file that somebody looks at or looked at: {"path", "folder", "open", "status"} each."""
    return [
        {"path": each.path, "folder": each.folder, "open": each.open, "status": each.status and asdict(each.status)}
        for each in api.daemon.files()
    ]


async def status(api: Api, params: Params) -> dict[str, Any]:
    """Where the newest trace of the file `path` is: `daemon.status.Status` as a map."""
    found = tracked_of(api, params["path"])
    return {} if found.status is None else asdict(found.status)


async def inputs(api: Api, params: Params) -> list[dict[str, Any]]:
    """With which inputs a file's models are traced: {"model", "inputs", "inputs_from", "found", "text", "sets", "set"}.

    text: the `# mase:` comment, without its `#`, that asks for the same; None where it has no text.  sets: the names of
    the sets of inputs that comments give the model; set: the one that is used, "" for none.
    """
    tracked_of(api, params["path"])
    snapshot = api.daemon.store.snapshot(params["path"])
    return (
        [
            {
                "model": title,
                **{key: model[key] for key in ("inputs", "inputs_from", "found", "sets", "set")},
                "text": (model.get("comment") or {}).get("inputs"),
            }
            for title, model in zip(snapshot.titles, snapshot.payload["models"], strict=True)
        ]
        if snapshot is not None
        else []
    )


async def set_inputs(api: Api, params: Params) -> dict[str, Any]:
    """Trace a file with other inputs, from now on: texts such as "x: f32[1, 3, 224, 224]"; [] finds them again.

    model: the class to trace, "" for whichever there are.  The status once it is traced.
    """
    path = params["path"]
    found = tracked_of(api, path)
    api.daemon.opened(path, _options(found.options or TraceOptions(), params), by=opener(api, path))
    return asdict(await api.daemon.wait(path))


def _options(before: TraceOptions, params: Params) -> TraceOptions:
    texts = params.get("inputs", list(before.inputs))
    model = params.get("model", before.model) or None
    return replace(before, inputs=tuple(texts), model=model, inputs_from="option" if texts else "settings")


FILES = (
    ApiMethod(
        "mase/open",
        {"path": str, "model?": str, "inputs?": list[str], "wait?": bool},
        open_file,
        answers.FileStatus,
        executes=True,
    ),
    ApiMethod("mase/close", {"path": str}, close_file, answers.Closed),
    ApiMethod("mase/files", {}, files, list[answers.File], answer="files"),
    ApiMethod("mase/fileStatus", {"path": str}, status, answers.FileStatus),
    ApiMethod("mase/inputs", {"path": str}, inputs, list[answers.Inputs], answer="inputs"),
    ApiMethod(
        "mase/setInputs", {"path": str, "inputs": list[str], "model?": str}, set_inputs, answers.Status, executes=True
    ),
)
