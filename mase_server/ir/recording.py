"""Recording a model on example inputs, from which its MaseGraph is built; and the metadata entry of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.build import GraphBuilder, build_graph_module, compile_code
from mase_server.ir.custom import CustomOps
from mase_server.ir.facts import fact_from_recorded, fact_of
from mase_server.ir.tracer import MaseTracer
from mase_server.ops.types import TensorType
from mase_server.tracing.inputs.examples import example_arguments
from mase_server.tracing.inputs.library.huggingface import library_inputs
from mase_server.tracing.inputs.spec import Inputs, InputValues, Spec, TensorSpec, inputs_at
from mase_server.tracing.models.names import usual_inputs
from mase_server.tracing.recording.calls import Run
from mase_server.tracing.recording.values import fields_of, holds_tensor
from mase_server.tracing.symbols.probing import Probed

# The metadata entry of one tensor: a dict with values that are computed only when they are read.

Lazy = Mapping[str, Callable[[], Any]]

#: The arguments or the results of a node by MASE's names: a `TensorEntry` for each tensor, all else as it is.
ValueEntries = dict[str, Any]


class TensorEntry(dict[str, Any]):
    """type, precision, shape (and torch_dtype) of one tensor; `lazy` keys are computed at each read.

    Iterating, comparing and saving include only the plain keys, so an entry equals the dictionary that MASE prints.

    >>> entry = TensorEntry({"shape": [2, 3]}, {"value": lambda: 7})
    >>> entry == {"shape": [2, 3]}, "value" in entry, entry["value"]
    (True, True, 7)
    """

    __slots__ = ("lazy",)

    def __init__(self, fields: Mapping[str, Any], lazy: Lazy | None = None) -> None:
        super().__init__(fields)
        self.lazy: Lazy = lazy or {}

    def __missing__(self, key: str) -> Any:
        if key in self.lazy:
            return self.lazy[key]()
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.lazy

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, computed if it is lazy; `default` for a missing key."""
        try:
            return self[key]
        except KeyError:
            return default

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorEntry:
        plain = {key: list(value) if isinstance(value, list) else value for key, value in self.items()}
        return TensorEntry(plain, self.lazy)

    def __copy__(self) -> TensorEntry:
        return TensorEntry(self, self.lazy)

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


#: Common inputs of Hugging Face models, with their usual forms.
SHARED: Mapping[str, TensorSpec] = {
    "attention_mask": TensorSpec("i64", ("B", "T"), "ones"),
    "token_type_ids": TensorSpec("i64", ("B", "T"), "below", 2),
    "position_ids": TensorSpec("i64", ("B", "T"), "arange"),
    "decoder_attention_mask": TensorSpec("i64", ("B", "S"), "ones"),
    "labels": TensorSpec("i64", ("B",), "zeros"),
}


@dataclass(frozen=True)
class Recording:
    """One recording of a model, and the graph built from it.

    arguments: the arguments of the recorded call, by parameter name; tensors are real.
    """

    run: Run
    probed: Probed | None
    builder: GraphBuilder
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, run: Run, probed: Probed | None, arguments: Mapping[str, Any]) -> Recording:
        """A recording with a new graph of an existing run."""
        builder = GraphBuilder(run, probed)
        builder.build()
        return cls(run, probed, builder, arguments)

    @property
    def generic(self) -> bool:
        """Does the graph hold for all sizes of its symbols?"""
        return self.probed is not None and self.probed.generic

    def covers(self, arguments: Mapping[str, Any], inputs: Mapping[str, Any]) -> bool:
        """Does the graph hold for these arguments, as far as can be told without running the model?

        inputs: the same under the names of placeholders.  If the forward looked at values, the graph holds only for
        those very values; if it is not generic, only for the same sizes.
        """
        if self.run.reads and not _is_equal(self.arguments, arguments):
            return False
        runs = self.probed.runs if self.probed is not None and self.generic else [self.run]
        facts = {name: [fact_of_call(run, index) for run in runs] for name, index in self.run.placeholders.items()}
        return _argument_kind(self.arguments) == _argument_kind(arguments) and all(
            _has_recorded_sizes(facts[name], fact_of(inputs[name])) for name in facts
        )


def fact_of_call(run: Run, index: int) -> Any:
    """The fact of the result of a recorded call."""
    return fact_from_recorded(run.calls[index].value)


def _has_recorded_sizes(recorded: list[Any], given: Any) -> bool:
    """Has `given` the same sizes as every recording, except where recordings differ among themselves?"""
    if isinstance(given, TensorType):
        columns = zip(given.shape, *(fact.shape for fact in recorded), strict=True)
        return all(len(set(sizes)) > 1 or size == sizes[0] for size, *sizes in columns)
    if isinstance(given, tuple):
        return all(_has_recorded_sizes(list(parts), item) for item, *parts in zip(given, *recorded, strict=True))
    if isinstance(given, dict):
        return all(_has_recorded_sizes([fact[key] for fact in recorded], item) for key, item in given.items())
    return True


