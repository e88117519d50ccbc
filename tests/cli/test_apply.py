"""`mase-server passes` and `mase-server apply` as a person runs them, on real files with real workers."""

import json
import math
import re

import pytest
import torch
from torch import nn

from mase_server.formats import parse

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.a = nn.Linear(8, width)
        self.drop = nn.Dropout(0.1)
        self.b = nn.Linear(width, 3)

    def forward(self, x):
        h = self.a(x).relu()
        return self.b(self.drop(h))


if __name__ == "__main__":
    net = Net()
    net.load_state_dict(torch.load("net.pt"))
    net(torch.randn(4, 8))
"""
OWN = '''
def count_linear_analysis_pass(mg, pass_args={"n": 3}):
    """Count the linear layers."""
    return mg, {"linear": pass_args["n"]}


def broken_transform_pass(mg, pass_args={}):
    return mg.nothing
'''


class Net(nn.Module):
    """The model of the file, for ground truth."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 64), nn.Linear(64, 3)

    def forward(self, x):
        return self.b(self.a(x).relu())


@pytest.fixture
def net(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "net.py").write_text(NET)
    torch.manual_seed(0)
    torch.save(Net().state_dict(), folder / "net.pt")
    return folder / "net.py"


def applied(mase, net, *words):
    done = mase("apply", net, *words, "--format", "json", cwd=net.parent)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_what_was_applied_is_told_with_formats_bits_and_sizes(mase, net):
    told = applied(mase, net, "remove_dropout", "quantize", "default=fixed(8,4)")
    assert [step["text"] for step in told["steps"]] == ["remove_dropout()", "quantize(default='fixed(8,4)')"]
    assert (told["model"], told["failure"], told["problems"]) == ("Net", None, [])
    layers = {layer["path"] or layer["name"]: layer for layer in told["layers"]}
    assert {name: (layer["format"], layer["bits"]) for name, layer in layers.items()} == {
        "a": ("fixed(8,4)", 8), "relu": ("fixed(8,4)", 8), "b": ("fixed(8,4)", 8), "drop": (None, None),
    }  # fmt: skip
    parameters = 8 * 64 + 64 + 64 * 3 + 3
    assert told["summary"]["parameters"] == [parameters, parameters]
    assert told["summary"]["parameter_bytes"] == [4 * parameters, parameters]
    assert told["summary"]["weight_bits"] == [32, 8]
    assert "net.pt" in told["weights"]
    assert "x: f32[B=4, 8]" in told["inputs"]


def test_rounding_that_changes_nothing_has_no_error(mase, net):
    """The weights are made multiples of 1/16, which fixed(16,4) holds; nothing else is rounded."""
    state = {name: (value * 16).round() / 16 for name, value in Net().state_dict().items()}
    torch.save(state, net.parent / "net.pt")
    told = applied(mase, net, "quantize", "linear={'config': {'name': 'fixed', 'weight_width': 16, "
                   "'weight_frac_width': 4, 'bias_width': 16, 'bias_frac_width': 4}}")  # fmt: skip
    assert told["summary"]["sqnr"] == "inf"
    assert told["summary"]["max_error"] == 0


def test_the_error_of_rounded_weights_is_bounded_by_theirs(mase, net):
    """Weights alone are rounded, to 1/8: the error of a's output is at most 1/16 for each of its 8 inputs, and one."""
    told = applied(mase, net, "quantize", "by=name", "a={'config': {'name': 'fixed', 'weight_width': 8, "
                   "'weight_frac_width': 3}}")  # fmt: skip
    [layer] = [layer for layer in told["layers"] if layer["path"] == "a"]
    weight = torch.load(net.parent / "net.pt")["a.weight"]
    largest = (parse("fixed(8,3)").quantise(weight) - weight).abs().max().item()
    assert 0 < layer["max_error"] <= 8 * largest * 6
    assert layer["sqnr"] > 0
    assert math.isfinite(layer["sqnr"])


