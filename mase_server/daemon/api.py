"""The API functions that every front serves. Parameters and results are maps.

Files are absolute paths. Lines count from 1, columns from 0 in Unicode code points of the traced text.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from mase_server import __version__
from mase_server.daemon.api_costs import COSTS
from mase_server.daemon.api_devices import DEVICES
from mase_server.daemon.api_files import FILES, get_opener_name
from mase_server.daemon.api_graphs import GRAPHS
from mase_server.daemon.api_inputs import INPUTS
from mase_server.daemon.api_outputs import OUTPUTS
from mase_server.daemon.api_readings import READINGS, TRACED
from mase_server.daemon.events import TOPICS
from mase_server.daemon.graph_snapshot import GraphSnapshot, NodeView
from mase_server.daemon.limits import resident_bytes
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params, Session
from mase_server.paths import canonical_path
from mase_server.protocol import answers
from mase_server.protocol.answers.files import ErrorForm, EventForm, Topic
from mase_server.protocol.arguments import Step
from mase_server.protocol.records import PROTOCOL
from mase_server.suggestions import suggest
from mase_server.system import resident_bytes_of

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView, ValueView


# API functions for subscriptions. Only connections use them: the editor gets notifications of its own protocol.


def session_of(api: Api) -> Session:
    """The connection that sent the request; ApiError for the editor, which has no subscriptions."""
    if api.session is None:
        raise ApiError("unavailable", "subscriptions are for tools that connect; the editor is told without asking")
    return api.session


async def subscribe(api: Api, params: Params) -> answers.Subscription:
    """Subscribe to `mase/event` notifications.

    topics: all without it.  path: events of this file only; of all files without it.  If a client reads too slowly,
    only the newest of several events of one kind is sent, with `coalesced`. A client that never reads is disconnected.
    """
    topics = params.get("topics", list(TOPICS))
    number = session_of(api).subscribe(frozenset(topics), params.get("path"))
    return {"subscription": number, "topics": topics}


async def unsubscribe(api: Api, params: Params) -> answers.Unsubscribed:
    """End a subscription: {"ended": was there such a subscription?}."""
    return {"ended": session_of(api).unsubscribe(params["subscription"])}


async def configure_session(api: Api, params: Params) -> answers.Session:
    """Choose how this connection is talked to. Parameters that are not given leave it as it is.

    protocols: the versions of the API that the client speaks; the answer has the newest that the daemon speaks, too, or
    the request fails with `unsupported-protocol`. A client asks first of all, and ends if it fails.
    errors: "map", or "pair" for [0, "code: message"].  events: "notification", or "autocommand" for the autocommand
    `User MaseEvent`, whose `data` is the event. Neovim needs the latter of both.
    """
    asking = session_of(api)
    for key, forms in (("errors", get_args(ErrorForm)), ("events", get_args(EventForm))):
        if (wanted := params.get(key, getattr(asking, key))) not in forms:
            raise ApiError("invalid-params", f"{key} is {wanted[:80]!r}, expected one of {', '.join(forms)}")
    asking.errors, asking.events = params.get("errors", asking.errors), params.get("events", asking.events)
    if PROTOCOL not in (spoken := params.get("protocols", [PROTOCOL])):
        listed = ", ".join(map(str, spoken)) or "none"
        told = f"this daemon ({__version__}) speaks version {PROTOCOL} of the API, the client speaks {listed}"
        raise ApiError("unsupported-protocol", f"{told}: update the older of the two", {"protocols": [PROTOCOL]})
    return {"errors": asking.errors, "events": asking.events, "protocol": PROTOCOL}


EVENTS = (
    ApiMethod(
        "mase/session",
        {"errors?": Annotated[str, ErrorForm], "events?": Annotated[str, EventForm], "protocols?": list[int]},
        configure_session,
        answers.Session,
    ),
    ApiMethod(
        "mase/subscribe", {"topics?": list[Annotated[str, Topic]], "path?": str}, subscribe, answers.Subscription
    ),
    ApiMethod("mase/unsubscribe", {"subscription": int}, unsubscribe, answers.Unsubscribed),
)


# API functions for the daemon itself: its processes and counters.


async def list_workers(api: Api, params: Params) -> list[answers.Worker]:
    """The live trace children: {"path", "folder", "pid", "memory" (bytes), "generation", "idle" (seconds)} each."""
    live = [(each, each.worker) for each in api.daemon.files() if each.worker is not None and each.worker.live]
    return [
        {
            "path": each.path,
            "folder": each.folder,
            "pid": worker.child.pid,
            "memory": await resident_bytes(worker.child.pid),
            "generation": worker.request.generation,
            "idle": time.monotonic() - each.used_at,
        }
        for each, worker in live
    ]


async def restart_workers(api: Api, params: Params) -> answers.Restarted:
    """End the processes of `folder` (without it: of all) and trace the open files again: {"folders"} concerned."""
    folder = params.get("folder")
    files = api.daemon.files()
    known = sorted({each.folder for each in files})
    if folder is not None:
        folder = canonical_path(folder)
        if folder not in known:
            told = ", ".join(known) or "none"
            raise ApiError("not-open", f"no file of {folder} was traced; folders are {told}", {"folders": known})
    concerned = [each for each in files if folder in (None, each.folder) and each.open]
    if untrusted := [each.path for each in concerned if not api.daemon.trusts(each.path)]:
        raise ApiError("untrusted", f"the folder of {untrusted[0]} is not trusted: nothing of it is executed")
    api.daemon.environment_changed(folder)
    return {"folders": known if folder is None else [folder]}


async def read_statistics(api: Api, params: Params) -> answers.Statistics:
    """Return the daemon's counters. Their memory is bounded."""
    files = api.daemon.files()
    live = [each.worker for each in files if each.worker is not None and each.worker.live]
    states = [each.status.state for each in files if each.status is not None]
    snapshots = list(api.daemon.store.snapshots())
    return {
        "pid": os.getpid(),
        "memory": resident_bytes_of(os.getpid()),
        "files": len(files),
        "open": sum(each.open for each in files),
        "states": {state: states.count(state) for state in sorted(set(states))},
        "live": len(live),
        "nodes": sum(len(snapshot.payload["nodes"]["name"]) for snapshot in snapshots),
        "requests": api.session.statistics() if api.session is not None else {},
        "workers": sum([await resident_bytes(worker.child.pid) for worker in live]),
        **api.daemon.counted(),
    }


