"""What hints, lenses and numbers say."""

import pytest

from mase_server import dtypes
from mase_server.daemon.store import ModelView, SiteView, ValueView
from mase_server.lsp import wording
from mase_server.lsp.wording import has_hint, hint_text, lens_text


def site(kind, *values):
    return SiteView(1, 0, 1, 1, "x", kind, "f", tuple(ValueView(value, "M", 1, (), None) for value in values))


TENSOR = ["f32", [2, 3], ["B", "3"]]


@pytest.mark.parametrize(
    ("kind", "follows", "text"),
    [
        ("parameter", ", y):", ": f32[B, 3]"),
        ("parameter", ": Tensor):", " f32[B, 3]"),
        ("parameter", "):", ": f32[B, 3]"),
        ("binding", " = f(y)", ": f32[B, 3]"),
        ("binding", ": Tensor = f(y)", " f32[B, 3]"),
        ("binding", " : Tensor = f(y)", " f32[B, 3]"),
        ("binding", " := f(y))", ": f32[B, 3]"),
        ("binding", ":= f(y))", ": f32[B, 3]"),
        ("return", "", " -> f32[B, 3]"),
        ("expression", ": 1}", ": f32[B, 3]"),
    ],
)
def test_a_hint_fits_what_follows_it(kind, follows, text):
    assert hint_text(site(kind, TENSOR), follows) == text


MODEL = {
    "name": "Net", "path": "net.py", "line": 1, "column": 6, "end_line": 1, "end_column": 9, "mode": "eval",
    "rung": "meta", "nodes": 3, "parameters": 12, "parameter_bytes": 48, "flops": None, "generic": True, "fixed": (),
    "seconds": 0.002, "inputs": {},
}  # fmt: skip
GUESSED = "; its constructor's arguments are guessed from their names"
MANY = {"n_mels": 80, "n_ctx": 64, "n_state": 8, "n_head": 4}
SIZE = "12 parameters · 3 nodes"


@pytest.mark.parametrize(
    ("inputs", "arguments", "given", "found", "told"),
    [
        ("main", "main", {"width": 3}, "called by this file", f"{SIZE} · called by this file"),
        ("search", "default", {}, "found by search: x = image",
         f"guessed B=2, H=32 · {SIZE} · found by search: x = image"),
        ("search", "search", {"dim": 64, "act": "relu"}, f"found by search: x = image{GUESSED}",
         f"guessed B=2, H=32, dim=64, … 1 more · {SIZE} · found by search: x = image"),
        ("comment", "search", {"dim": 64}, f"inputs from comment{GUESSED}",
         f"guessed dim=64 · {SIZE} · inputs from comment"),
        ("comment", "search", MANY, "x", f"guessed n_mels=80, n_ctx=64, … 2 more · {SIZE} · x"),
        ("comment", "search", {"name": "x" * 99}, "x", f"guessed arguments · {SIZE} · x"),
        ("comment", "comment", {}, "x" * 200, f"{SIZE} · {'x' * 89}…"),
    ],
)  # fmt: skip
def test_a_line_of_a_terminal_begins_with_what_nobody_has_said(inputs, arguments, given, found, told):
    facts = {"inputs_from": inputs, "arguments_from": arguments, "arguments": given, "found": found}
    model = ModelView(snapshot=None, index=0, symbols={"B": 2, "H": 32}, **MODEL, **facts)
    assert lens_text(model, False) == f"{told} · traced in 2 ms"
    assert lens_text(model, True) == f"stale · {told} · traced in 2 ms"


def test_a_site_without_tensors_has_no_hint():
    assert not has_hint(site("binding", None, {"python": "int"}))
    assert has_hint(site("binding", None, TENSOR))


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 FLOPs"), (999, "999 FLOPs"), (1000, "1.00 kFLOPs"), (75_497_472, "75.5 MFLOPs"), (2e21, "2000 EFLOPs")],
)
def test_counts_have_three_digits_and_a_prefix(number, text):
    assert wording.format_with_prefix(number, "FLOPs") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (98304, "96.0 KiB"), (9437184, "9.00 MiB"), (1 << 40, "1.00 TiB")],
)
def test_sizes_have_binary_prefixes(number, text):
    assert wording.in_bytes(number) == text


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("f32", 4),
        ("bf16", 2),
        ("f64", 8),
        ("i64", 8),
        ("u8", 1),
        ("bool", 1),
        ("c64", 8),
        ("f8e4m3fn", 1),
        ("f4e2m1fnx2", 1),
    ],
)
def test_an_element_has_its_bytes(dtype, size):
    assert dtypes.item_bytes(dtype) == size


@pytest.mark.parametrize(("part", "text"), [(0, "0 %"), (1, "< 0.1 %"), (42, "4.2 %"), (1000, "100 %")])
def test_shares_are_percents_of_the_whole(part, text):
    assert wording.format_share(part if part != 1 else 0.5, 1000) == text


def test_nothing_is_no_share_of_nothing():
    assert wording.format_share(0, 0) == "0 %"


def test_nouns_have_their_plural():
    assert [wording.format_count(number, "node") for number in (0, 1, 1024)] == ["0 nodes", "1 node", "1,024 nodes"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("<class '__main__.BasicBlock'>", "BasicBlock"),
        ("Config(width=3)", "Config(width=3)"),
        ("{'width': 3}", "{'width': 3}"),
        ("relu", "'relu'"),
        (3, "3"),
        ([2, 2], "[2, 2]"),
        ("Encoder(\n  (fc): Linear(in_features=8, out_features=8, bias=True)\n  (act", "Encoder(…)"),
    ],
)
def test_an_argument_is_shown_as_code(value, text):
    assert wording.argument_text(value) == text


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"inputs_from": "search", "arguments_from": "search", "arguments": {"width": 64}}, "guessed sizes"),
        ({"inputs_from": "search", "arguments_from": "default", "arguments": {}}, "guessed inputs"),
        ({"inputs_from": "comment", "arguments_from": "comment", "arguments": {"width": 64}}, ""),
    ],
)
def test_a_narrow_lens_says_whether_arguments_are_guessed_too(facts, text):
    model = ModelView(snapshot=None, index=0, symbols={}, **{**MODEL, "found": "", **facts})
    assert wording.short_guess_text(model) == text