def test_the_table_has_a_line_for_each_layer_that_computes(mase, net):
    done = mase.process("apply", net, "quantize", "default=fixed(8,6)", cwd=net.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == f"{net}: Net"
    assert re.fullmatch(r"1\. quantize\(default='fixed\(8,6\)'\)  \d+ ms", lines[1])
    head = next(number for number, line in enumerate(lines) if line.startswith("layer"))
    assert lines[head].split("  ")[0] == "layer"
    assert [line.split()[0] for line in lines[head + 1 :]] == ["a", "relu", "b", "output:"]
    figures = "bits on average: data 32 -> 8, weights 32 -> 8 · parameters: 3.01 KiB -> 771 B, 4.0x smaller"
    assert lines[-1].endswith(f" · {figures}")
    assert "drop " in mase("apply", net, "quantize", "default=fixed(8,6)", "--all", cwd=net.parent).stdout


def test_a_bad_result_says_what_to_try(mase, net):
    done = mase("apply", net, "quantize", "default=fixed(4,4)", cwd=net.parent)
    assert "hint: values often saturate where the SQNR is that low; try fixed(4,auto)" in done.stdout
    assert "hint" not in mase("apply", net, "quantize", "default=fixed(16,8)", cwd=net.parent).stdout


def test_a_pass_that_has_nothing_to_do_says_so(mase, net):
    done = mase("apply", net, "conv_bn_fusion", cwd=net.parent)
    assert "error: conv_bn_fusion: it changes nothing here, so it was not applied" in done.stdout


def test_shapes_and_code_can_be_shown_besides(mase, net):
    done = mase("apply", net, "quantize", "default=fixed(8,4)", "--show", "shapes", cwd=net.parent)
    assert "        h: fixed(8,4)[B, 64] = self.a(x).relu()" in done.stdout.splitlines()
    done = mase("apply", net, "quantize", "default=fixed(8,4)", "--show", "code", cwd=net.parent)
    assert done.stdout.count("fixed(8,4)") > 6
    assert done.returncode == 0


def test_the_passes_of_the_workspace_are_listed_and_applied(mase, net):
    (net.parent / "mine.py").write_text(OWN)
    listed = mase("passes", net, "--format", "json")
    [own] = [each for each in json.loads(listed.stdout) if each["name"] == "count_linear"]
    assert own["source"] == str(net.parent / "mine.py")
    told = applied(mase, net, "count_linear", "n=5")
    assert told["steps"][0]["info"] == "linear 5"


def test_a_pass_that_fails_is_status_one_and_tells_its_line(mase, net):
    (net.parent / "mine.py").write_text(OWN)
    done = mase("apply", net, "remove_dropout", "broken", cwd=net.parent)
    assert done.returncode == 1
    line = next(number for number, text in enumerate(OWN.splitlines(), 1) if "nothing" in text)
    assert f"mine.py:{line}: AttributeError: 'MaseGraph' object has no attribute 'nothing'" in done.stdout
    assert "1. remove_dropout()" in done.stdout


def test_a_model_too_big_for_values_shows_its_formats_and_says_so(mase, net):
    net.write_text(
        "import torch\nfrom torch import nn\n\nnet = nn.Sequential(*(nn.Linear(16384, 16384) for _ in range(8)))\n"
        "if __name__ == '__main__':\n    net(torch.randn(1, 16384))\n"
    )
    done = mase("apply", net, "quantize", "default=fixed(8,4)", "--format", "json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["failure"]) == (0, None)
    assert "8.0 GiB of parameters" in told["warning"]
    assert {layer["format"] for layer in told["layers"]} == {"fixed(8,4)"}
    assert (told["summary"]["sqnr"], told["weights"]) == (None, "")


def test_a_file_whose_model_cannot_be_shown_is_status_one(mase, net):
    net.write_text("import torch\n")
    done = mase("apply", net, "quantize", cwd=net.parent)
    assert done.returncode == 1
    assert "no-model" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quantise"], "error: there is no pass 'quantise'; did you mean 'quantize'?"),
        (["remove_dropout", "--model", "Nat"], "error: no model 'Nat' is shown in"),
        (["quantize", "default=fxed(8,4)"], "no number format is called 'fxed'"),
        (["remove_dropout", "only=drap"], "only names 'drap', which is no node"),
    ],
)
def test_what_cannot_be_meant_is_told(mase, net, words, message):
    done = mase("apply", net, *words, cwd=net.parent)
    assert message in done.stderr + done.stdout
    assert done.returncode in (1, 2)
    if message.startswith("error"):
        assert (done.returncode, done.stdout) == (2, "")


def test_passes_are_listed_without_a_file(mase, net):
    done = mase.process("passes", cwd=net.parent)
    assert (done.returncode, done.stderr) == (0, "")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert {"quantize", "prune", "insert_lora_adapter", "report_graph"} <= set(names)
    assert "\x1b" not in done.stdout


def test_a_pass_has_a_page(mase, net):
    done = mase("passes", "insert_lora_adapter", cwd=net.parent)
    assert done.returncode == 0
    assert (
        "  rank=8: features between the two matrices of an adapter. Takes a whole number of at least 1." in done.stdout
    )
    assert "  mase-server apply FILE insert_lora_adapter" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["insert_lora"], "error: there is no pass 'insert_lora'; did you mean 'insert_lora_adapter'?"),
        (["nowhere.py"], "error: there is no file 'nowhere.py'"),
        (["net.py", "pyproject.toml"], "error: one file at most, not 2: net.py, pyproject.toml"),
    ],
)
def test_what_is_no_pass_and_no_file_is_wrong_usage(mase, net, words, message):
    done = mase("passes", *words, cwd=net.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)


def test_nothing_of_the_workspace_runs_for_a_list(mase, net):
    (net.parent / "mine.py").write_text(f"open('ran', 'w').close()\n{OWN}")
    assert "count_linear" in mase("passes", cwd=net.parent).stdout
    assert not (net.parent / "ran").exists()


def test_a_buffer_that_shows_one_number_many_times_is_left_as_it_is(mase, net):
    """Nobody can write into what `expand` gives, and the run that calibrates formats restores all buffers."""
    head = "self.register_buffer('scale', torch.full((1, 1), 0.5).expand(4, 8)); self.linear = nn.Linear(8, 8)"
    net.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__(); {head}\n\n"
        "    def forward(self, x):\n        return self.linear(x) * self.scale\n\n\n"
        "Net()(torch.randn(4, 8))\n"
    )
    done = mase("apply", net, "quantize", cwd=net.parent)
    assert done.returncode == 0, done.stdout
