"""What hints, lenses and numbers say."""

import pytest

from mase_server import dtypes
from mase_server.daemon.store import ModelView, SiteView, ValueView
from mase_server.lsp import figures
from mase_server.lsp.wording import hint_text, lens_text, shown


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


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {
                "inputs_from": "main",
                "arguments_from": "main",
                "found": "as the file calls it",
                "arguments": {"width": 3},
            },
            "as the file calls it",
        ),
        (
            {
                "inputs_from": "search",
                "arguments_from": "default",
                "found": "found by search: x = image",
                "arguments": {},
            },
            "found by search: x = image · assumed B = 2, H = 32",
        ),
        (
            {
                "inputs_from": "search",
                "arguments_from": "search",
                "found": f"found by search: x = image{GUESSED}",
                "arguments": {"dim": 64, "act": "relu"},
            },
            "arguments assumed: dim=64, act='relu' · found by search: x = image · assumed B = 2, H = 32",
        ),
        (
            {
                "inputs_from": "comment",
                "arguments_from": "search",
                "found": f"inputs from comment{GUESSED}",
                "arguments": {"dim": 64},
            },
            "arguments assumed: dim=64 · inputs from comment",
        ),
        (
            {"inputs_from": "comment", "arguments_from": "comment", "found": "x" * 200, "arguments": {}},
            "x" * 89 + "…",
        ),
    ],
)
def test_a_lens_marks_what_nobody_has_said(facts, told):
    model = ModelView(snapshot=None, index=0, symbols={"B": 2, "H": 32}, **MODEL, **facts)
    assert lens_text(model, False) == f"3 nodes · 12 parameters · eval · {told} · 2 ms"


def test_a_site_without_tensors_has_no_hint():
    assert not shown(site("binding", None, {"python": "int"}))
    assert shown(site("binding", None, TENSOR))


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 FLOPs"), (999, "999 FLOPs"), (1000, "1.00 kFLOPs"), (75_497_472, "75.5 MFLOPs"), (2e21, "2000 EFLOPs")],
)
def test_counts_have_three_digits_and_a_prefix(number, text):
    assert figures.scaled(number, "FLOPs") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (98304, "96.0 KiB"), (9437184, "9.00 MiB"), (1 << 40, "1.00 TiB")],
)
def test_sizes_have_binary_prefixes(number, text):
    assert figures.in_bytes(number) == text


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
    assert figures.share(part if part != 1 else 0.5, 1000) == text


def test_nothing_is_no_share_of_nothing():
    assert figures.share(0, 0) == "0 %"


def test_nouns_have_their_plural():
    assert [figures.counted(number, "node") for number in (0, 1, 1024)] == ["0 nodes", "1 node", "1,024 nodes"]
