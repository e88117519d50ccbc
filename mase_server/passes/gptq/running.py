"""All batches through a graph side by side, each layer's weight chosen when they reach it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from mase_server.formats import NumberFormat, Open
from mase_server.ir.graph import MaseGraph
from mase_server.ir.propagate import preserved
from mase_server.passes.data import Data
from mase_server.passes.error.running import Run
from mase_server.passes.gptq.grid import Layout, grid_of
from mase_server.passes.gptq.inputs import Hessian
from mase_server.passes.gptq.solver import Options, loss, solve
from mase_server.passes.quantize.methods import Method, of_tensor
from mase_server.passes.weighted import Weighted


@dataclass(frozen=True, slots=True)
class Chosen:
    """A weight on its grid, and the mean squared change of the layer's output: by it, and by plain rounding."""

    weight: Tensor
    format: NumberFormat
    error: float
    rounding_error: float


def choose(
    graph: MaseGraph, formats: Mapping[fx.Node, NumberFormat], layers: Iterable[Weighted], data: Data, options: Options
) -> dict[str, Chosen]:
    """The weights of layers by path, each one on the inputs that it gets when those before it are chosen.

    formats: of the layers' nodes, whose weights are arguments.  A weight that several layers share is chosen for the
    first one.  The graph and its parameters stay as they are.
    """
    by_node = {layer.node: layer for layer in layers if layer.node in formats}
    found: dict[str, Chosen] = {}
    with preserved(graph.module), torch.no_grad():
        runs = [Run(graph.module, values) for values in data.feeds(graph)]
        for node in graph.nodes:
            if node in by_node:
                layer = by_node[node]
                if layer.path not in found:
                    found[layer.path] = _chosen(layer, graph, [run.env for run in runs], formats[node], options)
                for run in runs:
                    run.env[layer.argument] = found[layer.path].weight
            for run in runs:
                run.step()
    return found


def _chosen(
    layer: Weighted, graph: MaseGraph, values: Sequence[Mapping[fx.Node, Any]], format: NumberFormat, options: Options
) -> Chosen:
    given = layer.masked_weight(graph.module).detach()
    weight = given if given.dtype == torch.float64 else given.float()
    format = of_tensor(format, weight, Method()) if isinstance(format, Open) else format
    hessian = Hessian.of(layer, graph.module)
    for each in values:
        hessian.add(each[layer.data])
    layout = Layout(weight.shape, transposed=layer.sums == 0)
    grid, keep = grid_of(format, weight, layout), _kept(layer, weight, layout)
    matrix, parts, errors = layout.matrix(weight), [], torch.zeros(2, dtype=torch.float64)
    groups = len(hessian.total) if hessian.total is not None else 1
    size = len(matrix) // groups
    for group in range(groups):
        rows = slice(group * size, (group + 1) * size)
        plain, own = grid.of_rows(rows).rounded(matrix[rows], slice(None)), hessian.mean(group)
        solved = solve(matrix[rows], own, grid.of_rows(rows), options, None if keep is None else keep[rows])
        before, after = loss(matrix[rows], plain, own), loss(matrix[rows], solved, own)
        # Greedy as it is, it may lose to plain rounding for a row.
        parts.append(torch.where((after <= before)[:, None], solved, plain))
        errors += torch.stack([torch.minimum(before, after).sum(), before.sum()])
    chosen = layout.restored(torch.cat(parts)).contiguous().to(given.dtype)
    return Chosen(chosen, format, *(errors / len(matrix)).tolist())


def _kept(layer: Weighted, weight: Tensor, layout: Layout) -> Tensor | None:
    """What a pruned layer keeps; None where nothing is pruned."""
    return None if not layer.masked else layout.matrix((weight != 0).to(weight))
