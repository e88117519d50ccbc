"""Constructor arguments as the rest of the workspace uses a class: tests, notebooks, README, docstrings, factories.

Ground truth: the arguments are those that the usage was written with here, and the model runs in plain eager PyTorch.
"""

import json
import sys
from pathlib import Path

import pytest

from mase_server.tracing.models.found import Found
from mase_server.tracing.models.workspace import Workspace
from tests.inputs.test_inputs_repairs import HEAD, looked_at, runs_in_eager

MODEL = """
import torch
from torch import nn


class Mixer(nn.Module):
    {docstring}
    def __init__(self, entrance, inner, rate):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(entrance, inner), nn.Dropout(rate), nn.Linear(inner, 3))

    def forward(self, x):
        return self.layers(x)
"""
PLAIN = MODEL.format(docstring='"""Mixes."""')
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["Mixer(1, 2, 3) is a model"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "from net import Mixer\n", "inner = 22\n"]},
        {"cell_type": "code", "source": ["model = Mixer(11, inner, 0.3)"]},
    ]
}
#: Where a class is used -> file name and text; each says entrance=11, inner=22, rate=0.3.
USAGES = {
    "a test": ("tests/test_net.py", "from net import Mixer\n\ndef test_it():\n    assert Mixer(11, 22, 0.3)\n"),
    "a script with variables": ("train.py", "import net\nwidth = 11\nmodel = net.Mixer(width, width * 2, rate=0.3)\n"),
    "a factory": ("zoo.py", "from net import Mixer\n\ndef tiny(r=0.3, **kw):\n    return Mixer(11, 22, r, **kw)\n"),
    "a README": ("README.md", "```python\nfrom net import Mixer\nm = Mixer(\n    11, 22,\n    rate=0.3,\n)\n```\n"),
    "a session in a README": ("README.rst", "```\n>>> m = Mixer(11, 22,\n...     0.3)\n>>> m\n```\n"),
    "a notebook": ("demo.ipynb", json.dumps(NOTEBOOK)),
    "a function by name": ("b.py", "import zoo\nm = zoo.create('mixer', entrance=11, inner=22, rate=0.3)\n"),
    "a table of classes": ("c.py", "def get(cfg):\n    return ZOO[cfg.name](entrance=11, inner=22, rate=0.3)\n"),
}  # fmt: skip


