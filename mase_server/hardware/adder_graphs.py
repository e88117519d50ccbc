"""Products with constant integers as networks of additions: shifts cost nothing, and what several results need is added
once.

The constants are written in canonical signed digits, so that a product is a sum of few shifted elements. The pair of
terms that most results have in common, at one distance and with the same signs, becomes a term of its own, again and
again until no pair is there twice (Hartley, 1996). Balanced trees add what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

Digits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Term:
    """An element, or a sum of two earlier terms: first + (second << shift), or the difference if minus.

    low, high: the numbers that it may be.  level: additions from an element to it.  Elements have first = -1.
    """

    low: int
    high: int
    level: int = 0
    first: int = -1
    second: int = -1
    shift: int = 0
    minus: bool = False

    @property
    def is_signed(self) -> bool:
        """May it be negative?"""
        return self.low < 0

    @property
    def width(self) -> int:
        """Bits, with a sign if it may be negative."""
        return max(1, max(self.high.bit_length(), (-1 - self.low).bit_length()) + self.is_signed)


@dataclass(frozen=True, slots=True)
class Result:
    """A term times a power of two, or the negative of that. term: -1 for zero."""

    term: int = -1
    shift: int = 0
    minus: bool = False


@dataclass(frozen=True, slots=True)
class AdderGraph:
    """terms: `elements` elements first, then sums, each behind what it adds.  results: a row of constants each."""

    terms: tuple[Term, ...]
    results: tuple[Result, ...]
    elements: int

    @property
    def levels(self) -> int:
        """Additions one behind the other."""
        return max((self.terms[each.term].level for each in self.results if each.term >= 0), default=0)

    def added_bits(self, term: Term) -> int:
        """Bits of an addition's carry chain: those below the shift are there already."""
        first = self.terms[term.first]
        return 0 if not (term.minus or first.is_signed) and first.width <= term.shift else term.width - term.shift


def signed_digits(constants: npt.NDArray[np.int64]) -> Digits:
    """Canonical signed digits, [..., bits]: -1, 0 or 1, no two beside each other, the lowest first."""
    rest, found = constants.astype(np.int64), list[npt.NDArray[np.int64]]()
    while rest.any():
        digit = (rest & 1) * (2 - (rest & 3))
        found.append(digit)
        rest = (rest - digit) >> 1
    return np.stack(found, -1).astype(np.float32) if found else np.zeros((*constants.shape, 0), np.float32)


@lru_cache(maxsize=64)
def _built(constants: bytes, shape: tuple[int, int], elements: tuple[int, int]) -> AdderGraph:
    sharing = _Sharing(np.frombuffer(constants, np.int64).reshape(shape), elements)
    sharing.extract_pairs()
    results = tuple(sharing.add_rest(row) for row in range(shape[0]))
    return AdderGraph(tuple(sharing.terms), results, shape[1])


def build_adder_graph(constants: npt.NDArray[np.int64], low: int, high: int) -> AdderGraph:
    """The network for constants @ elements. constants: [results, elements].  low, high: the numbers that elements may
    be. The last networks are kept: a save mostly changes no weights."""
    rows, columns = constants.shape
    return _built(np.ascontiguousarray(constants).tobytes(), (rows, columns), (low, high))


