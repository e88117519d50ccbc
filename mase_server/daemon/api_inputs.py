"""API functions on named sets of inputs: which one a model is traced with."""

from __future__ import annotations

from typing import Any

from mase_server import answers
from mase_server.daemon.api_files import inputs, opener
from mase_server.daemon.api_graphs import shown
from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params


async def pick_inputs(api: Api, params: Params) -> list[dict[str, Any]]:
    """Trace a model with a named set of inputs from now on: `mase/inputs` once it is traced.

    set: one of its "sets", as in `# mase[small]: x: f32[1, 3]`; "" for what comments without a name say.  Without
    `set` the pick is forgotten.  It is kept for this user, also when the server ends.
    """
    snapshot, index = shown(api, params)
    model = snapshot.payload["models"][index]
    name = params.get("set")
    if name and name not in model["sets"]:
        told = ", ".join(model["sets"]) or f"none: write one, e.g. `# mase[{name}]: ...` above its class"
        text = f"{snapshot.titles[index]} has no inputs named {name!r}; it has {told}"
        raise ApiError("unknown-inputs", text, {"sets": model["sets"]})
    api.daemon.opened(snapshot.path, by=opener(api, snapshot.path))
    api.daemon.pick_inputs(snapshot.path, model["name"].partition("[")[0], name)
    await api.daemon.wait(snapshot.path)
    return await inputs(api, {"path": snapshot.path})


_MODEL = {"path": str, "model?": str}

INPUTS = (
    ApiMethod(
        "mase/pickInputs", {**_MODEL, "set?": str}, pick_inputs, list[answers.Inputs], answer="inputs", executes=True
    ),
)
