"""The nodes to quantise, and their formats: MASE's configurations, chosen by type, name, regex or scope."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from mase_server.formats import NumberFormat, Open, check_config, from_config, parse, register
from mase_server.ir.build import attribute
from mase_server.ir.facts import Facts
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import is_moving_operator, operator_of
from mase_server.ops.table import NAMES
from mase_server.ops.types import TensorType
from mase_server.passes.declaration import Selection, path_of
from mase_server.passes.granularity import lower_granularity_transform_pass
from mase_server.passes.weighted import is_mask
from mase_server.suggestions import suggest

#: Operators that compute, and so are quantised by a default configuration.
COMPUTES = frozenset(
    {
        "linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "matmul", "mm", "bmm", "baddbmm", "addmm", "addbmm", "mv", "addmv", "dot",
        "inner", "outer", "tensordot", "einsum", "grouped_mm", "scaled_dot_product_attention",
        "multihead_attention", "embedding", "embedding_bag", "lstm", "gru", "rnn", "rnn_tanh", "rnn_relu",
        "lstm_cell", "gru_cell", "rnn_cell", "rnn_tanh_cell", "rnn_relu_cell", "layer_norm", "rms_norm",
        "group_norm", "batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d", "instance_norm",
        "instance_norm1d", "instance_norm2d", "instance_norm3d", "local_response_norm", "relu", "relu6",
        "leaky_relu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid", "tanh", "softplus",
        "softsign", "hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softshrink", "logsigmoid", "glu",
        "softmax", "softmin", "softmax2d", "log_softmax", "tanhshrink", "threshold", "lp_pool1d", "lp_pool2d",
        "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
        "adaptive_avg_pool3d", "add", "sub", "rsub", "mul", "div", "addcmul", "addcdiv", "mean",
    }
)  # fmt: skip

WAYS = ("type", "name", "regex_name", "scope")
#: Keys of pass_args that are no operators, names or expressions.
OWN = frozenset({"by", "default", "only", "calibrate", "percentile", "data", "samples"})
#: Formats to be offered; the first one is the default.
USUAL = (
    "fixed(8,auto)", "fixed(4,auto)", "fixed(16,auto)", "scale_integer(8)", "mxint(8)", "mxfp(8,4)", "mxfp(4,2)",
    "minifloat_ieee(8,4,exponent_bias=auto)", "block_fp(8)", "log(8,exponent_bias=auto)", "ternary", "binary",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of one node: MASE's, or one format for everything."""

    values: Mapping[str, Any]
    everywhere: NumberFormat | None = None

    @classmethod
    def of(cls, entry: Any) -> Config | None:
        """Read {"config": {"name": ..., ...}}, the inner map alone, a format or its text; None leaves nodes unchanged.

        ValueError for anything else, and for a key without a meaning.
        """
        if isinstance(entry, str):
            return cls({}, parse(entry))
        if isinstance(entry, NumberFormat):
            register(type(entry.example if isinstance(entry, Open) else entry))
            return cls({}, entry)
        values = entry.get("config", entry) if isinstance(entry, Mapping) else None
        if not isinstance(values, Mapping) or "name" not in values:
            example = '{"config": {"name": None}} or "fixed(8,4)"'
            raise ValueError(f"quantize: {entry!r} is no configuration; examples: {example}")
        if values is not entry and (other := [key for key in entry if key != "config"]):
            raise ValueError(f"quantize: {other[0]!r} is beside 'config', where it has no meaning; put it inside")
        if values["name"] in (None, "NA"):
            return None
        check_config(values)
        return None if values.get("bypass") else cls(values)

    def format_of(self, argument: str) -> NumberFormat | None:
        """The format of an argument by MASE's name (data_in_0, weight, bias) or of `data_out`; None to leave it."""
        if self.everywhere is not None:
            return self.everywhere
        if argument.startswith("data_in"):
            return from_config(self.values, "data_in")
        return from_config(self.values, argument)


def suggest_key(key: str, options: Iterable[str]) -> str:
    """The end of a message about a key that is neither an option of a pass nor an operator."""
    keys = [*sorted(options), *sorted(NAMES)]
    return suggest(key, keys, elsewhere=f"it takes {', '.join(sorted(options))} and MASE's operators, such as linear")


