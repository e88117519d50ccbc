"""Sizes of tensors as traced code gets them: whole numbers that remember what was computed and compared."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any

from mase_server.tracing.escapes import may_decide
from mase_server.tracing.positions import Stack, is_hidden

#: An expression: a whole number, `Size(call, dimension)`, or an operator's name and its operands.
Term = Any

ARITHMETIC: dict[str, Callable[..., int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
RELATIONS: dict[str, Callable[..., bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
#: More different comparisons are a loop over data.
MOST_COMPARISONS = 1000


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a dimension of the result of a recorded call."""

    call: int
    dimension: int


@dataclass(slots=True)
class SizeLog:
    """What the code of one recording asked of sizes.

    asked: (call, dimension, or None for all) -> where first.  compared: (relation, left, right) that held -> where
    first.  escaped: expression of sizes -> its value, and where first: it became a plain number on which something may
    depend.  muted: does torch, and not the person's code, run now?
    """

    positions: bool
    asked: dict[tuple[int, int | None], Stack] = field(default_factory=dict)
    compared: dict[tuple[str, Term, Term], Stack] = field(default_factory=dict)
    escaped: dict[Term, tuple[int, Stack]] = field(default_factory=dict)
    muted: bool = True

    def ask(self, call: int, dimension: int | None) -> None:
        """Remember that the code reads sizes of a call's result."""
        if (call, dimension) not in self.asked:
            self.asked[call, dimension] = _here() if self.positions else ()

    def compare(self, relation: str, left: Term, right: Term, outcome: bool) -> None:
        """Remember a comparison and how it came out."""
        key = (relation if outcome else OPPOSITE[relation], left, right)
        if key not in self.compared and len(self.compared) < MOST_COMPARISONS:
            self.compared[key] = _here() if self.positions else ()

    def escape(self, term: Term, value: int) -> None:
        """Remember that the code gets a plain number made of sizes, unless it only hands it on to torch."""
        if self.muted or not self.positions or term in self.escaped or is_hidden(sys._getframe(2).f_code):
            return
        stack = _here()
        if not stack or may_decide(stack[0]):
            self.escaped[term] = value, stack


class TracedInt(int):
    """A size, or what was computed from sizes; an ordinary int in all that it does."""

    term: Term
    log: SizeLog

    @classmethod
    def of(cls, value: int, term: Term, log: SizeLog) -> TracedInt:
        """A number with its expression."""
        made = cls(value)
        made.term, made.log = term, log
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (self.plain,)

    def __deepcopy__(self, memo: Any) -> int:
        return self.plain

    __hash__ = int.__hash__

    def __bool__(self) -> bool:
        if not self.log.muted:
            self.log.compare("!=", self.term, 0, self.plain != 0)
        return self.plain != 0

    def __int__(self) -> int:
        self.log.escape(self.term, self.plain)
        return self.plain

    def __float__(self) -> float:
        self.log.escape(self.term, self.plain)
        return float(self.plain)

    @property
    def plain(self) -> int:
        """The number alone."""
        return int.__int__(self)

    def __pos__(self) -> int:
        return self

    def __round__(self, digits: Any = None) -> int:
        return self if digits is None else int.__round__(self, digits)

    __ceil__ = __floor__ = __trunc__ = __pos__

    def __neg__(self) -> int:
        return 0 - self

    def __abs__(self) -> int:
        return -self if self < 0 else +self

    def __divmod__(self, other: Any) -> Any:
        found = self // other
        return found if found is NotImplemented else (found, self % other)

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other) if isinstance(other, int) else NotImplemented

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << other) if isinstance(other, int) else NotImplemented


def _term(value: Any) -> Term:
    return value.term if isinstance(value, TracedInt) else int(value)


def _arithmetic(name: str, method: str, *, swapped: bool) -> Callable[[TracedInt, Any], Any]:
    plain = getattr(int, method)

    def compute(self: TracedInt, other: Any) -> Any:
        found = plain(self, other)
        if found is NotImplemented or self.log.muted:
            return found
        operands = (_term(other), self.term) if swapped else (self.term, _term(other))
        return TracedInt.of(found, (name, *operands), self.log)

    return compute


def _escaping(method: str) -> Callable[..., Any]:
    """An operator whose result is followed no further."""
    plain = getattr(int, method)

    def compute(self: TracedInt, other: Any, *more: Any) -> Any:
        self.log.escape(self.term, self.plain)
        if isinstance(other, TracedInt):
            other.log.escape(other.term, other.plain)
        return plain(self, other, *more)

    return compute


def _relation(name: str, method: str) -> Callable[[TracedInt, Any], Any]:
    plain = getattr(int, method)

    def compare(self: TracedInt, other: Any) -> Any:
        found = plain(self, other)
        if found is not NotImplemented and not self.log.muted:
            self.log.compare(name, self.term, _term(other), found)
        return found

    return compare


_METHODS = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod", "&": "and", "|": "or", "^": "xor"}
for _name, _word in _METHODS.items():
    setattr(TracedInt, f"__{_word}__", _arithmetic(_name, f"__{_word}__", swapped=False))
    setattr(TracedInt, f"__r{_word}__", _arithmetic(_name, f"__r{_word}__", swapped=True))
for _word in ("truediv", "rtruediv", "pow", "rpow"):
    setattr(TracedInt, f"__{_word}__", _escaping(f"__{_word}__"))
for _name, _word in {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}.items():
    setattr(TracedInt, f"__{_word}__", _relation(_name, f"__{_word}__"))


def _here() -> Stack:
    """The innermost line of the person's code that runs now."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_hidden(frame.f_code):
        frame = frame.f_back
    return () if frame is None else ((frame.f_code, frame.f_lasti),)


def subscript_to_come() -> int | None:
    """The number by which the running line subscribes the attribute that it reads, as in `x.shape[1]`; else None."""
    return _subscript(*mark[0]) if (mark := _here()) else None


@cache
def _subscript(code: CodeType, last: int) -> int | None:
    after = [each for each in dis.get_instructions(code) if each.offset > last and each.opname != "CACHE"][:2]
    if len(after) < 2 or not after[0].opname.startswith("LOAD_") or type(after[0].argval) is not int:
        return None
    found = after[1].opname.startswith("BINARY_SUBSCR") or after[1].argrepr == "[]"
    return after[0].argval if found and after[0].opname in ("LOAD_CONST", "LOAD_SMALL_INT") else None
