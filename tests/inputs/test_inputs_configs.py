"""Configurations that nobody handed over: what is read from them, and where the workspace keeps such settings.

Ground truth: the model runs in plain eager PyTorch with the arguments that are told, and its shapes are worked by hand.
"""

import ast

import pytest
import torch

from mase_server.tracing.models.configs import (
    AnyConfig,
    LackingError,
    list_entries,
    make_configuration,
    reads_of,
    replace_entry,
)
from mase_server.tracing.models.found import Found
from mase_server.tracing.models.settings import Settings, parsed_options, plain_mapping, simple_yaml
from mase_server.tracing.models.workspace import Workspace
from tests.inputs.test_inputs_repairs import HEAD, looked_at, runs_in_eager
from tests.inputs.test_inputs_workspace import put

BODY = """
class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inner = nn.Linear({entry}, {inner})
        self.outer = nn.Linear({inner}, {outer})

    def forward(self, x):
        return self.outer(self.inner(x))
"""
ATTRIBUTES = BODY.format(entry="cfg.entry_width", inner="cfg.inner_width", outer="cfg.outer_width")
KEYS = BODY.format(entry='cfg["entry_width"]', inner='cfg["inner_width"]', outer='cfg["outer_width"]')
NESTED = BODY.format(entry="cfg.net.entry_width", inner="cfg.net.inner_width", outer="cfg.head.outer_width")
MIXED = BODY.format(
    entry='cfg["net"]["entry_width"]', inner='cfg["net"].inner_width', outer='cfg.get("outer_width", 9)'
)


#: A configuration whose constructor takes one, as when a `class` line is deleted while somebody types.
OF_ITSELF = """
class NetConfig:
    entry_width: int = 6

    def __init__(self, config{annotation}):
        self.width = config.entry_width


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.inner = nn.Linear(config.entry_width, config.inner_width)

    def forward(self, x):
        return self.inner(x)
"""


