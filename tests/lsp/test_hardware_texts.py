"""What hardware says of itself, from maps made by hand."""

from types import SimpleNamespace

import pytest

from mase_server.lsp.hardware_texts import (
    in_bits,
    lens_texts,
    model_rows,
    operation_text,
    simulation_text,
    source_text,
    totals_text,
)

NOTHING = {"multipliers": 0, "luts": 0, "memory_bits": 0, "cycles": 0, "latency": 0}
SOME = {"multipliers": 64, "luts": 1250, "memory_bits": 16384, "cycles": 128, "latency": 20}
TOTALS = {
    "multipliers": 52,
    "luts": 0,
    "memory_bits": 0,
    "interval": 128,
    "latency": 412,
    "bottlenecks": ["a", "b", "c"],
}
ACCURACY = {"sqnr": 38.2, "max_error": 0.1, "saturated": 0.0042, "inputs": "random inputs",
            "calibrated": "the example inputs", "problem": None}  # fmt: skip
EQUAL = {"status": "equal", "vectors": 100, "mismatches": 0, "cycles_per_vector": 128.0, "latency": 412, "first": None,
         "log": ""}  # fmt: skip
FIRST = {"output": "data_out_0", "vector": 3, "element": 7, "expected": -12, "got": 13}


def emission(*, stale=False, **told):
    whole = {
        "build": {"scope": ""},
        "weights": "",
        "unsupported": [],
        "refusal": None,
        "totals": TOTALS,
        "accuracy": {},
    }
    return SimpleNamespace(stale=stale, told={**whole, **told})


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (1, "1 bit"),
        (960, "960 bits"),
        (1000, "1.00 kbit"),
        (16384, "16.4 kbit"),
        (524328, "524 kbit"),
        (2.5e9, "2.50 Gbit"),
    ],
)
def test_bits_have_three_digits_and_a_prefix(bits, text):
    assert in_bits(bits) == text


def test_an_operation_tells_what_it_takes_and_nothing_that_it_does_not():
    words = "64 multipliers · 1,250 LUTs · 16.4 kbit · 128 cycles per sample · latency 20"
    assert operation_text({"estimate": SOME}) == words
    assert operation_text({"estimate": NOTHING}) == operation_text({"estimate": {}}) == ""
    assert (
        operation_text({"estimate": {**NOTHING, "multipliers": 1, "cycles": 1}}) == "1 multiplier · 1 cycle per sample"
    )


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.004, ""),
        (0.24, " · works 24 % of the time"),
        (0.994, " · works 99 % of the time"),
        (1.0, " · works all the time"),
    ],
)
def test_an_operation_tells_how_much_of_the_time_it_works(share, words):
    text = operation_text({"estimate": {**NOTHING, "cycles": 128, "utilisation": share}})
    assert text == f"128 cycles per sample{words}"


def test_what_waits_for_memory_says_so():
    outside = {**NOTHING, "cycles": 128, "reads": 96, "waits": True}
    assert operation_text({"estimate": outside}) == (
        "128 cycles per sample · weights read in 96 cycles · waits for them"
    )
    waiting = emission(module="net", totals={**TOTALS, "reads": 128, "waiting": ["a", "b"]})
    assert lens_texts(waiting)[0] == "Verilog: 52 multipliers · 128 cycles · 2 layers wait for memory"
    assert ("weights from outside", "read in 128 cycles; waiting for them: `a`, `b`") in list(model_rows(waiting))


