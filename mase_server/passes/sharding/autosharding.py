"""autosharding_analysis_pass: chooses the dimensions of every tensor to split over devices.

Each operator has rules for one axis of the mesh (`rules`); their products are its strategies, and a linear program
chooses. Only dimensions that the model fixes are split, unless asked, so that a plan holds at all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from types import MappingProxyType
from typing import Any, TypedDict

from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.ops.types import TensorType
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Result, complete_options
from mase_server.passes.sharding.rules import (
    Call,
    Layout,
    Mesh,
    Rule,
    describe_call,
    needs_whole,
    rules_of,
    tensor_of,
    text_of,
)

_DEFAULTS: Mapping[str, Any] = MappingProxyType({
    "mesh_shape": (1, 2), "inter_node_bandwidth": 10e9, "intra_node_bandwidth": 100e9, "flops": 10e12, "memory": None,
    "data_parallel": False, "time_limit": 60.0,
})  # fmt: skip
#: The key of the plan in a node's software metadata.
KEY = "autosharding"


@analysis(
    "Find how to split the model over devices",
    arguments=(
        Argument("mesh_shape", "texts", "devices along each axis, nodes first, e.g. 2, 4", ("1", "2")),
        Argument("inter_node_bandwidth", "number", "bytes per second between nodes", 10e9, minimum=1.0),
        Argument(
            "intra_node_bandwidth", "number", "bytes per second between the devices of a node", 100e9, minimum=1.0
        ),
        Argument("flops", "number", "operations per second of a device", 10e12, minimum=1.0),
        Argument("memory", "number", "bytes of parameters that a device may hold; unlimited without it", minimum=1.0),
        Argument("data_parallel", "boolean", "also split dimensions that the inputs have", default=False),
        Argument("time_limit", "number", "seconds for the solver", 60.0, minimum=0.1),
    ),
)
def autosharding_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Find the fastest way to split every operator of the graph over a mesh of devices, as Alpa does within operators.

    mesh_shape: devices along each axis, nodes first, e.g. (2, 4).  inter_node_bandwidth, intra_node_bandwidth: bytes a
    second along the first axis and along the others.  flops: operations a second of each device.  memory: bytes of
    parameters that a device may hold; without it, any.  data_parallel: may dimensions that the inputs have (batch,
    length) be split too?  time_limit: seconds for the solver.
    Without data_parallel the plan holds for inputs of all sizes, and they are whole on every device; outputs always
    are. Operators without a rule work on whole tensors. The choice is an integer linear program, solved
    by SciPy's HiGHS.
    Gives {"tensor_sharding_map": {module path: {"node", "sharding": {parameter, or "output": layout}}}, "plan": {node:
    {"inputs", "output", "parameters"}}, "seconds", "compute_seconds", "communication_seconds", "replicated_seconds":
    with everything on every device, "memory_bytes": of parameters on each device, a shared one counted for each layer
    that has it, "optimal": is it proved to be the best}. A layout such as "S(2),R" says for each axis of the mesh:
    split along dimension 2, whole, or P, parts of a sum. Every node's plan is in its metadata too, under software.
    ValueError for an impossible mesh or memory, TimeoutError where no plan was found in time, ImportError where
    SciPy is not installed: `pip install mase-server[solve]`.
    Source: `chop.passes.graph.analysis.autosharding.autosharding_analysis_pass`.

    >>> model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    >>> graph = MaseGraph(model, {"input": torch.randn(64, 512)})
    >>> _, found = passes.autosharding_analysis_pass(graph, {"mesh_shape": (1, 4), "flops": 1e9})
    >>> found["plan"]["_0"]["output"], found["tensor_sharding_map"]["2"]["sharding"]["weight"]
    ('R,S(1)', 'R,S(1)')
    """
    given = complete_options("autosharding_analysis_pass", pass_args, _DEFAULTS)
    problem = Problem(graph, mesh_of(given), bool(given["data_parallel"]), given["memory"])
    solution = solve_problem(problem, float(given["time_limit"]))
    plan = {node.name: _strategy_to_map(strategy) for node, strategy in solution.chosen.items()}
    for node in solution.chosen:
        metadata_of(node, graph.module)["software"][KEY] = plan[node.name]
    return graph, {"tensor_sharding_map": _by_module(solution), "plan": plan, **_solution_figures(problem, solution)}


