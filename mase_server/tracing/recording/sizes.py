"""Sizes of tensors as traced code gets them: integers that log the computations and comparisons made with them."""

from __future__ import annotations

import ast
import dis
import linecache
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any

from mase_server.tracing.importing.source import list_nodes, parse_text, remember
from mase_server.tracing.recording.positions import Mark, Position, Stack, is_hidden, resolve_mark

# Plain numbers made of sizes, as `int(T)` and `T / 2` return: could the code take another path because of one?
#
# Python offers no way to follow such a number, so the code that gets it is read instead.

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
#: Builtins that return another plain number; a call of another name leads to unread code.
_NUMBERS = ("int", "float", "round", "abs", "bool", "pow", "divmod")
#: Names before a dot whose calls take numbers unchanged; the methods of tensors do, too.
_MATHS = ("math", "np", "numpy")
#: The most texts whose trees are kept: a model asks for the same few files repeatedly.
_MOST_FILES = 32


@remember(1024)
def may_decide(mark: Mark) -> bool:
    """Can the number that the marked instruction makes decide what the code does, as far as its function shows?

    True also if it leaves the function, or if there is no source to read.
    """
    position = resolve_mark(mark)
    parents = _read_parents("".join(linecache.getlines(position.file)), position.file, position.line)
    found = _find(parents, position)
    if found is None:
        return True
    function = found
    while not isinstance(function, _FUNCTIONS):
        function = parents[function]
    pending, known = [found], set[str]()
    while pending:
        names = _uses(pending.pop(), parents)
        if names is None:
            return True
        for name in names - known:
            known.add(name)
            pending += [node for node in list_nodes(function) if _reads(node, name)]
    return False


@remember(_MOST_FILES)
def _read_parents(source: str, path: str, line: int) -> Mapping[ast.AST, ast.AST]:
    """The nodes of a text's function at a line, each with its parent; empty for a text that cannot be parsed."""
    try:
        inner: ast.AST = parse_text(source, path)
    except SyntaxError:
        return {}
    around: dict[ast.AST, ast.AST] = {}
    while len(at_line := [each for each in getattr(inner, "body", ()) if _is_at(each, line)]) == 1:
        around[at_line[0]], inner = inner, at_line[0]
        if isinstance(inner, _FUNCTIONS):
            break
    return around | {child: node for node in list_nodes(inner) for child in ast.iter_child_nodes(node)}


def _is_at(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _find(nodes: Iterable[ast.AST], position: Position) -> ast.AST | None:
    """The expression at exactly this position."""
    place = position.line, position.column, position.end_line, position.end_column
    for node in nodes:
        if isinstance(node, ast.expr) and place == (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset):
            return node
    return None


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _uses(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> set[str] | None:
    """The variables that an expression's value goes to; None if it decides something or cannot be followed."""
    while True:
        child, node = node, parents[node]
        match node:
            case ast.Compare() | ast.BoolOp() | ast.Return() | ast.Yield() | ast.Lambda() | ast.Match():
                return None
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert() if child is node.test:
                return None
            case ast.UnaryOp(op=ast.Not()):
                return None
            case ast.Call(func=ast.Name(id=name)) if name not in _NUMBERS and name != "range":
                return None
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "cls"))):
                return None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in _MATHS:
                continue
            case ast.Call(func=ast.Name(id=name)) if name in _NUMBERS:
                continue
            case ast.Call() | ast.Subscript() | ast.stmt() if not isinstance(node, _BINDINGS):
                return set()
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.NamedExpr():
                targets = list(_targets(node))
                return None if None in targets else {name for name in targets if name is not None}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.comprehension():
                return None


_BINDINGS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


def _targets(node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr) -> Iterator[str | None]:
    """The variables that are bound; None for other targets, such as an attribute."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            yield part.id if isinstance(part, ast.Name) else None


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
#: More different comparisons than this are a loop over data.
MOST_COMPARISONS = 1000


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a dimension of the result of a recorded call."""

    call: int
    dimension: int


@dataclass(slots=True)
class SizeLog:
    """The questions of one recording's code about sizes.

    asked: (call, dimension, or None for all) -> where first.  compared: (relation, left, right) that held -> where
    first.  escaped: expression of sizes -> its value, and where first: it became a plain number on which something
    may depend.  muted: does torch, and not the user's code, run now?
    """

    positions: bool
    asked: dict[tuple[int, int | None], Stack] = field(default_factory=dict)
    compared: dict[tuple[str, Term, Term], Stack] = field(default_factory=dict)
    escaped: dict[Term, tuple[int, Stack]] = field(default_factory=dict)
    muted: bool = True

    def ask(self, call: int, dimension: int | None) -> None:
        """Remember that the code reads sizes of a call's result."""
        if (call, dimension) not in self.asked:
            self.asked[call, dimension] = _capture_user_line() if self.positions else ()

    def compare(self, relation: str, left: Term, right: Term, outcome: bool) -> None:
        """Remember a comparison and its outcome."""
        key = (relation if outcome else OPPOSITE[relation], left, right)
        if key not in self.compared and len(self.compared) < MOST_COMPARISONS:
            self.compared[key] = _capture_user_line() if self.positions else ()

    def escape(self, term: Term, value: int) -> None:
        """Remember that the code gets a plain number made of sizes, unless it only hands it on to torch."""
        if self.muted or not self.positions or term in self.escaped or is_hidden(sys._getframe(2).f_code):
            return
        stack = _capture_user_line()
        if not stack or may_decide(stack[0]):
            self.escaped[term] = value, stack


