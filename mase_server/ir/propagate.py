"""Running a graph node by node: on meta for types and shapes, or for real where values are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import fx, nn

from mase_server.ir.facts import Facts, fact_of
from mase_server.ops.types import TensorType
from mase_server.tracing.guards import check_value
from mase_server.tracing.recording.calling import IN_PLACE_OPERATORS, iterate_leaf_tensors
from mase_server.tracing.recording.rungs import needs_values
from mase_server.tracing.recording.shadow import MetaMode, Shadows
from mase_server.tracing.recording.state import preserve_state
from mase_server.tracing.recording.values import Rebuild, fields_of, holds_tensor

Visit = Callable[[fx.Node, Any], None]


class Visitor(fx.Interpreter):
    """Runs a graph and passes each node's result to `visit`. Guards are left out: the facts describe this graph
    alone."""

    def __init__(self, module: fx.GraphModule, visit: Visit) -> None:
        super().__init__(module)
        self.visit = visit

    def run_node(self, n: fx.Node) -> Any:
        """Run one node, as fx does; an error names the node."""
        out = super().run_node(n)
        with torch._C.DisableTorchFunction():
            self.visit(n, out)
        return out

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a function, as fx does, but skip checks of values: types do not depend on them."""
        return None if target is check_value else super().call_function(target, args, kwargs)


def propagate_facts(module: fx.GraphModule, values: Sequence[Any]) -> Facts:
    """The facts of every node, by running the graph on meta, or for real where only values can decide.

    values: of the placeholders.  Neither they nor the module are changed.
    """
    try:
        return _on_meta(module, values)
    except Exception as error:
        if not needs_values(error) or any(tensor.is_meta for tensor in module.parameters()):
            raise
        facts: Facts = {}
        visit_for_real(module, values, lambda node, value: facts.update({node: fact_of(value)}))
        return facts


def _on_meta(module: fx.GraphModule, values: Sequence[Any]) -> Facts:
    facts: Facts = {}
    shadows = Shadows()
    mode = MetaMode(shadows)

    def visit(node: fx.Node, value: Any) -> None:
        facts[node] = fact_of(value)

    symbolic = [
        _change_tensors(value, lambda tensor: tensor if tensor.is_meta else mode._stand_in(tensor)) for value in values
    ]
    with preserve_state(module, shadows), torch.no_grad(), mode:
        Visitor(module, visit).run(*symbolic, enable_io_processing=False)
    return facts


def visit_for_real(module: fx.GraphModule, values: Sequence[Any], visit: Visit) -> Any:
    """Run the graph on copies of these values and restore the module, its buffers and the random state."""
    copies = [_change_tensors(value, lambda tensor: tensor.detach().clone()) for value in values]
    with preserve_model(module), torch.no_grad():
        return Visitor(module, visit).run(*copies, enable_io_processing=False)


def _change_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    return Rebuild.of(value).changed(change) if holds_tensor(value) else value


def _list_written_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that a run may write: those whose data a graph takes; of other models all, if they are small."""
    if not isinstance(model, fx.GraphModule):
        parameters = list(model.parameters())
        return parameters if sum(each.nbytes for each in parameters) <= KEPT_BYTES else []
    taken = [node.args[0] for node in model.graph.nodes if node.target is getattr and node.args[1] == "data"]
    targets = {str(node.target) for node in taken if isinstance(node, fx.Node) and node.op == "get_attr"}
    return [parameter for name, parameter in model.named_parameters() if name in targets]


def _view_stored_elements(tensor: torch.Tensor) -> torch.Tensor:
    """Each number that a tensor stores once: `expand` shows some several times, and then nothing may be written."""
    repeated = [] if tensor.layout is not torch.strided else tensor.stride()
    for dimension, step in enumerate(repeated):
        if step == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


@contextmanager
def preserve_model(model: nn.Module) -> Iterator[None]:
    """On leaving, restore the model's attributes, its tensors that a forward writes, and the random state."""
    written = (*model.buffers(), *_list_written_parameters(model))
    real = [_view_stored_elements(tensor.detach()) for tensor in written if not tensor.is_meta]
    before = [buffer.clone() for buffer in real]
    random = torch.random.fork_rng(devices=[]) if model.training else nullcontext()
    with preserve_state(model, Shadows()), random:
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, content in zip(real, before, strict=True):
                    buffer.copy_(content)