def test_an_instance_says_where_it_comes_from():
    assert source_text({"name": "fc", "estimate": NOTHING}, ("/some/net.py", 12)) == "fc · net.py:12"
    assert source_text({"name": "fc", "estimate": NOTHING}, ("/some/net.ipynb", 12)) == "fc · net.ipynb"
    assert source_text({"name": "fc", "estimate": NOTHING}, None) == "fc"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "Verilog: 52 multipliers · 128 cycles"),
        ({"stale": True}, "Verilog: stale · 52 multipliers · 128 cycles"),
        ({"accuracy": ACCURACY, "weights": "random weights (seed 0)"},
         "Verilog: 52 multipliers · 128 cycles · SQNR 38.2 dB (random weights) · 0.42 % saturated"),
        ({"accuracy": ACCURACY, "weights": "weights of model.pt"},
         "Verilog: 52 multipliers · 128 cycles · SQNR 38.2 dB (weights of model.pt) · 0.42 % saturated"),
        ({"refusal": "it takes too much"}, "Verilog: not emitted · it takes too much"),
        ({"unsupported": [{}, {}], "build": {"scope": "fc"}},
         "Verilog of fc alone: 2 nodes without hardware · the rest: 52 multipliers · 128 cycles"),
    ],
)  # fmt: skip
def test_the_lens_of_a_model_is_short(given, text):
    assert lens_texts(emission(**given))[0] == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "52 multipliers · 128 cycles per sample · latency 412 · slowest: a, b, …"),
        ({"unsupported": [{}]}, "the rest: 52 multipliers · 128 cycles per sample · latency 412 · slowest: a, b, …"),
        ({"totals": {}, "refusal": "no folding", "weights": "mine"}, "mine"),
        ({"totals": {**TOTALS, "latency": 0, "bottlenecks": ["a"]}},
         "52 multipliers · 128 cycles per sample · slowest: a"),
        ({"totals": {**TOTALS, "bottlenecks": []}, "weights": "random weights (seed 0)"},
         "52 multipliers · 128 cycles per sample · latency 412 · random weights (seed 0)"),
    ],
)  # fmt: skip
def test_the_lens_of_the_document_says_all(given, text):
    assert totals_text(emission(**given)) == text


def test_a_card_names_some_of_many_and_whose_weights():
    many = [{"node": f"n{number}"} for number in range(20)]
    told = {"module": "net", "unsupported": many, "weights": "random weights (seed 0)", "build": {"scope": "fc"}}
    rows = dict(model_rows(emission(**told, accuracy=ACCURACY)))
    assert rows["accuracy"] == "SQNR 38.2 dB (random weights) · 0.42 % saturated"
    assert (rows["measured on"], rows["calibrated on"]) == ("random inputs", "the example inputs")
    assert rows["module"] == "`net` of `fc` alone"
    assert rows["without hardware"] == "`n0`, `n1`, `n2`, `n3`, `n4`, `n5`, `n6`, `n7`, …"
    assert rows["weights"] == "random weights (seed 0)"
    assert rows["cost of the rest"] == "52 multipliers"


def test_a_card_gives_no_estimate_of_hardware_that_there_is_not():
    told = {"module": "net", "unsupported": [], "totals": {}, "refusal": "2 multipliers are too few"}
    assert {"cost", "pace", "slowest"}.isdisjoint(dict(model_rows(emission(**told))))


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({},
         "Net: 100 vectors, 0 mismatches, 128.0 cycles per vector (estimate 128), latency 412 cycles (estimate 412)"),
        ({"vectors": 1, "cycles_per_vector": None},
         "Net: 1 vector, 0 mismatches, latency 412 cycles (estimate 412)"),
        ({"cycles_per_vector": None, "log": "no waveform: it.vcd cannot be written"},
         "Net: 100 vectors, 0 mismatches, latency 412 cycles (estimate 412). no waveform: it.vcd cannot be written"),
        ({"status": "different", "mismatches": 1, "first": FIRST, "cycles_per_vector": None},
         "Net: 100 vectors, 1 element differs, latency 412 cycles (estimate 412). "
         "The first: output data_out_0, vector 3, element 7 is 13, expected -12"),
        ({"status": "failed", "log": "building\n%Error: no such file\n"},
         "Net: the simulation failed. %Error: no such file"),
        ({"status": "stood still", "log": ""}, "Net: the simulation stood still."),
    ],
)  # fmt: skip
def test_the_figures_of_a_simulation(told, text):
    assert simulation_text("Net", {**EQUAL, **told}, emission().told) == text


@pytest.mark.parametrize(
    ("emitted", "what"),
    [
        (None, "Net: "),
        ({"unsupported": [{}]}, "Net, but for 1 node without hardware: "),
        ({"build": {"scope": "fc"}}, "Net of fc alone: "),
        ({"build": {"scope": "fc"}, "unsupported": [{}, {}]}, "Net of fc alone, but for 2 nodes without hardware: "),
    ],
)
def test_a_simulation_says_what_of_the_model_it_is_of(emitted, what):
    known = None if emitted is None else emission(**emitted).told
    for told in (EQUAL, {**EQUAL, "status": "failed", "log": "no"}):
        assert simulation_text("Net", told, known).startswith(what)


def test_without_an_emission_of_the_present_text_there_is_no_estimate():
    assert "estimate" not in simulation_text("Net", EQUAL, None)
