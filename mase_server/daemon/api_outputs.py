"""API functions on what a model's graph holds: its weights as arrays, as a checkpoint out and in; its drawing."""

from __future__ import annotations

import asyncio
from typing import Any

from mase_server import answers
from mase_server.daemon import written
from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.steps import Step

_COLOURS = ("family", "format")
#: Bytes of arrays in one answer: few, so that packing them takes the event loop a moment only.
_PAGE = 4 << 20


async def export_checkpoint(api: Api, params: Params) -> dict[str, Any]:
    """Write a model with its weights, after its passes, as `{name}.pt` and `{name}.mz`: {"files", "weights"}.

    name: an absolute path without ending; its folder has to be there. An older checkpoint is replaced, files of anybody
    else are not.  weights: whose values, in words.
    `MaseGraph.from_checkpoint` reads them.
    """
    name = await asyncio.to_thread(written.checkpoint, params["name"], new=True)
    return await api.daemon.passes.written("export", params["path"], params.get("model"), name=name)


async def import_checkpoint(api: Api, params: Params) -> dict[str, Any]:
    """Take the graph and the weights of a checkpoint in place of a model's, as one more pass; `mase/pipeline`.

    name: as `mase/exportCheckpoint` takes it.  Drawings, code, weights and hardware are of the checkpoint from then
    on, until `mase/undoPass`. One of a model with other inputs is refused. Nothing of the files is executed.
    """
    step = Step("load_checkpoint", {"name": written.checkpoint(params["name"], new=False)})
    return await api.daemon.passes.apply(params["path"], params.get("model"), step)


async def weights(api: Api, params: Params) -> dict[str, Any]:
    """The parameters and buffers of a model, after its passes, as bytes: {"arrays", "total", "next", "weights"}.

    An array is {"name", "dtype", "shape", "size", "offset", "data"}: dtype as torch calls it, e.g. "float32"; data:
    row-major and little-endian, the bytes from `offset` on of `size`. names: which arrays, in this order; all of them
    without it. original: as they are without passes. start, count: of the bytes of all those arrays in a row, this
    page; count is at most 4 MiB, and with 0 only names and sizes come. total: bytes of them all. next: where the next
    page starts, or None. weights: whose values, in words.
    """
    start, count = params.get("start", 0), min(params.get("count", _PAGE), _PAGE)
    if start < 0 or count < 0:
        raise ApiError("invalid-params", f"start is {start} and count {count}; they begin at 0")
    page = {"names": params.get("names", []), "start": start, "count": count}
    original = params.get("original", False)
    return await api.daemon.passes.written("weights", params["path"], params.get("model"), original, **page)


async def draw(api: Api, params: Params) -> dict[str, Any]:
    """The graph of a model as SVG: {"svg"}, or {"file"} where it was written to the absolute path `file`, which ends in
    .svg. An older drawing is replaced; a link or anything else that is no file is refused.

    original: as it was traced, without passes.  colours: by "family" of operators, or by number "format".
    """
    colours = params.get("colours", "family")
    if colours not in _COLOURS:
        raise ApiError("invalid-params", f"colours is {colours[:80]!r}, expected one of {', '.join(_COLOURS)}")
    file = await asyncio.to_thread(written.drawing, params["file"]) if "file" in params else None
    original = params.get("original", False)
    made = await api.daemon.passes.written("draw", params["path"], params.get("model"), original, colours)
    if file is None:
        return {"svg": made["text"]}
    try:
        await asyncio.to_thread(written.write_drawing, file, made["text"])
    except OSError as error:
        raise ApiError("cannot-write", f"cannot write {file}: {error.strerror}", {"path": str(file)}) from error
    return {"file": str(file)}


OUTPUTS = (
    ApiMethod("mase/exportCheckpoint", {**MODEL, "name": str}, export_checkpoint, answers.Checkpoint, executes=True),
    ApiMethod("mase/importCheckpoint", {**MODEL, "name": str}, import_checkpoint, answers.Pipeline, executes=True),
    ApiMethod(
        "mase/weights",
        {**MODEL, "names?": list[str], "original?": bool, "start?": int, "count?": int},
        weights,
        answers.Weights,
        executes=True,
    ),
    ApiMethod(
        "mase/draw", {**MODEL, "original?": bool, "colours?": str, "file?": str}, draw, answers.Drawing, executes=True
    ),
)