def mesh_of(given: Mapping[str, Any]) -> Mesh:
    """The mesh that a pass's arguments describe. ValueError for an impossible one."""
    shape = tuple(int(each) for each in given["mesh_shape"])
    if not shape or min(shape) < 1:
        raise ValueError(f"autosharding: mesh_shape is {given['mesh_shape']!r}, expected devices by axis, e.g. (2, 4)")
    rates = {name: float(given[name]) for name in ("inter_node_bandwidth", "intra_node_bandwidth", "flops")}
    for name, rate in rates.items():
        if not (rate > 0 and math.isfinite(rate)):
            raise ValueError(f"autosharding: {name} is {given[name]!r}, expected more than 0 a second")
    inner = (rates["intra_node_bandwidth"],) * len(shape)
    outer = rates["inter_node_bandwidth"]
    return Mesh(shape, inner if len(shape) == 1 else (outer, *inner[1:]), rates["flops"])


class NodePlan(TypedDict):
    """How a node's tensors lie on a mesh, each layout as a text."""

    inputs: list[str]
    output: str
    parameters: dict[str, str]


class ModulePlan(TypedDict):
    """An entry of MASE's tensor_sharding_map. sharding: the layouts of parameters and output, by name."""

    node: str
    sharding: dict[str, str]


class SolutionFigures(TypedDict):
    """The costs of a plan on one device. replicated_seconds: of work on whole tensors.  optimal: is no plan better?"""

    seconds: float
    compute_seconds: float
    communication_seconds: float
    replicated_seconds: float
    memory_bytes: int
    optimal: bool


def _strategy_to_map(strategy: Strategy) -> NodePlan:
    return {
        "inputs": [text_of(layout) for layout in strategy.inputs],
        "output": text_of(strategy.output),
        "parameters": {name: text_of(layout) for name, layout in strategy.parameters.items()},
    }


def _by_module(solution: Solution) -> dict[str, ModulePlan]:
    """The solution as MASE's tensor_sharding_map, by the paths of modules."""
    found: dict[str, ModulePlan] = {}
    for node, strategy in solution.chosen.items():
        if node.op == "call_module":
            sharding = {**_strategy_to_map(strategy)["parameters"], "output": text_of(strategy.output)}
            found.setdefault(str(node.target), {"node": node.name, "sharding": sharding})
        elif node.op == "get_attr":
            path, _, name = str(node.target).rpartition(".")
            entry = found.setdefault(path, {"node": node.name, "sharding": {}})
            entry["sharding"].setdefault(name, text_of(strategy.output))
    return found


def _solution_figures(problem: Problem, solution: Solution) -> SolutionFigures:
    # The first strategy of each node is to work on whole tensors.
    replicated = evaluate_choices(problem, {node: each.strategies[0] for node, each in problem.choices.items()}, True)
    return {
        "seconds": solution.computing + solution.transferring,
        "compute_seconds": solution.computing,
        "communication_seconds": solution.transferring,
        "replicated_seconds": replicated.computing,
        "memory_bytes": round(solution.bytes),
        "optimal": solution.is_best,
    }


# The possible layouts of every tensor of a graph, and the cost of each choice.


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to compute a node on a mesh.  seconds: computing, on each device.  bytes: of parameters, on each."""

    output: Layout
    inputs: tuple[Layout, ...]
    parameters: Mapping[str, Layout]
    seconds: float
    bytes: float


@dataclass(slots=True)
class Choice:
    """A node and its strategies."""

    call: Call
    strategies: list[Strategy]


@dataclass(slots=True)
class Transfer:
    """The costs of converting a node's result from each of its layouts to each that one user wants."""

    source: fx.Node
    user: fx.Node
    place: int
    pairs: list[tuple[Layout, Layout, float]] = field(default_factory=list)


