"""A try that failed: what was handed to the forward, where its error arose, and which inputs that came from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import nn

from mase_server.inputs.making.clues import Clue, Step, clue_of
from mase_server.inputs.searching.tracking import Trail, operands, trail_of
from mase_server.inputs.searching.trees import Path, places, tensors, values_at
from mase_server.inputs.spec import Inputs, Spec, TensorSpec


@dataclass(frozen=True, slots=True)
class Failed:
    """What is known of a failed try. text: `Type: message`.

    progress: how far it came.  places: the place of every value that was handed over, by its id.  clue: the statements
    that the error passed.
    """

    model: nn.Module
    inputs: Inputs
    error: BaseException
    text: str
    trail: Trail
    clue: Clue
    places: dict[int, Path]
    specs: dict[Path, Spec]
    progress: int = 0

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Inputs, values: dict[str, Any], error: BaseException, layers: int = 0
    ) -> Failed:
        """values: those that were handed over, by parameter name.  layers: how many modules were completed."""
        trail, clue = trail_of(error), clue_of(error, model.forward, {})
        pairs = (pair for name, spec in inputs.entries.items() for pair in values_at((name,), values[name], spec))
        found = {id(value): path for path, value in pairs if not isinstance(value, int | float | str | None)}
        progress = layers + trail.progress
        return cls(model, inputs, error, clue.text, trail, clue, found, dict(places(inputs)), progress)

    def is_of_inputs(self) -> bool:
        """Was the failing call given nothing but what was handed over, or computed from that alone?"""
        mode = self.trail.mode
        roots = set[int]().union(*(mode.sources_of(each) for each in operands(self.trail))) if mode is not None else ()
        return bool(roots) and all(each in self.places for each in roots)

    def place(self, value: Any) -> Path | None:
        """Where a value was handed over; None if it was not."""
        return self.places.get(id(value))

    def leaf(self, value: Any) -> TensorSpec | None:
        """The specification of a tensor that was handed over."""
        spec = self.specs.get(self.place(value) or ())
        return spec if isinstance(spec, TensorSpec) else None

    def sources(self, tensor: torch.Tensor) -> list[Path]:
        """The tensors handed over that one was computed from; all of them where nobody kept count."""
        if self.trail.mode is None:
            return [path for path, _ in tensors(self.inputs)]
        ids = self.trail.mode.sources_of(tensor)
        return [path for path, _ in tensors(self.inputs) if any(self.places.get(each) == path for each in ids)]

    def suspects(self) -> list[tuple[Path, TensorSpec]]:
        """Tensors handed over, those that the failing call and statements are about first."""
        direct = [self.place(tensor) for tensor in operands(self.trail)]
        held = [self.place(value) for _, value, _ in self.read()]
        behind = [path for tensor in operands(self.trail) for path in self.sources(tensor)]
        ordered = dict.fromkeys(path for path in (*direct, *held, *behind) if path is not None)
        pairs = ((path, self.specs.get(path)) for path in ordered)
        return [(path, spec) for path, spec in pairs if isinstance(spec, TensorSpec)]

    def read(self) -> Iterator[tuple[ast.expr, Any, Step]]:
        """Names, attributes and items that the failing statements read, innermost statement first."""
        for step in reversed(self.clue.steps):
            for each in ast.walk(_head(step.node)):
                if isinstance(each, ast.Name | ast.Attribute) or _is_item(each):
                    yield each, step.value(each), step


def _is_item(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """`batch["image"]`, `pair[0]`: nothing that computes a tensor."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def _head(node: ast.stmt) -> ast.AST:
    """What of a statement runs before the statements inside it."""
    match node:
        case ast.If(test=head) | ast.While(test=head) | ast.For(iter=head):
            return head
        case ast.With(items=items):
            return ast.Tuple([item.context_expr for item in items], ast.Load())
    return node