WORKERS = (
    ApiMethod("mase/workers", {}, list_workers, list[answers.Worker], answer="workers"),
    ApiMethod("mase/restartWorkers", {"folder?": str}, restart_workers, answers.Restarted),
    ApiMethod("mase/statistics", {}, read_statistics, answers.Statistics),
)


__all__ = ["API", "Api", "ApiMethod", "Params"]


async def get_info(api: Api, params: Params) -> answers.Info:
    """The daemon, and the model files that it traces; with `methods` also every method that exists.

    Any version may add methods and keys of results. What exists stays as it is, unless `until` names the version that
    may lack it.
    """
    files = [snapshot.path for snapshot in api.daemon.store.snapshots()]
    told: answers.Info = {
        "name": "mase-server",
        "protocols": [PROTOCOL],
        "version": __version__,
        "pid": os.getpid(),
        "files": files,
    }
    if params.get("methods"):
        told["methods"] = [each async for each in _describe_methods()]
    return told


async def _describe_methods() -> AsyncIterator[answers.Method]:
    """Describe every method. The result is cached; the loop gets turns in between, because schemas take a while."""
    for method in API:
        if method.name not in _SCHEMAS:
            _SCHEMAS[method.name] = method.described()
            await asyncio.sleep(0)
        yield _SCHEMAS[method.name]