class Problem:
    """The choices of one graph.

    splits_data: may dimensions that differ from run to run (batch, length) be split?  memory: bytes of parameters that
    a device may hold, None for any.
    """

    def __init__(self, graph: MaseGraph, mesh: Mesh, splits_data: bool, memory: float | None) -> None:
        self.graph, self.mesh, self.memory = graph, mesh, memory
        self._free = (lambda node, dim: True) if splits_data else _fixed_dimensions(graph)
        self._splits_data = splits_data
        self.choices: dict[fx.Node, Choice] = {}
        facts, costs = graph.facts, graph.costs()
        for node in graph.fx_graph.nodes:
            found = describe_call(node, facts, graph.module) if node.op != "output" else None
            if found is not None:
                self.choices[node] = Choice(found, list(self._strategies(found, costs[node.name].flops)))
        self.transfers = list(self._transfers())

    def _strategies(self, found: Call, flops: int) -> Iterator[Strategy]:
        rules = [rule for rule in self._rules(found) if self._is_allowed(found, rule)]
        seen = set()
        # Along an axis of one device there is nothing to split.
        for chosen in product(*(rules if devices > 1 else rules[:1] for devices in self.mesh.shape)):
            strategy = self._strategy(found, chosen, flops)
            key = (strategy.output, strategy.inputs, tuple(strategy.parameters.items()))
            if key not in seen and self._fits(found, strategy):
                seen.add(key)
                yield strategy

    def _rules(self, found: Call) -> list[Rule]:
        is_free = found.node.op == "get_attr" or (found.node.op == "placeholder" and self._splits_data)
        if is_free:
            return [Rule("R", ()), *(Rule(dim, ()) for dim in range(found.rank))]
        return rules_of(found, self.graph.facts)

    def _is_allowed(self, found: Call, rule: Rule) -> bool:
        split = [(found.node, rule.output), *zip(found.inputs, rule.inputs, strict=True)]
        return all(not isinstance(place, int) or self._free(node, place) for node, place in split)

    def _strategy(self, found: Call, chosen: Sequence[Rule], flops: int) -> Strategy:
        layer = found.layer
        names = [] if layer is None else [name for name, _ in layer.named_parameters()]
        parameters = {name: tuple(rule.parameters.get(name, "R") for rule in chosen) for name in names}
        parts = math.prod(n for rule, n in zip(chosen, self.mesh.shape, strict=True) if rule.is_split)
        output = tuple(rule.output for rule in chosen)
        return Strategy(
            output,
            tuple(zip(*(rule.inputs for rule in chosen), strict=True)) if found.inputs else (),
            parameters,
            flops / parts / self.mesh.flops,
            self._bytes(found, output, parameters),
        )

    def _bytes(self, found: Call, output: Layout, parameters: Mapping[str, Layout]) -> float:
        if found.node.op == "get_attr":
            value = attribute(self.graph.module, str(found.node.target))
            return found.result.nbytes / self.mesh.parts(output) if isinstance(value, nn.Parameter) else 0.0
        sizes = {} if found.layer is None else dict(found.layer.named_parameters())
        return sum(
            each.numel() * each.element_size() / self.mesh.parts(parameters[name]) for name, each in sizes.items()
        )

    def _fits(self, found: Call, strategy: Strategy) -> bool:
        """Are all split dimensions divided evenly?"""
        layer = {} if found.layer is None else dict(found.layer.named_parameters())
        tensors = [(found.result.shape, strategy.output)]
        tensors += [(tensor.shape, layout) for tensor, layout in zip(found.types, strategy.inputs, strict=True)]
        tensors += [(tuple(layer[name].shape), layout) for name, layout in strategy.parameters.items()]
        return all(self.mesh.fits(layout, shape) for shape, layout in tensors)

    def _transfers(self) -> Iterator[Transfer]:
        whole = self.mesh.whole()
        for node, choice in self.choices.items():
            for place, source in enumerate(choice.call.inputs):
                wanted = dict.fromkeys(strategy.inputs[place] for strategy in choice.strategies)
                yield self._transfer(source, node, place, list(wanted))
        for node in self.graph.fx_graph.nodes:
            if node.op == "output" or needs_whole(node, self.graph.facts):
                for source in node.all_input_nodes:
                    if source in self.choices:
                        yield self._transfer(source, node, 0, [whole])

    def _transfer(self, source: fx.Node, user: fx.Node, place: int, wanted: list[Layout]) -> Transfer:
        given = dict.fromkeys(strategy.output for strategy in self.choices[source].strategies)
        size = whole_type(self.graph.facts[source])
        pairs = [(one, other, self.mesh.seconds(size, one, other)) for one in given for other in wanted]
        return Transfer(source, user, place, pairs)


