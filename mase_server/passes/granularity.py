"""Granularity: modules as one node each, or as the nodes of their computation.

Taking modules together moves nodes and computes nothing: consecutive nodes of a module become a GraphModule over the
same parameters, so that the way back gives the same nodes. It is put into the graph's own module, never into a
person's.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn

from mase_server.ir.build import attribute, build_graph_module
from mase_server.ir.facts import map_nodes
from mase_server.ir.graph import MaseGraph
from mase_server.ir.tracer import MaseTracer
from mase_server.ops.types import TensorType
from mase_server.passes.completing import transform
from mase_server.passes.declaration import Argument, Result, Selection, complete_options
from mase_server.passes.error import GIVES
from mase_server.tracing.recording.calls import Scope

_DEFAULTS: Mapping[str, Any] = MappingProxyType({"only": ()})
#: Modules of torch.nn that are made of others.
_COMPOSED = (
    nn.Transformer, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.TransformerDecoder,
    nn.TransformerDecoderLayer,
)  # fmt: skip
_APART = (fx.GraphModule, *_COMPOSED)


@transform("Take modules apart into what they compute", selects=True)
def lower_granularity_transform_pass(graph: MaseGraph, pass_args: Mapping[str, Any] = _DEFAULTS) -> Result:
    """Replace a module's call by its computation: modules that raise_granularity made, and torch.nn's transformers.

    only: modules and nodes to work on; without it, the whole graph.  Modules inside of modules are taken apart too.
    torch.nn's transformers are run through again, on their slow path: their fused kernels round a little differently,
    and give zeros where inputs are padded.
    Gives {"lowered": module paths, "kept": why another could not be taken apart}.  ValueError for an unknown name.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> graph = MaseGraph(nn.Sequential(layer, nn.Linear(8, 2)), {"input": torch.randn(1, 5, 8)})
    >>> graph, found = passes.lower_granularity_transform_pass(graph)
    >>> found, [str(node.target) for node in graph.nodes if node.op == "call_module"][:3]
    ({'lowered': ['0'], 'kept': {}}, ['0.self_attn', '0.dropout1', '0.norm1'])
    """
    given = complete_options("lower_granularity_transform_pass", pass_args, _DEFAULTS)
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    lowered: list[str] = []
    kept: dict[str, str] = {}
    while (node := _next_divisible_call(graph, selection, kept)) is not None:
        reason = _lower_call(graph, node)
        if reason is None:
            lowered.append(str(node.target))
        else:
            kept[node.name] = reason
    return graph, {"lowered": lowered, "kept": kept}


def _next_divisible_call(graph: MaseGraph, selection: Selection, kept: Mapping[str, str]) -> fx.Node | None:
    """The first call that can be taken apart."""
    calls = (node for node in graph.fx_graph.nodes if node.op == "call_module" and node.name not in kept)
    fitting = (node for node in calls if isinstance(attribute(graph.module, str(node.target)), _APART))
    return next(filter(selection.covers, fitting), None)


def _lower_call(graph: MaseGraph, node: fx.Node) -> str | None:
    """Take one call apart; return None, or the reason why that is impossible."""
    model = graph.module
    layer = attribute(model, str(node.target))
    if isinstance(layer, fx.GraphModule):
        names = [str(each.target) for each in layer.graph.nodes if each.op == "placeholder"]
        inline_call(model, node, layer, dict(zip(names, node.args, strict=False)) | node.kwargs, "")
        return None
    facts = graph.facts
    signature = inspect.signature(layer.forward)
    given = signature.bind(*node.args, **node.kwargs).arguments
    # If it is left open, the layer reads it off the mask's values, and the graph would hold for such masks only.
    given |= {name: False for name in signature.parameters if name.endswith("is_causal") and given.get(name) is None}
    try:
        inner = _record_layer(
            layer, {name: map_nodes(value, lambda source: facts[source]) for name, value in given.items()}
        )
    except Exception as error:  # noqa: BLE001 - a layer that cannot be run through stays as it is, and says why
        return f"{type(error).__name__}: {error}"
    inline_call(model, node, inner, given, str(node.target))
    return None


def _record_layer(layer: nn.Module, types: Mapping[str, Any]) -> fx.GraphModule:
    """The graph of a layer on inputs of these types; its fast path is avoided, because that is a single kernel."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        tracer = _Through()
        graph = tracer.trace(layer, {name: _zeros_of_type(value) for name, value in types.items()})
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return build_graph_module(graph, layer, {} if tracer.run is None else tracer.run.constants)


