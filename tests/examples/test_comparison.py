"""The comparison with eager truth finds each kind of fault: a check that cannot fail proves nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.examples.cases import BY_FILE, CASES, EXAMPLES
from tests.examples.eager import described, difference, shown_rows, tensors_in, truth_of, truth_rows
from tests.ground_truth.record import Truth


def as_shown(truth: Truth) -> dict[str, Any]:
    """What a perfect product would print for this truth."""
    rows = [
        {
            "line": place.line, "column": place.column, "end_line": place.end_line, "end_column": place.end_column,
            "name": place.name, "kind": place.kind, "function": place.function,
            "values": [in_json(value) for value in seen],
        }
        for place, seen in truth.items()
    ]  # fmt: skip
    return {"tensors": rows}


def in_json(value: Any) -> Any:
    """A described value as the JSON writes it, every symbol a number."""
    match value:
        case None:
            return None
        case ("tuple", inner):
            return {"tuple": [in_json(one) for one in inner]}
        case ("dict", inner):
            return {"dict": {key: in_json(one) for key, one in inner}}
        case ("python", name):
            return {"python": name}
        case (dtype, shape):
            return {"dtype": dtype, "shape": list(shape), "symbols": [str(size) for size in shape]}
        case _:
            raise AssertionError(value)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return truth_of(BY_FILE["vae.py"])


@pytest.fixture
def shown(truth: Truth) -> dict[str, Any]:
    return copy.deepcopy(as_shown(truth))


def test_the_truth_itself_passes(shown, truth):
    assert not any(difference(shown_rows(shown), truth_rows(truth)).values())


def test_a_row_left_out_is_missing(shown, truth):
    left_out = shown["tensors"].pop(3)
    report = difference(shown_rows(shown), truth_rows(truth))
    assert [title for title, lines in report.items() if lines] == ["missing"]
    assert report["missing"][0].startswith(f"{left_out['line']}:{left_out['column']} ")


def test_a_row_of_the_products_own_making_is_found(shown, truth):
    shown["tensors"].append(shown["tensors"][0] | {"line": 1})
    report = difference(shown_rows(shown), truth_rows(truth))
    assert [title for title, lines in report.items() if lines] == ["unknown to eager"]


@pytest.mark.parametrize("change", [{"shape": [1]}, {"dtype": "f64"}], ids=["shape", "dtype"])
def test_a_wrong_value_is_wrong(shown, truth, change):
    row = next(row for row in shown["tensors"] if row["name"] == "std")
    row["values"][0] |= change
    report = difference(shown_rows(shown), truth_rows(truth))
    assert [title for title, lines in report.items() if lines] == ["wrong"]


def test_a_value_too_few_is_wrong():
    truth = truth_of(BY_FILE["mlp.py"])
    shown = as_shown(truth)
    row = next(row for row in shown["tensors"] if len(row["values"]) > 1)
    row["values"].pop()
    assert len(difference(shown_rows(shown), truth_rows(truth))["wrong"]) == 1


def test_expressions_are_not_compared(shown, truth):
    shown["tensors"].append(shown["tensors"][0] | {"kind": "expression", "line": 1})
    assert not any(difference(shown_rows(shown), truth_rows(truth)).values())


def test_containers_are_read_as_deep_as_they_go():
    tensor = {"dtype": "f32", "shape": [2], "symbols": ["B"]}
    value = {"dict": {"a": {"tuple": [tensor, None, {"python": "int"}]}}}
    assert described(value) == ("dict", (("a", ("tuple", (("f32", (2,)), None, ("python", "int")))),))
    assert list(tensors_in(value)) == [tensor]


def test_every_example_has_a_case():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {case.file for case in CASES}


@pytest.mark.parametrize("case", [case for case in CASES if case.main], ids=lambda case: case.file)
def test_a_case_builds_what_the_files_own_run_builds(case):
    """The inputs written down in the case have the shapes that the author's `__main__` gives the root's forward."""
    if case.file == "llama_hf.py":
        pytest.skip("its forward is the library's, which the recorder does not watch")

    def parameters(truth):
        forward = f"{case.root}.forward"
        return {p.name: set(seen) for p, seen in truth.items() if (p.kind, p.function) == ("parameter", forward)}

    assert parameters(truth_of(case)) == parameters(truth_of(case, case.inputs(case.sizes)))
