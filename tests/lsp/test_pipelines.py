"""What a pipeline says of itself, from hand-made overlays: every number that is told was measured."""

import pytest
from test_card import HIDDEN, MODEL, site, snapshot, table

from mase_server.daemon.graph_snapshot import Transform
from mase_server.daemon.store import ValueView
from mase_server.lsp.card import describe_site
from mase_server.lsp.hover import model_card
from mase_server.lsp.pipelines import lens_texts
from mase_server.protocol.snapshot import TRANSFORM_NODES

SUMMARY = {
    "nodes": [3, 5],
    "parameters": [1010, 1010],
    "parameter_bytes": [4040, 1010],
    "data_bits": [32.0, 8.0],
    "weight_bits": [32.0, 8.0],
    "sqnr": 38.24,
    "max_error": 0.01234,
}


def step(name, **arguments):
    return {"pass": name, "arguments": arguments, "title": name.title(), "seconds": 0.1, "info": "did it"}


def told(*steps, summary=(), **more):
    """An overlay's map, all measured, unless `more` says otherwise."""
    steps = steps or (step("quantize", default="fixed(8,4)"),)
    found = {"model": 0, "steps": list(steps), "summary": {**SUMMARY, **dict(summary)}, "complete": True,
             "inputs": "inputs that the file gives", "weights": "random weights (seed 0)", "problem": None,
             "failed": None, "formats": {"fixed(8,4)": 8.0}}  # fmt: skip
    return {**found, "texts": [f"{each['pass']}(...)" for each in steps], **more}


UNMEASURED = {"sqnr": None, "max_error": None}
FLOAT = {"weight_bits": [32.0, 32.0], "data_bits": [32.0, 32.0]}
REST = "SQNR 38.2 dB (random weights) · 4.0x smaller"
MEASURING = {"summary": UNMEASURED, "complete": False, "inputs": "", "weights": ""}
NEVER = {**MEASURING, "complete": True}


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (told(), "quantize · 8 bits · SQNR 38.2 dB (random weights) · 4.0x smaller"),
        (told(summary={"sqnr": "inf"}), "quantize · 8 bits · exact (random weights) · 4.0x smaller"),
        (told(summary={"sqnr": -2.75}), "quantize · 8 bits · SQNR -2.8 dB (random weights) · 4.0x smaller"),
        (told(summary={"saturated": 0.0042}),
         "quantize · 8 bits · SQNR 38.2 dB (random weights) · 0.42 % saturated · 4.0x smaller"),
        (told(summary={"saturated": 0.0}, weights="the file's own weights"),
         "quantize · 8 bits · SQNR 38.2 dB (the file's own weights) · 0 % saturated · 4.0x smaller"),
        (told(summary={"saturated": 1e-6}, weights="the file's own weights"),
         "quantize · 8 bits · SQNR 38.2 dB (the file's own weights) · < 0.1 % saturated · 4.0x smaller"),
        (told(**MEASURING), "quantize · 8 bits · measuring… · 4.0x smaller"),
        (told(**NEVER), "quantize · 8 bits · 4.0x smaller"),
        (told(summary={"data_bits": [32.0, 16.0]}), f"quantize · weights 8 bits, values 16 bits · {REST}"),
        (told(summary={"data_bits": [32.0, 32.0]}), f"quantize · 8 bits · {REST}"),
        (told(summary={**FLOAT, "weight_bits": [32.0, 4.25]}), f"quantize · 4.25 bits · {REST}"),
        (told(summary={"weight_bits": None, "data_bits": None, "parameter_bytes": None}),
         "quantize · SQNR 38.2 dB (random weights)"),
        (told(step("lora"), summary={**FLOAT, "parameter_bytes": [100, 120]}),
         "lora · SQNR 38.2 dB (random weights) · 1.2x larger"),
        (told(step("a"), step("b")), "a → b · 8 bits · SQNR 38.2 dB (random weights) · 4.0x smaller"),
        (told(*map(step, "abcd")), "a → b → c → … · 8 bits · SQNR 38.2 dB (random weights) · 4.0x smaller"),
        (told(problem="b: no\nweights", failed=0, **NEVER), "quantize · 8 bits · 4.0x smaller · ⚠ b: no weights"),
    ],
)  # fmt: skip
def test_the_lens_tells_what_is_known_and_nothing_else(transform, text):
    assert lens_texts(transform)[0] == text


LORA = {"ranks": [8], "trainable": [124_000_000, 1_500_000], "parameters": [124_000_000, 125_000_000]}


@pytest.mark.parametrize(
    ("transform", "narrow", "text"),
    [
        (told(step("insert_lora_adapter"), summary={**FLOAT, **LORA}), 37, "LoRA rank 8 · 1.2 % trainable"),
        (told(step("prune"), summary={**FLOAT, "sparsity": 0.5}), 38, "50 % pruned · 38.2 dB (random weights)"),
        (told(step("prune"), summary={**FLOAT, "sparsity": 0.5}), 37, "50 % pruned"),
        (told(), 37, "quantize · 38.2 dB (random weights)"),
        (told(problem="b: no weights", failed=0, **NEVER), 20, "quantize · ⚠ failed"),
    ],
)
def test_a_narrow_lens_keeps_what_a_pass_did_and_then_its_error(transform, narrow, text):
    assert next(each for each in lens_texts(transform) if len(each) <= narrow) == text


