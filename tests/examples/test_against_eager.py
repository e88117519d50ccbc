"""`mase-server shapes` against eager execution, for every example: all of it right, nothing missing, no false error.

Eager truth comes from `tests.ground_truth`, which shares no code with the product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.examples.cases import BY_FILE, CASES, Case
from tests.examples.eager import (
    Shown,
    described,
    difference,
    place_of,
    shapes,
    shown_rows,
    tensors_in,
    truth_of,
    truth_rows,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def everything() -> Shown:
    """What the product says about all examples, asked once."""
    return shapes(*(case.path for case in CASES))


@pytest.fixture(params=CASES, ids=lambda case: case.file)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def shown(case: Case, everything: Shown) -> Mapping[str, Any]:
    return everything.files[case.file]


def inputs_at(case: Case, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Real inputs at the sizes that the product chose: its symbols give each size by name."""
    (model,) = (model for model in shown["models"] if model["name"] == case.root)
    return case.inputs(dict(case.sizes) | sizes_of(model))


def sizes_of(model: Mapping[str, Any]) -> dict[str, int]:
    """{symbol: size} as the inputs of a model say, plain symbols only."""
    return {
        symbol: size
        for value in model["inputs"].values()
        for tensor in tensors_in(value)
        for symbol, size in zip(tensor["symbols"], tensor["shape"], strict=True)
        if symbol.isidentifier()
    }


def test_every_binding_parameter_and_return_is_what_eager_says(case, shown):
    truth = truth_of(case) if case.main else truth_of(case, inputs_at(case, shown))
    report = difference(shown_rows(shown), truth_rows(truth))
    assert not any(report.values()), "\n".join(f"{title}: {line}" for title, lines in report.items() for line in lines)


def test_no_problem_is_reported_for_a_file_that_runs(shown):
    assert shown["problems"] == []


def test_the_exit_status_says_that_all_were_shown(everything):
    assert everything.status == 0


def test_the_model_the_author_means_is_found_and_where_its_inputs_came_from(case, shown):
    assert case.root in {model["name"] for model in shown["models"]}
    (model,) = (model for model in shown["models"] if model["name"] == case.root)
    assert model["inputs_from"] == ("main" if case.main else "search")


def test_parameters_are_counted_as_torch_counts_them(case, shown):
    if case.file == "bert_hf.py":
        pytest.skip("the case is cut to three layers; test_bert_base_has_its_published_size looks at the real one")
    expected = sum(parameter.numel() for parameter in case.build(case.load()).parameters())
    (model,) = (model for model in shown["models"] if model["name"] == case.root)
    assert model["parameters"] == expected


def test_bert_base_has_its_published_size(everything):
    (model,) = everything.files["bert_hf.py"]["models"]
    pooler, span = 768 * 768 + 768, 2 * 768 + 2
    assert model["parameters"] == 109_482_240 - pooler + span


def test_inputs_are_those_of_the_outermost_forward(case, shown):
    (model,) = (model for model in shown["models"] if model["name"] == case.root)
    given = {name: described(value) for name, value in model["inputs"].items() if list(tensors_in(value))}
    sizes = dict(case.sizes) if case.main else dict(case.sizes) | sizes_of(model)
    expected = {name: value for name, value in case.inputs(sizes).items() if not isinstance(value, bool)}
    assert given.keys() == expected.keys()
    assert [tuple(t["shape"]) for v in model["inputs"].values() for t in tensors_in(v)] == list(shapes_in(expected))


