"""What is told of a model's hardware: the agreed keys, where everything stands, and what is too large."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from mase_server import MaseGraph, passes
from mase_server.building import EMISSION_KEYS, ESTIMATE_KEYS, OPERATION_KEYS, TOTAL_KEYS, Build, Part
from mase_server.formats.fixed import FixedPoint
from mase_server.hardware import memories
from mase_server.hardware.composed import RULES
from mase_server.passes.verilog.told import build
from tests.hardware.test_emission import VERILATOR, make


class Model(nn.Module):
    """Layers in a module of their own, with what hardware has no use for."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout())
        self.head = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def graph(model=None):
    torch.manual_seed(0)
    return MaseGraph((model or Model()).eval(), {"x": torch.randn(2, 2, 6, 6)})


def told(folder="", model=None, **asked):
    return build(graph(model), Build(**asked), "Small Model", folder=str(folder), vectors=10)


def by_name(found):
    return {each["name"]: each for each in found["operations"]}


def test_the_keys_are_those_that_were_agreed(tmp_path):
    for found in (told(), told(tmp_path), told(max_memory_bits=1)):
        assert set(found) == set(EMISSION_KEYS)
        assert {*found["totals"], "clock", "copies", "rams", "samples"} == set(TOTAL_KEYS)
        for operation in found["operations"]:
            assert set(operation) == set(OPERATION_KEYS)
            assert set(operation["estimate"]) == set(ESTIMATE_KEYS)


def test_it_holds_plain_values_alone(tmp_path):
    def plain(value):
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(each) for key, each in value.items())
        return all(map(plain, value)) if isinstance(value, list) else type(value) in (str, int, float, bool, type(None))

    assert plain(told(tmp_path))


def test_the_lines_of_an_operation_are_its_instances():
    found = told()
    lines = found["text"].splitlines()
    for name, module in (("body_0", "fixed_conv2d"), ("head", "fixed_linear")):
        operation = by_name(found)[name]
        assert operation["module"] == module
        first, last = operation["lines"][-1]
        assert lines[first - 1] == f"  {module} #("
        assert any(f") {name}_i (" in line for line in lines[first - 1 : last])
        assert lines[last - 1] == "  );"


def test_an_operation_names_its_module_and_all_nodes_that_became_it():
    found = by_name(told())
    assert (found["body_0"]["scope"], found["head"]["scope"]) == ("body.0", "head")
    assert {"body_0", "body_1", "body_2"} <= set(found["body_0"]["nodes"])


def test_the_steps_are_those_that_made_it_fit():
    assert told(precision="fixed(6,3)")["steps"] == [
        "remove_dropout()", "conv_bn_fusion()", "quantize(default='fixed(6,3)')"
    ]  # fmt: skip


def test_nothing_is_done_that_was_done_already():
    given = passes.remove_dropout_transform_pass(graph())[0]
    given = passes.conv_bn_fusion_transform_pass(given)[0]
    given = passes.quantize_transform_pass(given, {"default": "fixed(8,4)"})[0]
    given.propagate()
    assert build(given, Build(precision="fixed(6,3)"), "Small")["steps"] == []


def test_only_what_is_not_rounded_yet_gets_the_precision():
    given = passes.quantize_transform_pass(graph(), {"by": "type", "linear": "fixed(8,4)"})[0]
    given.propagate()
    found = build(given, Build(precision="fixed(6,3)"), "Small")
    assert "only=" in found["steps"][-1]
    assert "head" not in found["steps"][-1]
    assert "DATA_OUT_0_PRECISION_0(8)" in found["text"]
    assert "DATA_OUT_0_PRECISION_0(6)" in found["text"]


@pytest.mark.parametrize("precision", ["fixed(8", "fixed8", "nothing(3)", "mxint(6)"])
def test_a_precision_that_is_no_format_is_told(precision):
    with pytest.raises(ValueError, match=precision.partition("(")[0]):
        told(precision=precision)


