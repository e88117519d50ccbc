"""Sums of products: with fixed weights, `fixed_linear`, and of two streams of matrices, `fixed_matmul`.

Both can share an engine: `shared_linear`, `shared_matmul`. Weights may come from outside: `streamed_linear`. Data in
blocks that share an exponent have narrow multipliers: `mxint_linear`. Without multipliers, additions make the products
with constant weights: `constant_linear`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.nn.functional import pad

from mase_server.hardware.arithmetic import Affine
from mase_server.hardware.design import Constant, Design, Dots, Fold, Operation, Streamed, find_divisors
from mase_server.hardware.functional import integer_linear, integer_matmul
from mase_server.hardware.held import Held, NoHardware, Unrounded, node_of, vectors_in_order
from mase_server.hardware.kinds.gather import arrange_elements
from mase_server.hardware.kinds.kind import Kind, row_major
from mase_server.hardware.kinds.swap import in_order
from mase_server.hardware.memories import Words, align_rows, words_of_aligned, words_of_bias, words_of_weight
from mase_server.hardware.networks import Network, count_digits
from mase_server.hardware.verilog import Parameters, Tap, precision_parameters, stream_ports

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering
    from mase_server.hardware.netlist import Builder
    from mase_server.hardware.twin import Maker


def _lower_linear(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    source = node_of(given["data_in_0"])
    lowering.whole(source)  # reports first that the source is not rounded at all
    return of_weights(lowering, node, source, lowering.weights(given, "weight"))


def _lower_addmm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """addmm(bias, x, weight): a layer with a transposed weight."""
    if set(node.kwargs) & {"alpha", "beta"} or len(node.args) != 3:
        raise NoHardware("its alpha or beta is not 1; scale the operands instead")
    bias, source, weight = (each for each in node.args if isinstance(each, fx.Node))
    constants = {"weight": _transpose_weight(lowering.constant(weight)), "bias": lowering.constant(bias)}
    if constants["bias"].shape != constants["weight"].shape[:1]:
        raise NoHardware(f"it adds {list(constants['bias'].shape)}; a vector for all rows has hardware")
    return of_weights(lowering, node, source, constants)


def of_weights(lowering: Lowering, node: fx.Node, source: fx.Node, constants: Mapping[str, Constant]) -> Unrounded:
    """A layer with a weight of [out, in], whichever operator it comes from."""
    name = lowering.whole(source)
    if not vectors_in_order(lowering.stream(name)):
        name = in_order(lowering, name, torch.arange(lowering.stream(name).size))
    return Unrounded("linear", (name,), node, constants, {"relu": False})


def times_constant(lowering: Lowering, node: fx.Node, source: fx.Node, weight: Constant) -> Unrounded:
    """source @ weight."""
    return of_weights(lowering, node, source, {"weight": _transpose_weight(weight)})


def _transpose_weight(weight: Constant) -> Constant:
    return weight.moved(lambda values: values.T.contiguous())


def _linear_node(maker: Maker, operation: Operation) -> fx.Node:
    (source,) = maker.inputs(operation)
    weight, bias, formats = maker.weights(operation)
    return maker.call(operation, integer_linear, source, weight, bias, formats, operation.options["relu"])


def _linear_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    features_out, features_in = operation.constants["weight"].shape
    rows = prod(operation.out.shape[:-1])
    for par_in in find_divisors(features_in):
        for par_out in find_divisors(features_out):
            cycles = rows * (features_in // par_in) * (features_out // par_out)
            yield at_pace_of_weights(operation, Fold(par_in, par_out, cycles, par_in * par_out))


def _linear_networks(design: Design, operation: Operation) -> Iterator[Fold]:
    """With a network of additions: whole vectors, and fewer bits of them at a time if they come more slowly."""
    weight = operation.constants["weight"]
    if "streamed" in operation.options or prod(weight.shape) > _MOST_CONSTANTS:
        return
    features_out, features_in = weight.shape
    before, rows = design.operations[operation.inputs[0]], prod(operation.out.shape[:-1])
    width, is_signed = before.out.format.width, _is_signed(before)
    for digit in range(width - (not is_signed), 0, -1):
        digits = count_digits(width, is_signed, digit)
        if digit == 1 or count_digits(width, is_signed, digit - 1) > digits:
            yield Fold(features_in, features_out, rows * digits, 0, digit=digit)


def _is_signed(before: Operation) -> bool:
    """May the elements of a stream be negative? Those behind a ReLU are not."""
    return not before.options.get("relu", False)


#: Weights above which a layer has no network: the time to find the sums that results share grows faster than they do.
_MOST_CONSTANTS = 1 << 12


def at_pace_of_weights(operation: Operation, fold: Fold) -> Fold:
    """The fold; slower if its weights come from outside, and are slower."""
    streamed: Streamed | None = operation.options.get("streamed")
    return fold if streamed is None else streamed.fold(operation, fold)


def _linear_dots(design: Design, operation: Operation) -> Dots:
    features_out, features_in = operation.constants["weight"].shape
    rows = prod(operation.out.shape[:-1])
    return Dots(product_formats(design, operation), rows, features_in, features_out, features_in, rows * features_in)


def _linear_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A result needs its whole vector, or the whole group of vectors that weights from outside are read for."""
    features_out, features_in = operation.constants["weight"].shape
    rows = rows_at_a_time(operation)
    return ((torch.arange(operation.out.size) // (rows * features_out) + 1) * rows * features_in - 1,)


def product_formats(design: Design, operation: Operation) -> Affine:
    """The formats of products with a constant weight, or of two streams."""
    data, *other = (design.operations[name].out.format for name in operation.inputs)
    weight, bias = operation.constants.get("weight"), operation.constants.get("bias")
    bias_format = None if bias is None else bias.format
    return Affine(data, other[0] if weight is None else weight.format, bias_format, operation.out.format)


def refuse_sums(dots: Dots) -> str | None:
    """Why dot products have no hardware; None if they have."""
    bias = dots.formats.bias
    try:
        dots.formats.check(dots.length)
    except ValueError as error:
        if bias is None or (finer := bias.fraction_width - dots.formats.product_fraction) <= 0:
            return str(error)
        return f"{error}; its bias has {finer} more bits after the point than its products"
    return None


def rows_at_a_time(operation: Operation) -> int:
    """The vectors that are worked on together."""
    streamed: Streamed | None = operation.options.get("streamed")
    return 1 if streamed is None else streamed.rows


def _build_linear(builder: Builder, operation: Operation) -> Tap:
    if builder.folding.folds[operation.name].digit:
        return _build_network(builder, operation)
    fold, length = builder.folding.folds[operation.name], operation.constants["weight"].shape[1]
    source, before = builder.read(operation, fold.par_in), builder.design.operations[operation.inputs[0]].out
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    mantissa = _mantissas_of_beat(builder.design, operation, fold)
    parameters: Parameters = {
        **precision_parameters("DATA_IN_0", before.format),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": length,
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        # The weight's columns are arranged in the order in which elements arrive.
        **weight_parameters(
            builder, operation, fold, lambda weight: weight[:, before.indices[:length]], bool(mantissa)
        ),
    }
    more = builder.engine_of(operation, parameters) or builder.weights_of(operation)
    module = "shared_linear" if fold.engine else "streamed_linear" if more else "fixed_linear"
    if mantissa:
        module, parameters = "mxint_linear", {**parameters, "MANTISSA_WIDTH": mantissa}
    builder.instance(f"{operation.name}_i", module, parameters, {**stream_ports(source, to), **more}, operation.name)
    return to


def _build_network(builder: Builder, operation: Operation) -> Tap:
    fold, before = builder.folding.folds[operation.name], builder.design.operations[operation.inputs[0]]
    weight, bias = operation.constants["weight"], operation.constants.get("bias")
    bias_format = bias.format if bias is not None else None
    formats = Affine(before.out.format, weight.format, bias_format, operation.out.format)
    source = builder.read(operation, fold.par_in)
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    network = Network.of(
        weight.integers[:, before.out.indices[: fold.par_in]],
        bias.integers if bias is not None else None,
        formats,
        _is_signed(before),
        fold.digit,
    )
    parameters: Parameters = {
        "DATA_IN_0_PRECISION_0": before.out.format.width,
        "DATA_IN_0_TENSOR_SIZE_DIM_0": fold.par_in,
        **network.parameters(formats, _is_signed(before)),
        **precision_parameters("DATA_OUT_0", operation.out.format),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": fold.par_out,
        "RELU": int(operation.options["relu"]),
    }
    builder.instance(
        f"{operation.name}_i", "constant_linear", parameters, stream_ports(source, to), operation.name, network
    )
    return to


def _mantissas_of_beat(design: Design, operation: Operation, fold: Fold) -> int:
    """The bits of the mantissas that a beat's numbers have besides one exponent; 0 if they are multiplied whole: where
    the multipliers of parts take them, that costs no shifts."""
    before, weight = design.operations[operation.inputs[0]], operation.constants["weight"]
    if before.kind == "take" and before.options["first"] == 0:
        before = design.operations[before.inputs[0]]
    if (
        fold.engine
        or "streamed" in operation.options
        or before.kind != "blocks"
        or before.options["block"] % fold.par_in
    ):
        return 0
    return int(before.options["mantissa"]) if max(before.out.format.width, weight.format.width) > _MULTIPLIED else 0


#: Bits of the numbers that a multiplier of most parts takes.
_MULTIPLIED = 18


def weight_parameters(
    builder: Builder,
    operation: Operation,
    fold: Fold,
    arranged: Callable[[Tensor], Tensor],
    aligned: bool = False,
) -> Parameters:
    """The parameters of a dot product, and its memories. arranged: rearranges its weight, [out, in], to the order of
    flow.  aligned: each row of a word has an exponent of its own."""
    weight = operation.constants["weight"]
    at_once = fold.groups_at_once(weight.shape[1])
    lanes = fold.engine or (fold.par_in // at_once * prod(fold.taps), fold.par_out)
    groups = operation.options.get("groups", 1) // at_once
    return constant_parameters(builder, operation, lanes, arranged, groups, aligned) | {
        **precision_parameters("DATA_OUT_0", operation.out.format),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": weight.shape[0],
        "DATA_OUT_0_PARALLELISM_DIM_0": fold.par_out,
        "RELU": int(operation.options["relu"]),
    }


def constant_parameters(
    builder: Builder,
    operation: Operation,
    lanes_of_word: tuple[int, int],
    arranged: Callable[[Tensor], Tensor] = lambda weight: weight,
    groups: int = 1,
    aligned: bool = False,
) -> Parameters:
    """The parameters of the weights and biases of a dot product, and their memories. lanes_of_word: elements and
    results of a word.  arranged, aligned: as in `weight_parameters`."""
    weight, bias = operation.constants["weight"], operation.constants.get("bias")
    (lanes, outs), width = lanes_of_word, weight.format.width
    length, results = prod(weight.shape[1:]), weight.shape[0] // groups
    words = Words(
        groups * -(-results // outs) * -(-length // lanes),
        width,
        lambda: words_of_weight(
            pad_results(pad_vectors(arranged(weight.integers), lanes), groups, outs), width, lanes, outs
        ).make(),
    )
    found: Parameters = {
        **precision_parameters("WEIGHT", weight.format),
        **(
            _aligned_weights(builder, operation, arranged(weight.integers), (lanes, outs))
            if aligned
            else _where_weights_are(builder, operation, lanes * outs, words)
        ),
        "HAS_BIAS": int(bias is not None),
    }
    if bias is not None:
        words = words_of_bias(pad_results(bias.integers[:, None], groups, outs), bias.format.width, outs)
        found |= precision_parameters("BIAS", bias.format)
        found["BIAS_FILE"] = builder.memory(operation, "bias", outs, words)
    return found


def _where_weights_are(builder: Builder, operation: Operation, lanes: int, words: Words) -> Parameters:
    streamed: Streamed | None = operation.options.get("streamed")
    if streamed is None:
        return {"WEIGHT_FILE": builder.memory(operation, "weight", lanes, words)}
    builder.region(operation, lanes * words.width, words, streamed)
    return {"ROWS": streamed.rows, "BUS_WIDTH": streamed.width}


def _aligned_weights(builder: Builder, operation: Operation, weight: Tensor, lanes: tuple[int, int]) -> Parameters:
    """Weights as mantissas, and an exponent for those of each lane of results in a word."""
    mantissas, exponents, width = align_rows(weight, lanes[0])
    most = int(exponents.max())
    words = words_of_aligned(mantissas, exponents, (width, most.bit_length()), lanes)
    file = builder.file(operation, "weight", lanes[1] * (lanes[0] * width + most.bit_length()), words)
    return {"WEIGHT_PRECISION_0": width, "WEIGHT_EXPONENTS": most, "WEIGHT_FILE": file}


def pad_vectors(weight: Tensor, lanes: int) -> Tensor:
    """Rows of whole beats, [out, in]: zeros stand before the elements of an incomplete last one."""
    whole = weight.shape[1] // lanes * lanes
    before, rest = weight[:, :whole], weight[:, whole:]
    return torch.cat([before, pad(rest, (lanes - rest.shape[1], 0))], 1) if rest.shape[1] else weight


def pad_results(rows: Tensor, groups: int, lanes: int) -> Tensor:
    """Whole beats of results, [out, ...]: zeros stand behind those of each group."""
    split = rows.reshape(groups, -1, rows.shape[1])
    return pad(split, (0, 0, 0, -split.shape[1] % lanes)).flatten(0, 1)


LINEAR_KIND = Kind(
    "linear",
    _linear_node,
    _build_linear,
    {"linear": _lower_linear, "addmm": _lower_addmm},
    row_major,
    _linear_folds,
    _linear_reach,
    mixes=1,
    dots=_linear_dots,
    networks=_linear_networks,
)


# Products of two streams of matrices: `fixed_matmul`.


def _lower_matmul(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    operands = [node_of(given[key]) for key in ("data_in_0", "data_in_1")]
    other = lowering.held[operands[1]]
    if isinstance(other, Constant) and len(other.shape) == 2:
        return times_constant(lowering, node, operands[0], other)
    names = [lowering.whole(each) for each in operands]
    first, second = (lowering.stream(name).shape for name in names)
    if len(first) < 2 or len(first) != len(second):
        raise NoHardware(f"it takes matrices of one batch; a sample has {list(first)} and {list(second)}")
    batch = lowering.sample(node)[:-2]
    names = [_repeat_matrices(lowering, name, (*batch, *lowering.stream(name).shape[-2:])) for name in names]
    first, second = (lowering.stream(name).shape for name in names)
    # The second operand flows column by column: these are the rows that the component multiplies with.
    columns = torch.arange(prod(second)).reshape(second).transpose(-1, -2).reshape(-1)
    sources = in_order(lowering, names[0], torch.arange(prod(first))), in_order(lowering, names[1], columns)
    return Unrounded("matmul", sources, node, options={"relu": False})


def _repeat_matrices(lowering: Lowering, name: str, shape: tuple[int, ...]) -> str:
    """Each matrix of a stream, repeated for each of the other operand's matrices that it is multiplied with."""
    before = lowering.stream(name)
    if before.shape == shape:
        return name
    places = torch.arange(before.size).reshape(before.shape).expand(shape).reshape(-1)
    return arrange_elements(lowering, name, places, shape)


def _matmul_sizes(design: Design, operation: Operation) -> tuple[int, int, int, int]:
    """Matrices, rows, length of a row, columns."""
    *batch, rows, length = design.operations[operation.inputs[0]].out.shape
    return prod(batch), rows, length, operation.out.shape[-1]


def _matmul_node(maker: Maker, operation: Operation) -> fx.Node:
    formats = maker.format_in(operation), maker.format_in(operation, 1), str(operation.out.format)
    return maker.call(operation, integer_matmul, *maker.inputs(operation), formats, operation.options["relu"])


def _matmul_folds(design: Design, operation: Operation) -> Iterator[Fold]:
    count, rows, length, columns = _matmul_sizes(design, operation)
    for par_in in find_divisors(length):
        for par_out in find_divisors(columns):
            cycles = count * rows * (length // par_in) * (columns // par_out)
            yield Fold(par_in, par_out, max(cycles, count * columns * length // par_in), par_in * par_out)


def _matmul_dots(design: Design, operation: Operation) -> Dots:
    """Every row of the first operand is a vector; the second has to arrive in the same time."""
    count, rows, length, columns = _matmul_sizes(design, operation)
    feed = count * max(rows, columns) * length
    return Dots(product_formats(design, operation), count * rows, length, columns, length, feed)


def _build_matmul(builder: Builder, operation: Operation) -> Tap:
    fold, before = builder.folding.folds[operation.name], builder.design.operations
    _, rows, length, columns = _matmul_sizes(builder.design, operation)
    taps = [builder.waiting(operation, index, builder.read(operation, fold.par_in, index)) for index in (0, 1)]
    to = builder.wires(operation.name, fold.par_out, operation.out.format.width)
    parameters: Parameters = {
        **precision_parameters("DATA_IN_0", before[operation.inputs[0]].out.format),
        "DATA_IN_0_TENSOR_SIZE_DIM_0": length,
        "DATA_IN_0_TENSOR_SIZE_DIM_1": rows,
        "DATA_IN_0_PARALLELISM_DIM_0": fold.par_in,
        **precision_parameters("DATA_IN_1", before[operation.inputs[1]].out.format),
        **precision_parameters("DATA_OUT_0", operation.out.format),
        "DATA_OUT_0_TENSOR_SIZE_DIM_0": columns,
        "DATA_OUT_0_PARALLELISM_DIM_0": fold.par_out,
        "RELU": int(operation.options["relu"]),
    }
    engine, ports = builder.engine_of(operation, parameters), builder.pair(taps, to)
    module = "shared_matmul" if engine else "fixed_matmul"
    builder.instance(f"{operation.name}_i", module, parameters, {**ports, **engine}, operation.name)
    return to


def _matmul_reach(design: Design, operation: Operation) -> tuple[Tensor, ...]:
    """A result needs its row of the first operand, and the whole matrix of the second."""
    _, rows, length, columns = _matmul_sizes(design, operation)
    places = torch.arange(operation.out.size)
    row, matrix = places // columns, places // (columns * rows)
    return (row + 1) * length - 1, (matrix + 1) * columns * length - 1


MATMUL_KIND = Kind(
    "matmul",
    _matmul_node,
    _build_matmul,
    {"matmul": _lower_matmul, "bmm": _lower_matmul},
    row_major,
    _matmul_folds,
    _matmul_reach,
    mixes=2,
    dots=_matmul_dots,
)