async def list_models(api: Api, params: Params) -> list[answers.Model]:
    """The models of the file `path`, or of every traced file without it.

    transform: the result of its passes; None for a model without passes.
    """
    path = params.get("path")
    snapshots = api.daemon.store.snapshots()
    return [model for snapshot in snapshots if path in {None, snapshot.path} for model in _describe_models(snapshot)]


def _describe_models(snapshot: GraphSnapshot) -> list[answers.Model]:
    return [
        {
            **model,
            "path": snapshot.path,
            "sha256": snapshot.sha256,
            "complete": snapshot.complete and model.get("complete", True),
            "title": snapshot.titles[index],
            "transform": _copy_transform(snapshot, index),
        }
        for index, model in enumerate(snapshot.records)
    ]


def _copy_transform(snapshot: GraphSnapshot, index: int) -> answers.Transform | None:
    transform = snapshot.transforms.get(index)
    return None if transform is None else {**transform.told}


async def node_at(api: Api, params: Params) -> answers.Place | None:
    """The smallest place at a position, its values, and the nodes that made them; None if there is none."""
    view = api.daemon.store.view(params["path"])
    site = None if view is None else view.at(params["line"], params["column"])
    if view is None or site is None:
        return None
    return {
        "path": view.path, "sha256": view.sha256, "stale": view.stale,
        "line": site.line, "column": site.column, "end_line": site.end_line, "end_column": site.end_column,
        "name": site.name, "kind": site.kind, "function": site.function,
        "values": [_value_to_map(value) for value in site.values],
    }  # fmt: skip


def _value_to_map(value: ValueView) -> answers.PlaceValue:
    node = None
    if value.node is not None:
        snapshot, index = value.node
        node = _node_to_map(snapshot.node(index))
    return {
        "value": value.value, "original": value.original, "model": value.model, "count": value.count,
        "scopes": [list(scope) for scope in value.scopes], "node": node,
    }  # fmt: skip


def _node_to_map(view: NodeView) -> answers.Node:
    return {
        "index": view.index, "name": view.name, "op": view.op, "target": view.target,
        "mase_op": view.mase_op, "mase_type": view.mase_type, "family": view.family, "model": view.model,
        "scope": None if view.scope is None else list(view.scope), "value": view.value, "flops": view.flops,
        "file": view.file, "line": view.line, "column": view.column,
        "end_line": view.end_line, "end_column": view.end_column, "details": view.details,
        "format": view.format, "sqnr": view.sqnr, "max_error": view.max_error, "note": view.note,
        "saturated": view.saturated, "hardware": list(view.hardware),
    }  # fmt: skip


async def retrace(api: Api, params: Params) -> answers.Status:
    """Trace `path` again even if nothing has changed; its end status, as `mase/status` has it."""
    api.daemon.retrace(params["path"], by=get_opener_name(api, params["path"]))
    return (await api.daemon.wait(params["path"])).to_wire()


async def list_roots(api: Api, params: Params) -> list[answers.Root]:
    """The models that show shapes in the file `path`: {"root", "path", "inputs_from", "found", "picked"} each."""
    view = api.daemon.store.view(params["path"])
    return [] if view is None else [_root_to_map(model, view.picked) for model in view.roots()]


def _root_to_map(model: ModelView, picked: str | None) -> answers.Root:
    return {
        "root": model.title,
        "path": model.path,
        "inputs_from": model.inputs_from,
        "found": model.found,
        "picked": model.title == picked,
    }


async def pick_root(api: Api, params: Params) -> list[answers.Root]:
    """Show the shapes of one model, `root`, alone in the file `path`, or of all models that use it without `root`.

    Returns what `mase/roots` returns afterwards. The choice is kept until the server ends.
    """
    known = [each["root"] for each in await list_roots(api, params)]
    root = params.get("root")
    if root is not None and root not in known:
        told = suggest(root, known, "it has")
        raise ValueError(f"mase/pickRoot: no model {root!r} shows shapes in this file{told}")
    api.daemon.pick(params["path"], root)
    return await list_roots(api, params)


