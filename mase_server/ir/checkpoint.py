"""Checkpoints: a graph in two files, `{name}.pt` (tensors) and `{name}.mz` (graph, modules, metadata).

Loading executes nothing that comes from the files: tensors are in the layout of safetensors, the rest is msgpack, and
names are looked up in tables (`allowed`). `.mz`: MAGIC, format version, sha256 of the body, body.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import fx, nn

from mase_server import wire
from mase_server.ir.allowed import Allowed
from mase_server.ir.build import attribute
from mase_server.ir.codec import Reader, Unwritable, Writer
from mase_server.ir.errors import CheckpointError
from mase_server.ir.graph_codec import attach, read_graph, write_graph, write_metadata
from mase_server.ir.guarded import guards_of, read_guards, set_guards, write_guards
from mase_server.ir.modules_codec import read_modules, write_module
from mase_server.ir.targets import UnwritableName, require_writable
from mase_server.ir.tensors_file import can_hold, is_pickle, read_tensors, write_tensors
from mase_server.ops.types import TensorType

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph

MAGIC = wire.CHECKPOINT
FORMAT = 1
_HEAD = len(MAGIC) + 4 + 32


def export(graph: MaseGraph, fname: str | os.PathLike[str] = "masegraph") -> None:
    """Write `{fname}.pt` and `{fname}.mz`.

    Raises CheckpointError for a folder that does not exist, and for a module or value that cannot be kept as data.
    """
    pt, mz = _paths(fname)
    if not pt.parent.is_dir():
        raise CheckpointError(f"cannot write {pt}: the folder {pt.parent} does not exist; make it first")
    writer = Writer(Allowed())
    body = _describe(writer, graph)
    tensors = {str(index): tensor for index, tensor in enumerate(writer.tensors) if can_hold(tensor)}
    try:
        body["digest"] = _replace(pt, lambda file: write_tensors(file, tensors))
        packed = wire.pack(body)
        head = MAGIC + FORMAT.to_bytes(4, "little") + hashlib.sha256(packed).digest()
        _replace(mz, lambda file: file.write(head + packed))
    except OSError as error:
        raise CheckpointError(f"cannot write {pt}: {error.strerror}") from error


def load(
    checkpoint: str | os.PathLike[str], propagate_missing_metadata: bool = True, allow: Iterable[Any] = ()
) -> MaseGraph:
    """The graph of a checkpoint.

    propagate_missing_metadata: annotate nodes whose metadata could not be kept.  allow: module classes, result
    classes and functions that it may name besides torch's.  Raises CheckpointError.
    """
    from mase_server.ir.graph import MaseGraph

    loaded = load_module(checkpoint, allow)
    graph = MaseGraph(loaded.model, skip_init_metadata=True)
    graph.meta["mase"].parameters.update(loaded.metadata)
    if propagate_missing_metadata and not loaded.complete:
        _propagate(graph)
    return graph


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a checkpoint holds: the executable graph, the graph's own metadata, and whether all metadata was kept."""

    model: fx.GraphModule
    metadata: dict[str, Any]
    complete: bool


def load_module(checkpoint: str | os.PathLike[str], allow: Iterable[Any] = ()) -> Loaded:
    """The content of a checkpoint; see `load`."""
    pt, mz = _paths(checkpoint)
    for path in (mz, pt):
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist; a checkpoint is given by its name without .pt and .mz")
    try:
        body = _body(mz)
        with pt.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if body.get("digest") != digest:
            read_tensors(pt)  # says more of a file that is damaged or foreign
            raise CheckpointError(f"{pt} is not the file that {mz.name} was written with: take both from one export")
        tensors = read_tensors(pt)
    except OSError as error:
        raise CheckpointError(f"cannot read {error.filename or mz}: {error.strerror}") from error
    try:
        return _rebuild(Reader(Allowed(allow)), body, tensors)
    except CheckpointError as error:
        raise CheckpointError(f"{mz} cannot be loaded: {error}") from None


def _paths(fname: str | os.PathLike[str]) -> tuple[Path, Path]:
    name = os.fspath(fname)
    return Path(f"{name}.pt"), Path(f"{name}.mz")


