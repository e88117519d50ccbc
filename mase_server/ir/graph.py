"""MaseGraph: a model as an executable dataflow graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx, nn

from mase_server.ir.build import compiled, executable
from mase_server.ir.check import Check, check
from mase_server.ir.custom import CustomOps
from mase_server.ir.facts import Facts
from mase_server.ir.feeding import named
from mase_server.ir.guarded import texts_of
from mase_server.ir.knowledge import Knowledge
from mase_server.ir.metadata import MaseMetadata, copied, metadata_of
from mase_server.ir.recorded import Recorded
from mase_server.ir.recording import Recording, examples, record
from mase_server.ir.state import Snapshot
from mase_server.ops.cost import Cost
from mase_server.tracing.values import holds_tensor

_NONE: Mapping[str, Any] = MappingProxyType({})


class MaseGraph(Recorded):
    """A dataflow graph of a model with software and hardware metadata on its nodes, recorded by running its forward.

    model: a module, real or on meta, which is not changed; or a GraphModule, whose graph is taken as it is.
    cf_args: forward's arguments by name, or in its order (one tensor, a tuple), tensors as example inputs; where
    tensors are missing they are looked for.
    custom_ops: functions and module classes that become one node each (see `CustomOps`).  hf_input_names: the inputs of
    a Hugging Face model that become placeholders.  skip_init_metadata: leave `node.meta["mase"]` to a pass.
    add_metadata_args: pass_args of add_common_metadata_analysis_pass, which then runs at once.
    Without example inputs the model is recorded when its graph is first read.  Raises what its forward raises, and
    ValueError for what is no module.  Source: `chop.ir.graph.mase_graph.MaseGraph`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call_module', 'call_module', 'output']
    """

    implicit_nodes = [
        "size", "view", "to", "bool", "int", "flatten", "squeeze", "unsqueeze", "transpose", "permute", "reshape",
        "contiguous", "dropout", "eq", "ne", "gemm", "ge", "where", "_assert", "getattr", "long", "type_as", "clamp",
        "abs", "stack", "cast", "shape", "gather", "slice", "cat", "split", "tile", "expand", "full", "ones", "dim",
        "finfo", "masked_fill", "masked_fill_", "index_select", "detach", "tensor",
    ]  # fmt: skip

    def __init__(
        self,
        model: nn.Module | fx.GraphModule,
        cf_args: Any = None,
        custom_ops: dict[str, Any] | None = None,
        hf_input_names: list[str] | None = None,
        skip_init_metadata: bool = False,
        add_metadata_args: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"expected a torch.nn.Module, got {type(model).__name__}: {model!r:.80}")
        self.root = model
        self.given, self.input_names = _by_name(cf_args, model), hf_input_names
        #: What passes take data from where they are given none, see `passes.data.load`; "" for the inputs above.
        self.data = ""
        self.custom_ops = CustomOps.of(custom_ops)
        self.meta: dict[str, Any] = {"mase": MaseMetadata(None, model)}
        self.knowledge = Knowledge(self)
        self._skip_init = skip_init_metadata
        self._recording: Recording | None = None
        self._module: fx.GraphModule | None = None
        self._compiled = self._recorded = Snapshot()
        if isinstance(model, fx.GraphModule):
            self._adopt(model)
        elif any(holds_tensor(value) for value in self.given.values()):
            self.record(self.given)
        if add_metadata_args is not None:
            self.annotate(**add_metadata_args)

    @classmethod
    def from_module(
        cls, model: nn.Module, cf_args: dict[str, Any] | None = None, custom_ops: Mapping[str, Any] = _NONE
    ) -> MaseGraph:
        """Construct a MaseGraph from a module."""
        return cls(model, cf_args, dict(custom_ops))

    @classmethod
    def from_checkpoint(cls, checkpoint: str, propagate_missing_metadata: bool = True) -> MaseGraph:
        """Load `{checkpoint}.pt` and `{checkpoint}.mz`, as `export` writes them, executing nothing of them.

        propagate_missing_metadata: annotate nodes of which the file has no metadata.  Raises CheckpointError; where the
        files name classes of your own, use `mase_server.ir.checkpoint.load(checkpoint, allow=[...])`.
        """
        from mase_server.ir.checkpoint import load

        return load(checkpoint, propagate_missing_metadata)

    @classmethod
    def from_recording(cls, model: nn.Module, recording: Recording) -> MaseGraph:
        """The graph of a recording over the model that was recorded, or over another instance of it.

        The graph takes the recording's nodes as its own: another graph needs another `Recording.of` the same run.
        """
        graph = cls(model)
        graph._take(recording)
        return graph

    def export(self, fname: str = "masegraph") -> None:
        """Write the graph with its weights to `{fname}.pt` and its metadata to `{fname}.mz`."""
        from mase_server.ir.checkpoint import export

        export(self, fname)

    def draw(self, file: str = "mase_graph.svg") -> None:
        """Draw the graph as SVG."""
        from mase_server.ir.draw import draw

        draw(self, file)

    def _repr_html_(self) -> str:
        """What a notebook shows: a table of its operations."""
        from mase_server.ir.html import table

        return table(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> MaseGraph:
        """A graph over copies of the model and its parameters, with metadata of its own; the recording is shared."""
        graph: MaseGraph = object.__new__(type(self))
        memo[id(self)] = graph
        graph.__dict__.update(self.__dict__)
        graph.root = copy.deepcopy(self.root, memo)
        graph.given, graph.knowledge = dict(self.given), Knowledge(graph, self.knowledge)
        graph.meta = {**self.meta, "mase": MaseMetadata(None, graph.root)}
        if self._module is not None:
            module = graph._module = copy.deepcopy(self._module, memo)
            pairs = list(zip(self._module.graph.nodes, module.graph.nodes, strict=True))
            memo.update((id(node), other) for node, other in pairs)
            for node, other in pairs:
                if (found := node.meta.get("mase")) is not None:
                    other.meta["mase"] = copied(found, other, module, memo)
            graph.meta["mase"] = copied(self.meta["mase"], None, module, memo)
            graph._compiled = Snapshot.of(module.graph) if self._compiled.holds(self._module.graph) else Snapshot()
            graph._recorded = Snapshot() if self.modified else Snapshot.of(module.graph)
        return graph

    # The recording

    def record(self, arguments: Mapping[str, Any]) -> None:
        """Record the model on these arguments by name, in place of the present graph.

        Metadata is kept for nodes of the same name, operation and target.
        """
        self._take(record(self.root, arguments, self.custom_ops))

    def _take(self, recording: Recording) -> None:
        before = [] if self._module is None else list(self._module.graph.nodes)
        self._recording, builder = recording, recording.builder
        module = executable(builder.graph, self.root, builder.run.constants)
        kept = {(node.name, node.op, node.target): node.meta["mase"] for node in before if "mase" in node.meta}
        for node in module.graph.nodes:
            if (found := kept.get((node.name, node.op, node.target))) is not None:
                node.meta["mase"] = found
        self._recorded = Snapshot.of(module.graph)
        self._adopt(module)

    def _adopt(self, module: fx.GraphModule) -> None:
        self._module = module
        self._compiled = Snapshot.of(module.graph)
        self.meta["mase"].model = module
        if not self._skip_init:
            self.init_metadata()

    @property
    def module(self) -> fx.GraphModule:
        """The module that holds the graph; where the graph was changed, its code may be older (see `model`)."""
        if self._module is None:
            self.record(examples(self.root, self.given, self.input_names))
        assert self._module is not None
        return self._module

    @property
    def is_recorded(self) -> bool:
        """Has the graph been made already?"""
        return self._module is not None

    @property
    def recording(self) -> Recording | None:
        """How the graph was recorded; None for a GraphModule that was given."""
        _ = self.module
        return self._recording

    # The graph

    @property
    def model(self) -> fx.GraphModule:
        """The executable graph over the model's own modules and parameters; its code is that of the present graph."""
        module = self.module
        if not self._compiled.holds(module.graph):
            module.recompile()
            self._compiled = Snapshot.of(module.graph)
        return compiled(module)

    @model.setter
    def model(self, module: fx.GraphModule) -> None:
        self._adopt(module)

    def bound_to(self, model: nn.Module) -> fx.GraphModule:
        """The executable graph over another instance of the same model, for example one with real weights."""
        constants = {} if self.recording is None else self.recording.run.constants
        return compiled(executable(self.fx_graph, model, constants))

    @property
    def fx_graph(self) -> fx.Graph:
        """The fx.Graph of the model; one that is set takes its place."""
        return self.module.graph

    @fx_graph.setter
    def fx_graph(self, graph: fx.Graph) -> None:
        module = self.module
        module.graph = graph
        self._adopt(module)

    @property
    def nodes(self) -> list[fx.Node]:
        """The nodes of the graph, in execution order."""
        return list(self.fx_graph.nodes)

    @property
    def guards(self) -> list[str]:
        """What the graph takes for granted of the sizes and values of its inputs, one text for each guard.

        Its model raises GuardError where one does not hold, since its result would be another than eager's.
        """
        return texts_of(self.fx_graph)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules in the graph by path."""
        return dict(self.module.named_modules())

    @property
    def modified(self) -> bool:
        """Is the graph another one than was recorded? True for a GraphModule that was given."""
        return not self._recorded.holds(self.fx_graph)

    # Metadata

    def init_metadata(self) -> None:
        """Give every node a `MaseMetadata` under `meta["mase"]`; those that have one keep it."""
        self._skip_init = False
        if self._module is not None:
            for node in self._module.graph.nodes:
                metadata_of(node, self._module)

    def annotate(self, dummy_in: Any = None, add_value: bool = True, force_device_meta: bool = False) -> None:
        """Write the common metadata; see add_common_metadata_analysis_pass."""
        self.knowledge.annotate(dummy_in, add_value, force_device_meta)

    def propagate(self, dummy_in: Any = None) -> None:
        """Find types and shapes anew, also after a transform; dummy_in: inputs by name, else those used last."""
        self.knowledge.propagate(dummy_in)

    def annotate_again(self) -> None:
        """Write the common metadata as it was written last, on the same inputs."""
        self.knowledge.annotate_again()

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The inputs by parameter name that types, shapes and values speak of; their tensors are real."""
        return self.knowledge.arguments

    @property
    def facts(self) -> Facts:
        """The type of every node's result (see `facts`); up to date with the graph."""
        return self.knowledge.facts

    def costs(self) -> dict[str, Cost]:
        """FLOPs and bytes by node name."""
        return self.knowledge.costs()

    def scope_costs(self) -> dict[str, Cost]:
        """FLOPs and bytes by module path, each with everything below it; "" is the whole model."""
        return self.knowledge.scope_costs()

    def check_against(self, model: nn.Module, dummy_in: Any = None, *, rtol: float = 1e-5, atol: float = 1e-6) -> Check:
        """Run graph and model on the same inputs and compare; the result is true where they agree.

        dummy_in: inputs by name, else those used last.  rtol, atol: as in torch.allclose.
        """
        arguments = self.knowledge.named(dummy_in)
        return check(self.model, self.knowledge.feed(arguments), model, arguments, rtol, atol)


def _by_name(cf_args: Any, model: nn.Module) -> dict[str, Any]:
    """The arguments by name, of a map, one tensor, or a tuple in forward's order. ValueError where they do not fit."""
    if cf_args is None or isinstance(cf_args, Mapping):
        return dict(cf_args or {})
    try:
        return named(cf_args, model)
    except TypeError as error:
        raise ValueError(f"cf_args do not fit the forward of {type(model).__name__}: {error}") from None
