"""Fitting: from the sizes seen at several probes to an expression in the symbols.

An expression is a polynomial with integer coefficients in *atoms* `(S + offset) // divisor`, which covers what layers
do to a dimension: `B*T`, `T + 1`, `(H + 1)//2`, `(H//16)*(W//16) + 1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from math import prod

Sizes = Mapping[str, int]

#: Divisors that strides, patches and pooling produce, the likely ones first.
DIVISORS = (2, 4, 8, 16, 32, 3, 64, 14, 5, 6, 7, 9, 10, 12, 20, 24, 28, 128, 256, 512, 160, 320)
#: Factors that up-sampling produces.
FACTORS = (2, 4, 8, 3, 16, 32)
MAX_COEFFICIENT = 1 << 20


@dataclass(frozen=True, slots=True)
class Atom:
    """`(symbol + offset) // divisor`."""

    symbol: str
    offset: int = 0
    divisor: int = 1

    def at(self, sizes: Sizes) -> int:
        """Its value at the given sizes."""
        return (sizes[self.symbol] + self.offset) // self.divisor

    def __str__(self) -> str:
        inner = f"{self.symbol}{self.offset:+d}" if self.offset else self.symbol
        if self.divisor == 1:
            return f"({inner})" if self.offset else inner
        return f"({inner})//{self.divisor}" if self.offset else f"{inner}//{self.divisor}"


@dataclass(frozen=True)
class Expr:
    """`constant + sum of coefficient * product of atoms`.

    >>> str(Expr(1, ((1, (Atom("H", 0, 16), Atom("W", 0, 16))),)))
    '(H//16)*(W//16)+1'
    """

    constant: int = 0
    terms: tuple[tuple[int, tuple[Atom, ...]], ...] = ()

    @property
    def is_constant(self) -> bool:
        """Does it mention no symbol?"""
        return not self.terms

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The symbols that it mentions."""
        return frozenset(atom.symbol for _, atoms in self.terms for atom in atoms)

    def at(self, sizes: Sizes) -> int:
        """Its value at the given sizes."""
        return self.constant + sum(factor * prod(atom.at(sizes) for atom in atoms) for factor, atoms in self.terms)

    @cached_property
    def _text(self) -> str:
        text = ""
        for factor, atoms in sorted(self.terms, key=lambda term: -len(term[1])):
            parts = [str(atom) for atom in atoms]
            if len(parts) > 1 or abs(factor) != 1:
                parts = [f"({part})" if "//" in part else part for part in parts]
            sign = "-" if factor < 0 else "+" if text else ""
            text += sign + "*".join(([str(abs(factor))] if abs(factor) != 1 else []) + parts)
        if self.constant or not text:
            text += f"{self.constant:+d}" if text else str(self.constant)
        return text

    def __str__(self) -> str:
        return self._text


