"""Every form of binding, parameter and return that Python has, in one file, against eager execution."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.examples.eager import difference, shapes, shown_rows, truth_rows
from tests.ground_truth.record import run_main

FILE = Path(__file__).parent / "data" / "every_binding.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shown() -> Mapping[str, Any]:
    return shapes(FILE).files[FILE.name]


def test_every_form_is_shown_as_eager_has_it(shown):
    report = difference(shown_rows(shown), truth_rows(run_main(FILE)))
    assert not any(report.values()), report


def test_the_file_runs_without_a_problem(shown):
    assert [one for one in shown["problems"] if one["severity"] != "information"] == []


FORMS = [ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.With, ast.Starred, ast.Lambda, ast.ListComp,
         ast.DictComp, ast.GeneratorExp, ast.Yield, ast.Nonlocal, ast.While, ast.Try]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_file_has_each_form(form):
    assert any(isinstance(node, form) for node in ast.walk(ast.parse(FILE.read_text(encoding="utf-8"))))
