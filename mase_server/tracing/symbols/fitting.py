"""Fitting: from the sizes seen at several probes to an expression in the symbols.

An expression is a polynomial with integer coefficients in *atoms* `(S + offset) // divisor`, which covers the
effects of layers on a dimension: `B*T`, `T + 1`, `(H + 1)//2`, `(H//16)*(W//16) + 1`.

Further probes stand where they refute most candidates. A fit that may be chance, because it falls or rests on too few
points, is not believed, and a size that fits no formula is shown as `?`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, product
from math import prod

Sizes = Mapping[str, int]

#: A product of atoms, and its value at each point.
_Column = tuple[tuple["Atom", ...], tuple[int, ...]]

#: Divisors that strides, patches and pooling produce, the likely ones first.
DIVISORS = (2, 4, 8, 16, 32, 3, 64, 14, 5, 6, 7, 9, 10, 12, 20, 24, 28, 128, 256, 512, 160, 320)
#: A product of rounded sizes, or an unlikely multiple of one, is believed when it fits at so many points.
TRUSTED_POINTS = 5
#: The largest divisor of all, likely or not.
LARGEST_DIVISOR = 512
#: Fits with unlikely divisors that are tried against each other.
MOST_DIVISORS = 48
#: Factors that up-sampling produces.
FACTORS = (2, 4, 8, 3, 16, 32)
MAX_COEFFICIENT = 1 << 20
#: The most fitting offsets that are compared with each other.
MOST_OFFSETS = 8


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
        """points: one may repeat, for a run at the same sizes with other values."""
        self.points = points
        self.symbols = [name for name in points[0] if len({point[name] for point in points}) > 1]
        self._first = [next(i for i, other in enumerate(points) if other == point) for point in points]
        self._distinct = [point for i, point in enumerate(points) if self._first[i] == i]
        self._memo: dict[tuple[int, ...], Expr | None] = {}
        self._columns: dict[tuple[Atom, ...], tuple[int, ...]] = {}
        #: Values at the distinct points whose fit rests on no more points than it has unknowns.
        self.ambiguous: set[tuple[int, ...]] = set()
        #: Those that expressions of other forms fit as well.
        self.rivalled: set[tuple[int, ...]] = set()
        #: Ambiguous values -> fitting expressions; of intervals of offsets only some.
        self.candidates: dict[tuple[int, ...], list[Expr]] = {}

    def fit(self, values: tuple[int, ...]) -> Expr | None:
        """The simplest expression that gives `values[i]` at `points[i]`; None if none is found."""
        if any(values[first] != value for first, value in zip(self._first, values, strict=True)):
            return None
        told = tuple(value for i, value in enumerate(values) if self._first[i] == i)
        if told not in self._memo:
            self._memo[told] = self._search_expression(told)
        return self._memo[told]

    def doubt(self, *, all_ambiguous: bool) -> bool:
        """Forget every fit that has a rival of another form, or each that rests on too few points, because a number is
        better than a coincidental expression. True if there was one."""
        doubted = self.ambiguous if all_ambiguous else self.rivalled
        self._memo |= dict.fromkeys(doubted)
        return bool(doubted)

    def text(self, values: tuple[int, ...]) -> str:
        """The fit as text, "?" if there is none."""
        found = self.fit(values)
        return "?" if found is None else str(found)

    def _column(self, atoms: tuple[Atom, ...]) -> tuple[int, ...]:
        """The product of atoms at each distinct point."""
        found = self._columns.get(atoms)
        if found is None:
            found = tuple(prod([atom.at(point) for atom in atoms]) for point in self._distinct)
            self._columns[atoms] = found
        return found

    def _search_expression(self, values: tuple[int, ...]) -> Expr | None:
        """A symbol or a product of symbols is preferred; otherwise the simplest expression that fits."""
        if len(set(values)) == 1:
            return Expr(values[0])
        plain = [Atom(name) for name in self.symbols]
        monomials = list(_iterate_monomials(plain, 3))
        for atoms in monomials:
            if self._column(atoms) == values:
                return Expr(0, ((1, atoms),))
        fits = [fit for atoms in monomials if (fit := self._fit_affine(atoms, values)) is not None]
        fits += self._fit_floors(values) or ([] if fits else self._scaled_floors(values))
        if not fits:
            fits += self._fit_mixed(monomials, values)
        elif not any(_is_affine(fit) and not fit.constant for fit in fits):
            few = (2,) if any(map(_is_affine, fits)) else (2, 3)
            fits += self._fit_mixed(list(_iterate_monomials(plain, 2)), values, few)
        fits = fits or self._floor_products(values) or self._fit_falling(plain, values)
        if len(fits) > 1:
            self.ambiguous.add(values)
            self.rivalled.add(values)
            self.candidates.setdefault(values, []).extend(fits)
        return min(fits, key=_measure_intricacy, default=None)

    def refuted_at(self, point: Sizes) -> int:
        """The number of candidates that a run at this point would refute, whatever its result."""
        groups = [Counter(fit.at(point) for fit in fits) for fits in self.candidates.values()]
        return sum(each.total() - max(each.values()) for each in groups)

    def _pair_with_points(self, values: tuple[int, ...]) -> Iterator[tuple[Sizes, int]]:
        return zip(self._distinct, values, strict=True)

    def _fit_falling(self, plain: list[Atom], values: tuple[int, ...]) -> list[Expr]:
        """constant - factor * S: the rest of a fixed length. It is rare, so it takes a further probe to believe it."""
        fits = [fit for atom in plain if (fit := self._fit_affine((atom,), values, sign=-1)) is not None]
        self.ambiguous |= {values} if fits else set()
        return fits

    def _fit_affine(self, atoms: tuple[Atom, ...], values: tuple[int, ...], sign: int = 1) -> Expr | None:
        """coefficient * product of atoms + constant."""
        base = self._column(atoms)
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
        if (len(atoms) > 1 and constant and len(self._distinct) < 4) or any(map(self._is_unrounded, atoms)):
            self.ambiguous.add(values)
        return Expr(constant, ((factor, atoms),))

    def _is_unrounded(self, atom: Atom) -> bool:
        """Does a division leave the same remainder at every point, so that other roundings would fit as well?"""
        return (
            atom.divisor > 1
            and len({(point[atom.symbol] + atom.offset) % atom.divisor for point in self._distinct}) < 2
        )

    def _fit_floors(self, values: tuple[int, ...]) -> list[Expr]:
        """(S + offset) // divisor: a likely divisor, rounded down or up, else every divisor that fits.

        A likely one that other offsets fit as well is tried against the unlikely ones, too.
        """
        possible = {name: self._possible_divisors(name, values) for name in self.symbols}
        likely = [(name, divisor) for name in self.symbols for divisor in DIVISORS if divisor in possible[name]]
        atoms = [atom for each in likely if (atom := self._floor_atom(*each, values)) is not None]
        is_usual = any(atom.offset in (0, atom.divisor - 1) for atom in atoms)
        if is_usual and values not in self.ambiguous:
            return [_floor(atom) for atom in atoms]
        every = [(name, divisor) for name in self.symbols for divisor in possible[name]]
        some = set(every[:: max(1, len(every) // MOST_DIVISORS)]) - set(likely)
        others = [atom for each in sorted(some) if (atom := self._floor_atom(*each, values)) is not None]
        if is_usual:
            if others:
                self.candidates.setdefault(values, []).extend(map(_floor, others))
            return [_floor(atom) for atom in atoms]
        return [_floor(atom) for atom in (*atoms, *others)]

    def _possible_divisors(self, name: str, values: tuple[int, ...]) -> range:
        """The divisors d that the rises of the values leave: over a distance D, S // d rises by D // d or one more."""
        low, high = 2, LARGEST_DIVISOR
        for (one, first), (other, second) in combinations(self._pair_with_points(values), 2):
            distance, rise = abs(one[name] - other[name]), abs(first - second)
            low = max(low, distance // (rise + 1) + 1)
            high = min(high, (distance - 1) // (rise - 1)) if rise > 1 else high
        return range(low, high + 1)

    def _floor_atom(self, name: str, divisor: int, values: tuple[int, ...]) -> Atom | None:
        """The fitting offsets form an interval: return its most usual member, marked if it is not the only one."""
        low = max(value * divisor - point[name] for value, point in zip(values, self._distinct, strict=True))
        high = min(
            value * divisor - point[name] + divisor - 1 for value, point in zip(values, self._distinct, strict=True)
        )
        if low > high:
            return None
        usual = [offset for offset in _list_usual_offsets(divisor) if low <= offset <= high]
        if low < high:
            some = dict.fromkeys([*usual, *range(low, high, -(-(high - low) // MOST_OFFSETS)), high])
            self.candidates.setdefault(values, []).extend(
                Expr(0, ((1, (Atom(name, each, divisor),)),)) for each in some
            )
        if low < high or (not usual and len(self._distinct) < 4):
            self.ambiguous.add(values)
            self.rivalled |= {values} if low < high and not usual else set()
        return Atom(name, usual[0] if usual else low, divisor)

    def _scaled_floors(self, values: tuple[int, ...]) -> list[Expr]:
        """factor * ((S + offset) // divisor) + constant, the result of up-sampling after down-sampling."""
        found = []
        for factor in FACTORS:
            constant = values[0] % factor
            if all(value % factor == constant for value in values):
                scaled = tuple(value // factor for value in values)
                for inner in self._fit_floors(scaled):
                    self.ambiguous |= {values} if scaled in self.ambiguous else set()
                    found.append(Expr(constant, ((factor, inner.terms[0][1]),)))
                scaled_up = [Expr(constant, ((factor, fit.terms[0][1]),)) for fit in self.candidates.get(scaled, ())]
                if scaled_up:
                    self.candidates.setdefault(values, []).extend(scaled_up)
        for name, divisor in product(self.symbols, DIVISORS):
            for offset in (0, divisor - 1):
                fit = self._fit_affine((Atom(name, offset, divisor),), values)
                if fit is not None and fit.terms[0][0] not in FACTORS:
                    found.append(fit)
                    self.ambiguous |= {values} if len(self._distinct) < TRUSTED_POINTS else set()
        return found

    def _fit_mixed(
        self, monomials: list[tuple[Atom, ...]], values: tuple[int, ...], numbers: tuple[int, ...] = (2, 3)
    ) -> list[Expr]:
        """b*S + c*U, or b*S + c*S*U, of two different monomials; with a constant if it does not fit without.

        numbers: of unknowns, in the order in which they are tried.
        """
        columns = [(atoms, self._column(atoms)) for atoms in monomials]
        for unknowns in numbers:
            if len(self._distinct) >= unknowns:
                solved = (self._solve_pair(*pair, values, unknowns) for pair in combinations(columns, 2))
                if found := [fit for fit in solved if fit is not None]:
                    return found
        return []

    def _solve_pair(self, first: _Column, second: _Column, values: tuple[int, ...], unknowns: int) -> Expr | None:
        (one, a), (other, b) = first, second
        if unknowns == 2:
            (p, q, v), (r, s, w) = zip(a[:2], b[:2], values[:2], strict=True)
        else:  # without the constant: the rises from the first point on
            rows = zip(a[1:3], b[1:3], values[1:3], strict=True)
            (p, q, v), (r, s, w) = ((x - a[0], y - b[0], z - values[0]) for x, y, z in rows)
        # By Cramer's rule: thousands of systems are tried for one shape, and few have whole solutions.
        divisor, top, bottom = p * s - q * r, v * s - q * w, p * w - v * r
        if not divisor or top % divisor or bottom % divisor:
            return None
        factor, another = top // divisor, bottom // divisor
        constant = values[0] - factor * a[0] - another * b[0]
        if min(factor, another) <= 0 or max(factor, another, abs(constant)) > MAX_COEFFICIENT:
            return None
        found = Expr(constant, ((factor, one), (another, other)))
        if any(found.at(point) != value for point, value in self._pair_with_points(values)):
            return None
        if len(self._distinct) <= unknowns:
            self.ambiguous.add(values)
        return found

    def _floor_products(self, values: tuple[int, ...]) -> list[Expr]:
        """factor * (S // k) * (U // k or U) + constant: grids of patches, batches of windows."""
        found: dict[Expr, None] = {}
        for first, second in combinations_with_replacement(self.symbols, 2):
            for divisor in DIVISORS:
                one, other = Atom(first, 0, divisor), Atom(second, 0, divisor)
                for pair in ((one, other), (Atom(first), other), (Atom(second), one)):
                    fit = self._fit_affine(pair, values)
                    if fit is not None:
                        found[fit] = None
                        self._doubt_offsets(fit, values)
        if found and len(self._distinct) < TRUSTED_POINTS:
            self.ambiguous.add(values)
        return list(found)

    def _doubt_offsets(self, fit: Expr, values: tuple[int, ...]) -> None:
        """Try the fit against the same one with other offsets, as borders around images give."""
        ((factor, atoms),) = fit.terms
        for offset in range(-atoms[-1].divisor, atoms[-1].divisor):
            moved = tuple(replace(atom, offset=offset) if atom.divisor > 1 else atom for atom in atoms)
            rival = Expr(fit.constant, ((factor, moved),))
            if offset and all(rival.at(point) == value for point, value in self._pair_with_points(values)):
                self.ambiguous.add(values)
                self.candidates.setdefault(values, [fit]).append(rival)


def _floor(atom: Atom) -> Expr:
    return Expr(0, ((1, (atom,)),))


def _list_usual_offsets(divisor: int) -> tuple[int, ...]:
    return 0, divisor - 1, divisor // 2, -divisor


def _iterate_monomials(atoms: Sequence[Atom], degree: int) -> Iterator[tuple[Atom, ...]]:
    for count in range(1, degree + 1):
        yield from combinations_with_replacement(atoms, count)


def tells_apart(points: Sequence[Sizes]) -> bool:
    """At three points: is no symbol, and no product of two, of the last one equal to factor * another + constant?"""
    if len(points) != 3:
        return True
    columns = [
        [prod(atom.at(point) for atom in atoms) for point in points]
        for atoms in _iterate_monomials([Atom(name) for name in points[-1]], 2)
    ]
    return all(_compute_determinant([[1, 1, 1], one, other]) for one, other in combinations(columns, 2))


def _measure_intricacy(fit: Expr) -> tuple[int, ...]:
    """How unusual an expression is as a dimension of a model: by its divisions and additions."""
    atoms = [atom for _, atoms in fit.terms for atom in atoms]
    divisors = sum(atom.divisor for atom in atoms if atom.divisor != 1)
    offsets = sum(min(abs(atom.offset), abs(atom.offset - atom.divisor + 1)) for atom in atoms)
    factors = sum(factor for factor, _ in fit.terms)
    return divisors > 0, len(fit.terms), len(atoms), fit.constant != 0, offsets, divisors, factors, abs(fit.constant)


def _is_affine(fit: Expr) -> bool:
    return all(atom.divisor == 1 for _, atoms in fit.terms for atom in atoms)


def _compute_determinant(matrix: list[list[int]]) -> int:
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