class Fitter:
    """Fits sizes seen at `points`, the sizes of all symbols at the base run and at each probe.

    >>> fitter = Fitter([{"B": 2, "T": 16}, {"B": 5, "T": 13}, {"B": 7, "T": 11}])
    >>> str(fitter.fit((32, 65, 77)))
    'B*T'
    """

    def __init__(self, points: Sequence[Sizes]) -> None:
        """points: one may stand there again, for a run at the same sizes with other values."""
        self.points = points
        self.symbols = [name for name in points[0] if len({point[name] for point in points}) > 1]
        self._first = [next(i for i, other in enumerate(points) if other == point) for point in points]
        self._distinct = [point for i, point in enumerate(points) if self._first[i] == i]
        self._memo: dict[tuple[int, ...], Expr | None] = {}
        #: Values at the distinct points whose fit rests on no more points than it has unknowns.
        self.ambiguous: set[tuple[int, ...]] = set()
        #: (symbol, divisor, offset): a size that is -offset modulo divisor would tell more about an ambiguous value.
        self.open_questions: list[tuple[str, int, int]] = []

    def fit(self, values: tuple[int, ...]) -> Expr | None:
        """The simplest expression that gives `values[i]` at `points[i]`; None if none is found."""
        if any(values[first] != value for first, value in zip(self._first, values, strict=True)):
            return None
        told = tuple(value for i, value in enumerate(values) if self._first[i] == i)
        if told not in self._memo:
            self._memo[told] = self._search(told)
        return self._memo[told]

    def doubt(self) -> None:
        """Forget every fit that rests on too few points: better none than a chance one."""
        self._memo |= dict.fromkeys(self.ambiguous)

    def text(self, values: tuple[int, ...]) -> str:
        """The fit as text, "?" where there is none."""
        found = self.fit(values)
        return "?" if found is None else str(found)

    def _search(self, values: tuple[int, ...]) -> Expr | None:
        if len(set(values)) == 1:
            return Expr(values[0])
        plain = [Atom(name) for name in self.symbols]
        for atoms in self._monomials(plain):
            found = self._affine(atoms, values)
            if found is not None:
                return found
        found = self._floor(values) or self._mixed(plain, values) or self._floor_products(values)
        return found or self._falling(plain, values)

    def _falling(self, plain: list[Atom], values: tuple[int, ...]) -> Expr | None:
        """constant - factor * S: what is left of a fixed length. Rare, so believed only after a further probe."""
        for atom in plain:
            found = self._affine((atom,), values, sign=-1)
            if found is not None:
                self.ambiguous.add(values)
                return found
        return None

    def _monomials(self, plain: list[Atom]) -> Iterator[tuple[Atom, ...]]:
        for degree in (1, 2, 3):
            yield from combinations_with_replacement(plain, degree)

    def _affine(self, atoms: tuple[Atom, ...], values: tuple[int, ...], sign: int = 1) -> Expr | None:
        """coefficient * product of atoms + constant."""
        base = [prod(atom.at(point) for atom in atoms) for point in self._distinct]
        pair = next(((i, j) for i, j in combinations(range(len(base)), 2) if base[i] != base[j]), None)
        if pair is None:
            return None
        first, second = pair
        factor, rest = divmod(values[second] - values[first], base[second] - base[first])
        if rest or not 0 < sign * factor <= MAX_COEFFICIENT:
            return None
        constant = values[first] - factor * base[first]
        if any(factor * b + constant != value for b, value in zip(base, values, strict=True)):
            return None
        if len(atoms) > 1 and constant and len(self._distinct) < 4:
            self.ambiguous.add(values)
        return Expr(constant, ((factor, atoms),))

    def _floor(self, values: tuple[int, ...]) -> Expr | None:
        for name in self.symbols:
            for divisor in DIVISORS:
                atom = self._floor_atom(name, divisor, values)
                if atom is not None:
                    return Expr(0, ((1, (atom,)),))
        for name in self.symbols:
            found = self._scaled_floor(name, values)
            if found is not None:
                return found
        return None

    def _floor_atom(self, name: str, divisor: int, values: tuple[int, ...]) -> Atom | None:
        """The offsets that fit are an interval: its most usual member, marked where it is not the only one."""
        low = max(value * divisor - point[name] for value, point in zip(values, self._distinct, strict=True))
        high = min(
            value * divisor - point[name] + divisor - 1 for value, point in zip(values, self._distinct, strict=True)
        )
        if low > high:
            return None
        if low < high:
            self.ambiguous.add(values)
            self.open_questions.append((name, divisor, (low + high + 1) // 2))
        usual = [offset for offset in (0, divisor - 1, divisor // 2, -divisor) if low <= offset <= high]
        return Atom(name, usual[0] if usual else low, divisor)

    def _scaled_floor(self, name: str, values: tuple[int, ...]) -> Expr | None:
        """factor * ((S + offset) // divisor) + constant, as up-sampling after down-sampling gives."""
        for factor in FACTORS:
            constant = values[0] % factor
            if any(value % factor != constant for value in values):
                continue
            scaled = tuple(value // factor for value in values)
            for divisor in DIVISORS:
                atom = self._floor_atom(name, divisor, scaled)
                if atom is not None:
                    self.ambiguous |= {values} if scaled in self.ambiguous else set()
                    return Expr(constant, ((factor, (atom,)),))
        for divisor in DIVISORS:
            for offset in (0, divisor - 1):
                found = self._affine((Atom(name, offset, divisor),), values)
                if found is not None:
                    return found
        return None

    def _mixed(self, plain: list[Atom], values: tuple[int, ...]) -> Expr | None:
        """a + b*S + c*U, or b*S + c*S*U: two different monomials."""
        monomials = list(self._monomials(plain))
        for pair in combinations(monomials, 2):
            solved = self._solve(pair, values)
            if solved is not None:
                return solved
        return None

    def _solve(self, pair: tuple[tuple[Atom, ...], tuple[Atom, ...]], values: tuple[int, ...]) -> Expr | None:
        rows = [[prod(atom.at(point) for atom in atoms) for atoms in pair] for point in self._distinct]
        for constant_too in (False, True):
            unknowns = 3 if constant_too else 2
            if len(rows) < unknowns:
                return None
            system = [[*row, 1][:unknowns] for row in rows]
            whole = _solve_whole(system[:unknowns], list(values[:unknowns]))
            if whole is None or any(abs(x) > MAX_COEFFICIENT for x in whole) or min(whole[:2]) <= 0:
                continue
            found = Expr(whole[2] if constant_too else 0, tuple(zip(whole, pair, strict=False)))
            if all(found.at(point) == value for point, value in zip(self._distinct, values, strict=True)):
                if len(rows) <= unknowns:
                    self.ambiguous.add(values)
                return found
        return None

    def _floor_products(self, values: tuple[int, ...]) -> Expr | None:
        """factor * (S // k) * (U // k or U) + constant: grids of patches, batches of windows."""
        for first, second in combinations_with_replacement(self.symbols, 2):
            for divisor in DIVISORS:
                one, other = Atom(first, 0, divisor), Atom(second, 0, divisor)
                for pair in ((one, other), (Atom(first), other), (Atom(second), one)):
                    found = self._affine(pair, values)
                    if found is not None:
                        return found
        return None


def _solve_whole(matrix: list[list[int]], right: list[int]) -> list[int] | None:
    """Whole numbers that solve two or three equations, by Cramer's rule; None where none do or the matrix is singular.

    Thousands of systems are tried for one shape: rational elimination would take seconds.
    """
    whole = _determinant(matrix)
    if not whole:
        return None
    found = []
    for column in range(len(matrix)):
        replaced = [[*row[:column], value, *row[column + 1 :]] for row, value in zip(matrix, right, strict=True)]
        value, rest = divmod(_determinant(replaced), whole)
        if rest:
            return None
        found.append(value)
    return found


def _determinant(matrix: list[list[int]]) -> int:
    if len(matrix) == 2:
        (a, b), (c, d) = matrix
        return a * d - b * c
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