def test_text_alone_fills_no_memory_and_writes_nothing(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("a memory was filled")

    whole = told(tmp_path)["text"]
    monkeypatch.setattr(memories, "_rows_to_hexadecimal", refuse)
    found = told()
    assert (found["files"], found["folder"], found["text"]) == ([], None, whole)
    with pytest.raises(AssertionError, match="a memory was filled"):
        told(tmp_path)


def test_the_folder_holds_what_is_told(tmp_path):
    found = told(tmp_path / "new" / "folder")
    assert found["folder"] == str(tmp_path / "new" / "folder")
    assert found["files"][0][0] == "small_model.sv"
    there = {str(path.relative_to(found["folder"])): path.stat().st_size for path in
             (tmp_path / "new" / "folder").rglob("*") if path.is_file()}  # fmt: skip
    assert dict(found["files"]) == there


def test_what_is_being_done_is_told(tmp_path):
    stages = []
    build(graph(), Build(), "Small", folder=str(tmp_path), tell=stages.append)
    assert stages == ["quantising", "lowering", "estimating", "packing memories", "measuring errors", "writing"]


def test_the_readme_of_the_folder_says_what_the_hardware_loses(tmp_path):
    found = build(graph(), Build(), "Small", folder=str(tmp_path), weights="random weights (seed 0)")["accuracy"]
    said = (tmp_path / "README.md").read_text("utf-8").partition("## What it loses")[2]
    assert f"SQNR of {found['sqnr']:.1f} dB" in said
    assert f"{found['saturated']:.2%}" in said
    assert f"Measured on {found['inputs']}, with random weights (seed 0)." in said
    assert f"calibrated on {found['calibrated']}." in said


@pytest.mark.parametrize("folder", ["", "made"])
def test_a_model_without_any_hardware_is_refused_and_says_why(tmp_path, folder):
    class Nothing(nn.Module):
        def forward(self, x):
            return torch.cumsum(x, 1)

    found = told(folder and tmp_path / folder, Nothing())
    assert (found["refusal"], found["text"], found["operations"]) == ("no part of it has hardware", "", [])
    assert [(each["node"], each["nodes"]) for each in found["unsupported"]] == [("cumsum", ["cumsum"])]
    assert set(found) == set(EMISSION_KEYS)
    assert found["totals"] == {}


def test_what_is_inside_of_a_layer_without_hardware_is_told_at_its_call():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=lambda x: torch.cumsum(x, 1))
    given = MaseGraph(nn.Sequential(layer, nn.Linear(8, 2)).eval(), {"input": torch.randn(2, 3, 8)})
    missing = {each["operator"]: each["nodes"] for each in build(given, Build(), "X")["unsupported"]}
    assert missing["cumsum"][-1] == "_0"


def test_a_computed_weight_is_computed_once():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    given = MaseGraph(nn.Sequential(nn.Linear(4, 4), layer).eval(), {"input": torch.randn(2, 4)})
    made = build(given, Build(), "X")
    assert (made["unsupported"], made["steps"][0]) == ([], "fold_weights()")


def test_a_weight_that_training_would_change_is_told():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    given = MaseGraph(nn.Sequential(nn.Linear(4, 4), layer).train(), {"input": torch.randn(2, 4)})
    (missing,) = build(given, Build(), "X")["unsupported"]
    assert (
        missing["why"]
        == "its weight is computed at each call; put the model in eval mode and apply fold_weights before quantize"
    )


def test_a_weight_that_holds_no_number_is_told():
    layer = nn.Linear(4, 3)
    layer.weight.data[1, 2] = torch.nan
    given = MaseGraph(nn.Sequential(nn.Linear(4, 4), layer).eval(), {"input": torch.randn(2, 4)})
    (missing,) = build(given, Build(), "X")["unsupported"]
    assert missing["why"].endswith("holds NaN, which no integer of fixed(8,8) is")


