"""Telling a forward's own mistake from inputs that do not fit."""

import re

import pytest
import torch
from torch import nn

from mase_server.tracing.inputs.searching.search import search_inputs
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.found import plain_hooks
from mase_server.tracing.models.workspace import Budget
from mase_server.tracing.recording.shadow import MetaMode, Shadows
from tests.inputs.test_inputs_missing import bound, traced


class Misspelt(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x):
        return self.layer(x).softmaks(-1)


class WrongWidth(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 30), nn.Linear(20, 2)

    def forward(self, x):
        return self.second(self.first(x))


class WrongChannels(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(16, 2, 3)

    def forward(self, x):
        return self.second(self.first(x))


class UnknownSide(nn.Module):
    """Right for images of one unusual size, which nobody could guess."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8 * 39 * 39, 2)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


#: Calls that refuse most of what is given, with numbers of dimensions or of elements that are none or unusual.
ODD_CALLS = {
    "a table without dimensions": "F.embedding(t, torch.ones(()))",
    "a weight without dimensions": "F.linear(x, torch.ones(()))",
    "a weight of one dimension": "F.conv1d(x, torch.ones(4))",
    "a dimension that is not there": "torch.index_select(t, 7, t)",
    "a dimension that is not there, of an index": "torch.gather(t, 7, t)",
    "a view of nothing": "torch.empty(0).view(3, 3)",
    "a view of nothing with a free size": "torch.empty(0).view(3, -1)",
    "a mask of one dimension": "attn_mask.bmm(attn_mask)",
    "lengths of a vector": "nn.utils.rnn.pack_padded_sequence(t, t, batch_first=True)",
    "lengths of a number": "nn.utils.rnn.pack_padded_sequence(t.sum(), t)",
    "lengths by name": "nn.utils.rnn.pack_padded_sequence(input=x, lengths=x, batch_first=True)",
    "an index without dimensions": "F.one_hot(t.float().sum() if t.dim() else t.float())",
}


@pytest.mark.parametrize("call", ODD_CALLS)
def test_an_odd_call_does_not_end_the_search(call, tmp_path):
    body = f"        return {ODD_CALLS[call]}\n"
    names = [name for name in ("x", "t", "attn_mask") if re.search(rf"\b{name}\b", body)]
    head = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
    payload = traced(tmp_path, {"net.py": f"{head}    def forward(self, {', '.join(names)}):\n{body}"})
    told = [(each["severity"], each["code"]) for each in payload["problems"]]
    assert told in ([], [("warning", "no-inputs")]), "inputs are found, or it is said that none are"


NET = """import torch
from torch import nn
from dataclasses import dataclass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 4)

    def forward(self, x):
        h = self.layer(x)
        {refusal}
        return h