def _zeros_of_type(fact: Any) -> Any:
    """A tensor of a type, filled with zeros: a mask of zeros is never taken for a special one."""
    if not isinstance(fact, TensorType):
        return fact
    return torch.zeros(fact.shape, dtype=getattr(torch, fact.dtype))


class _Through(MaseTracer):
    """Runs through the modules that are made of others."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, _COMPOSED) and super().is_leaf_module(m, module_qualified_name)


# The parts of a graph that are the calls of one module.

_OUTSIDE = ("placeholder", "output")


@dataclass(slots=True)
class Region:
    """Consecutive nodes that a module's forward made, including those of the modules inside it."""

    path: str
    kind: str
    nodes: list[fx.Node] = field(default_factory=list)


def module_kinds(graph: MaseGraph) -> dict[str, str]:
    """The class name of every module whose forward was run through, by path, without the model itself."""
    found = {} if graph.recording is None else {path: kind.__name__ for path, kind in graph.recording.run.scopes}
    for node in graph.fx_graph.nodes:
        scope = node.meta.get("scope")
        if scope is not None:
            found.setdefault(scope.module_path, getattr(scope.module_type, "__name__", str(scope.module_type)))
    return {path: kind for path, kind in found.items() if path}


def module_paths(graph: fx.Graph) -> dict[fx.Node, str]:
    """The module of each node; a node that a pass inserted belongs to the module of the node after it."""
    found: dict[fx.Node, str] = {}
    path = ""
    for node in reversed(list(graph.nodes)):
        scope = node.meta.get("scope")
        path = found[node] = path if scope is None else scope.module_path
    return found


def is_inside(path: str, module: str) -> bool:
    """Is this the module, or one inside of it?"""
    return not module or path == module or path.startswith(f"{module}.")


def innermost_paths(paths: Iterable[str]) -> list[str]:
    """The paths that contain none of the others."""
    known = list(paths)
    return [path for path in known if not any(other.startswith(f"{path}.") for other in known)]


def outermost_paths(paths: Iterable[str]) -> list[str]:
    """The paths that are inside none of the others."""
    known = list(paths)
    return [path for path in known if not any(path.startswith(f"{other}.") for other in known)]


def selected_paths(graph: MaseGraph, selection: Selection) -> list[str]:
    """The paths of the modules that a selection covers; a node's name means the module around it."""
    paths = module_paths(graph.fx_graph)
    around = {paths[node] for node in graph.fx_graph.nodes if node.name in selection.only}
    present = {path for node, path in paths.items() if node.op not in _OUTSIDE}
    known = [path for path in module_kinds(graph) if any(is_inside(each, path) for each in present)]
    if not selection.only:
        return known
    return [path for path in known if path in around or any(is_inside(path, text) for text in selection.only)]


def find_regions(graph: MaseGraph, path: str) -> Iterator[Region]:
    """The runs of consecutive nodes of one module; a read of an attribute belongs to the nodes that use it."""
    kind = module_kinds(graph)[path]
    paths = module_paths(graph.fx_graph)
    region = Region(path, kind)
    for node in graph.fx_graph.nodes:
        if node.op == "get_attr":
            continue
        if node.op not in _OUTSIDE and is_inside(paths[node], path):
            region.nodes.append(node)
        elif region.nodes:
            yield region
            region = Region(path, kind)
    if region.nodes:
        yield region


# raise_granularity_transform_pass: a module's computation as one node.

_RAISE_GRANULARITY_DEFAULTS: Mapping[str, Any] = MappingProxyType({"level": "innermost", "only": ()})
_LEVELS = {"innermost": innermost_paths, "outermost": outermost_paths}