def whole_type(fact: Any) -> TensorType:
    """The type of a result; for several tensors, one with the bytes of all of them."""
    first = tensor_of(fact)
    assert first is not None
    if not isinstance(fact, tuple):
        return first
    return TensorType(first.dtype, (sum(item.numel for item in fact if isinstance(item, TensorType)),))


def _fixed_dimensions(graph: MaseGraph) -> Callable[[fx.Node, int], bool]:
    """Is a dimension of a node's result fixed by the model, and not by the inputs? If a node was not recorded, or the
    model was recorded at one size only, all dimensions are."""
    probed = graph.probed

    def fixed(node: fx.Node, dim: int) -> bool:
        index = node.meta.get("call")
        if probed is None or index is None:
            return True
        values = [getattr(run.calls[index].value, "items", (run.calls[index].value,))[0] for run in probed.runs]
        shapes = [value.shape for value in values if isinstance(value, TensorType)]
        return len({shape[dim] for shape in shapes if dim < len(shape)}) <= 1

    return fixed


@dataclass(frozen=True, slots=True)
class Solution:
    """The chosen strategies.  computing, transferring: seconds.  bytes: of parameters on each device.  is_best: was it
    proved that there is none better?"""

    chosen: Mapping[fx.Node, Strategy]
    computing: float
    transferring: float
    bytes: float
    is_best: bool


def evaluate_choices(problem: Problem, chosen: Mapping[fx.Node, Strategy], is_best: bool) -> Solution:
    """The cost of a choice."""
    whole = problem.mesh.whole()
    moved: dict[tuple[fx.Node, Layout], float] = {}
    for transfer in problem.transfers:
        target = chosen[transfer.user].inputs[transfer.place] if transfer.user in chosen else whole
        size = whole_type(problem.graph.facts[transfer.source])
        seconds = problem.mesh.seconds(size, chosen[transfer.source].output, target)
        moved[transfer.source, target] = seconds
    return Solution(
        chosen,
        sum(strategy.seconds for strategy in chosen.values()),
        sum(moved.values()),
        sum(strategy.bytes for strategy in chosen.values()),
        is_best,
    )


# Choosing a layout for every tensor: an integer linear program, solved by HiGHS.


def solve_problem(problem: Problem, seconds: float) -> Solution:
    """The fastest choice that was found within `seconds` seconds.

    ValueError if no choice fits into the memory; TimeoutError if none was found in time; ImportError if scipy
    is not installed.
    """
    return _Program(problem).solved(seconds)


