"""The API functions that every front serves: written once, parameters and results as maps.

Files are absolute paths; lines count from 1, columns from 0 in Unicode code points of the traced text.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mase_server import __version__, answers
from mase_server.daemon.api_costs import COSTS
from mase_server.daemon.api_events import EVENTS
from mase_server.daemon.api_files import FILES, opener
from mase_server.daemon.api_graphs import GRAPHS
from mase_server.daemon.api_inputs import INPUTS
from mase_server.daemon.api_outputs import OUTPUTS
from mase_server.daemon.api_readings import READINGS
from mase_server.daemon.api_traced import TRACED
from mase_server.daemon.api_workers import WORKERS
from mase_server.daemon.graph_snapshot import GraphSnapshot, NodeView
from mase_server.daemon.methods import MODEL, Api, ApiMethod, Params
from mase_server.steps import Step
from mase_server.suggestions import suggest

if TYPE_CHECKING:
    from mase_server.daemon.store import ModelView, ValueView

__all__ = ["API", "Api", "ApiMethod", "Params"]


async def info(api: Api, params: Params) -> dict[str, Any]:
    """{"name", "version", "pid", "files": the traced model files}, and with `methods`, {"methods"}: all there are.

    A method is {"name", "since", "description", "params", "result"}, the last two as JSON schemas. New methods and
    new keys of results may come with any version; what is there stays as it is.
    """
    files = [snapshot.path for snapshot in api.daemon.store.snapshots()]
    told = {"name": "mase-server", "version": __version__, "pid": os.getpid(), "files": files}
    return told | ({"methods": [each async for each in _described()]} if params.get("methods") else {})


async def _described() -> AsyncIterator[dict[str, Any]]:
    """Every method; made once, and not in one turn of the event loop, since schemas take a while."""
    for method in API:
        if method.name not in _SCHEMAS:
            _SCHEMAS[method.name] = method.described()
            await asyncio.sleep(0)
        yield _SCHEMAS[method.name]


async def models(api: Api, params: Params) -> list[dict[str, Any]]:
    """The models of the file `path`, of every traced file without it: `snapshot.MODEL_KEYS` and "path", "sha256".

    And "title", and "transform": what its passes made of it, as `snapshot.TRANSFORM_KEYS` without rows and nodes, and
    "texts", the steps as texts; None where there are none.
    """
    path = params.get("path")
    snapshots = api.daemon.store.snapshots()
    return [model for snapshot in snapshots if path in {None, snapshot.path} for model in _models(snapshot)]


def _models(snapshot: GraphSnapshot) -> list[dict[str, Any]]:
    source = {"path": snapshot.path, "sha256": snapshot.sha256, "complete": snapshot.complete}
    return [
        {**model, **source, "title": snapshot.titles[index], "transform": _told(snapshot, index)}
        for index, model in enumerate(snapshot.payload["models"])
    ]


def _told(snapshot: GraphSnapshot, index: int) -> dict[str, Any] | None:
    transform = snapshot.transforms.get(index)
    return None if transform is None else dict(transform.told)


#: What `mase/nodeAt` says of a node: all that is known.
NODE_KEYS = tuple(NodeView.__dataclass_fields__)
#: What it says of the place itself.
_PLACE = ("line", "column", "end_line", "end_column", "name", "kind", "function")


async def node_at(api: Api, params: Params) -> dict[str, Any] | None:
    """The smallest place at a position, with every value seen there and the node that made it; None for no place."""
    view = api.daemon.store.view(params["path"])
    site = None if view is None else view.at(params["line"], params["column"])
    if view is None or site is None:
        return None
    place = {key: getattr(site, key) for key in _PLACE}
    values = [_value(value) for value in site.values]
    return {**place, "path": view.path, "sha256": view.sha256, "stale": view.stale, "values": values}


def _value(value: ValueView) -> dict[str, Any]:
    node = None
    if value.node is not None:
        snapshot, index = value.node
        view = snapshot.node(index)
        node = {name: getattr(view, name) for name in NODE_KEYS}
    scopes = [list(scope) for scope in value.scopes]
    seen = {"value": value.value, "original": value.original}
    return {**seen, "model": value.model, "count": value.count, "scopes": scopes, "node": node}


async def retrace(api: Api, params: Params) -> dict[str, Any]:
    """Trace `path` again whatever was known of it; its end status, as `mase/status` has it."""
    api.daemon.retrace(params["path"], by=opener(api, params["path"]))
    return asdict(await api.daemon.wait(params["path"]))


async def roots(api: Api, params: Params) -> list[dict[str, Any]]:
    """The models that show shapes in the file `path`: {"root", "path", "inputs_from", "found", "picked"} each."""
    view = api.daemon.store.view(params["path"])
    return [] if view is None else [_root(model, view.picked) for model in view.roots()]


def _root(model: ModelView, picked: str | None) -> dict[str, Any]:
    told = {"inputs_from": model.inputs_from, "found": model.found, "picked": model.title == picked}
    return {"root": model.title, "path": model.path, **told}


async def pick_root(api: Api, params: Params) -> list[dict[str, Any]]:
    """Show in the file `path` the shapes of `root` alone where several models use a class; of all without `root`.

    Gives what `mase/roots` gives then. It is kept until the server ends.
    """
    known = [each["root"] for each in await roots(api, params)]
    root = params.get("root")
    if root is not None and root not in known:
        told = suggest(root, known, "it has")
        raise ValueError(f"mase/pickRoot: no model {root!r} shows shapes in this file{told}")
    api.daemon.pick(params["path"], root)
    return await roots(api, params)


async def passes(api: Api, params: Params) -> list[dict[str, Any]]:
    """The passes that there are for the file `path`, the workspace's own among them: `Pass.to_wire` each; at once."""
    return api.daemon.passes.listed(params.get("path"))