@transform(
    "Take modules together as one node each",
    arguments=(
        Argument(
            "level",
            "choice",
            "which modules: those without others inside, or the largest",
            "innermost",
            choices=tuple(_LEVELS),
        ),
    ),
    selects=True,
)
def raise_granularity_transform_pass(
    graph: MaseGraph, pass_args: Mapping[str, Any] = _RAISE_GRANULARITY_DEFAULTS
) -> Result:
    """Join the nodes that a module's forward made into one call of a module at the same path.

    level: "innermost" for modules that call no other one that is run through, "outermost" for the largest ones: those
    that `only` names, or the model's own parts.  only: modules and nodes to work on; without it, the whole graph.
    The new module is a GraphModule of the same class name that computes what the nodes did, roundings included, with
    the same parameters; the person's own is not changed. Other passes see one node; lower_granularity_transform_pass
    takes it apart again.  A module that is called twice in a row is one node, and where another module's nodes stand
    between those of one, each part is a node.
    Gives {"raised": nodes taken together, without reads of attributes, by module path}.  ValueError for another level
    or an unknown name.
    Source: `chop.passes.graph.transforms.granularity.raise_granularity_transform_pass`.

    >>> class Block(nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) * 2
    >>> graph = MaseGraph(nn.Sequential(nn.Linear(4, 2), Block()), {"input": torch.randn(3, 4)})
    >>> graph, found = passes.raise_granularity_transform_pass(graph)
    >>> found["raised"], [str(node.target) for node in graph.nodes if node.op == "call_module"]
    ({'1': 2}, ['0', '1'])
    """
    given = complete_options("raise_granularity_transform_pass", pass_args, _RAISE_GRANULARITY_DEFAULTS)
    if given["level"] not in _LEVELS:
        raise ValueError(f"raise_granularity: level is {given['level']!r}, expected {' or '.join(_LEVELS)}")
    selection = Selection.of(given["only"]).checked(graph.fx_graph)
    raised: dict[str, int] = {}
    for path in _LEVELS[given["level"]](selected_paths(graph, selection)):
        raised[path] = _raise_module(graph, path)
    return graph, {"raised": raised}


def _raise_module(graph: MaseGraph, path: str) -> int:
    """Join every region of a module; return the number of nodes in them."""
    model, kinds = graph.module, module_kinds(graph)
    above = max((each for each in kinds if each != path and is_inside(path, each)), key=len, default="")
    parent = Scope(above, kinds.get(above))
    targets: dict[tuple[Any, ...], str] = {}
    outlines = [Outline(region, model) for region in find_regions(graph, path)]
    places = _free_paths(model, path)
    for outline in outlines:
        if outline.key not in targets:
            targets[outline.key] = next(places)
        outline.put(graph.fx_graph, targets[outline.key], parent)
    for outline in outlines:
        target = targets[outline.key]
        if target == path:
            _keep_shared_parts(model, graph.fx_graph, path, outline.module)
        model.add_submodule(target, outline.module)
    return sum(len(outline.region.nodes) for outline in outlines)


def _free_paths(model: fx.GraphModule, path: str) -> Iterator[str]:
    """Free paths for new modules: the path itself, next to it if it is taken, or the top level if it is inside a module
    of the user's."""
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


def _keep_shared_parts(model: fx.GraphModule, graph: fx.Graph, path: str, made: fx.GraphModule) -> None:
    """Keep the parts of a replaced module that other nodes still use at their paths."""
    for node in graph.nodes:
        target = str(node.target)
        if node.op in ("get_attr", "call_module") and target.startswith(f"{path}."):
            name = target.removeprefix(f"{path}.")
            fx.graph_module._assign_attr(attribute(model, target), made, name)


# Outlining and inlining: consecutive nodes of a graph become a module of their own, and back.

#: The attribute under which an outlined module holds parameters that it shares with another module.
OUTER = "outer"


