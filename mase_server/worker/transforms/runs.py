"""The work of a fork: it runs a pipeline on meta, or on the real model with errors, and sends the result.

An overlay speaks of rows of the payload: the child keeps, for each value that it sent, the calls that made it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from mase_server import system
from mase_server.dtypes import short
from mase_server.ir.annotate import Annotator
from mase_server.ir.build import attribute, underlying_callable
from mase_server.ir.code import code_of
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text, number_formats
from mase_server.ir.recording import Recording
from mase_server.ops.rows import name_of
from mase_server.ops.table import op_info, parameters_of
from mase_server.ops.types import TensorType
from mase_server.passes import calculate_avg_bits_mg_analysis_pass
from mase_server.passes.bits import stored_parameters, weight_nodes
from mase_server.passes.declaration import Pass
from mase_server.passes.error import Error, Errors, measure
from mase_server.passes.lora import find_adapters
from mase_server.passes.registry import passes_for
from mase_server.passes.sparsity import Zeros, zeros_of_pruned
from mase_server.passes.weighted import find_weighted, is_mask
from mase_server.protocol.records import InsertedNode, Summary, TransformRecord
from mase_server.protocol.snapshot import TRANSFORM_NODES, share_text, split_transform
from mase_server.protocol.wire import Message
from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.real import Real
from mase_server.tracing.recording.state import SEED
from mase_server.tracing.recording.values import Rebuild, holds_tensor
from mase_server.visible import reveal
from mase_server.worker.traced import Live, Sources, Traced
from mase_server.worker.transforms.ask import Ask, AskError, explain_lack_of_memory
from mase_server.worker.transforms.forks import Send
from mase_server.worker.transforms.pipeline import Applied, Pipeline, Stopped, told

# The inputs on which a model runs to measure a pipeline's effect.


class UnknownValueError(LookupError):
    """A tensor's values are not known."""


@dataclass(frozen=True, slots=True)
class Example:
    """Inputs with values. arguments: by parameter name.  how: their source, in words; of_file: from the file's
    own run."""

    arguments: Mapping[str, Any]
    how: str
    of_file: bool = False


def make_example(traced: Traced, path: str = "") -> Example:
    """The inputs with which the file's own run calls the model if all their values are known, else random ones."""
    spec = traced.session.inputs
    if traced.found.recorded:
        try:
            given = {name: _replace_with_values(value, traced) for name, value in traced.found.inputs.items()}
            return Example(
                given, f"the inputs that {Path(path).name or 'the file'} calls it with: {format_inputs(spec)}", True
            )
        except UnknownValueError:
            pass
    return Example(inputs_at(spec, seed=SEED), f"random inputs (seed {SEED}): {format_inputs(spec)}")


def _replace_with_values(value: Any, traced: Traced) -> Any:
    def known(tensor: torch.Tensor) -> torch.Tensor:
        real = traced.session.shadows.get(tensor) if tensor.is_meta else tensor
        if real is None:
            raise UnknownValueError
        return real.detach()

    if isinstance(value, torch.Tensor):
        return known(value)
    return Rebuild.of(value).changed(known) if holds_tensor(value) else value


# The effect of a pipeline on a model, as an overlay of the payload: `snapshot.TRANSFORM_KEYS`.


@dataclass(frozen=True, slots=True)
class Measured:
    """Errors against the original. inputs, weights: what they were measured on, in words."""

    errors: Errors
    inputs: str
    weights: str


