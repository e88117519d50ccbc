"""Operations over rows and dimensions: norms (`fixed_norm`), softmax (`fixed_softmax`), and means, sums and maxima
(`fixed_reduce`, `fixed_mean`), the largest in order (`fixed_top_k`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.arithmetic import Norm
from mase_server.hardware.arithmetic.softmax import EXP_FRACTION, exp_table
from mase_server.hardware.design import MOST_SERIAL, Constant, Design, Fold, Operation, Stream, find_divisors
from mase_server.hardware.functional import integer_norm, integer_reduce, integer_softmax, integer_top_k
from mase_server.hardware.held import Held, Layout, Masked, NoHardware, Unrounded, node_of
from mase_server.hardware.kinds.kind import Kind, Rule, Settings, folds_of_means, row_major
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.masks import lower_masked_equal, lower_masked_where, masked_fill
from mase_server.hardware.memories import words_of, words_of_bias
from mase_server.hardware.verilog import Parameters, Tap, Wide, precision_parameters, stream_ports
from mase_server.ir.number_formats import operator_of

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


# Softmax over rows: `fixed_softmax`.


def _lower_softmax(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source, mask = node_of(given["data_in_0"]), None
    held, rank = lowering.held[source], len(lowering.facts[source].shape)
    if isinstance(held, Masked):
        name, mask = held.source, Constant(held.mask.long(), FixedPoint(2, 0))
    else:
        name = lowering.whole(source)
    dim = Settings.of(lowering, node, given).get("dim", -1)
    if dim % rank != rank - 1:
        raise NoHardware(f"it goes over dimension {dim}; only the last one has hardware: transpose first")
    name = in_order(lowering, name, torch.arange(lowering.stream(name).size))
    return Unrounded("softmax", (name,), node, {} if mask is None else {"mask": mask})


def _softmax_node(maker: Maker, operation: Operation) -> fx.Node:
    formats, (mask, _) = (maker.format_in(operation), str(operation.out.format)), maker.constant(operation, "mask")
    return maker.call(operation, integer_softmax, *maker.inputs(operation), *formats, mask)


def folds_of_rows(design: Design, operation: Operation) -> Iterator[Fold]:
    """One beat a cycle, as wide as rows allow."""
    for lanes in find_divisors(operation.out.shape[-1]):
        yield Fold(lanes, lanes, operation.out.size // lanes, 0)


def reach_of_rows(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A result needs its whole row."""
    length, count = design.operations[operation.inputs[0]].out.shape[-1], operation.out.shape[-1]
    return ((torch.arange(operation.out.size) // count + 1) * length - 1,)


def _build_softmax(builder: Builder, operation: Operation) -> Tap:
    fold, out = builder.folding.folds[operation.name], operation.out
    source, before = builder.read(operation, fold.par_in), builder.design.operations[operation.inputs[0]].out.format
    to = builder.wires(f"{operation.name}_cast", fold.par_out, out.format.width)
    words = words_of(exp_table(before)[:, None], EXP_FRACTION + 1)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": out.shape[-1],
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        "EXP_FRACTION": EXP_FRACTION,
        **precision_parameters("DATA_OUT_0", out.format),
        "FILE": builder.file(operation, "exp", EXP_FRACTION + 1, words),
    }
    if "mask" in operation.constants:
        rows = _repeating_rows(operation.constants["mask"].integers.reshape(-1, out.shape[-1])).reshape(-1, fold.par_in)
        file = builder.file(operation, "mask", fold.par_in, words_of(rows, 1))
        parameters |= {"HAS_MASK": 1, "MASK_BEATS": len(rows), "MASK_FILE": file}
    builder.instance(f"{operation.name}_i", "fixed_softmax", parameters, stream_ports(source, to), operation.name)
    return builder.skid(operation, to)


def _repeating_rows(rows: Tensor) -> Tensor:
    """The first rows, as many as repeat through all rows."""
    for count in find_divisors(len(rows)):
        if torch.equal(rows.reshape(-1, count, rows.shape[1]), rows[:count].expand(len(rows) // count, -1, -1)):
            return rows[:count]
    return rows


_SOFTMAX_RULES = {
    "softmax": _lower_softmax,
    "masked_fill": masked_fill,
    "where": lower_masked_where,
    "eq": lower_masked_equal,
}

SOFTMAX_KIND = Kind(
    "softmax", _softmax_node, _build_softmax, _SOFTMAX_RULES, row_major, folds_of_rows, reach_of_rows, mixes=1
)


# Means, sums, maxima and their indices over dimensions of a sample: `fixed_reduce`, `fixed_mean`.


def _reduce_rule(function: str) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        source = node_of(given["data_in_0"])
        return lower_reduction(lowering, node, source, function, _reduced_dims(lowering, node, source))

    return rule


def lower_reduction(
    lowering: Lowering, node: fx.Node, source: fx.Node, function: str, over: tuple[tuple[int, ...], bool]
) -> Held:
    """Lower a node that is the mean, sum or maximum of another one's values.

    over: the dimensions, and whether they are kept with size one.
    """
    name, (dims, keeps) = lowering.whole(source), over
    layout, shape = lowering.layout(source), lowering.facts[source].shape
    if layout.dim in dims:
        raise NoHardware(f"it goes over dimension {layout.dim}, which has the samples")
    before = 0 if keeps else sum(dim < layout.dim for dim in dims)
    lowering.stand(node, Layout(layout.samples, layout.dim - before, layout.inner))
    alone = layout.alone(shape)
    inner = tuple(dim - (alone and dim > layout.dim) for dim in dims)
    name, channels = group_elements(lowering, name, inner)
    options = {"function": function, "dims": inner, "channels": channels}
    unrounded = Unrounded("reduce", (name,), node, options=options)
    if function == "argmax":
        return lowering.add(unrounded, FixedPoint((prod(shape[dim] for dim in dims) - 1).bit_length() + 1, 0))
    return lowering.add(unrounded, lowering.stream(name).format) if function == "max" else unrounded


def largest_part(lowering: Lowering, node: fx.Node, call: fx.Node) -> Held:
    """The maximum over a dimension, or the largest of one, or their indices: one of the node's two results."""
    source, index = call.all_input_nodes[0], node.args[1] not in (0, "values")
    if operator_of(call, lowering.model) == "topk":
        return _lower_top_k(lowering, node, call, index)
    function = "argmax" if index else "max"
    return lower_reduction(lowering, node, source, function, _reduced_dims(lowering, call, source))


def _reduced_dims(lowering: Lowering, node: fx.Node, source: fx.Node) -> tuple[tuple[int, ...], bool]:
    """The dimensions that it goes over, and whether they are kept with size one. NoHardware for the whole batch."""
    rank = len(lowering.facts[source].shape)
    given = dict(zip(("input", "dim", "keepdim"), node.args, strict=False)) | node.kwargs
    dim: Any = given.get("dim", given.get("axis"))
    if dim is None or given.get("dtype") not in (None, torch.float32):
        raise NoHardware("it goes over the whole batch; give the dimensions")
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    return tuple(sorted(each % rank for each in dims)), bool(given.get("keepdim", False))


def group_elements(lowering: Lowering, name: str, dims: tuple[int, ...]) -> tuple[str, int]:
    """The stream with the elements of each group adjacent or interleaved, and the distance between two elements of a
    group.

    The stream is not reordered if its own order will do.
    """
    stream = lowering.stream(name)
    places, rank = torch.arange(stream.size).reshape(stream.shape), len(stream.shape)
    kept = [dim for dim in range(rank) if dim not in dims]
    ways = [((*kept, *dims), 1), ((*dims, *kept), prod(stream.shape[dim] for dim in kept))]
    if dims == tuple(range(dims[0], dims[0] + len(dims))):
        ways.insert(0, (tuple(range(rank)), prod(stream.shape[dims[-1] + 1 :])))
    orders = [(places.permute(way).reshape(-1), channels) for way, channels in ways]
    order, channels = next((each for each in orders if torch.equal(each[0], stream.indices)), orders[0])
    return in_order(lowering, name, order), channels


def _reduce_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,), options = maker.inputs(operation), operation.options
    formats = maker.format_in(operation), str(operation.out.format)
    return maker.call(
        operation, integer_reduce, source, options["function"], options["dims"], operation.out.shape, formats
    )


def _count_reduced(design: Design, operation: Operation) -> int:
    """The number of elements in a group."""
    return design.operations[operation.inputs[0]].out.size // operation.out.size


def _reduce_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    count, channels = _count_reduced(design, operation), operation.options["channels"]
    for lanes in find_divisors(channels):
        cycles = design.operations[operation.inputs[0]].out.size // lanes
        if operation.options["function"] == "mean":
            yield from folds_of_means(design, operation, count, lanes, cycles)
        else:
            yield Fold(lanes, lanes, cycles, 0)


def _build_reduce(builder: Builder, operation: Operation) -> Tap:
    lanes, out = builder.folding.folds[operation.name].par_in, operation.out.format
    source, before = builder.read(operation, lanes), builder.design.operations[operation.inputs[0]].out.format
    count, function = _count_reduced(builder.design, operation), operation.options["function"]
    largest = function in ("max", "argmax")
    bits = out.width if largest else before.width + (count - 1).bit_length()
    reduced = builder.wires(f"{operation.name}_reduced", lanes, bits)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "BEATS": operation.options["channels"] // lanes,
        "COUNT": count,
        "MAXIMUM": int(largest),
        **({"INDEX": 1} if function == "argmax" else {}),
    }
    builder.instance(f"{operation.name}_i", "fixed_reduce", parameters, stream_ports(source, reduced), operation.name)
    if largest:
        return builder.skid(operation, reduced)
    to = builder.wires(f"{operation.name}_cast", lanes, out.width)
    parameters = {
        "DATA_IN_0_PRECISION_0": bits,
        "DATA_IN_0_PRECISION_1": before.fraction_width,
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        **precision_parameters("DATA_OUT_0", out),
        "DIVISOR": count if function == "mean" else 1,
        "SERIAL": int(builder.folding.folds[operation.name].serial),
        "WAITING": operation.options["channels"] // lanes,
    }
    builder.instance(f"{operation.name}_mean", "fixed_mean", parameters, stream_ports(reduced, to), operation.name)
    return builder.skid(operation, to)


def _reduce_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A result needs its whole group."""
    channels, count = operation.options["channels"], _count_reduced(design, operation)
    place = torch.arange(operation.out.size)
    return (place // channels * (channels * count) + channels * (count - 1) + place % channels,)


#: Operators that give the maximum over a dimension, or the largest of one, and their indices.
LARGEST = frozenset({"max", "topk"})

_REDUCE_RULES = {
    "mean": _reduce_rule("mean"),
    "sum": _reduce_rule("sum"),
    "amax": _reduce_rule("max"),
    "argmax": _reduce_rule("argmax"),
}

REDUCE_KIND = Kind("reduce", _reduce_node, _build_reduce, _REDUCE_RULES, row_major, _reduce_folds, _reduce_reach)


# The largest or smallest of rows, in order: `fixed_top_k`.


def _lower_top_k(lowering: Lowering, node: fx.Node, call: fx.Node, index: bool) -> Held:
    """The values of torch.topk, or their indices. NoHardware for other dimensions, and for an order that PyTorch
    leaves open."""
    source = call.all_input_nodes[0]
    defaults = {"dim": -1, "largest": True, "sorted": True}
    names = ("input", "k", *defaults)
    given: dict[str, Any] = defaults | dict(zip(names, call.args, strict=False)) | call.kwargs
    if given["sorted"] is not True:
        raise NoHardware("its results have no order with sorted=False; hardware gives them in order: leave sorted out")
    layout, rank = lowering.layout(source), len(lowering.facts[source].shape)
    if given["dim"] % rank != rank - 1:
        raise NoHardware(f"it goes over dimension {given['dim']}; only the last one has hardware: transpose first")
    if layout.dim == rank - 1:
        raise NoHardware(f"it goes over dimension {layout.dim}, which has the samples")
    lowering.same_places(node, source)
    name = lowering.whole(source)
    stream = lowering.stream(name)
    name = in_order(lowering, name, torch.arange(stream.size))
    options = {"largest": bool(given["largest"]), "index": index}
    format = FixedPoint((stream.shape[-1] - 1).bit_length() + 1, 0) if index else stream.format
    return lowering.add(Unrounded("top_k", (name,), node, options=options), format)


def _top_k_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,), options = maker.inputs(operation), operation.options
    count = operation.out.shape[-1]
    return maker.call(operation, integer_top_k, source, count, options["largest"], options["index"])


def _top_k_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    """One beat a cycle, as wide as rows allow; the results of a row are one beat."""
    before, count = design.operations[operation.inputs[0]].out, operation.out.shape[-1]
    for lanes in find_divisors(before.shape[-1]):
        yield Fold(lanes, count, before.size // lanes, 0)


def _build_top_k(builder: Builder, operation: Operation) -> Tap:
    lanes = builder.folding.folds[operation.name].par_in
    before = builder.design.operations[operation.inputs[0]].out
    source, count = builder.read(operation, lanes), operation.out.shape[-1]
    to = builder.wires(f"{operation.name}_found", count, operation.out.format.width)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.format.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": before.shape[-1],
        "DATA_IN_0_PARALLELISM_DIM_0": lanes,
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": count,
        "SMALLEST": int(not operation.options["largest"]),
        "INDEX": int(operation.options["index"]),
    }
    builder.instance(f"{operation.name}_i", "fixed_top_k", parameters, stream_ports(source, to), operation.name)
    return builder.skid(operation, to)


TOP_K_KIND = Kind("top_k", _top_k_node, _build_top_k, {}, row_major, _top_k_folds, reach_of_rows)


def _norm_rule(centred: bool) -> Rule:
    def rule(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
        name = lowering.whole(node_of(given["data_in_0"]))
        settings, stream = Settings.of(lowering, node, given), lowering.stream(name)
        over = settings.get("normalized_shape", stream.shape[-1:])
        if tuple(over if isinstance(over, tuple | list) else (over,)) != stream.shape[-1:]:
            raise NoHardware(f"it goes over {over}; only the last dimension has hardware")
        source = in_order(lowering, name, torch.arange(stream.size))
        epsilon = settings.get("eps", 1e-5 if centred else torch.finfo(torch.float32).eps)
        options = {"centred": centred, "epsilon": float(epsilon)}
        return Unrounded("norm", (source,), node, lowering.weights(given), options)

    return rule


def _norm_of_operation(design: Design, operation: Operation) -> Norm:
    """The operation's arithmetic."""
    return _norm_of_streams(
        design.operations[operation.inputs[0]].out, operation.out, operation.constants, operation.options
    )


def _norm_of_streams(
    source: Stream, out: Stream, constants: Mapping[str, Constant], options: Mapping[str, Any]
) -> Norm:
    weight, bias = (None if (found := constants.get(name)) is None else found.format for name in ("weight", "bias"))
    return Norm.fitting(out.shape[-1], source.format, out.format, weight, bias, options["centred"], options["epsilon"])


def _norm_order(lowering: Lowering, unrounded: Unrounded, out: Stream) -> Stream:
    """Row-major. NoHardware if its sums need more bits than are available."""
    try:
        _norm_of_streams(lowering.stream(unrounded.inputs[0]), out, unrounded.constants, unrounded.options)
    except ValueError as why:
        raise NoHardware(f"{why}; quantise its input to a narrower format") from why
    return row_major(lowering, unrounded, out)


def _norm_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, bias, formats = maker.weights(operation)
    options = operation.options
    return maker.call(operation, integer_norm, source, weight, bias, formats, options["centred"], options["epsilon"])


def _norm_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    """A beat a cycle, but a row takes at least as long as its root; or a few lanes bit by bit, without multipliers."""
    length = operation.out.shape[-1]
    norm = _norm_of_operation(design, operation)
    scaled = norm.centred and length & (length - 1) != 0
    products, rows = 1 + (norm.weight is not None) + scaled, operation.out.size // length
    bits = max(_centred_width(norm), 0 if norm.weight is None else norm.weight.width)
    for lanes in find_divisors(length):
        beats = length // lanes
        root = _root_width(norm, beats, lanes) + 2
        # More roots at a time than have work would be idle.
        for roots in range(1, min(_MOST_ROOTS, rows, -(-root // beats)) + 1):
            yield Fold(lanes, lanes, rows * max(beats, -(-root // roots)), products * lanes, roots=roots)
        if lanes <= MOST_SERIAL:
            yield Fold(lanes, lanes, rows * max(beats * (bits + 1), root), 0, serial=True)


#: Roots that are found at a time; a row in four cycles is what most other layers take, too.
_MOST_ROOTS = 8


def _centred_width(norm: Norm) -> int:
    """Bits of the differences from the mean, times the size."""
    return norm.data.width + ((norm.size - 1).bit_length() + 1 if norm.centred else 0)


def _root_width(norm: Norm, beats: int, lanes: int) -> int:
    """Bits of the root, as `fixed_norm` computes them."""
    summed = 2 * _centred_width(norm) + (beats - 1).bit_length() + (lanes - 1).bit_length()
    return (max(summed, norm.steps.bit_length()) + 2) // 2 + norm.root_fraction


def _build_norm(builder: Builder, operation: Operation) -> Tap:
    fold, out = builder.folding.folds[operation.name], operation.out
    norm = _norm_of_operation(builder.design, operation)
    source = builder.read(operation, fold.par_in)
    to = builder.wires(f"{operation.name}_cast", fold.par_out, out.format.width)
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": norm.data.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": out.shape[-1],
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        "MEAN": int(norm.centred),
        "SERIAL": int(fold.serial),
        "ROOTS": fold.roots,
        "EPSILON": Wide(norm.steps),
        "ROOT_FRACTION": norm.root_fraction,
        "NORM_FRACTION": norm.norm_fraction,
        **precision_parameters("DATA_OUT_0", out.format),
    }
    for name in ("weight", "bias"):
        constant = operation.constants.get(name)
        parameters[f"HAS_{name.upper()}"] = int(constant is not None)
        if constant is not None:
            words = words_of_bias(constant.integers, constant.format.width, fold.par_out)
            parameters |= precision_parameters(name.upper(), constant.format)
            parameters[f"{name.upper()}_FILE"] = builder.memory(operation, name, fold.par_out, words)
    builder.instance(f"{operation.name}_i", "fixed_norm", parameters, stream_ports(source, to), operation.name)
    return builder.skid(operation, to)


_RULES = {"layer_norm": _norm_rule(True), "rms_norm": _norm_rule(False)}

NORM_KIND = Kind("norm", _norm_node, _build_norm, _RULES, _norm_order, _norm_folds, reach_of_rows, mixes=1)
