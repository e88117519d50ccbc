# ruff: noqa: E501, RUF001 - programs in one line each, and other alphabets
"""Instrumented code behaves, reads and fails exactly like the person's own."""

from __future__ import annotations

import copy
import inspect
import linecache
import pickle
import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.protocol.snapshot import KINDS
from mase_server.tracing.importing.rewrite import Instrumented, Site, instrument, provide_default


class Run:
    """A module executed instrumented, and everything that it reported."""

    def __init__(self, source: str | bytes, path: str = "program.py", *, expressions: bool = True) -> None:
        self.instrumented = instrument(source, path, expressions=expressions)
        self.reports: list[tuple[Site, Any]] = []
        self.module = ModuleType("program")
        self.module.__file__ = path
        vars(self.module)["__mase__"] = self._report
        provide_default()
        exec(self.instrumented.code, vars(self.module))

    def _report(self, index: int, value: Any) -> Any:
        self.reports.append((self.instrumented.sites[index], value))
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def seen(self, kind: str) -> list[tuple[str, Any]]:
        return [(site.name, value) for site, value in self.reports if KINDS[site.kind] == kind]

    def texts(self, kind: str, source: str) -> list[str]:
        return [cut(source, site) for site, _ in self.reports if KINDS[site.kind] == kind]


def cut(source: str, site: Site) -> str:
    lines = source.split("\n")[site.line - 1 : site.end_line]
    lines[-1] = lines[-1][: site.end_column]
    lines[0] = lines[0][site.column :]
    return "\n".join(lines)


class Value:
    """Stands for a tensor."""

    def __add__(self, other: Any) -> Value:
        return self


# What is reported


def test_parameters_are_reported_at_entry_without_self_and_cls() -> None:
    run = Run(
        "class A:\n"
        "    def m(self, x, /, y, *a, z=3, **k): pass\n"
        "    @classmethod\n    def c(cls, x): pass\n"
        "    @staticmethod\n    def s(x): pass\n"
        "def f(self): pass\n"
    )
    run.A().m(1, 2, 4, w=5)
    assert run.seen("parameter") == [("x", 1), ("y", 2), ("a", (4,)), ("z", 3), ("k", {"w": 5})]
    run.reports.clear()
    run.A.c(6), run.A.s(7), run.f(8)
    assert run.seen("parameter") == [("x", 6), ("x", 7), ("self", 8)]


def test_a_lambda_reports_its_parameters_and_its_body_as_a_return() -> None:
    source = "f = lambda u, *v, w=1: (u, v, w)"
    run = Run(source)
    assert run.f(2, 3) == (2, (3,), 1)
    assert run.seen("parameter") == [("u", 2), ("v", (3,)), ("w", 1)]
    assert run.seen("return") == [("", (2, (3,), 1))]
    assert run.texts("return", source) == ["(u, v, w)"]


def test_attributes_and_items_are_no_bindings_but_what_they_belong_to_is_an_expression() -> None:
    source = "def f(x, y):\n    y.a = x[0] = y"
    run = Run(source)
    run.f([0], Value())
    assert run.seen("binding") == []
    assert run.texts("expression", source) == ["y", "y", "x"]


def test_a_returned_expression_is_a_return_and_not_an_expression_too() -> None:
    source = "def f(x):\n    return (x +\n            x)\n"
    run = Run(source)
    run.f(Value())
    assert run.texts("return", source) == ["x +\n            x"]
    assert run.texts("expression", source) == ["x", "x"]


@pytest.mark.parametrize("text", ["1", "'s'", "-1", "(1, 2)", "[1, (2, 'x')]", "2 * 3", "f'{q}'", "None"])
def test_what_can_never_hold_a_tensor_is_not_reported(text: str) -> None:
    run = Run(f"q = 0\ndef f():\n    a = {text}\n    return {text}\n")
    assert run.f() == run.f()
    assert run.seen("binding") == []
    assert run.seen("return") == []


def test_modules_classes_and_callees_are_not_reported() -> None:
    source = (
        "import math, os.path as p\nfrom math import pi\nclass C: pass\ndef g(x): return len(x)\n"
        "def f(x):\n    a = math.floor(x), p.join('b', 'c'), pi, C(), isinstance(x, C), g([x]), super\n"
    )
    run = Run(source)
    run.reports.clear()
    run.f(2.5)
    texts = run.texts("expression", source)
    assert sorted(texts) == sorted(["math.floor(x)", "x", "p.join('b', 'c')", "pi", "C()", "g([x])", "x", "x", "x"])


