"""Reading a forward's source: which parts of a parameter it reads, and what it goes through together with it."""

from __future__ import annotations

import ast

import torch
from torch import nn

from mase_server.inputs.searching.forward import Source, in_order


def keys_of(model: nn.Module, name: str) -> dict[str, bool]:
    """The string keys (False) and attributes (True) that forward reads from a parameter, in order."""
    source = Source.of(model, model.forward)
    found: dict[str, bool] = {}
    uses = reads = 0
    for node in in_order(source.node) if source else ():
        match node:
            case ast.Name(id=owner) if owner == name:
                uses += 1
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key))) if owner == name:
                found.setdefault(key, False)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=owner), attr="get" | "pop"),
                args=[ast.Constant(value=str(key)), *_],
            ):
                if owner == name:
                    found.setdefault(key, False)
            case ast.Attribute(value=ast.Name(id=owner), attr=key) if owner == name and not _is_common(key):
                found.setdefault(key, True)
                reads += 1
    # What is also used as a whole is a tensor, and its unknown attribute a mistake.
    return {key: attribute for key, attribute in found.items() if not attribute or reads == uses}


def _is_common(attribute: str) -> bool:
    """Has every tensor, or every dict, such an attribute?"""
    return hasattr(torch.Tensor, attribute) or hasattr(dict, attribute)


def members_of(model: nn.Module, name: str) -> int:
    """How many members of a parameter forward reads by number (`xs[0]`, `xs[1]`); 0 where it reads none."""
    source = Source.of(model, model.forward)
    numbers = [-1]
    for node in ast.walk(source.node) if source else ():
        match node:
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=int(index))) if owner == name:
                numbers.append(index)
    return max(numbers) + 1


def walked_with(model: nn.Module, name: str) -> dict[str | int, nn.Module]:
    """Layers that forward goes through side by side with a parameter: `zip(self.layers, xs)`, `self.layers[key](x)`."""
    source = Source.of(model, model.forward)
    if source is None:
        return {}
    for node in ast.walk(source.node):
        match node:
            case ast.Call(func=ast.Name(id="zip"), args=parts) if any(_is_name(part, name) for part in parts):
                for layers in map(source.resolve, parts):
                    if isinstance(layers, nn.ModuleList):
                        return dict(enumerate(layers))
            case (
                ast.comprehension(iter=ast.Call(func=ast.Attribute(value=owner, attr="items")))
                | ast.For(iter=ast.Call(func=ast.Attribute(value=owner, attr="items")))
            ) if _is_name(owner, name):
                for layer in model.children():
                    if isinstance(layer, nn.ModuleDict):
                        return {**dict(layer.items())}
    return {}


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def parts_of(model: nn.Module, name: str) -> int:
    """How many values forward unpacks from a parameter (`a, b = pair`); 0 where it does not."""
    source = Source.of(model, model.forward)
    for node in in_order(source.node) if source else ():
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Name(id=owner)) if owner == name:
                return len(targets)
    return 0


def target_of(model: nn.Module, name: str, index: int) -> ast.expr | None:
    """What forward unpacks a member of a parameter into (`a, (b, c) = pair`); None where it does not."""
    source = Source.of(model, model.forward)
    for node in in_order(source.node) if source else ():
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Name(id=owner)) if owner == name:
                return targets[index] if index < len(targets) else None
    return None


def reads_members(model: nn.Module, name: str) -> bool:
    """Does forward read members of a parameter by a number (`features[0]`)?"""
    source = Source.of(model, model.forward)
    reads = (node for node in in_order(source.node) if isinstance(node, ast.Subscript)) if source else ()
    return any(
        isinstance(node.value, ast.Name) and node.value.id == name and isinstance(node.slice, ast.Constant)
        for node in reads
    )
