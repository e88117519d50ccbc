"""Replacements for what models use most of packages that are often missing, where its meaning is fully documented.

Lightning's base classes are plain modules; einops rearranges, reduces and repeats by a pattern; configurations of
ml_collections, easydict, yacs, munch and omegaconf hold what they are given, and hydra makes what they name; of PyTorch
Geometric, message passing and pools are here, and of torch_scatter the sums; fairscale's parallel layers are whole, in
one process; typeguard's checks pass. `vision` has parts of torchvision and timm, `openmmlab` of mmcv and mmengine, and
`kernels` layers of packages with kernels of their own, such as mamba_ssm. Nothing else is made up: all other names of
these packages stay unknown, and the diagnostic at the import says what is computed by these replacements. Sources:
einops.rocks/api, hydra.cc (instantiating objects), the docstrings of fairscale.nn.model_parallel, of
torch_geometric.nn.conv.MessagePassing and of torch_scatter, and the READMEs of the packages of configurations.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import itertools
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, cast

import torch
from torch import nn

from mase_server.ops.types import Kwargs
from mase_server.tracing.importing.deformable import find_deformable, is_deformable
from mase_server.tracing.importing.kernels import KERNELS
from mase_server.tracing.importing.openmmlab import OPENMMLAB
from mase_server.tracing.importing.vision import VISION, as_tuple

# Lightning.


class Hyperparameters(dict[str, Any]):
    """A dict whose keys are attributes too, as Lightning's `self.hparams` is."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no hyperparameter {name!r}; there are {', '.join(self) or 'none'}") from None


class HyperparametersMixin:
    """Lightning's: it keeps the arguments of a constructor."""

    @property
    def hparams(self) -> Hyperparameters:
        """The arguments that `save_hyperparameters` kept."""
        kept: Hyperparameters = vars(self).setdefault("_hparams", Hyperparameters())
        return kept

    def save_hyperparameters(self, *args: Any, ignore: Any = (), frame: FrameType | None = None, **_: Any) -> None:
        """Keep the constructor's arguments in `hparams`, or only the named ones, or those of a mapping."""
        ignored = {ignore} if isinstance(ignore, str) else set(ignore or ())
        given = _constructor_arguments(self, frame or sys._getframe(1))
        for each in args:
            if not isinstance(each, str):
                self.hparams.update(each if isinstance(each, dict) else vars(each))
        names = [each for each in args if isinstance(each, str)] or ([] if args else list(given))
        self.hparams.update({name: given[name] for name in names if name in given and name not in ignored})


