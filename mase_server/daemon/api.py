"""The API functions that every front serves: written once, parameters and results as maps.

Files are absolute paths; lines count from 1, columns from 0 in Unicode code points of the traced text.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mase_server import __version__

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
    """The models of the file `path`, of every traced file without it: `snapshot.MODEL_KEYS` and "path", "sha256"."""
    path = params.get("path")
    snapshots = api.daemon.store.snapshots()
    return [model for snapshot in snapshots if path in {None, snapshot.path} for model in _models(snapshot)]


def _models(snapshot: GraphSnapshot) -> list[dict[str, Any]]:
    source = {"path": snapshot.path, "sha256": snapshot.sha256, "complete": snapshot.complete}
    return [{**model, **source} for model in snapshot.payload["models"]]


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
    return {"value": value.value, "model": value.model, "count": value.count, "scopes": scopes, "node": node}


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


#: Every function that a front serves.
API = (
    ApiMethod("mase/info", {}, info),
    ApiMethod("mase/models", {"path?": str}, models),
    ApiMethod("mase/nodeAt", {"path": str, "line": int, "column": int}, node_at),
    ApiMethod("mase/retrace", {"path": str}, retrace),
    ApiMethod("mase/roots", {"path": str}, roots),
    ApiMethod("mase/pickRoot", {"path": str, "root?": str}, pick_root),
)
