"""quantize_transform_pass: roundings before the arguments and after the results of the operators that compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mase_server.arguments import Argument
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result
from mase_server.passes.completing import transform
from mase_server.passes.data import DATA, SAMPLES
from mase_server.passes.declaration import Pass
from mase_server.passes.quantize.closing import Closing
from mase_server.passes.quantize.composed import take_apart
from mase_server.passes.quantize.config import USUAL, WAYS, Chooser
from mase_server.passes.quantize.methods import METHODS
from mase_server.passes.quantize.places import Places
from mase_server.passes.quantize.rewriting import rewrite
from mase_server.passes.selection import Selection


@transform
def quantize_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] | None = None) -> Result:
    """Round the arguments and results of operators to number formats; the graph still runs, trains and exports.

    pass_args: as MASE writes them. by: type | name | regex_name | scope.  default: what becomes of operators that
    compute and that nothing else names; without any format at all, "fixed(8,auto)".  only: nodes, layers or scopes,
    everything without it.  Every other key is an operator, a node's name or its module's path, a regular
    expression on either, or a module's path, which covers all below it.  A value is {"config": {"name": "integer",
    "data_in_width": 8, "data_in_frac_width": 4, "weight_width": ..., "bias_width": ..., "data_out_width": ...}}, with
    name None or bypass True to leave them alone, or one format for everything, results too, e.g. "fixed(8,4)".  A
    configuration rounds what it names and nothing else: results where it has data_out.

    A format may leave a parameter to data: "fixed(8,auto)". It is chosen for each tensor: for parameters by their own
    values, for all else by running the graph.  calibrate: mse, the smallest squared error; minmax, everything is held;
    percentile, the share of values that `percentile` says is held.  data, samples: see `data.load`.  Where the model
    is on meta, it stays open.

    A rounding is a node, `quantise(x, "fixed(8,4)")`, with a straight-through gradient. Layers with parameters become
    calls of functions, with the parameters rounded at each run: the parameters themselves stay as they were. Masks,
    sizes and integers are not rounded, nor is what a mask was added to. torch.nn's transformers are taken apart first
    (see lower_granularity).  Gives {"quantised": nodes by format of their results, or of what they read where a
    configuration does not round results, "unused": keys that matched nothing, "calibrated": on what, None where
    nothing was left to data}.  ValueError for pass_args that cannot be read, and for a key of a configuration that
    says nothing.
    Source: `chop.passes.graph.transforms.quantize.quantize_transform_pass`.

    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), {"input": torch.randn(3, 4)})
    >>> graph, found = passes.quantize_transform_pass(graph, {"by": "type", "linear": "fixed(8,4)"})
    >>> [node.name for node in graph.nodes if node.op == "call_function"]
    ['quantise', 'quantise_1', 'quantise_2', '_0', 'quantise_3']
    >>> found["quantised"]
    {'_0': 'fixed(8,4)'}
    """
    given = dict(pass_args or {})
    chooser = Chooser(given, graph.module)
    take_apart(graph, chooser, given.get("only"))
    places = Places.of(graph, chooser, Selection.of(given.get("only")).checked(graph.fx_graph))
    closing = Closing.of(graph, places, given)
    found = rewrite(graph, places, closing)
    return graph, {"quantised": found.results, "unused": chooser.unused, "calibrated": closing.words}


PASS = Pass(
    name="quantize",
    title="Quantise",
    kind="transform",
    function=quantize_transform_pass,
    arguments=(
        Argument(
            "default",
            "format",
            "the format of every operator that computes, unless another key names it; "
            f"{USUAL[0]} where no format is given at all",
            choices=USUAL,
        ),
        Argument(
            "by",
            "choice",
            "what further keys name: operators by type, nodes or layers by name, regular "
            "expressions on names, or scopes",
            "type",
            choices=WAYS,
        ),
        Argument("calibrate", "choice", "how data choose what a format leaves to them (auto)", "mse", choices=METHODS),
        Argument("percentile", "number", "percent of the values that it holds", 99.9, minimum=50, maximum=100),
        DATA,
        SAMPLES,
    ),
    others=Argument("", "format", "the format, or MASE's configuration, of an operator, node, expression or scope"),
    selects=True,
)