def test_a_long_problem_is_cut_in_the_lens():
    assert lens_texts(told(problem="x" * 200))[0].endswith(f"⚠ {'x' * 59}…")


def shown(transform, facts=("fixed(8,4)", 31.5, 0.25, None, 0.125), dtype="fixed(8,4)"):
    """The card of one value over a node with these facts."""
    nodes = {name: [cell] for name, cell in zip(TRANSFORM_NODES, (0, *facts), strict=True)}
    one = snapshot({}).with_transforms({0: Transform.from_wire({**transform, "rows": [[], []], "nodes": nodes})})
    value = ValueView([dtype, *HIDDEN[1:]], "GPT", 1, (), (one, 0), HIDDEN if dtype != "f32" else None)
    return describe_site(site(value), {"GPT": {**MODEL, "transform": transform}})


def test_runs_with_other_formats_tell_all_of_them_and_no_error_of_one():
    facts = table(shown(told(), dtype="fixed(8,4)|f32"))
    assert facts["number format"] == "`fixed(8,4)` or `float32`, by run"
    assert "error" not in facts


def test_a_value_tells_its_format_error_and_size_before_and_after():
    text = shown(told())
    facts = table(text)
    assert "fixed(8,4)[B, T, 768]" in text
    assert facts["number format"] == "`fixed(8,4)` · 8 bits · was float32"
    assert facts["error"] == "SQNR 31.5 dB (random weights) · max error 0.25 · 12 % saturated"
    assert facts["size"] == "24,576 elements · 96.0 KiB → 24.0 KiB"
    assert "float32" not in facts["size"]
    assert "*Errors of GPT against the original: inputs that the file gives; random weights (seed 0)*" in text


def test_an_error_that_is_coming_is_said_to_come_and_one_that_is_not_is_left_out():
    facts = table(shown(told(**MEASURING), ("fixed(8,4)", None, None, None, None)))
    assert facts["error"] == "measuring…"
    text = shown(told(**NEVER), ("fixed(8,4)", None, None, None, None))
    assert "error" not in table(text)
    assert "against the original" not in text


def test_a_format_of_unknown_width_tells_only_the_size_before():
    facts = table(shown(told(formats={})))
    assert facts["number format"] == "`fixed(8,4)` · was float32"
    assert facts["size"] == "24,576 elements · 96.0 KiB"


def test_what_became_of_a_node_is_told():
    facts = table(shown(told(), (None, None, None, "taken together with conv1", None), "f32"))
    assert facts["passes"] == "taken together with conv1"
    assert "number format" not in facts
    assert "float32" in facts["size"]


class Model:
    """What the card of a model reads."""

    title = name = "Net"
    inputs_from = arguments_from = "main"
    inputs, arguments, comment, fixed, guards = {}, {}, {}, (), ()
    found, mode, parameters, parameter_bytes, flops, nodes = "as it runs", "eval", 10, 40, None, 3
    hardware, seconds = None, 0.002

    def __init__(self, transform):
        self.transform = transform


def test_the_card_of_a_model_lists_every_step_and_says_which_failed():
    three = told(step("a"), step("b"), step("c"), problem="b: it has no *weights*", failed=1)
    text = model_card([Model(three)], stale=False)
    assert "1. `a(...)`: did it\n2. `b(...)` · **failed**\n3. `c(...)` · not applied" in text
    assert "⚠ b: it has no \\*weights\\*" in text


def test_a_pipeline_whose_first_step_cannot_be_applied_tells_why_alone():
    nothing = Transform.nothing(0, 0, "quantise: there is no such pass").told
    assert lens_texts(nothing)[0] == "⚠ quantise: there is no such pass"
    text = model_card([Model(nothing)], stale=False)
    assert "⚠ quantise: there is no such pass" in text
    assert "error of the output" not in text


def test_the_card_of_a_model_without_passes_says_nothing_of_them():
    assert "Passes" not in model_card([Model(None)], stale=False)


def test_the_card_of_a_model_tells_before_and_after():
    facts = table(model_card([Model(told())], stale=False))
    assert facts["size"] == "3.95 KiB → 1010 B · 4.0x smaller"
    assert facts["bits of weights"] == facts["bits of values"] == "32 bits → 8 bits"
    assert facts["nodes"] == "3 nodes → 5 nodes"
    assert facts["error of the output"] == "SQNR 38.2 dB (random weights) · max error 0.0123"


def test_the_card_of_a_model_lists_what_its_graph_takes_for_granted():
    model = Model(None)
    model.guards = ("T <= 512 at model.py:12", "a condition = True at model.py:14")
    text = model_card([model], stale=False)
    assert "| traced with | T <= 512 at model.py:12 |" in text.replace("\\", "")
    assert "| traced with | a condition = True at model.py:14 |" in text.replace("\\", "")
