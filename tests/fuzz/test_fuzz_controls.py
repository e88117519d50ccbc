"""The fuzzer itself: its rules are those of eager PyTorch, its edits those of the protocol, and it sees mistakes."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fuzz_documents import Document
from fuzz_play import Play
from fuzz_server import Server
from fuzz_texts import FAULTS, FIRST, unknown, written
from fuzz_wire import Asking, Broken
from hypothesis import given
from hypothesis import strategies as st

CHANGES = st.lists(st.tuples(*[st.integers(0, 999)] * 4), max_size=12)
TEXTS = st.text(st.sampled_from("ab \n😀é𐍈("), max_size=6)


def changed(changes):
    spec = FIRST
    for change in changes:
        spec = spec.changed(*change)
    return spec


def shapes_in_eager(text):
    """{name: sizes of the tensor that it holds at the end of forward}, and what forward returned as "return"."""
    found = {}

    def look(frame, event, value):
        if event == "return" and frame.f_code.co_name == "forward" and frame.f_code.co_filename == "model.py":
            found.update({name: tuple(each.shape) for name, each in frame.f_locals.items() if hasattr(each, "shape")})
            found["return"] = tuple(getattr(value, "shape", ()))

    sys.setprofile(look)
    try:
        exec(compile(text, "model.py", "exec"), {"__name__": "__main__"})
    finally:
        sys.setprofile(None)
    return found


def name_at(text, line, column):
    """The name that ends at a place of a text, in UTF-16 units."""
    before = text.split("\n")[line].encode("utf-16-le")[: 2 * column].decode("utf-16-le")
    return "return" if before.lstrip().startswith("return") else before.split()[-1].rpartition(" ")[2].split("(")[-1]


@given(CHANGES)
def test_the_labels_that_the_rule_gives_are_the_shapes_of_eager_pytorch(changes):
    told = written(changed(changes))
    eager = {name: f"f32[B, {shape[1]}]" for name, shape in shapes_in_eager(told.text).items()}
    labels = {
        name_at(told.text, *at): label.removeprefix(": ").removeprefix(" -> ") for at, label in told.hints.items()
    }
    assert labels == eager


ERRORS = {"mismatch": RuntimeError, "raises": KeyError, "syntax": SyntaxError}


@pytest.mark.parametrize("fault", ERRORS)
def test_a_fault_is_one_of_eager_pytorch_too(fault):
    with pytest.raises(ERRORS[fault]):
        shapes_in_eager(written(replace(FIRST, fault=fault)).text)


def test_every_fault_has_a_place_unless_nothing_is_told():
    for fault, (_, code) in FAULTS.items():
        assert (written(replace(FIRST, fault=fault)).place >= 0) == bool(code)


def by_the_protocol(text, change):
    """The text after a change, by UTF-16 units alone."""
    lines = text.split("\n")

    def cut(position):
        encoded = lines[position["line"]].encode("utf-16-le")
        return encoded[: 2 * position["character"]].decode("utf-16-le"), encoded[2 * position["character"] :].decode(
            "utf-16-le"
        )

    start, end = change["range"]["start"], change["range"]["end"]
    head = "\n".join([*lines[: start["line"]], cut(start)[0]])
    tail = "\n".join([cut(end)[1], *lines[end["line"] + 1 :]])
    return head + change["text"] + tail


@given(TEXTS, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), TEXTS), max_size=6))
def test_edits_are_told_as_the_protocol_has_them(tmp_path_factory, text, edits):
    document = Document(tmp_path_factory.getbasetemp() / "x.py")
    document.load(unknown(text))
    for start, length, new in edits:
        change = document.edit(start, start + length, new)
        text = by_the_protocol(text, change)
        assert document.text == text
    for change in document.retyped(written(FIRST)):
        text = by_the_protocol(text, change)
    assert text == written(FIRST).text


class Told(Asking):
    """A wire whose answers a test makes up."""

    def send_request(self, ident, method, params): ...


def refused(wire, ident, answer, what):
    with pytest.raises(Broken, match=what):
        wire.answer(ident, answer)


def test_an_answer_too_many_is_seen():
    wire = Told()
    wire.ask("x", {}, lambda answer: None)
    wire.answer(1, {"result": None})
    refused(wire, 1, {"result": None}, "was answered before")
    refused(wire, 7, {"result": None}, "was never asked")


def test_a_fault_of_the_servers_own_is_seen_and_a_question_taken_back_may_be_refused():
    wire = Told()
    wire.ask("x", {}, lambda answer: None)
    refused(wire, 1, {"error": {"code": -32603, "message": "?"}}, "failed inside the server")
    wire.ask("x", {}, pytest.fail).cancelled = True
    wire.answer(2, {"error": {"code": -32800, "message": "cancelled"}})


def test_an_answer_that_never_comes_is_seen(monkeypatch):
    monkeypatch.setattr("fuzz_wire.PATIENCE", 0.0)
    wire = Told()
    wire.ask("mase/graph", {}, lambda answer: None)
    with pytest.raises(Broken, match=r"without an answer: .'1 mase/graph'."):
        wire.until(lambda: not wire.open, "the answer")


STALE = [{"position": {"line": 10, "character": 10}, "label": ": f32[B, 99]"}]
MISSING = [{"position": {"line": 10, "character": 10}, "label": ": f32[B, 12]"}]


@pytest.mark.parametrize(("found", "what"), [(STALE, "a stale hint"), (MISSING, "shows 'nothing', not ': f32")])
def test_a_hint_that_is_stale_and_one_that_is_missing_are_seen(tmp_path, found, what):
    wire = Told()
    wire.serve = wire.hear = wire.notify = lambda *told: None
    run = Play(SimpleNamespace(wire=wire, folder=tmp_path, other=tmp_path, style="pull"), 1)
    document = run.new()
    run.open(document)
    run.hints(document, 0, 99, exact=document.shown[0])
    refused(wire, 1, {"result": found}, what)


def test_what_a_client_cannot_have_leaves_no_word_in_the_log():
    server = Server("pull", lambda method, params: [None for _ in params["items"]] if params else None)
    try:
        server.shake_hands()
        told = server.wire.result("mase/graph", {"path": "/nowhere.py"})
        assert told["error"]["code"] == -32602
        server.wire.cancel(10**9)
        server.wire.notify("workspace/didRenameFiles", {"files": []})
        server.wire.result("mase/files", {})
        assert server.log.read_text() == ""
        server.stop()
    finally:
        server.dispose()
