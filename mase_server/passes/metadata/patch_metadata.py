"""patch_metadata_transform_pass: number formats that the graph itself does not tell, written into the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from mase_server.formats import NumberFormat, check_config, from_config
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.report.tables import metadata_or_raise
from mase_server.passes.selection import Selection

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"precision": "fixed", "q_config": MappingProxyType({}), "only": ()})
#: What Python's own operators are called, and MASE's split.
_OPERATORS = frozenset({"add", "sub", "mul", "div", "neg", "pow", "getitem", "df_split"})


@analysis
def patch_metadata_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Write a number format into the metadata of Python's own operators (+, -, *, /, **, [...]), of splits, and of the
    graph's inputs and outputs, which no module of a quantised model speaks for. The graph computes what it did.

    precision: the format's name, e.g. "fixed".  q_config: its parameters, data_in_width, data_in_frac_width,
    data_out_width, data_out_frac_width for "fixed"; arguments or results whose keys are missing stay as they are.
    only: the nodes to patch instead.
    Arguments and results that are no floating-point tensors (sizes, token ids, masks) stay as they are. Annotating
    again writes what the graph tells.  Gives {"patched": names of nodes}.
    ValueError for an unknown format, for nodes without metadata, and where q_config says nothing.
    Source: `chop.passes.graph.transforms.patching.patch_metadata`.

    >>> class Add(nn.Module):
    ...     def forward(self, x):
    ...         return x + 1.5
    >>> graph = MaseGraph(Add(), {"x": torch.randn(3)}, add_metadata_args={})
    >>> q_config = {"data_in_width": 8, "data_in_frac_width": 4, "data_out_width": 9, "data_out_frac_width": 4}
    >>> graph, found = passes.patch_metadata_transform_pass(graph, {"q_config": q_config})
    >>> found, graph.nodes[1].meta["mase"]["common"]["results"]["data_out_0"]["precision"]
    ({'patched': ['x', 'add', 'output']}, [9, 4])
    """
    given = options("patch_metadata_transform_pass", pass_args, _DEFAULTS)
    config = {"name": given["precision"], **given["q_config"]}
    check_config(config)
    formats = {"args": from_config(config, "data_in"), "results": from_config(config, "data_out")}
    if not any(formats.values()):
        raise ValueError("patch_metadata: q_config says nothing; an example: {'data_in_width': 8, 'data_out_width': 8}")
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    chosen = [node for node in graph.fx_graph.nodes if _is_chosen(node, selection)]
    return graph, {"patched": [node.name for node in chosen if _patch(node, formats)]}


def _is_chosen(node: fx.Node, selection: Selection) -> bool:
    if selection.only:
        return selection.covers(node)
    return node.op in ("placeholder", "output") or metadata_or_raise(node)["common"].get("mase_op") in _OPERATORS


def _patch(node: fx.Node, formats: Mapping[str, NumberFormat | None]) -> bool:
    """Write the formats of arguments and results; was there anything to write?"""
    common, patched = metadata_or_raise(node)["common"], False
    for part, format in formats.items():
        entries = _data(common.get(part, {})) if format is not None else ()
        for entry in entries:
            assert format is not None
            entry.update(type=format.name, precision=list(format.precision))
            patched = True
    return patched


def _data(entries: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The floating-point tensors among data_in_... or data_out_..."""
    for name, entry in entries.items():
        if name.startswith("data_") and isinstance(entry, dict):
            dtype = entry.get("torch_dtype")
            if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
                yield entry


PASS = Pass(
    name="patch_metadata",
    title="Write number formats into metadata",
    kind="transform",
    function=patch_metadata_transform_pass,
    arguments=(
        Argument("precision", "text", "name of the number format", "fixed"),
        Argument("q_config", "map", "its parameters, e.g. data_in_width=8, data_in_frac_width=4", required=True),
    ),
    needs=frozenset({"metadata"}),
    selects=True,
    menu=False,
)
