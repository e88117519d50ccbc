"""Segments: stretches of a function that run from their start on, and the reasons for which one did not run.

Rewritten code sets the mark of a segment (`__mase_ran__[index] = 1`) right before it. A segment begins at each block,
before and after each compound statement, and after each statement that leaves its block. So code without a mark did not
run; no line has to be traced.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Protocol

MARKS = "__mase_ran__"
#: Statements with blocks of their own, and statements after which their block does not go on.
COMPOUND = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip
LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)
#: Methods whose code belongs to the construction of a model.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})


class Reason(NamedTuple):
    """The line that decides whether code runs, and a sentence about it: text, code of the user's, text.

    line: 0 if no line decides.
    """

    line: int
    before: str
    code: str
    after: str


class Segment(NamedTuple):
    """The statements from `line` and `column` to the end of their block; end_line 0: an `else` that is not written.

    before: the segment that runs right before it, in its block or around it; -1 at the entry of an outermost function.
    entry: the first segment of its function.  first_line: of the function's code, at its entry; else 0.
    other: the segment that runs instead, -1 for none.  reason: why it did not run, if `before` and `other` did.
    leaving: the reason for which the next segment of its block does not run, if its last statement leaves the block.
    """

    line: int
    column: int
    end_line: int
    before: int
    entry: int
    first_line: int = 0
    other: int = -1
    reason: Reason | None = None
    leaving: Reason | None = None


#: Stands for the segments of a function that is exchanged, so that the indices of the others stay the same.
NOTHING = Segment(0, 0, 0, -1, -1)


class Unrun(NamedTuple):
    """Code that did not run: whole lines but for the first, which it may share with code that ran."""

    line: int
    column: int
    end_line: int
    reason: Reason | None


def unmarshal(row: Sequence[Any]) -> Segment:
    """A segment from the plain tuples that the cache keeps."""
    *plain, reason, leaving = row
    return Segment(*plain, *(None if each is None else Reason(*each) for each in (reason, leaving)))


def merge_marks(count: int, marks: Iterable[bytes]) -> bytes:
    """The marks of `count` segments that are set anywhere."""
    return functools.reduce(int.__or__, map(int.from_bytes, marks), 0).to_bytes(count)


def describe_test(test: ast.expr, text: str, line: int, optional: Collection[str], receiver: str) -> list[Reason]:
    """Why the two branches of a test did not run: the reason of the first, that of the second.

    optional: parameters that are None unless the caller gives them.  receiver: the name of `self`.
    """
    # A number or a list is false, not False.
    words = ("False", "True") if _is_boolean(test) else ("false", "true")
    no, yes = (Reason(line, "", text, f" was {word}") for word in words)
    modes = (no, "training"), (yes, "eval")
    match test:
        case ast.Compare(ast.Name(name), [ast.IsNot()], [ast.Constant(None)]) if name in optional:
            return [Reason(line, "runs if ", name, " is given"), yes]
        case ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]) if name in optional:
            return [no, Reason(line, "runs if ", name, " is given")]
        case ast.Attribute(ast.Name(name), "training") if receiver and name == receiver:
            no, yes = (each._replace(after=f"{each.after}: runs in {mode} mode") for each, mode in modes)
    return [no, yes]


def _is_boolean(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return all(map(_is_boolean, test.values))
    return isinstance(test, ast.Compare) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def list_unrun(
    segments: Sequence[Segment],
    ran: Sequence[int],
    entered: Sequence[int],
    failed: Sequence[int],
    uncalled: Collection[int],
) -> Iterator[Unrun]:
    """The outermost code of a file that did not run, of functions of which that is certain.

    ran: the marks of everything that ran.  entered: those of forwards that ended well, whose functions ran as far as
    they do.  failed: those of forwards that raised.  uncalled: first lines of methods, see `list_uncalled`.
    """
    # Exchanged functions come last.
    for index, segment in sorted(enumerate(segments), key=lambda each: each[1].line):
        if ran[index] or not segment.end_line or (segment.before >= 0 and not ran[segment.before]):
            continue
        outermost = segment.entry
        while segments[outermost].before >= 0:
            outermost = segments[segments[outermost].before].entry
        known = entered[outermost] or segments[outermost].first_line in uncalled
        if known and not failed[outermost]:
            yield Unrun(segment.line, segment.column, segment.end_line, _find_reason(segments, ran, index))


def _find_reason(segments: Sequence[Segment], ran: Sequence[int], index: int) -> Reason | None:
    segment = segments[index]
    if segment.reason is not None:
        return segment.reason if segment.other < 0 or ran[segment.other] else None
    # The rest of a block: the only statement that left it, or the condition on which that one ran.
    left = [
        each
        for number, each in enumerate(segments[segment.before : index], segment.before)
        if each.leaving is not None and ran[number] and each.entry == segment.entry
    ]
    if segment.before < 0 or len(left) != 1:
        return None
    other = left[0].other
    decided = None if other < 0 or ran[other] else segments[other].reason
    return decided or left[0].leaving


class _Placed(Protocol):
    @property
    def line(self) -> int: ...


def order_exchanged(before: Sequence[_Placed], after: Sequence[_Placed], functions: Sequence[range]) -> list[int]:
    """The indices of a file's segments, or sites, in the order of its text, once some functions are exchanged.

    after: those of `before`, which keep their indices, and then those of the functions' new code.  functions: their
    lines in the text before, in order. Those of the code before are left out.
    """
    order, index, new = list[int](), 0, len(before)
    for number, lines in enumerate(functions):
        first = _find_line(before, index, lines.start)
        more = functions[number + 1].start if number + 1 < len(functions) else sys.maxsize
        end = _find_line(after, new, more)
        order += [*range(index, first), *range(new, end)]
        index, new = _find_line(before, first, lines.stop), end
    return [*order, *range(index, len(before))]


def _find_line(placed: Sequence[_Placed], start: int, line: int) -> int:
    """The first index from `start` on of what is at a line or below; an `else` that is not written has no line."""
    return next((index for index in range(start, len(placed)) if placed[index].line >= line), len(placed))


def list_methods(kinds: Iterable[type]) -> dict[str, list[list[CodeType]]]:
    """The code of the methods of each class, by the file that it is from."""
    found: dict[str, list[list[CodeType]]] = {}
    for kind in kinds:
        own: dict[str, list[CodeType]] = {}
        for function in map(_find_function, list(vars(kind).values())):
            if function is not None:
                own.setdefault(function.__code__.co_filename, []).append(function.__code__)
        for path, codes in own.items():
            found.setdefault(path, []).append(codes)
    return found


def list_uncalled(
    classes: Iterable[Sequence[CodeType]], segments: Sequence[Segment], ran: Sequence[int]
) -> dict[int, str]:
    """The methods of a file's classes that never ran, without constructors: first line of the code -> name.

    A class of which nothing ran is left out: its code may have run from elsewhere, without marks.
    """
    entries = {segment.first_line: ran[index] for index, segment in enumerate(segments) if segment.first_line}
    found: dict[int, str] = {}
    for codes in classes:
        if any(entries.get(code.co_firstlineno) for code in codes):
            uncalled = (code for code in codes if entries.get(code.co_firstlineno) == 0)
            found |= {code.co_firstlineno: code.co_name for code in uncalled if code.co_name not in _CONSTRUCTORS}
    return found


def _find_function(value: Any) -> FunctionType | None:
    """The function behind a method, a property or a decorated function."""
    match value:
        case staticmethod() | classmethod():
            return _find_function(value.__func__)
        case property():
            return _find_function(value.fget)
        case functools.cached_property():
            return _find_function(value.func)
        case FunctionType():
            return _find_function(vars(value).get("__wrapped__")) or value
    return None
