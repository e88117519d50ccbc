"""A part of a design as a design of its own: what flows into it becomes its inputs, as it flows there."""

from __future__ import annotations

from collections.abc import Container

from mase_server.hardware.design import Design, Operation


def part(design: Design, names: Container[str], nodes: Container[str] = ()) -> Design:
    """The operations of these names, with what only serves them: buffers and constants before them.

    Streams keep format, shape and order.  What others read of them, or the whole gives, are its outputs.
    nodes: those without hardware that belong to it.
    """
    kept = _kept(design, names)
    operations: dict[str, Operation] = {}
    for operation in kept.values():
        for source in operation.inputs:
            if source not in kept:
                operations.setdefault(source, _entry(design.operations[source]))
        operations[operation.name] = operation
    outputs = [name for name in kept if _leaves(design, kept, name)]
    missing = tuple(each for each in design.unsupported if each.node in nodes)
    cut = design.cut.intersection(operations) if missing else frozenset[str]()
    return Design(operations, tuple(outputs), missing, cut)


def _kept(design: Design, names: Container[str]) -> dict[str, Operation]:
    kept: dict[str, Operation] = {}
    for operation in reversed(list(design.operations.values())):
        serves = operation.kind == "constant" or not operation.nodes
        if operation.name in names or (serves and any(user.name in kept for user in design.users(operation.name))):
            kept[operation.name] = operation
    return dict(reversed(list(kept.items())))


def _entry(operation: Operation) -> Operation:
    """An input that gives what an operation gives."""
    options = operation.options if operation.kind == "input" else {}
    return Operation(operation.name, "input", (), operation.out, operation.nodes, options=options)


def _leaves(design: Design, kept: Container[str], name: str) -> bool:
    """Does something outside read this? A buffer that serves both sides is no result."""
    if not design.operations[name].nodes or design.operations[name].kind == "constant":
        return False
    users = design.users(name)
    return name in design.outputs or not users or any(user.name not in kept for user in users)