def put(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize("usage", USAGES.values(), ids=USAGES)
def test_a_class_is_made_as_another_file_of_the_workspace_makes_it(workspace, usage):
    put(workspace, *usage)
    (found,) = looked_at(workspace, PLAIN)
    assert isinstance(found, Found), found
    assert (found.arguments, found.arguments_from) == ({"entrance": 11, "inner": 22, "rate": 0.3}, "usage")
    assert found.found.endswith(f"; built as {usage[0]} builds it")
    assert runs_in_eager(found).shape[-1] == 3


def test_arguments_that_nobody_wrote_are_said_to_be_guessed(workspace):
    (found,) = looked_at(workspace, PLAIN)
    assert found.found.endswith("; its constructor's arguments are guessed from their names")


def test_a_class_is_made_as_its_docstring_makes_it(workspace):
    text = MODEL.format(docstring='"""Mixes.\n\n    >>> m = Mixer(11, 22, 0.3)\n    """')
    (found,) = looked_at(workspace, text)
    assert (found.arguments, found.arguments_from) == ({"entrance": 11, "inner": 22, "rate": 0.3}, "usage")


def test_another_class_of_the_same_name_is_not_taken_for_it(workspace):
    put(workspace, "other.py", "class Mixer:\n    pass\n\nMixer(1, 2, 0.5)\n")
    put(workspace, "third.py", "from elsewhere.models import Mixer\nMixer(3, 4, 0.5)\n")
    put(workspace, "z_last.py", "from net import Mixer\nMixer(11, 22, 0.3)\n")
    (found,) = looked_at(workspace, PLAIN)
    assert found.arguments == {"entrance": 11, "inner": 22, "rate": 0.3}


def test_a_version_of_a_file_is_made_as_the_script_beside_it_makes_one_that_is_gone(workspace):
    put(workspace, "net.py", "")
    text = "def train(kind):\n    if kind == 'a':\n        from nets1 import Mixer\n    if kind == 'b':\n"
    text += "        from nets2 import Mixer\n    return Mixer(11, 22, 0.3)\n"
    put(workspace, "runs/train.py", text)
    put(workspace, "runs/nets_b.py", PLAIN)
    (found,) = looked_at(workspace, PLAIN, "runs/nets_b.py")
    assert found.arguments == {"entrance": 11, "inner": 22, "rate": 0.3}


def test_the_files_own_calls_come_before_those_of_others(workspace):
    put(workspace, "train.py", "from net import Mixer\nMixer(1, 2, 0.5)\n")
    (found,) = looked_at(workspace, PLAIN + "\n\ndef make():\n    return Mixer(11, 22, 0.3)\n")
    assert found.arguments["entrance"] == 11


def test_a_file_that_uses_the_class_is_never_run(workspace):
    canary = workspace / "canary"
    text = f"from net import Mixer\nopen({str(canary)!r}, 'w').close()\nimport unheard_of\nMixer(11, 22, 0.3)\n"
    put(workspace, "train.py", text)
    (found,) = looked_at(workspace, PLAIN)
    assert found.arguments["entrance"] == 11
    assert not canary.exists()
    assert "train" not in sys.modules


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken.py", "Mixer(11, 22, 0.3"),
        ("broken.ipynb", "{Mixer(1"),
        ("cells.ipynb", '["Mixer(1, 2, 3)"]'),
        ("words.md", "```\nMixer( is not code\n```"),
        ("unknown.py", "from net import Mixer\nMixer(*settings.read())\n"),
        ("wrong.py", "from net import Mixer\nMixer('a', 'b', 'c')\n"),
    ],
)
def test_what_cannot_be_used_is_passed_over(workspace, name, text):
    put(workspace, name, text)
    (found,) = looked_at(workspace, PLAIN)
    assert isinstance(found, Found)
    assert found.arguments_from == "search"


def test_installed_and_hidden_folders_are_not_read(workspace):
    for folder in (".venv/lib", "venv/lib", "node_modules", "lib/site-packages"):
        put(workspace, f"{folder}/use.py", "from net import Mixer\nMixer(1, 2, 0.5)\n")
    assert list(Workspace(str(workspace), str(workspace / "net.py")).calls("Mixer")) == []


def test_a_part_made_as_another_file_makes_it_is_no_error_where_its_inputs_are_not_found(workspace):
    put(workspace, "whole.py", "from net import Joined\nJoined(24)\n")
    text = """import torch
from torch import nn


class Joined(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide, self.mixed = nn.Identity(), nn.Conv2d(width, 4, 1)

    def forward(self, one, other):
        return self.mixed(torch.cat([self.wide(one), self.wide(other)], dim=1))
"""
    items = looked_at(workspace, text)
    assert not [item for item in items if isinstance(item, Found) and "fails with them" in item.found]


def test_each_file_of_a_workspace_is_read_once_for_all_its_classes(workspace, monkeypatch):
    put(workspace, "train.py", "from net import Mixer, Other\nMixer(1, 2, 0.5)\nOther(3)\n")
    searched, reads = Workspace(str(workspace), str(workspace / "net.py")), []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path.name) or original(path))
    assert [len(list(searched.calls(name))) for name in ("Mixer", "Other", "Mixer", "Absent")] == [1, 1, 1, 0]
    assert reads == ["train.py"]


