"""Graphs that can be trained: roundings in both directions, and behaviour that only training has."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import fx, nn

from mase_server.formats import NumberFormat, quantise, round_gradient
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ir.facts import Facts, Produced, call_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.recording import record_model
from mase_server.ops.table import named_arguments
from mase_server.passes.completing import transform
from mase_server.passes.declaration import PassArguments, Result, Selection
from mase_server.passes.functional import as_function
from mase_server.passes.quantize.config import Chooser, Config, is_floating
from mase_server.passes.quantize.transform import ARGUMENTS, quantize_transform_pass
from mase_server.protocol.arguments import Argument
from mase_server.tracing.recording.calls import Call


@transform(
    "Train with number formats",
    arguments=ARGUMENTS,
    others=Argument(
        "", "format", "the format of an operator, node, expression or scope, or formats forward and backward"
    ),
    selects=True,
)
def training_base_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Make the graph train with number formats in the forward pass and, where wanted, in the gradients.

    pass_args: as those of quantize_transform_pass. A configuration may also be {"config": {"forward": {"name":
    "integer", "data_in_width": 8, ...}, "backward": {"name": "integer", "output_grad_width": 8, ...}}} or {"forward":
    "fixed(8,4)", "backward": "fixed(16,12)"}: backward gives the formats of gradients: output_grad of the one
    that arrives at an operator's result, data_in, weight and bias of those that it passes on.
    Gradients go straight through roundings, and the model's own parameters learn: `graph.model.train()`, then
    `loss.backward()` and an optimizer over `graph.model.parameters()`. Dropout follows train() and eval() also where
    it is a function, as batch norm does.  Gives quantize_transform_pass's findings with {"gradients": nodes whose
    gradients are rounded, "modes": nodes that follow the mode}.  ValueError for pass_args that cannot be read.
    Source: `chop.passes.graph.transforms.training.training_base_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2)), {"input": torch.randn(3, 4)})
    >>> wanted = {"linear": {"forward": "fixed(8,4)", "backward": "fixed(16,12)"}}
    >>> graph, found = passes.training_base_pass(graph, {"by": "type", **wanted})
    >>> graph.model(torch.ones(3, 4)).sum().backward()
    >>> found["gradients"], graph.module.get_parameter("0.weight").grad.shape
    (['_0'], torch.Size([2, 4]))
    """
    forward, backward = {}, {}
    for key, entry in (pass_args or {}).items():
        forward[key], gradient = _split_directions(entry)
        if gradient is not None:
            backward[key] = gradient
    modes = follow_mode(graph)
    settings: PassArguments = {key: forward[key] for key in ("by", "only") if key in forward}
    nodes = choose_operators(graph, {**settings, **backward}) if backward else []
    graph, found = quantize_transform_pass(graph, forward)
    return graph, {**found, "gradients": round_gradients(graph, nodes), "modes": modes}


def _split_directions(entry: Any) -> tuple[Any, Any]:
    """The configurations of the forward pass and of gradients; the latter is None if there is none."""
    inner = entry.get("config", entry) if isinstance(entry, Mapping) else None
    if not isinstance(inner, Mapping) or not {"forward", "backward"} & set(inner):
        return entry, None
    for key in inner:
        if key not in ("forward", "backward", "name"):
            raise ValueError(f"training_base: a configuration has forward and backward, not {key!r}: {entry!r:.120}")
    return _plain_configuration(inner.get("forward")), _plain_configuration(inner["backward"]) if inner.get(
        "backward"
    ) else None


def _plain_configuration(part: Any) -> Any:
    """One direction in quantize's form, without MASE's name of the pass; an empty one is a configuration without a
    name."""
    if part is None:
        return {"config": {"name": None}}
    if not isinstance(part, Mapping):
        return part
    if part.get("pass", "quantize") != "quantize":
        raise ValueError(f"training_base: pass is {part['pass']!r}; only quantize is available")
    return {"config": {key: value for key, value in part.items() if key != "pass"}}


# Graphs that follow `train()` and `eval()`; a recording knows only the mode in which it was made.


def follow_mode(graph: MaseGraph) -> list[str]:
    """Let numbers that differ between training and evaluation follow the graph module's mode; return the changed nodes.

    Functions with a flag `training` take the module's. Other flags and shares, such as the dropout of attention, are
    looked up in a recording in the other mode, if it makes the same calls. Layers with a mode of their own follow it
    anyway.
    """
    other = _other_mode(graph)
    place = _Place(graph.fx_graph)
    changed = []
    for node in graph.nodes:
        twin = other[call] if (call := node.meta.get("call")) is not None and call < len(other) else None
        if node.op == "call_function" and _make_constants_follow(node, twin, place, graph.root.training):
            changed.append(node.name)
    return changed


