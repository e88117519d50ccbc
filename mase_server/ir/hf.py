"""Tracers of Hugging Face models, with scopes and leaf rules.

Source: `dmx.compressor.fx.tracer`, which has the same names. Both `symbolic_trace` functions return the module *and*
the tracer; they change nothing that is passed in.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from torch import fx, nn

from mase_server.ir.build import build_graph_module
from mase_server.ir.tracer import MaseTracer
from mase_server.tracing.recording.calls import Scope, ScopeContextManager
from mase_server.tracing.recording.values import holds_tensor

__all__ = [
    "DmxHFTracer", "HFQuantTracer", "QuantTracer", "Scope", "ScopeContextManager", "disable_hooked_forward",
    "hf_symbolic_trace", "symbolic_trace",
]  # fmt: skip

ROTARY = "apply_rotary_pos_emb"


class QuantTracer(MaseTracer):
    """A tracer that keeps the scope of every node.

    scope: the scope of the node that is being made.  node_name_to_scope: {node name: (module path, module type)}.
    record_stack_traces: not used; nodes always know their positions.
    Source: `dmx.compressor.fx.tracer.QuantTracer`.

    >>> tracer = QuantTracer()
    >>> _ = tracer.trace(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> tracer.node_name_to_scope["_1"]
    ('1', <class 'torch.nn.modules.activation.ReLU'>)
    """

    def __init__(self) -> None:
        super().__init__()
        self.record_stack_traces = False


class HFQuantTracer(QuantTracer):
    """A tracer of Hugging Face models that keeps the scope of every node.

    Source: `dmx.compressor.fx.tracer.HFQuantTracer`.

    >>> from transformers import BertConfig, BertModel
    >>> model = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
    >>> _, tracer = hf_symbolic_trace(model, input_names=["input_ids"], tracer_cls=HFQuantTracer)
    >>> tracer.node_name_to_scope["encoder_layer_0_intermediate_dense"][0]
    'encoder.layer.0.intermediate.dense'
    """


class DmxHFTracer(HFQuantTracer):
    """A tracer of Hugging Face models for which activations, norms and rotary embeddings are leaves.

    autowrap_modules: Python modules; each call of one of their functions is one node, as in fx.  autowrap_functions:
    the same for single functions.  activations, norms: transformers' own become one node.  rotary: so do rotary
    embeddings, and each architecture's own `apply_rotary_pos_emb`, whatever suffix its name has.
    Source: `dmx.compressor.fx.tracer.DmxHFTracer`.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = LlamaModel(LlamaConfig(**sizes)).eval()
    >>> traced, _ = hf_symbolic_trace(model, input_names=["input_ids"], tracer_cls=DmxHFTracer)
    >>> [node.name for node in traced.graph.nodes if "rotary" in node.name]
    ['rotary_emb', 'apply_rotary_pos_emb']
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        *,
        activations: bool = True,
        norms: bool = True,
        rotary: bool = True,
    ) -> None:
        super().__init__()
        self.custom_leaf_functions = (*autowrap_functions, *_public_functions(autowrap_modules))
        self._rotary = rotary
        rules = ((activations, _is_activation), (norms, _is_norm), (rotary, _is_rotary_embedding))
        self._rules = [rule for wanted, rule in rules if wanted]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Are they torch.nn's modules, or transformers' activations, norms or rotary embeddings, as the options say?"""
        return super().is_leaf_module(m, module_qualified_name) or any(rule(type(m)) for rule in self._rules)

    def leaf_functions(self, root: nn.Module) -> tuple[Callable[..., Any], ...]:
        """The functions given, and the rotary functions of the files that define the model's modules."""
        return (*self.custom_leaf_functions, *(rotary_functions(root) if self._rotary else ()))


def rotary_functions(root: nn.Module) -> Iterator[Callable[..., Any]]:
    """Every function named `apply_rotary_pos_emb...` in the files that define a model's modules."""
    for home in dict.fromkeys(type(module).__module__ for module in root.modules()):
        for name, value in vars(sys.modules.get(home, math)).items():
            if name.startswith(ROTARY) and isinstance(value, FunctionType):
                yield value


def _public_functions(modules: Iterable[ModuleType]) -> Iterator[Callable[..., Any]]:
    for module in modules:
        yield from (f for n, f in vars(module).items() if isinstance(f, FunctionType) and not n.startswith("_"))


def _is_activation(kind: type) -> bool:
    return kind.__module__ == "transformers.activations"


def _is_norm(kind: type) -> bool:
    return kind.__module__.startswith("transformers.") and kind.__name__.endswith(("Norm", "RMSNorm", "LayerNorm"))


def _is_rotary_embedding(kind: type) -> bool:
    return kind.__module__.startswith("transformers.") and "RotaryEmbedding" in kind.__name__