STACK = """import torch
from torch import nn


class Stack(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
"""
PARTS = """from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.fc(x)
"""
#: Where the parts and the width are -> the other file's text; each says two layers of width 6.
WHOLES = {
    "parameters with defaults": """from net import Stack
from parts import Layer

class Whole:
    def __init__(self, width=6, depth=2):
        self.stack = Stack([Layer(width) for _ in range(depth)], width)
""",
    "attributes of self": """from net import Stack
from parts import Layer

class Whole:
    def __init__(self):
        self.width, self.depth = 6, 2
        self.stack = Stack([Layer(self.width) for _ in range(self.depth)], self.width)
""",
    "a table": """from net import Stack
from parts import Layer

SIZES = {"small": (Layer, 6, 2)}

def make_sized(size):
    kind, width, depth = SIZES[size]
    return Stack([kind(width) for _ in range(depth)], width)
""",
    "a call in a third file": """from net import Stack
from parts import Layer

def make(width, depth):
    return Stack([Layer(width) for _ in range(depth)], width)
""",
    "a parser in a third file": """from net import Stack
from parts import Layer

def build(args):
    return Stack([Layer(args.width) for _ in range(args.depth)], args.width)
""",
}
THIRD = """import argparse

from whole import make

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=6)
parser.add_argument("--depth", type=int, default=2)

if __name__ == "__main__":
    raise SystemExit("this file is not run")
make(6, depth=2)
"""


@pytest.mark.parametrize("whole", WHOLES.values(), ids=WHOLES)
def test_parts_are_made_of_the_classes_that_the_other_file_imports(workspace, whole):
    put(workspace, "parts.py", PARTS)
    put(workspace, "whole.py", whole)
    put(workspace, "main.py", THIRD)
    (found,) = looked_at(workspace, STACK)
    assert isinstance(found, Found), found
    assert [layer.fc.in_features for layer in found.model.layers] == [6, 6]
    assert found.found.endswith("built as whole.py builds it")
    assert runs_in_eager(found).shape[-1] == 3


def test_a_command_line_leaves_the_rest_to_a_file_of_settings(workspace):
    put(workspace, "conf/base.yaml", "entrance: 11\ninner_conf:\n  inner: 22\n  depth: 1\nrate: 0.3\n")
    script = """import argparse
from net import Mixer
from tools import read_settings

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf/base.yaml")
parser.add_argument("--rate", type=float, default=0.4)
args = parser.parse_args()
hparams = read_settings(args.config)
hparams = hparams.parse_args([])
model = Mixer(hparams.entrance, hparams.inner_conf["inner"], hparams.rate)
"""
    put(workspace, "train.py", script)
    (found,) = looked_at(workspace, PLAIN)
    assert isinstance(found, Found), found
    assert [layer.in_features for layer in (found.model.layers[0], found.model.layers[2])] == [11, 22]
    assert found.model.layers[1].p == 0.4, "the command line is nearer"


def test_what_a_test_of_another_version_gives_is_taken_as_far_as_the_class_takes_it(workspace):
    put(workspace, "test_net.py", "import net\n\nmodel = net.Mixer(11, inner=22, rate=0.3, fast=True)\n")
    (found,) = looked_at(workspace, PLAIN)
    assert isinstance(found, Found), found
    assert [layer.in_features for layer in (found.model.layers[0], found.model.layers[2])] == [11, 22]
    assert found.found.endswith("built as test_net.py builds it")


ANCHORED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=6, anchors=None):
        super().__init__()
        assert anchors is not None, "anchors must be given"
        self.register_buffer("anchors", torch.tensor(anchors))
        self.layer = nn.Linear(width, self.anchors.shape[1])

    def forward(self, x):
        return self.layer(x)
"""


def test_what_is_filled_in_later_is_what_a_class_of_settings_says(workspace):
    settings = """class BaseConfig:
    def __init__(self):
        self.anchors = None
        self.width = None

    def complete(self):
        if self.anchors is None:
            self.anchors = [[1, 2, 3], [4, 5, 6]]