def test_without_expressions_only_names_and_returns_report() -> None:
    run = Run("def f(x):\n    y = x + x\n    return y", expressions=False)
    run.f(Value())
    assert [KINDS[site.kind] for site, _ in run.reports] == ["parameter", "binding", "return"]


def test_a_capture_is_reported_where_its_name_stands() -> None:
    source = (
        "def f(x):\n    match x:\n        case {'é': [a, *rest], **others  } as whole: pass\n"
        "        case str() | int() as either: pass\n"
    )
    run = Run(source)
    run.reports.clear()
    run.f({"é": [1, 2], "o": 3})
    run.f(4)
    bound = [(cut(source, site), value) for site, value in run.reports if KINDS[site.kind] == "binding"]
    by_name = dict(bound)
    assert by_name == {"a": 1, "rest": [2], "others": {"o": 3}, "whole": {"é": [1, 2], "o": 3}, "either": 4}


def test_functions_compiled_by_others_stay_as_they_are() -> None:
    source = "import triton\n@triton.jit\ndef kernel(x): return x\n"
    sites = instrument(source, "k.py").sites
    assert sites == ()


# Positions


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16-cookie"])
def test_columns_count_characters_whatever_the_encoding_and_line_ends(encoding: str, end: str) -> None:
    text = "# -*- coding: {} -*-\n'é'; x = ('ü', y) if y else 'ö', y\n\fz = 'é', y\nif y:\n\tw = 'é', y\n"
    source: str | bytes
    if encoding == "utf-16-cookie":  # a str keeps what it is, whatever its cookie claims
        source = text.format("utf-16").replace("\n", end)
    else:
        source = text.format(encoding).replace("\n", end).encode(encoding)
    instrumented = instrument(source, "c.py")
    found = [cut(text, site) for site in instrumented.sites if site.name]
    assert found == ["x", "z", "w"]


def test_astral_characters_are_one_column() -> None:
    source = "𝕒 = '🔥', y; b = '🔥'; c = y"
    (first, second) = [site for site in instrument(source, "a.py").sites if site.name]
    assert cut(source, first) == "𝕒"
    assert cut(source, second) == "c"


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=8))
def test_any_text_before_a_name_leaves_its_column_right(before: str) -> None:
    source = f"{before!r}; name = y"
    (site,) = [site for site in instrument(source, "a.py").sites if site.name]
    assert cut(source, site) == "name"


def plain_positions(code: CodeType) -> list[Any]:
    return [position for position in code.co_positions() if None not in position]


def all_codes(code: CodeType) -> list[CodeType]:
    return [code, *(inner for c in code.co_consts if isinstance(c, CodeType) for inner in all_codes(c))]


@pytest.mark.parametrize("module", [inspect, traceback, copy, linecache, pickle])
def test_every_position_of_the_plain_code_is_one_of_the_instrumented_code(module: ModuleType) -> None:
    assert module.__file__ is not None
    source = Path(module.__file__).read_bytes()
    plain = compile(source, "m.py", "exec", dont_inherit=True)
    ours = instrument(source, "m.py").code
    pairs = list(zip(all_codes(plain), all_codes(ours), strict=True))
    assert len(pairs) > 5
    for before, after in pairs:
        assert after.co_qualname == before.co_qualname
        assert after.co_firstlineno == before.co_firstlineno
        assert after.co_freevars == before.co_freevars
        assert set(plain_positions(before)) <= set(plain_positions(after))


def test_a_traceback_reads_as_if_nothing_had_been_added(tmp_path: Path) -> None:
    source = (
        "def inner(a, b):\n    x = [v / b for v in (a,)]\n    return x\n"
        "class C:\n    def m(self, k):\n        y, (z, w) = 1, (inner(\n            k, 0), 2)\n        return y\n"
        "def start(k):\n    with open(__file__) as f:\n        return (lambda q: C().m(q))(k) if k else f\n"
    )
    path = tmp_path / "program.py"
    path.write_text(source)
    plain: dict[str, Any] = {"__file__": str(path)}
    exec(compile(source, str(path), "exec"), plain)
    texts = []
    for start in (plain["start"], Run(source, str(path)).start):
        with pytest.raises(ZeroDivisionError) as caught:
            start(1)
        texts.append("".join(traceback.format_exception(caught.value)).partition("return (lambda")[2])
    assert texts[0] == texts[1]


