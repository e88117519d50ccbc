"""Pipelines: running each step on a graph in turn, with notes on the nodes that disappear."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from mase_server.formats import Open, parse
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text
from mase_server.ir.recording import Recording
from mase_server.passes.declaration import LEFT, Pass
from mase_server.passes.registry import PassFailedError, apply_declared_pass, find_registered_pass
from mase_server.protocol.arguments import ArgumentError, Step
from mase_server.protocol.records import AppliedStep
from mase_server.visible import reveal, reveal_lines

#: Needs of passes that require the values of parameters.
REAL = frozenset({"weights", "data"})

#: Characters of a pass's report that are sent.
LONGEST_REPORT = 200_000

MakeGraph = Callable[[], MaseGraph]


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a pipeline stopped. index: of the step.  kind: "argument" or "pass"."""

    index: int
    kind: str
    text: str


@dataclass(slots=True)
class Applied:
    """A graph after as many steps as could be applied.

    steps: as `snapshot.TRANSFORM_KEYS` lists them.  notes: on calls whose nodes are gone.  inserted: the pass that
    inserted a node, by its name.  left: by pass, why it left nodes as they were, by their names.  rest: how many steps
    were left for a graph with real weights.  weights: the source of weights that a step put in, in words; "" for the
    model's own.
    """

    graph: MaseGraph
    steps: list[AppliedStep] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)
    inserted: dict[str, str] = field(default_factory=dict)
    left: dict[str, dict[str, str]] = field(default_factory=dict)
    stopped: Stopped | None = None
    rest: int = 0
    weights: str = ""

    @property
    def recording(self) -> Recording:
        """The recording that the graph was built from."""
        assert self.graph.recording is not None
        return self.graph.recording

    @property
    def is_open(self) -> bool:
        """Does a format still wait for values to choose its parameter?"""
        texts = filter(None, map(format_text, self.graph.fx_graph.nodes))
        return any(isinstance(parse(text), Open) for text in texts)

    def nodes(self) -> dict[int, fx.Node]:
        """The node of each call that still has one."""
        present = set(self.graph.fx_graph.nodes)
        names = {node.name: node for node in present}
        found: dict[int, fx.Node] = {}
        for index, node in enumerate(self.recording.builder.nodes):
            if node is not None and (now := node if node in present else names.get(node.name)) is not None:
                found[index] = now
        return found


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Steps, and the passes that they may name."""

    steps: Sequence[Step]
    known: Mapping[str, Pass]

    def run(self, make: MakeGraph, tell: Callable[[int], None] = lambda index: None, *, real: bool = True) -> Applied:
        """Apply the steps to a graph; if one fails, those before it stay applied.

        make: returns the graph as it was recorded.  tell: is called with each step's index before it runs.  real: do
        parameters have values? If not, the first step that needs them is left out, with all after it.
        """
        applied = Applied(make())
        for index, step in enumerate(self.steps):
            tell(index)
            try:
                pass_ = self._find_pass(step)
                if not real and pass_.needs & REAL:
                    applied.rest = len(self.steps) - index
                    break
                self._apply_step(applied, pass_, step, last=index == len(self.steps) - 1)
            except BaseException as error:  # noqa: BLE001 - the border to a person's own pass, which may even exit
                # A step that failed may have changed half of the graph.
                before = Pipeline(self.steps[:index], self.known).run(make, real=real)
                why = told(error).removeprefix(f"{step.name}: ")
                where = f"step {index + 1}, " if len(self.steps) > 1 else ""
                before.stopped = Stopped(index, _choose_error_kind(error), f"{where}{step.name}: {why}")
                return before
        return applied

    def _find_pass(self, step: Step) -> Pass:
        try:
            return find_registered_pass(step.name, self.known)
        except ValueError as error:
            raise ArgumentError(str(error)) from None

    def _apply_step(self, applied: Applied, pass_: Pass, step: Step, *, last: bool) -> None:
        before, structure = _Users.of(applied), _structure_of(applied.graph) if last else None
        names = {node.name for node in applied.graph.fx_graph.nodes}
        started = time.perf_counter()
        graph, info = apply_declared_pass(applied.graph, pass_, step.arguments)
        if pass_.kind == "transform":
            # A graph that does not run is useless to any further step.
            graph.propagate()
            # An idle step in the middle does not keep those after it from being applied.
            if structure and not all(info.values()) and _structure_of(graph) == structure:
                raise ValueError("it changes nothing here, so it was not applied")
        applied.graph = graph
        applied.notes |= before.gone(applied, pass_.name)
        names |= {each.name for each in applied.nodes().values()}
        applied.inserted |= {node.name: pass_.name for node in graph.fx_graph.nodes if node.name not in names}
        if isinstance(left := info.get(LEFT), Mapping):
            known = applied.left.get(pass_.name, left)
            applied.left[pass_.name] = {name: reveal_lines(str(why)) for name, why in left.items() if name in known}
        seconds, report = time.perf_counter() - started, info.get("report")
        if isinstance(whose := info.get("weights"), str):
            applied.weights = whose
        applied.steps.append({
            **step.to_wire(), "title": pass_.title, "seconds": seconds, "info": reveal(in_words(info)),
            "report": reveal_lines(report[:LONGEST_REPORT]) if isinstance(report, str) else None,
        })  # fmt: skip


def _structure_of(graph: MaseGraph) -> tuple[Any, ...]:
    """The nodes, tensors and layers of a graph: equal before and after a pass that has changed nothing."""
    module = graph.module
    tensors = tuple(
        (name, id(each), each._version) for name, each in (*module.named_parameters(), *module.named_buffers())
    )
    layers = tuple((path, id(layer)) for path, layer in module.named_modules() if path)
    return str(graph.fx_graph), tensors, layers


def _choose_error_kind(error: BaseException) -> str:
    return "argument" if isinstance(error, ArgumentError) else "pass"


def told(error: BaseException) -> str:
    """The text of an error, with invisible characters shown; a pass's errors need no further explanation."""
    # fx appends the whole node to the message.
    text = str(error).partition("\n\nWhile executing")[0].strip()
    if text and isinstance(error, ValueError | PassFailedError):
        return reveal_lines(text)
    return reveal_lines(f"{type(error).__name__}: {text}".rstrip(": "))


