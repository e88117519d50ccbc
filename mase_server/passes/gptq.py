"""GPTQ: weights rounded one column after another, each compensating for the error of those before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any, TypedDict

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from mase_server.formats import NumberFormat, Open, parse, quantise, with_parameters
from mase_server.formats.blocks import round_blockwise
from mase_server.formats.scale_integer import ScaleInteger
from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.propagate import preserve_model
from mase_server.ops.types import Kwargs
from mase_server.passes.completing import transform
from mase_server.passes.data import DATA, SAMPLES, Data, load
from mase_server.passes.declaration import Result, Selection
from mase_server.passes.error import Run
from mase_server.passes.quantize.calibration import Method, of_tensor
from mase_server.passes.quantize.config import OWN, WAYS, Chooser
from mase_server.passes.weighted import Weighted, expose_weight, find_weighted, require_values, without_weight
from mase_server.protocol.arguments import Argument

#: The format used if neither the arguments nor roundings in the graph name one.
USUAL = "mxint(4)"
_OPTIONS = ("damping", "block", "act_order")


@transform(
    "Round weights on data (GPTQ)",
    arguments=(
        Argument(
            "by", "choice", "what the other names refer to: operator types, names or patterns", "type", choices=WAYS
        ),
        Argument("default", "format", "the format of all other weights"),
        DATA,
        SAMPLES,
        Argument(
            "damping", "number", "this share of the Hessian's mean diagonal is added to its diagonal", 0.01, minimum=0
        ),
        Argument("block", "integer", "columns that are rounded before the others are updated", 128, minimum=1),
        Argument("act_order", "boolean", "round the most important columns first", False),
    ),
    others=Argument("", "format", "the format, or MASE's configuration, of an operator, node, expression or scope"),
    needs={"weights", "data"},
    selects=True,
)
def gptq_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Round the weights of linear and convolution layers so that their outputs change little on data.

    by, default, only and further keys: which layers, and in which formats, as in quantize_transform_pass; of a
    configuration, weight_... counts. Without any format, weights that are rounded already keep theirs, or all take
    mxint(4) if none are.  data, samples: the data that the graph runs on (see `data.load`).
    damping: share of the Hessian's mean diagonal that is added to it.  block: columns that are finished before the
    others are updated, which only affects the time.  act_order: the columns that matter most go first.
    Layers are rounded in the graph's order, each on the inputs that the already rounded layers give; of very many
    inputs of one run, an even sample counts. Pruned elements stay zero. No row gets worse than by plain rounding.
    The new weights are parameters of the graph's module; the model's own stay as they were.
    Gives {"layers": by node {"format", "error", "rounding_error": mean squared change of an output by this and by plain
    rounding}, "left": nodes whose weight is no parameter, "inputs": their source, in words}.
    ValueError for pass_args that cannot be read, formats without a grid, and weights on meta.
    Source: Frantar et al., GPTQ, 2022; MASE's module-level quantisation with `gptq`.

    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False))
    >>> _ = nn.init.constant_(model[0].weight, 0.3)
    >>> graph = MaseGraph(model, {"input": torch.tensor([[1.0, 1.0], [2.0, 2.0]])})
    >>> graph, found = passes.gptq_transform_pass(graph, {"default": "fixed(4,1)"})
    >>> graph.module.get_parameter("_0_gptq_weight").tolist()  # plain rounding would give 0.5 twice
    [[0.5, 0.0]]
    """
    given = dict(pass_args or {})
    options = Options(**{key: given.pop(key) for key in _OPTIONS if given.get(key) is not None})
    only = Selection.of(given.get("only"))
    layers = find_weighted(graph.fx_graph, graph.module, only)
    left = [node.name for node in without_weight(graph.fx_graph, graph.module, only)]
    formats = _weight_formats(layers, given, graph)
    chosen = [layer for layer in layers if layer.node in formats]
    for layer in chosen:
        require_values("gptq", layer, layer.weight(graph.module))
    data = load(graph, given.get("data"), given.get("samples"))
    opened = [expose_weight(layer, graph.module) for layer in chosen]
    found = choose_weights(graph, formats, opened, data, options)
    names = {layer.path: f"{layer.node.name}_gptq_weight" for layer in reversed(opened)}
    for path, name in names.items():
        graph.module.register_parameter(name, nn.Parameter(found[path].weight))
    for layer in opened:
        _put_weight(layer, found[layer.path], names[layer.path])
    told = {layer.node.name: _chosen_to_map(found[layer.path]) for layer in opened}
    return graph, {"layers": told, "left": left, "inputs": data.words}


