"""The inputs that a layer accepts: candidates with symbolic sizes, most likely first."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from mase_server.tracing.diagnosis.failure import RAISED
from mase_server.tracing.inputs.roles import observe_value
from mase_server.tracing.inputs.searching.forward import Rearranged, Source, wanted_by
from mase_server.tracing.inputs.spec import SequenceSpec, Spec, TensorSpec
from mase_server.tracing.models.constructions import construction_of, list_required_parameters, signature_of

#: Symbols whose sizes are tried together, in turn: image sides, lengths, depths.
IMAGE_SIDES = (32, 28, 64, 224, 96, 128, 256, 16, 299, 48, 227, 512, 84, 8, 331, 384, 572)
LENGTHS = (16, 8, 32, 64, 128, 256, 100, 10, 4, 512, 1024)
SAMPLES = (64, 1024, 16000, 128, 256, 100, 50, 3000)
VOLUMES = ((16, 112), (8, 32), (16, 32), (32, 64), (16, 224))
#: Sizes for a layer that takes any: channels of an image, else features.
_COLOURS, _WIDTH = 3, 64

Candidates = list[TensorSpec]


def floats(*dims: int | str) -> TensorSpec:
    """A float tensor."""
    return TensorSpec("f32", dims)


def indices(below: int, *dims: int | str) -> TensorSpec:
    """Whole numbers from 0 to below `below`."""
    return TensorSpec("i64", dims, "below", below)


def list_candidates(layer: Any) -> Candidates:
    """Inputs for which a layer, a weight, ("linear", weight) or `torch.stft` may be made; empty if unknown."""
    if isinstance(layer, tuple):
        return _list_weight_candidates(*layer)
    if isinstance(layer, Rearranged):
        return wanted_by(layer)
    if layer is torch.stft:
        return [floats("B", "L"), floats("L")]
    if hasattr(layer, "shape"):
        return _list_feature_candidates(int(layer.shape[0])) if len(layer.shape) else []
    found = next((row(layer) for kind, row in ROWS if isinstance(layer, kind)), [])
    lazy = isinstance(layer, nn.Module) and any(map(nn.parameter.is_lazy, layer.parameters()))
    return [_widen(each) for each in found] if lazy else found


def _widen(spec: TensorSpec) -> TensorSpec:
    """An input of some width for a layer that takes its width from its first input, and has none yet."""
    width = _COLOURS if "H" in spec.dims else _WIDTH
    return replace(spec, dims=tuple(width if dim == 0 else dim for dim in spec.dims))


def _list_weight_candidates(name: str, weight: nn.Parameter) -> Candidates:
    shape = () if nn.parameter.is_lazy(weight) else tuple(weight.shape)
    if not shape or (name.startswith("conv") and len(shape) < 2):
        return []  # a weight that the call itself refuses
    if name.startswith("embedding"):
        return _list_index_candidates(shape[0])
    if name == "conv2d":
        return [floats("B", shape[1], "H", "W")]
    if name == "conv1d":
        return [floats("B", shape[1], "L")]
    return _list_feature_candidates(shape[0] if name in ("matmul", "mm") or len(shape) == 1 else shape[1])


def _list_feature_candidates(count: int) -> Candidates:
    """Rows of features, tokens of features, and images that flatten or cut into patches to `count` features."""
    found = [floats("B", count), floats("B", "T", count)]
    squares = [(channels, math.isqrt(count // channels)) for channels in (1, 3) if count % channels == 0]
    images = [
        floats("B", channels, side, side) for channels, side in squares if channels * side * side == count and side > 7
    ]
    patches = [
        floats("B", count // (side * side), "H", "W")
        for side in (16, 14, 8, 4, 32, 2)
        if count % (side * side) == 0 and count // (side * side) in (1, 3, 4)
    ]
    rows = [floats("B")] if count == 1 else []
    last = [floats("B", "H", "W", count), floats("B", "D", "H", "W", count)] if count <= 4096 else []
    # Only large squares are likelier flattened images than features.
    large = [image for image in images if isinstance(image.dims[-1], int) and image.dims[-1] >= 16]
    small = [image for image in images if image not in large]
    return large + found[:1] + rows + found[1:] + small + patches + [floats("B", "T", "S", count), floats(count)] + last


def _list_index_candidates(below: int) -> Candidates:
    return [indices(below, "B", "T"), indices(below, "B"), indices(below, "T")]


def _list_recurrent_candidates(layer: nn.RNNBase) -> Candidates:
    first = floats("B", "T", layer.input_size) if layer.batch_first else floats("T", "B", layer.input_size)
    return [first, floats("T", layer.input_size)]


def _list_norm_candidates(layer: nn.LayerNorm) -> Candidates:
    shape = tuple(int(size) for size in layer.normalized_shape)
    return [floats("B", "T", *shape), floats("B", *shape), floats("B", "H", "W", *shape)]


#: Methods that make the first state of a recurrent model, for a batch of a given size.
_MAKES_STATE = re.compile(
    r"^(init(ialize|ial)?|zero|get_(init(ial)?|zero)|begin|make_init)_?(\w+_)?(hidden|states?|hx)$", re.I
)
#: A size of a batch that no layer has.
_ODD_BATCH = 97

State = TensorSpec | SequenceSpec


def hidden_states(model: nn.Module) -> list[State]:
    """The state for a recurrent model, as a method of its own makes it, else for its first recurrent layer, or for a
    list of them; empty if it has none."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.RNNBase | nn.RNNCellBase)]
    lists = (part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) > 1)
    stacks = [list(part) for part in lists if {*map(id, part)} <= {*map(id, layers)}]
    return [
        *_list_made_states(model),
        *(state for stack in stacks[:1] for state in _list_states_of_stack(stack)),
        *(state for layer in layers[:1] for state in _list_states_of_layer(layer)),
    ]


