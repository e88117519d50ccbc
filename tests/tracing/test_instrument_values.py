# ruff: noqa: RUF001 - names in other alphabets are the point
"""What instrumented code reports, against Python's own bytecode: every store, seen by an opcode tracer."""

from __future__ import annotations

import dis
import sys
from collections import defaultdict
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.protocol.snapshot import KINDS
from mase_server.tracing.importing.rewrite import instrument, provide_default

Seen = tuple[int, int, str, str]


class OpcodeRecorder:
    """Values of every STORE instruction and every parameter while a plainly compiled program runs."""

    def __init__(self) -> None:
        self.bindings: list[Seen] = []
        self.parameters: list[tuple[str, str, str]] = []
        self._stores: dict[CodeType, dict[int, tuple[int, int, str]]] = {}
        self._pending: dict[FrameType, tuple[int, int, str]] = {}
        self._entered: set[FrameType] = set()

    def run(self, source: str, namespace: dict[str, Any]) -> None:
        code = compile(source, "<program>", "exec")
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            exec(code, namespace)
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != "<program>":
            return None
        frame.f_trace_opcodes = True
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        names += code.co_varnames[len(names) : len(names) + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
        # A comprehension's only argument is its iterator, ".0". A generator is entered again at every resumption.
        if frame not in self._entered:
            self._entered.add(frame)
            self.parameters += [(code.co_qualname, n, repr(frame.f_locals[n])) for n in names if n[0] != "."]
        return self._trace

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        place = self._pending.pop(frame, None)
        if place is not None:
            line, column, name = place
            value = frame.f_locals[name] if name in frame.f_locals else frame.f_globals[name]
            self.bindings.append((line, column, name, repr(value)))
        if event == "opcode":
            store = self._table(frame.f_code).get(frame.f_lasti)
            if store is not None:
                self._pending[frame] = store
        return self._trace

    def _table(self, code: CodeType) -> dict[int, tuple[int, int, str]]:
        if code not in self._stores:
            self._stores[code] = {
                instruction.offset: (p.lineno, p.col_offset, instruction.argval)
                for instruction in dis.get_instructions(code)
                if instruction.opname in ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
                and (p := instruction.positions) is not None
                and p.lineno is not None
                and p.col_offset is not None
            }
        return self._stores[code]


class Reports:
    """What an instrumented program reported, by kind."""

    def __init__(self, source: str, namespace: dict[str, Any], *, expressions: bool = True) -> None:
        instrumented = instrument(source, "<program>", expressions=expressions)
        self.lines = source.split("\n")
        self.by_kind: dict[str, list[tuple[Any, str]]] = defaultdict(list)
        self.functions: list[tuple[str, str]] = []

        def report(index: int, value: Any) -> Any:
            site = instrumented.sites[index]
            self.by_kind[KINDS[site.kind]].append((site, repr(value)))
            self.functions.append((site.function, sys._getframe(1).f_code.co_qualname))
            return value

        provide_default()
        namespace["__mase__"] = report
        exec(instrumented.code, namespace)

    @property
    def bindings(self) -> list[Seen]:
        return [(s.line, len(self._before(s).encode()), s.name, v) for s, v in self.by_kind["binding"]]

    @property
    def parameters(self) -> list[tuple[str, str, str]]:
        return [(site.function, site.name, value) for site, value in self.by_kind["parameter"]]

    def text(self, site: Any) -> str:
        assert site.line == site.end_line
        return self.lines[site.line - 1][site.column : site.end_column]

    def _before(self, site: Any) -> str:
        return self.lines[site.line - 1][: site.column]


class Box:
    """A number that no rule takes for a constant, and a context manager."""

    log: list[str]

    def __init__(self, value: int, log: list[str]) -> None:
        self.value, self.log = value, log

    def __repr__(self) -> str:
        return f"Box({self.value})"

    def __add__(self, other: Any) -> Box:
        self.log.append(f"{self}+{other}")
        return Box((self.value * 3 + other.value) % 97, self.log)

    def __iadd__(self, other: Any) -> Box:
        self.log.append(f"{self}+={other}")
        return self + other

    def __gt__(self, other: Any) -> bool:
        self.log.append(f"{self}>{other}")
        return self.value > other.value

    def __bool__(self) -> bool:
        self.log.append(f"bool {self}")
        return self.value % 2 == 0

    def __enter__(self) -> Box:
        self.log.append(f"enter {self}")
        return self + self

    def __exit__(self, *_: object) -> None:
        self.log.append(f"exit {self}")


def run_plain(source: str) -> tuple[OpcodeRecorder, list[str], str]:
    log: list[str] = []
    recorder = OpcodeRecorder()
    error = ""
    try:
        recorder.run(source, fresh(log))
    except Exception as raised:  # noqa: BLE001 - generated programs may raise; both runs must raise the same
        error = where(raised)
    return recorder, log, error


def run_instrumented(source: str) -> tuple[Reports | None, list[str], str]:
    log: list[str] = []
    reports, error = None, ""
    try:
        reports = Reports(source, fresh(log))
    except Exception as raised:  # noqa: BLE001 - see above
        error = where(raised)
    return reports, log, error


def fresh(log: list[str]) -> dict[str, Any]:
    return {"__name__": "program", **{name: Box(n, log) for n, name in enumerate("abcd", 1)}}


def where(error: BaseException) -> str:
    """Type, text and the exact places of every frame of the program."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == "<program>":
            frames.append((code.co_qualname, list(code.co_positions())[traceback.tb_lasti // 2]))
        traceback = traceback.tb_next
    return f"{type(error).__name__}: {error} at {frames}"


def check(source: str) -> None:
    plain, plain_log, plain_error = run_plain(source)
    reports, log, error = run_instrumented(source)
    assert log == plain_log
    assert error == plain_error
    if reports is not None:
        functions = {seen[3] for seen in plain.bindings if seen[3].startswith("<function")}
        expected = [seen for seen in plain.bindings if seen[3] not in functions and "<class" not in seen[3]]
        # Sorted, because the compiler stores the targets of `a, b = c, d` in any order.
        assert without_pattern_columns(source, reports.bindings) == without_pattern_columns(source, expected)
        assert sorted(reports.parameters) == sorted(plain.parameters)
        for site, _ in reports.by_kind["binding"] + reports.by_kind["parameter"]:
            assert reports.text(site) == site.name


def without_pattern_columns(source: str, seen: list[Seen]) -> list[Seen]:
    """The compiler gives the store of a captured name the position of something else on the line."""
    lines = source.split("\n")
    is_pattern = [line.lstrip().startswith("case ") for line in lines]
    return sorted((line, -1 if is_pattern[line - 1] else column, *rest) for line, column, *rest in seen)


names = st.sampled_from("abcd")
flat = st.recursive(
    names,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]} + {p[1]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(names, inner).map(lambda p: f"({p[0]} := {p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]} or {p[1]})"),
        st.tuples(names, inner).map(lambda p: f"(lambda {p[0]}: {p[1]})(b)"),
        st.tuples(names, names, names).map(lambda p: f"[{p[0]} + {p[1]} for {p[0]} in [{p[1]}, {p[2]}]][0]"),
        st.tuples(names, names).map(lambda p: f"[v + w for v, (w, _) in [({p[0]}, ({p[1]}, a))] if v > w or v][-1]"),
    ),
    max_leaves=5,
)


def other(name: str, than: str) -> str:
    """Of two targets with one name only the second's value can be seen afterwards."""
    return next(found for found in (name, *"abcd") if found != than)


def two(template: str) -> st.SearchStrategy[list[str]]:
    """A simple statement with names N, M and expressions E, F."""
    return st.tuples(names, names, flat, flat).map(
        lambda p: [template.replace("N", p[0]).replace("M", other(p[1], p[0])).replace("E", p[2]).replace("F", p[3])]
    )


simple = st.one_of(
    *map(
        two,
        (
            "N = E",
            "N = M = E",
            "N, M = E, F",
            "N, (*M, x) = E, [F, E]",
            "N: 'anything' = E",
            "N += E",
            "N = M, x = E, F",
            "assert [E, F]",
            "E",
            "y = [E, F]; y[0] = F; y[1] += E",
            "N = {'k': E}['k']",
        ),
    )
)


def indent(block: list[list[str]]) -> list[str]:
    return ["    " + line for statement in block for line in statement]


def compound(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    blocks = st.lists(inner, min_size=1, max_size=3)
    heads = st.sampled_from(
        [
            "for N in [E, F]:",
            "for N, (M, *_) in [(E, [F, E])]:",
            "if E:",
            "with E as N, F as M:",
            "while (N := E) > F:\n    break",
            "match [E, F]:\n  case [N, *z] if N > a or True:",
            "match {'k': E}:\n  case {'k': N as u, **v}:",
            "try:\n    N = E\n    raise KeyError(N)\nexcept KeyError as problem:",
        ]
    )

    def build(parts: tuple[str, list[list[str]], str, str, str, str]) -> list[str]:
        head, block, n, m, e, f = parts
        text = head.replace("N", n).replace("M", other(m, n)).replace("E", e).replace("F", f)
        extra = "  " if "case" in text else ""
        return [*text.split("\n"), *(extra + line for line in indent(block))]

    def function(parts: tuple[list[list[str]], str, str]) -> list[str]:
        block, result, argument = parts
        body = [*indent(block), f"    return {result}"]
        return ["def f(a, /, b, *args, c, d=d, **kw):", *body, f"a = f(a, {argument}, d, c=b, extra=a)"]

    functions = st.tuples(blocks, flat, flat).map(function)
    return st.one_of(st.tuples(heads, blocks, names, names, flat, flat).map(build), functions)


programs = st.lists(st.recursive(simple, compound, max_leaves=6), min_size=1, max_size=4).map(
    lambda block: "\n".join(line for statement in block for line in statement)
)


@given(programs)
def test_programs_run_the_same_and_every_store_is_reported(program: str) -> None:
    try:
        compile(program, "<program>", "exec")
    except SyntaxError:
        with pytest.raises(SyntaxError):
            instrument(program, "<program>")
        return
    check(program)


PROGRAMS = {
    "contexts that bind each other's names": """
with a as x, (x := b) as y, (x + y) as x:
    z = x, y
def f(p):
    with p as p, p as (p):
        return p
""",
    "async": """
import asyncio
async def numbers(n):
    for i in (a, b):
        yield i + n
class Scope:
    async def __aenter__(self): return a + b
    async def __aexit__(self, *exc): return None
async def main(x):
    async with Scope() as s:
        async for t in numbers(x):
            x += t
    u = await asyncio.sleep(0, x)
    w = [q async for q in numbers(u)]
    return w
asyncio.run(main(c))
""",
    "generators": """
def count(x):
    y = yield x
    while y:
        y = yield from inner(y)
    return y
def inner(z):
    t = yield z + z
    return t
g = count(a)
p = next(g)
for v in (b, c, d):
    try:
        p = g.send(v)
    except StopIteration as stop:
        pass
""",
    "scopes": """
total = a + b
def outer(x):
    y = x + x
    def inner(z):
        nonlocal y
        global total
        y = y + z
        total = y
        return lambda w: w + y
    return inner(y)
r = outer(a)(b)
class Holder:
    first, second = a, b
    third = [v for v in (first, second)]
    def method(self, v, *, w=a):
        self.kept, v = v, w
        return self.kept
    @classmethod
    def make(cls, v): return v
    @staticmethod
    def plain(v): return v
k = Holder().method(b)
k = Holder.make(b)
k = Holder.plain(b)
""",
    "wide characters": """
s = 'é𝔘'; x = a; é = x + b; x, é = é, x
for (ñ, y) in [(x, é)]: z = 'ü', ñ
def ƒ(é, *, 𝔘=b): return é + 𝔘
w = ƒ(a)
""",
    "wildcards and alternatives": """
match [a, [b, c]]:
    case [x, [y, _]] if y > x:
        u = x
match (a, b):
    case (x, None) | (None, x):
        pass
    case (x, y) as both:
        v = both
match [a, b, c]:
    case [x, *rest]:
        w = rest
""",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_handwritten_programs_report_every_store(name: str) -> None:
    """Match captures are stored by Python in an order of its own, and failed patterns store too: as sets there."""
    source = PROGRAMS[name]
    plain, plain_log, plain_error = run_plain(source)
    reports, log, error = run_instrumented(source)
    assert (log, error) == (plain_log, plain_error)
    assert reports is not None
    kept = [s for s in plain.bindings if not s[3].startswith(("<function", "<class", "<module", "<static"))]
    kept = [s for s in kept if s[2] not in ("stop", "s") and not s[2].startswith("__")]
    if name == "wildcards and alternatives":
        captured = {(line, name, value) for line, _, name, value in reports.bindings}
        assert captured <= {(line, name, value) for line, _, name, value in kept}
        assert {"both", "rest", "u", "v", "w", "x", "y"} == {name for _, name, _ in captured}
    else:
        mine = [s for s in reports.bindings if s[2] not in ("stop", "s")]
        assert without_addresses(mine) == without_addresses(kept)
    own = [p for p in plain.parameters if p[1] not in ("self", "cls")]
    assert sorted(without_addresses(reports.parameters)) == sorted(without_addresses(own))


def without_addresses(rows: list[Any]) -> list[Any]:
    return [tuple(str(part).partition(" at 0x")[0] for part in row) for row in rows]


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_are_named_as_python_names_them(name: str) -> None:
    reports = Reports(PROGRAMS[name], fresh([]))
    own = [(ours, python) for ours, python in reports.functions if "comp>" not in python and python != "Holder"]
    assert {ours or "<module>" for ours, _ in own} == {python for _, python in own}
    assert all((ours or "<module>") == python for ours, python in own)