def _weight_formats(
    layers: Sequence[Weighted], given: Mapping[str, Any], graph: MaseGraph
) -> dict[fx.Node, NumberFormat]:
    """The format of each layer's weight, for layers that have one."""
    named = given.get("default") is not None or any(key not in OWN for key in given)
    present = {layer.node: parse(text) for layer in layers if (text := layer.rounded_to) is not None}
    if present and not named:
        return present
    chooser = Chooser(given if named else {**given, "default": USUAL}, graph.module)
    configs = {layer.node: chooser.of(layer.node) for layer in layers}
    found = {node: None if config is None else config.format_of("weight") for node, config in configs.items()}
    return {node: format for node, format in found.items() if format is not None}


def _put_weight(layer: Weighted, chosen: Chosen, name: str) -> None:
    """Give the node its new weight, under this name; rounded, if rounding leaves it unchanged."""
    node, before, graph = layer.node, layer.argument, layer.node.graph
    with graph.inserting_before(node):
        weight = graph.get_attr(name)
        if bool((chosen.format.round(chosen.weight) == chosen.weight).all()):
            weight = graph.call_function(quantise, (weight, str(chosen.format)))
    weight.meta["scope"] = node.meta.get("scope")
    node.replace_input_with(before, weight)
    _drop_unused(before)


def _drop_unused(node: fx.Node) -> None:
    """Remove an unused node from the graph, and the nodes that only it used."""
    sources = node.all_input_nodes
    if not node.users and node.op != "placeholder":
        node.graph.erase_node(node)
        for source in sources:
            _drop_unused(source)


class RoundedWeight(TypedDict):
    """A chosen weight. error: mean squared change of an output by it.  rounding_error: the same by plain rounding."""

    format: str
    error: float
    rounding_error: float


def _chosen_to_map(chosen: Chosen) -> RoundedWeight:
    return {"format": str(chosen.format), "error": chosen.error, "rounding_error": chosen.rounding_error}


# All batches run through the graph side by side, and each layer's weight is chosen when they reach it.


@dataclass(frozen=True, slots=True)
class Chosen:
    """A weight on its grid, and the mean squared change of the layer's output: by it, and by plain rounding."""

    weight: Tensor
    format: NumberFormat
    error: float
    rounding_error: float


def choose_weights(
    graph: MaseGraph, formats: Mapping[fx.Node, NumberFormat], layers: Iterable[Weighted], data: Data, options: Options
) -> dict[str, Chosen]:
    """Choose the weights of layers, by path, each on the inputs that it gets after those before it are chosen.

    formats: of the layers' nodes, whose weights are arguments.  A weight that several layers share is chosen for the
    first one.  The graph and its parameters stay as they are.
    """
    by_node = {layer.node: layer for layer in layers if layer.node in formats}
    found: dict[str, Chosen] = {}
    with preserve_model(graph.module), torch.no_grad():
        runs = [Run(graph.module, values) for values in data.feeds(graph)]
        for node in graph.nodes:
            if node in by_node:
                layer = by_node[node]
                if layer.path not in found:
                    found[layer.path] = _choose_weight(layer, graph, [run.env for run in runs], formats[node], options)
                for run in runs:
                    run.env[layer.argument] = found[layer.path].weight
            for run in runs:
                run.step()
    return found


def _choose_weight(
    layer: Weighted, graph: MaseGraph, values: Sequence[Mapping[fx.Node, Any]], format: NumberFormat, options: Options
) -> Chosen:
    given = layer.masked_weight(graph.module).detach()
    weight = given if given.dtype == torch.float64 else given.float()
    format = of_tensor(format, weight, Method()) if isinstance(format, Open) else format
    hessian = Hessian.of(layer, graph.module)
    for each in values:
        hessian.add(each[layer.data])
    layout = Layout(weight.shape, transposed=layer.sums == 0)
    grid, keep = grid_of(format, weight, layout), _kept_mask(layer, weight, layout)
    matrix, parts, errors = layout.matrix(weight), [], torch.zeros(2, dtype=torch.float64)
    groups = len(hessian.total) if hessian.total is not None else 1
    size = len(matrix) // groups
    for group in range(groups):
        rows = slice(group * size, (group + 1) * size)
        plain, own = grid.of_rows(rows).rounded(matrix[rows], slice(None)), hessian.mean(group)
        solved = solve_columns(matrix[rows], own, grid.of_rows(rows), options, None if keep is None else keep[rows])
        before, after = mean_squared_change(matrix[rows], plain, own), mean_squared_change(matrix[rows], solved, own)
        # The algorithm is greedy, so it may be worse than plain rounding for a row.
        parts.append(torch.where((after <= before)[:, None], solved, plain))
        errors += torch.stack([torch.minimum(before, after).sum(), before.sum()])
    chosen = layout.restored(torch.cat(parts)).contiguous().to(given.dtype)
    return Chosen(chosen, format, *(errors / len(matrix)).tolist())