# Values of nodes, computed when the first one is read.

#: Bytes of values that are kept after a run; others are computed again when they are read.
KEPT_BYTES = 1 << 30


class ValueSource(Protocol):
    """A source of lazily read values."""

    def of(self, node: fx.Node, path: tuple[Any, ...] = ()) -> Any:
        """The value of a node's result, or of the part of it at `path`."""

    def parameter(self, parameter: nn.Parameter) -> torch.Tensor:
        """The value of a module's own parameter."""


class MetaValues:
    """Meta tensors in place of values: nothing is computed."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def of(self, node: fx.Node, path: tuple[Any, ...] = ()) -> Any:
        """A meta tensor of the result's type; the number itself for a number."""
        fact = self._facts[node]
        for key in path:
            fact = fact[key]
        if not isinstance(fact, TensorType):
            return fact
        return torch.empty(fact.shape, dtype=getattr(torch, fact.dtype), device="meta")

    def parameter(self, parameter: nn.Parameter) -> torch.Tensor:
        """A meta tensor of the parameter's type."""
        return torch.empty_like(parameter, device="meta")


Feed = Callable[[], Sequence[Any]]


class Values:
    """The results of a graph's nodes for one set of inputs. Nothing runs until the first value is read.

    One run then serves all values that together fit into KEPT_BYTES.
    """

    def __init__(self, module: fx.GraphModule, feed: Feed) -> None:
        self._module, self._feed = module, feed
        self._kept: dict[fx.Node, Any] = {}

    def of(self, node: fx.Node, path: tuple[Any, ...] = ()) -> Any:
        """The value of a node's result, or of the part of it at `path`. Raises what the graph raises."""
        value = self._kept[node] if node in self._kept else self._run(node)
        return part_of(value, path)

    def parameter(self, parameter: nn.Parameter) -> torch.Tensor:
        """The parameter itself."""
        return parameter

    def _run(self, wanted: fx.Node) -> Any:
        budget = KEPT_BYTES
        found: list[Any] = []
        copies = any(changes_its_input(node, self._module) for node in self._module.graph.nodes)

        def visit(node: fx.Node, value: Any) -> None:
            nonlocal budget
            size = sum(tensor.nbytes for tensor in iterate_leaf_tensors(value))
            if node is not wanted and size > budget:
                return
            kept = _copy_value(value) if copies else value
            if node is wanted:
                found.append(kept)
            if size <= budget:
                self._kept[node] = kept
                budget -= size

        visit_for_real(self._module, self._feed(), visit)
        if not found:
            raise LookupError(f"node {wanted.name!r} is no longer in the graph: annotate the graph again")
        return found[0]


def part_of(value: Any, path: tuple[Any, ...]) -> Any:
    """The part at `path` of nested tuples, dicts and model outputs."""
    for key in path:
        fields = None if isinstance(value, tuple | list) else fields_of(value)
        value = value[key] if fields is None else next(item for name, item in fields.items() if str(name) == key)
    return value


def changes_its_input(node: fx.Node, module: fx.GraphModule) -> bool:
    """Does this node write to a tensor that another node made?"""
    if node.op == "call_module":
        return bool(getattr(module.get_submodule(str(node.target)), "inplace", False))
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None:
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return node.op.startswith("call_") and (in_place or name == "setitem" or name in IN_PLACE_OPERATORS)


def _copy_value(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(_copy_value(item) for item in value)
    return {key: _copy_value(item) for key, item in value.items()} if type(value) is dict else value