@dataclass(frozen=True, slots=True)
class _Users:
    """The users of each node of a graph, with the position of the node among their inputs."""

    nodes: dict[int, fx.Node]
    users: dict[fx.Node, list[tuple[fx.Node, int]]]

    @classmethod
    def of(cls, applied: Applied) -> _Users:
        nodes = applied.nodes()
        users = {
            node: [(user, list(user.all_input_nodes).index(node)) for user in node.users] for node in nodes.values()
        }
        return cls(nodes, users)

    def gone(self, applied: Applied, name: str) -> dict[int, str]:
        """A note on each node that a pass removed, by its row."""
        present, now = set(applied.graph.fx_graph.nodes), applied.nodes()
        gone = {index: node for index, node in self.nodes.items() if index not in now}
        return {
            index: _write_removal_note(name, next(self._iterate_replacements(node, present), None))
            for index, node in gone.items()
        }

    def _iterate_replacements(self, node: fx.Node, present: set[fx.Node]) -> Iterator[str]:
        """The replacement value for each user of a node."""
        for user, place in self.users[node]:
            inputs = list(user.all_input_nodes) if user in present else []
            if place < len(inputs):
                now = inputs[place]
                yield now.name if format_text(now) is None else now.all_input_nodes[0].name


def _write_removal_note(name: str, instead: str | None) -> str:
    return f"taken out by {name}" + (f"; {instead} takes its place" if instead else "")


def in_words(info: Mapping[str, Any]) -> str:
    """A pass's findings in words: "quantised 49, unused 0"."""
    texts = []
    for key, value in info.items():
        if isinstance(value, str):
            texts.append(f"{key}: {value}" if len(value) <= 80 else "")
        elif isinstance(value, bool | int):
            texts.append(f"{key} {value}")
        elif isinstance(value, float):
            texts.append(f"{key} {value:.4g}")
        elif isinstance(value, Mapping | list | tuple | set | frozenset):
            texts.append(f"{key} {len(value)}" if value else "")
    return ", ".join(filter(None, texts))
