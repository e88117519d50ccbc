"""A pipeline run on a graph: each step in turn, and what became of the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from mase_server.arguments import ArgumentError
from mase_server.formats import Open, parse
from mase_server.ir.graph import MaseGraph
from mase_server.ir.number_formats import format_text
from mase_server.ir.recording import Recording
from mase_server.passes.applied import PassFailedError, apply
from mase_server.passes.declaration import Pass
from mase_server.passes.registry import named
from mase_server.steps import Step
from mase_server.visible import reveal, reveal_lines

#: What passes need the values of parameters for.
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

    steps: as `snapshot.TRANSFORM_KEYS` has them.  notes: what became of calls whose nodes are gone.  rest: how many
    steps were left for a graph with real weights.  weights: whose values a step put in, in words; "" for the model's.
    """

    graph: MaseGraph
    steps: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)
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
        """Does a format wait for values to choose it?"""
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
        """Apply the steps to a graph; those before one that fails stay applied.

        make: gives the graph as it was recorded.  tell: is told of each step before it runs.  real: have parameters
        values? If not, the first step that needs them is left, with all after it.
        """
        applied = Applied(make())
        for index, step in enumerate(self.steps):
            tell(index)
            try:
                pass_ = self._pass(step)
                if not real and pass_.needs & REAL:
                    applied.rest = len(self.steps) - index
                    break
                self._apply(applied, pass_, step)
            except BaseException as error:  # noqa: BLE001 - the border to a person's own pass, which may even exit
                # A step that failed may have changed half of the graph.
                before = Pipeline(self.steps[:index], self.known).run(make, real=real)
                why = told(error).removeprefix(f"{step.name}: ")
                where = f"step {index + 1}, " if len(self.steps) > 1 else ""
                before.stopped = Stopped(index, _kind(error), f"{where}{step.name}: {why}")
                return before
        return applied

    def _pass(self, step: Step) -> Pass:
        try:
            return named(step.name, self.known)
        except ValueError as error:
            raise ArgumentError(str(error)) from None

    def _apply(self, applied: Applied, pass_: Pass, step: Step) -> None:
        before = _Users.of(applied)
        started = time.perf_counter()
        graph, info = apply(applied.graph, pass_, step.arguments)
        if pass_.kind == "transform":
            # A graph that does not run is of no use to any further step.
            graph.propagate()
        applied.graph = graph
        applied.notes |= before.gone(applied, pass_.name)
        entry = {"title": pass_.title, "seconds": time.perf_counter() - started, "info": reveal(in_words(info))}
        report = info.get("report")
        entry["report"] = reveal_lines(report[:LONGEST_REPORT]) if isinstance(report, str) else None
        if isinstance(whose := info.get("weights"), str):
            applied.weights = whose
        applied.steps.append({**step.to_wire(), **entry})


def _kind(error: BaseException) -> str:
    return "argument" if isinstance(error, ArgumentError) else "pass"


def told(error: BaseException) -> str:
    """The text of an error, with invisible characters shown; the errors of a pass need no further explanation."""
    # fx adds the whole node.
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
        return {index: _note(name, next(self._instead(node, present), None)) for index, node in gone.items()}

    def _instead(self, node: fx.Node, present: set[fx.Node]) -> Iterator[str]:
        """The replacement value for each user of a node."""
        for user, place in self.users[node]:
            inputs = list(user.all_input_nodes) if user in present else []
            if place < len(inputs):
                now = inputs[place]
                yield now.name if format_text(now) is None else now.all_input_nodes[0].name


def _note(name: str, instead: str | None) -> str:
    return f"taken out by {name}" + (f"; {instead} takes its place" if instead else "")


def in_words(info: Mapping[str, Any]) -> str:
    """The summary of a pass's findings: "quantised 49, unused 0"."""
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
