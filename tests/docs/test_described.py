"""Docstrings taken apart: nothing is lost, and each sentence goes where it belongs."""

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mase_server
from docs.described import described
from mase_server import passes

WORDS = st.lists(st.sampled_from(["tensors", "are", "made", "of", "nodes", "size", "2.5", "e.g."]), min_size=1)
SENTENCES = WORDS.map(lambda words: "It " + " ".join(words) + " here.")
NAMES = st.sampled_from(["width", "depth", "dummy_in", "pass_args"])
EVERYTHING = [
    getattr(home, name)
    for home in (mase_server, passes)
    for name in home.__all__
    if callable(getattr(home, name)) and inspect.getdoc(getattr(home, name))
]


def test_a_single_sentence_is_the_summary():
    found = described("Give a graph its metadata.")
    assert found.summary == "Give a graph its metadata."
    assert (found.entries, found.notes, found.errors, found.example) == ({}, [], [], [])


def test_no_docstring_is_an_empty_summary():
    assert described(None).summary == ""
    assert described("").summary == ""


def test_parameters_may_share_a_line_and_go_on_in_the_next():
    found = described("Do it.\n\nwidth: how wide.  depth: how deep,\nin layers.\nmode: which.")
    assert found.entries == {"width": "how wide.", "depth": "how deep, in layers.", "mode": "which."}


def test_names_that_are_told_together_have_the_same_text():
    assert described("Do it.\n\nrtol, atol: as in torch.allclose.").entries == {
        "rtol": "as in torch.allclose.",
        "atol": "as in torch.allclose.",
    }


def test_errors_results_and_sources_are_kept_apart_from_notes():
    found = described("Do it.\n\nIt is slow. Raises ValueError for no name.  Gives a dict.\nSource: `a.b.c`.")
    assert found.notes == ["It is slow."]
    assert found.errors == ["Raises ValueError for no name."]
    assert found.results == ["Gives a dict."]
    assert found.sources == ["Source: `a.b.c`."]


def test_an_example_is_kept_line_by_line():
    found = described("Do it.\n\nwidth: how wide.\n\n>>> for i in range(1):\n...     i\n0")
    assert found.example == [">>> for i in range(1):", "...     i", "0"]
    assert found.entries == {"width": "how wide."}


@pytest.mark.parametrize("text", ["Takes names, e.g. `a: b`, and more.", "A number such as 2.5 or torch.nn is fine."])
def test_a_point_inside_of_a_sentence_does_not_end_it(text):
    assert described(text).summary == text


def test_a_colon_inside_of_a_sentence_makes_no_parameter():
    found = described("Do it.\n\nStatistics: {name: options}. by: what is compared.")
    assert found.entries == {"by": "what is compared."}
    assert found.notes == ["Statistics: {name: options}."]


@given(SENTENCES, st.dictionaries(NAMES, SENTENCES), st.lists(SENTENCES))
def test_what_was_put_together_is_taken_apart_again(summary, entries, notes):
    told = "  ".join(f"{name}: {text}" for name, text in entries.items())
    found = described("\n\n".join(part for part in (summary, " ".join(notes), told) if part))
    assert found.summary == summary
    assert found.notes == notes
    assert found.entries == entries


@pytest.mark.parametrize("thing", EVERYTHING, ids=lambda thing: thing.__name__)
def test_no_word_of_a_public_docstring_is_lost(thing):
    text = inspect.getdoc(thing)
    found = described(text)
    told = [found.summary, *found.notes, *found.errors, *found.results, *found.sources, *found.example]
    told += [f"{name} {text}" for name, text in found.entries.items()]
    assert set(re.findall(r"\w+", text)) - set(re.findall(r"\w+", " ".join(told))) <= {"with"}