class LightningModule(HyperparametersMixin, nn.Module):
    """An nn.Module with the parts of Lightning's that constructors and forwards use."""

    trainer = logger = example_input_array = None
    automatic_optimization = True
    current_epoch = global_step = global_rank = local_rank = 0

    @property
    def device(self) -> torch.device:
        """The device on which every tensor of the program seems to be."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The element type of its weights."""
        return next((each.dtype for each in self.parameters()), torch.get_default_dtype())

    def log(self, *args: Any, **kwargs: Any) -> None:
        """Log nothing."""

    log_dict = manual_backward = toggle_optimizer = untoggle_optimizer = print = log

    def freeze(self) -> None:
        """No gradients, and eval mode."""
        self.requires_grad_(False).eval()

    def unfreeze(self) -> None:
        """Gradients, and train mode."""
        self.requires_grad_(True).train()

    def all_gather(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the data: a single process has nothing to gather."""
        return data


def _constructor_arguments(model: Any, frame: FrameType | None) -> Kwargs:
    """The arguments of the constructors that run for `model`, the outermost class's first."""
    found: list[Kwargs] = []
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is model:
        names, _, keywords, values = inspect.getargvalues(frame)
        given = {name: values[name] for name in names[1:]} | (values.get(keywords) or {} if keywords else {})
        found.append(given)
        frame = frame.f_back
    return {name: value for given in found for name, value in given.items() if not name.startswith("__")}


# einops.

#: The names of a pattern's axes; each inner list is one dimension of a tensor, `[]` one of size 1.
Axes = list[list[str]]

_TOKEN = re.compile(r"\s*(\(|\)|\.\.\.|[A-Za-z_]\w*|\d+)")
#: The axes that a pattern does not name: each a dimension of its own, or all in one.
_REST, _REST_APART = "...", "... apart"


class PatternError(RuntimeError):
    """A pattern that cannot be read, or that does not fit a tensor. The messages are those of einops."""


@functools.lru_cache(maxsize=1024)
def _parse_side(side: str) -> Axes:
    """The axes of one side of a pattern."""
    axes: Axes = []
    group: list[str] | None = None
    tokens = _TOKEN.findall(side)
    if "".join(tokens) != "".join(side.split()):
        raise PatternError(f"Invalid characters in the pattern {side!r}")
    for token in tokens:
        if token in "()":
            if (token == "(") == (group is not None):
                raise PatternError(f"Brackets of the pattern {side!r} do not match")
            if group is not None:
                axes.append(group)
            group = [] if token == "(" else None
        elif group is not None:
            group += [] if token == "1" else [token]
        else:
            axes.append([] if token == "1" else [_REST_APART if token == _REST else token])
    if group is not None:
        raise PatternError(f"Brackets of the pattern {side!r} do not match")
    return axes


def _read_pattern(pattern: str, dims: int) -> tuple[Axes, Axes]:
    """Both sides of a pattern for a tensor of so many dimensions; `...` becomes as many axes as are left."""
    # Numbers are axes without a name: each is one of its own.
    numbered = itertools.count()
    sides = [
        [[f"{name}#{next(numbered)}" if name.isdigit() else name for name in group] for group in _parse_side(side)]
        for side in pattern.split("->")
    ]
    if len(sides) != 2:
        raise PatternError(f"The pattern {pattern!r} has no `->`")
    left, right = sides
    rest = [f"{_REST}{index}" for index in range(dims - len(left) + 1)] if [_REST_APART] in left else []

    def spread(axes: Axes) -> Axes:
        found: Axes = []
        for group in axes:
            found += [[name] for name in rest] if group == [_REST_APART] else [_replace_rest(group, rest)]
        return found

    return spread(left), spread(right)


def _replace_rest(group: list[str], rest: list[str]) -> list[str]:
    return [inner for name in group for inner in (rest if name == _REST else [name])]


def _split_axes(tensor: torch.Tensor, left: Axes, sizes: Mapping[str, int], pattern: str) -> dict[str, int]:
    """The size of each axis; PatternError if the tensor does not fit."""
    if len(left) != tensor.dim():
        raise PatternError(
            f"Wrong shape: expected {len(left)} dims. Received {tensor.dim()}-dim tensor. Pattern: {pattern!r}."
        )
    found = dict(sizes)
    for group, size in zip(left, tensor.shape, strict=True):
        unknown = [name for name in group if name not in found]
        known = math.prod(found[name] for name in group if name in found)
        if len(unknown) > 1:
            raise PatternError(f"Could not infer sizes for {set(unknown)}. Pattern: {pattern!r}.")
        if unknown:
            if known == 0 or size % known:
                raise PatternError(f"Shape mismatch, can't divide axis of length {size} in chunks of {known}")
            found[unknown[0]] = size // known
        elif known != size:
            raise PatternError(f"Shape mismatch, {size} != {known}. Pattern: {pattern!r}.")
    return found


def _as_tensor(tensor: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(tensor)) if isinstance(tensor, list | tuple) else cast("torch.Tensor", tensor)


def _list_names(axes: Axes) -> list[str]:
    return [name for group in axes for name in group]


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> torch.Tensor:
    """Reorder, split and merge the dimensions of a tensor, or of a list of tensors, as a pattern says."""
    return _transform(_as_tensor(tensor), pattern, axes_lengths, None)


def reduce(tensor: Any, pattern: str, reduction: str | Callable[..., Any], **axes_lengths: int) -> torch.Tensor:
    """The same; the axes that the right side lacks are reduced: by mean, sum, max, min, prod, any or all."""
    return _transform(_as_tensor(tensor), pattern, axes_lengths, reduction)


def repeat(tensor: Any, pattern: str, **axes_lengths: int) -> torch.Tensor:
    """The same; the axes that the left side lacks are new, with the given sizes."""
    return _transform(_as_tensor(tensor), pattern, axes_lengths, None)


def _transform(
    tensor: torch.Tensor, pattern: str, sizes: Mapping[str, int], reduction: str | Callable[..., Any] | None
) -> torch.Tensor:
    left, right = _read_pattern(pattern, tensor.dim())
    numbers = {name: int(name.partition("#")[0]) for name in _list_names(left + right) if "#" in name}
    sizes = {**sizes, **numbers}
    known = _split_axes(tensor, left, {name: sizes[name] for name in _list_names(left) if name in sizes}, pattern)
    names = _list_names(left)
    if any(len(group) != 1 for group in left):
        tensor = tensor.reshape([known[name] for name in names])
    dropped = [name for name in names if name not in _list_names(right)]
    if dropped and reduction is None:
        raise PatternError(f"Identifiers only on one side of expression (should be on both): {set(dropped)}")
    if dropped:
        tensor = _reduce_axes(tensor, tuple(names.index(name) for name in dropped), reduction)
        names = [name for name in names if name not in dropped]
    made = [name for name in _list_names(right) if name not in names]
    if missing := [name for name in made if name not in sizes]:
        raise PatternError(f"Specify sizes for new axes in repeat: {set(missing)}. Pattern: {pattern!r}.")
    for name in made:
        tensor = tensor.unsqueeze(0).expand(sizes[name], *([-1] * tensor.dim()))
        names, known = [name, *names], {**known, name: sizes[name]}
    order = [names.index(name) for name in _list_names(right)]
    if order != sorted(order):
        tensor = tensor.permute(order)
    if any(len(group) != 1 for group in right):
        tensor = tensor.reshape([math.prod(known[name] for name in group) for group in right])
    return tensor


def _reduce_axes(tensor: torch.Tensor, dims: tuple[int, ...], reduction: Any) -> torch.Tensor:
    if callable(reduction):
        return cast("torch.Tensor", reduction(tensor, dims))
    if reduction in ("max", "min"):
        return cast("torch.Tensor", getattr(torch, f"a{reduction}")(tensor, dims))
    if reduction in ("mean", "sum"):
        return cast("torch.Tensor", getattr(torch, reduction)(tensor, dims))
    for dim in sorted(dims, reverse=True):
        tensor = getattr(torch, reduction)(tensor, dim)
    return tensor


def einsum(*operands: Any) -> torch.Tensor:
    """`einsum(a, b, "batch i, i j -> batch j")`: a sum of products over named axes."""
    *tensors, pattern = operands
    names = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", pattern))
    letters = dict(zip(names, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    equation = re.sub(r"[A-Za-z_]\w*", lambda match: letters[match[0]], pattern).replace(" ", "")
    return torch.einsum(equation, *tensors)


def pack(tensors: Sequence[torch.Tensor], pattern: str) -> tuple[torch.Tensor, list[torch.Size]]:
    """Join tensors along the axis `*`, and return the shapes that were merged there."""
    before, after = (side.split() for side in pattern.split("*"))
    shapes = [tensor.shape[len(before) : tensor.dim() - len(after)] for tensor in tensors]
    flat = [
        tensor.reshape(*tensor.shape[: len(before)], -1, *tensor.shape[tensor.dim() - len(after) :])
        for tensor in tensors
    ]
    return torch.cat(flat, dim=len(before)), shapes


def unpack(tensor: torch.Tensor, packed_shapes: Sequence[Sequence[int]], pattern: str) -> list[torch.Tensor]:
    """The inverse of `pack`."""
    at = len(pattern.split("*")[0].split())
    parts = torch.split(tensor, [math.prod(shape) for shape in packed_shapes], dim=at)
    return [
        part.reshape(*part.shape[:at], *shape, *part.shape[at + 1 :])
        for part, shape in zip(parts, packed_shapes, strict=True)
    ]


def parse_shape(tensor: torch.Tensor, pattern: str) -> dict[str, int]:
    """The sizes of a tensor by the names of a pattern; `_` is left out."""
    return {name: size for name, size in zip(pattern.split(), tensor.shape, strict=True) if name != "_"}


class Rearrange(nn.Module):
    """`rearrange` as a layer."""

    def __init__(self, pattern: str, **axes_lengths: int) -> None:
        super().__init__()
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Rearrange an input."""
        return rearrange(input, self.pattern, **self.axes_lengths)

    def extra_repr(self) -> str:
        """The pattern and the sizes."""
        return ", ".join([repr(self.pattern), *(f"{name}={size}" for name, size in self.axes_lengths.items())])


class Reduce(Rearrange):
    """`reduce` as a layer."""

    def __init__(self, pattern: str, reduction: str, **axes_lengths: int) -> None:
        super().__init__(pattern, **axes_lengths)
        self.reduction = reduction

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Reduce an input."""
        return reduce(input, self.pattern, self.reduction, **self.axes_lengths)


# fairscale: tensor parallelism in one process, where each layer is whole.


class ParallelLinear(nn.Linear):
    """A layer whose features are split over processes. options: of the split, and of the weights' first values."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *args: Any, **options: Any) -> None:
        super().__init__(in_features, out_features, bias)


class ParallelEmbedding(nn.Embedding):
    """A table that is split over processes."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *args: Any, **options: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx)


# PyTorch Geometric: sums over the edges of a graph. In torch_scatter their default dimension is another.


def scatter(
    src: torch.Tensor, index: torch.Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum"
) -> torch.Tensor:
    """Reduce the rows of `src` that have the same index, by sum, mean, max, min or mul."""
    dim = dim + src.dim() if dim < 0 else dim
    size = int(index.max()) + 1 if dim_size is None and index.numel() else dim_size or 0
    places = index if index.dim() == src.dim() else index.view([-1 if each == dim else 1 for each in range(src.dim())])
    how = {"add": "sum", "max": "amax", "min": "amin", "mul": "prod"}.get(reduce, reduce)
    empty = src.new_full([*src.shape[:dim], size, *src.shape[dim + 1 :]], float(how == "prod"))
    return empty.scatter_reduce(dim, places.expand_as(src), src, how, include_self=how == "sum")


def _scatter_apart(
    src: torch.Tensor, index: torch.Tensor, dim: int = -1, out: None = None, dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:  # fmt: skip
    if out is not None:
        raise NotImplementedError("MASE computes no scatter into a given tensor without the package")
    return scatter(src, index, dim, dim_size, reduce)


def softmax(
    src: torch.Tensor, index: torch.Tensor, ptr: None = None, num_nodes: int | None = None, dim: int = 0
) -> torch.Tensor:
    """The softmax among the rows that have the same index."""
    size = int(index.max()) + 1 if num_nodes is None else num_nodes
    raised = (src - scatter(src.detach(), index, dim, size, "max").index_select(dim, index)).exp()
    return raised / (scatter(raised, index, dim, size).index_select(dim, index) + 1e-16)


def degree(index: torch.Tensor, num_nodes: int | None = None, dtype: torch.dtype | None = None) -> torch.Tensor:
    """How often each node stands in an index."""
    return scatter(torch.ones(index.shape[0], dtype=dtype), index, 0, num_nodes)


def add_self_loops(
    edge_index: torch.Tensor, edge_attr: torch.Tensor | None = None, fill_value: Any = None, num_nodes: Any = None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The edges, and one from each node to itself."""
    nodes = max(num_nodes) if isinstance(num_nodes, tuple) else num_nodes or int(edge_index.max()) + 1
    if edge_attr is not None:
        if isinstance(fill_value, str):
            raise NotImplementedError("MASE computes no attributes of loops from other edges without the package")
        loops = edge_attr.new_full((nodes, *edge_attr.shape[1:]), 1.0 if fill_value is None else fill_value)
        edge_attr = torch.cat([edge_attr, loops])
    return torch.cat([edge_index, torch.arange(nodes).expand(2, -1)], dim=1), edge_attr


def to_dense_batch(
    x: torch.Tensor, batch: torch.Tensor | None = None, fill_value: float = 0.0, max_num_nodes: int | None = None,
    batch_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The nodes of each graph as a row, filled up to the longest one, and which of them are nodes."""
    batch = torch.zeros(x.shape[0], dtype=torch.long) if batch is None else batch
    counts = degree(batch, batch_size, torch.long)
    places = torch.arange(x.shape[0]) - (counts.cumsum(0) - counts)[batch]
    size = max_num_nodes or int(counts.max())
    if max_num_nodes is not None:
        kept = places < size
        x, batch, places = x[kept], batch[kept], places[kept]
    dense = x.new_full([counts.shape[0], size, *x.shape[1:]], fill_value)
    mask = torch.zeros(counts.shape[0], size, dtype=torch.bool)
    return dense.index_put((batch, places), x), mask.index_put((batch, places), torch.tensor(True))


def _pool(reduce: str) -> Callable[..., torch.Tensor]:
    def pool(x: torch.Tensor, batch: torch.Tensor | None, size: int | None = None) -> torch.Tensor:
        """Reduce the nodes of each graph to one row."""
        index = torch.zeros(x.shape[0], dtype=torch.long) if batch is None else batch
        return scatter(x, index, 0, (size or 1) if batch is None else size, reduce)

    return pool


class MessagePassing(nn.Module):
    """Computes a message for each edge of a graph, and reduces those that reach the same node."""

    def __init__(
        self, aggr: str | None = "sum", *, flow: str = "source_to_target", node_dim: int = -2, **options: Any
    ) -> None:
        super().__init__()
        self.aggr, self.flow, self.node_dim = aggr, flow, node_dim

    def propagate(self, edge_index: torch.Tensor, size: Sequence[int] | None = None, **given: Any) -> Any:
        """Give `message`, `aggregate` and `update` what their parameters ask for."""
        known = self._collect(edge_index, size, given)
        messages = _call_with(self.message, known)
        return _call_with(self.update, known, _call_with(self.aggregate, known, messages))

    def edge_updater(self, edge_index: torch.Tensor, size: Sequence[int] | None = None, **given: Any) -> Any:
        """Give `edge_update` what its parameters ask for."""
        return _call_with(self.edge_update, self._collect(edge_index, size, given))

    def _collect(self, edge_index: torch.Tensor, size: Sequence[int] | None, given: Kwargs) -> Kwargs:
        """By name: what was given, its rows at the two ends of each edge (`_i`, `_j`), and the edges themselves."""
        ends = {"_i": 1, "_j": 0} if self.flow == "source_to_target" else {"_i": 0, "_j": 1}
        sizes: list[Any] = [None, None] if size is None else list(size)
        known = dict(given)
        for name, value in given.items():
            pair = value if isinstance(value, tuple | list) else (value, value)
            for end, row in ends.items():
                if len(pair) == 2 and isinstance(pair[row], torch.Tensor) and pair[row].dim() >= -self.node_dim:
                    rows = pair[row].shape[self.node_dim]
                    sizes = [sizes[0] or rows, sizes[1] or rows] if value is not pair else sizes
                    sizes[row] = sizes[row] or rows
                    known[name + end] = functools.partial(pair[row].index_select, self.node_dim, edge_index[row])
        target = sizes[ends["_i"]]
        known |= {f"edge_index{end}": edge_index[row] for end, row in ends.items()}
        known |= {f"size{end}": sizes[row] for end, row in ends.items()}
        return known | {
            "edge_index": edge_index, "index": edge_index[ends["_i"]], "ptr": None, "size": sizes, "dim_size": target,
        }  # fmt: skip

    def message(self, x_j: torch.Tensor) -> torch.Tensor:
        """The message of each edge: what its source has."""
        return x_j

    def edge_update(self) -> torch.Tensor:
        """Return the result of `edge_updater`; the class defines it."""
        raise NotImplementedError

    def aggregate(
        self, inputs: torch.Tensor, index: torch.Tensor, ptr: Any = None, dim_size: int | None = None
    ) -> torch.Tensor:
        """Reduce the messages to each node."""
        if not isinstance(self.aggr, str):
            raise NotImplementedError(f"MASE cannot aggregate by {self.aggr} without the package")
        return scatter(inputs, index, self.node_dim, dim_size, self.aggr)

    def update(self, inputs: torch.Tensor) -> torch.Tensor:
        """Give each node its reduced messages."""
        return inputs


class GCNConv(MessagePassing):
    """The sum over neighbours, each over the root of both nodes' degrees. options: of MessagePassing."""

    def __init__(
        self, in_channels: int, out_channels: int, improved: bool = False, cached: bool = False,
        add_self_loops: bool = True, normalize: bool = True, bias: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**{"aggr": "sum", **options})
        self.in_channels, self.out_channels, self.normalize = in_channels, out_channels, normalize
        self.loops = (2.0 if improved else 1.0) if add_self_loops else 0.0
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.lin.reset_parameters()

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_weight: Any = None) -> torch.Tensor:
        """The nodes' next features."""
        count = x.shape[self.node_dim]
        weight = x.new_ones(edge_index.shape[1]) if edge_weight is None else edge_weight
        if self.normalize and self.loops:
            loops = 1.0 if edge_weight is None else self.loops
            edge_index, weight = add_self_loops(edge_index, weight, loops, count)
        if self.normalize:
            scale = scatter(weight, edge_index[1], 0, count) ** -0.5
            scale = scale.masked_fill(scale == float("inf"), 0.0)
            weight = scale[edge_index[0]] * weight * scale[edge_index[1]]
        out: torch.Tensor = self.propagate(edge_index, x=self.lin(x), edge_weight=weight)
        return out if self.bias is None else out + self.bias

    def message(self, x_j: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """The features of the source, times the weight of the edge."""
        return edge_weight.view(-1, 1) * x_j


class GINConv(MessagePassing):
    """A network of the sum over neighbours and of the node's own features. options: of MessagePassing."""

    def __init__(self, nn: Callable[..., Any], eps: float = 0.0, train_eps: bool = False, **options: Any) -> None:
        super().__init__(**{"aggr": "sum", **options})
        self.nn, value = nn, torch.tensor([float(eps)])
        self.eps = torch.nn.Parameter(value) if train_eps else value

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, size: Any = None) -> Any:
        """The nodes' next features."""
        return self.nn(self.propagate(edge_index, size, x=x) + (1 + self.eps) * x)


class SAGEConv(MessagePassing):
    """A layer of the mean over neighbours, and one of the node's own features. options: of MessagePassing."""

    def __init__(
        self, in_channels: Any, out_channels: int, aggr: str = "mean", normalize: bool = False,
        root_weight: bool = True, project: bool = False, bias: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(aggr, **options)
        source, target = as_tuple(2)(in_channels)
        self.normalize, self.in_channels, self.out_channels = normalize, in_channels, out_channels
        self.lin = nn.Linear(source, source) if project else None
        self.lin_l = nn.Linear(source, out_channels, bias=bias)
        self.lin_r = nn.Linear(target, out_channels, bias=False) if root_weight else None

    def forward(self, x: Any, edge_index: torch.Tensor, size: Any = None) -> torch.Tensor:
        """The nodes' next features."""
        source, target = x if isinstance(x, tuple) else (x, x)
        source = source if self.lin is None else self.lin(source).relu()
        out: torch.Tensor = self.lin_l(self.propagate(edge_index, size, x=(source, target)))
        out = out + self.lin_r(target) if self.lin_r is not None and target is not None else out
        return nn.functional.normalize(out, dim=-1) if self.normalize else out


def _call_with(function: Callable[..., Any], known: Kwargs, *first: Any) -> Any:
    """Call a function with the values that its parameters name. Rows are chosen only where they are asked for."""
    names = list(inspect.signature(function).parameters.values())[len(first) :]
    chosen = {each.name: known[each.name] for each in names if each.name in known}
    made = {name: value() if isinstance(value, functools.partial) else value for name, value in chosen.items()}
    return function(*first, **made)


def _give_always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


# Configurations.


class Configuration(dict[str, Any]):
    """A dict whose entries are attributes too, at any depth."""

    def __init__(self, *args: Any, **entries: Any) -> None:
        super().__init__()
        self.update(*args, **entries)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the configuration has no {name!r}", name=name, obj=self) from None

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, Configuration(value) if type(value) is dict else value)

    __setattr__ = __setitem__

    def update(self, *args: Any, **entries: Any) -> None:
        """Set many entries."""
        for key, value in dict(*args, **entries).items():
            self[key] = value

    def clone(self) -> Configuration:
        """A copy, with copies of the configurations inside."""
        return copy.deepcopy(self)

    def _change_nothing(self) -> Configuration:
        return self

    freeze = defrost = lock = unlock = _change_nothing


class ConfigurationList(list[Any]):
    """A list in a configuration."""


def make_configuration(obj: Any = None) -> Any:
    """A configuration of a mapping or a sequence, at any depth; an empty one of nothing."""
    if isinstance(obj, list | tuple):
        return ConfigurationList(each if each is None else make_configuration(each) for each in obj)
    if obj is not None and not isinstance(obj, dict):
        return obj
    entries = (obj or {}).items()
    return Configuration({key: value if value is None else make_configuration(value) for key, value in entries})


def make_container(cfg: Any, **options: Any) -> Any:
    """The plain dicts and lists of a configuration. options: of references, which it has none of."""
    if isinstance(cfg, dict):
        return {key: make_container(value) for key, value in cfg.items()}
    return [make_container(each) for each in cfg] if isinstance(cfg, list | tuple) else cfg


def merge_configurations(*configs: Any) -> Any:
    """One configuration of several, at any depth; the later ones have the last word."""
    merged = Configuration()
    for config in map(make_configuration, configs):
        for key, value in config.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = merge_configurations(merged[key], value) if both else value
    return merged


def get_object(path: str) -> Any:
    """The module, or the object inside one, that a dotted path names."""
    module, _, inner = path.rpartition(".")
    if not module:
        return importlib.import_module(path)
    try:
        return getattr(get_object(module), inner)
    except AttributeError:
        return importlib.import_module(path)


def instantiate(config: Any, *args: Any, **overridden: Any) -> Any:
    """Call what `_target_` names with the other entries, those inside first where they have a target themselves."""
    if isinstance(config, list | tuple):
        return [instantiate(each) for each in config]
    if not isinstance(config, dict):
        return config
    given = {**config, **overridden}
    target, partial, inner = given.pop("_target_", None), given.pop("_partial_", False), given.pop("_recursive_", True)
    given.pop("_convert_", None)
    listed = given.pop("_args_", [])
    first = args or (instantiate(listed) if inner else listed)
    given = {key: instantiate(value) if inner else value for key, value in given.items()}
    if target is None:
        return Configuration(given)
    called = get_object(target) if isinstance(target, str) else target
    return functools.partial(called, *first, **given) if partial else called(*first, **given)


def _pass_check(*args: Any, **kwargs: Any) -> bool:
    return True


def _return_decorated(function: Any = None, **options: Any) -> Any:
    return function if function is not None else _return_decorated


# Which names of which packages they replace.

_LIGHTNING = ("pytorch_lightning", "lightning", "lightning_fabric")
_OPENMMLAB = ("mmcv", "mmengine")
_EINOPS = {
    each.__name__: each for each in (rearrange, reduce, repeat, einsum, pack, unpack, parse_shape, Rearrange, Reduce)
}
_FAIRSCALE = {
    **dict.fromkeys(("ColumnParallelLinear", "RowParallelLinear"), ParallelLinear),
    **dict.fromkeys(("ParallelEmbedding", "VocabParallelEmbedding"), ParallelEmbedding),
    **dict.fromkeys(("get_model_parallel_world_size", "get_data_parallel_world_size"), _give_always(1)),
    **dict.fromkeys(("get_model_parallel_rank", "get_data_parallel_rank"), _give_always(0)),
    "model_parallel_is_initialized": _give_always(True),
    "initialize_model_parallel": _give_always(None),
}
_GEOMETRIC = (
    {each.__name__: each for each in (MessagePassing, GCNConv, GINConv, SAGEConv)}
    | {each.__name__: each for each in (scatter, softmax, degree, add_self_loops, to_dense_batch)}
    | {f"global_{name}_pool": _pool(name) for name in ("add", "mean", "max")}
)
_SCATTER = {"scatter": _scatter_apart} | {
    f"scatter_{name}": functools.partial(_scatter_apart, reduce=name) for name in ("sum", "add", "mean", "mul")
}
#: Packages -> names in them, wherever they are defined inside -> the replacement; of a module, its own names only.
_KNOWN: dict[str, Mapping[str, Any]] = {
    **{key: {"LightningModule": LightningModule, "HyperparametersMixin": HyperparametersMixin} for key in _LIGHTNING},
    **dict.fromkeys(_OPENMMLAB, OPENMMLAB),
    **KERNELS,
    "einops": _EINOPS,
    **VISION,
    "fairscale": _FAIRSCALE,
    "torch_geometric": _GEOMETRIC,
    "torch_scatter": _SCATTER,
    "ml_collections": {"ConfigDict": Configuration, "FrozenConfigDict": Configuration},
    "easydict": {"EasyDict": Configuration},
    "yacs": {"CfgNode": Configuration},
    "munch": {"Munch": Configuration},
    "omegaconf": {"DictConfig": Configuration, "ListConfig": ConfigurationList},
    "omegaconf.OmegaConf": {
        "create": make_configuration, "to_container": make_container, "merge": merge_configurations,
        "is_config": lambda cfg: isinstance(cfg, Configuration | ConfigurationList),
    },
    "hydra.utils": {"instantiate": instantiate, **dict.fromkeys(("get_class", "get_method", "get_object"), get_object)},
    "typeguard": {
        "check_argument_types": _pass_check, "check_return_type": _pass_check, "typechecked": _return_decorated,
    },
}  # fmt: skip
#: What the diagnostic of a missing package says of its replacements.
_SAID = {
    **dict.fromkeys(_LIGHTNING, "MASE treats its LightningModule as a plain nn.Module."),
    **dict.fromkeys(_OPENMMLAB, "MASE computes its base classes, registries and convolution layers as documented."),
    **dict.fromkeys(
        {package.partition(".")[0] for package in KERNELS}, "MASE computes its layers without its kernels."
    ),
    "einops": "MASE computes its patterns as its documentation defines them.",
    "timm": "MASE computes its vision transformer's layers, DropPath and helpers as its documentation defines them.",
    "torchvision": (
        "MASE builds its ResNets, VGGs and AlexNet, with random weights, and some operations. Pictures without values "
        "take the place of data sets whose pictures have one size, such as MNIST and CIFAR."
    ),
    "torch_geometric": "MASE computes MessagePassing, three convolutions, pools and sums as its documentation defines.",
    "torch_scatter": "MASE computes its sums and means as its documentation defines them.",
    "fairscale": "MASE takes its parallel layers as whole, in one process.",
    "hydra": "MASE makes what its configurations name.",
    **dict.fromkeys(
        ("ml_collections", "easydict", "yacs", "munch", "omegaconf"), "MASE keeps what its configurations are given."
    ),
    "typeguard": "MASE takes its checks as passed.",
}


def stand_in(thing: str) -> Any:
    """The replacement for something of a missing package, by its dotted name; None if there is none."""
    module, _, name = thing.rpartition(".")
    found = _KNOWN.get(module, _KNOWN.get(module.partition(".")[0], {})).get(name)
    return find_deformable(module, name) if found is None else found


#: What a build writes into a module of the workspace's own packages that is called after it.
_VERSION = {
    **dict.fromkeys(("__version__", "version", "short_version", "full_version", "git_version", "__gitsha__"), "0.0.0"),
    **dict.fromkeys(("version_tuple", "__version_tuple__", "version_info"), (0, 0, 0)),
}


def stand_in_version(thing: str) -> Any:
    """The version in a module of the workspace that only a build writes, by its dotted name; None for all else."""
    module, _, name = thing.rpartition(".")
    return _VERSION.get(name) if module.endswith("version") else None


def assumed(module: str) -> str:
    """The sentence about the replacements for a package, with a space before it; "" if there are none."""
    deformable = "MASE computes its deformable convolutions without its kernels." if is_deformable(module) else ""
    said = _SAID.get(module.partition(".")[0], deformable)
    return f" {said}" if said else ""