"""
    put(workspace, "config.py", settings)
    put(
        workspace,
        "zoo.py",
        "from net import Net\n\ndef get(config):\n    return Net(width=config.width, anchors=config.anchors)\n",
    )
    put(workspace, "train.py", "from zoo import get\nfrom config import BaseConfig\nget(BaseConfig())\n")
    (found,) = looked_at(workspace, ANCHORED)
    assert isinstance(found, Found), found
    assert (found.model.layer.in_features, found.model.layer.out_features) == (6, 3)


def test_settings_of_another_model_are_not_mixed_in(workspace):
    several = "model_name: {}\nconf:\n  entrance: 11\n  inner: 22\n{}rate: 0.3\nhead: 1\n"
    put(workspace, "conf/one.yaml", several.format("mixer", ""))
    put(workspace, "conf/two.yaml", several.format("other", "  places: 9\n  steps: 8\n"))
    script = "from net import Mixer\n\ndef get(config):\n    print(config.model_name, config.head)\n"
    put(workspace, "zoo.py", script + "    return Mixer(rate=config.rate, **config.conf)\n")
    (found,) = looked_at(workspace, PLAIN)
    assert isinstance(found, Found), found
    assert [layer.in_features for layer in (found.model.layers[0], found.model.layers[2])] == [11, 22]


CONFIGURED = """from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Sizes:
    width: int
    mult: list[int]


class Coder(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(sizes.width, sizes.width * each) for each in sizes.mult))

    def forward(self, x):
        return self.layers(x)
"""


def test_a_configuration_is_what_the_workspace_makes_it(workspace):
    put(workspace, "zoo.py", "from net import Sizes\nZOO = {'base': make_spec(sizes=Sizes(width=7, mult=[1, 1, 3]))}\n")
    (found,) = looked_at(workspace, CONFIGURED)
    assert isinstance(found, Found), found
    assert [layer.out_features for layer in found.model.layers] == [7, 7, 21]


def test_a_file_that_only_defines_gives_its_classes(workspace):
    put(
        workspace,
        "specifications.py",
        """from net import Coder, Sizes

class Spec:
    def __init__(self, sizes):
        self.sizes = sizes

ZOO = {"base": Spec(Sizes(width=5, mult=[2]))}

def load(name):
    return Coder(ZOO[name].sizes)
""",
    )
    text = CONFIGURED.replace("sizes: Sizes", "sizes")
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert (found.arguments_from, found.model.layers[0].out_features) == ("usage", 10)


def test_a_guess_that_torch_cannot_walk_is_tried_no_further(workspace):
    text = """import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self, heads):
        super().__init__()
        for head in heads:
            self.add_module("", nn.Linear(4, 4)) if head == "" else setattr(self, str(head), nn.Linear(4, 4))
            self._modules[head] = nn.Linear(4, 4)

    def forward(self, x):
        return [layer(x) for layer in self._modules.values()]
"""
    items = looked_at(workspace, text)
    assert not [item for item in items if isinstance(item, Found)]


BUILDER = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, phase, width, layers):
        super().__init__()
        self.phase, self.layers = phase, nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x) if self.phase == "train" else x

def build_net(phase, width, depth):
    if phase != "test" and phase != "train":
        print("no such phase")
        return
    return Net(phase, width, [nn.Linear(width, width) for _ in range(depth)])
"""


def test_a_class_is_built_as_another_file_calls_its_builder(workspace):
    put(
        workspace,
        "train.py",
        "from net import build_net\ncfg = {'width': 11}\nnet = build_net('train', cfg['width'], 3)\n",
    )
    (found,) = looked_at(workspace, BUILDER)
    assert isinstance(found, Found), found
    assert len(found.construct().layers) == 3
    assert "train.py" in found.found


def test_a_builder_is_given_a_word_that_it_compares(workspace):
    (found,) = looked_at(workspace, BUILDER.replace("width, depth):", "width=5, depth=2):"))
    assert isinstance(found, Found), found
    assert found.construct().phase == "test"