@dataclass(frozen=True, slots=True)
class OverlayWriter:
    """Writes overlays of one model. index: of the model.  before: its figures before any step, which may
    freeze the parameters that all its graphs share."""

    live: Live
    index: int
    before: Figures

    def write(
        self, applied: Applied, measured: Measured | None, *, complete: bool, problem: str = ""
    ) -> TransformRecord:
        """The overlay of a graph after its steps. problem: the reason why it is incomplete, if no step is at fault."""
        nodes = applied.nodes()
        formats = number_formats(applied.graph.fx_graph, applied.graph.module)
        texts = {index: str(formats[node]) for index, node in nodes.items() if node in formats}
        stopped = applied.stopped
        inserted, rewired = _list_inserted(self.live.sources[self.index], applied)
        return {
            "model": self.index,
            "steps": applied.steps,
            "rows": self._write_rows(self.live.sources[self.index], texts),
            "nodes": self._write_nodes(self.live.sources[self.index], texts, applied, measured),
            "formats": {str(format): format.bits for format in formats.values()},
            "inserted": inserted,
            "rewired": rewired,
            "summary": self._write_summary(applied, measured),
            "inputs": "" if measured is None else measured.inputs,
            "weights": "" if measured is None else measured.weights,
            "complete": complete,
            "problem": stopped.text if stopped is not None else problem or None,
            "failed": None if stopped is None else stopped.index,
        }

    def _write_rows(self, sources: Sources, texts: Mapping[int, str]) -> list[list[Any]]:
        rows, values = [], []
        for row, origins in sources.rows.items():
            value = self.live.values[row]
            formats = [
                _list_seen_formats([texts.get(calls[place]) for calls in origins]) for place in range(len(origins[0]))
            ]
            if any(formats):
                rows.append(row)
                values.append(with_formats(value, iter(formats)))
        return [rows, values]

    def _write_nodes(
        self, sources: Sources, texts: Mapping[int, str], applied: Applied, measured: Measured | None
    ) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {name: [] for name in TRANSFORM_NODES}
        errors = {} if measured is None else measured.errors.nodes
        notes = _describe_effects(applied, texts)
        builder = applied.recording.builder
        for call, row in enumerate(sources.nodes):
            node = builder.nodes[call]
            error = _error_to_numbers(errors.get(node.name)) if node is not None else (None, None)
            saturated = None if measured is None or node is None else measured.errors.saturated.get(node.name)
            facts = (texts.get(call), *error, applied.notes.get(call) or notes.get(call), saturated)
            if row >= 0 and any(fact is not None for fact in facts):
                for name, fact in zip(TRANSFORM_NODES, (row, *facts), strict=True):
                    found[name].append(fact)
        return found

    def _write_summary(self, applied: Applied, measured: Measured | None) -> Summary:
        before, after = self.before, _compute_figures(applied)
        sqnr, largest = _error_to_numbers(None if measured is None else measured.errors.output)
        saturated = None if measured is None else measured.errors.saturation
        return {
            "nodes": [before.nodes, after.nodes],
            "parameters": [before.parameters, after.parameters],
            "parameter_bytes": [before.parameter_bytes, after.parameter_bytes],
            "data_bits": [before.data_bits, after.data_bits],
            "weight_bits": [before.weight_bits, after.weight_bits],
            "sqnr": sqnr,
            "max_error": largest,
            "saturated": saturated,
            **_summarize_effects(before, after),
        }


def _summarize_effects(before: Figures, after: Figures) -> Summary:
    """The figures that most passes leave alone."""
    found: Summary = {}
    if (before.trainable, after.trainable) != (before.parameters, after.parameters):
        found["trainable"] = [before.trainable, after.trainable]
    if after.ranks:
        found["ranks"] = after.ranks
    if after.sparsity:
        found["sparsity"] = after.sparsity
    return found


def _list_inserted(sources: Sources, applied: Applied) -> tuple[list[InsertedNode], list[tuple[int, list[int]]]]:
    """The operations that steps inserted, without roundings and masks, which formats and notes tell; and the inputs
    of the rows that read them."""
    rows = {node: sources.nodes[call] for call, node in applied.nodes().items() if sources.nodes[call] >= 0}
    made: list[InsertedNode] = []
    read: list[tuple[int, list[int]]] = []
    numbers: dict[fx.Node, list[int]] = {}
    last = -1
    for node in applied.graph.fx_graph.nodes:
        inputs = list(dict.fromkeys(each for source in node.all_input_nodes for each in numbers[source]))
        if node in rows:
            last = rows[node]
            numbers[node] = [last]
            if any(each < 0 for each in inputs):
                read.append((last, inputs))
        elif node.name in applied.inserted and node.op.startswith("call_") and format_text(node) is None:
            numbers[node] = inputs
            if not is_mask(node):
                numbers[node] = [-1 - len(made)]
                made.append(_describe_inserted(node, applied, last, inputs))
        else:
            numbers[node] = inputs
    return made, read


def _describe_inserted(node: fx.Node, applied: Applied, after: int, inputs: list[int]) -> InsertedNode:
    graph = applied.graph
    fact = graph.facts.get(node)
    module = attribute(graph.module, str(node.target)) if node.op == "call_module" else None
    info = op_info(node.op, underlying_callable(node.target), module)
    return {
        "name": node.name, "op": node.op, "target": reveal(name_of(node.target)), "mase_op": info.mase_op,
        "mase_type": info.mase_type, "family": info.family, "after": after, "inputs": inputs,
        "value": [short(fact.dtype), list(fact.shape), None] if isinstance(fact, TensorType) else None,
        "inserted_by": applied.inserted[node.name],
    }  # fmt: skip


