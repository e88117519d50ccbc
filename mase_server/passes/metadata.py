"""Passes that write metadata of nodes: init, common, software, hardware, casts of values, and formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.formats import NumberFormat, check_config, from_config
from mase_server.hardware.described import Becomes, describe_instances
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.ir.facts import call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import (
    CommonMetadata,
    HardwareMetadata,
    InstanceMetadata,
    ParameterInterface,
    VerilogParameters,
    metadata_of,
)
from mase_server.ir.number_formats import format_text
from mase_server.ir.recording import TensorEntry
from mase_server.passes.completing import add_places, analysis
from mase_server.passes.declaration import Argument, Result, Selection, complete_options, with_common_metadata
from mase_server.passes.report.report_graph import metadata_or_raise

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"add_value": True, "dummy_in": None, "force_device_meta": False})


@analysis(
    "Add operators, types, arguments and results",
    arguments=(
        Argument("add_value", "boolean", "offer values, which are computed when they are read", default=True),
        Argument("force_device_meta", "boolean", "offer meta tensors in place of values", default=False),
    ),
    menu=False,
)
def add_common_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Add operator, type, arguments and results of every node.

    dummy_in: inputs by name (a dict or BatchEncoding), all of which are used; without it those that the graph was
    recorded on.  add_value: offer values, which are computed when they are read.  force_device_meta: offer meta tensors
    in place of values.  Raises ValueError for an unknown option or input.
    Source: `chop.passes.graph.analysis.add_metadata.add_common_metadata_analysis_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.add_common_metadata_analysis_pass(graph, {"dummy_in": {"input": torch.randn(5, 4)}})
    >>> graph.nodes[2].meta["mase"]["common"]["results"]["data_out_0"]["shape"]
    [5, 2]
    """
    graph.annotate(**complete_options("add_common_metadata_analysis_pass", pass_args, _DEFAULTS))
    return graph, {}


# init_metadata: an empty MaseMetadata for every node.


@analysis("Give every node empty metadata", menu=False)
def init_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Give every node an empty MaseMetadata under `node.meta["mase"]`; existing metadata is kept.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, _ = passes.init_metadata_analysis_pass(graph)
    >>> list(graph.nodes[0].meta["mase"])
    ['common', 'hardware', 'software']
    """
    graph.init_metadata()
    return graph, {}


# add_software_metadata: a place for the statistics of every tensor.


@analysis("Add places for statistics", needs={"metadata"}, menu=False)
def add_software_metadata_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Add an empty `stat` for every tensor among the arguments and results; found statistics are kept.

    ValueError if the graph was never annotated.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_software_metadata_analysis_pass(graph)
    >>> graph.nodes[1].meta["mase"]["software"]["args"]
    {'data_in_0': {'stat': {}}, 'weight': {'stat': {}}, 'bias': {'stat': {}}}
    """
    with_common_metadata(graph)
    for node in graph.fx_graph.nodes:
        add_places(metadata_of(node, graph.module))
    return graph, {}


# add_hardware_metadata: the hardware of every node.

_ADD_HARDWARE_METADATA_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"max_parallelism": None, "multipliers": None, "interval": None}
)


@analysis(
    "Add the hardware of nodes",
    arguments=(
        Argument("max_parallelism", "texts", "elements per beat, innermost dimension first, e.g. 4,2"),
        Argument("multipliers", "integer", "the maximum number of multipliers, for a graph in fixed point", minimum=1),
        Argument("interval", "integer", "the maximum number of cycles from one sample to the next", minimum=1),
    ),
    needs={"metadata"},
    menu=False,
)
def add_hardware_metadata_analysis_pass(
    graph: MaseGraph, pass_args: Mapping[str, Any] = _ADD_HARDWARE_METADATA_DEFAULTS
) -> Result:
    """Add the hardware of every node: implicitness, parallelism, parameters, interface.

    max_parallelism: elements per beat, innermost dimension first; None if not chosen yet.  The common metadata must
    exist; nodes that a transform made since then get theirs.  For a graph rounded to fixed point, it describes the
    Verilog, folded for `multipliers` and `interval` as by emit_verilog_top: parameters, module and components
    of each instance, and the name of the `instance` that a node is a part of.  Raises ValueError if the
    graph was never annotated or no folding satisfies both, and for an unknown option.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)}, add_metadata_args={})
    >>> graph, _ = passes.add_hardware_metadata_analysis_pass(graph, {"max_parallelism": [2, 1]})
    >>> hardware = graph.nodes[1].meta["mase"]["hardware"]
    >>> hardware["module"], hardware["verilog_param"]["DATA_IN_0_PARALLELISM_DIM_0"]
    ('fixed_linear', 2)
    """
    given = complete_options("add_hardware_metadata_analysis_pass", pass_args, _ADD_HARDWARE_METADATA_DEFAULTS)
    with_common_metadata(graph)
    lanes = None if given["max_parallelism"] is None else [int(each) for each in given["max_parallelism"]]
    becomes = describe_becoming(graph, given["multipliers"], given["interval"]) if lanes is None else {}
    for node in graph.fx_graph.nodes:
        metadata = metadata_of(node, graph.module)
        metadata["hardware"] = hardware_of(node, graph, lanes) | metadata["hardware"]
        if node.name in becomes and _gives_tensor(metadata["common"]):
            metadata["hardware"] |= _of_instance(becomes[node.name])
    of_graph = graph.meta["mase"]["hardware"]
    of_graph.setdefault("verilog_sources", [])
    if becomes:
        of_graph["verilog_sources"] = sorted({file for each in becomes.values() for file in each.files})
        of_graph["folding"] = {"multipliers": given["multipliers"], "interval": given["interval"]}
    return graph, {}