#: How a workspace keeps the settings of a model -> file name and text; each says 6, 7 and 9.
KEPT = {
    "YAML": ("config.yaml", "seed: 1\nmodel:\n  entry_width: 6  # in\n  inner_width: 7\n  outer_width: 9\n"),
    "YAML in parts": ("main.yaml", "model:\n  entry_width: 6\n  inner_width: 7\n---\nmodel2:\n  outer_width: 9\n"),
    "JSON": ("configs/net.json", '{"entry_width": 6, "inner_width": 7, "outer_width": 9}'),
    "TOML": ("settings.toml", "[model]\nentry_width = 6\ninner_width = 7\nouter_width = 9\n"),
    "a dictionary": ("train.py", "CONFIG = {'entry_width': 6, 'inner_width': 7, 'outer_width': 9}\n"),
    "a call of dict": ("configs/base.py", "model = dict(type='Other', entry_width=6, inner_width=7, outer_width=9)\n"),
    "assignments": (
        "config.py",
        "from yacs.config import CfgNode as CN\n_C = CN()\n_C.MODEL = CN()\n_C.MODEL.entry_width = 6\n"
        "_C.MODEL.inner_width = 7\n_C.MODEL.outer_width = 9\n",
    ),
    "assignments to a part": (
        "configs/base.py",
        "def get_config():\n  config = ConfigDict()\n  config.model = model = ConfigDict()\n  model.entry_width = 6\n"
        "  model.inner_width = 7\n  config.model.outer_width = 9\n  return config\n",
    ),
    "a class": (
        "settings.py",
        "class Config:\n    entry_width = 6\n\n    def __init__(self, data):\n        self.names = open(data)\n"
        "        self.inner_width = 7\n        self.outer_width = 9\n",
    ),
    "a command line": (
        "main.py",
        "p = ArgumentParser()\np.add_argument('--entry-width', type=int, default=6)\n"
        "p.add_argument('-i', '--inner_width', default=7)\np.add_argument('--w', dest='outer_width', default=9)\n",
    ),
    "flags": (
        "main.py",
        "from absl import flags\nflags.DEFINE_integer('entry_width', 6, 'in')\n"
        "flags.DEFINE_integer('inner_width', default=7, help='mid')\nflags.DEFINE_integer('outer_width', 9, 'out')\n",
    ),
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("text", [ATTRIBUTES, KEYS], ids=["attributes", "keys"])
def test_a_configuration_is_as_the_workspace_keeps_it(workspace, kept, text):
    put(workspace, *kept)
    (found,) = looked_at(workspace, HEAD + text)
    assert isinstance(found, Found), found
    held = found.arguments["cfg"]
    assert [held["entry_width"], held["inner_width"], held["outer_width"]] == [6, 7, 9]
    assert runs_in_eager(found).shape[-1] == 9


@pytest.mark.parametrize("text", [ATTRIBUTES, KEYS, NESTED, MIXED], ids=["attributes", "keys", "nested", "mixed"])
def test_what_nobody_keeps_is_guessed_and_said_to_be(workspace, text):
    (found,) = looked_at(workspace, HEAD + text)
    assert isinstance(found, Found), found
    assert found.arguments_from == "search"
    assert "guessed" in found.found
    assert runs_in_eager(found).shape[-1] == found.construct().outer.out_features


def test_a_flat_file_tells_the_entries_of_a_nested_configuration(workspace):
    put(workspace, *KEPT["JSON"])
    (found,) = looked_at(workspace, HEAD + NESTED)
    assert found.arguments["cfg"]["net"]["entry_width"] == 6
    assert runs_in_eager(found).shape[-1] == 9


def test_a_nested_file_tells_the_entries_of_a_nested_configuration(workspace):
    put(workspace, "a.yaml", "net:\n  entry_width: 6\n  inner_width: 7\nhead:\n  outer_width: 9\n")
    (found,) = looked_at(workspace, HEAD + NESTED)
    assert found.arguments["cfg"]["net"]["inner_width"] == 7
    assert runs_in_eager(found).shape[-1] == 9


def test_a_default_that_the_code_names_is_the_value(workspace):
    (found,) = looked_at(workspace, HEAD + MIXED)
    assert found.arguments["cfg"]["outer_width"] == 9


def test_a_part_of_a_configuration_that_names_the_class_is_the_class_s(workspace):
    other = "HEAD:\n  NAME: Head\n  ENTRY_WIDTH: [1, 2]\n  INNER_WIDTH: 40\n  DEPTH: 3\n"
    mine = "BODY:\n  NAME: Net\n  ENTRY_WIDTH: 6\n  INNER_WIDTH: 7\n  OUTER_WIDTH: 9\n"
    put(workspace, "models.yaml", f"SEED: 1\n{other}{mine}")
    outer = "cfg.OUTER_WIDTH * cfg.get('DEPTH', 1)"
    (found,) = looked_at(workspace, HEAD + BODY.format(entry="cfg.ENTRY_WIDTH", inner="cfg.INNER_WIDTH", outer=outer))
    assert isinstance(found, Found), found
    assert found.arguments["cfg"]["ENTRY_WIDTH"] == 6
    assert runs_in_eager(found).shape[-1] == 9


#: How code asks for a word of a configuration -> its constructor.
ASKING = {
    "by the entry": """
        super().__init__()
        if cfg.body == "wide":
            width = cfg.inner
        elif cfg.body == "deep":
            width = 2 * cfg.inner
        else:
            raise Exception(f"{cfg.body} is unknown")
""",
    "by another name": """
        super().__init__()
        self.cfg, self.kind = cfg, cfg.inner
        self.how = self.cfg.body
        if self.how == "wide":
            width = cfg.inner
        elif self.how == "deep":
            width = 2 * cfg.inner
        else:
            raise Exception(f"{self.how} is unknown")
""",
    "by another name, twice": """
        super().__init__()
        self.first = cfg["first"]
        if self.first not in ("a", "b"):
            raise Exception(f"{self.first} is unknown")
        form = self.first
        width = {"b": cfg["inner"]}[form]
""",
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_an_entry_is_a_word_that_the_code_compares_it_with(workspace, asking):
    text = (
        f"{HEAD}class Net(nn.Module):\n    def __init__(self, cfg):{asking}"
        "        self.layer = nn.Linear(8, width)\n\n    def forward(self, x):\n        return self.layer(x)\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape[-1] == found.construct().layer.out_features


def test_an_entry_that_only_another_class_reads_is_added_when_it_is_missed(workspace):
    text = (
        HEAD
        + """
class Part(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.layer = nn.Linear(getattr(options, "wide" + "ness"), 3)


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first = nn.Linear(config.dim, 4)
        self.part = Part(config)

    def forward(self, x):
        return self.first(x)
"""
    )
    found = next(item for item in looked_at(workspace, text) if isinstance(item, Found) and item.name == "Net")
    assert set(found.arguments["config"]) == {"dim", "wideness"}
    assert runs_in_eager(found).shape[-1] == 4


def test_an_entry_is_changed_where_an_error_asks_for_it(workspace):
    text = (
        HEAD
        + """
class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.net.planes % 7 == 0, "planes must be divisible by seven"
        self.layer = nn.Conv2d(3, config.net.planes, 3)

    def forward(self, x):
        return self.layer(x)
"""
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["config"]["net"]["planes"] % 7 == 0
    assert runs_in_eager(found).shape[1] % 7 == 0


def test_a_dataclass_without_defaults_is_filled_and_repaired(workspace):
    text = """from dataclasses import dataclass
import torch
from torch import nn


@dataclass
class Dimensions:
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int = -1


class Net(nn.Module):
    def __init__(self, dims: Dimensions):
        super().__init__()
        assert dims.n_audio_state % 5 == 0
        self.table = nn.Embedding(dims.n_vocab, dims.n_audio_state)
        width = dims.n_audio_state
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(dims.n_audio_layer))

    def forward(self, tokens):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        return x
"""
    found = next(item for item in looked_at(workspace, text) if isinstance(item, Found))
    dims = found.arguments["dims"]
    assert dims.n_audio_state % 5 == 0
    assert dims.n_vocab > 0
    assert runs_in_eager(found).shape[-1] == dims.n_audio_state


def test_numbers_that_a_command_line_gives_as_text_are_taken_apart(workspace):
    put(
        workspace,
        "main.py",
        "p.add_argument('-kernel-sizes', type=str, default='3,5')\np.add_argument('--planes', default=8)\n",
    )
    text = (
        HEAD
        + """
class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(4, args.planes, size) for size in args.kernel_sizes)

    def forward(self, x):
        return [layer(x) for layer in self.layers]
"""
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["args"]["kernel_sizes"] == [3, 5]
    first, second = runs_in_eager(found)
    assert first.shape[-1] - second.shape[-1] == 2


def test_settings_that_name_the_class_say_its_arguments(workspace):
    put(
        workspace,
        "configs/a.py",
        "model = dict(type='Elsewhere', entrance=1, inner=2)\nnet = dict(type='Mixer', entrance=11, inner=22)\n",
    )
    text = (
        HEAD
        + """
class Mixer(nn.Module):
    def __init__(self, entrance, inner):
        super().__init__()
        self.layer = nn.Linear(entrance, inner)

    def forward(self, x):
        return self.layer(x)
"""
    )
    (found,) = looked_at(workspace, text)
    assert (found.arguments, found.arguments_from) == ({"entrance": 11, "inner": 22}, "search")
    assert "settings of the workspace" in found.found
    assert runs_in_eager(found).shape[-1] == 22


# ------------------------------------------------------------------------------------------------------- the pieces


READING = """
class Net:
    def __init__(self, cfg):
        self.cfg = cfg
        a = cfg.model.dim
        b = cfg["data"]["size"]
        c = cfg.get("rate", 0.5)
        d = getattr(cfg, "flag", True)
        e = self.cfg.depth
        cfg.update({})
        cfg.written = 3
"""


def test_every_way_of_reading_an_entry_is_known():
    reads = {
        ".".join(read.path): read.default and ast.literal_eval(read.default)
        for read in reads_of("cfg", ast.parse(READING))
    }
    assert reads == {"model.dim": None, "data.size": None, "rate": 0.5, "flag": True, "depth": None}


def test_a_configuration_says_which_entry_it_lacks_and_where():
    config = AnyConfig(model=AnyConfig(dim=3)).at(("cfg",))
    with pytest.raises(AttributeError, match="has no 'depth'") as caught:
        config.model.depth  # noqa: B018
    assert isinstance(caught.value, LackingError)
    assert caught.value.path == ("cfg", "model", "depth")
    with pytest.raises(KeyError):
        config["model"]["depth"]
    assert getattr(config.model, "depth", 5) == 5
    assert config.get("path") is None


def test_a_copy_of_a_configuration_does_not_change_with_it():
    config = AnyConfig(sizes=[1, 2], inner=AnyConfig(dim=3))
    copied = config.at()
    config.sizes.append(3)
    config.inner.dim = 4
    assert (copied.sizes, copied.inner.dim) == ([1, 2], 3)


def test_a_default_that_is_no_plain_value_is_guessed():
    tree = ast.parse("def f(cfg):\n    return cfg.get('dim', compute())")
    assert make_configuration("cfg", tree, Settings(Workspace(""))) == {"dim": 64}


@pytest.mark.parametrize(
    "holder",
    [{"cfg": {"model": {"dim": 3}}}, {"cfg": AnyConfig(model=AnyConfig(dim=3))}],
    ids=["dictionaries", "configurations"],
)
def test_an_entry_at_any_depth_is_found_and_replaced_in_a_copy(holder):
    path, value = list_entries(holder)["dim"]
    assert (path, value) == (("cfg", "model", "dim"), 3)
    changed = replace_entry(holder, path, 8)
    assert changed["cfg"]["model"]["dim"] == 8
    assert holder["cfg"]["model"]["dim"] == 3


YAML = """
# a comment
model:
  name: net   # trailing
  dim: 64
  rate: 1e-3
  sizes: [1, 2]
  deep:
    flag: true
    nothing: null
  text: "a: b"
list:
  - passed
  - over
last: -1
"""


def test_the_tiny_reader_understands_nested_scalars_and_passes_over_the_rest():
    assert simple_yaml(YAML) == {
        "model": {
            "name": "net", "dim": 64, "rate": 1e-3, "sizes": [1, 2], "deep": {"flag": True, "nothing": None},
            "text": "a: b",
        },
        "list": ["passed", "over"], "last": -1,
    }  # fmt: skip


LISTED = """
# an experiment
MODEL:
  EXTRA:
    STAGE1:
      NUM_BLOCKS:
      - 4
      NUM_CHANNELS:
        - 6
        - 12   # the wide one
      BLOCK: WIDE
    LAST: {KERNEL: 1, SIDES: [2, 3]}
TRAIN:
  IMAGE_SIZE:
  - 64
  - 32
NAMES: [
  "a", b,
  'c' ]
"""


def test_the_tiny_reader_understands_lists_of_scalars():
    assert simple_yaml(LISTED) == {
        "MODEL": {
            "EXTRA": {
                "STAGE1": {"NUM_BLOCKS": [4], "NUM_CHANNELS": [6, 12], "BLOCK": "WIDE"},
                "LAST": {"KERNEL": 1, "SIDES": [2, 3]},
            }
        },
        "TRAIN": {"IMAGE_SIZE": [64, 32]},
        "NAMES": ["a", "b", "c"],
    }
    yaml = pytest.importorskip("yaml")
    assert simple_yaml(LISTED) == yaml.safe_load(LISTED)


def test_the_tiny_reader_agrees_with_the_real_one():
    yaml = pytest.importorskip("yaml")
    text = "a: 1\nb:\n  c: 2.5\n  d: [3, 4]\n  e: {x: 1}\nf: word\ng: yes\n".replace("{x: 1}", "word")
    assert simple_yaml(text) == yaml.safe_load(text)


def test_a_parser_gives_what_it_would_without_a_command_line():
    code = """
p.add_argument("data")
p.add_argument("--lr", default=0.1, type=float)
p.add_argument("-n", "--num-layers", default="3", type=int)
p.add_argument("--fast", action="store_true")
p.add_argument("--slow", action="store_false")
p.add_argument("--kind", choices=["a", "b"])
"""
    options = parsed_options(ast.parse(code))
    assert options == {"data": None, "lr": 0.1, "num_layers": 3, "fast": False, "slow": True, "kind": "a"}


def test_a_call_with_flags_gets_their_defaults(workspace):
    text = "class Net(nn.Module):\n    def __init__(self, body, width):\n        super().__init__()\n"
    text += "        self.body, self.width = body, width\n\n"
    text += "    def forward(self, x):\n        return self.body(x)[:, : self.width]\n"
    put(
        workspace,
        "main.py",
        """
import torch.nn as nn
from absl import flags
from net import Net

FLAGS = flags.FLAGS
flags.DEFINE_integer("features", 6, "in")
flags.DEFINE_integer("width", 5, "out")


def main(argv):
    body = nn.Linear(FLAGS.features, 7)
    net = Net(body, FLAGS.width)
""",
    )
    (found,) = looked_at(workspace, HEAD + text)
    assert (found.arguments_from, found.arguments["width"]) == ("usage", 5)
    assert found.spec.entries["x"].dims == ("B", 6)
    assert runs_in_eager(found).shape[-1] == 5


def test_only_plain_values_of_a_dictionary_count():
    node = ast.parse("dict(a=1, b=f(), c=dict(d='x'), **rest)", mode="eval").body
    assert plain_mapping(node) == {"a": 1, "c": {"d": "x"}}


def test_a_mapping_with_too_few_of_the_entries_does_not_count(workspace):
    put(workspace, "a.json", '{"lr": 1, "epochs": 2}')
    put(workspace, "b.json", '{"dim": 5, "heads": 2, "x": 1}')
    settings = Settings(Workspace(str(workspace)))
    assert settings.closest({"dim", "heads", "depth"}) == {"dim": 5, "heads": 2, "x": 1}
    assert settings.closest({"lr", "dim", "rank", "kind"}) == {}


def test_code_that_has_none_of_the_words_is_not_parsed(workspace, monkeypatch):
    put(workspace, "many.py", "config = {'lr': 1, 'epochs': 2}\n")
    put(workspace, "few.py", "config = {'dim': 5, 'heads': 2}\n")
    parsed = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text, *args, **kwargs: parsed.append(text) or parse(text, *args, **kwargs))
    settings = Settings(Workspace(str(workspace)))
    assert settings.closest({"dim", "heads"}) == {"dim": 5, "heads": 2}
    assert settings.naming("Net") == {}
    assert len(parsed) == 1


@pytest.mark.parametrize("name", ["broken.json", "broken.toml", "broken.yaml"])
def test_a_broken_file_is_passed_over(workspace, name):
    put(workspace, name, "{: [\n\t- }{")
    assert Settings(Workspace(str(workspace))).closest({"dim"}) == {}


def test_a_configuration_with_values_runs_as_the_guess_did(workspace):
    (found,) = looked_at(workspace, HEAD + NESTED)
    model = found.construct()
    assert not any(parameter.is_meta for parameter in model.parameters())
    assert torch.equal(model(torch.zeros(1, model.inner.in_features)), model(torch.zeros(1, model.inner.in_features)))


def test_an_entry_that_one_mapping_lacks_is_another_one_s(workspace):
    put(workspace, "a.yaml", "net:\n  entry_width: 6\n  inner_width: 7\n")
    put(workspace, "b.yaml", "seed: 3\nhead:\n  outer_width: 9\n")
    (found,) = looked_at(workspace, HEAD + NESTED)
    assert found.arguments["cfg"]["head"]["outer_width"] == 9


MODED = """
class NetConfig:
    def __init__(self, width, **more):
        self.width = width
        for name, value in more.items():
            setattr(self, name, value)

class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mode, self.layer = config.mode, nn.Linear(config.width, config.depth)

    def forward(self, x):
        if self.mode == "plain":
            return self.layer(x)
        raise NotImplementedError
"""


def test_what_a_configuration_of_the_file_lacks_is_a_word_that_the_code_compares(workspace):
    (found,) = looked_at(workspace, HEAD + MODED)
    assert isinstance(found, Found), found
    assert found.arguments["config"].mode == "plain"
    assert runs_in_eager(found).shape[-1] == found.arguments["config"].depth


def test_known_arguments_of_a_configuration_are_taken_where_others_are_not_known(workspace):
    put(
        workspace,
        "train.py",
        "from net import NetConfig\ndata = load()\nNetConfig(data.width, depth=7, mode='plain')\n",
    )
    (found,) = looked_at(workspace, HEAD + MODED)
    assert found.arguments["config"].depth == 7


def test_a_configuration_that_reads_files_is_read_from_its_source(workspace):
    text = "class Config:\n    def __init__(self, data):\n        self.names = open(data + '/names')\n"
    text += "        self.entry_width = 6\n        self.inner_width = 7\n        self.outer_width = 9\n"
    (found,) = looked_at(workspace, HEAD + text + ATTRIBUTES.replace("cfg", "config"))
    assert isinstance(found, Found), found
    assert runs_in_eager(found).shape[-1] == found.construct().outer.out_features
    assert found.arguments["config"]["entry_width"] == 6


def test_a_module_that_is_chosen_by_its_name_is_the_traced_one(workspace):
    text = "class Config:\n    def __init__(self, data, width):\n        self.data, self.entry_width = data, width\n"
    text += "        self.inner_width = 7\n        self.outer_width = 9\n"
    run = "from importlib import import_module\nname = args.model\nx = import_module('models.' + name)\n"
    put(workspace, "run.py", run + "config = x.Config('corpus', 6)\nmodel = x.Net(config)\n")
    (found,) = looked_at(workspace, HEAD + text + ATTRIBUTES.replace("cfg", "config"))
    assert isinstance(found, Found), found
    assert found.construct().inner.in_features == 6


@pytest.mark.parametrize("annotation", ["", ": 'NetConfig'"])
def test_a_configuration_that_is_made_of_another_one_ends(workspace, annotation):
    (found,) = looked_at(workspace, HEAD + OF_ITSELF.replace("{annotation}", annotation))
    assert isinstance(found, Found), found
    assert runs_in_eager(found) is not None


DATA_FORMAT = (
    HEAD
    + """class Base(nn.Module):
    def __init__(self, data_format: dict, width: int, more_formats: list):
        super().__init__()
        formats = [data_format] + more_formats
        self.heads = nn.ModuleList(nn.Conv2d(each["channels"], width, 1) for each in formats)
        self.tails = nn.ModuleList(nn.Conv2d(width, each["class_num"], 1) for each in formats)


class Net(Base):
    def __init__(self, data_format: ANNOTATION, width: int = 8, **kwargs):
        super().__init__(data_format=data_format, width=width, **kwargs)
        self.middle = nn.Conv2d(width, width, 3)

    def forward(self, x):
        return self.tails[0](self.middle(self.heads[0](x)))
"""
)


@pytest.mark.parametrize("annotation", ["dict", "Dict", "Mapping[str, Any]"])
def test_a_dictionary_of_which_only_a_base_reads_entries_gets_them(workspace, annotation):
    head = "from collections.abc import Mapping\nfrom typing import Any, Dict\n"
    put(workspace, "net.py", text := head + DATA_FORMAT.replace("ANNOTATION", annotation))
    found = [
        each for each in looked_at(workspace, text) if isinstance(each, Found) and type(each.model).__name__ == "Net"
    ]
    assert len(found) == 1
    assert runs_in_eager(found[0]).dim() == 4
    assert found[0].model.heads[0].in_channels == 3


def test_an_entry_that_the_command_line_leaves_open_stays_open_where_its_name_tells_nothing(workspace):
    put(
        workspace,
        "run.py",
        """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--entry_width", type=int, default=6)
parser.add_argument("--shared_kind", type=str, default=None)
parser.add_argument("--num_classes", type=int, default=None)
""",
    )
    text = f"""{HEAD}class Part(nn.Module):
    def __init__(self, width, kind, classes):
        super().__init__()
        if kind is not None and len(kind) != 2:
            raise RuntimeError("unclear")
        self.inner = nn.Linear(width, classes)

    def forward(self, x):
        return self.inner(x)


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.part = Part(config.entry_width, config.shared_kind, config.num_classes)

    def forward(self, x):
        return self.part(x)
"""
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["config"]["shared_kind"] is None
    assert found.construct().part.inner.in_features == 6
    assert found.construct().part.inner.out_features == 10


DESCRIBED = {
    "model.yaml": """
model:
  latent: 9
  coder:
    target: parts.Coder
    params:
      width: 24
      latent: 9
      unknown: 3
  reader:
    _target_: parts.Reader
    latent: 9
""",
    "parts.py": HEAD
    + """
class Coder(nn.Module):
    def __init__(self, width, latent):
        super().__init__()
        self.inner = nn.Linear(width, latent)

    def forward(self, x):
        return self.inner(x), x

class Reader(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.outer = nn.Linear(latent, 7)

    def forward(self, x):
        return self.outer(x)
""",
}


def test_a_part_that_settings_describe_by_its_class_is_made_as_they_say(workspace):
    for name, text in DESCRIBED.items():
        put(workspace, name, text)
    text = HEAD + (
        "class Net(nn.Module):\n    def __init__(self, coder, reader: nn.Module, latent: int):\n"
        "        super().__init__()\n"
        "        self.coder = coder\n        self.mid = nn.Linear(latent, latent)\n"
        "        self.reader = reader\n\n"
        "    def forward(self, x):\n        code, x = self.coder(x)\n        return self.reader(self.mid(code))\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert found.arguments["coder"].inner.in_features == 24
    assert runs_in_eager(found).shape[-1] == 7


def test_a_configuration_that_a_program_loads_is_the_one_of_the_workspace(workspace):
    put(workspace, "base.yaml", "width: 24\nlatent: 9\nclasses: 7\n")
    put(
        workspace,
        "train.py",
        "import sys\nfrom net import Net\nfrom tools import load\n\n\ndef main():\n    conf = load(sys.argv[1])\n"
        "    model = Net(conf.width, conf.latent, conf['classes'], deep=True)\n",
    )
    text = HEAD + (
        "class Net(nn.Module):\n    def __init__(self, a, b, c, deep=False):\n        super().__init__()\n"
        "        self.deep, self.inner, self.outer = deep, nn.Linear(a, b), nn.Linear(b, c)\n\n"
        "    def forward(self, x):\n        return self.outer(self.inner(x))\n"
    )
    (found,) = looked_at(workspace, text)
    assert isinstance(found, Found), found
    assert (found.arguments_from, found.arguments) == ("usage", {"a": 24, "b": 9, "c": 7, "deep": True})
    assert runs_in_eager(found).shape[-1] == 7