def _list_made_states(model: nn.Module) -> Iterator[State]:
    """The states that a method such as `init_hidden(batch_size)` gives, if it does nothing else."""
    for name in filter(_MAKES_STATE.match, dir(type(model))):
        method = getattr(model, name)
        source = Source.of(model, method) if callable(method) else None
        if source is None or len(list_required_parameters(method)) != 1 or _sets_attributes(source):
            continue
        try:
            spec = observe_value(method(_ODD_BATCH))
        except RAISED:  # the border to a method of the user's
            continue
        if isinstance(spec, TensorSpec | SequenceSpec):
            yield cast("State", _name_batch(spec))


def _sets_attributes(source: Source) -> bool:
    stored = (node for node in ast.walk(source.node) if isinstance(node, ast.Attribute))
    return any(isinstance(node.ctx, ast.Store) for node in stored)


def _name_batch(spec: Spec) -> Spec:
    if isinstance(spec, SequenceSpec):
        return replace(spec, items=tuple(map(_name_batch, spec.items)))
    if isinstance(spec, TensorSpec):
        return TensorSpec(spec.dtype, tuple("B" if size == _ODD_BATCH else size for size in spec.dims))
    return spec


def _list_states_of_layer(layer: nn.Module) -> list[State]:
    """The state of a recurrent layer, or cell, alone or with that of its memory."""
    count: tuple[int, ...] = ()
    width = int(layer.hidden_size)  # type: ignore[arg-type]
    state = memory = floats("B", width)
    if isinstance(layer, nn.RNNBase):
        count = (layer.num_layers * (2 if layer.bidirectional else 1),)
        state, memory = floats(*count, "B", layer.proj_size or width), floats(*count, "B", width)
    both = SequenceSpec((state, memory))
    return [both, state] if isinstance(layer, nn.LSTM | nn.LSTMCell) else [state, both]


def _list_states_of_stack(layers: Sequence[nn.Module]) -> Iterator[State]:
    """A state for each layer: a list of them, or, for cells, one tensor for all."""
    for states in zip(*map(_list_states_of_layer, layers), strict=True):
        if isinstance(layers[0], nn.RNNCellBase) and len({*states}) == 1:
            yield _add_dimension(states[0], len(layers))
        yield SequenceSpec(states, is_list=True)


def _add_dimension(state: State, count: int) -> State:
    if isinstance(state, TensorSpec):
        return replace(state, dims=(count, *state.dims))
    return replace(state, items=tuple(_add_dimension(cast("State", each), count) for each in state.items))


