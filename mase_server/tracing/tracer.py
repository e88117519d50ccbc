"""MaseTracer: the public face of recording, as an fx.Tracer."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import fx, nn

from mase_server.ir.build import GraphBuilder
from mase_server.tracing.calls import Run
from mase_server.tracing.probe import Probed
from mase_server.tracing.recorder import is_torch_leaf
from mase_server.tracing.session import Session


class MaseTracer(fx.Tracer):
    """An fx tracer that runs the real forward on meta tensors instead of proxies.

    custom_leaf_layers: module classes that become one node.  custom_leaf_modules, custom_leaf_functions: Python modules
    and functions that are wrapped automatically, as in fx.  param_shapes_constant: kept for fx; recorded shapes of
    parameters are always numbers.  Source: `chop.ir.graph.mase_graph.MaseTracer`.

    >>> graph = MaseTracer().trace(nn.Linear(4, 2), {"input": torch.randn(3, 4)})
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_module', 'output']
    """

    def __init__(
        self,
        custom_leaf_modules: tuple[ModuleType, ...] = (),
        custom_leaf_layers: tuple[type[nn.Module], ...] = (),
        custom_leaf_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__(custom_leaf_modules, custom_leaf_functions, param_shapes_constant)  # type: ignore[arg-type]
        self.custom_leaf_layers = tuple(custom_leaf_layers)
        self.run: Run | None = None
        self.probed: Probed | None = None
        self.builder: GraphBuilder | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Modules of torch.nn and of `custom_leaf_layers` become one node, all others are run through."""
        return isinstance(m, self.custom_leaf_layers) or is_torch_leaf(m, module_qualified_name)

    def trace(self, root: nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        """The graph of `root`'s forward on these arguments, generic in the symbols that probing finds.

        Without tensors among `concrete_args`, inputs are looked for; functions are traced with proxies, as fx does.
        """
        if not isinstance(root, nn.Module):
            return super().trace(root, concrete_args)
        from mase_server.inputs.examples import example_arguments

        session = Session(root, example_arguments(root, concrete_args), is_leaf=self.is_leaf_module)
        self.root = root
        self.run = session.record()
        self.probed = session.probe(self.run)
        self.builder = GraphBuilder(self.run, self.probed)
        self.graph = self.builder.build()
        return self.graph