# What must stay the same


def test_the_source_of_functions_and_lambdas_is_the_persons(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    source = "def f(x):\n    '''Doc.'''\n    y = x\n    return y\n\ng = lambda x: x + 1\n\nclass C:\n    def m(self): return super().m\n"
    path.write_text(source)
    run = Run(source, str(path))
    sys.modules["program"] = run.module
    try:
        assert inspect.getsource(run.f) == "def f(x):\n    '''Doc.'''\n    y = x\n    return y\n"
        assert inspect.getsource(run.g) == "g = lambda x: x + 1\n"
        assert inspect.getsource(run.C) == "class C:\n    def m(self): return super().m\n"
        assert run.f.__doc__ == "Doc."
        assert pickle.loads(pickle.dumps(run.f)) is run.f
    finally:
        del sys.modules["program"]


def test_docstrings_futures_class_cells_and_mangling_stay() -> None:
    run = Run(
        '"""Module."""\nfrom __future__ import annotations\n'
        "class Base:\n    def who(self): return __class__.__name__\n"
        "class C(Base):\n    '''Class.'''\n    __secret = [1]\n    x: undefined_name = [2]\n"
        "    def get(self):\n        '''Method.'''\n        __v = self.__secret\n        return __v\n"
        "    def who(self): return super().who() + __class__.__name__\n"
    )
    assert run.module.__doc__ == "Module."
    assert run.C.__doc__ == "Class."
    assert run.C.get.__doc__ == "Method."
    assert run.C._C__secret == run.C().get() == [1]
    assert run.C.__annotations__ == {"x": "undefined_name"}
    assert run.C().who() == "BaseC"


@pytest.mark.parametrize(
    "source",
    [
        "x = (1,\n",
        "return 1",
        "def f():\n    nonlocal x",
        "x = 1\n  y = 2",
        "def f(a, a): pass",
        "f() = 1",
        "\0",
        "yield",
    ],
)
def test_a_file_with_errors_raises_what_compile_raises(source: str) -> None:
    with pytest.raises((SyntaxError, ValueError)) as plain:
        compile(source, "bad.py", "exec", dont_inherit=True)
    with pytest.raises(type(plain.value)) as ours:
        instrument(source, "bad.py")
    assert str(ours.value) == str(plain.value)
    if isinstance(plain.value, SyntaxError) and isinstance(ours.value, SyntaxError):
        assert ours.value.args == plain.value.args


def test_an_unknown_encoding_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError, match="unknown encoding"):
        instrument(b"# coding: klingon\n", "k.py")


def test_what_is_nested_too_deeply_to_be_rewritten_still_runs() -> None:
    source = "x = " + "+".join(["y"] * 700) + "\n"
    run_plainly: Instrumented = instrument(source, "deep.py")
    namespace: dict[str, Any] = {"y": 1, "__mase__": lambda _site, value: value}
    exec(run_plainly.code, namespace)
    assert namespace["x"] == 700


def test_code_runs_where_nobody_listens() -> None:
    provide_default()
    namespace: dict[str, Any] = {}
    exec(instrument("def f(x):\n    y = x\n    return y\nz = f([1])", "q.py").code, namespace)
    assert namespace["z"] == [1]


def test_an_operand_under_a_test_is_asked_for_its_truth_once() -> None:
    class Asked:
        count = 0

        def __bool__(self) -> bool:
            Asked.count += 1
            return True

        def __lt__(self, other: Any) -> Asked:
            return self

    source = "def f(a):\n    if a or a: pass\n    if not (a and a): pass\n    if a < a < a: pass\n    while a and (a or a): break\n    return (a or a) and a"
    plain: dict[str, Any] = {}
    exec(source, plain)
    plain["f"](Asked())
    expected, Asked.count = Asked.count, 0
    Run(source).f(Asked())
    assert Asked.count == expected


CHOSEN = """
if __name__:
    def f(x):
        if x:
            return 2 * x
        return 0
{rest}

class Held:
    if __name__:
        def f(x):
            return x
    else:
        f = None
"""


@pytest.mark.parametrize(
    "rest", ["else:\n    f = len", "elif f:\n    f = len", "else:\n    def f(x):\n        return x"]
)
def test_functions_under_a_test_of_a_module_or_class_run(rest: str) -> None:
    run = Run(CHOSEN.format(rest=rest))
    assert (run.f(3), run.f(0), run.Held.f(3)) == (6, 0, 3)