def _kept_mask(layer: Weighted, weight: Tensor, layout: Layout) -> Tensor | None:
    """The mask of a pruned layer's weight; None if it is not pruned."""
    return None if not layer.masked else layout.matrix((weight != 0).to(weight))


# The inputs that a weight's rows are multiplied with, as the Hessian of GPTQ: the mean of x x^T.

#: The most inputs of a layer whose Hessian is in float64; larger ones are in float32, to save time and memory.
EXACT = 1024
#: Inputs of one run that count, spread evenly, if a layer has more: rows of a linear one, positions of each sample.
HEARD = 1 << 13
#: Arguments of a convolution, in torch's order.
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")


@dataclass(slots=True)
class Hessian:
    """The mean of x x^T over all inputs so far; total: [groups, inputs, inputs], float32 if there are many inputs."""

    total: Tensor | None = None
    count: int = 0
    _read: Callable[[Tensor], Iterator[Tensor]] = field(default=lambda values: iter([values]))

    @classmethod
    def of(cls, layer: Weighted, module: nn.Module) -> Hessian:
        """The Hessian of a layer of a graph."""
        if not layer.operator.startswith("conv"):
            return cls(_read=_heard_rows)
        window = _window_of_convolution(layer.node, module, layer.weight(module))
        return cls(_read=window.inputs)

    def add(self, values: Tensor) -> None:
        """Add the inputs of one run."""
        for inputs in self._read(values.detach()):
            exact = inputs.double() if inputs.shape[-1] <= EXACT else inputs.float()
            products = exact.mT @ exact
            self.total = products if self.total is None else self.total + products
            self.count += exact.shape[1]

    def mean(self, group: int) -> Tensor:
        """[inputs, inputs] of one group of the outputs. ValueError if there was no input."""
        if self.total is None or not self.count:
            raise ValueError("gptq: a layer never got any input; give data that reaches it")
        return self.total[group] / self.count


def _heard_rows(values: Tensor) -> Iterator[Tensor]:
    rows = values.reshape(1, -1, values.shape[-1])
    yield rows[:, :: max(1, ceil(rows.shape[1] / HEARD))]