async def list_file_passes(api: Api, params: Params) -> list[answers.Pass]:
    """The passes available for the file `path`, the workspace's own included. Answers at once.

    menu: would it change something in the file, in its model `model`, or in the nodes and modules `only` of it?
    """
    return api.daemon.passes.listed(params.get("path"), params.get("model"), params.get("only") or ())


async def apply_pass(api: Api, params: Params) -> answers.Pipeline:
    """Apply one more pass to a model (the first one without `model`).

    Answers as `mase/pipeline` once its errors are measured. A pass that fails is not kept; the error says why.
    """
    step = Step(params["pass"], params.get("arguments", {}))
    return await api.daemon.passes.apply(params["path"], params.get("model"), step)


async def undo_pass(api: Api, params: Params) -> answers.Pipeline:
    """Take back the last pass, or cancel the one that is being applied; answers as `mase/pipeline`."""
    return await api.daemon.passes.undo(params["path"], params.get("model"))


async def redo_pass(api: Api, params: Params) -> answers.Pipeline:
    """Apply the pass again that was taken back last; answers as `mase/pipeline`."""
    return await api.daemon.passes.redo(params["path"], params.get("model"))


async def reset_passes(api: Api, params: Params) -> answers.Pipeline:
    """Take all passes back; answers as `mase/pipeline`."""
    return await api.daemon.passes.reset(params["path"], params.get("model"))


async def get_pipeline(api: Api, params: Params) -> answers.Pipeline:
    """The passes on a model, at once: {"model", "steps", "undone", "summary", "problem", "complete", "running"}.

    Steps are texts such as "quantize(default='fixed(8,4)')".  undone: the steps that redo would bring back, the next
    one first.  complete: has everything been measured?  Returns {} if no model of the file is shown.
    """
    return api.daemon.passes.tell(params["path"], params.get("model"))


async def set_pipeline(api: Api, params: Params) -> answers.Pipeline:
    """Replace the pipeline with these steps, given as texts; answers as `mase/pipeline`. A failing step stays."""
    steps = [Step.parse(text) for text in params["steps"]]
    return await api.daemon.passes.replace(params["path"], params.get("model"), steps)


async def pipeline_settings(api: Api, params: Params) -> dict[str, list[str]]:
    """The pipelines of a file's models as the setting `mase.pipelines` has them."""
    return api.daemon.passes.settings_form(params["path"])


async def write_transformed(api: Api, params: Params) -> answers.Text:
    """{"text", "language"}: the graph of a model as Python after its passes, or as it was traced (`original`)."""
    text = await api.daemon.passes.code(params["path"], params.get("model"), params.get("original", False))
    return {"text": text, "language": "python"}


async def emit_verilog(api: Api, params: Params) -> answers.Emission:
    """Emit hardware for a model. From then on, each save emits its text again.

    build: keys of a `Build`; the settings give the others. Without it, the last build is used again.
    folder: the folder to write to; it must be empty or written by an earlier emission, unless `overwrite`.
    vectors: samples for the simulation.  inputs: an .npz file that gives them.
    """
    return await api.daemon.verilog.emit(
        params["path"],
        params.get("model"),
        params.get("build"),
        folder=params.get("folder", ""),
        overwrite=params.get("overwrite", False),
        vectors=params.get("vectors"),
        inputs=_read_inputs_path(params),
    )


async def get_verilog(api: Api, params: Params) -> answers.Verilog:
    """A model's hardware: {"model", "build", "default", "emission", "stale", "running", "problem"}. Answers at once.

    build: the remembered one, or None.  default: the build where nothing is specified.  emission: the last one, without
    its text, or None.  stale: does it belong to an older text?  problem: why the present text has no emission.
    Returns {} if no model of the file is shown.
    """
    return api.daemon.verilog.tell(params["path"], params.get("model"))