def describe_becoming(graph: MaseGraph, multipliers: int | None, interval: int | None) -> dict[str, Becomes]:
    """The hardware of a graph's nodes; empty for a graph that is not rounded to fixed point."""
    if not any(format_text(node) for node in graph.fx_graph.nodes):
        return {}
    design = lower_graph(graph)
    return describe_instances(graph.fx_graph, design, fold_design(design, multipliers=multipliers, interval=interval))


def _gives_tensor(common: CommonMetadata) -> bool:
    return any(isinstance(entry, dict) and "shape" in entry for entry in common["results"].values())


def _of_instance(becomes: Becomes) -> InstanceMetadata:
    """The metadata that follows from a node's instance, and is made anew each time."""
    return {
        "is_implicit": not becomes.is_own,
        "max_parallelism": [becomes.lanes],
        "verilog_param": dict(becomes.parameters),
        "module": becomes.module if becomes.is_own else None,
        "dependence_files": list(becomes.files),
        "instance": becomes.instance,
    }


def hardware_of(node: fx.Node, graph: MaseGraph, parallelism: list[int] | None) -> HardwareMetadata:
    """The hardware of a node with common metadata and without a known instance."""
    common: CommonMetadata = node.meta["mase"]["common"]
    implicit = node.op in ("placeholder", "output", "get_attr") or common["mase_type"] == "implicit_func"
    custom = graph.custom_ops.entry(call_of(node, graph.facts, graph.module)) or {}
    return {
        "is_implicit": implicit,
        "max_parallelism": parallelism,
        "verilog_param": {} if implicit else verilog_parameters(common, parallelism or [1]),
        "device_id": -1,
        "toolchain": custom.get("toolchain", "INTERNAL"),
        "module": custom.get("module", None if implicit else f"fixed_{common['mase_op']}"),
        "interface": {} if implicit else _interface_of_parameters(common),
        "dependence_files": list(custom.get("dependence_files", [])),
    }


def _interface_of_parameters(common: CommonMetadata) -> dict[str, ParameterInterface]:
    """Parameters are stored in block memory; data streams in."""
    tensors = (name for name, entry in common["args"].items() if isinstance(entry, dict) and "shape" in entry)
    return {name: {"storage": "BRAM", "transpose": False} for name in tensors if not name.startswith("data_in")}


def verilog_parameters(common: CommonMetadata, parallelism: list[int]) -> VerilogParameters:
    """The parameters of a node's hardware module: DATA_IN_0_TENSOR_SIZE_DIM_0 (innermost), ..._PRECISION_0, ..."""
    found: VerilogParameters = {}
    for name, entry in {**common["args"], **common["results"]}.items():
        if isinstance(entry, dict) and "shape" in entry:
            found |= _tensor_parameters(name.upper(), entry, parallelism)
        elif isinstance(entry, bool | int | float | str):
            found[name.upper()] = int(entry) if isinstance(entry, bool) else entry
    return found


def _tensor_parameters(name: str, entry: Mapping[str, Any], parallelism: list[int]) -> VerilogParameters:
    sizes = list(reversed(entry["shape"])) or [1]
    lanes = [*parallelism, *(1 for _ in sizes)]
    return {
        **{f"{name}_PRECISION_{index}": bits for index, bits in enumerate(entry["precision"])},
        **{f"{name}_TENSOR_SIZE_DIM_{index}": size for index, size in enumerate(sizes)},
        **{f"{name}_PARALLELISM_DIM_{index}": min(lanes[index], size) for index, size in enumerate(sizes)},
    }


# metadata_value_type_cast_transform_pass: every value in the metadata in another form.

Cast = Callable[[Any], Any]

_METADATA_VALUE_TYPE_CAST_DEFAULTS: Mapping[str, Any] = MappingProxyType({"fn": "numpy", "only": ()})
_FLOATS = ("float64", "float32", "bfloat16", "float16")