def test_large_models_get_few_vectors_unless_more_are_asked_for(tmp_path):
    wide = nn.Sequential(nn.Linear(4096, 1024), nn.Linear(1024, 2))
    given = MaseGraph(wide.eval(), {"input": torch.randn(1, 100, 4096)})
    found = build(given, Build(), "Wide", folder=str(tmp_path))
    assert _samples(found, tmp_path) == 2
    assert _samples(told(tmp_path / "few", None), tmp_path / "few") == 10


def _samples(found, folder):
    """The samples of a folder's vectors, by the beats of its first input."""
    plan = dict(
        line.split(" ", 2)[1:] for line in (folder / "sim" / "plan").read_text().splitlines() if line[:3] == "in "
    )
    beats = int(plan["data_in_0"].split()[-1])
    return len((folder / "sim" / "data_in_0.hex").read_text().splitlines()) // beats


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"max_memory_bits": 1000}, r"bits of memory, and 1,000 are allowed \(max_memory_bits\); most are of head \("),
        ({"max_multipliers": 3, "multipliers": 60},
         r"it takes \d+ multipliers, and 3 are allowed \(max_multipliers\); most are of body_0 \(\d+\), head"),
    ],
    ids=["memory", "multipliers"],
)  # fmt: skip
def test_what_is_too_large_is_refused_with_its_estimate(tmp_path, asked, words):
    found = told(tmp_path / "none", **asked)
    assert re.search(words, found["refusal"]), found["refusal"]
    assert (found["text"], found["files"], found["folder"]) == ("", [], None)
    assert not (tmp_path / "none").exists()
    assert by_name(found)["head"]["estimate"]["memory_bits"] >= 64 * 5 * 8


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"interval": 1}, "an interval of 1 is too short for it"),
        ({"interval": 100, "multipliers": 2}, "an interval of 100 cycles takes .* multipliers, 2 are allowed"),
    ],
    ids=["interval", "both"],
)
def test_what_cannot_be_folded_as_asked_is_refused_without_an_estimate(asked, words):
    """No folding keeps to it, so there is no such hardware to estimate."""
    found = told(**asked)
    assert re.search(words, found["refusal"]), found["refusal"]
    assert found["totals"] == {}
    assert all(each["estimate"] == {} for each in found["operations"])


class Normed(Model):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(5)

    def forward(self, x):
        return self.norm(super().forward(x))


class Meaned(Model):
    def forward(self, x):
        return super().forward(x).mean(1, keepdim=True)


class Recurrent(Model):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(5, 4, batch_first=True)

    def forward(self, x):
        return self.gru(super().forward(x)[:, None])[0]


@pytest.mark.parametrize("model", [Normed, Meaned, Recurrent])
def test_a_norm_a_mean_or_a_last_result_needs_no_multiplier_of_its_own(model):
    found = told(model=model(), multipliers=1)
    assert not found["refusal"]
    assert found["totals"]["multipliers"] == 1


SMALL = Part("small", "A small part", luts=1_400, multipliers=40, memory_bits=40_000, bandwidth=1e9, clock=50e6)


def test_the_fastest_design_that_fits_a_part_is_chosen():
    found = told(target="small", part=SMALL)
    assert not found["refusal"]
    assert all(found["totals"][key] <= getattr(SMALL, key) for key in ("luts", "multipliers", "memory_bits"))
    assert found["totals"]["samples"] == 50e6 / found["totals"]["interval"]
    # With all of the multipliers it would not fit, and without a part every layer has only one.
    assert told(multipliers=40)["totals"]["luts"] > SMALL.luts
    assert found["totals"]["interval"] < told()["totals"]["interval"]


