"""The API functions that every front serves: written once, parameters and results as maps.

Files are absolute paths; lines count from 1, columns from 0 in Unicode code points of the traced text.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mase_server import __version__
from mase_server.steps import Step

if TYPE_CHECKING:
    from mase_server.daemon.daemon import Daemon
    from mase_server.daemon.store import GraphSnapshot, ModelView, ValueView

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Api:
    """What an API function works on."""

    daemon: Daemon


@dataclass(frozen=True, slots=True)
class ApiMethod:
    """One function: its name on the wire, its parameters with their types (optional ones end in "?"), and itself."""

    name: str
    params: Mapping[str, type]
    function: Callable[[Api, Params], Awaitable[Any]]

    async def call(self, api: Api, params: Params) -> Any:
        """Check the parameters and run; ValueError says which parameter is missing, unknown or of another type."""
        known = {key.removesuffix("?"): kind for key, kind in self.params.items()}
        for key, value in params.items():
            if key not in known:
                raise ValueError(f"{self.name} has no parameter {key!r}; it takes {_listed(self.params)}")
            if not isinstance(value, known[key]):
                raise ValueError(f"{self.name}: {key} is {value!r}, expected {known[key].__name__}")
        for key in self.params:
            if not key.endswith("?") and key not in params:
                raise ValueError(f"{self.name}: parameter {key!r} is missing; it takes {_listed(self.params)}")
        return await self.function(api, params)


def _listed(params: Mapping[str, type]) -> str:
    return ", ".join(f"{key}: {kind.__name__}" for key, kind in params.items()) or "none"


async def info(api: Api, params: Params) -> dict[str, Any]:
    """{"name", "version", "pid", "files": the traced model files}."""
    files = [snapshot.path for snapshot in api.daemon.store.snapshots()]
    return {"name": "mase-server", "version": __version__, "pid": os.getpid(), "files": files}


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


#: What the answer of `mase/nodeAt` says of the place itself.
_PLACE = ("line", "column", "end_line", "end_column", "name", "kind", "function")


async def node_at(api: Api, params: Params) -> dict[str, Any] | None:
    """The smallest place at a position, with every value seen there and the node that made it; None for no place."""
    view = api.daemon.store.view(params["path"])
    site = None if view is None else view.at(params["line"], params["column"])
    if view is None or site is None:
        return None
    place = {
        key: getattr(site, key) for key in ("line", "column", "end_line", "end_column", "name", "kind", "function")
    }
    values = [_value(value) for value in site.values]
    return {**place, "path": view.path, "sha256": view.sha256, "stale": view.stale, "values": values}


def _value(value: ValueView) -> dict[str, Any]:
    node = None
    if value.node is not None:
        snapshot, index = value.node
        node = asdict(snapshot.node(index))
    scopes = [list(scope) for scope in value.scopes]
    seen = {"value": value.value, "original": value.original}
    return {**seen, "model": value.model, "count": value.count, "scopes": scopes, "node": node}


async def retrace(api: Api, params: Params) -> dict[str, Any]:
    """Trace `path` again whatever was known of it; its end status, as `mase/status` has it."""
    api.daemon.retrace(params["path"])
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
        told = ", ".join(known) or "none"
        raise ValueError(f"mase/pickRoot: no model {root!r} shows shapes in this file; it has {told}")
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


_MODEL = {"path": str, "model?": str}

#: Every function that a front serves.
API = (
    ApiMethod("mase/info", {}, info),
    ApiMethod("mase/models", {"path?": str}, models),
    ApiMethod("mase/nodeAt", {"path": str, "line": int, "column": int}, node_at),
    ApiMethod("mase/retrace", {"path": str}, retrace),
    ApiMethod("mase/roots", {"path": str}, roots),
    ApiMethod("mase/pickRoot", {"path": str, "root?": str}, pick_root),
    ApiMethod("mase/passes", {"path?": str}, passes),
    ApiMethod("mase/applyPass", {**_MODEL, "pass": str, "arguments?": dict}, apply_pass),
    ApiMethod("mase/undoPass", _MODEL, undo_pass),
    ApiMethod("mase/redoPass", _MODEL, redo_pass),
    ApiMethod("mase/resetPasses", _MODEL, reset_passes),
    ApiMethod("mase/pipeline", _MODEL, pipeline),
    ApiMethod("mase/setPipeline", {**_MODEL, "steps": list}, set_pipeline),
    ApiMethod("mase/pipelineSettings", {"path": str}, pipeline_settings),
    ApiMethod("mase/transformed", {**_MODEL, "original?": bool}, transformed),
)