class _Program:
    """The problem as columns and rows.

    Each strategy has a column that is 0 or 1, and one of a node's is 1. Each pair of layouts of a transfer has a
    column from 0 to 1, whose sums equal the columns of the two nodes' layouts; these columns are then integral by
    themselves. If several users want the same layout, the transfer happens once, so its pairs have another column
    for all users, and only that one has a cost.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.costs: list[float] = []
        self.is_whole: list[int] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []
        self.places = {node: self._strategies(choice) for node, choice in problem.choices.items()}
        shared: dict[tuple[fx.Node, Layout, Layout], int] = {}
        for transfer in problem.transfers:
            self._transfer(transfer, shared)
        if problem.memory is not None:
            self.rows.append((self._memory(), -math.inf, problem.memory))

    def _column(self, cost: float, is_whole: bool) -> int:
        self.costs.append(cost)
        self.is_whole.append(int(is_whole))
        return len(self.costs) - 1

    def _strategies(self, choice: Choice) -> list[int]:
        columns = [self._column(strategy.seconds, True) for strategy in choice.strategies]
        self.rows.append((dict.fromkeys(columns, 1.0), 1.0, 1.0))
        return columns

    def _transfer(self, transfer: Transfer, shared: dict[tuple[fx.Node, Layout, Layout], int]) -> None:
        columns = {}
        for source, target, cost in transfer.pairs:
            columns[source, target] = own = self._column(0.0, False)
            if cost:
                key = (transfer.source, source, target)
                if key not in shared:
                    shared[key] = self._column(cost, False)
                self.rows.append(({own: 1.0, shared[key]: -1.0}, -math.inf, 0.0))
        given = self._by_layout(transfer.source, lambda strategy: strategy.output)
        taken = self._by_layout(transfer.user, lambda strategy: strategy.inputs[transfer.place])
        for end, sums in ((0, given), (1, taken)):
            for layout in dict.fromkeys(pair[end] for pair in columns):
                row = {column: 1.0 for pair, column in columns.items() if pair[end] == layout}
                one = 1.0 if transfer.user not in self.places and end == 1 else 0.0
                self.rows.append((row | dict.fromkeys(sums.get(layout, ()), -1.0), one, one))

    def _by_layout(self, node: fx.Node, layout: Callable[[Strategy], Layout]) -> dict[Layout, list[int]]:
        found: dict[Layout, list[int]] = {}
        if node in self.places:
            for column, strategy in zip(self.places[node], self.problem.choices[node].strategies, strict=True):
                found.setdefault(layout(strategy), []).append(column)
        return found

    def _memory(self) -> dict[int, float]:
        return {
            column: strategy.bytes
            for node, choice in self.problem.choices.items()
            for column, strategy in zip(self.places[node], choice.strategies, strict=True)
            if strategy.bytes
        }

    def solved(self, seconds: float) -> Solution:
        """Run the solver."""
        optimize, sparse = _import_scipy()
        values: list[float] = []
        places: list[int] = []
        ends = [0]
        for row, _, _ in self.rows:
            values += row.values()
            places += row.keys()
            ends.append(len(places))
        matrix = sparse.csr_matrix((values, places, ends), shape=(len(self.rows), len(self.costs)))
        limits = optimize.LinearConstraint(matrix, [row[1] for row in self.rows], [row[2] for row in self.rows])
        # The solver's tolerances are absolute, so costs are scaled by the largest.
        unit = max(self.costs) or 1.0
        found = optimize.milp(
            [cost / unit for cost in self.costs], constraints=limits, integrality=self.is_whole,
            bounds=optimize.Bounds(0, 1), options={"time_limit": seconds},
        )  # fmt: skip
        if found.x is None:
            raise self._failure(found.status, seconds)
        return self._read(found.x, found.status == 0)

    def _failure(self, status: int, seconds: float) -> Exception:
        if status == 1:
            return TimeoutError(f"autosharding: no plan was found within {seconds:g} s; give it more with time_limit")
        least = sum(min(each.bytes for each in choice.strategies) for choice in self.problem.choices.values())
        return ValueError(
            f"autosharding: no plan fits into {self.problem.memory:,.0f} bytes of parameters on each device; "
            f"split as far as they can be they take {least:,.0f}"
        )

    def _read(self, values: Sequence[float], is_best: bool) -> Solution:
        chosen = {
            node: choice.strategies[max(range(len(columns)), key=lambda index: values[columns[index]])]
            for (node, choice), columns in zip(self.problem.choices.items(), self.places.values(), strict=True)
        }
        return evaluate_choices(self.problem, chosen, is_best)


def _import_scipy() -> tuple[Any, Any]:
    try:
        return import_module("scipy.optimize"), import_module("scipy.sparse")
    except ImportError as error:
        raise ImportError(
            "autosharding needs the package scipy for its solver: pip install scipy (or mase-server[solve])"
        ) from error
