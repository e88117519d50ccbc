"""einsum of two tensors: a product of matrices between two reorderings of dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from mase_server.formats.fixed import FixedPoint
from mase_server.hardware.composed.steps import Steps
from mase_server.hardware.design import Constant
from mase_server.hardware.held import Held, Later, NoHardware, Whole
from mase_server.hardware.kinds.swap import in_order

if TYPE_CHECKING:
    from mase_server.hardware.lowering import Lowering


@dataclass(frozen=True, slots=True)
class Equation:
    """The letters of an einsum of two tensors, without the batch's. NoHardware for any other than a product of
    matrices."""

    first: str
    second: str
    result: str

    @classmethod
    def of(cls, text: str, is_constant: tuple[bool, bool]) -> Equation:
        """Parse an equation. is_constant: for each operand, has it no batch?"""
        left, arrow, result = text.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(terms) != 2 or not arrow or "." in text or any(len(set(term)) < len(term) for term in terms):
            raise NoHardware(f"{text!r} is no product of two tensors; write it as matmul and sums")
        batch = result[:1]
        for term, constant in zip(terms, is_constant, strict=True):
            if constant == (batch in term) or (not constant and term[0] != batch):
                raise NoHardware(
                    f"{text!r} does not have the batch first in what depends on the inputs and in the result"
                )
        first, second = (term.replace(batch, "") for term in terms)
        found = cls(first, second, result[1:])
        alone = [letter for letter in found.first + found.second if letter not in found.result]
        if any(letter not in found.first or letter not in found.second for letter in alone):
            raise NoHardware(f"{text!r} sums one operand alone; sum it before")
        return found

    @property
    def batches(self) -> str:
        """The letters of both operands and the result: each index is a product of matrices of its own."""
        return "".join(letter for letter in self.result if letter in self.first and letter in self.second)

    @property
    def summed(self) -> str:
        """The letters of both operands that the result lacks."""
        return "".join(letter for letter in self.first if letter not in self.result)

    def own(self, term: str) -> str:
        """The letters of one operand and the result only."""
        return "".join(letter for letter in self.result if letter in term and letter not in self.batches)


def _lower_einsum(lowering: Lowering, node: fx.Node, given: Mapping[str, Any]) -> Held:
    text, *operands = _einsum_arguments(node)
    held = [lowering.held[each] for each in operands]
    steps = Steps(lowering, node)
    constant = isinstance(held[0], Constant), isinstance(held[1], Constant)
    if all(constant):
        raise NoHardware("it multiplies constants of several formats")
    equation = Equation.of(text, constant)
    names = [_einsum_stream(steps, each, is_constant) for each, is_constant in zip(operands, constant, strict=True)]
    sizes = _letter_sizes(steps, equation, names)
    rows = _as_matrices(steps, names[0], equation, equation.first, True)
    columns = _as_matrices(steps, names[1], equation, equation.second, False)

    def finish(format: FixedPoint) -> Whole:
        first, second = steps.stream(rows).shape, steps.stream(columns).shape
        sources = steps.by_rows(rows), _by_columns(steps, columns)
        shape = (*first[:-1], second[-1])
        made = steps.add("matmul", sources, format, shape, {"relu": False})
        letters = equation.batches + equation.own(equation.first) + equation.own(equation.second)
        whole = steps.reshaped(made, tuple(sizes[letter] for letter in letters))
        return Whole(steps.turned(whole, [letters.index(letter) for letter in equation.result]))

    return Later(finish)


def _einsum_arguments(node: fx.Node) -> list[Any]:
    text, *operands = node.args
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = list(operands[0])
    if not isinstance(text, str) or len(operands) != 2 or not all(isinstance(each, fx.Node) for each in operands):
        raise NoHardware("it is no product of two tensors; write it as matmul")
    return [text, *operands]


def _einsum_stream(steps: Steps, node: fx.Node, is_constant: bool) -> str:
    held = steps.lowering.held[node]
    if not is_constant or not isinstance(held, Constant):
        return steps.lowering.whole(node)
    return steps.constant(held.format.decode(held.integers), held.format, held.shape)


def _letter_sizes(steps: Steps, equation: Equation, names: list[str]) -> dict[str, int]:
    pairs = zip((equation.first, equation.second), names, strict=True)
    return {letter: size for term, name in pairs for letter, size in zip(term, steps.stream(name).shape, strict=True)}


def _as_matrices(steps: Steps, name: str, equation: Equation, term: str, is_first: bool) -> str:
    """[batches, own letters, summed letters] of the first operand; for the second, the last two are exchanged."""
    own, summed, batches = equation.own(term), equation.summed, equation.batches
    letters = batches + (own + summed if is_first else summed + own)
    turned = steps.turned(name, [term.index(letter) for letter in letters])
    shape = steps.stream(turned).shape
    count, split = len(batches), len(batches) + len(own if is_first else summed)
    return steps.reshaped(turned, (prod(shape[:count]), prod(shape[count:split]), prod(shape[split:])))


def _by_columns(steps: Steps, name: str) -> str:
    """The second operand of a product, column by column."""
    before = steps.stream(name)
    columns = torch.arange(before.size).reshape(before.shape).transpose(-1, -2).reshape(-1)
    return in_order(steps.lowering, name, columns)


COMPOSED = {"einsum": _lower_einsum}
