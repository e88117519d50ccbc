"""autosharding_analysis_pass: which dimension of every tensor to split over which devices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mase_server.ir.graph import MaseGraph
from mase_server.ir.metadata import metadata_of
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import analysis
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.sharding.layouts import Mesh, text_of
from mase_server.passes.sharding.problem import Problem, Solution, Strategy, evaluated
from mase_server.passes.sharding.program import solve

_DEFAULTS: Mapping[str, Any] = MappingProxyType({
    "mesh_shape": (1, 2), "inter_node_bandwidth": 10e9, "intra_node_bandwidth": 100e9, "flops": 10e12, "memory": None,
    "data_parallel": False, "time_limit": 60.0,
})  # fmt: skip
#: Where the plan is in a node's software metadata.
KEY = "autosharding"


@analysis
def autosharding_analysis_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Find the fastest way to split every operator of the graph over a mesh of devices, as Alpa does within operators.

    mesh_shape: devices along each axis, nodes first, e.g. (2, 4).  inter_node_bandwidth, intra_node_bandwidth: bytes a
    second along the first axis and along the others.  flops: operations a second of each device.  memory: bytes of
    parameters that a device may hold; without it, any.  data_parallel: may dimensions that the inputs have (batch,
    length) be split too?  time_limit: seconds for the solver.
    Without data_parallel the plan holds for inputs of all sizes, and they are whole on every device; outputs always
    are. Operators that have no rule are done on whole tensors. The choice is a linear program in whole numbers, solved
    by SciPy's HiGHS.
    Gives {"tensor_sharding_map": {module path: {"node", "sharding": {parameter, or "output": layout}}}, "plan": {node:
    {"inputs", "output", "parameters"}}, "seconds", "compute_seconds", "communication_seconds", "replicated_seconds":
    with everything on every device, "memory_bytes": of parameters on each device, a shared one counted for each layer
    that has it, "optimal": is it proved to be the best}. A layout such as "S(2),R" tells for each axis of the mesh:
    split along dimension 2, whole, or P, parts of a sum. Every node's plan is in its metadata too, under software.
    ValueError for a mesh or a memory that cannot be, TimeoutError where no plan was found in time, ImportError where
    SciPy is not installed: `pip install mase-server[solve]`.
    Source: `chop.passes.graph.analysis.autosharding.autosharding_analysis_pass`.

    >>> model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    >>> graph = MaseGraph(model, {"input": torch.randn(64, 512)})
    >>> _, found = passes.autosharding_analysis_pass(graph, {"mesh_shape": (1, 4), "flops": 1e9})
    >>> found["plan"]["_0"]["output"], found["tensor_sharding_map"]["2"]["sharding"]["weight"]
    ('R,S(1)', 'R,S(1)')
    """
    given = options("autosharding_analysis_pass", pass_args, _DEFAULTS)
    problem = Problem(graph, mesh_of(given), bool(given["data_parallel"]), given["memory"])
    solution = solve(problem, float(given["time_limit"]))
    plan = {node.name: _told(strategy) for node, strategy in solution.chosen.items()}
    for node in solution.chosen:
        metadata_of(node, graph.module)["software"][KEY] = plan[node.name]
    return graph, {"tensor_sharding_map": _by_module(solution), "plan": plan, **_figures(problem, solution)}


def mesh_of(given: Mapping[str, Any]) -> Mesh:
    """The mesh that a pass's arguments describe. ValueError for one that cannot be."""
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


def _told(strategy: Strategy) -> dict[str, Any]:
    return {
        "inputs": [text_of(layout) for layout in strategy.inputs],
        "output": text_of(strategy.output),
        "parameters": {name: text_of(layout) for name, layout in strategy.parameters.items()},
    }


def _by_module(solution: Solution) -> dict[str, dict[str, Any]]:
    """As MASE's tensor_sharding_map, by the paths of modules."""
    found: dict[str, dict[str, Any]] = {}
    for node, strategy in solution.chosen.items():
        if node.op == "call_module":
            sharding = {**_told(strategy)["parameters"], "output": text_of(strategy.output)}
            found.setdefault(str(node.target), {"node": node.name, "sharding": sharding})
        elif node.op == "get_attr":
            path, _, name = str(node.target).rpartition(".")
            entry = found.setdefault(path, {"node": node.name, "sharding": {}})
            entry["sharding"].setdefault(name, text_of(strategy.output))
    return found


def _figures(problem: Problem, solution: Solution) -> dict[str, Any]:
    # The first strategy of each node is to work on whole tensors.
    replicated = evaluated(problem, {node: each.strategies[0] for node, each in problem.choices.items()}, True)
    return {
        "seconds": solution.computing + solution.transferring,
        "compute_seconds": solution.computing,
        "communication_seconds": solution.transferring,
        "replicated_seconds": replicated.computing,
        "memory_bytes": round(solution.bytes),
        "optimal": solution.is_best,
    }


PASS = Pass(
    name="autosharding",
    title="Find how to split the model over devices",
    kind="analysis",
    function=autosharding_analysis_pass,
    arguments=(
        Argument("mesh_shape", "texts", "devices along each axis, nodes first, e.g. 2, 4", ("1", "2")),
        Argument("inter_node_bandwidth", "number", "bytes a second between nodes", 10e9, minimum=1.0),
        Argument("intra_node_bandwidth", "number", "bytes a second between devices of a node", 100e9, minimum=1.0),
        Argument("flops", "number", "operations a second of a device", 10e12, minimum=1.0),
        Argument("memory", "number", "bytes of parameters that a device may hold; any without it", minimum=1.0),
        Argument("data_parallel", "boolean", "also split dimensions that the inputs have", default=False),
        Argument("time_limit", "number", "seconds for the solver", 60.0, minimum=0.1),
    ),
)
