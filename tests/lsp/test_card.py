"""The hover card, from hand-made sites and snapshots."""

from mase_server.daemon.graph_snapshot import GraphSnapshot
from mase_server.daemon.store import SiteView, ValueView
from mase_server.lsp.card import INSTANCES, STALE, describe_site
from mase_server.protocol.snapshot import COLUMNS, HEAD_KEYS
from mase_server.protocol.wire import pack_blob

MODEL = {
    "name": "GPT",
    "symbols": {"B": 2, "T": 16},
    "flops": 1000,
    "inputs_from": "main",
    "found": "the inputs of the file's own run",
    "fixed": [],
}
HIDDEN = ["f32", [2, 16, 768], ["B", "T", "768"]]


def value(shape=HIDDEN, count=1, scopes=(), node=None):
    return ValueView(shape, "GPT", count, tuple(scopes), node)


def site(*values, kind="binding", name="h", function="MLP.forward"):
    return SiteView(1, 0, 1, 1, name, kind, function, values)


def snapshot(details):
    payload = {key: [] for key in HEAD_KEYS} | {name: {c: [] for c in columns} for name, columns in COLUMNS.items()}
    payload |= {"file": "/m.py", "sha256": "0", "generation": 1, "complete": True, "models": [MODEL]}
    row = {
        "name": "c_fc", "op": "call_module", "target": "h.0.mlp.c_fc", "mase_op": "linear",
        "mase_type": "module_related_func", "family": "linear", "model": 0, "scope": -1, "value": -1, "flops": 250,
        "file": -1, "line": 0, "column": 0, "end_line": 0, "end_column": 0, "blob": pack_blob(details),
    }  # fmt: skip
    payload["nodes"] = {key: [cell] for key, cell in row.items()}
    return GraphSnapshot(payload)


def table(text):
    """{left cell: right cell} of every table row."""
    rows = (line.strip("|").split(" | ", 1) for line in text.splitlines() if line.startswith("| "))
    return {left.strip(): right.strip() for left, right in rows}


def test_a_tensor_is_told_in_symbols_and_in_numbers():
    text = describe_site(site(value()), {"GPT": MODEL})
    assert text.startswith("**`h`** · name in `MLP.forward`\n\n```text\nf32[B, T, 768]\n```")
    facts = table(text)
    assert facts["this run"] == "`[2, 16, 768]` with B = 2, T = 16"
    assert facts["size"] == "24,576 elements · float32 · 96.0 KiB"


def test_the_symbols_of_an_expression_are_told_and_others_are_not():
    text = describe_site(site(value(["f32", [32], ["B*T"]])), {"GPT": {**MODEL, "symbols": {"B": 2, "T": 16, "H": 9}}})
    assert table(text)["this run"] == "`[32]` with B = 2, T = 16"


def test_a_node_tells_operator_module_parameters_and_cost():
    details = {
        "module": "Linear(in_features=768, out_features=3072, bias=False)",
        "module_path": "h.0.mlp.c_fc",
        "args": [["data_in_0", "f32[2, 16, 768]"], ["weight", HIDDEN]],
        "parameters": {"weight": ["f32", [3072, 768], None]},
        "parameter_count": 2359296,
        "parameter_bytes": 9437184,
        "bytes": 2048,
    }
    facts = table(describe_site(site(value(node=(snapshot(details), 0))), {"GPT": MODEL}))
    assert facts["MASE operator"] == "`linear` · `module_related_func`"
    assert facts["module"] == "`h.0.mlp.c_fc` `Linear(in_features=768, out_features=3072, bias=False)`"
    assert facts["arguments"] == "`data_in_0=f32[2, 16, 768]`, `weight=f32[B, T, 768]`"
    assert facts["parameters"] == "2,359,296 · 9.00 MiB · `weight: f32[3072, 768]`"
    assert facts["cost"] == "250 FLOPs · 25 % of GPT · 2.00 KiB of memory traffic"
    assert next(iter(key for key in facts if key not in ("", "---"))) == "cost"


