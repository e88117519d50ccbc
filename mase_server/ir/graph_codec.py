"""An fx graph with its metadata as rows of plain data, and back.

fx turns a graph into Python source, so every name that gets there is checked to be one.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

from torch import fx, nn

from mase_server.ir.allowed import is_method, is_public, qualified
from mase_server.ir.build import _Named, underlying
from mase_server.ir.codec import Reader, Unwritable, Writer
from mase_server.ir.errors import CheckpointError
from mase_server.ir.guarded import GuardedCode
from mase_server.ir.metadata import MaseMetadata
from mase_server.tracing.custom_functions import CustomFunction

#: What a node's meta holds besides `mase`.
_META = ("scope", "value")


def write_graph(writer: Writer, model: fx.GraphModule) -> tuple[list[Any], bool]:
    """One row for each node, and whether all metadata could be kept. Unwritable tells of an argument or a target."""
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
        return ["named", node.target.__name__, writer.write(underlying(node.target))]
    if isinstance(node.target, CustomFunction):
        return ["autograd", qualified(node.target.kind)]
    try:
        return writer.write(node.target)
    except Unwritable:
        raise CheckpointError(
            f"the graph cannot be exported: node {node.name!r} calls {node.target!r:.100}, which has no name that can "
            f"be looked up; define it at the top of a module"
        ) from None


def _write_meta(writer: Writer, node: fx.Node) -> tuple[dict[str, Any], bool]:
    found = {key: writer.write(node.meta[key]) for key in _META if key in node.meta}
    metadata, whole = node.meta.get("mase"), True
    if isinstance(metadata, MaseMetadata):
        found["mase"], whole = write_metadata(writer, metadata.parameters)
    return found, whole


def write_metadata(writer: Writer, tree: dict[str, Any]) -> tuple[Any, bool]:
    """A metadata tree without the branches that cannot be kept, and whether it is whole."""
    try:
        return writer.write(tree), True
    except Unwritable:
        return writer.write(_writable(writer, tree)), False


def _writable(writer: Writer, tree: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        if type(value) is dict:
            kept[key] = _writable(writer, value)
            continue
        try:
            writer.write(value)
        except Unwritable:
            continue
        kept[key] = value
    return kept


def read_graph(reader: Reader, rows: Any, targets: dict[str, Any]) -> fx.Graph:
    """The graph; `targets` are what call_module and get_attr may name."""
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
        target = _function(reader, target)
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


def _function(reader: Reader, target: Any) -> Callable[..., Any]:
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


def _check_target(op: Any, target: Any, targets: dict[str, Any]) -> None:
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
    # fx calls nodes of layers without a letter in their names _, __1, __2 and so on.
    return _is_identifier(name) or (isinstance(name, str) and re.fullmatch("__[0-9]+", name) is not None)


def _is_identifier(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def attach(graph: fx.Graph, model: fx.GraphModule) -> None:
    """Give each node its metadata object, where the rows had one."""
    for node in graph.nodes:
        parameters = node.meta.get("mase")
        if isinstance(parameters, dict):
            node.meta["mase"] = MaseMetadata(node, model)
            node.meta["mase"].parameters.update(parameters)
        else:
            node.meta.pop("mase", None)
