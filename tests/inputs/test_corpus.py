"""Model files written in the manner of public repositories, with nothing configured, against eager PyTorch.

`benchmarks/corpus.py` judges each file in children of its own: one runs the product's job, the other builds the models
for real and records what Python itself binds.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SCRIPT = HERE.parents[1] / "benchmarks" / "corpus.py"

Verdicts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Why a file is not shown by itself, and the comment that shows it, above the line that starts with `above`."""

    why: str
    above: str
    comment: str


#: Files of which no whole model may be shown with nothing configured.
NOT_SHOWN: dict[str, Answer] = {
    "projects/recsys/sasrec.py": Answer(
        "its inputs are arrays that it makes tensors of itself, and its arguments are a parsed command line",
        "class NextItem(",
        "NextItem(9, 99, type('Args', (), {'device': 'cpu', 'hidden_units': 48, 'maxlen': 50, 'num_blocks': 2, "
        "'num_heads': 1, 'dropout_rate': 0.2})); user_ids: i64[B]; log_seqs: i64[B, T] < 99; "
        "pos_seqs: i64[B, T] < 99; neg_seqs: i64[B, T] < 99",
    ),
    "projects/gan-zoo/cyclegan/networks.py": Answer(
        "its argument `norm` is a class of layers, and its file has no call that says which",
        "class Translator(",
        "Translator(3, 3, 16, nn.InstanceNorm2d, 2)",
    ),
    "projects/recsys/two_tower.py": Answer(
        "its inputs are dicts whose keys stand in a constructor",
        "class TwoTower(",
        "user_sparse: {user_id: i64[B] < 1000, country: i64[B] < 60}; user_dense: f32[B, 5]; "
        "item_sparse: {item_id: i64[B] < 5000, category: i64[B] < 40}; item_dense: f32[B, 8]",
    ),
}


def judged(*files: str) -> dict[str, dict[str, Any]]:
    """The verdict on each FOLDER::FILE, or on the whole corpus, by the file's path."""
    command = [sys.executable, str(SCRIPT), "--json", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-2000:]
    verdicts = map(json.loads, done.stdout.splitlines())
    return {one["file"].partition("::")[2]: one for one in verdicts}


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    """All files as they are."""
    return {str(Path(path).relative_to(HERE)): verdict for path, verdict in judged().items()}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """The files that are not shown by themselves, each with its comment, in copies of their projects."""
    folder, files = tmp_path_factory.mktemp("answered"), {}
    for index, (name, answer) in enumerate(NOT_SHOWN.items()):
        _, project, *rest = Path(name).parts
        copy = folder / str(index)
        shutil.copytree(HERE / "projects" / project, copy)
        file = copy.joinpath(*rest)
        file.write_text(commented(file.read_text(encoding="utf-8"), answer), encoding="utf-8")
        files[name] = file
    found = judged(*(f"{folder / str(index)}::{file}" for index, file in enumerate(files.values()))) if files else {}
    return {name: found[str(file)] for name, file in files.items()}


def commented(text: str, answer: Answer) -> str:
    """The text of a file with an answer's comment."""
    lines = text.splitlines(keepends=True)
    (at,) = (number for number, line in enumerate(lines) if line.startswith(answer.above))
    return "".join([*lines[:at], f"# mase: {answer.comment}\n", *lines[at:]])


def faults(verdicts: Verdicts, title: str) -> list[str]:
    """Every entry of one list of the verdicts, with its file."""
    return [f"{name}: {entry}" for name, verdict in verdicts.items() for entry in verdict[title]]


def test_there_are_at_least_eighty_files(verdicts):
    assert len(verdicts) >= 80


def test_half_of_the_files_have_no_main_and_classes_that_cannot_be_made_without_arguments(verdicts):
    bare = [name for name in verdicts if is_bare((HERE / name).read_text(encoding="utf-8"))]
    assert len(bare) >= len(verdicts) / 2


def is_bare(source: str) -> bool:
    """No `__main__`, and a constructor that wants arguments."""
    made = (
        each
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    )
    return "__main__" not in source and any(wants_arguments(each.args) for each in made)


def wants_arguments(arguments: ast.arguments) -> bool:
    """Are there parameters beside self without defaults?"""
    return len(arguments.args) - 1 > len(arguments.defaults) or None in arguments.kw_defaults


def test_nine_files_in_ten_are_shown_with_nothing_configured(verdicts):
    assert sum(one["is_shown"] for one in verdicts.values()) >= 0.9 * len(verdicts)


def test_what_is_not_shown_is_known(verdicts):
    assert {name: one["why"] for name, one in verdicts.items() if not one["is_shown"]}.keys() <= NOT_SHOWN.keys()


def test_no_shape_is_wrong_given_the_inputs_shown(verdicts):
    assert faults(verdicts, "wrong") == []


def test_hardly_a_place_that_eager_binds_is_left_out(verdicts):
    """None but where Python's own dice are thrown, and where eager runs a model with other inputs too."""
    missing = faults(verdicts, "missing")
    assert len(missing) <= 0.01 * sum(one["places"] for one in verdicts.values()), missing


def test_no_error_is_told_about_files_that_work(verdicts):
    assert faults(verdicts, "errors") == []


def test_enough_was_compared_that_a_wrong_shape_would_have_been_seen(verdicts):
    """Eager bound at least two places in every file that is shown; a file of torch's own layers has none."""
    few = {name: one["places"] for name, one in verdicts.items() if one["is_shown"] and one["places"] < 2}
    assert few.keys() <= {"corpus/module_level.py"}


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_one_comment_shows_the_rest(answered, name):
    verdict = answered[name]
    assert verdict["is_shown"], verdict["why"] or verdict["unjudged"]
    assert (verdict["wrong"], verdict["errors"]) == ([], [])