class Chooser:
    """The configuration of every node. ValueError for pass_args that cannot be read, or that name an unknown
    operator."""

    def __init__(self, pass_args: Mapping[str, Any], model: nn.Module) -> None:
        self.model = model
        self.way = pass_args.get("by") or "type"
        if self.way not in WAYS:
            raise ValueError(f"quantize: by is {self.way!r}, expected one of {', '.join(WAYS)}")
        own = {str(key): value for key, value in pass_args.items() if key not in OWN}
        default = pass_args.get("default")
        self.default = Config.of(default) if default is not None else None if own else Config.of(USUAL[0])
        self.entries = {key: Config.of(value) for key, value in own.items()}
        if self.way == "type" and (unknown := [key for key in own if key not in NAMES]):
            if unknown[0] in dict(model.named_modules()):
                raise ValueError(f"quantize: {unknown[0]!r} is the name of a layer: give by=name to choose by names")
            raise ValueError(f"quantize: it takes no {unknown[0]!r}{suggest_key(unknown[0], OWN)}")
        self._used: set[str] = set()

    def of(self, node: fx.Node) -> Config | None:
        """The configuration of a node; None to leave it as it is."""
        if node.op not in ("call_function", "call_method", "call_module") or is_mask(node):
            return None  # a masked weight is rounded once, where it is used
        operator = operator_of(node, self.model)
        key = _FINDERS[self.way](self, node, operator)
        if key is not None:
            self._used.add(key)
            return self.entries[key]
        return self.default if operator in COMPUTES else None

    def explain(self, node: fx.Node) -> str:
        """Why a node has no configuration."""
        operator = operator_of(node, self.model)
        key = _FINDERS[self.way](self, node, operator)
        if key is not None:
            return f"its configuration, {key}, leaves it as it is"
        if self.default is None and self.way != "scope":
            return "it was given no format"
        return "no scope holds it" if operator in COMPUTES else f"{operator} is only rounded if a key names it"

    @property
    def unused(self) -> list[str]:
        """Keys that matched no node."""
        return [key for key in self.entries if key not in self._used]

    def _by_type(self, node: fx.Node, operator: str) -> str | None:
        return operator if operator in self.entries else None

    def _by_name(self, node: fx.Node, operator: str) -> str | None:
        return next((name for name in names_of(node) if name in self.entries), None)

    def _by_regex_name(self, node: fx.Node, operator: str) -> str | None:
        return next((key for key in self.entries if any(re.match(key, name) for name in names_of(node))), None)

    def _by_scope(self, node: fx.Node, operator: str) -> str | None:
        path = names_of(node)[-1]
        above = [key for key in self.entries if path == key or path.startswith(f"{key}.") or key == ""]
        chosen = max(above, key=len, default=None)
        return chosen if chosen is not None and operator in COMPUTES else None

    def reaches(self, path: str) -> bool:
        """Can something inside this module have a configuration?"""
        if self.default is not None or self.way in ("type", "regex_name"):
            return True
        return any(
            key in ("", path) or key.startswith(f"{path}.") or path.startswith(f"{key}.") for key in self.entries
        )


_FINDERS: Mapping[str, Callable[[Chooser, fx.Node, str], str | None]] = {
    "type": Chooser._by_type,
    "name": Chooser._by_name,
    "regex_name": Chooser._by_regex_name,
    "scope": Chooser._by_scope,
}


def names_of(node: fx.Node) -> tuple[str, str]:
    """A node's name, and the path of the module that it calls or belongs to."""
    return node.name, path_of(node)


# torch.nn's transformers: modules of many operators, which are quantised one by one.

COMPOSED = frozenset(
    {
        "transformer", "transformer_encoder", "transformer_encoder_layer", "transformer_decoder",
        "transformer_decoder_layer",
    }
)  # fmt: skip


def take_apart(graph: MaseGraph, chooser: Chooser, only: Iterable[str] | None) -> None:
    """Replace composed modules by their operators if they, or something in them, are to be quantised."""
    selected = Selection.of(only)
    wanted = [node.name for node in graph.fx_graph.nodes if _is_wanted(node, graph, chooser, selected)]
    if wanted:
        lower_granularity_transform_pass(graph, {"only": wanted})


def _is_wanted(node: fx.Node, graph: MaseGraph, chooser: Chooser, selected: Selection) -> bool:
    if node.op != "call_module" or operator_of(node, graph.module) not in COMPOSED:
        return False
    path = path_of(node)
    inside = any(text.startswith(f"{path}.") for text in selected.only)
    return (selected.covers(node) or inside) and chooser.reaches(path)


# Values of a graph that are data, to be rounded, and values that must not be rounded.

#: Numbers at most this high, added to scores, are meant to suppress them.
_NEVER = -1e4
#: Operators that fill in a value, such as minus infinity.
_MASKING = frozenset({"masked_fill", "where", "masked_fill_"})


@dataclass(frozen=True, slots=True)
class Values:
    """data: nodes whose floating-point results depend on inputs, parameters or buffers, not only on sizes and masks.
    masked: those that may hold "minus infinity", which a narrow format would turn into a moderate number."""

    data: set[fx.Node]
    masked: set[fx.Node]

    def rounds(self, node: fx.Node) -> bool:
        """May this value be rounded?"""
        return node in self.data and node not in self.masked

    @classmethod
    def of(cls, graph: fx.Graph, facts: Facts, model: nn.Module) -> Values:
        """Find them by following the graph once."""
        data: set[fx.Node] = set()
        masked: set[fx.Node] = set()
        for node in graph.nodes:
            if not is_floating(facts.get(node)):
                continue
            tensors = [source for source in node.all_input_nodes if is_floating(facts.get(source))]
            known = [source in data for source in tensors]
            if node.op == "get_attr" and _is_mask(attribute(model, str(node.target))):
                continue
            if node.op in ("placeholder", "get_attr") or _has_parameters(node, model) or any(known):
                data.add(node)
            operator = operator_of(node, model)
            added_to = operator in ("add", "sub") and any(known) and not all(known)
            moved = any(source in masked for source in tensors) and is_moving_operator(node, model)
            if operator in _MASKING or added_to or moved:
                masked.add(node)
        return cls(data, masked)


def _is_mask(held: object) -> bool:
    """Is this a buffer of zeros and minus infinity, or equally low numbers? On meta this is unknown."""
    if not isinstance(held, Tensor) or isinstance(held, nn.Parameter) or held.is_meta or not held.numel():
        return False
    return bool(((held == 0) | (held <= _NEVER)).all()) and bool((held <= _NEVER).any())


def is_floating(fact: object) -> bool:
    """Is this a floating-point tensor, or a tuple or dict that contains one?"""
    if isinstance(fact, dict):
        return is_floating(tuple(fact.values()))
    if isinstance(fact, tuple):
        return any(is_floating(item) for item in fact)
    return isinstance(fact, TensorType) and fact.dtype.startswith(("float", "bfloat"))


def _has_parameters(node: fx.Node, model: nn.Module) -> bool:
    if node.op != "call_module":
        return False
    return next(attribute(model, str(node.target)).parameters(), None) is not None