class _Place:
    """The node that reads the mode, made when first needed."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.made: fx.Node | None = next((node for node in graph.nodes if _reads_mode(node)), None)

    def mode(self) -> fx.Node:
        """The node."""
        if self.made is not None:
            return self.made
        with self.graph.inserting_before(_first_computing_node(self.graph)):
            made: fx.Node = self.graph.create_node("get_attr", "training")
        self.made = made
        return made


def _reads_mode(node: fx.Node) -> bool:
    return node.op == "get_attr" and node.target == "training"


def _first_computing_node(graph: fx.Graph) -> fx.Node:
    found: fx.Node = next(node for node in graph.nodes if node.op != "placeholder")
    return found


def _make_constants_follow(node: fx.Node, twin: Call | None, place: _Place, training: bool) -> bool:
    """Change a node's constants; twin: the same call in the other mode."""
    known = twin is not None and underlying_callable(node.target) is twin.target
    args, kwargs = (twin.args, twin.kwargs) if known and twin is not None else ((), {})
    followed: dict[int | str, Any] = {
        index: there
        for index, (here, there) in enumerate(zip(node.args, args, strict=False))
        if _is_mode_dependent(here, there)
    }
    followed |= {name: there for name, there in kwargs.items() if _is_mode_dependent(node.kwargs.get(name), there)}
    if isinstance(node.kwargs.get("training"), bool):
        followed["training"] = not training
    for key, other in followed.items():
        _set_by_mode(node, key, other, place, training)
    return bool(followed)


def _is_mode_dependent(here: Any, there: Any) -> bool:
    return type(here) is type(there) and isinstance(here, bool | float) and here != there


def _set_by_mode(node: fx.Node, key: int | str, other: Any, place: _Place, training: bool) -> None:
    own = node.args[key] if isinstance(key, int) else node.kwargs[key]
    in_training, otherwise = (own, other) if training else (other, own)
    value = place.mode()
    if (in_training, otherwise) != (True, False):
        with node.graph.inserting_before(node):
            value = node.graph.call_function(operator.getitem, ((otherwise, in_training), value))
    if isinstance(key, int):
        node.update_arg(key, value)
    else:
        node.update_kwarg(key, value)


def _other_mode(graph: MaseGraph) -> list[Call]:
    """The calls of a recording in the other mode; empty if it cannot be made, or makes other calls."""
    if graph.recording is None:
        return []
    try:
        with _switch_mode(graph.root):
            found = record_model(graph.root, graph.arguments, graph.custom_ops).run.calls
    except Exception:  # noqa: BLE001 - a model may refuse the other mode; flags are followed all the same
        return []
    same = [(call.kind, call.target) for call in found] == [
        (call.kind, call.target) for call in graph.recording.run.calls
    ]
    return found if same else []


@contextmanager
def _switch_mode(model: nn.Module) -> Iterator[None]:
    before = {module: module.training for module in model.modules()}
    model.train(not model.training)
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


# Gradients in number formats: functions that change nothing in the forward pass.

Chosen = list[tuple[fx.Node, Config]]


def choose_operators(graph: MaseGraph, pass_args: Mapping[str, Any]) -> Chosen:
    """The operators whose gradients are rounded, with their formats; pass_args as quantize has them."""
    chooser, only = Chooser(pass_args, graph.module), Selection.of(pass_args.get("only"))
    nodes = (node for node in graph.nodes if only.covers(node))
    return [(node, config) for node in nodes if (config := chooser.of(node)) is not None]


def round_gradients(graph: MaseGraph, nodes: Chosen) -> list[str]:
    """Round gradients to formats; return the names of the nodes where there was something to round.

    output_grad: of the gradient that arrives at a node's result; data_in, weight and bias: of those that it passes
    on.
    """
    _expose_parameters(graph, nodes)
    facts = dict(graph.facts)
    return [
        node.name
        for node, config in nodes
        if is_floating(facts.get(node)) and _round_gradients_of(graph, facts, node, config)
    ]


def _expose_parameters(graph: MaseGraph, nodes: Chosen) -> None:
    for node, config in nodes:
        if node.op == "call_module" and (config.format_of("weight") or config.format_of("bias")):
            layer = attribute(graph.module, str(node.target))
            if next(layer.parameters(), None) is not None:
                as_function(node, layer)


def _round_gradients_of(graph: MaseGraph, facts: Facts, node: fx.Node, config: Config) -> bool:
    call, found = call_of(node, facts, graph.module), False
    for name, value in named_arguments(call).items():
        source = value.node if isinstance(value, Produced) and not value.path else None
        format = (
            config.format_of(_argument_kind(name)) if source is not None and is_floating(facts.get(source)) else None
        )
        if source is not None and format is not None and not name.startswith("running_"):
            with node.graph.inserting_before(node):
                node.replace_input_with(source, _insert_rounding(source, format, node, facts))
            found = True
    format = config.format_of("output_grad")
    if format is not None and not isinstance(facts[node], tuple):
        _round_result(node, format, facts)
    return found or format is not None


def _argument_kind(name: str) -> str:
    return "bias" if "bias" in name else "weight" if "weight" in name else name


def _round_result(node: fx.Node, format: NumberFormat, facts: Facts) -> None:
    """Round after the rounding of the result, so that this stays beside its operator."""
    users = list(node.users)
    last = users[0] if len(users) == 1 and users[0].target is quantise else node
    users = list(last.users)
    with node.graph.inserting_after(last):
        rounded = _insert_rounding(last, format, last, facts)
    for user in users:
        user.replace_input_with(last, rounded)


def _insert_rounding(source: fx.Node, format: NumberFormat, like: fx.Node, facts: Facts) -> fx.Node:
    made = source.graph.call_function(round_gradient, (source, str(format)))
    made.meta["scope"] = like.meta.get("scope")
    facts[made] = facts.get(source)
    return made
