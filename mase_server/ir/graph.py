"""MaseGraph: a model as an executable dataflow graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx, nn

from mase_server.ir.build import build_graph_module, compile_code, texts_of
from mase_server.ir.custom import CustomOps
from mase_server.ir.facts import Facts
from mase_server.ir.feeding import Check, compare_with_model, name_arguments
from mase_server.ir.knowledge import Knowledge, Recorded
from mase_server.ir.metadata import MaseMetadata, copy_metadata, metadata_of
from mase_server.ir.recording import Recording, example_inputs, record_model
from mase_server.ir.session import Snapshot
from mase_server.ops.table import Cost
from mase_server.tracing.inputs.spec import InputValues
from mase_server.tracing.recording.values import holds_tensor

_NONE: Mapping[str, Any] = MappingProxyType({})


class MaseGraph(Recorded):
    """A dataflow graph of a model with software and hardware metadata on its nodes, recorded by running its forward.

    model: a module, real or on meta, which is not changed; or a GraphModule, whose graph is taken as it is. cf_args:
    forward's arguments by name, or in its order (one tensor, a tuple), with tensors as example inputs; missing
    tensors are searched for. custom_ops: functions and module classes that become one node each (see `CustomOps`).
    hf_input_names: the inputs of a Hugging Face model that become placeholders.  skip_init_metadata: leave
    `node.meta["mase"]` to a pass. add_metadata_args: pass_args of add_common_metadata_analysis_pass, which then runs
    at once. Without example inputs the model is recorded when its graph is first read.  Raises what the model's
    forward raises, and ValueError if `model` is no module.  Source: `chop.ir.graph.mase_graph.MaseGraph`.

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
        custom_ops: Mapping[str, Any] | None = None,
        hf_input_names: list[str] | None = None,
        skip_init_metadata: bool = False,
        add_metadata_args: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"expected a torch.nn.Module, got {type(model).__name__}: {model!r:.80}")
        self.root = model
        self.given, self.input_names = _by_name(cf_args, model), hf_input_names
        #: The default data source of passes, see `passes.data`; "" for the inputs above.
        self.data = ""
        self.custom_ops = CustomOps.of(custom_ops)
        self.meta: dict[str, MaseMetadata] = {"mase": MaseMetadata(None, model)}
        self.knowledge = Knowledge(self)
        self._skip_init = skip_init_metadata
        self._recording: Recording | None = None
        self._module: fx.GraphModule | None = None
        self._compiled = self._recorded = Snapshot()
        if isinstance(model, fx.GraphModule):
            self._adopt_module(model)
        elif any(holds_tensor(value) for value in self.given.values()):
            self.record(self.given)
        if add_metadata_args is not None:
            self.annotate(**add_metadata_args)

    @classmethod
    def from_module(
        cls, model: nn.Module, cf_args: Mapping[str, Any] | None = None, custom_ops: Mapping[str, Any] = _NONE
    ) -> MaseGraph:
        """Construct a MaseGraph from a module."""
        return cls(model, cf_args, dict(custom_ops))

    @classmethod
    def from_checkpoint(cls, checkpoint: str, propagate_missing_metadata: bool = True) -> MaseGraph:
        """Load `{checkpoint}.pt` and `{checkpoint}.mz`, as `export` writes them; nothing in them is executed.

        propagate_missing_metadata: annotate nodes whose metadata is missing in the file.  Raises CheckpointError; if
        the files name classes of your own, use `mase_server.ir.checkpoint.load(checkpoint, allow=[...])`.
        """
        from mase_server.ir.checkpoint import load

        return load(checkpoint, propagate_missing_metadata)

    @classmethod
    def from_recording(cls, model: nn.Module, recording: Recording) -> MaseGraph:
        """Build the graph of a recording over the recorded model, or another instance of it.

        The graph takes over the recording's nodes: another graph needs another `Recording.of` the same run.
        """
        graph = cls(model)
        graph._take_recording(recording)
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
        """The table of operations that a notebook shows."""
        from mase_server.ir.draw import graph_html_table

        return graph_html_table(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The same as text, which IPython shows in a terminal."""
        from mase_server.ir.draw import graph_text_table

        printer.text(graph_text_table(self))

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
                    other.meta["mase"] = copy_metadata(found, other, module, memo)
            graph.meta["mase"] = copy_metadata(self.meta["mase"], None, module, memo)
            graph._compiled = Snapshot.of(module.graph) if self._compiled.holds(self._module.graph) else Snapshot()
            graph._recorded = Snapshot() if self.modified else Snapshot.of(module.graph)
        return graph

    # The recording.

    def record(self, arguments: Mapping[str, Any]) -> None:
        """Record the model on these arguments by name, and replace the present graph.

        Nodes of the same name, operation and target keep their metadata.
        """
        self._take_recording(record_model(self.root, arguments, self.custom_ops))

    def _take_recording(self, recording: Recording) -> None:
        before = [] if self._module is None else list(self._module.graph.nodes)
        self._recording, builder = recording, recording.builder
        module = build_graph_module(builder.graph, self.root, builder.run.constants)
        kept = {(node.name, node.op, node.target): node.meta["mase"] for node in before if "mase" in node.meta}
        for node in module.graph.nodes:
            if (found := kept.get((node.name, node.op, node.target))) is not None:
                node.meta["mase"] = found
        self._recorded = Snapshot.of(module.graph)
        self._adopt_module(module)

    def _adopt_module(self, module: fx.GraphModule) -> None:
        self._module = module
        self._compiled = Snapshot.of(module.graph)
        self.meta["mase"].model = module
        if not self._skip_init:
            self.init_metadata()

    @property
    def module(self) -> fx.GraphModule:
        """The module that holds the graph; after a change to the graph, its code may be outdated (see `model`)."""
        if self._module is None:
            self.record(example_inputs(self.root, self.given, self.input_names))
        assert self._module is not None
        return self._module

    @property
    def is_recorded(self) -> bool:
        """Has the graph been made already?"""
        return self._module is not None

    @property
    def recording(self) -> Recording | None:
        """The recording that the graph was built from; None for a GraphModule that was given."""
        _ = self.module
        return self._recording

    # The graph.

    @property
    def model(self) -> fx.GraphModule:
        """The executable graph over the model's own modules and parameters; its code is up to date with the graph."""
        module = self.module
        if not self._compiled.holds(module.graph):
            module.recompile()
            self._compiled = Snapshot.of(module.graph)
        return compile_code(module)

    @model.setter
    def model(self, module: fx.GraphModule) -> None:
        self._adopt_module(module)

    def bound_to(self, model: nn.Module) -> fx.GraphModule:
        """The executable graph over another instance of the same model, such as one with real weights."""
        constants = {} if self.recording is None else self.recording.run.constants
        return compile_code(build_graph_module(self.fx_graph, model, constants))

    @property
    def fx_graph(self) -> fx.Graph:
        """The fx.Graph of the model; assigning another one replaces it."""
        return self.module.graph

    @fx_graph.setter
    def fx_graph(self, graph: fx.Graph) -> None:
        module = self.module
        module.graph = graph
        self._adopt_module(module)

    @property
    def nodes(self) -> list[fx.Node]:
        """The nodes of the graph, in execution order."""
        return list(self.fx_graph.nodes)

    @property
    def guards(self) -> list[str]:
        """The graph's assumptions on the sizes and values of its inputs, one text for each guard.

        The graph's model raises GuardError where one does not hold, since its result would differ from eager's.
        """
        return texts_of(self.fx_graph)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All modules in the graph by path."""
        return dict(self.module.named_modules())

    @property
    def modified(self) -> bool:
        """Does the graph differ from the recorded one? True for a GraphModule that was given."""
        return not self._recorded.holds(self.fx_graph)

    # Metadata.

    def init_metadata(self) -> None:
        """Give every node without one a `MaseMetadata` under `meta["mase"]`."""
        self._skip_init = False
        if self._module is not None:
            for node in self._module.graph.nodes:
                metadata_of(node, self._module)

    def annotate(self, dummy_in: Any = None, add_value: bool = True, force_device_meta: bool = False) -> None:
        """Write the common metadata; see add_common_metadata_analysis_pass."""
        self.knowledge.annotate(dummy_in, add_value, force_device_meta)

    def propagate(self, dummy_in: Any = None) -> None:
        """Compute types and shapes anew, also after a transform; dummy_in: inputs by name, else those used last."""
        self.knowledge.propagate(dummy_in)

    def annotate_again(self) -> None:
        """Write the common metadata again as last time, on the same inputs."""
        self.knowledge.annotate_again()

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The inputs by parameter name on which types, shapes and values are computed; their tensors are real."""
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
        """Run the graph and the model on the same inputs and compare; the result is true if they agree.

        dummy_in: inputs by name, else those used last.  rtol, atol: as in torch.allclose.
        """
        arguments = self.knowledge.named(dummy_in)
        return compare_with_model(self.model, self.knowledge.feed(arguments), model, arguments, rtol, atol)


def _by_name(cf_args: Any, model: nn.Module) -> InputValues:
    """The arguments by name, from a map, one tensor, or a tuple in forward's order. ValueError if they do not fit."""
    if cf_args is None or isinstance(cf_args, Mapping):
        return dict(cf_args or {})
    try:
        return name_arguments(cf_args, model)
    except TypeError as error:
        raise ValueError(f"cf_args do not fit the forward of {type(model).__name__}: {error}") from None