@dataclass(frozen=True, slots=True)
class _Window:
    """The positions of a convolution's kernel. pads: left and right of each dimension, the last dimension first."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    mode: str
    groups: int

    def inputs(self, values: Tensor) -> Iterator[Tensor]:
        """[groups, positions, channels of a group * kernel], sample by sample."""
        samples = values if values.dim() == len(self.kernel) + 2 else values[None]
        for sample in samples:
            seen = F.pad(sample[None], self.pads, mode=self.mode)[0]
            for axis, (size, step, apart) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True), 1):
                seen = seen.unfold(axis, (size - 1) * apart + 1, step)[..., ::apart]
            yield self._grouped(self._heard(seen))

    def _heard(self, seen: Tensor) -> Tensor:
        """Every n-th position in each direction, to limit their number."""
        count = len(self.kernel)
        step = max(1, ceil((prod(seen.shape[1 : 1 + count]) / HEARD) ** (1 / count)))
        return seen[(slice(None), *[slice(None, None, step)] * count)]

    def _grouped(self, seen: Tensor) -> Tensor:
        count = len(self.kernel)
        channels, positions = seen.shape[0], seen.shape[1 : 1 + count]
        split = seen.reshape(self.groups, channels // self.groups, positions.numel(), *self.kernel)
        return split.transpose(1, 2).reshape(self.groups, positions.numel(), -1)


def _window_of_convolution(node: fx.Node, module: nn.Module, weight: Tensor) -> _Window:
    given = _convolution_arguments(node, module)
    kernel = tuple(weight.shape[2:])
    dilation = _size_per_dimension(given.get("dilation", 1), kernel)
    return _Window(
        kernel,
        _size_per_dimension(given.get("stride", 1), kernel),
        dilation,
        _padding_sizes(given.get("padding", 0), kernel, dilation),
        {"zeros": "constant"}.get(mode := str(given.get("padding_mode", "zeros")), mode),
        int(given.get("groups", 1)),
    )


def _convolution_arguments(node: fx.Node, module: nn.Module) -> Kwargs:
    if node.target is with_parameters or node.op == "call_module":
        layer = node.args[0] if node.op == "call_function" else node
        assert isinstance(layer, fx.Node)
        convolution = attribute(module, str(layer.target))
        return {name: getattr(convolution, name) for name in (*_CONVOLUTION[3:], "padding_mode")}
    return {**dict(zip(_CONVOLUTION, node.args, strict=False)), **node.kwargs}


def _size_per_dimension(value: int | Sequence[int], kernel: tuple[int, ...]) -> tuple[int, ...]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    return sizes * len(kernel) if len(sizes) == 1 else sizes


def _padding_sizes(
    padding: str | int | Sequence[int], kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[int, ...]:
    if padding == "same":
        totals = [apart * (size - 1) for size, apart in zip(kernel, dilation, strict=True)]
        pairs = [(total // 2, total - total // 2) for total in totals]
    else:
        pairs = [(size, size) for size in _size_per_dimension(0 if isinstance(padding, str) else padding, kernel)]
    return tuple(size for pair in reversed(pairs) for size in pair)


# The algorithm of GPTQ: columns in turn, where later columns compensate for each column's error.


@dataclass(frozen=True, slots=True)
class Options:
    """damping: share of the Hessian's mean diagonal that is added to it.  block: columns that are finished before the
    others are updated; it only affects the time.  act_order: the columns that matter most go first."""

    damping: float = 0.01
    block: int = 128
    act_order: bool = False

    def __post_init__(self) -> None:
        if not self.damping >= 0:
            raise ValueError(f"gptq: damping is {self.damping!r}, expected a number of at least 0")
        if type(self.block) is not int or self.block < 1:
            raise ValueError(f"gptq: block is {self.block!r}, expected a whole number of at least 1")


def solve_columns(weight: Tensor, hessian: Tensor, grid: Grid, options: Options, keep: Tensor | None = None) -> Tensor:
    """Round a weight to its grid so that products with inputs of this Hessian change little.

    weight: [outputs, inputs].  hessian: [inputs, inputs], the mean of x x^T over inputs.  keep: 0 where an element has
    to be zero.  Columns of inputs that were always zero are rounded plainly.
    Source: Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2022.
    """
    order = hessian.diagonal().argsort(descending=True, stable=True) if options.act_order else None
    columns = torch.arange(weight.shape[1], device=weight.device) if order is None else order
    # Columns are rows here, so that each of them is contiguous in memory.
    values = weight.detach().to(hessian.dtype).T[columns].contiguous()
    factor = inverse_factor(hessian[columns][:, columns], options.damping)
    found = torch.empty_like(weight)
    for first in range(0, len(columns), options.block):
        last = min(first + options.block, len(columns))
        errors = values.new_empty(last - first, values.shape[1])
        for at in range(first, last):
            rounded = _round_column(values[at], columns[at], weight, grid, keep)
            error = torch.sub(values[at], rounded, out=errors[at - first]).div_(factor[at, at])
            values[at:last].addr_(factor[at, at:last], error, alpha=-1)
            found[:, columns[at]] = rounded.to(found)
        values[last:].addmm_(factor[first:last, last:].T, errors, alpha=-1)
    return found


def _round_column(column: Tensor, index: Tensor, weight: Tensor, grid: Grid, keep: Tensor | None) -> Tensor:
    rounded = grid.rounded(column.to(weight)[:, None], index[None])[:, 0].to(column)
    return rounded if keep is None else rounded * keep[:, index].to(column)


def inverse_factor(hessian: Tensor, damping: float) -> Tensor:
    """The upper Cholesky factor of the inverse of the damped Hessian; damped more if necessary."""
    whole = hessian.clone()
    mean = float(whole.diagonal().mean())
    # Inputs that are always zero are independent of all others, so they are rounded alone.
    whole.diagonal()[whole.diagonal() == 0] = 1.0
    while True:
        damped = whole + damping * mean * torch.eye(len(whole), dtype=whole.dtype, device=whole.device)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            factor, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                found: Tensor = factor
                return found
        damping, mean = max(10 * damping, 1e-6), mean or 1.0


def mean_squared_change(weight: Tensor, found: Tensor, hessian: Tensor) -> Tensor:
    """The mean squared change of each output over the inputs of this Hessian, [outputs], float64."""
    change = (found.detach() - weight.detach()).to(hessian.dtype)
    return ((change @ hessian) * change).sum(1, dtype=torch.float64)


# The values that each element of a weight may take, fixed before any of them changes.


@dataclass(frozen=True, slots=True)
class Layout:
    """The view of a weight as a matrix [outputs, inputs]. transposed: it is [inputs, outputs]; else outputs come
    first."""

    shape: torch.Size
    transposed: bool = False

    def matrix(self, values: Tensor) -> Tensor:
        """A tensor of the weight's shape as the matrix."""
        return values.T if self.transposed else values.reshape(self.shape[0], -1)

    def restored(self, matrix: Tensor) -> Tensor:
        """The inverse of `matrix`."""
        return matrix.T if self.transposed else matrix.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Grid:
    """Rounding to a format whose shared scales are those of the original weight.

    format: rounds a value together with its anchor, the magnitude that decided its scale, in one block.  shape: of
    such pairs.  anchors: of each element of the matrix [outputs, inputs]; None if elements share nothing.
    """

    format: NumberFormat
    anchors: Tensor | None = None
    shape: tuple[int, ...] = ()

    def rounded(self, values: Tensor, columns: Tensor | slice) -> Tensor:
        """The nearest values to some columns of the matrix; values beyond the anchor saturate."""
        if self.anchors is None:
            return self.format.round(values)
        anchors = self.anchors[:, columns].to(values)
        limited = values.clamp(-anchors, anchors)
        pairs = torch.stack([limited.flatten(), anchors.flatten()], dim=1)
        return self.format.round(pairs.view(-1, *self.shape)).view(-1, 2)[:, 0].view(values.shape)

    def of_rows(self, rows: slice) -> Grid:
        """The grid of some rows."""
        return self if self.anchors is None else dataclasses.replace(self, anchors=self.anchors[rows])


