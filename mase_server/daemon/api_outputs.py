"""API functions that write a model's graph: as a checkpoint, as a drawing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mase_server.daemon.methods import Api, ApiError, ApiMethod, Params

_COLOURS = ("family", "format")


async def export_checkpoint(api: Api, params: Params) -> dict[str, Any]:
    """Write a model with its weights, after its passes, as `{name}.pt` and `{name}.mz`: {"files", "weights"}.

    name: an absolute path without ending; its folder has to be there.  weights: whose values, in words.
    `MaseGraph.from_checkpoint` reads them.
    """
    name = Path(params["name"])
    if not name.is_absolute():
        raise ApiError("invalid-params", f"name is {str(name)[:200]!r}; it has to be an absolute path, without ending")
    return await api.daemon.passes.written("export", params["path"], params.get("model"), name=str(name))


async def draw(api: Api, params: Params) -> dict[str, Any]:
    """The graph of a model as SVG: {"svg"}, or {"file"} where it was written to the absolute path `file`.

    original: as it was traced, without passes.  colours: by "family" of operators, or by number "format".
    """
    colours = params.get("colours", "family")
    if colours not in _COLOURS:
        raise ApiError("invalid-params", f"colours is {colours[:80]!r}, expected one of {', '.join(_COLOURS)}")
    file = Path(params.get("file", "/"))
    if not file.is_absolute():
        raise ApiError("invalid-params", f"file is {str(file)[:200]!r}; it has to be an absolute path")
    original = params.get("original", False)
    made = await api.daemon.passes.written("draw", params["path"], params.get("model"), original, colours)
    if "file" not in params:
        return {"svg": made["text"]}
    try:
        await asyncio.to_thread(file.write_text, made["text"], "utf-8")
    except OSError as error:
        raise ApiError("cannot-write", f"cannot write {file}: {error.strerror}", {"path": str(file)}) from error
    return {"file": str(file)}


_MODEL = {"path": str, "model?": str}

OUTPUTS = (
    ApiMethod("mase/exportCheckpoint", {**_MODEL, "name": str}, export_checkpoint, executes=True),
    ApiMethod("mase/draw", {**_MODEL, "original?": bool, "colours?": str, "file?": str}, draw, executes=True),
)