class Outline:
    """One region as a module.

    outputs: its nodes that others use.  module: its computation.
    """

    def __init__(self, region: Region, model: nn.Module) -> None:
        self.region = region
        inside = set(region.nodes)
        self.outputs = [node for node in region.nodes if any(user not in inside for user in node.users)]
        self._prefix = f"{region.path}."
        self._held: dict[str, object] = {}
        self._model = model
        graph = self._graph()
        self.module = fx.GraphModule(self._held, graph, region.kind)
        # Not train(): that would change the modules inside, which are the user's own.
        self.module.training = model.training

    @property
    def inputs(self) -> list[fx.Node]:
        """The nodes that it takes now, in order: results of another region changed when that one was put."""
        inside = set(self.region.nodes)
        sources = (source for node in self.region.nodes for source in node.all_input_nodes)
        return _unique_nodes(source for source in sources if source not in inside and source.op != "get_attr")

    def _graph(self) -> fx.Graph:
        graph = fx.Graph()
        made = {node: graph.placeholder(f"input_{index}") for index, node in enumerate(self.inputs)}
        for node in self.region.nodes:
            for source in node.all_input_nodes:
                if source not in made:
                    made[source] = self._copied(graph, source, made)
            if node not in made:
                made[node] = self._copied(graph, node, made)
        results = tuple(made[node] for node in self.outputs)
        graph.output(results[0] if len(results) == 1 else results)
        return graph

    def _copied(self, graph: fx.Graph, node: fx.Node, made: Mapping[fx.Node, fx.Node]) -> fx.Node:
        target = node.target
        if node.op in ("get_attr", "call_module"):
            target = self._own(str(target))
            self._held[target] = attribute(self._model, str(node.target))
        args, kwargs = (map_nodes(part, made.__getitem__) for part in (node.args, node.kwargs))
        copy = graph.create_node(node.op, target, args, kwargs)
        copy.meta = {key: value for key, value in node.meta.items() if key != "mase"}
        copy.meta.setdefault(GIVES, node.name)
        return copy

    def _own(self, path: str) -> str:
        return path.removeprefix(self._prefix) if path.startswith(self._prefix) else f"{OUTER}.{path}"

    @property
    def key(self) -> tuple[Any, ...]:
        """Two outlines with one key are calls of the same module."""
        return self.region.path, self.module.code, tuple((name, id(held)) for name, held in self._held.items())

    def put(self, graph: fx.Graph, target: str, parent: Scope) -> fx.Node:
        """Replace the region's nodes by a call of the module at this path."""
        with graph.inserting_before(self.region.nodes[0]):
            call = graph.create_node("call_module", target, tuple(self.inputs))
        call.meta["scope"] = parent
        if len(self.outputs) == 1:
            call.meta.update(_kept_metadata(self.outputs[0]))
            self.outputs[0].replace_all_uses_with(call)
        else:
            self._unpack(graph, call)
        sources = _unique_nodes(source for node in self.region.nodes for source in node.all_input_nodes)
        for node in reversed(self.region.nodes):
            graph.erase_node(node)
        for source in sources:
            if source.op == "get_attr" and not source.users:
                graph.erase_node(source)
        return call

    def _unpack(self, graph: fx.Graph, call: fx.Node) -> None:
        inside = {*self.region.nodes}
        after = call
        for index, node in enumerate(self.outputs):
            with graph.inserting_after(after):
                after = graph.call_function(operator.getitem, (call, index))
            after.meta.update(_kept_metadata(node), scope=call.meta["scope"])
            for user in [user for user in node.users if user not in inside]:
                user.replace_input_with(node, after)


def inline_call(model: nn.Module, call: fx.Node, inner: fx.GraphModule, given: Mapping[str, Any], inside: str) -> None:
    """Replace the call of a module by the module's nodes. given: its inputs by name; inside: the path that its nodes'
    scopes are relative to, "" if they are absolute."""
    graph, path = call.graph, str(call.target)
    made: dict[fx.Node, Any] = {}
    for node in inner.graph.nodes:
        if node.op == "placeholder":
            made[node] = given[str(node.target)] if str(node.target) in given else node.args[0]
            continue
        args, kwargs = (map_nodes(part, made.__getitem__) for part in (node.args, node.kwargs))
        if node.op == "output":
            _replace_call(call, args[0])
            break
        target = node.target
        if node.op in ("get_attr", "call_module"):
            target = _absolute_path(model, path, str(target))
        with graph.inserting_before(call):
            copy = made[node] = graph.create_node(node.op, target, args, kwargs)
        copy.meta = _move_metadata(node.meta, inside)
    graph.erase_node(call)


def _replace_call(call: fx.Node, result: Any) -> None:
    """Let the users of the call use its result, and take parts of it directly."""
    if isinstance(result, fx.Node):
        result.meta.update(_kept_metadata(call))
        call.replace_all_uses_with(result)
        return
    for user in list(call.users):
        if user.target is operator.getitem and isinstance(part := result[user.args[1]], fx.Node):
            user.replace_all_uses_with(part)
            user.graph.erase_node(user)
        else:
            user.args, user.kwargs = (
                map_nodes(given, lambda node: result if node is call else node) for given in (user.args, user.kwargs)
            )


def _absolute_path(model: nn.Module, path: str, name: str) -> str:
    """The path in the model of a name that an inlined module calls."""
    if name.startswith(f"{OUTER}."):
        outer = name.removeprefix(f"{OUTER}.")
        try:
            if attribute(model, outer) is attribute(model, f"{path}.{name}"):
                return outer
        except AttributeError:
            pass
    return f"{path}.{name}"


def _move_metadata(meta: Mapping[str, Any], inside: str) -> dict[str, object]:
    if not inside:
        return {key: value for key, value in meta.items() if key != "mase"}
    found, scope = {"value": meta.get("value")}, meta.get("scope")
    if scope is not None:
        path = ".".join(filter(None, (inside, scope.module_path)))
        found["scope"] = Scope(path, scope.module_type)
    return found


def _kept_metadata(node: fx.Node) -> dict[str, object]:
    """The metadata of a result that stays true when another node gives the result."""
    kept: dict[str, object] = {key: node.meta[key] for key in ("call", "value") if key in node.meta}
    return {**kept, GIVES: node.meta.get(GIVES, node.name)}


def _unique_nodes(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    return list(dict.fromkeys(nodes))
