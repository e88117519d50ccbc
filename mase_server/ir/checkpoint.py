"""Checkpoints: a graph in two files, `{name}.pt` (tensors) and `{name}.mz` (graph, modules, metadata).

Loading executes nothing from the files: tensors are in the layout of safetensors, the rest is msgpack, and names are
looked up in tables (`allowed`). `.mz`: MAGIC, format version, sha256 of the body, body. An fx graph is written as
rows of plain data, one for each node.

The sha256 guards against damage, not against people. Both files are of one export: `.mz` holds the digest of `.pt`.
"""

from __future__ import annotations

import contextlib
import hashlib
import keyword
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NotRequired, TypedDict

import torch
from torch import fx, nn

from mase_server.ir.allowed import (
    Allowed,
    CheckpointError,
    UnwritableName,
    dotted_name,
    is_method,
    is_public,
    require_writable,
)
from mase_server.ir.build import (
    GuardedCode,
    _Named,
    attribute,
    guards_of,
    read_guards,
    set_guards,
    underlying_callable,
    write_guards,
)
from mase_server.ir.codec import ModuleRow, Reader, Unwritable, Writer, read_modules, write_module
from mase_server.ir.metadata import MaseMetadata, MetadataTree
from mase_server.ir.tensors_file import can_hold, is_pickle, read_tensors, write_tensors
from mase_server.ops.types import TensorType
from mase_server.protocol import wire
from mase_server.tracing.recording.leaf_functions import CustomFunction

if TYPE_CHECKING:
    from mase_server.ir.graph import MaseGraph


MAGIC = wire.CHECKPOINT
FORMAT = 1
_HEAD = len(MAGIC) + 4 + 32


def export(graph: MaseGraph, fname: str | os.PathLike[str] = "masegraph") -> None:
    """Write `{fname}.pt` and `{fname}.mz`.

    Raises CheckpointError for a folder that does not exist, and for a module or value that cannot be written as
    data.
    """
    pt, mz = _checkpoint_paths(fname)
    if not pt.parent.is_dir():
        raise CheckpointError(f"cannot write {pt}: the folder {pt.parent} does not exist; make it first")
    writer = Writer(Allowed())
    body = _describe_graph(writer, graph)
    tensors = {str(index): tensor for index, tensor in enumerate(writer.tensors) if can_hold(tensor)}
    try:
        body["digest"] = _replace_file(pt, lambda file: write_tensors(file, tensors))
        packed = wire.pack(body)
        head = MAGIC + FORMAT.to_bytes(4, "little") + hashlib.sha256(packed).digest()
        _replace_file(mz, lambda file: file.write(head + packed))
    except OSError as error:
        raise CheckpointError(f"cannot write {pt}: {error.strerror}") from error


