"""The recorder against small files whose truth was worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from tests.ground_truth.places import Place
from tests.ground_truth.record import describe, run_main, run_with

F32 = "f32"


def marked(tmp_path: Path, text: str, use: Any = None) -> tuple[dict[Place, list[Any]], str]:
    """What was seen in a file with this text, and the text."""
    source = dedent(text).lstrip()
    path = tmp_path / "model.py"
    path.write_text(source, encoding="utf-8")
    truth = run_main(path) if use is None else run_with(path, use)
    return {place: list(seen) for place, seen in truth.items()}, source


def by_text(truth: dict[Place, list[Any]], source: str) -> list[tuple[int, str, str, str, list[Any]]]:
    """(line, kind, the text at the position, function, values), in order."""
    lines = source.split("\n")
    rows = []
    for place in sorted(truth):
        assert place.line == place.end_line
        text = lines[place.line - 1][place.column : place.end_column]
        rows.append((place.line, place.kind, text, place.function, truth[place]))
    return rows


def test_parameters_bindings_and_returns_of_a_function(tmp_path):
    truth, source = marked(tmp_path, """
        import torch
        def double(x: torch.Tensor, scale=2):
            y = x * scale
            return y.sum(0)
        out = double(torch.ones(3, 4))
        """)  # fmt: skip
    assert by_text(truth, source) == [
        (2, "parameter", "x", "double", [(F32, (3, 4))]),
        (3, "binding", "y", "double", [(F32, (3, 4))]),
        (4, "return", "y.sum(0)", "double", [(F32, (4,))]),
        (5, "binding", "out", "", [(F32, (4,))]),
    ]


def test_two_functions_without_a_name_begin_in_one_line(tmp_path):
    truth, source = marked(tmp_path, """
        import torch
        apply = lambda f, x: f(x)
        out = apply(lambda y: (lambda z: z + 1)(y), torch.ones(2))
        """)  # fmt: skip
    assert [(line, text) for line, kind, text, *_ in by_text(truth, source) if kind == "parameter"] == [
        (2, "x"), (3, "y"), (3, "z"),
    ]  # fmt: skip


def test_every_form_of_binding_is_seen(tmp_path):
    truth, source = marked(tmp_path, """
        import contextlib, torch
        x = torch.zeros(6, 2)
        a, (b, *c) = x[0], (x[1:3], x[3], x[4:])
        a = d = x.long()
        a += 1
        for row in x[:2]: pass
        with contextlib.nullcontext(x.t()) as e: pass
        if (f := x[:, :1]) is not None: pass
        g = [h.sum() for h in x[:1]]
        i: torch.Tensor = x.bool()
        """)  # fmt: skip
    assert [row[:3] + row[4:] for row in by_text(truth, source)] == [
        (2, "binding", "x", [(F32, (6, 2))]),
        (3, "binding", "a", [(F32, (2,))]),
        (3, "binding", "b", [(F32, (2, 2))]),
        (3, "binding", "c", [("tuple", ((F32, (2,)), (F32, (2, 2))))]),
        (4, "binding", "a", [("i64", (6, 2))]),
        (4, "binding", "d", [("i64", (6, 2))]),
        (5, "binding", "a", [("i64", (6, 2))]),
        (6, "binding", "row", [(F32, (2,))]),
        (7, "binding", "e", [(F32, (2, 6))]),
        (8, "binding", "f", [(F32, (6, 1))]),
        (9, "binding", "g", [("tuple", ((F32, ()),))]),
        (9, "binding", "h", [(F32, (2,))]),
        (10, "binding", "i", [("bool", (6, 2))]),
    ]


def test_a_line_that_rebinds_a_name_keeps_each_value_at_its_own_place(tmp_path):
    truth, _source = marked(tmp_path, """
        import torch
        def f(x): x = x.t(); x = x[:1]; return x
        f(torch.ones(3, 4))
        """)  # fmt: skip
    assert [(p.column, truth[p]) for p in sorted(truth)] == [
        (6, [(F32, (3, 4))]),
        (10, [(F32, (4, 3))]),
        (21, [(F32, (1, 3))]),
        (39, [(F32, (1, 3))]),
    ]


def test_a_place_that_runs_often_keeps_every_distinct_value_and_its_count(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("import torch\nx = torch.ones(4)\nfor n in (1, 2, 2):\n    y = x[:n]\n")
    (counts,) = [seen for place, seen in run_main(path).items() if place.name == "y"]
    assert counts == {(F32, (1,)): 1, (F32, (2,)): 2}


def test_a_return_inside_with_and_one_overtaken_by_finally(tmp_path):
    truth, source = marked(tmp_path, """
        import torch
        def inside(x):
            with torch.no_grad():
                return x[:1]
        def overtaken(x):
            try:
                return x[:2]
            finally:
                return x[:3]
        inside(torch.ones(4)), overtaken(torch.ones(4))
        """)  # fmt: skip
    returns = [row for row in by_text(truth, source) if row[1] == "return"]
    assert returns == [
        (4, "return", "x[:1]", "inside", [(F32, (1,))]),
        (9, "return", "x[:3]", "overtaken", [(F32, (3,))]),
    ]


def test_lambdas_generators_closures_and_methods(tmp_path):
    truth, source = marked(tmp_path, """
        import torch
        class Net:
            def __call__(self, *xs, **named):
                first = xs[0]
                def inner(): return first.t()
                return inner()
        def halves(x):
            for part in x.split(2):
                yield part
        half = lambda t: t[:1]
        Net()(torch.ones(2, 3), mask=None, bias=torch.ones(1))
        parts = list(halves(torch.ones(4)))
        half(torch.ones(2, dtype=torch.int32))
        """)  # fmt: skip
    rows = by_text(truth, source)
    assert (3, "parameter", "xs", "Net.__call__", [("tuple", ((F32, (2, 3)),))]) in rows
    assert (3, "parameter", "named", "Net.__call__", [("dict", (("mask", None), ("bias", (F32, (1,)))))]) in rows
    assert (4, "binding", "first", "Net.__call__", [(F32, (2, 3))]) in rows
    assert (5, "return", "first.t()", "Net.__call__.<locals>.inner", [(F32, (3, 2))]) in rows
    assert (8, "binding", "part", "halves", [(F32, (2,))]) in rows
    assert (10, "parameter", "t", "<lambda>", [("i32", (2,))]) in rows
    assert (10, "return", "t[:1]", "<lambda>", [("i32", (1,))]) in rows
    assert (12, "binding", "parts", "", [("tuple", ((F32, (2,)), (F32, (2,))))]) in rows
    assert not any(row[1] == "return" and row[3] == "halves" for row in rows)


def test_columns_count_code_points(tmp_path):
    truth, source = marked(tmp_path, """
        import torch
        s = "🦊ß"; größe = torch.ones(1); y = größe
        """)  # fmt: skip
    assert [row[2] for row in by_text(truth, source)] == ["größe", "y"]


def test_the_rest_of_the_file_is_not_run_as_main(tmp_path):
    def use(module):
        module["f"](module["torch"].ones(2, dtype=module["torch"].bool))

    text = """
        import torch
        def f(x): return x
        if __name__ == "__main__": f(torch.ones(9))
        """
    truth, _source = marked(tmp_path, text, use)
    assert {value for seen in truth.values() for value in seen} == {("bool", (2,))}


def test_an_exception_is_no_return(tmp_path):
    truth, source = marked(tmp_path, """
        import torch
        def f(x):
            try:
                return x.view(7)
            except RuntimeError:
                pass
        f(torch.ones(2))
        """)  # fmt: skip
    assert [row[1] for row in by_text(truth, source)] == ["parameter"]


def test_a_tensor_where_the_tree_knows_no_binding_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match="holds a tensor, and the syntax tree binds nothing"):
        marked(tmp_path, """
            import torch
            match torch.ones(2):
                case whole: pass
            """)  # fmt: skip


def test_a_data_class_of_tensors_is_a_dict_and_any_other_is_its_type():
    @dataclass
    class State:
        hidden: Any
        steps: int = 3

    assert describe(State(torch.ones(2))) == ("dict", (("hidden", (F32, (2,))), ("steps", ("python", "int"))))
    assert describe(State(None)) == ("python", "State")


def test_describe_nests_and_names_what_is_no_tensor():
    value = {"a": [torch.ones(2), None], 3: (5, "x")}
    assert describe(value) == (
        "dict",
        (("a", ("tuple", ((F32, (2,)), None))), ("3", ("tuple", (("python", "int"), ("python", "str"))))),
    )