def shapes_in(value: Any) -> Iterator[tuple[int, ...]]:
    """The shape of every tensor of a nested value, in order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from shapes_in(inner)
    else:
        yield tuple(value.shape)


NAMED = [
    ("mlp.py", "logits = self.head(x)", "logits", ["B", "5"]),
    ("lenet.py", "self.conv2(x)", "x", ["B", "16", "5", "5"]),
    ("gpt.py", "att = (q @ k", "att", ["B", "4", "T", "T"]),
    ("gpt.py", "tok_emb = ", "tok_emb", ["B", "T", "128"]),
    ("vit.py", "torch.cat([class_token, x]", "x", ["B", "197", "192"]),
    ("llama.py", "gate = ", "gate", ["B", "T", "1408"]),
    ("bert_hf.py", "hidden = ", "hidden", ["B", "T", "768"]),
]


@pytest.mark.parametrize(("file", "text", "name", "symbols"), NAMED)
def test_dimensions_have_the_names_a_person_would_give(everything, file, text, name, symbols):
    lines = BY_FILE[file].path.read_text().split("\n")
    (line,) = (number for number, content in enumerate(lines, 1) if text in content)
    rows = [row for row in everything.files[file]["tensors"] if (row["line"], row["name"]) == (line, name)]
    assert [value["symbols"] for row in rows for value in row["values"]] == [symbols]


def test_symbols_hold_when_the_same_file_runs_at_other_sizes(case, shown):
    """Eager at another batch and length: every dimension's expression, evaluated there, is the size eager has."""
    if not case.others:
        pytest.skip("does not claim to be generic")
    for sizes in case.others:
        inputs = case.inputs(sizes)
        truth = truth_rows(truth_of(case, inputs))
        wrong = list(symbol_faults(case, shown, truth, symbol_values(case, shown, inputs)))
        assert not wrong, "\n".join(wrong)


def symbol_values(case: Case, shown: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, int]:
    """What each symbol stands for when forward is given `inputs`."""
    (model,) = (model for model in shown["models"] if model["name"] == case.root)
    named = [t["symbols"] for value in model["inputs"].values() for t in tensors_in(value)]
    pairs = (
        pair
        for symbols, shape in zip(named, shapes_in(inputs), strict=False)
        for pair in zip(symbols, shape, strict=True)
    )
    return {symbol: size for symbol, size in pairs if symbol.isidentifier()}


def symbol_faults(
    case: Case, shown: Mapping[str, Any], truth: Mapping[Any, Any], sizes: dict[str, int]
) -> Iterator[str]:
    """Dimensions inside the root model's forward whose expression gives another size than eager."""
    for row in shown["tensors"]:
        place = (*(row[k] for k in ("line", "column", "end_line", "end_column", "kind", "name", "function")),)
        if row["kind"] == "expression" or place not in truth or not row["function"].endswith(".forward"):
            continue
        predicted = {evaluated(value, sizes) for value in row["values"]}
        if predicted != truth[place]:
            yield f"{case.file}:{row['line']} {row['name']} at {sizes}: symbols give {predicted}, eager {truth[place]}"


def evaluated(value: Any, sizes: dict[str, int]) -> Any:
    """A JSON value with every symbolic dimension evaluated at `sizes`."""
    if value is None:
        return None
    if "tuple" in value:
        return ("tuple", tuple(evaluated(inner, sizes) for inner in value["tuple"]))
    if "dict" in value:
        return ("dict", tuple((key, evaluated(inner, sizes)) for key, inner in value["dict"].items()))
    if "python" in value:
        return ("python", value["python"])
    return (value["dtype"], tuple(int(eval(symbol, {"__builtins__": {}}, sizes)) for symbol in value["symbols"]))


def test_the_json_has_exactly_the_documented_fields(shown):
    assert set(shown) == {"file", "python", "torch", "seconds", "complete", "models", "tensors", "problems", "unshown"}
    for model in shown["models"]:
        fields = {"name", "arguments", "inputs", "inputs_from", "arguments_from", "nodes", "parameters", "flops"}
        assert set(model) == fields | {"complete"}
    for row in shown["tensors"]:
        position = {"line", "column", "end_line", "end_column"}
        assert set(row) == position | {"name", "kind", "function", "values"}
        for value in row["values"]:
            assert {"model", "count", "scopes"} <= set(value)
            assert len(set(value) & {"shape", "tuple", "dict"}) == 1


def test_a_value_is_counted_as_often_as_eager_saw_it(case, shown):
    truth = truth_of(case) if case.main else truth_of(case, inputs_at(case, shown))
    counted = {
        (place_of(row), described(value)): value["count"]
        for row in shown["tensors"]
        if row["function"].endswith(".forward") and row["kind"] != "expression"
        for value in row["values"]
    }
    expected = {
        (place, value): count
        for place, seen in truth.items()
        if place.function.endswith(".forward")
        for value, count in seen.items()
    }
    assert counted == expected