def test_weights_that_a_part_has_no_memory_for_are_told_before_anything_is_emitted(tmp_path):
    part = replace(SMALL, memory_bits=1_000)
    found = told(tmp_path / "none", target="small", part=part)
    assert re.match(r"3.2 kbit of weights; small has 1.0 kbit: have them come from a memory outside", found["refusal"])
    assert (found["text"], found["files"]) == ("", [])
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "asked",
    [{"max_memory_bits": 4000}, {"max_multipliers": 3, "multipliers": 60}, {"interval": 3, "copies": 1},
     {"max_memory_bits": 1}],
    ids=str,
)  # fmt: skip
def test_what_is_offered_to_be_built_alone_can_be(asked):
    found = told(**asked)
    assert found["refusal"]
    for scope in found["scopes"]:
        alone = told(**asked, scope=scope)
        assert (alone["refusal"], alone["unsupported"], bool(alone["text"])) == (None, [], True)
    assert ("alone" in found["refusal"]) <= bool(found["scopes"])


def test_no_part_is_offered_that_lacks_hardware_itself():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return torch.cumsum(self.fc(x), 1)

    given = MaseGraph(nn.Sequential(Part(), nn.Linear(4, 2)).eval(), {"input": torch.randn(2, 4)})
    assert set(build(given, Build(), "X")["scopes"]) == {"0.fc", "1"}


def test_only_scopes_within_the_ceilings_are_offered_the_largest_first():
    # The head has 64 x 5 weights of 8 bits, the convolution 4 x 2 x 9 of them, and both have buffers.
    assert told(max_memory_bits=2500)["scopes"] == ["body.0"]
    assert told(max_memory_bits=4000)["scopes"] == ["head", "body.0"]
    assert told()["scopes"] == []


def test_a_model_of_forty_million_weights_is_refused_before_any_is_rounded_or_packed(monkeypatch):
    def rounded(format, values):
        assert values.numel() < 1000
        return encode(format, values)

    encode = FixedPoint.encode
    monkeypatch.setattr(FixedPoint, "encode", rounded)
    monkeypatch.setattr(memories, "_rows_to_hexadecimal", lambda *_: pytest.fail("a memory was filled"))
    table = nn.Sequential(nn.Embedding(1 << 20, 40), nn.Linear(40, 2))
    given = MaseGraph(table.eval(), {"input": torch.zeros(1, 4, dtype=torch.long)})
    found = build(given, Build(), "Table")
    assert "most are of _0 (335,544,320)" in found["refusal"]
    assert found["scopes"] == ["1"]


@VERILATOR
def test_what_was_made_fit_is_simulated(tmp_path):
    told(tmp_path)
    done = make(tmp_path, "sim")
    assert done.returncode == 0, done.stdout
    assert make(tmp_path, "lint").stderr == ""


def test_what_was_put_in_names_the_node_that_it_serves():
    """A buffer stands for what it holds, a rounding for what it rounds."""

    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(torch.relu(x).transpose(1, 2).contiguous())

    given = MaseGraph(Turned().eval(), {"x": torch.randn(2, 6, 4)})
    operations = by_name(build(given, Build(), "Turned"))
    swap = next(each for each in operations.values() if each["kind"] in ("swap", "gather"))
    assert "transpose" in swap["nodes"]
    assert "x" in operations["x"]["nodes"]


def test_whose_weights_they_are_stands_in_the_text():
    found = build(graph(), Build(), "Small", weights="random weights (seed 0)")
    assert found["weights"] == "random weights (seed 0)"
    assert "/// Its memories hold random weights (seed 0).\n" in found["text"]
    assert "Its memories hold" not in told()["text"]


def test_an_operator_that_cannot_be_worked_out_is_missing_and_the_rest_is_there(monkeypatch):
    def refuse(*_):
        raise RuntimeError("Got Double and Float\nand much more")

    monkeypatch.setitem(RULES, "gelu", refuse)
    given = MaseGraph(nn.Sequential(nn.GELU(), nn.Linear(4, 4)).eval(), {"input": torch.randn(2, 4)})
    found = build(given, Build(), "Broken")
    assert [(each["node"], each["why"]) for each in found["unsupported"]] == [
        ("_0", "its lowering failed with RuntimeError: Got Double and Float")
    ]
    assert "_1" in by_name(found)