def _list_attention_candidates(layer: Any) -> Candidates:
    width = next(int(weight.shape[-1]) for weight in layer.parameters() if weight.dim() == 2)
    first = next((part.batch_first for part in layer.modules() if hasattr(part, "batch_first")), False)
    return [floats("B", "T", width) if first else floats("T", "B", width)]


def _list_volume_candidates(layer: Any) -> Candidates:
    return [floats("B", layer.in_channels, "D", "H", "W")]


#: One row for each kind of layer; the first that fits counts.
ROWS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Candidates]], ...] = (
    (nn.Embedding, lambda layer: _list_index_candidates(layer.num_embeddings)),
    (nn.EmbeddingBag, lambda layer: [indices(layer.num_embeddings, "B", "T")]),
    ((nn.Conv2d, nn.ConvTranspose2d), lambda layer: [floats("B", layer.in_channels, "H", "W")]),
    ((nn.Conv1d, nn.ConvTranspose1d), lambda layer: [floats("B", layer.in_channels, "L")]),
    ((nn.Conv3d, nn.ConvTranspose3d), _list_volume_candidates),
    (nn.Linear, lambda layer: _list_feature_candidates(layer.in_features)),
    (nn.Bilinear, lambda layer: _list_feature_candidates(layer.in1_features)),
    (nn.RNNBase, _list_recurrent_candidates),
    (nn.RNNCellBase, lambda layer: [floats("B", layer.input_size)]),
    ((nn.BatchNorm2d, nn.InstanceNorm2d), lambda layer: [floats("B", layer.num_features, "H", "W")]),
    (nn.BatchNorm1d, lambda layer: [floats("B", layer.num_features), floats("B", layer.num_features, "L")]),
    (nn.BatchNorm3d, lambda layer: [floats("B", layer.num_features, "D", "H", "W")]),
    (nn.GroupNorm, lambda layer: [floats("B", layer.num_channels, "H", "W"), floats("B", layer.num_channels, "L")]),
    (nn.LayerNorm, _list_norm_candidates),
    (nn.RMSNorm, _list_norm_candidates),
    (
        (
            nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder,
            nn.TransformerEncoderLayer, nn.TransformerDecoderLayer,
        ),
        _list_attention_candidates,
    ),
)  # fmt: skip

_SIDE = re.compile(r"(^|_)(image|img|input)_?(size|res|resolution)$|^resolution$")
#: Images of more pixels than this at a side are not made.
_MAX_SIDE = 2048


def told_sides(model: nn.Module) -> tuple[int, int] | None:
    """Height and width of a model's images, as an argument of its constructor, a default, or an attribute says."""
    defaults = {name: each.default for name, each in signature_of(type(model)).parameters.items()}
    made = construction_of(model)
    given = {**defaults, **({} if made is None else made.bound())}
    held = (pair for part in model.modules() for pair in list(vars(part).items()))
    for name, value in itertools.chain(given.items(), held):
        if (_SIDE.search(name) or (name == "size" and isinstance(value, list | tuple))) and (
            sides := _read_sides(value)
        ) is not None:
            return sides
    return None


def _read_sides(value: Any) -> tuple[int, int] | None:
    sides = list(value) if isinstance(value, list | tuple) else [value]
    if len(sides) not in (1, 2) or not all(type(side) is int and 8 <= side <= _MAX_SIDE for side in sides):
        return None
    return sides[0], sides[-1]


#: Candidates if nothing is known.
ANYTHING: Candidates = [
    floats("B", 3, "H", "W"), floats("B", "T", 64), floats("B", 64), floats("B", "T"), indices(10, "B", "T"),
]  # fmt: skip


def size_choices(symbols: set[str], sides: tuple[int, int] | None = None) -> list[dict[str, int]]:
    """Sizes to try for the symbols of one set of candidates, the usual ones first. sides: of the model's images."""
    if "D" in symbols:
        return [{"D": depth, "H": side, "W": side} for depth, side in VOLUMES]
    if "H" in symbols:
        told = [{"H": sides[0], "W": sides[1]}] if sides is not None else []
        return [*told, *({"H": side, "W": side} for side in IMAGE_SIDES if sides != (side, side))]
    if "L" in symbols:
        return [{"L": length} for length in SAMPLES]
    if "T" in symbols:
        return [{"T": length} for length in LENGTHS]
    return [{}]
