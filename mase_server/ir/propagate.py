"""Running a graph node by node: on meta for types and shapes, or for real where values are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.facts import Facts, fact_of
from mase_server.tracing.guards import check_value
from mase_server.tracing.rebuild import Rebuild
from mase_server.tracing.rungs import needs_values
from mase_server.tracing.shadow import MetaMode, Shadows
from mase_server.tracing.state import unchanged
from mase_server.tracing.values import holds_tensor

Visit = Callable[[fx.Node, Any], None]


class Visitor(fx.Interpreter):
    """Runs a graph and shows each node's result to `visit`; guards are left out, for facts are those of this graph."""

    def __init__(self, module: fx.GraphModule, visit: Visit) -> None:
        super().__init__(module)
        self.visit = visit

    def run_node(self, n: fx.Node) -> Any:
        """Run one node, as fx does; an error says at which node."""
        out = super().run_node(n)
        with torch._C.DisableTorchFunction():
            self.visit(n, out)
        return out

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call a function, as fx does; types do not depend on what was assumed of values."""
        return None if target is check_value else super().call_function(target, args, kwargs)


def propagated(module: fx.GraphModule, values: Sequence[Any]) -> Facts:
    """The facts of every node, by running the graph on meta; where only values can decide, by a real run.

    values: what the placeholders get.  Neither they nor the module are changed.
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
        _changed(value, lambda tensor: tensor if tensor.is_meta else mode._stand_in(tensor)) for value in values
    ]
    with unchanged(module, shadows), torch.no_grad(), mode:
        Visitor(module, visit).run(*symbolic, enable_io_processing=False)
    return facts


def visit_for_real(module: fx.GraphModule, values: Sequence[Any], visit: Visit) -> Any:
    """Run the graph on copies of these values and leave module, buffers and random state as they were."""
    copies = [_changed(value, lambda tensor: tensor.detach().clone()) for value in values]
    with preserved(module), torch.no_grad():
        return Visitor(module, visit).run(*copies, enable_io_processing=False)


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    return Rebuild.of(value).changed(change) if holds_tensor(value) else value


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Whatever runs inside, afterwards the model's attributes, buffers and the random state are as they were before."""
    real = [buffer for buffer in model.buffers() if not buffer.is_meta]
    before = [buffer.detach().clone() for buffer in real]
    random = torch.random.fork_rng(devices=[]) if model.training else nullcontext()
    with unchanged(model, Shadows()), random:
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, content in zip(real, before, strict=True):
                    buffer.copy_(content)