def test_an_argument_that_is_a_tensor_is_one(workspace):
    text = (
        "import torch\nfrom torch import nn\n\nclass Scale(nn.Module):\n    def __init__(self, mean: torch.Tensor):\n"
    )
    text += "        super().__init__()\n        assert mean.dim() == 1\n        self.register_buffer('mean', mean)\n\n"
    (found,) = looked_at(workspace, text + "    def forward(self, x):\n        return x - self.mean\n")
    assert isinstance(found, Found), found


HOLDER = """
import torch
from torch import nn

class Probe(nn.Module):
    def __init__(self, {parameter}):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(backbone.embed_dim, 3)

    def forward(self, x):
        return self.head(self.backbone(x))
"""
BACKBONE = """
import torch
from torch import nn

class Tokens(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.embed_dim, self.layer = width, nn.Linear(7, width)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.parametrize("parameter", ["backbone", "backbone: nn.Module"])
def test_a_model_that_is_an_argument_is_one_of_the_workspace_with_the_attributes_that_are_read(workspace, parameter):
    put(workspace, "src/models/tokens.py", BACKBONE)
    (found,) = looked_at(workspace, HOLDER.format(parameter=parameter), "probe.py")
    assert isinstance(found, Found), found
    assert type(found.construct().backbone).__name__ == "Tokens"
    assert runs_in_eager(found).shape[-1] == 3


def test_a_criterion_takes_scores_and_labels(workspace):
    text = "import torch\nfrom torch import nn\n\nclass Total(nn.Module):\n"
    text += "    def __init__(self, base_criterion: nn.Module, scale: float):\n"
    text += "        super().__init__()\n        self.base, self.scale = base_criterion, scale\n"
    text += "    def forward(self, outputs, labels):\n        return self.base(outputs, labels) * self.scale\n"
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape == ()


def test_a_list_of_modules_holds_modules(workspace):
    text = "import torch\nfrom torch import nn\n\nclass Mixture(nn.Module):\n"
    text += "    def __init__(self, experts: list[nn.Module]):\n        super().__init__()\n"
    text += "        self.experts = nn.ModuleList(experts)\n        self.layer = nn.Linear(4, 4)\n\n"
    text += "    def forward(self, x):\n        return sum(expert(self.layer(x)) for expert in self.experts)\n"
    (found,) = looked_at(workspace, text, "mixture.py")
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape == (2, 4)


def test_a_class_of_a_starred_import_is_meant_although_others_are_starred_too(workspace):
    text = "import torch\nfrom torch import nn\n\nclass Coder(nn.Module):\n    def __init__(self, shared=None):\n"
    text += "        super().__init__()\n        self.layer, self.shared = nn.Linear(4, 4), shared\n\n"
    text += (
        "    def forward(self, x):\n        return self.shared(self.layer(x))\n\nclass Block(nn.Linear):\n    pass\n"
    )
    put(
        workspace,
        "train.py",
        "from models import *\nfrom datasets import *\nshared = Block(4, 7)\nCoder(shared=shared)\n",
    )
    found = next(item for item in looked_at(workspace, text, "models.py") if isinstance(item, Found))
    assert runs_in_eager(found).shape[-1] == 7


READER = """class Vocabulary:
    def __init__(self, limit=None):
        self.words = {}

    def read(self, path):
        self.words = {word: at for at, word in enumerate(open(path).read().split())}

    def count(self):
        return len(self.words)
"""
SPELLER = (
    HEAD
    + """class Net(nn.Module):
    def __init__(self, vocab_size, width, padding_idx=0):
        super().__init__()
        self.table = nn.Embedding(vocab_size, width, padding_idx)
        self.out = nn.Linear(width, vocab_size)

    def forward(self, x):
        return self.out(self.table(x))