def _describe_effects(applied: Applied, formats: Mapping[int, str]) -> dict[int, str]:
    """By call, what the steps did to a layer or an operation: its weights, its adapter, its pruning, or why it was not
    quantised.  formats: of the calls that have one."""
    nodes, graph = applied.nodes(), applied.graph
    weights, adapters, pruned = _describe_weights(applied), find_adapters(graph), zeros_of_pruned(graph)
    read = weight_nodes(graph.fx_graph, graph.module) if adapters else {}
    found: dict[int, str] = {}
    for call, node in nodes.items():
        told = [weights[call]] if call in weights else []
        if node in adapters:
            told.append(_describe_adapter(node, graph.module, read, adapters[node]))
        if node in pruned:
            told.append(f"{share_text(pruned[node].share)} of the weight pruned")
        if call not in formats and call not in weights:
            told += [left[node.name] for left in applied.left.values() if node.name in left]
        if told:
            found[call] = "; ".join(told)
    return found


def _describe_adapter(
    node: fx.Node, module: nn.Module, weights: Mapping[fx.Node, str], adapter: Sequence[nn.Parameter]
) -> str:
    """`LoRA rank 8: 1,024 trainable of 17,408 parameters`. weights: the parameter that each node reads."""
    layer = attribute(module, str(node.target)) if node.op == "call_module" else nn.Module()
    read = (attribute(module, weights[source]) for source in node.all_input_nodes if source in weights)
    every = {id(each): each for each in (*adapter, *layer.parameters(), *read)}.values()
    trained = sum(each.numel() for each in every if each.requires_grad)
    return (
        f"LoRA rank {adapter[0].shape[0]}: {trained:,} trainable of {sum(each.numel() for each in every):,} parameters"
    )


def _describe_weights(applied: Applied) -> dict[int, str]:
    """By call, format and size of each quantised weight that it reads: `weight in fixed(8,4), 9.0 KiB → 2.2 KiB`."""
    graph = applied.graph.fx_graph
    weights, formats = weight_nodes(graph, applied.graph.module), number_formats(graph, applied.graph.module)
    found: dict[int, str] = {}
    for call, node in applied.nodes().items():
        read = [source for source in node.all_input_nodes if source in weights and source in formats]
        told = []
        for source in read if node not in weights else ():
            parameter = attribute(applied.graph.module, weights[source])
            before, after = parameter.nbytes, parameter.numel() * formats[source].bits / 8
            name = weights[source].rpartition(".")[2]
            told.append(f"{name} in {formats[source]}, {before / 1024:,.1f} KiB → {after / 1024:,.1f} KiB")
        if told:
            found[call] = "; ".join(told)
    return found


@dataclass(frozen=True, slots=True)
class Figures:
    """The sizes of a graph. data_bits, weight_bits: of an element on average.  ranks: of its adapters, each once.
    sparsity: the share of the products' weights that pruning took away."""

    nodes: int
    parameters: int
    parameter_bytes: int
    data_bits: float | None
    weight_bits: float | None
    trainable: int
    ranks: list[int]
    sparsity: float


def _compute_figures(applied: Applied) -> Figures:
    graph = applied.graph
    kept = stored_parameters(graph)
    stored = kept.values()
    adapters, pruned = find_adapters(graph).values(), zeros_of_pruned(graph)
    learned = {path for path in kept if attribute(graph.module, path).requires_grad}
    # The last step computed the types: annotating anew would only repeat that.
    Annotator(graph.module, graph.facts, graph.custom_ops, None).annotate()
    bits = calculate_avg_bits_mg_analysis_pass(graph)[1]
    return Figures(
        nodes=len(graph.fx_graph.nodes),
        parameters=sum(each.elements for each in stored),
        parameter_bytes=round(sum(each.elements * min(each.bits, each.stored) for each in stored) / 8),
        data_bits=bits["data_avg_bit"],
        weight_bits=bits["w_avg_bit"],
        trainable=sum(each.elements for path, each in kept.items() if path in learned),
        ranks=sorted({a.shape[0] for a, _ in adapters}),
        sparsity=_share_of_pruned(graph, pruned),
    )