def load(
    checkpoint: str | os.PathLike[str], propagate_missing_metadata: bool = True, allow: Iterable[Any] = ()
) -> MaseGraph:
    """Load the graph of a checkpoint.

    propagate_missing_metadata: annotate nodes whose metadata could not be written.  allow: further module classes,
    result classes and functions that it may name, besides torch's.  Raises CheckpointError.
    """
    from mase_server.ir.graph import MaseGraph

    loaded = load_module(checkpoint, allow)
    graph = MaseGraph(loaded.model, skip_init_metadata=True)
    graph.meta["mase"].parameters.update(loaded.metadata)
    if propagate_missing_metadata and not loaded.complete:
        _annotate_incomplete_graph(graph)
    return graph


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of a checkpoint: the executable graph, its own metadata, and whether all metadata was written."""

    model: fx.GraphModule
    metadata: MetadataTree
    complete: bool


def load_module(checkpoint: str | os.PathLike[str], allow: Iterable[Any] = ()) -> Loaded:
    """Load the content of a checkpoint; see `load`."""
    pt, mz = _checkpoint_paths(checkpoint)
    for path in (mz, pt):
        if not path.is_file():
            raise CheckpointError(f"{path} does not exist; a checkpoint is given by its name without .pt and .mz")
    try:
        body = _read_body(mz)
        with pt.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if body.get("digest") != digest:
            read_tensors(pt)  # gives a better reason for a damaged or foreign file
            raise CheckpointError(f"{pt} is not the file that {mz.name} was written with: take both from one export")
        tensors = read_tensors(pt)
    except OSError as error:
        raise CheckpointError(f"cannot read {error.filename or mz}: {error.strerror}") from error
    try:
        return _rebuild_graph(Reader(Allowed(allow)), body, tensors)
    except CheckpointError as error:
        raise CheckpointError(f"{mz} cannot be loaded: {error}") from None


def _checkpoint_paths(fname: str | os.PathLike[str]) -> tuple[Path, Path]:
    name = os.fspath(fname)
    return Path(f"{name}.pt"), Path(f"{name}.mz")


def _replace_file(path: Path, write: Callable[[BinaryIO], Any]) -> str:
    """Write a file whole or not at all; return the sha256 of its content."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w+b") as file:
            write(file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        Path(temporary).chmod(0o666 & ~_read_umask())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    return digest


def _read_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


class TensorRow(TypedDict):
    """A tensor as it is written, without its values. meta: [element type, shape] of one on meta."""

    parameter: bool
    grad: bool
    meta: NotRequired[list[Any]]
    stride: NotRequired[list[int]]


class CheckpointBody(TypedDict):
    """The content of a `.mz` file. targets: what nodes name.  complete: all metadata.  digest: of the `.pt`."""

    name: str
    training: bool
    nodes: list[Any]
    guards: list[Any]
    metadata: Any
    complete: bool
    targets: dict[str, object]
    modules: list[ModuleRow]
    tensors: list[TensorRow]
    digest: NotRequired[str]


def _describe_graph(writer: Writer, graph: MaseGraph) -> CheckpointBody:
    """The body of `.mz`; fills the tables of tensors and modules."""
    try:
        model = graph.model
        nodes, complete = write_graph(writer, model)
        metadata, whole = write_metadata(writer, graph.meta["mase"].parameters)
        targets: dict[str, object] = {}
        for node in model.graph.nodes:
            if node.op in ("call_module", "get_attr") and node.target not in targets:
                targets[node.target] = writer.write(attribute(model, node.target))
        modules: list[ModuleRow] = []
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


def _tensor_row(tensor: torch.Tensor) -> TensorRow:
    if not tensor.is_meta and not can_hold(tensor):
        text = f"a tensor of type {tensor.dtype} and layout {tensor.layout}"
        raise CheckpointError(f"the graph cannot be exported: it holds {text}, which the layout of .pt does not have")
    row: TensorRow = {"parameter": isinstance(tensor, nn.Parameter), "grad": tensor.requires_grad}
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


def _read_body(path: Path) -> Mapping[str, Any]:
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


def _rebuild_graph(reader: Reader, body: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> Loaded:
    rows, targets, name = body.get("tensors"), body.get("targets"), body.get("name")
    if not isinstance(rows, list) or not isinstance(targets, dict) or not isinstance(name, str):
        raise CheckpointError("it lacks its tables")
    reader.tensors.extend(_rebuild_tensor(index, row, tensors) for index, row in enumerate(rows))
    read_modules(reader, body.get("modules"))
    roots = {_check_target_path(path): reader.read(value) for path, value in targets.items()}
    graph = read_graph(reader, body.get("nodes"), roots)
    set_guards(graph, read_guards(body.get("guards", [[], [], ""])))
    try:
        graph.lint()
        require_writable(graph)
        model = fx.GraphModule(roots, graph, name if name.isidentifier() else "GraphModule")
    except Exception as error:  # noqa: BLE001 - whatever fx finds wrong with a graph from outside
        raise CheckpointError(f"its graph is not whole: {type(error).__name__}: {error}") from None
    model.training = body.get("training") is True
    attach_metadata(model.graph, model)
    metadata = reader.read(body.get("metadata"))
    return Loaded(model, metadata if isinstance(metadata, dict) else {}, body.get("complete") is True)


def _check_target_path(path: Any) -> str:
    if not isinstance(path, str) or any(not part or part.startswith("__") for part in path.split(".")):
        raise CheckpointError(f"it has a target {path!r:.80}")
    return path


def _rebuild_tensor(index: int, row: Any, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    try:
        tensor = (
            _make_meta_tensor(row["meta"])
            if "meta" in row
            else _restore_strides(tensors[str(index)], row.get("stride"))
        )
        parameter, grad = row["parameter"] is True, row["grad"] is True
        return nn.Parameter(tensor, grad) if parameter else tensor.requires_grad_(grad)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"its tensor {index} cannot be made: {row!r:.80} ({error})") from None


def _make_meta_tensor(row: Any) -> torch.Tensor:
    kind, shape = row
    dtype = getattr(torch, str(kind).removeprefix("torch."))
    return torch.empty(shape, dtype=dtype if isinstance(dtype, torch.dtype) else None, device="meta")


def _restore_strides(tensor: torch.Tensor, stride: Any) -> torch.Tensor:
    if stride is None:
        return tensor
    if not all(type(step) is int for step in stride) or not _is_dense(tensor.shape, stride):
        raise ValueError(f"strides {stride!r:.60} do not fit")
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)


def _annotate_incomplete_graph(graph: MaseGraph) -> None:
    """Annotate a graph whose metadata is incomplete, on meta tensors of its recorded input types."""
    inputs = {}
    for node in graph.fx_graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("value")
            if not isinstance(value, TensorType):
                return
            dtype = getattr(torch, value.dtype, None)
            inputs[str(node.target)] = torch.empty(value.shape, dtype=dtype, device="meta")
    graph.annotate(dummy_in=inputs, add_value=False)


# An fx graph with its metadata as rows of plain data, and back.
#
# fx turns a graph into Python source, so every name that gets into it is checked to be an identifier.

#: Entries of a node's meta that are written, besides `mase`.
_META = ("scope", "value")


def write_graph(writer: Writer, model: fx.GraphModule) -> tuple[list[Any], bool]:
    """One row for each node, and whether all metadata could be written. Unwritable for an argument or target that
    cannot be."""
    if type(model.graph._codegen) not in (fx.graph.CodeGen, GuardedCode):
        raise Unwritable("a graph that flattens its inputs (fx.PH); trace it with tensors as inputs")
    rows, complete = [], True
    for node in model.graph.nodes:
        try:
            row = [node.op, node.name, _write_target(writer, node), writer.write(node.args), writer.write(node.kwargs)]
        except Unwritable as error:
            raise Unwritable(f"node {node.name!r} holds {error}") from None
        meta, whole = _write_meta(writer, node)
        complete &= whole
        rows.append([*row, meta])
        writer.index(writer.nodes, node)
    return rows, complete


def _write_target(writer: Writer, node: fx.Node) -> Any:
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, _Named):
        return ["named", node.target.__name__, writer.write(underlying_callable(node.target))]
    if isinstance(node.target, CustomFunction):
        return ["autograd", dotted_name(node.target.kind)]
    try:
        return writer.write(node.target)
    except Unwritable:
        raise CheckpointError(
            f"the graph cannot be exported: node {node.name!r} calls {node.target!r:.100}, which has no name that can "
            f"be looked up; define it at the top of a module"
        ) from None


