"""Choosing a layout for every tensor: a linear program in whole numbers, solved by HiGHS."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from torch import fx

from mase_server.passes.sharding.layouts import Layout
from mase_server.passes.sharding.problem import Choice, Problem, Solution, Strategy, Transfer, evaluated


def solve(problem: Problem, seconds: float) -> Solution:
    """The fastest choice, as far as it was found within so many seconds.

    ValueError where no choice fits into the memory; TimeoutError where none was found in time; ImportError where scipy
    is not installed.
    """
    return _Program(problem).solved(seconds)


class _Program:
    """The problem as columns and rows.

    Each strategy has a column that is 0 or 1, one of a node's being 1. Each pair of a transfer has one from 0 to 1,
    whose sums are those of the two nodes' layouts: they are then whole by themselves. Where several users want the same
    layout it is made once, so that pairs have another column for all users, which alone costs something.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.costs: list[float] = []
        self.is_whole: list[int] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []
        self.places = {node: self._strategies(choice) for node, choice in problem.choices.items()}
        shared: dict[tuple[fx.Node, Layout, Layout], int] = {}
        for transfer in problem.transfers:
            self._transfer(transfer, shared)
        if problem.memory is not None:
            self.rows.append((self._memory(), -math.inf, problem.memory))

    def _column(self, cost: float, is_whole: bool) -> int:
        self.costs.append(cost)
        self.is_whole.append(int(is_whole))
        return len(self.costs) - 1

    def _strategies(self, choice: Choice) -> list[int]:
        columns = [self._column(strategy.seconds, True) for strategy in choice.strategies]
        self.rows.append((dict.fromkeys(columns, 1.0), 1.0, 1.0))
        return columns

    def _transfer(self, transfer: Transfer, shared: dict[tuple[fx.Node, Layout, Layout], int]) -> None:
        columns = {}
        for source, target, cost in transfer.pairs:
            columns[source, target] = own = self._column(0.0, False)
            if cost:
                key = (transfer.source, source, target)
                if key not in shared:
                    shared[key] = self._column(cost, False)
                self.rows.append(({own: 1.0, shared[key]: -1.0}, -math.inf, 0.0))
        given = self._by_layout(transfer.source, lambda strategy: strategy.output)
        taken = self._by_layout(transfer.user, lambda strategy: strategy.inputs[transfer.place])
        for end, sums in ((0, given), (1, taken)):
            for layout in dict.fromkeys(pair[end] for pair in columns):
                row = {column: 1.0 for pair, column in columns.items() if pair[end] == layout}
                one = 1.0 if transfer.user not in self.places and end == 1 else 0.0
                self.rows.append((row | dict.fromkeys(sums.get(layout, ()), -1.0), one, one))

    def _by_layout(self, node: fx.Node, layout: Callable[[Strategy], Layout]) -> dict[Layout, list[int]]:
        found: dict[Layout, list[int]] = {}
        if node in self.places:
            for column, strategy in zip(self.places[node], self.problem.choices[node].strategies, strict=True):
                found.setdefault(layout(strategy), []).append(column)
        return found

    def _memory(self) -> dict[int, float]:
        return {
            column: strategy.bytes
            for node, choice in self.problem.choices.items()
            for column, strategy in zip(self.places[node], choice.strategies, strict=True)
            if strategy.bytes
        }

    def solved(self, seconds: float) -> Solution:
        """Run the solver."""
        optimize, sparse = _scipy()
        values: list[float] = []
        places: list[int] = []
        ends = [0]
        for row, _, _ in self.rows:
            values += row.values()
            places += row.keys()
            ends.append(len(places))
        matrix = sparse.csr_matrix((values, places, ends), shape=(len(self.rows), len(self.costs)))
        limits = optimize.LinearConstraint(matrix, [row[1] for row in self.rows], [row[2] for row in self.rows])
        # The solver's tolerances are absolute: costs are told in parts of the largest.
        unit = max(self.costs) or 1.0
        found = optimize.milp(
            [cost / unit for cost in self.costs], constraints=limits, integrality=self.is_whole,
            bounds=optimize.Bounds(0, 1), options={"time_limit": seconds},
        )  # fmt: skip
        if found.x is None:
            raise self._failure(found.status, seconds)
        return self._read(found.x, found.status == 0)

    def _failure(self, status: int, seconds: float) -> Exception:
        if status == 1:
            return TimeoutError(f"autosharding: no plan was found within {seconds:g} s; give it more with time_limit")
        least = sum(min(each.bytes for each in choice.strategies) for choice in self.problem.choices.values())
        return ValueError(
            f"autosharding: no plan fits into {self.problem.memory:,.0f} bytes of parameters on each device; "
            f"split as far as they can be they take {least:,.0f}"
        )

    def _read(self, values: Sequence[float], is_best: bool) -> Solution:
        chosen = {
            node: choice.strategies[max(range(len(columns)), key=lambda index: values[columns[index]])]
            for (node, choice), columns in zip(self.problem.choices.items(), self.places.values(), strict=True)
        }
        return evaluated(self.problem, chosen, is_best)


def _scipy() -> tuple[Any, Any]:
    try:
        return import_module("scipy.optimize"), import_module("scipy.sparse")
    except ImportError as error:
        raise ImportError(
            "autosharding needs the package scipy for its solver: pip install scipy (or mase-server[solve])"
        ) from error
