"""raise_granularity_transform_pass: what a module computes as one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

from torch import fx, nn

from mase_server.ir.build import attribute
from mase_server.ir.graph import MaseGraph
from mase_server.passes.arguments import Result, options
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Pass
from mase_server.passes.granularity.outline import Outline
from mase_server.passes.granularity.regions import innermost, is_inside, module_kinds, outermost, regions, selected
from mase_server.passes.selection import Selection
from mase_server.tracing.scope import Scope

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"level": "innermost", "only": ()})
_LEVELS = {"innermost": innermost, "outermost": outermost}


@transform
def raise_granularity_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Take the nodes that a module's forward made together, as one call of a module at the same path.

    level: "innermost" for modules that call no other one that is run through, "outermost" for the largest ones: those
    that `only` names, or the model's own parts.  only: modules and nodes to work on; without it, the whole graph.
    The new module is a GraphModule of the same class name that computes what the nodes did, roundings included, with
    the same parameters; the person's own is not changed. Other passes see one node; lower_granularity_transform_pass
    takes it apart again.  A module that is called twice in a row is one node, and where another module's nodes stand
    between those of one, each part is a node.
    Gives {"raised": nodes taken together, by module path}.  ValueError for another level or an unknown name.
    Source: `chop.passes.graph.transforms.granularity.raise_granularity_transform_pass`.

    >>> class Block(nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) * 2
    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), Block()), {"input": torch.randn(3, 4)})
    >>> graph, found = passes.raise_granularity_transform_pass(graph)
    >>> found["raised"], [str(node.target) for node in graph.nodes if node.op == "call_module"]
    ({'1': 2}, ['0', '1'])
    """
    given = options("raise_granularity_transform_pass", pass_args, _DEFAULTS)
    if given["level"] not in _LEVELS:
        raise ValueError(f"raise_granularity: level is {given['level']!r}, expected {' or '.join(_LEVELS)}")
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    raised: dict[str, int] = {}
    for path in _LEVELS[given["level"]](selected(graph, selection)):
        raised[path] = _raise(graph, path)
    return graph, {"raised": raised}


def _raise(graph: MaseGraph, path: str) -> int:
    """Every region of a module; how many nodes there were."""
    model, kinds = graph.module, module_kinds(graph)
    above = max((each for each in kinds if each != path and is_inside(path, each)), key=len, default="")
    parent = Scope(above, kinds.get(above))
    targets: dict[tuple[Any, ...], str] = {}
    outlines = [Outline(region, model) for region in regions(graph, path)]
    places = _places(model, path)
    for outline in outlines:
        if outline.key not in targets:
            targets[outline.key] = next(places)
        outline.put(graph.fx_graph, targets[outline.key], parent)
    for outline in outlines:
        target = targets[outline.key]
        if target == path:
            _keep(model, graph.fx_graph, path, outline.module)
        model.add_submodule(target, outline.module)
    return sum(len(outline.region.nodes) for outline in outlines)


def _places(model: fx.GraphModule, path: str) -> Iterator[str]:
    """Where to put modules: at the path, beside it where that is taken, and at the top where it is inside of a module
    that is the person's own."""
    parents = path.split(".")[:-1]
    own = [attribute(model, ".".join(parents[: end + 1])) for end in range(len(parents))]
    if all(type(parent) is nn.Module for parent in own):
        yield path
    else:
        path = path.replace(".", "_")
    names = (f"{path}_{number}" for number in count(1))
    yield from (name for name in names if not _is_there(model, name))


def _is_there(model: nn.Module, path: str) -> bool:
    try:
        attribute(model, path)
    except AttributeError:
        return False
    return True


def _keep(model: fx.GraphModule, graph: fx.Graph, path: str, made: fx.GraphModule) -> None:
    """What others use of the module that made way stays where it was."""
    for node in graph.nodes:
        target = str(node.target)
        if node.op in ("get_attr", "call_module") and target.startswith(f"{path}."):
            name = target.removeprefix(f"{path}.")
            fx.graph_module._assign_attr(attribute(model, target), made, name)


PASS = Pass(
    name="raise_granularity",
    title="Take modules together as one node each",
    kind="transform",
    function=raise_granularity_transform_pass,
    arguments=(
        Argument(
            "level", "choice", "which modules: those without others inside, or the largest", "innermost",
            choices=tuple(_LEVELS),
        ),
    ),
    selects=True,
)  # fmt: skip