def _write_meta(writer: Writer, node: fx.Node) -> tuple[dict[str, object], bool]:
    found = {key: writer.write(node.meta[key]) for key in _META if key in node.meta}
    metadata, whole = node.meta.get("mase"), True
    if isinstance(metadata, MaseMetadata):
        found["mase"], whole = write_metadata(writer, metadata.parameters)
    return found, whole


def write_metadata(writer: Writer, tree: MetadataTree) -> tuple[Any, bool]:
    """A metadata tree without the branches that cannot be written, and whether it is complete."""
    try:
        return writer.write(tree), True
    except Unwritable:
        return writer.write(_keep_writable(writer, tree)), False


def _keep_writable(writer: Writer, tree: MetadataTree) -> MetadataTree:
    kept: MetadataTree = {}
    for key, value in tree.items():
        if type(value) is dict:
            kept[key] = _keep_writable(writer, value)
            continue
        try:
            writer.write(value)
        except Unwritable:
            continue
        kept[key] = value
    return kept


def read_graph(reader: Reader, rows: Any, targets: Mapping[str, object]) -> fx.Graph:
    """Read a graph. targets: the names that call_module and get_attr may use."""
    if not isinstance(rows, list) or not rows:
        raise CheckpointError("it has no nodes")
    graph = fx.Graph()
    for number, row in enumerate(rows):
        try:
            op, name, target, args, kwargs, meta = row
            _check_target(op, target, targets)
        except (TypeError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"its node {number} is not understood: {row!r:.100}") from None
        node = _read_node(reader, graph, (op, name, target, args, kwargs))
        for key, value in (meta if isinstance(meta, dict) else {}).items():
            if key in (*_META, "mase"):
                node.meta[key] = reader.read(value)
        reader.nodes.append(node)
    if rows[-1][0] != "output":
        raise CheckpointError(f"its last node is a {rows[-1][0]!r:.40}, not an output: it is cut off")
    return graph