"""
)


def test_a_vocabulary_that_is_counted_before_it_is_read_has_a_usual_size(workspace):
    put(workspace, "words.py", READER)
    put(
        workspace,
        "train.py",
        "from net import Net\nfrom words import Vocabulary\n\n\ndef main():\n    vocabulary = Vocabulary()\n"
        "    vocabulary.read('words.txt')\n    size = vocabulary.count()\n    model = Net(size, 24)\n",
    )
    (found,) = looked_at(workspace, SPELLER)
    assert isinstance(found, Found), found
    assert found.arguments["vocab_size"] > 1
    assert found.arguments["width"] == 24
    assert runs_in_eager(found).shape[-1] == found.arguments["vocab_size"]


WITH_BERT = (
    HEAD
    + """class Net(nn.Module):
    def __init__(self, config, NAME):
        super().__init__()
        self.NAME = NAME
        for each in self.NAME.parameters():
            each.requires_grad = True
        self.rnn = nn.LSTM(self.NAME.config.hidden_size, config.hidden_size, batch_first=True)
        self.out = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, batch):
        RESULTS
        return self.out(self.rnn(states)[0][:, -1])
"""
)


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("bert", "states, pooled = CALL"),
        ("encoder", "states = CALL.last_hidden_state"),
        ("plm", "found = CALL\n        states = found[0]"),
    ],
)
def test_an_argument_that_is_called_as_a_language_model_is_one(workspace, name, results):
    call = 'self.NAME(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])'
    text = WITH_BERT.replace("RESULTS", results.replace("CALL", call)).replace("NAME", name)
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.model.rnn.input_size == 768
    assert runs_in_eager(found).dim() == 2


def test_an_argument_that_has_the_name_of_a_language_model_is_one(workspace):
    text = WITH_BERT.replace("RESULTS", "states, _ = self.bert(batch)").replace("NAME", "bert")
    text = text.replace("self.bert.config.hidden_size", "config.bert_dim")
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.model.rnn.input_size == 768
    assert runs_in_eager(found).dim() == 2


TAGGER = (
    HEAD
    + """class Net(nn.Module):
    def __init__(self, width, tagset_size):
        super().__init__()
        self.tagset_size = tagset_size
        self.out = nn.Linear(width, tagset_size * tagset_size)

    def forward(self, x):
        return self.out(x).view(-1, self.tagset_size, self.tagset_size)