def _share_of_pruned(graph: MaseGraph, pruned: Mapping[fx.Node, Zeros]) -> float:
    """The share of the products' weights that pruning took away; a weight of several products counts once."""
    adapters = {id(each) for pair in find_adapters(graph).values() for each in pair}
    sizes: dict[str, int] = {}
    zeros: dict[str, int] = {}
    for layer in find_weighted(graph.fx_graph, graph.module) if pruned else ():
        weight = layer.weight(graph.module)
        if id(weight) not in adapters:
            sizes[layer.path] = weight.numel()
            if layer.node in pruned:
                zeros[layer.path] = max(pruned[layer.node].zeros, zeros.get(layer.path, 0))
    return sum(zeros.values()) / sum(sizes.values()) if sizes else 0.0


def _error_to_numbers(error: Error | None) -> tuple[float | str | None, float | None]:
    """SQNR in dB, "inf" for no difference, and the largest error; None for unknown ones."""
    if error is None:
        return None, None
    return "inf" if error.sqnr == math.inf else error.sqnr, error.max_error


def _list_seen_formats(texts: Sequence[str | None]) -> list[str | None]:
    """The distinct formats that a tensor was seen in, in order; empty if it never had one."""
    return list(dict.fromkeys(texts)) if any(texts) else []


def with_formats(value: Any, formats: Iterator[Sequence[str | None]]) -> Any:
    """A payload's value with number formats for the element types of its tensors; formats: one list for each tensor.

    A place that ran several times has several formats: "fixed(8,4)|f32".
    """
    if isinstance(value, list | tuple):
        seen = next(formats, ())
        return ["|".join(text or value[0] for text in seen) or value[0], *value[1:]]
    if isinstance(value, dict) and "tuple" in value:
        return {"tuple": [with_formats(item, formats) for item in value["tuple"]]}
    if isinstance(value, dict) and "dict" in value:
        return {"dict": {key: with_formats(item, formats) for key, item in value["dict"].items()}}
    return value


#: Models with fewer parameters run with one thread.
WORTH_THREADS = 20_000_000


@dataclass(frozen=True, slots=True)
class Subject:
    """One model to transform. example: its inputs.  real: the model with values, None on meta."""

    live: Live
    index: int
    example: Example
    real: Real | None = None

    @classmethod
    def of(cls, live: Live, title: str, real: Real | None = None) -> Subject:
        """The model with a title; AskError if there is none, or if its forward fails."""
        try:
            index = live.index(title)
        except ValueError as error:
            raise AskError(str(error)) from None
        traced = live.traced[index]
        if traced.error is not None:
            raise AskError(f"the forward of {traced.name} fails ({traced.error}): fix it first", "pass")
        return cls(live, index, make_example(traced, live.request.path), real)

    @property
    def traced(self) -> Traced:
        """The model as it was traced."""
        return self.live.traced[self.index]

    @property
    def model(self) -> nn.Module:
        """The model that graphs are built over."""
        return self.traced.session.model if self.real is None else self.real.model

    def graph(self) -> MaseGraph:
        """A new graph of the recording."""
        traced, example = self.traced, self.example
        graph = MaseGraph.from_recording(self.model, Recording.of(traced.run, traced.probed, example.arguments))
        if example.of_file:
            # Passes that choose by data then name these inputs as their source.
            graph.given = dict(example.arguments)
        graph.data = self.data
        return graph

    @property
    def data(self) -> str:
        """The data that a `# mase: data` comment names for the model, its own before the file's; "" for none.

        File names are relative to the folder of the model's file.
        """
        said = sorted(
            (each for each in self.traced.found.written if each.data), key=lambda each: each.owner is not None
        )
        if not said:
            return ""
        file, colon, function = said[-1].data.rpartition(":")
        here = Path(self.live.request.path).parent / (file or function)
        return f"{here}{colon}{function if file else ''}" if here.is_file() else said[-1].data

    def known(self) -> Mapping[str, Pass]:
        """The available passes."""
        request = self.live.request
        return passes_for(request.folder, request.path)


def send_formats(live: Live, ask: Ask, send: Send) -> None:
    """On meta: send the formats, then the answer, {"then": "measure"} if real weights are wanted and fit into
    memory."""
    subject = Subject.of(live, ask.model)
    pipeline = Pipeline(ask.steps, subject.known())
    before = _compute_figures(Applied(subject.graph()))
    applied = run_steps(subject, pipeline, send, real=False)
    refused = ask.trial and applied.stopped is not None
    wanted = not refused and (applied.rest > 0 or (ask.measure and bool(applied.steps)))
    problem = explain_lack_of_memory(subject.traced, ask.memory) if wanted else ""
    writer = OverlayWriter(live, subject.index, before)
    _send_overlay(send, writer.write(applied, None, complete=not wanted or bool(problem), problem=problem))
    if problem:
        raise AskError(problem, "limit")
    if not wanted:
        raise_stopped(applied.stopped)
    send({"value": {"then": "measure"} if wanted else {}})