async def simulate(api: Api, params: Params) -> answers.Simulation:
    """Simulate the hardware of a model and compare the results with the expected integers.

    The hardware is that of the present text, with the remembered build or that of the settings.  vectors, inputs: as
    in `mase/emitVerilog`.  stall: both sides pause in this percentage of the cycles.  wave: record a waveform of the
    steady state, or of the first mismatch, and tell how much of it each operation works or waits?
    """
    found = await api.daemon.simulations.simulate(
        params["path"],
        params.get("model"),
        stall=params.get("stall", 0),
        wave=params.get("wave", False),
        vectors=params.get("vectors"),
        inputs=_read_inputs_path(params),
    )
    return {**found, "latency": found["latency"] or 0}


async def forget_verilog(api: Api, params: Params) -> answers.Verilog:
    """Stop emitting hardware for a model; answers as `mase/verilog`."""
    api.daemon.verilog.forget(params["path"], params.get("model"))
    return await get_verilog(api, params)


def _read_inputs_path(params: Params) -> str:
    inputs: str = params.get("inputs", "")
    if inputs and not Path(inputs).is_absolute():
        raise ValueError(f"inputs is {inputs!r}; it has to be an absolute path")
    return inputs


_SCHEMAS: dict[str, answers.Method] = {}
_ORDER = {**MODEL, "vectors?": int, "inputs?": str}

#: Every function that a front serves.
API = (
    ApiMethod("mase/info", {"methods?": bool}, get_info, answers.Info),
    ApiMethod("mase/models", {"path?": str}, list_models, list[answers.Model], answer="models"),
    ApiMethod("mase/nodeAt", {"path": str, "line": int, "column": int}, node_at, answers.Place | None, answer="place"),
    ApiMethod("mase/retrace", {"path": str}, retrace, answers.Status, executes=True),
    ApiMethod("mase/roots", {"path": str}, list_roots, list[answers.Root], answer="roots"),
    ApiMethod("mase/pickRoot", {"path": str, "root?": str}, pick_root, list[answers.Root], answer="roots"),
    ApiMethod(
        "mase/passes",
        {"path?": str, "model?": str, "only?": list[str]},
        list_file_passes,
        list[answers.Pass],
        answer="passes",
    ),
    ApiMethod(
        "mase/applyPass", {**MODEL, "pass": str, "arguments?": dict}, apply_pass, answers.Pipeline, executes=True
    ),
    ApiMethod("mase/undoPass", MODEL, undo_pass, answers.Pipeline, executes=True),
    ApiMethod("mase/redoPass", MODEL, redo_pass, answers.Pipeline, executes=True),
    ApiMethod("mase/resetPasses", MODEL, reset_passes, answers.Pipeline, executes=True),
    ApiMethod("mase/pipeline", MODEL, get_pipeline, answers.Pipeline),
    ApiMethod("mase/setPipeline", {**MODEL, "steps": list[str]}, set_pipeline, answers.Pipeline, executes=True),
    ApiMethod("mase/pipelineSettings", {"path": str}, pipeline_settings, dict[str, list[str]]),
    ApiMethod("mase/transformed", {**MODEL, "original?": bool}, write_transformed, answers.Text, executes=True),
    ApiMethod(
        "mase/emitVerilog",
        {**_ORDER, "build?": dict, "folder?": str, "overwrite?": bool},
        emit_verilog,
        answers.Emission,
        executes=True,
    ),
    ApiMethod("mase/verilog", MODEL, get_verilog, answers.Verilog),
    ApiMethod("mase/simulate", {**_ORDER, "stall?": int, "wave?": bool}, simulate, answers.Simulation, executes=True),
    ApiMethod("mase/forgetVerilog", MODEL, forget_verilog, answers.Verilog),
    *OUTPUTS,
    *DEVICES,
    *FILES,
    *INPUTS,
    *GRAPHS,
    *READINGS,
    *COSTS,
    *TRACED,
    *WORKERS,
    *EVENTS,
)