def test_a_bar_in_the_persons_code_does_not_break_the_table():
    details = {"module": "Odd(a|b)", "module_path": "x`y"}
    facts = describe_site(site(value(node=(snapshot(details), 0))), {"GPT": MODEL})
    assert "| module | ``x`y`` `Odd(a\\|b)` |" in facts


def test_equal_runs_are_one_row():
    blocks = [(f"h.{number}", "Block") for number in range(12)]
    facts = table(describe_site(site(value(count=12, scopes=blocks)), {"GPT": MODEL}))
    assert facts["runs"] == "12 times, all equal"
    assert facts["scope"] == "`h.0` Block … `h.11` Block"


def test_a_cost_is_of_one_run():
    where = (snapshot({}), 0)
    text = describe_site(site(value(count=3, scopes=[("", "GPT")], node=where)), {"GPT": MODEL})
    assert table(text)["cost"] == "250 FLOPs each time · 25 % of GPT"


def test_different_runs_are_a_table_of_what_differs():
    narrow, wide = ["f32", [2, 8], ["B", "8"]], ["f32", [2, 9], ["B", "9"]]
    blocks = [(f"h.{number}", "Block") for number in range(5)]
    text = describe_site(site(value(narrow, 4, blocks[:4]), value(wide, 1, blocks[4:])), {"GPT": MODEL})
    facts = table(text)
    assert facts["runs"] == "5 times, see below"
    assert facts["`h.0` Block … `h.3` Block"] == "`f32[B, 8]`, 4 times"
    assert facts["`h.4` Block"] == "`f32[B, 9]`"


def test_many_different_values_are_cut_and_counted():
    many = [value(["f32", [2, size], ["B", str(size)]], 1, [(f"h.{size}", "Block")]) for size in range(INSTANCES + 5)]
    text = describe_site(site(*many), {"GPT": MODEL})
    assert f"`h.{INSTANCES - 1}`" in text
    assert f"`h.{INSTANCES}`" not in text
    assert "… and 5 more" in text


def test_all_shapes_of_a_loop_over_unlike_things_are_listed():
    sizes = [(10,), (10, 3), (64, 10), (64,)]
    text = describe_site(site(*(value(["f32", list(each), None], 2) for each in sizes)), {"GPT": MODEL})
    assert "```text\n4 shapes\n```" in text
    assert "**4 shapes**: `f32[10]` 2 times, `f32[10, 3]` 2 times, `f32[64, 10]` 2 times, `f32[64]` 2 times" in text


def test_several_values_at_one_place_are_all_told():
    text = describe_site(site(value(), value(["bf16", [2], ["B"]])), {"GPT": MODEL})
    assert "f32[B, T, 768] | bf16[B]\n" in text
    assert "`bf16[B]`" in text


def test_a_container_tells_its_whole_size():
    pair = {"tuple": [["f32", [2, 3], None], ["bool", [5], None], None]}
    facts = table(describe_site(site(value(pair), kind="return", name=""), {"GPT": MODEL}))
    assert facts["tensors"] == "2"
    assert facts["size"] == "29 B"


def test_inputs_found_by_search_are_admitted_and_others_are_not():
    guessed = {**MODEL, "inputs_from": "search", "found": "inputs found by search: x = f32[2, 10]"}
    assert describe_site(site(value()), {"GPT": guessed}).endswith("*GPT: inputs found by search: x = f32\\[2, 10\\]*")
    assert "search" not in describe_site(site(value()), {"GPT": MODEL})


def test_what_the_graph_is_fixed_to_is_admitted():
    fixed = {**MODEL, "fixed": ["fixed to batch 2"]}
    assert "fixed to batch 2" in describe_site(site(value()), {"GPT": fixed})


def test_a_stale_card_says_so():
    assert "stale" in describe_site(site(value()), {"GPT": MODEL}, STALE)
    assert "stale" not in describe_site(site(value()), {"GPT": MODEL})


def test_a_value_of_no_traced_model_still_has_a_card():
    assert "f32[B, T, 768]" in describe_site(site(value(), function=""), {})