"""
REFUSALS = {
    "an assertion": "assert h.requires_grad",
    "an exception": "if not h.requires_grad: raise ValueError('no gradient')",
    "a function of a library": "import fractions; fractions.Fraction(1, int(h.requires_grad))",
}


#: A first statement of a forward that no inputs avoid -> its line's part, the problem's text.
UNAVOIDABLE = {
    "a name that is not defined": ("h = helper(x)", "helper(x)", "`helper` is not defined"),
    "an attribute that the model lacks": ("h = self.lyer(x)", "self.lyer", "lyer"),
    "a spectrum whose form is not given": (
        "h = torch.stft(x, 64, window=torch.hann_window(64))", "torch.stft", "return_complex",
    ),
    "a mask of bytes, which older versions took": (
        "h = x.masked_fill(torch.ones(x.shape[-1]).byte(), 0.0)", "x.masked_fill", ".bool()",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", UNAVOIDABLE)
def test_a_mistake_before_the_first_layer_is_told_where_it_is(tmp_path, mistake):
    statement, part, words = UNAVOIDABLE[mistake]
    text = NET.format(refusal="return h").replace("h = self.layer(x)", statement, 1)
    (problem,) = traced(tmp_path, {"net.py": text})["problems"]
    assert (problem["severity"], problem["line"]) == ("error", 1 + text[: text.index(part)].count("\n"))
    assert words in problem["message"]


def test_what_a_guessed_part_lacks_is_no_mistake(tmp_path):
    text = NET.format(refusal="return h").replace("(self)", "(self, encoder)", 1)
    text = text.replace("self.layer = ", "self.encoder = encoder\n        self.layer = ")
    text = text.replace("self.layer(x)", "self.encoder.special(x)")
    (problem,) = traced(tmp_path, {"net.py": text})["problems"]
    assert (problem["severity"], problem["code"]) == ("warning", "no-inputs")


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_check_that_refuses_what_was_guessed_is_no_mistake(tmp_path, refusal):
    text = NET.format(refusal=REFUSALS[refusal])
    (problem,) = traced(tmp_path, {"net.py": text})["problems"]
    assert problem["severity"] == "warning"
    assert "The inputs were guessed (x: f32[B=2, 10]) and may not fit" in problem["message"]
    assert "`# mase: x: TYPE[SIZE, ...]`" in problem["message"], "what failed is not offered"


def test_a_check_that_refuses_what_the_person_said_is_an_error(tmp_path):
    text = NET.format(refusal=REFUSALS["an assertion"])
    (problem,) = traced(tmp_path, {"net.py": text.replace("class Net", "# mase: x: f32[2, 10]\nclass Net")})["problems"]
    assert (problem["severity"], problem["code"]) == ("error", "forward-error")
    (problem,) = traced(tmp_path, {"net.py": f"{text}\n\nNet()(torch.randn(2, 10))\n"})["problems"]
    assert (problem["severity"], problem["code"]) == ("error", "forward-error")


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_guessed_inputs_that_do_not_fit_each_other_are_no_mistake(tmp_path):
    text = """
    from torch import nn


    class Loss(nn.Module):
        def forward(self, output, targets):
            mel, gate = targets[0], targets[1]
            out, post, chance, _ = output
            distance = nn.MSELoss()(out, mel) + nn.MSELoss()(post, mel)
            return distance + nn.BCEWithLogitsLoss()(chance.view(-1, 1), gate.view(-1, 1))
    """
    assert {each["severity"] for each in traced(tmp_path, {"net.py": text})["problems"]} <= {"warning"}


CHECKED = {
    "its sizes agree": "assert self.width * self.heads == self.depth + 1",
    "a part of it": "assert self.inner.depth > 3",
}


@pytest.mark.parametrize("check", CHECKED)
def test_a_configuration_that_refuses_what_was_guessed_is_no_mistake(tmp_path, check):
    text = f"""
    from dataclasses import dataclass
    from torch import nn


    @dataclass
    class Config:
        width: int
        heads: int
        depth: int
        inner: nn.Module = None

        def __post_init__(self):
            {CHECKED[check]}


    class Net(nn.Module):
        def __init__(self, config: Config):
            super().__init__()
            self.layer = nn.Linear(config.width, config.inner.out_features)

        def forward(self, x):
            return self.layer(x)
    """
    (problem,) = traced(tmp_path, {"net.py": text})["problems"]
    assert (problem["severity"], problem["code"]) == ("warning", "no-arguments")
    assert "AssertionError" in problem["message"] or "AttributeError" in problem["message"]


def test_weights_that_cannot_be_fetched_are_no_mistake(tmp_path):
    text = """
    from torch import nn
    from transformers import AutoModel


    class Net(nn.Module):
        def __init__(self, version="somebody/nothing"):
            super().__init__()
            self.model = AutoModel.from_pretrained(version)

        def forward(self, x):
            return self.model(x)


    if __name__ == "__main__":
        Net()
    """
    assert {each["severity"] for each in traced(tmp_path, {"net.py": text})["problems"]} == {"warning"}


def test_a_part_may_have_a_parameter_of_any_name(tmp_path):
    text = """
    from torch import nn


    class Part(nn.Module):
        def forward(self, module, cls):
            return module + cls


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.part = nn.Linear(10, 4), Part()

        def forward(self, x):
            h = self.layer(x)
            return self.part(module=h, cls=h)
    """
    assert traced(tmp_path, {"net.py": text})["problems"] == []


class Picky(nn.Module):
    def forward(self, x):
        raise ValueError("never")


def searched(kind):
    shadows = Shadows()
    with MetaMode(shadows):
        model = kind()
    return search_inputs(model, plain_hooks(shadows))


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [(Misspelt, "x: f32[B=2, 12]"), (WrongWidth, "x: f32[B=2, 12]"), (WrongChannels, "x: f32[B=2, 3, H=32, W=32]")],
)
def test_the_forwards_own_mistake_is_told_with_the_likeliest_inputs(kind, inputs):
    found = searched(kind)
    assert found.spec is None
    assert format_inputs(found.likely) == inputs
    with pytest.raises((RuntimeError, AttributeError)):
        kind()(
            *[
                torch.randn(*[dim if isinstance(dim, int) else 2 for dim in leaf.dims])
                for leaf in found.likely.entries.values()
            ]
        )


def test_an_unusual_image_size_is_worked_out_from_the_features_that_it_has_to_give():
    found = searched(UnknownSide)
    assert format_inputs(found.spec) == "x: f32[B=2, 3, H=41, W=41]"
    assert UnknownSide()(torch.randn(2, 3, 41, 41)).shape == (2, 2)


def test_inputs_that_nobody_could_guess_are_no_mistake_of_the_forward():
    found = searched(Picky)
    assert (found.spec, found.likely) == (None, None)
    assert "tries failed" in found.how


def test_the_search_ends_within_its_attempts_and_its_time():
    shadows = Shadows()
    seen = []

    def attempt(model, args, kwargs):
        seen.append(args)
        return ValueError(str(len(seen)))

    hooks = plain_hooks(shadows)
    hooks = type(hooks)(shadows, hooks.on_call, attempt)
    search_inputs(UnknownSide(), hooks, attempts=7)
    assert len(seen) == 7
    ticks = iter(range(100))
    search_inputs(UnknownSide(), hooks, budget=Budget.of(3, lambda: next(ticks)))
    assert len(seen) < 7 + 10


MAPS_ONLY = """from torch import nn


class Mixer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.mix = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        shape = x.shape
        if len(shape) == 4:
            b, c, h, w = shape
            x = x.flatten(2).transpose(1, 2)
        y = self.mix(x).reshape(b, -1, 2, c)
        return y


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ModuleList()
        for index in range(2):
            self.scales.add_module(f"scale_{index}", nn.Conv2d(3, 8, 3, padding=1))

    def forward(self, x):
        maps = [scale(x) for scale in self.scales]
        for scale in self.scales:
            z = scale(x)
        return maps, z
"""


def test_a_name_that_only_other_ranks_bind_is_no_mistake(tmp_path):
    payload = traced(tmp_path, {"net.py": MAPS_ONLY})
    assert payload["problems"] == []
    assert bound(payload)["y"][2:] == [2, 16]


def test_layers_of_a_list_may_have_names(tmp_path):
    payload = traced(tmp_path, {"net.py": MAPS_ONLY})
    assert bound(payload)["z"][1] == 8