def _replace(path: Path, write: Callable[[BinaryIO], Any]) -> str:
    """Write a file whole or not at all; the sha256 of what was written."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w+b") as file:
            write(file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    return digest


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _describe(writer: Writer, graph: MaseGraph) -> dict[str, Any]:
    """The body of `.mz`; fills the tables of tensors and modules."""
    try:
        model = graph.model
        nodes, complete = write_graph(writer, model)
        metadata, whole = write_metadata(writer, graph.meta["mase"].parameters)
        targets: dict[str, Any] = {}
        for node in model.graph.nodes:
            if node.op in ("call_module", "get_attr") and node.target not in targets:
                targets[node.target] = writer.write(attribute(model, node.target))
        modules: list[Any] = []
        while len(modules) < len(writer.modules):
            modules.append(write_module(writer, writer.modules[len(modules)]))
    except (Unwritable, UnwritableName) as error:
        raise CheckpointError(f"the graph cannot be exported: {error}") from None
    return {
        "name": type(model).__name__,
        "training": model.training,
        "nodes": nodes,
        "guards": write_guards(guards_of(model.graph)),
        "metadata": metadata,
        "complete": complete and whole,
        "targets": targets,
        "modules": modules,
        "tensors": [_tensor_row(tensor) for tensor in writer.tensors],
    }


def _tensor_row(tensor: torch.Tensor) -> dict[str, Any]:
    if not tensor.is_meta and not can_hold(tensor):
        text = f"a tensor of type {tensor.dtype} and layout {tensor.layout}"
        raise CheckpointError(f"the graph cannot be exported: it holds {text}, which the layout of .pt does not have")
    row: dict[str, Any] = {"parameter": isinstance(tensor, nn.Parameter), "grad": tensor.requires_grad}
    if tensor.is_meta:
        row["meta"] = [str(tensor.dtype), list(tensor.shape)]
    elif not tensor.is_contiguous() and _is_dense(tensor.shape, tensor.stride()):
        row["stride"] = list(tensor.stride())
    return row


def _is_dense(shape: Iterable[int], stride: Iterable[int]) -> bool:
    """Do these strides visit as many places as there are elements, each once?"""
    expected = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size == 1:
            continue
        if step != expected:
            return False
        expected *= size
    return True


def _body(path: Path) -> dict[str, Any]:
    """The checked content of a `.mz` file."""
    data = path.read_bytes()
    if is_pickle(data):
        raise CheckpointError(
            f"{path} is a pickle, as MASE writes them; reading one executes it, so it is not read. Load it where you "
            f"trust it and export the graph again with mase_server"
        )
    if data[: len(MAGIC)] != MAGIC:
        raise CheckpointError(f"{path} is not a checkpoint of mase_server: it begins with {data[:8]!r}")
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")
    if version != FORMAT:
        raise CheckpointError(
            f"{path} has format {version}, this version of mase_server reads format {FORMAT}: export the graph again"
        )
    if hashlib.sha256(data[_HEAD:]).digest() != data[_HEAD - 32 : _HEAD]:
        raise CheckpointError(f"{path} is damaged or cut off: its checksum is not that of its {len(data)} bytes")
    try:
        body = wire.unpack(memoryview(data)[_HEAD:])
    except wire.WireError as error:
        raise CheckpointError(f"{path} is not a checkpoint: {error}") from None
    if not isinstance(body, dict):
        raise CheckpointError(f"{path} is not a checkpoint: it holds a {type(body).__name__}")
    return body


def _rebuild(reader: Reader, body: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Loaded:
    rows, targets, name = body.get("tensors"), body.get("targets"), body.get("name")
    if not isinstance(rows, list) or not isinstance(targets, dict) or not isinstance(name, str):
        raise CheckpointError("it lacks its tables")
    reader.tensors.extend(_tensor(index, row, tensors) for index, row in enumerate(rows))
    read_modules(reader, body.get("modules"))
    roots = {_path(path): reader.read(value) for path, value in targets.items()}
    graph = read_graph(reader, body.get("nodes"), roots)
    set_guards(graph, read_guards(body.get("guards", [[], [], ""])))
    try:
        graph.lint()
        require_writable(graph)
        model = fx.GraphModule(roots, graph, name if name.isidentifier() else "GraphModule")
    except Exception as error:  # noqa: BLE001 - whatever fx finds wrong with a graph from outside
        raise CheckpointError(f"its graph is not whole: {type(error).__name__}: {error}") from None
    model.training = body.get("training") is True
    attach(model.graph, model)
    metadata = reader.read(body.get("metadata"))
    return Loaded(model, metadata if isinstance(metadata, dict) else {}, body.get("complete") is True)


def _path(path: Any) -> str:
    if not isinstance(path, str) or any(not part or part.startswith("__") for part in path.split(".")):
        raise CheckpointError(f"it has a target {path!r:.80}")
    return path


def _tensor(index: int, row: Any, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    try:
        tensor = _meta(row["meta"]) if "meta" in row else _strided(tensors[str(index)], row.get("stride"))
        parameter, grad = row["parameter"] is True, row["grad"] is True
        return nn.Parameter(tensor, grad) if parameter else tensor.requires_grad_(grad)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"its tensor {index} cannot be made: {row!r:.80} ({error})") from None


def _meta(row: Any) -> torch.Tensor:
    kind, shape = row
    dtype = getattr(torch, str(kind).removeprefix("torch."))
    return torch.empty(shape, dtype=dtype if isinstance(dtype, torch.dtype) else None, device="meta")


def _strided(tensor: torch.Tensor, stride: Any) -> torch.Tensor:
    if stride is None:
        return tensor
    if not all(type(step) is int for step in stride) or not _is_dense(tensor.shape, stride):
        raise ValueError(f"strides {stride!r:.60} do not fit")
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)


def _propagate(graph: MaseGraph) -> None:
    """Annotate a graph whose metadata is not whole, on meta tensors of the types that its inputs had."""
    inputs = {}
    for node in graph.fx_graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("value")
            if not isinstance(value, TensorType):
                return
            dtype = getattr(torch, value.dtype, None)
            inputs[str(node.target)] = torch.empty(value.shape, dtype=dtype, device="meta")
    graph.annotate(dummy_in=inputs, add_value=False)