class _Sharing:
    """The terms so far, and the digits with which results need them: [terms, results, bits]."""

    def __init__(self, constants: npt.NDArray[np.int64], elements: tuple[int, int]) -> None:
        results, count = constants.shape
        self.terms = [Term(*elements)] * count
        given = signed_digits(constants.T)
        self.bits = given.shape[-1]
        # A new term takes two pairs of digits at least, and leaves one digit for each.
        self.digits = np.zeros((count + int(np.count_nonzero(given)) // 2, results, self.bits), np.float32)
        self.digits[:count] = given
        #: (score, first, second, shift, sign of the second) of pairs, with their score when they were noted.
        self.pairs: list[tuple[int, int, int, int, int]] = []

    def extract_pairs(self) -> None:
        """Make terms of the pairs that results share, the most useful one first."""
        self._note_pairs_of_elements()
        heapify(self.pairs)
        while self.pairs:
            noted, first, second, shift, sign = heappop(self.pairs)
            rows, places = self._find_places(first, second, shift, sign)
            if len(rows) < 2:
                continue
            # Other terms may have taken some of its digits since.
            if (score := self._score(len(rows), first, second, shift)) > noted:
                heappush(self.pairs, (score, first, second, shift, sign))
                continue
            term = self._add(first, second, shift, sign < 0)
            self.digits[term, rows, places] = self.digits[first, rows, places]
            self.digits[first, rows, places] = self.digits[second, rows, places + shift] = 0
            self._note_pairs_with(term, np.unique(rows))

    def add_rest(self, row: int) -> Result:
        """Add what is left of a result: those that are ready first, and short ones before long ones."""
        terms, places = np.nonzero(self.digits[:, row])
        if not len(terms):
            return Result()
        negative = self.digits[terms, row, places] < 0
        rest = [self._in_tree(*each) for each in zip(terms.tolist(), places.tolist(), negative.tolist(), strict=True)]
        heapify(rest)
        while len(rest) > 1:
            first, second = sorted((heappop(rest)[2:], heappop(rest)[2:]))
            (place, minus, term), (higher, other_minus, other) = first, second
            added = self._add(term, other, higher - place, minus != other_minus)
            heappush(rest, self._in_tree(added, place, minus))
        ((_, _, place, minus, term),) = rest
        return Result(term, place, minus)

    def _in_tree(self, term: int, place: int, minus: bool) -> tuple[int, int, int, bool, int]:
        made = self.terms[term]
        return made.level, place + made.width, place, minus, term

    def _add(self, first: int, second: int, shift: int, minus: bool) -> int:
        one, other = self.terms[first], self.terms[second]
        ends = (other.high, other.low) if minus else (other.low, other.high)
        low, high = ((-each if minus else each) << shift for each in ends)
        level = 1 + max(one.level, other.level)
        self.terms.append(Term(one.low + low, one.high + high, level, first, second, shift, minus))
        return len(self.terms) - 1

    def _score(self, count: int, first: int, second: int, shift: int) -> int:
        """The lower, the sooner a pair becomes a term: it counts with the bits in which both terms have some."""
        return -count * max(1, min(self.terms[first].width - shift, self.terms[second].width))

    def _note_pairs_of_elements(self) -> None:
        digits = self.digits[: len(self.terms)]
        for shift in range(self.bits):
            lower, upper = (
                each.reshape(len(digits), -1) for each in (digits[..., : self.bits - shift], digits[..., shift:])
            )
            for sign, counts in _count_by_sign(lower, upper):
                if shift == 0:
                    counts = np.triu(counts, 1)
                self.pairs += (
                    (self._score(count, first, second, shift), first, second, shift, sign)
                    for first, second, count in _find_repeated(counts)
                )

    def _note_pairs_with(self, term: int, rows: npt.NDArray[np.int64]) -> None:
        """The pairs of a new term and each other one. rows: of the results that have the new one."""
        own = self.digits[term, rows]
        # moved[distance]: the new term's digits where a term so much higher has its own.
        moved = np.zeros((2 * self.bits - 1, *own.shape), np.float32)
        for distance in range(1 - self.bits, self.bits):
            to, since = max(0, distance), max(0, -distance)
            moved[distance + self.bits - 1, :, to : self.bits - since] = own[:, since : self.bits - to]
        all_digits = self.digits[: term + 1, rows].reshape(term + 1, -1)
        for sign, counts in _count_by_sign(all_digits, moved.reshape(len(moved), -1)):
            for other, at, count in _find_repeated(counts):
                distance = at - self.bits + 1
                if other == term and distance <= 0:
                    continue
                first, second = (term, other) if distance >= 0 else (other, term)
                score = self._score(count, first, second, abs(distance))
                heappush(self.pairs, (score, first, second, abs(distance), sign))

    def _find_places(
        self, first: int, second: int, shift: int, sign: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows and the places of the first term's digits where a pair stands; no digit is in two of them."""
        lower = self.digits[first, :, : self.bits - shift]
        rows, places = np.nonzero(lower * self.digits[second, :, shift:] == sign)
        if first != second or len(rows) < 2:
            return rows, places
        taken, kept = set[tuple[int, int]](), list[int]()
        for index, (row, place) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
            if not taken & (digits := {(row, place), (row, place + shift)}):
                taken |= digits
                kept.append(index)
        return rows[kept], places[kept]


def _count_by_sign(lower: Digits, upper: Digits) -> Iterator[tuple[int, Digits]]:
    """How often digits of each row of one stand over those of each row of the other: with equal signs, with others."""
    signed, either = lower @ upper.T, np.abs(lower) @ np.abs(upper).T
    return iter(((1, (either + signed) / 2), (-1, (either - signed) / 2)))


def _find_repeated(counts: Digits) -> Iterator[tuple[int, int, int]]:
    """Rows, columns and counts of what is there twice at least."""
    rows, columns = np.nonzero(counts >= 2)
    return zip(rows.tolist(), columns.tolist(), counts[rows, columns].astype(np.int64).tolist(), strict=True)