def _argument_kind(value: Any) -> Any:
    """The properties that two arguments must share to take the same path: structure, types, numbers of dimensions."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.dim())
    if isinstance(value, tuple | list):
        return (type(value), *map(_argument_kind, value))
    fields = fields_of(value)
    if fields is not None:
        return {str(name): _argument_kind(item) for name, item in fields.items()}
    return value


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one is other or bool(not one.is_meta and not other.is_meta and torch.equal(one, other))
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    fields, others = fields_of(one), fields_of(other)
    if fields is not None and others is not None:
        return fields.keys() == others.keys() and all(_is_equal(fields[name], others[name]) for name in fields)
    return bool(type(one) is type(other) and one == other)


def record_model(model: nn.Module, arguments: Mapping[str, Any], custom: CustomOps) -> Recording:
    """Record the model on these arguments; raises what the model's forward raises."""
    tracer = MaseTracer(custom_leaf_layers=tuple(custom.modules), custom_leaf_functions=tuple(custom.functions))
    _trace_with_padding(tracer, model, arguments)
    if tracer.run is None or tracer.builder is None:
        raise RuntimeError(f"{type(model).__name__} was not recorded")
    return Recording(tracer.run, tracer.probed, tracer.builder, arguments)


def _trace_with_padding(tracer: MaseTracer, model: nn.Module, arguments: Mapping[str, Any]) -> None:
    padded = with_padding(arguments)
    if padded is not arguments:
        try:
            tracer.trace(model, dict(padded))
            return
        except Exception:  # noqa: BLE001 - the model may refuse padding; what it says of the given inputs counts
            pass
    tracer.trace(model, dict(arguments))


def trace_torch_module(
    model: nn.Module,
    cf_args: Mapping[str, Any] | None = None,
    custom_ops: Mapping[str, Any] | None = None,
    hf_input_names: list[str] | None = None,
) -> fx.GraphModule:
    """Trace a module into a GraphModule over its own modules and parameters; arguments as for MaseGraph.

    model: a module, which is not changed.  cf_args: forward's arguments by name, tensors as example inputs.
    custom_ops: functions and module classes that become one node each (see `CustomOps`).  hf_input_names: the inputs
    of a Hugging Face model that become placeholders.  Raises what the forward raises, and ValueError if no inputs
    are found.
    Source: `chop.ir.graph.mase_graph.trace_torch_module`.

    >>> traced = trace_torch_module(nn.Sequential(nn.Linear(4, 2), nn.ReLU()))
    >>> traced(torch.ones(7, 4)).shape
    torch.Size([7, 2])
    """
    found = record_model(model, example_inputs(model, cf_args, hf_input_names), CustomOps.of(custom_ops))
    return compile_code(build_graph_module(found.builder.graph, model, found.run.constants))


def example_inputs(model: nn.Module, given: Mapping[str, Any] | None, names: Iterable[str] | None) -> InputValues:
    """Example arguments: `given`, completed by a search; or inputs with exactly the given names.

    Raises ValueError for a name that forward does not have, and if the search finds nothing.
    """
    given = dict(given or {})
    if names is None or any(holds_tensor(value) for value in given.values()):
        return example_arguments(model, given)
    library = library_inputs(model) or {}
    entries = {name: _input_spec(model, name, library) for name in names}
    return {**inputs_at(Inputs(entries)), **given}


def _input_spec(model: nn.Module, name: str, library: Mapping[str, Spec]) -> Spec:
    found = library.get(name) or SHARED.get(name) or next(iter(usual_inputs(name)), None)
    if name == "inputs_embeds":
        found = TensorSpec("f32", ("B", "T", int(getattr(model.config, "hidden_size", 64))))
    if found is None:
        raise ValueError(
            f"no form is known for the input {name!r} of {type(model).__name__}; give an example instead: "
            f"MaseGraph(model, {{{name!r}: torch.randn(1, 3, 224, 224)}})"
        )
    return found


def with_padding(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put padding into every other row of attention masks that are all ones; without such masks, return the same
    object.

    Models detect a mask of ones and skip it, and the graph would then always ignore its mask. There is enough
    padding for probes, which draw similar values at other sizes, to have some too.
    """
    padded = {
        name: _mask_with_padding(value) if "attention_mask" in name else value for name, value in arguments.items()
    }
    return padded if any(padded[name] is not value for name, value in arguments.items()) else arguments


def _mask_with_padding(mask: Any) -> Any:
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or mask.is_meta or mask.is_floating_point():
        return mask
    if mask.shape[-1] < 2 or not bool(mask.bool().all()):
        return mask
    padded = mask.clone()
    padded[1 - mask.shape[0] % 2 :: 2, -(mask.shape[1] // 2) :] = 0
    return padded
