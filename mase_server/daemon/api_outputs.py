"""API functions that write or read a model's graph: weights as arrays, checkpoints out and in, and its drawing."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

from mase_server.daemon.methods import MODEL, Api, ApiError, ApiMethod, Params
from mase_server.protocol import answers
from mase_server.protocol.arguments import Step
from mase_server.protocol.request import VIEWS
from mase_server.protocol.wire import CHECKPOINT

_COLOURS = ("family", "format")
#: Bytes of arrays in one answer: few, so that packing them blocks the event loop only for a moment.
_PAGE = 4 << 20


async def export_checkpoint(api: Api, params: Params) -> answers.Checkpoint:
    """Write a model with its weights, after its passes, as `{name}.pt` and `{name}.mz`: {"files", "weights"}.

    name: an absolute path without ending, in an existing folder. An older checkpoint is replaced; files that
    mase-server did not write are not.  weights: the origin of the values, in words.
    `MaseGraph.from_checkpoint` reads these files.
    """
    name = await asyncio.to_thread(check_checkpoint_path, params["name"], new=True)
    written: answers.Checkpoint = await api.daemon.passes.written(
        "export", params["path"], params.get("model"), name=name
    )
    return written


async def import_checkpoint(api: Api, params: Params) -> answers.Pipeline:
    """Replace a model's graph and weights by those of a checkpoint, as one more pass; answers as `mase/pipeline`.

    name: as in `mase/exportCheckpoint`.  Until `mase/undoPass`, drawings, code, weights and hardware are those of the
    checkpoint. A checkpoint of a model with other inputs is refused. Nothing in the files is executed.
    """
    step = Step("load_checkpoint", {"name": check_checkpoint_path(params["name"], new=False)})
    return await api.daemon.passes.apply(params["path"], params.get("model"), step)


async def read_weights(api: Api, params: Params) -> answers.Weights:
    """The parameters and buffers of a model, after its passes, as bytes: {"arrays", "total", "next", "weights"}.

    An array is {"name", "dtype", "shape", "size", "offset", "data"}: dtype as torch calls it, e.g. "float32"; data:
    row-major and little-endian, the part of its `size` bytes that begins at `offset`. names: the arrays to return, in
    this order; all of them without it. original: without passes. start, count: the page, in bytes of those arrays one
    after the other; count is at most 4 MiB, and 0 returns only names and sizes. total: bytes of all arrays. next: the
    start of the next page, or None. weights: the origin of the values, in words.
    """
    start, count = params.get("start", 0), min(params.get("count", _PAGE), _PAGE)
    if start < 0 or count < 0:
        raise ApiError("invalid-params", f"start is {start} and count {count}; they begin at 0")
    page = {"names": params.get("names", []), "start": start, "count": count}
    original = params.get("original", False)
    written: answers.Weights = await api.daemon.passes.written(
        "weights", params["path"], params.get("model"), original, **page
    )
    return written


async def read_weight_statistics(api: Api, params: Params) -> answers.WeightStatistics:
    """Statistics of the weights of a node or a module, after the passes: {"parameters", "total", "weights"}.

    of: the path of a module, e.g. "blocks.0.fc", of one parameter, or "" for the whole model. A parameter is {"name",
    "dtype", "shape", "count", "random", "mean", "std", "min", "max", "zeros", "not_finite", "bins"}; bins: a histogram
    from min to max. random: the files that the model loads do not give its values, so nothing is told of them.
    original: without passes. total: how many parameters there are; the first hundred are told. weights: the origin of
    the values, in words.
    """
    found: answers.WeightStatistics = await api.daemon.passes.written(
        "weight_statistics", params["path"], params.get("model"), params.get("original", False), params["of"]
    )
    return found


async def draw_graph(api: Api, params: Params) -> answers.Drawing:
    """The graph of a model as SVG: {"svg"}, or {"file"} if it was written to `file`, an absolute path ending in .svg.
    An older drawing is replaced; a link or anything else that is not a regular file is refused.

    original: as it was traced, without passes.  colours: by "family" of operators, or by number "format".
    """
    colours = params.get("colours", "family")
    if colours not in _COLOURS:
        raise ApiError("invalid-params", f"colours is {colours[:80]!r}, expected one of {', '.join(_COLOURS)}")
    file = await asyncio.to_thread(check_drawing_path, params["file"]) if "file" in params else None
    original = params.get("original", False)
    made = await api.daemon.passes.written("draw", params["path"], params.get("model"), original, colours)
    if file is None:
        return {"svg": made["text"]}
    try:
        await asyncio.to_thread(write_drawing, file, made["text"])
    except OSError as error:
        raise ApiError("cannot-write", f"cannot write {file}: {error.strerror}", {"path": str(file)}) from error
    return {"file": str(file)}


async def show_compiled(api: Api, params: Params) -> answers.Compiled:
    """The product of a compiler for a model as it is written, for its own inputs and at other sizes.

    view: "dynamo", the graphs that torch.compile captures, the places where it breaks them, and why it compiles again;
    "aten", the same as ATen operators; "inductor", the code that it generates for the GPU, or for the CPU if there is
    none, which is not built, and its kernels; "export", the program of torch.export with the sizes that may vary,
    compared with the model. A problem says why a program cannot be exported.  further: also run it at other sizes, and
    search for edits that remove breaks; true by default. Without it, `recompiles` is empty and no break has a fix, in a
    fraction of the time.
    passes: compile the graph with the passes that are applied to the model, for its own inputs alone.
    device: "cpu" for Inductor's code for the CPU, also where there is a GPU.
    """
    view = params.get("view", "dynamo")
    if view not in VIEWS:
        raise ApiError("invalid-params", f"there is no view {view[:80]!r}; there are {', '.join(VIEWS)}")
    further, passes = params.get("further", True), params.get("passes", False)
    if (device := params.get("device", "")) not in ("", "cpu"):
        raise ApiError(
            "invalid-params", f"device is {device[:80]!r}, expected cpu, or none for the GPU if there is one"
        )
    return await api.daemon.compile(params["path"], params.get("model"), view, further, passes, device)


OUTPUTS = (
    ApiMethod("mase/exportCheckpoint", {**MODEL, "name": str}, export_checkpoint, answers.Checkpoint, executes=True),
    ApiMethod("mase/importCheckpoint", {**MODEL, "name": str}, import_checkpoint, answers.Pipeline, executes=True),
    ApiMethod(
        "mase/weights",
        {**MODEL, "names?": list[str], "original?": bool, "start?": int, "count?": int},
        read_weights,
        answers.Weights,
        executes=True,
    ),
    ApiMethod(
        "mase/weightStatistics",
        {**MODEL, "of": str, "original?": bool},
        read_weight_statistics,
        answers.WeightStatistics,
        executes=True,
    ),
    ApiMethod(
        "mase/draw",
        {**MODEL, "original?": bool, "colours?": str, "file?": str},
        draw_graph,
        answers.Drawing,
        executes=True,
    ),
    ApiMethod(
        "mase/compiled",
        {**MODEL, "view?": str, "further?": bool, "passes?": bool, "device?": str},
        show_compiled,
        answers.Compiled,
        executes=True,
    ),
)


# Checks of the paths that a request wants to write: absolute, with the right ending, and never somebody else's file.
#
# A client has the user's rights, but the names it sends may come from elsewhere: a notebook, a chat, a build.

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)


def check_drawing_path(text: str) -> Path:
    """The path of a drawing; ApiError if it is relative, does not end in .svg, or is not a regular file."""
    file = Path(text)
    if not _is_whole(file) or file.suffix.lower() != ".svg":
        raise ApiError("invalid-params", f"file is {text[:200]!r}; it has to be an absolute path that ends in .svg")
    _require_file(file)
    return file


def write_drawing(file: Path, text: str) -> None:
    """Write a drawing, replacing an older one, and through no link. OSError."""
    with os.fdopen(os.open(file, _NEW, 0o666), "w", encoding="utf-8") as opened:
        opened.write(text)


def check_checkpoint_path(text: str, *, new: bool) -> str:
    """The path of a checkpoint, without its endings; ApiError for a relative one.

    new: it is about to be written; then ApiError also if somebody else's file has this name, e.g. trained weights.
    """
    name = Path(text)
    if not _is_whole(name):
        raise ApiError("invalid-params", f"name is {text[:200]!r}; it has to be an absolute path, without ending")
    if new:
        tensors, graph = Path(f"{name}.pt"), Path(f"{name}.mz")
        found = [file for file in (tensors, graph) if _require_file(file)]
        if found and not (graph in found and _is_ours(graph)):
            told = f"{found[0]} was not written by mase-server, and nothing was written"
            raise ApiError("cannot-write", f"{told}; choose another name, or move that file", {"path": str(found[0])})
    return str(name)


def _is_whole(path: Path) -> bool:
    return path.is_absolute() and "\0" not in str(path)


def _is_ours(graph: Path) -> bool:
    try:
        with graph.open("rb") as file:
            return file.read(len(CHECKPOINT)) == CHECKPOINT
    except OSError:
        return False


def _require_file(file: Path) -> bool:
    """Is there a file? ApiError for a link, a folder, a device or a pipe, which must not be replaced or written to."""
    try:
        mode = file.lstat().st_mode
    except OSError:
        return False  # the writer reports why it cannot
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise ApiError("cannot-write", f"cannot write {file}: it is {kind}; choose another name", {"path": str(file)})
    return True