async def apply_pass(api: Api, params: Params) -> dict[str, Any]:
    """Apply one more pass to a model (the first without `model`); `mase/pipeline` once its errors are measured.

    A pass that fails is not kept; the error says why.
    """
    step = Step(params["pass"], params.get("arguments", {}))
    return await api.daemon.passes.apply(params["path"], params.get("model"), step)


async def undo_pass(api: Api, params: Params) -> dict[str, Any]:
    """Take the last pass back, or the one that is being applied; `mase/pipeline`."""
    return await api.daemon.passes.undo(params["path"], params.get("model"))


async def redo_pass(api: Api, params: Params) -> dict[str, Any]:
    """Apply again what was taken back last; `mase/pipeline`."""
    return await api.daemon.passes.redo(params["path"], params.get("model"))


async def reset_passes(api: Api, params: Params) -> dict[str, Any]:
    """Take all passes back; `mase/pipeline`."""
    return await api.daemon.passes.reset(params["path"], params.get("model"))


async def pipeline(api: Api, params: Params) -> dict[str, Any]:
    """The passes on a model: {"model", "steps", "undone", "summary", "problem", "complete", "running"}; at once.

    Steps are texts such as "quantize(default='fixed(8,4)')"; undone: what redo brings back, the next one first.
    complete: is all measured?  {} where no model of the file is shown.
    """
    return api.daemon.passes.tell(params["path"], params.get("model"))


async def set_pipeline(api: Api, params: Params) -> dict[str, Any]:
    """Have just these steps, given as texts; `mase/pipeline`. One that fails stays, and is a warning at the class."""
    steps = [Step.parse(text) for text in params["steps"]]
    return await api.daemon.passes.replace(params["path"], params.get("model"), steps)


async def pipeline_settings(api: Api, params: Params) -> dict[str, list[str]]:
    """The pipelines of a file's models as the setting `mase.pipelines` has them."""
    return api.daemon.passes.settings_form(params["path"])


async def transformed(api: Api, params: Params) -> dict[str, str]:
    """{"text", "language"}: the graph of a model as Python after its passes, or as it was traced (`original`)."""
    text = await api.daemon.passes.code(params["path"], params.get("model"), params.get("original", False))
    return {"text": text, "language": "python"}


async def emit_verilog(api: Api, params: Params) -> dict[str, Any]:
    """Make hardware of a model: a map of `building.EMISSION_KEYS`; from then on, each save makes its text again.

    build: keys of `building.Build`, the others as the settings have them; without it, as it was asked for last.
    folder: where all of it is written, which has to be empty, or written before, unless `overwrite`.
    vectors: samples for the simulation.  inputs: an .npz file that they are taken from.
    """
    order = _order(params) | {"folder": params.get("folder", ""), "overwrite": params.get("overwrite", False)}
    return await api.daemon.verilog.emit(params["path"], params.get("model"), params.get("build"), **order)


