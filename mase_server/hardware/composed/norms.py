"""Norms over groups of channels or several dimensions, and vectors of length one: rows of `fixed_norm`.

A vector divided by its length is its RMS norm divided by the square root of its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed.steps import UNIT, Shape, Steps, dim_of, fine_format
from mase_server.hardware.design import Constant
from mase_server.hardware.held import Held, Later, NoHardware, Whole, node_of
from mase_server.hardware.kinds import KINDS
from mase_server.hardware.kinds.kind import Settings
from mase_server.ir.build import attribute

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering

#: The range of a norm's result before scaling: a few standard deviations, with all bits after the point it computes.
_NORMAL = FixedPoint(18, 12)


def _group_norm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    groups = Settings.of(lowering, node, given).get("num_groups")
    return _by_groups(lowering, node, given, int(groups))


def _instance_norm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    settings = Settings.of(lowering, node, given)
    if settings.get("running_mean") is not None and not settings.get("use_input_stats", False):
        raise NoHardware("its statistics are stored; norm_to_conv makes a convolution of a batch norm")
    return _by_groups(lowering, node, given, lowering.sample(node_of(given["data_in_0"]))[0])


def _by_groups(lowering: Lowering, node: fx.Node, given: Mapping[str, Any], groups: int) -> Held:
    """Rows of all numbers of a group; then each channel has its own factor and offset."""
    steps, name = Steps(lowering, node), lowering.whole(node_of(given["data_in_0"]))
    shape, epsilon = steps.stream(name).shape, float(Settings.of(lowering, node, given).get("eps", 1e-5))
    constants = lowering.weights(given)
    rows = steps.by_rows(steps.reshaped(name, (groups, math.prod(shape) // groups)))
    if not constants:
        return _as_later(steps, rows, shape, {"centred": True, "epsilon": epsilon})
    normal = steps.reshaped(_normalise_rows(steps, rows, _NORMAL, centred=True, epsilon=epsilon), shape)
    order = steps.stream(normal).indices
    channels = {key: _by_channel(steps, each, shape, order) for key, each in constants.items()}
    if "weight" not in channels:
        return steps.last_pair("add", normal, channels["bias"])
    if "bias" not in channels:
        return steps.last_pair("mul", normal, channels["weight"])
    return steps.last_pair("add", steps.paired("mul", normal, channels["weight"]), channels["bias"])


def _by_channel(steps: Steps, constant: Constant, shape: Shape, order: Tensor) -> str:
    values = constant.format.decode(constant.integers).reshape(-1, *(1 for _ in shape[1:]))
    return steps.constant(values, constant.format, shape, order)


def _normalise_rows(
    steps: Steps, rows: str, format: FixedPoint, *, centred: bool, epsilon: float, scale: float | None = None
) -> str:
    """Normalise rows and scale them by a number."""
    shape, options = steps.stream(rows).shape, {"centred": centred, "epsilon": epsilon}
    return steps.add("norm", [rows], format, shape, options, _scale_constants(shape[-1], scale))


def _scale_constants(size: int, scale: float | None) -> dict[str, Constant]:
    return {} if scale is None else {"weight": Constant(UNIT.encode(torch.full((size,), scale)), UNIT)}


def _as_later(steps: Steps, rows: str, shape: Shape, options: Mapping[str, Any], scale: float | None = None) -> Later:
    """Normalised rows, in the shape of the node."""

    def finish(format: FixedPoint) -> Whole:
        before = steps.stream(rows).shape
        made = steps.add("norm", [rows], format, before, options, _scale_constants(before[-1], scale))
        return Whole(steps.reshaped(made, shape))

    return Later(finish)


def _layer_norm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """Over the last dimension there is a component; several last dimensions become one longer row."""
    settings = Settings.of(lowering, node, given)
    over = settings.get("normalized_shape")
    source = node_of(given["data_in_0"])
    if not isinstance(over, tuple | list) or len(over) < 2 or source in lowering.layouts:
        return KINDS["norm"].rules["layer_norm"](lowering, node, given)
    steps, name = Steps(lowering, node), lowering.whole(source)
    shape = steps.stream(name).shape
    if shape[-len(over) :] != tuple(over):
        raise NoHardware(f"it goes over {list(over)}, and a sample has {list(shape)}")
    flat = {key: each.moved(torch.flatten) for key, each in lowering.weights(given).items()}
    rows = steps.by_rows(steps.reshaped(name, (*shape[: -len(over)], math.prod(over))))
    options = {"centred": True, "epsilon": float(settings.get("eps", 1e-5))}

    def finish(format: FixedPoint) -> Whole:
        return Whole(steps.reshaped(steps.add("norm", [rows], format, steps.stream(rows).shape, options, flat), shape))

    return Later(finish)


def _lower_normalize(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    settings, source = Settings.of(lowering, node, given), node_of(given["data_in_0"])
    if settings.get("p", 2.0) != 2:
        raise NoHardware(f"it uses the norm with p={settings.get('p')}; only p=2 has hardware")
    steps, name = Steps(lowering, node), lowering.whole(source)
    rows, back = _vectors_as_rows(steps, name, dim_of(steps, int(settings.get("dim", 1)), source))
    length = steps.stream(rows).shape[-1]
    scale, epsilon = length**-0.5, float(settings.get("eps", 1e-12)) ** 2 / length

    def finish(format: FixedPoint) -> Whole:
        made = _normalise_rows(steps, rows, format, centred=False, epsilon=epsilon, scale=scale)
        return Whole(steps.turned(made, back))

    return Later(finish)


def _vectors_as_rows(steps: Steps, name: str, dim: int) -> tuple[str, list[int]]:
    """The vectors along a dimension as rows, and the order of dimensions that undoes this."""
    rank = len(steps.stream(name).shape)
    turned = [each for each in range(rank) if each != dim] + [dim]
    return steps.by_rows(steps.turned(name, turned)), [turned.index(each) for each in range(rank)]


def _lower_cosine_similarity(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """The sum of the products of two vectors of length one."""
    steps, settings = Steps(lowering, node), Settings.of(lowering, node, given)
    dim, parts = int(settings.get("dim", 1)), []
    for key in ("data_in_0", "data_in_1"):
        source = node_of(given[key])
        rows, _ = _vectors_as_rows(steps, lowering.whole(source), dim_of(steps, dim, source))
        length = steps.stream(rows).shape[-1]
        epsilon = float(settings.get("eps", 1e-8)) ** 2 / length
        parts.append(_normalise_rows(steps, rows, UNIT, centred=False, epsilon=epsilon, scale=length**-0.5))
    products = steps.paired("mul", parts[0], parts[1])
    source_name, options = steps.reducing("sum", products, [len(steps.stream(products).shape) - 1])
    return steps.last("reduce", [source_name], options)


def _batch_norm(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    """For vectors, with stored statistics: each number times a factor plus an offset. For images, a convolution."""
    layer, source = _called_layer(lowering, node), node_of(given["data_in_0"])
    kept = getattr(layer, "running_mean", None)
    if len(lowering.sample(source)) != 1 or kept is None or kept.is_meta or layer is None or layer.training:
        return KINDS["conv2d"].rules["batch_norm"](lowering, node, given)
    steps, name = Steps(lowering, node), lowering.whole(source)
    weight, bias = (_rounded_parameter(lowering, node, layer, key) for key in ("weight", "bias"))
    scale = (layer.running_var.double() + layer.eps).rsqrt() * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - kept.double() * scale
    scaled = steps.paired("mul", name, steps.constant(scale, fine_format(scale), tuple(scale.shape)))
    return steps.last_pair("add", scaled, steps.constant(shift, fine_format(shift), tuple(shift.shape)))


def _called_layer(lowering: Lowering, node: fx.Node) -> Any:
    """The layer that a node calls, also if it runs with other parameters."""
    path = node.target if node.op == "call_module" else getattr(next(iter(node.args), None), "target", None)
    return attribute(lowering.model, path) if isinstance(path, str) else None


def _rounded_parameter(lowering: Lowering, node: fx.Node, layer: Any, key: str) -> Tensor | None:
    """A parameter of a layer, as rounded for this call."""
    given: Any = node.args[1] if node.op == "call_function" and len(node.args) > 1 else {}
    if isinstance(given, Mapping) and key in given:
        constant = lowering.constant(given[key])
        return constant.format.decode(constant.integers)
    found = getattr(layer, key)
    return None if found is None else found.detach().double()


COMPOSED = {
    **dict.fromkeys(("batch_norm", "batch_norm1d"), _batch_norm),
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    **dict.fromkeys(("instance_norm", "instance_norm1d", "instance_norm2d"), _instance_norm),
    "normalize": _lower_normalize,
    "cosine_similarity": _lower_cosine_similarity,
}