"""
)


def test_labels_that_are_counted_before_they_are_read_have_a_usual_number(workspace):
    put(
        workspace,
        "train.py",
        "from net import Net\n\n\ndef main():\n    tags = {}\n    for line in open('tags.txt'):\n"
        "        tags[line] = len(tags)\n    model = Net(24, len(tags))\n",
    )
    (found,) = looked_at(workspace, TAGGER)
    assert isinstance(found, Found), found
    assert found.arguments["tagset_size"] > 1
    assert found.arguments["width"] == 24
    assert runs_in_eager(found).shape[-1] == found.arguments["tagset_size"]


STAGE = (
    HEAD
    + """class Stage(nn.Module):
    def __init__(self, width, parts, deep):
        super().__init__()
        assert width % parts == 0
        self.parts = nn.ModuleList(nn.Linear(width // parts, width // parts) for _ in range(parts))
        self.deep = deep

    def forward(self, x):
        return torch.cat([part(piece) for part, piece in zip(self.parts, x.chunk(len(self.parts), -1))], -1)
"""
)
LOOP = """from torch import nn
from stage import Stage

class Net(nn.Module):
    def __init__(self, sizes=(21, 42)):
        super().__init__()
        stages = []
        for at, (width, parts) in enumerate(zip(sizes, [3, 7])):
            stages.append(Stage(width, parts, deep=at > 0))
        self.stages = nn.Sequential(*stages)
"""
COMPREHENSION = """from torch import nn
from stage import Stage

class Net(nn.Module):
    def __init__(self, sizes=(21, 42)):
        super().__init__()
        self.stages = nn.ModuleList(
            [Stage(width, parts=3, deep=False) for width in sizes]
        )
"""


@pytest.mark.parametrize("text", [LOOP, COMPREHENSION])
def test_a_part_that_is_made_in_a_loop_is_made_as_in_its_first_turn(workspace, text):
    put(workspace, "net.py", text)
    (found,) = looked_at(workspace, STAGE, "stage.py")
    assert isinstance(found, Found), found
    assert (found.arguments_from, found.arguments) == ("usage", {"width": 21, "parts": 3, "deep": False})
    assert runs_in_eager(found).shape[-1] == 21


GROWN = """from net import Net


def main(depth=3, wide=False):
    widths = [24]
    for at in range(depth):
        widths.append(widths[-1] + 3)
    if wide:
        widths.append(90)
    else:
        with open("log.txt", "w"):
            widths += [7]
    model = Net(widths)
"""


def test_a_list_that_is_filled_by_statements_has_all_its_members(workspace):
    put(workspace, "train.py", GROWN)
    text = HEAD + (
        "class Net(nn.Module):\n    def __init__(self, widths):\n        super().__init__()\n"
        "        pairs = zip(widths, widths[1:])\n"
        "        self.layers = nn.Sequential(*(nn.Linear(a, b) for a, b in pairs))\n\n"
        "    def forward(self, x):\n        return self.layers(x)\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert (found.arguments_from, found.arguments) == ("usage", {"widths": [24, 27, 30, 33, 7]})
    assert runs_in_eager(found).shape[-1] == 7


def test_a_device_that_a_program_picks_when_it_runs_is_the_cpu(workspace):
    put(
        workspace,
        "train.py",
        "import argparse\nfrom net import Net\n\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--device', default='', type=str)\nargs = parser.parse_args()\n"
        "args.device = args.device or pick()\nmodel = Net(24, args.device)\n",
    )
    text = HEAD + (
        "class Net(nn.Module):\n    def __init__(self, width, device: str):\n        super().__init__()\n"
        "        self.out, self.device = nn.Linear(width, 7), device\n\n"
        "    def forward(self, x):\n        return self.out(x.to(self.device))\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["device"] == "cpu"
    assert runs_in_eager(found).shape[-1] == 7


def test_a_device_of_which_nothing_is_written_is_the_cpu(workspace):
    text = HEAD + (
        "class Net(nn.Module):\n    def __init__(self, device: str):\n        super().__init__()\n"
        "        self.out, self.device = nn.Linear(24, 7), device\n\n"
        "    def forward(self, x):\n        return self.out(x.to(self.device))\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["device"] == "cpu"


def test_a_table_whose_number_of_rows_is_a_tensor_hides_no_other_model(workspace):
    text = HEAD + (
        "class Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.table = nn.Embedding(9, width)\n        self.table.num_embeddings = torch.tensor(9)\n\n"
        "    def forward(self, ids):\n        return self.table(ids)\n\n\n"
        "class Other(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.out = nn.Linear(24, 7)\n\n    def forward(self, x):\n        return self.out(x)\n"
    )
    assert [item.name for item in looked_at(workspace, text) if isinstance(item, Found)] == ["Other"]


WHOLE = """from torch import nn
from stage import Stage

class Whole(nn.Module):
    def __init__(self, width, parts=None, deep=None):
        super().__init__()
        self.deep = deep
        if self.deep is None:
            self.deep = [False, True]
        self.stages = nn.ModuleList([Stage(width, parts, self.deep[at]) for at in range(2)])
"""


def test_a_default_of_none_stands_for_what_another_file_gives_or_the_class_computes(workspace):
    put(workspace, "whole.py", WHOLE)
    put(workspace, "train.py", "from whole import Whole\nwhole = Whole(21, parts=3)\n")
    (found,) = looked_at(workspace, STAGE, "stage.py")
    assert isinstance(found, Found), found
    assert (found.arguments_from, found.arguments) == ("usage", {"width": 21, "parts": 3, "deep": False})