async def verilog(api: Api, params: Params) -> dict[str, Any]:
    """{"model", "build", "default", "emission", "stale", "running", "problem"} of a model's hardware; at once.

    build: as it is remembered, or None.  default: what it is where nothing is said.  emission: the last one, without
    its text, or None.  stale: is it not of the present text?  problem: why there is none of that.
    {} where no model of the file is shown.
    """
    return api.daemon.verilog.tell(params["path"], params.get("model"))


async def simulate(api: Api, params: Params) -> dict[str, Any]:
    """Simulate the hardware of a model, and compare: a map of `building.SIMULATION_KEYS`.

    It is of the present text, by the build that is remembered or that of the settings.  vectors, inputs: as
    `mase/emitVerilog` takes them.  stall: both sides pause in so many percent of the cycles.
    """
    stall = params.get("stall", 0)
    return await api.daemon.simulations.simulate(params["path"], params.get("model"), stall=stall, **_order(params))


async def forget_verilog(api: Api, params: Params) -> dict[str, Any]:
    """Make no hardware of a model any longer; `mase/verilog`."""
    api.daemon.verilog.forget(params["path"], params.get("model"))
    return await verilog(api, params)


def _order(params: Params) -> dict[str, Any]:
    inputs = params.get("inputs", "")
    if inputs and not Path(inputs).is_absolute():
        raise ValueError(f"inputs is {inputs!r}; it has to be an absolute path")
    return {"vectors": params.get("vectors"), "inputs": inputs}


_SCHEMAS: dict[str, dict[str, Any]] = {}
_ORDER = {**MODEL, "vectors?": int, "inputs?": str}

#: Every function that a front serves.
API = (
    ApiMethod("mase/info", {"methods?": bool}, info, answers.Info),
    ApiMethod("mase/models", {"path?": str}, models, list[answers.Model], answer="models"),
    ApiMethod("mase/nodeAt", {"path": str, "line": int, "column": int}, node_at, answers.Place | None, answer="place"),
    ApiMethod("mase/retrace", {"path": str}, retrace, answers.Status, executes=True),
    ApiMethod("mase/roots", {"path": str}, roots, list[answers.Root], answer="roots"),
    ApiMethod("mase/pickRoot", {"path": str, "root?": str}, pick_root, list[answers.Root], answer="roots"),
    ApiMethod("mase/passes", {"path?": str}, passes, list[answers.Pass], answer="passes"),
    ApiMethod(
        "mase/applyPass", {**MODEL, "pass": str, "arguments?": dict}, apply_pass, answers.Pipeline, executes=True
    ),
    ApiMethod("mase/undoPass", MODEL, undo_pass, answers.Pipeline, executes=True),
    ApiMethod("mase/redoPass", MODEL, redo_pass, answers.Pipeline, executes=True),
    ApiMethod("mase/resetPasses", MODEL, reset_passes, answers.Pipeline, executes=True),
    ApiMethod("mase/pipeline", MODEL, pipeline, answers.Pipeline),
    ApiMethod("mase/setPipeline", {**MODEL, "steps": list[str]}, set_pipeline, answers.Pipeline, executes=True),
    ApiMethod("mase/pipelineSettings", {"path": str}, pipeline_settings, dict[str, list[str]]),
    ApiMethod("mase/transformed", {**MODEL, "original?": bool}, transformed, answers.Text, executes=True),
    ApiMethod(
        "mase/emitVerilog",
        {**_ORDER, "build?": dict, "folder?": str, "overwrite?": bool},
        emit_verilog,
        answers.Emission,
        executes=True,
    ),
    ApiMethod("mase/verilog", MODEL, verilog, answers.Verilog),
    ApiMethod("mase/simulate", {**_ORDER, "stall?": int}, simulate, answers.Simulation, executes=True),
    ApiMethod("mase/forgetVerilog", MODEL, forget_verilog, answers.Verilog),
    *OUTPUTS,
    *FILES,
    *INPUTS,
    *GRAPHS,
    *READINGS,
    *COSTS,
    *TRACED,
    *WORKERS,
    *EVENTS,
)