def _read_node(reader: Reader, graph: fx.Graph, row: tuple[Any, ...]) -> fx.Node:
    op, name, target, args, kwargs = row
    if op == "call_function":
        target = _read_function(reader, target)
    args, kwargs = reader.read(args), reader.read(kwargs)
    if not isinstance(args, tuple) or not isinstance(kwargs, dict) or not _is_node_name(name):
        raise CheckpointError(f"its node {name!r:.60} has the arguments {args!r:.60}, {kwargs!r:.60}")
    if not all(_is_identifier(key) for key in kwargs):
        raise CheckpointError(f"its node {name!r:.60} has the keywords {list(kwargs)!r:.80}")
    if target is getattr and not (len(args) == 2 and is_public(args[1])):
        raise CheckpointError(f"its node {name!r:.60} reads the attribute {args[1:]!r:.80}")
    try:
        return graph.create_node(op, target, args, kwargs, name=name)
    except Exception as error:  # noqa: BLE001 - fx asserts what it likes about what it is given
        raise CheckpointError(f"its node {name!r:.60} cannot be made: {error}") from None


def _read_function(reader: Reader, target: Any) -> Callable[..., Any]:
    match target:
        case ["named", str(name), inner] if _is_identifier(name):
            found = reader.read(inner)
            if callable(found):
                return _Named(name, found)
        case ["function", name]:
            return reader.allowed.function(name)
        case ["class", str(name)]:
            return reader.allowed.result_class(name)
        case ["autograd", str(name)]:
            return CustomFunction(reader.allowed.autograd_function(name))
    raise CheckpointError(f"it calls {target!r:.100}")


def _check_target(op: Any, target: Any, targets: Mapping[str, object]) -> None:
    if op in ("call_module", "get_attr"):
        if target not in targets or (op == "call_module" and not isinstance(targets[target], nn.Module)):
            raise CheckpointError(f"a {op} names {target!r:.80}, which it does not have")
    elif op == "call_method":
        if not is_method(target):
            raise CheckpointError(f"it calls a method {target!r:.80}, which tensors do not have")
    elif op == "placeholder":
        if not isinstance(target, str) or not _is_identifier(target.lstrip("*")):
            raise CheckpointError(f"it has an input {target!r:.80}")
    elif op not in ("call_function", "output"):
        raise CheckpointError(f"it has a node of kind {op!r:.40}")


def _is_node_name(name: Any) -> bool:
    # fx names the nodes of layers whose names have no letter _, __1, __2 and so on.
    return _is_identifier(name) or (isinstance(name, str) and re.fullmatch("__[0-9]+", name) is not None)


def _is_identifier(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def attach_metadata(graph: fx.Graph, model: fx.GraphModule) -> None:
    """Give each node its metadata object if its row had one."""
    for node in graph.nodes:
        parameters = node.meta.get("mase")
        if isinstance(parameters, dict):
            node.meta["mase"] = MaseMetadata(node, model)
            node.meta["mase"].parameters.update(parameters)
        else:
            node.meta.pop("mase", None)