class TracedInt(int):
    """A size, or a number computed from sizes; otherwise an ordinary int."""

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


def _get_term(value: Any) -> Term:
    return value.term if isinstance(value, TracedInt) else int(value)


def _make_arithmetic_method(name: str, method: str, *, swapped: bool) -> Callable[[TracedInt, Any], Any]:
    plain = getattr(int, method)

    def compute(self: TracedInt, other: Any) -> Any:
        found = plain(self, other)
        if found is NotImplemented or self.log.muted:
            return found
        operands = (_get_term(other), self.term) if swapped else (self.term, _get_term(other))
        return TracedInt.of(found, (name, *operands), self.log)

    return compute


def _escaping(method: str) -> Callable[..., Any]:
    """An operator whose result is not followed further."""
    plain = getattr(int, method)

    def compute(self: TracedInt, other: Any, *more: Any) -> Any:
        self.log.escape(self.term, self.plain)
        if isinstance(other, TracedInt):
            other.log.escape(other.term, other.plain)
        return plain(self, other, *more)

    return compute


def _make_comparison_method(name: str, method: str) -> Callable[[TracedInt, Any], Any]:
    plain = getattr(int, method)

    def compare(self: TracedInt, other: Any) -> Any:
        found = plain(self, other)
        if found is not NotImplemented and not self.log.muted:
            self.log.compare(name, self.term, _get_term(other), found)
        return found

    return compare


_METHODS = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod", "&": "and", "|": "or", "^": "xor"}
for _name, _word in _METHODS.items():
    setattr(TracedInt, f"__{_word}__", _make_arithmetic_method(_name, f"__{_word}__", swapped=False))
    setattr(TracedInt, f"__r{_word}__", _make_arithmetic_method(_name, f"__r{_word}__", swapped=True))
for _word in ("truediv", "rtruediv", "pow", "rpow"):
    setattr(TracedInt, f"__{_word}__", _escaping(f"__{_word}__"))
for _name, _word in {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}.items():
    setattr(TracedInt, f"__{_word}__", _make_comparison_method(_name, f"__{_word}__"))


def _capture_user_line() -> Stack:
    """The innermost line of the user's code that runs now."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_hidden(frame.f_code):
        frame = frame.f_back
    return () if frame is None else ((frame.f_code, frame.f_lasti),)


def subscript_to_come() -> int | None:
    """The index with which the running line subscripts the attribute that it reads, as in `x.shape[1]`; else None."""
    return _read_subscript(*mark[0]) if (mark := _capture_user_line()) else None


@cache
def _read_subscript(code: CodeType, last: int) -> int | None:
    told = code.co_code[last + 2 :]
    steps = [pair for pair in zip(told[::2], told[1::2], strict=True) if dis.opname[pair[0]] != "CACHE"][:2]
    names = [dis.opname[step] for step, _ in steps]
    if names and not names[0].startswith(("LOAD_", "EXTENDED_ARG")):
        return None
    if names[:1] == ["LOAD_CONST"] and "EXTENDED_ARG" not in names and names[1:2] != ["BINARY_OP"]:
        value = code.co_consts[steps[0][1]]  # to decode the whole function takes a hundred times as long
        return value if type(value) is int and names[1].startswith("BINARY_SUBSCR") else None
    after = [each for each in dis.get_instructions(code) if each.offset > last and each.opname != "CACHE"][:2]
    if len(after) < 2 or not after[0].opname.startswith("LOAD_") or type(after[0].argval) is not int:
        return None
    found = after[1].opname.startswith("BINARY_SUBSCR") or after[1].argrepr == "[]"
    return after[0].argval if found and after[0].opname in ("LOAD_CONST", "LOAD_SMALL_INT") else None


def is_asserting() -> bool:
    """Is the truth that the running line asks for what an `assert` requires?"""
    return _reads_assertion(*mark[0]) if (mark := _capture_user_line()) else False


@cache
def _reads_assertion(code: CodeType, last: int) -> bool:
    steps = [each for each in dis.get_instructions(code) if each.offset >= last and each.opname != "CACHE"][:3]
    steps = steps[1:] if steps and steps[0].opname == "TO_BOOL" else steps
    jumps = len(steps) > 1 and re.fullmatch(r"POP_JUMP_\w*IF_TRUE", steps[0].opname) is not None
    return jumps and (steps[1].opname == "LOAD_ASSERTION_ERROR" or steps[1].argrepr == "AssertionError")