def _to_float(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _to_numpy(tensor: Tensor) -> Any:
    """A NumPy array; in float32 if NumPy lacks the element type."""
    own = tensor.detach().cpu()
    return (own.float() if own.dtype is torch.bfloat16 else own).numpy()


_CASTS: Mapping[str, Cast] = {
    "numpy": _to_numpy,
    "list": lambda tensor: tensor.detach().tolist(),
    "tensor": lambda tensor: tensor.detach().clone(),
    **{name: partial(_to_float, getattr(torch, name)) for name in _FLOATS},
}


@analysis(
    "Cast values in metadata",
    kind="transform",
    arguments=(Argument("fn", "choice", "what tensors become", "numpy", choices=tuple(_CASTS)),),
    needs={"metadata"},
    selects=True,
    menu=False,
)
def metadata_value_type_cast_transform_pass(
    graph: MaseGraph, pass_args: Mapping[str, Any] = _METADATA_VALUE_TYPE_CAST_DEFAULTS
) -> Result:
    """Apply a function to every entry called `value` in the metadata of every node.

    fn: a function of one value, or the new form of tensors: "numpy" arrays, nested "list"s, "tensor"s of their own
    without a gradient, or "float64", "float32", "bfloat16", "float16", to which floating-point tensors are converted.
    only: the nodes to work on; without it, all of them.
    Values that are computed when they are read are cast when they are read; nothing is computed before.
    Gives {"cast": how many values}.  ValueError for another word, and for nodes without metadata.
    Source: `chop.passes.graph.transforms.utils.metadata_value_type_cast`.

    >>> graph = MaseGraph(nn.Sequential(nn.ReLU()), {"input": torch.tensor([-1.0, 2.0])}, add_metadata_args={})
    >>> graph, _ = passes.metadata_value_type_cast_transform_pass(graph, {"fn": "list"})
    >>> graph.nodes[1].meta["mase"]["common"]["results"]["data_out_0"]["value"]
    [0.0, 2.0]
    """
    given = complete_options("metadata_value_type_cast_transform_pass", pass_args, _METADATA_VALUE_TYPE_CAST_DEFAULTS)
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
    """A value with its tensors cast, wherever they are nested."""
    if isinstance(value, Tensor):
        return cast(value)
    if type(value) in (list, tuple):
        return type(value)(_of_tensors(cast, item) for item in value)
    return {key: _of_tensors(cast, item) for key, item in value.items()} if type(value) is dict else value


def _cast_all(tree: Any, cast: Cast) -> int:
    """Cast the values of one tree in place; return their number."""
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


# patch_metadata_transform_pass: number formats that the graph does not show, written into the metadata.

_PATCH_METADATA_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"precision": "fixed", "q_config": MappingProxyType({}), "only": ()}
)
#: The names of Python's own operators, and MASE's split.
_OPERATORS = frozenset({"add", "sub", "mul", "div", "neg", "pow", "getitem", "df_split"})


@analysis(
    "Write number formats into metadata",
    kind="transform",
    arguments=(
        Argument("precision", "text", "name of the number format", "fixed"),
        Argument("q_config", "map", "its parameters, e.g. data_in_width=8, data_in_frac_width=4", required=True),
    ),
    needs={"metadata"},
    selects=True,
    menu=False,
)
def patch_metadata_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _PATCH_METADATA_DEFAULTS) -> Result:
    """Write a number format into the metadata of Python's own operators (+, -, *, /, **, [...]), of splits, and of the
    graph's inputs and outputs, whose formats no module of a quantised model determines. The computation does not
    change.

    precision: the format's name, e.g. "fixed".  q_config: its parameters, data_in_width, data_in_frac_width,
    data_out_width, data_out_frac_width for "fixed"; arguments or results whose keys are missing stay as they are.
    only: the nodes to patch instead.
    Arguments and results that are no floating-point tensors (sizes, token ids, masks) stay as they are. Annotating
    again overwrites the formats with those of the graph.  Gives {"patched": names of nodes}.
    ValueError for an unknown format, for nodes without metadata, and for an empty q_config.
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
    given = complete_options("patch_metadata_transform_pass", pass_args, _PATCH_METADATA_DEFAULTS)
    config = {"name": given["precision"], **given["q_config"]}
    check_config(config)
    formats = {"args": from_config(config, "data_in"), "results": from_config(config, "data_out")}
    if not any(formats.values()):
        raise ValueError(
            "patch_metadata: q_config names no format; an example: {'data_in_width': 8, 'data_out_width': 8}"
        )
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    chosen = [node for node in graph.fx_graph.nodes if _is_chosen(node, selection)]
    return graph, {"patched": [node.name for node in chosen if _patch_node(node, formats)]}


def _is_chosen(node: fx.Node, selection: Selection) -> bool:
    if selection.only:
        return selection.covers(node)
    return node.op in ("placeholder", "output") or metadata_or_raise(node)["common"].get("mase_op") in _OPERATORS


def _patch_node(node: fx.Node, formats: Mapping[str, NumberFormat | None]) -> bool:
    """Write the formats of arguments and results; return whether there was anything to write."""
    common, patched = metadata_or_raise(node)["common"], False
    for part, format in formats.items():
        entries = _data_entries(common.get(part, {})) if format is not None else ()
        for entry in entries:
            assert format is not None
            entry.update(type=format.name, precision=list(format.precision))
            patched = True
    return patched


def _data_entries(entries: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """The floating-point tensors among data_in_... or data_out_..."""
    for name, entry in entries.items():
        if name.startswith("data_") and isinstance(entry, dict):
            dtype = entry.get("torch_dtype")
            if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
                yield entry
