"""MaseGraph: a model as an executable dataflow graph."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import fx, nn

from mase_server.inputs.examples import example_arguments
from mase_server.ir.build import GraphBuilder, executable
from mase_server.tracing.calls import Run
from mase_server.tracing.probe import Probed
from mase_server.tracing.session import Session


class MaseGraph:
    """A dataflow graph of a model, recorded by running its forward on meta tensors.

    model: a module, real or on meta; it is not changed.  cf_args: forward's arguments by name, tensors as example
    inputs; where tensors are missing they are looked for.  Raises what the model's forward raises.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    def __init__(
        self,
        model: nn.Module,
        cf_args: dict[str, Any] | None = None,
        *,
        run: Run | None = None,
        probed: Probed | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"expected a torch.nn.Module, got {type(model).__name__}: {model!r:.80}")
        self._root = model
        if run is None:
            session = Session(model, example_arguments(model, cf_args))
            run = session.record()
            probed = session.probe(run)
        self.run, self.probed = run, probed
        self._model: fx.GraphModule | None = None

    @classmethod
    def from_module(cls, model: nn.Module, cf_args: dict[str, Any] | None = None) -> MaseGraph:
        """Construct a MaseGraph from a module."""
        return cls(model, cf_args)

    @cached_property
    def builder(self) -> GraphBuilder:
        """The builder with the finished graph; made on first use."""
        builder = GraphBuilder(self.run, self.probed)
        builder.build()
        return builder

    @property
    def generic(self) -> bool:
        """Does the graph hold for all sizes of its symbols?"""
        return self.probed is not None and self.probed.generic

    @property
    def symbols(self) -> dict[str, int]:
        """Symbols that may vary, with their sizes in the recorded run."""
        return {} if self.probed is None else self.probed.symbols

    @property
    def model(self) -> fx.GraphModule:
        """The executable graph over the model's own modules and parameters."""
        if self._model is None:
            self._model = self.bound_to(self._root)
        return self._model

    def bound_to(self, model: nn.Module) -> fx.GraphModule:
        """The executable graph over another instance of the same model, for example one with real weights."""
        return executable(self.builder.graph, model, self.run.constants)

    @property
    def fx_graph(self) -> fx.Graph:
        """The fx.Graph of the model."""
        return self.model.graph

    @property
    def nodes(self) -> list[fx.Node]:
        """The nodes of the graph, in execution order."""
        return list(self.fx_graph.nodes)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules in the graph by path."""
        return dict(self.model.named_modules())
