"""The instance in hardware of every node of a graph, with its parameters under MASE's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from mase_server.hardware.design import Design, Fold, Folding, Operation, Stream
from mase_server.hardware.kinds.kind import image_order
from mase_server.hardware.netlist import build_netlist
from mase_server.hardware.verilog import Instance, Joined, Netlist, Wide, find_components, precision_parameters


@dataclass(frozen=True, slots=True)
class Becomes:
    """The hardware of a node. instance: the component's, which may contain other nodes too; "" if there is none.

    is_own: is the instance named after this node?  lanes: elements of a beat of the result.
    """

    instance: str
    module: str
    is_own: bool
    parameters: Mapping[str, int | str]
    lanes: int
    files: tuple[str, ...]


def describe_instances(graph: fx.Graph, design: Design, folding: Folding) -> dict[str, Becomes]:
    """The hardware of a graph's nodes, by their names; nodes that need none are missing."""
    made = build_netlist(design, folding)
    widths = {wires.name: wires.width for wires in made.wires} | {tap.data: tap.width for tap in made.inputs}
    found: dict[str, Becomes] = {}
    for operation in design.operations.values():
        instance = _main_instance(made, operation)
        if instance is not None:
            own = _describe_operation(design, folding, operation, instance, widths)
            found |= {name: own if name == operation.nodes[0] else _part_of(own) for name in operation.nodes}
    missing = {each.node for each in design.unsupported}
    return found | _describe_rest([node for node in graph.nodes if node.name not in missing], found)


def _describe_rest(nodes: Sequence[fx.Node], found: Mapping[str, Becomes]) -> dict[str, Becomes]:
    """A node that only moves elements belongs to its source's instance; a rounding of a parameter, to its user's."""
    rest: dict[str, Becomes] = {}
    computed = [node for node in nodes if node.op not in ("placeholder", "get_attr", "output")]
    for ordered, neighbours in ((computed, _source_names), (computed[::-1], _user_names)):
        for node in ordered:
            known = {**found, **rest}
            near = next((known[each] for each in neighbours(node) if each in known), None)
            if node.name not in known and near is not None:
                rest[node.name] = _part_of(near)
    return rest


def _source_names(node: fx.Node) -> list[str]:
    return [each.name for each in node.all_input_nodes]


def _user_names(node: fx.Node) -> list[str]:
    return [each.name for each in node.users]


def _part_of(own: Becomes) -> Becomes:
    return Becomes(own.instance, own.module, False, {}, own.lanes, ())


def _main_instance(made: Netlist, operation: Operation) -> Instance | None:
    """The instance that computes; others convert, fork and buffer for it. None for an operation that only moves
    elements."""
    return next((each for each in made.instances if each.name == f"{operation.name}_i"), None)


def _describe_operation(
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
        lanes = _of_constant(operation.kind, fold, sizes)
        found |= {
            **_plain_parameter_values(precision_parameters(name.upper(), constant.format)),
            **_of_tensor(name.upper(), sizes, lanes),
        }
    lanes_out = widths[instance.ports["data_out_0"]] // operation.out.format.width
    found |= _of_stream("DATA_OUT_0", operation.out, lanes_out) | _plain_parameter_values(instance.parameters)
    files = tuple(path.name for path in find_components(instance.module))
    return Becomes(instance.name, instance.module, True, found, lanes_out, files)


def _plain_parameter_values(parameters: Mapping[str, int | str | Wide | Joined]) -> dict[str, int | str]:
    plain = {name: value for name, value in parameters.items() if not isinstance(value, Joined)}
    return {name: value.value if isinstance(value, Wide) else value for name, value in plain.items()}


def _of_stream(name: str, stream: Stream, lanes: int) -> dict[str, int | str]:
    """Dimension 0 is the one along which elements flow: the last one, or the channels of images."""
    shape = stream.shape
    if stream.order is not None and len(shape) == 3 and torch.equal(stream.order, image_order(shape)):
        shape = (*shape[1:], shape[0])
    return {
        **_plain_parameter_values(precision_parameters(name, stream.format)),
        **_of_tensor(name, shape[::-1], (lanes,)),
    }


def _of_constant(kind: str, fold: Fold | None, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The number of elements read at once, for each dimension."""
    rank = len(sizes)
    if fold is None:
        return ()
    if kind == "conv2d" and rank == 4:
        return (*fold.taps[::-1], min(fold.par_in, sizes[2]), fold.par_out)
    if kind == "recurrent":
        return fold.taps[2 - rank :]
    return (fold.par_in, fold.par_out) if kind == "linear" and rank == 2 else (fold.par_out,)


def _of_tensor(name: str, sizes: tuple[int, ...], lanes: tuple[int, ...]) -> dict[str, int]:
    found = {f"{name}_TENSOR_SIZE_DIM_{dim}": size for dim, size in enumerate(sizes)}
    all_lanes = (*lanes, *(1 for _ in sizes))
    return found | {f"{name}_PARALLELISM_DIM_{dim}": all_lanes[dim] for dim in range(len(sizes))}
