"""metadata_value_type_cast_transform_pass: every value in the metadata in another form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from mase_server.ir.entry import TensorEntry
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.report.tables import metadata_or_raise
from mase_server.passes.selection import Selection

Cast = Callable[[Any], Any]

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"fn": "numpy", "only": ()})
_FLOATS = ("float64", "float32", "bfloat16", "float16")


@analysis
def metadata_value_type_cast_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Apply a function to every entry called `value` in the metadata of every node.

    fn: a function of one value, or what tensors become: "numpy" arrays, nested "list"s, "tensor"s of their own
    without a gradient, or "float64", "float32", "bfloat16", "float16", to which floating-point tensors are converted.
    only: the nodes to work on; without it, all of them.
    Values that are computed when they are read are cast when they are read, and nothing is computed before.
    Gives {"cast": how many values}.  ValueError for another word, and for nodes without metadata.
    Source: `chop.passes.graph.transforms.utils.metadata_value_type_cast`.

    >>> graph = MaseGraph(nn.Sequential(nn.ReLU()), {"input": torch.tensor([-1.0, 2.0])}, add_metadata_args={})
    >>> graph, _ = passes.metadata_value_type_cast_transform_pass(graph, {"fn": "list"})
    >>> graph.nodes[1].meta["mase"]["common"]["results"]["data_out_0"]["value"]
    [0.0, 2.0]
    """
    given = options("metadata_value_type_cast_transform_pass", pass_args, _DEFAULTS)
    cast, selection = _cast_of(given["fn"]), Selection.of(given["only"]).checked(graph.fx_graph)
    chosen = [node for node in graph.fx_graph.nodes if selection.covers(node)]
    return graph, {"cast": sum(_cast_all(metadata_or_raise(node).parameters, cast) for node in chosen)}


def _cast_of(fn: Any) -> Cast:
    if callable(fn):
        return fn  # type: ignore[no-any-return]
    if fn not in _CASTS:
        raise ValueError(f"metadata_value_type_cast: fn is {fn!r}, expected a function or one of {', '.join(_CASTS)}")
    return partial(_of_tensors, _CASTS[fn])


def _of_tensors(cast: Cast, value: Any) -> Any:
    """A value with its tensors cast, wherever they are; all else as it is."""
    if isinstance(value, Tensor):
        return cast(value)
    if type(value) in (list, tuple):
        return type(value)(_of_tensors(cast, item) for item in value)
    return {key: _of_tensors(cast, item) for key, item in value.items()} if type(value) is dict else value


def _to_float(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _to_numpy(tensor: Tensor) -> Any:
    """A NumPy array; one in float32 where NumPy has no such element type."""
    own = tensor.detach().cpu()
    return (own.float() if own.dtype is torch.bfloat16 else own).numpy()


_CASTS: Mapping[str, Cast] = {
    "numpy": _to_numpy,
    "list": lambda tensor: tensor.detach().tolist(),
    "tensor": lambda tensor: tensor.detach().clone(),
    **{name: partial(_to_float, getattr(torch, name)) for name in _FLOATS},
}


def _cast_all(tree: Any, cast: Cast) -> int:
    """Cast the values of one tree in place; how many there are."""
    if isinstance(tree, list | tuple):
        return sum(_cast_all(item, cast) for item in tree)
    if not isinstance(tree, dict):
        return 0
    count = sum(_cast_all(item, cast) for key, item in tree.items() if key != "value")
    if isinstance(tree, TensorEntry) and "value" in tree.lazy:
        tree.lazy = {**tree.lazy, "value": partial(_cast_later, tree.lazy["value"], cast)}
        return count + 1
    if "value" in tree:
        tree["value"] = cast(tree["value"])
        return count + 1
    return count


def _cast_later(read: Callable[[], Any], cast: Cast) -> Any:
    return cast(read())


PASS = Pass(
    name="metadata_value_type_cast",
    title="Cast values in metadata",
    kind="transform",
    function=metadata_value_type_cast_transform_pass,
    arguments=(Argument("fn", "choice", "what tensors become", "numpy", choices=tuple(_CASTS)),),
    needs=frozenset({"metadata"}),
    selects=True,
    menu=False,
)