def send_measured(live: Live, ask: Ask, real: Real, send: Send) -> None:
    """On the real model: send formats and, if asked for, errors."""
    subject = Subject.of(live, ask.model, real)
    torch.set_num_threads(useful_threads(real.model))
    before = _compute_figures(Applied(subject.graph()))
    applied = run_steps(subject, Pipeline(ask.steps, subject.known()), send, real=True)
    found: Measured | None = None
    problem = ""
    if ask.measure and applied.steps:
        send(_make_progress("measuring errors", len(ask.steps), ask))
        try:
            found = _measure_errors(subject, applied)
        except Exception as error:  # noqa: BLE001 - what the person's model does on these inputs is not known before
            problem = f"errors could not be measured on {subject.example.how}: {told(error)}"
    writer = OverlayWriter(live, subject.index, before)
    _send_overlay(send, writer.write(applied, found, complete=True, problem=problem))
    raise_stopped(applied.stopped)
    if problem:
        raise AskError(problem, "internal")
    send({"value": {}})


def send_code(live: Live, ask: Ask, real: Real | None, send: Send) -> None:
    """Send the graph as Python, after its steps or, if asked for, without any."""
    subject = Subject.of(live, ask.model, real)
    steps = () if ask.original else ask.steps
    applied = run_steps(subject, Pipeline(steps, subject.known()), send, real=real is not None)
    if real is None and applied.stopped is None and (applied.rest or applied.is_open):
        problem = explain_lack_of_memory(subject.traced, ask.memory)
        if not problem:
            send({"value": {"then": "measure"}})
            return
        if applied.rest:
            raise AskError(problem, "limit")
    stopped = "" if applied.stopped is None else f"# {applied.stopped.text.replace(chr(10), ' ')}\n"
    send({"value": {"text": stopped + code_of(applied.graph.module, subject.traced.name)}})


def send_known_passes(live: Live, send: Send) -> None:
    """Send every pass that this file can use."""
    request = live.request
    send({"value": [each.to_wire() for each in passes_for(request.folder, request.path).values()]})


def useful_threads(model: nn.Module) -> int:
    """The useful number of threads: small operations, and those on a busy machine, wait longer than they compute."""
    if parameters_of(model)[0] < WORTH_THREADS or not system.may_compute_with_threads():
        return 1
    count = os.cpu_count() or 1
    return max(1, min(count, round(count - system.load_average())))


def answer_on_meta(subject: Subject, ask: Ask, send: Send) -> None:
    """For what needs weights, on meta: only check whether there is enough memory for them; AskError if not."""
    if problem := explain_lack_of_memory(subject.traced, ask.memory):
        raise AskError(problem, "limit")
    send({"value": {"then": "measure"}})


def list_namespaces(model: nn.Module) -> list[dict[str, Any]]:
    """The globals of the forwards of a model's modules, each once."""
    forwards = (getattr(type(module).forward, "__globals__", {}) for module in model.modules())
    return list({id(each): each for each in forwards}.values())


def run_steps(subject: Subject, pipeline: Pipeline, send: Send, *, real: bool) -> Applied:
    """Apply the steps to a new graph; send each step's name before it runs."""
    torch.manual_seed(SEED)
    count = len(pipeline.steps)

    def tell(index: int) -> None:
        name = pipeline.steps[index].name
        send(
            {
                "event": "progress",
                "message": f"{name} ({index + 1} of {count})" if count > 1 else name,
                "fraction": index / (count + 1),
            }
        )

    return pipeline.run(subject.graph, tell, real=real)


def _make_progress(message: str, index: int, ask: Ask) -> Message:
    return {"event": "progress", "message": message, "fraction": index / (len(ask.steps) + 1)}


def _send_overlay(send: Send, overlay: TransformRecord) -> None:
    for frame in split_transform(overlay):
        send({"event": "transform", "frame": frame})


def raise_stopped(stopped: Stopped | None) -> None:
    """Raise AskError if a step failed."""
    if stopped is not None:
        raise AskError(stopped.text, stopped.kind)


def _measure_errors(subject: Subject, applied: Applied) -> Measured:
    """Run both graphs on the same inputs: those of the file's own run if their values are known, else random ones."""
    assert subject.real is not None
    original, graph = subject.graph(), applied.graph
    feed = original.knowledge.feed(subject.example.arguments)
    return Measured(
        measure(original.model, graph.model, feed), subject.example.how, applied.weights or subject.real.how
    )
