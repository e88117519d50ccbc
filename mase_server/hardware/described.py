"""What every node of a graph becomes: its instance, and that one's parameters under MASE's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from mase_server.hardware.design import Design, Operation, Stream
from mase_server.hardware.folding import Folding
from mase_server.hardware.folds import Fold
from mase_server.hardware.kinds.settings import image_order
from mase_server.hardware.library import components
from mase_server.hardware.netlist import netlist
from mase_server.hardware.wiring import Instance, Netlist, Parameters, Wide, precision


@dataclass(frozen=True, slots=True)
class Becomes:
    """What a node becomes. instance: the component's, which other nodes may be part of; "" where there is none.

    is_own: does the instance have its name from this node?  lanes: elements of a beat of the result.
    """

    instance: str
    module: str
    is_own: bool
    parameters: Mapping[str, int | str]
    lanes: int
    files: tuple[str, ...]


def described(graph: fx.Graph, design: Design, folding: Folding) -> dict[str, Becomes]:
    """What the nodes of a graph become, by their names; those that need no hardware are missing."""
    made = netlist(design, folding)
    widths = {wires.name: wires.width for wires in made.wires} | {tap.data: tap.width for tap in made.inputs}
    found: dict[str, Becomes] = {}
    for operation in design.operations.values():
        instance = _main(made, operation)
        if instance is not None:
            own = _described(design, folding, operation, instance, widths)
            found |= {name: own if name == operation.nodes[0] else _part_of(own) for name in operation.nodes}
    missing = {each.node for each in design.unsupported}
    return found | _rest([node for node in graph.nodes if node.name not in missing], found)


def _rest(nodes: Sequence[fx.Node], found: Mapping[str, Becomes]) -> dict[str, Becomes]:
    """What only moves elements is part of what gave them; what rounds a parameter, of what reads it."""
    rest: dict[str, Becomes] = {}
    computed = [node for node in nodes if node.op not in ("placeholder", "get_attr", "output")]
    for ordered, neighbours in ((computed, _sources), (computed[::-1], _users)):
        for node in ordered:
            known = {**found, **rest}
            near = next((known[each] for each in neighbours(node) if each in known), None)
            if node.name not in known and near is not None:
                rest[node.name] = _part_of(near)
    return rest


def _sources(node: fx.Node) -> list[str]:
    return [each.name for each in node.all_input_nodes]


def _users(node: fx.Node) -> list[str]:
    return [each.name for each in node.users]


def _part_of(own: Becomes) -> Becomes:
    return Becomes(own.instance, own.module, False, {}, own.lanes, ())


def _main(made: Netlist, operation: Operation) -> Instance | None:
    """The instance that computes; others convert, fork and wait for it. None for what only moves."""
    return next((each for each in made.instances if each.name == f"{operation.name}_i"), None)


def _described(
    design: Design, folding: Folding, operation: Operation, instance: Instance, widths: Mapping[str, int]
) -> Becomes:
    fold = folding.folds.get(operation.name)
    found: dict[str, int | str] = {}
    for index, name in enumerate(operation.inputs):
        stream = design.operations[name].out
        width = widths.get(instance.ports.get(f"data_in_{index}", ""), stream.format.width)
        found |= _of_stream(f"DATA_IN_{index}", stream, width // stream.format.width)
    for name, constant in operation.constants.items():
        sizes = tuple(reversed(constant.shape))
        lanes = _of_constant(operation.kind, fold, len(sizes))
        found |= {**_plain(precision(name.upper(), constant.format)), **_of_tensor(name.upper(), sizes, lanes)}
    lanes_out = widths[instance.ports["data_out_0"]] // operation.out.format.width
    found |= _of_stream("DATA_OUT_0", operation.out, lanes_out) | _plain(instance.parameters)
    files = tuple(path.name for path in components(instance.module))
    return Becomes(instance.name, instance.module, True, found, lanes_out, files)


def _plain(parameters: Parameters | Mapping[str, int | str | Wide]) -> dict[str, int | str]:
    return {name: value.value if isinstance(value, Wide) else value for name, value in parameters.items()}


def _of_stream(name: str, stream: Stream, lanes: int) -> dict[str, int | str]:
    """Dimension 0 is the one whose elements come one after the other: the last, of images the channels."""
    shape = stream.shape
    if stream.order is not None and len(shape) == 3 and torch.equal(stream.order, image_order(shape)):
        shape = (*shape[1:], shape[0])
    return {**_plain(precision(name, stream.format)), **_of_tensor(name, shape[::-1], (lanes,))}


def _of_constant(kind: str, fold: Fold | None, rank: int) -> tuple[int, ...]:
    """Elements that are read at once, of each dimension."""
    if fold is None:
        return ()
    if kind == "conv2d" and rank == 4:
        return (*fold.taps[::-1], fold.par_in, fold.par_out)
    return (fold.par_in, fold.par_out) if kind == "linear" and rank == 2 else (fold.par_out,)


def _of_tensor(name: str, sizes: tuple[int, ...], lanes: tuple[int, ...]) -> dict[str, int]:
    found = {f"{name}_TENSOR_SIZE_DIM_{dim}": size for dim, size in enumerate(sizes)}
    all_lanes = (*lanes, *(1 for _ in sizes))
    return found | {f"{name}_PARALLELISM_DIM_{dim}": all_lanes[dim] for dim in range(len(sizes))}
