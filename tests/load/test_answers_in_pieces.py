"""Big answers of the language server: the same JSON as in one go, in pieces of which none takes long."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types as lsp

from mase_server.daemon.slots import Slices, iterate_in_slices
from mase_server.lsp.framing import is_big, json_pieces
from mase_server.lsp.server import make_converter

CONVERTER = make_converter()
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


def default(value):
    return CONVERTER.unstructure(value)


def at_once(value):
    return json.dumps(value, default=default)


def in_pieces(value):
    return "".join(json_pieces(value, default))


def hint(number):
    place = lsp.Position(number, 3)
    return lsp.InlayHint(place, [lsp.InlayHintLabelPart(f"f32[B, {number}]")], lsp.InlayHintKind.Type, data={"n": [1]})


def diagnostic(number):
    place = lsp.Range(lsp.Position(number, 0), lsp.Position(number, 2))
    return lsp.Diagnostic(place, f"a mistake\n  {number}", severity=lsp.DiagnosticSeverity.Error, code="shape-mismatch")


def action(number):
    names = [f"relu_{each}" for each in range(number)]
    return lsp.CodeAction("MASE: Prune", command=lsp.Command("Prune", "mase.applyPass", arguments=[{"only": names}]))


BIG = {
    "hints": [hint(number) for number in range(300)],
    "a report": lsp.RelatedFullDocumentDiagnosticReport([diagnostic(each) for each in range(300)], result_id="1"),
    "columns": {"columns": {"row": list(range(9000)), "name": ["é\U0001f600"] * 9000}, "next": None},
    "rows": [{"id": str(each), "places": [{"line": each}], "bits": None} for each in range(500)],
    "a text": {"text": 'x = "\\"\n' * 40_000},
    "deep in a command": [action(20_000), action(0)],
    "lists of few": [[number] for number in range(1000)],
    "keys that are no text": {number: number for number in range(5000)},
}


@pytest.mark.parametrize("name", BIG)
def test_a_big_answer_is_the_same_in_pieces(name):
    assert is_big(BIG[name])
    assert in_pieces(BIG[name]) == at_once(BIG[name])


@pytest.mark.parametrize("name", [name for name in BIG if name != "keys that are no text"])
def test_no_piece_is_much_of_it(name):
    made = list(json_pieces(BIG[name], default))
    assert len(made) > 3
    assert max(map(len, made)) <= 1 << 17


@given(values, st.integers(1, 40))
def test_whatever_an_answer_holds_it_is_the_same_in_pieces(value, times):
    for each in (value, [value] * times * 8, {"of": [value] * times * 8}):
        assert in_pieces(each) == at_once(each)


@pytest.mark.parametrize("small", [None, [], {}, 3, "short", [hint(1)], lsp.Hover("card"), {"rows": [], "sha256": ""}])
def test_small_answers_are_left_alone(small):
    assert not is_big(small)


async def test_work_in_slices_gives_others_their_turn_and_loses_nothing():
    turns, done = [], asyncio.Event()

    async def other():
        while not done.is_set():
            turns.append(None)
            await asyncio.sleep(0)

    def slow():
        for number in range(30):
            end = time.perf_counter() + 0.001
            while time.perf_counter() < end:
                pass
            yield number

    beside = asyncio.create_task(other())
    assert [number async for number in iterate_in_slices(slow())] == list(range(30))
    done.set()
    await beside
    assert len(turns) >= 5


async def test_a_pause_before_the_slice_is_over_is_none():
    slices, turned = Slices(), asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    slices._ends = time.perf_counter() + 3600
    await slices.pause()
    assert not turned.is_set()
    slices._ends = 0.0
    await slices.pause()
    assert turned.is_set()