def hf_symbolic_trace(
    model: nn.Module,
    input_names: list[str] | None = None,
    concrete_args: Mapping[str, Any] | None = None,
    tracer_cls: type[MaseTracer] = DmxHFTracer,
    dummy_inputs: Mapping[str, Any] | None = None,
) -> tuple[fx.GraphModule, MaseTracer]:
    """Trace a Hugging Face model; return the GraphModule and the tracer.

    model: a Hugging Face model, which is not changed.  tracer_cls: the class whose leaf rules apply.
    input_names: the inputs of the traced model; by default the model's own dummy inputs.  concrete_args: fixed
    values of other parameters.  dummy_inputs: examples of the inputs; missing ones are made from the configuration.
    Raises ValueError for a name that forward does not have.
    Source: `dmx.compressor.fx.tracer.hf_symbolic_trace`.

    >>> from transformers import BertConfig, BertModel
    >>> model = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
    >>> traced, tracer = hf_symbolic_trace(model, input_names=["input_ids", "attention_mask", "token_type_ids"])
    >>> [node.name for node in traced.graph.nodes if node.op == "placeholder"]
    ['input_ids', 'attention_mask', 'token_type_ids']
    """
    from mase_server.ir.recording import example_inputs, with_padding

    given = dict(dummy_inputs or {})
    names = list(input_names) if input_names is not None else list(given) or _usual_names(model)
    _check_names(model, [*names, *(concrete_args or {})])
    missing = [name for name in names if name not in given]
    inputs = {**(with_padding(example_inputs(model, None, missing)) if missing else {}), **given}
    arguments = {name: inputs[name] for name in names} | dict(concrete_args or {})
    with disable_hooked_forward(model):
        tracer = tracer_cls()
        graph = tracer.trace(model, arguments)
    return _make_graph_module(model, graph, tracer), tracer


def _usual_names(model: nn.Module) -> list[str]:
    """The names of a model's own dummy inputs that its forward has, else its main input."""
    from mase_server.tracing.inputs.library.huggingface import library_inputs

    parameters = inspect.signature(model.forward).parameters
    dummies = getattr(model, "dummy_inputs", None) or {}
    found = [name for name in dummies if name in parameters]
    main = getattr(model, "main_input_name", None)
    return found if main is None or main in found else list(library_inputs(model) or [main])


def _check_names(model: nn.Module, names: Iterable[str]) -> None:
    parameters = inspect.signature(model.forward).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    for name in names:
        if name not in parameters:
            raise ValueError(
                f"{type(model).__name__} has no input {name!r}; its forward takes {', '.join(parameters) or 'none'}"
            )


def symbolic_trace(
    root: nn.Module | Callable[..., Any], concrete_args: Mapping[str, Any] | None = None
) -> tuple[fx.GraphModule, QuantTracer]:
    """Trace a module or a function; return the GraphModule and the tracer.

    root: a module, which is not changed, or a function. concrete_args: arguments that are fixed, or structures with
    `fx.PH` in the places of inputs.  A module is recorded on the tensors among them, or on inputs that a search
    finds; if it finds none, the module is traced with proxies.
    Source: `dmx.compressor.fx.tracer.symbolic_trace`.

    >>> traced, tracer = symbolic_trace(lambda x: torch.relu(x) + 1)
    >>> [node.name for node in traced.graph.nodes]
    ['x', 'relu', 'add', 'output']
    """
    tracer = QuantTracer()
    try:
        graph = tracer.trace(root, None if concrete_args is None else dict(concrete_args))
    except ValueError:
        if not isinstance(root, nn.Module) or holds_tensor(list((concrete_args or {}).values())):
            raise
        tracer = QuantTracer()
        graph = tracer._trace_proxies(root, concrete_args)
    return _make_graph_module(root, graph, tracer), tracer


def _make_graph_module(root: Any, graph: fx.Graph, tracer: MaseTracer) -> fx.GraphModule:
    if tracer.run is not None:
        return build_graph_module(graph, root, tracer.run.constants)
    name = type(root).__name__ if isinstance(root, nn.Module) else getattr(root, "__name__", "function")
    return fx.GraphModule(tracer.root, graph, name)


@contextmanager
def disable_hooked_forward(model: nn.Module) -> Iterator[None]:
    """While inside, modules have their own forwards back in place of those from accelerate's hooks.

    The hooked forwards return on leaving, also after an exception.  model: the model whose modules may have been
    hooked.
    Source: `dmx.compressor.fx.tracer.disable_hooked_forward`.

    >>> layer = nn.Linear(4, 2)
    >>> layer._old_forward, layer.forward = layer.forward, None
    >>> with disable_hooked_forward(layer):
    ...     layer(torch.randn(3, 4)).shape
    torch.Size([3, 2])
    """
    hooked: list[tuple[nn.Module, Mapping[str, Any]]] = []
    for module in model.modules():
        if "_old_forward" in vars(module):
            hooked.append((module, {key: vars(module)[key] for key in ("forward",) if key in vars(module)}))
    try:
        for module, _ in hooked:
            vars(module)["forward"] = vars(module)["_old_forward"]
        yield
    finally:
        for module, before in hooked:
            vars(module).pop("forward", None)
            vars(module).update(before)