def grid_of(format: NumberFormat, weight: Tensor, layout: Layout) -> Grid:
    """The grid of a weight.

    ValueError for formats in which an element's value depends on the whole weight other than by a scale.
    """
    rounded, matrix = layout.matrix(format.round(weight)), layout.matrix(weight.detach())
    for grid in _grids_of_format(format, weight.detach(), layout):
        if _is_that(grid, matrix, rounded):
            return grid
    raise ValueError(f"gptq: {format} has no fixed set of values to choose from; use a format such as mxint(4)")


def _is_that(grid: Grid, matrix: Tensor, rounded: Tensor) -> bool:
    """Does rounding some columns alone give the same as rounding all at once?"""
    last = matrix.shape[1] - 1
    some = {last * part // 4 for part in range(5)}
    parts = [slice(None), *(slice(at, at + 1) for at in some)]
    return all(torch.equal(grid.rounded(matrix[:, part], part), rounded[:, part]) for part in parts)


def _grids_of_format(format: NumberFormat, weight: Tensor, layout: Layout) -> Sequence[Grid]:
    if isinstance(format, ScaleInteger):
        largest = _largest_of_channels(weight, format.axis)
        anchors = layout.matrix(largest.expand_as(weight))
        return [Grid(dataclasses.replace(format, axis=0), anchors, (2,))]
    block: tuple[int, ...] | None = getattr(format, "block_size", None)
    if block is None or max(block) == 1:
        return [Grid(format)]
    largest = round_blockwise(weight, block, lambda values, top: top.expand_as(values))
    anchors, shape = layout.matrix(largest), _pair_shape(block)
    paired = dataclasses.replace(format, **{"block_size": shape})
    return [Grid(paired, _highest_below_power(anchors), shape), Grid(paired, anchors, shape)]


def _largest_of_channels(weight: Tensor, axis: int | None) -> Tensor:
    others = tuple(range(weight.dim())) if axis is None else _other_dimensions(weight, axis)
    return weight.abs().amax(dim=others, keepdim=True) if others else weight.abs()


def _other_dimensions(weight: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(each for each in range(weight.dim()) if each != axis % weight.dim())


def _pair_shape(block: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a value and its anchor in one block: along the last dimension in which blocks are longer than 1."""
    last = max(index for index, size in enumerate(block) if size > 1)
    return tuple(2 if index == last else 1 for index in range(len(block)))


def _highest_below_power(anchors: Tensor) -> Tensor:
    """The largest values below the next power of two: scales that are powers of two are the same for them."""
    fraction, exponent = torch.frexp(anchors)
    highest = 1.0 - torch.finfo(anchors.dtype).eps / 2
    return torch.where(fraction > 0, torch.ldexp(torch.full_like(fraction, highest), exponent), anchors)
