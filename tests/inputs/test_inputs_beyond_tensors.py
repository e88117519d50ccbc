"""Inputs that are no plain tensors: numpy arrays, records among several values, lists of maps, and joined columns.

Ground truth: what is found runs in plain eager PyTorch, and its shapes are worked by hand.
"""

import pytest
from test_inputs_in_repositories import HEAD, shown
from test_inputs_missing import traced
from test_inputs_packages import runs_in_eager

from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.inputs.text import format_inputs, parse_inputs


@pytest.fixture
def workspace(tmp_path):
    return tmp_path / "workspace"


RECOMMENDER = """
import numpy as np


class Net(nn.Module):
    def __init__(self, count=30):
        super().__init__()
        self.items = nn.Embedding(count, 6)
        self.places = nn.Embedding(65, 6)

    def encode(self, log_seqs):
        seqs = self.items(torch.LongTensor(log_seqs))
        places = np.tile(np.arange(1, log_seqs.shape[1] + 1), [log_seqs.shape[0], 1])
        places *= log_seqs != 0
        return seqs + self.places(torch.LongTensor(places))

    def forward(self, users, log_seqs, pos_seqs):
        wanted = self.items(torch.LongTensor(pos_seqs))
        return (self.encode(log_seqs) * wanted).sum(-1)
"""


def test_inputs_that_a_forward_makes_tensors_of_are_numpy_arrays(workspace):
    payload = traced(workspace.parent, {"net.py": HEAD + RECOMMENDER})
    (model,) = payload["models"]
    text = model["comment"]["inputs"].partition("mase:")[2]
    assert "log_seqs: array(i64[" in text
    assert "pos_seqs: array(i64[" in text
    values = inputs_at(parse_inputs(text))
    assert len(values["log_seqs"].shape) == 2
    assert values["log_seqs"].shape == values["pos_seqs"].shape
    assert not [each for each in payload["problems"] if each["severity"] == "error"]


def test_what_is_read_by_from_numpy_is_an_array_at_once(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, rows):
        return self.layer(torch.from_numpy(rows).float())
"""
    found, errors = shown(workspace, body)
    assert runs_in_eager(found["Net"]).shape[-1] == 2
    assert not errors


def test_an_array_is_written_and_read_back():
    text = "ids: array(i64[B=2, T=16] < 9)"
    inputs = parse_inputs(text)
    assert format_inputs(inputs) == text
    assert inputs_at(inputs)["ids"].shape == (2, 16)


def test_a_value_that_is_unpacked_may_be_a_record(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(7, 3)

    def forward(self, data):
        flow, shape = data
        return self.layer(flow.x) + flow.pos
"""
    found, errors = shown(workspace, body)
    record = dict(found["Net"].spec.entries["data"].items[0].items)
    assert set(record) == {"x", "pos"}
    assert record["x"].dims[-1] == 7
    assert runs_in_eager(found["Net"]).shape[-1] == 3
    assert not errors


PAIR = """
class Layer(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.layer = nn.Linear(width, out)

    def forward(self, data):
        nodes, edge_index = data
        found = self.layer(nodes)
        return found.index_add(0, edge_index[1], found[edge_index[0]]), edge_index


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Layer(7, 5), Layer(5, 3))

    def forward(self, data):
        return self.layers(data)
"""


def test_what_a_forward_only_hands_on_is_what_its_first_layer_reads(workspace):
    found, errors = shown(workspace, PAIR)
    nodes, edges = found["Net"].spec.entries["data"].items
    assert (nodes.dims, edges.dims) == (("N", 7), (2, "E"))
    assert runs_in_eager(found["Net"])[0].shape[-1] == 3
    assert not errors


def test_a_tensor_is_given_where_only_training_unpacks(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, inputs):
        if self.training:
            images, boxes = inputs
        else:
            images = inputs
        return self.layer(images)
"""
    found, errors = shown(workspace, body)
    assert found["Net"].spec.entries["inputs"].dims[1] == 3
    assert not errors


DECODER = """
class Net(nn.Module):
    def __init__(self, num_ch_enc):
        super().__init__()
        self.first = nn.Conv2d(num_ch_enc[-1], 8, 1)
        self.skips = nn.ModuleList([nn.Conv2d(8 + width, 8, 1) for width in num_ch_enc[:-1]])
        self.up = nn.Upsample(scale_factor=2)

    def forward(self, features):
        x = self.first(features[-1])
        for i in range(len(self.skips) - 1, -1, -1):
            x = self.skips[i](torch.cat([self.up(x), features[i]], 1))
        return x
"""


def test_a_list_of_maps_has_the_channels_of_the_constructors_list(workspace):
    found, errors = shown(workspace, DECODER, **{"use.py": "from net import Net\n\nmodel = Net([5, 6, 7])\n"})
    maps = found["Net"].spec.entries["features"].items
    assert [each.dims for each in maps] == [("B", 5, 64, 64), ("B", 6, 32, 32), ("B", 7, 16, 16)]
    assert runs_in_eager(found["Net"]).shape == (2, 8, 64, 64)
    assert not errors


OPERATOR = """
class Net(nn.Module):
    def __init__(self, steps=10):
        super().__init__()
        self.lift = nn.Linear(steps * 3 + 2, 8)
        self.mix = nn.Conv2d(8, 8, 1)

    def forward(self, x, grid):
        # x dim = [b, x1, x2, t*v]
        x = torch.cat((x, grid), dim=-1)
        return self.mix(self.lift(x).permute(0, 3, 1, 2))
"""


def test_joined_inputs_share_their_lengths_and_the_columns_of_the_layer(workspace):
    found, errors = shown(workspace, OPERATOR)
    entries = found["Net"].spec.entries
    assert entries["x"].dims == ("B", "H", "W", 30)
    assert entries["grid"].dims == ("B", "H", "W", 2)
    assert runs_in_eager(found["Net"]).shape[1] == 8
    assert not errors


def test_a_slice_tells_the_size_of_the_whole(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return self.layer(x[:, 0:3]) + self.layer(x[:, 3:])
"""
    found, errors = shown(workspace, body)
    assert found["Net"].spec.entries["x"].dims[1] == 6
    assert not errors


def test_several_tokens_of_each_step_fit_a_table_of_positions(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.act = nn.Linear(5, 8), nn.Linear(1, 8)
        self.places = nn.Parameter(torch.zeros(1, 21, 8))

    def forward(self, states, actions):
        # states: (batch, 16, 5)
        # actions: (batch, 16, 1)
        tokens = torch.zeros(states.shape[0], states.shape[1] * 2, 8)
        tokens[:, ::2] = self.state(states)
        tokens[:, 1::2] = self.act(actions)
        return tokens + self.places[:, : tokens.shape[1]]
"""
    found, errors = shown(workspace, body)
    assert runs_in_eager(found["Net"]).shape == (2, 20, 8)
    assert not errors


# How models are made: configurations, other names, modules by name, alphabets and matrices.

KIT = """
class Config(dict):
    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


def get_small():
    config = Config(patches=Config(size=4), width=6)
    config.kind = "small"
    return config
"""
CONFIGURED = """
from small_kit import get_small

CONFIGS = {"small": get_small()}


class Net(nn.Module):
    def __init__(self, config, side=64):
        super().__init__()
        self.layer = nn.Conv2d(3, config.width, side // config.patches.grid[0] // 4)
        self.last = nn.Linear(config.width, config.classes)
        self.kind = config.kind

    def forward(self, x):
        return self.last(self.layer(x).mean((2, 3)))
"""
TRAIN = """
import argparse

from net import CONFIGS as ALL
from net import Net as Model

parser = argparse.ArgumentParser()
parser.add_argument("--name", default="small")
parser.add_argument("--side", type=int, default=32)
parser.add_argument("--fast", type=int, default=0)
args = parser.parse_args()

if __name__ == "__main__":
    config = ALL[args.name]
    config.classes = 5
    if args.name.find("small") != -1:
        config.patches.grid = (args.side // 8, 4)
    if args.fast:
        config.classes = 7
    model = Model(config, side=args.side).cuda()
"""


def test_a_call_under_another_name_gets_the_entries_that_statements_before_it_set(workspace):
    found, errors = shown(workspace, CONFIGURED, **{"small_kit.py": KIT, "train.py": TRAIN})
    assert found["Net"].arguments["side"] == 32
    assert found["Net"].arguments["config"]["patches"] == {"size": 4, "grid": (4, 4)}
    assert runs_in_eager(found["Net"]).shape[1] == 5
    assert not errors


def test_a_configuration_that_the_file_holds_is_taken_whole(workspace):
    body = """
from small_kit import get_small

CONFIGS = {"small": get_small()}


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = nn.Conv2d(3, config.width, config.patches.size)
        self.kind = config.kind

    def forward(self, x):
        return self.layer(x)
"""
    found, errors = shown(workspace, body, **{"small_kit.py": KIT})
    assert found["Net"].arguments["config"] == {"patches": {"size": 4}, "width": 6, "kind": "small"}
    assert not errors


def test_a_call_of_a_class_of_settings_is_a_mapping(workspace):
    body = """
class Net(nn.Module):
    def __init__(self, hparams):
        super().__init__()
        self.layer = nn.Conv1d(hparams.mels, hparams.channels, hparams.kernel)
        self.drop = nn.Dropout(hparams.p_drop)

    def forward(self, x):
        return self.drop(self.layer(x))
"""
    head = "import absent.training as tf\n\n\ndef create():\n"
    text = head + "    return tf.HParams(mels=11, channels=7, kernel=5, p_drop=0.25)\n"
    found, errors = shown(workspace, body, **{"hparams.py": text})
    assert found["Net"].arguments["hparams"] == {"mels": 11, "channels": 7, "kernel": 5, "p_drop": 0.25}
    assert not errors


PART = HEAD + "class Main(nn.Module):\n    def forward(self, x):\n        return x.mean(1)\n"
BY_NAME = """
import importlib


class Net(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.part = importlib.import_module("named_parts." + model).Main()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.part(self.layer(x))
"""


def test_a_module_that_is_chosen_by_its_name_is_one_of_the_package(workspace):
    found, errors = shown(workspace, BY_NAME, **{"named_parts/__init__.py": "", "named_parts/alpha.py": PART})
    assert found["Net"].arguments == {"model": "alpha"}
    assert not errors


def test_an_alphabet_has_the_letter_that_is_looked_up_and_a_matrix_the_side_of_the_nodes(workspace):
    body = """
class Net(nn.Module):
    def __init__(self, labels: list, num_nodes: int, adj):
        super().__init__()
        self.blank = labels.index("_")
        self.adj = adj.to("cpu")
        self.layer = nn.Linear(num_nodes, len(labels))

    def forward(self, x):
        return self.layer(x @ self.adj)
"""
    found, errors = shown(workspace, body)
    arguments = found["Net"].arguments
    assert arguments["labels"][0] == "_"
    assert tuple(arguments["adj"].shape) == (arguments["num_nodes"],) * 2
    assert not errors


EXTENSION = """
try:
    from . import fused_kernel
except ImportError:
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        x = self.layer(x)
        return fused_kernel.run(x)
"""


def test_a_name_whose_import_failed_is_told_as_missing(workspace):
    payload = traced(workspace.parent, {"net.py": HEAD + EXTENSION})
    told = {each["code"]: each["message"] for each in payload["problems"]}
    assert "name-error" not in told
    assert "its import in line 6 of the file failed" in told["missing-package"]


def test_ratings_of_users_are_no_indices(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(9, 4)

    def forward(self, user_history, user_history_ratings):
        return self.items(user_history) * user_history_ratings.unsqueeze(-1)
"""
    found, _ = shown(workspace, body)
    entries = found["Net"].spec.entries
    assert (entries["user_history"].dtype, entries["user_history_ratings"].dtype) == ("i64", "f32")


def test_an_operator_without_a_meta_form_is_no_error_of_a_model_that_is_too_big_to_run(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(30000, 30000)

    def forward(self, x):
        chosen = self.layer(x).topk(2).indices
        return torch.bincount(chosen.flatten(), minlength=30000).tolist()


Net()(torch.zeros(2, 30000))
"""
    payload = traced(workspace.parent, {"net.py": HEAD + body})
    assert [each["code"] for each in payload["problems"]] == ["value-dependent"]
    assert "too big to be run with numbers" in payload["problems"][0]["message"]


CRITERION = """
class Criterion(nn.Module):
    def pair(self, outputs, targets):
        labels = torch.cat([t["labels"] for t in targets])
        boxes = torch.cat([t["boxes"] for t in targets])
        cost = torch.cdist(outputs["pred_boxes"].flatten(0, 1), boxes)
        return cost - outputs["pred_logits"].flatten(0, 1)[:, labels]

    def forward(self, outputs, targets):
        last = {key: value for key, value in outputs.items() if key != "aux_outputs"}
        count = sum(len(t["labels"]) for t in targets)
        cost = self.pair(last, targets) / count
        if "aux_outputs" in outputs:
            for one in outputs["aux_outputs"]:
                cost = cost + self.pair(one, targets) / count
        return cost
"""


def test_a_criterion_gets_what_it_reads_of_a_models_output_and_of_each_target(workspace):
    model = shown(workspace, CRITERION)[0]["Criterion"]
    outputs, targets = model.spec.entries["outputs"], model.spec.entries["targets"]
    assert {key for key, _ in outputs.items} == {"pred_logits", "pred_boxes"}  # others only if they are there
    assert [[key for key, _ in target.items] for target in targets.items] == [["labels", "boxes"]] * 2
    values = model.inputs
    queries = values["outputs"]["pred_boxes"].shape[:2].numel()
    assert runs_in_eager(model).shape == (queries, sum(len(target["labels"]) for target in values["targets"]))


@pytest.mark.parametrize("demand", ['assert "mask" in batch', 'if "mask" not in batch:\n            raise KeyError'])
def test_an_entry_that_is_asked_for_may_be_absent_unless_the_code_insists_on_it(workspace, demand):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)

    def forward(self, batch):
        DEMAND
        y = self.layer(batch["x"])
        if "bias" in batch:
            y = y + batch["bias"].sin()
        return y, batch["mask"]
"""
    model = shown(workspace, body.replace("DEMAND", demand))[0]["Net"]
    assert [key for key, _ in model.spec.entries["batch"].items] == ["x", "mask"]


def test_maps_that_are_walked_backwards_are_several(workspace):
    body = """
class Ups(nn.Module):
    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        pairs = zip(widths[:0:-1], widths[-2::-1])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(old, new, 2, 2) for old, new in pairs])

    def forward(self, maps):
        y = maps[-1]
        for up, skip in zip(self.ups, maps[:-1][::-1]):
            y = up(y) + skip
        return y
"""
    model = shown(workspace, body)[0]["Ups"]
    assert [each.shape[1] for each in model.inputs["maps"][-2:]] == [32, 64]
    assert runs_in_eager(model).shape[1] in (16, 32)


def test_the_columns_that_a_constructor_is_told_are_there(workspace):
    body = """
class Picks(nn.Module):
    def __init__(self, field_dims, user_idx, item_index):
        super().__init__()
        self.user_idx, self.item_index = user_idx, item_index
        self.tables = nn.ModuleList([nn.Embedding(size, 8) for size in field_dims])

    def forward(self, x):
        rows = torch.stack([table(x[:, at]) for at, table in enumerate(self.tables)], 1)
        return rows[:, self.user_idx] * rows[:, self.item_index]
"""
    model = shown(workspace, body)[0]["Picks"]
    assert runs_in_eager(model).shape[-1] == 8


#: What a forward does with each of its maps -> the channels of each.
WALKED = {
    "joined": (
        "def __init__(self, in_channels=(18, 36, 72)):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(sum(in_channels), 5, 1)",
        "side = maps[0].shape[2:]\n"
        "        return self.conv(torch.cat([F.interpolate(x, size=side) for x in maps], 1))",
        [18, 36, 72],
    ),
    "beside numbers": (
        "def __init__(self, strides=(8, 16, 32)):\n        super().__init__()\n"
        "        self.strides, self.head = strides, nn.Conv2d(64, 12, 3, padding=1)",
        "found = [self.head(x).permute(0, 2, 3, 1).flatten(1) * by for by, x in zip(self.strides, maps)]\n"
        "        return torch.cat(found, 1)",
        [64, 64, 64],
    ),
    "alone": (
        "def __init__(self):\n        super().__init__()\n        self.head = nn.Conv2d(64, 12, 3, padding=1)",
        "y = 0\n        for x in maps:\n            y = y + self.head(x).mean((2, 3))\n        return y",
        [64, 64],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("constructor", "body", "channels"), WALKED.values(), ids=WALKED)
def test_maps_that_a_forward_walks_over_are_a_list(workspace, constructor, body, channels):
    text = f"class Net(nn.Module):\n    {constructor}\n\n    def forward(self, maps):\n        {body}\n"
    found, errors = shown(workspace, f"import torch.nn.functional as F\n\n\n{text}")
    assert [each.shape[1] for each in found["Net"].inputs["maps"]] == channels
    assert {each.dim() for each in found["Net"].inputs["maps"]} == {4}
    assert runs_in_eager(found["Net"]).shape[0] == found["Net"].inputs["maps"][0].shape[0]
    assert not errors


def test_the_steps_of_one_tensor_are_no_list(workspace):
    body = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 8)

    def forward(self, steps):
        state = None
        for x in steps:
            state = self.cell(x, state)
        return state
"""
    found, errors = shown(workspace, body)
    assert found["Net"].spec.entries["steps"].dims[-1] == 6
    assert not errors


def test_boxes_of_a_detector_have_four_numbers(workspace):
    body = """
class Loss(nn.Module):
    def forward(self, regressions, anchors):
        return (regressions - anchors).abs().mean()
"""
    model = shown(workspace, body)[0]["Loss"]
    assert [model.spec.entries[name].dims for name in ("regressions", "anchors")] == [("B", "N", 4)] * 2
    assert runs_in_eager(model).dim() == 0


NESTED = """
class Batch:
    def __init__(self, tensors, mask):
        self.tensors = tensors
        self.mask = mask


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)

    def forward(self, batch: Batch):
        x = self.conv(batch.tensors)
        mask = F.interpolate(batch.mask[None].float(), size=x.shape[-2:])[0].bool()
        return x, mask


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(8, 4)

    def forward(self, samples: Batch):
        if not isinstance(samples, Batch):
            raise ValueError("not supported")
        x, mask = self.body(samples)
        return self.head((x * ~mask[:, None]).mean((2, 3)))


def build(args):
    model = Net()
    return model, nn.MSELoss() if args.loss == "mse" else nn.L1Loss()
"""


def test_an_annotated_class_is_made_of_what_its_constructor_takes(workspace):
    found, errors = shown(workspace, NESTED)
    held = dict(found["Net"].spec.entries["samples"].items)
    assert held["tensors"].dims == ("B", 3, "H", "W")
    assert (held["mask"].dtype, held["mask"].dims) == ("bool", ("B", "H", "W"))
    assert runs_in_eager(found["Net"]).shape == (2, 4)
    assert not errors


RECORDS = """
import dataclasses
import enum
from typing import Optional


class Payload:
    def __init__(self, values, lengths):
        self._values, self._lengths = values, lengths

    @property
    def values(self):
        return self._values

    def mask(self):
        return torch.arange(self._values.shape[1])[None] < self._lengths[:, None]


@dataclasses.dataclass(frozen=True)
class Pose:
    points: "torch.Tensor"
    velocity: "torch.Tensor"


@dataclasses.dataclass(frozen=True)
class Features:
    pose: "Pose"
    quality: "Optional[torch.Tensor]" = None


@dataclasses.dataclass
class ScaleSettings:
    low: float = 20.0
    count: int = 6


class Scale:
    def __init__(self, settings: ScaleSettings):
        self.settings = settings
        self.low = torch.tensor(settings.low)

    def frequencies(self, width):
        return self.low * torch.linspace(0, 1, width)


class Filter(nn.Module):
    def __init__(self, settings: ScaleSettings):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(settings.count))
        self.register_buffer("places", torch.arange(settings.count))

    def spread(self, x):
        return x[..., self.places % x.shape[-1]] * self.weights


class Mode(enum.Enum):
    PLAIN = "plain"
    LOGARITHMIC = "log"


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, held: Payload):
        x = self.layer(held.values)
        return x * held.mask()[..., None]


class Poses(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, points: "torch.Tensor", features: "Features", unheard: "Unheard" = None):
        if features.pose.points.shape != points.shape or features.pose.velocity.shape != points.shape:
            raise ValueError("the features are of other points")
        return self.layer(torch.cat((points, features.pose.velocity), -1))


class Bands(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, scale: Scale, mode: Mode):
        y = self.conv(x) + scale.frequencies(x.shape[-1])
        return y.abs().log1p() if mode is Mode.LOGARITHMIC else y


class Filtered(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, filter: Filter):
        return filter.spread(self.conv(x))
"""


def test_objects_are_made_of_what_their_classes_say(workspace):
    found, errors = shown(workspace, RECORDS)
    shapes = [runs_in_eager(found[name]).shape for name in ("Sequences", "Bands", "Filtered")]
    assert shapes == [(2, 16, 4), (2, 4, 64), (2, 4, 6)]
    runs_in_eager(found["Poses"])
    inputs = found["Poses"].inputs
    assert inputs["features"].pose.velocity.shape == inputs["points"].shape
    assert not errors


SEVERAL = """
class Net(nn.Module):
    def __init__(self, body, classes):
        super().__init__()
        assert isinstance(body, nn.Conv2d) and body.in_channels == 5
        self.body, self.head = body, nn.Linear(body.out_channels, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


BODIES = {}


def build(args):
    BODIES["conv"] = nn.Conv2d(5, args.width, 3)
    model = Net(BODIES["conv"], 11)
    return model, nn.L1Loss()
"""


def test_a_function_may_make_a_model_among_other_things(workspace):
    found, errors = shown(workspace, SEVERAL)
    assert runs_in_eager(found["Net"]).shape == (2, 11)
    assert not errors


DETECTED = """
class PostProcess(nn.Module):
    def forward(self, outputs, target_sizes):
        logits, boxes = outputs["pred_logits"], outputs["pred_boxes"]
        assert len(logits) == len(target_sizes)
        assert target_sizes.shape[1] == 2
        scores, best = logits.sigmoid().view(logits.shape[0], -1).topk(100, dim=1)
        boxes = boxes.gather(1, (best // logits.shape[2]).unsqueeze(-1).repeat(1, 1, 4))
        height, width = target_sizes.unbind(1)
        return scores, boxes * torch.stack([width, height, width, height], dim=1)[:, None]


class Lanes(nn.Module):
    def __init__(self, size=(64, 96)):
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 4, 8, stride=8), nn.Linear(4 * size[0] // 8 * size[1] // 8, 5)

    def forward(self, x):
        return self.head(self.body(x).view(-1, 384))
"""


def test_predictions_of_a_detector_are_as_many_as_it_chooses_from(workspace):
    found, errors = shown(workspace, DETECTED)
    held = dict(found["PostProcess"].spec.entries["outputs"].items)
    assert (held["pred_logits"].dims[:2], held["pred_boxes"].dims) == (("B", "N"), ("B", "N", 4))
    assert found["PostProcess"].spec.entries["target_sizes"].dims == ("B", 2)
    assert runs_in_eager(found["PostProcess"])[1].shape == (2, 100, 4)
    assert not errors


def test_images_have_the_sides_that_a_constructor_says(workspace):
    found, _ = shown(workspace, DETECTED)
    spec = found["Lanes"].spec
    assert [spec.sizes[dim] for dim in spec.entries["x"].dims[2:]] == [64, 96]


LOSSES = """
class Hard(nn.Module):
    def forward(self, logits, labels):
        n, c, h, w = logits.size()
        loss = F.cross_entropy(logits, labels, reduction="none").view(-1)
        return loss.sort(descending=True)[0][: n * h].mean()


class Focal(nn.Module):
    def __init__(self):
        super().__init__()
        self.nll = nn.NLLLoss()

    def forward(self, logits, labels):
        scores = F.softmax(logits, dim=1)
        return self.nll((1 - scores) ** 2 * F.log_softmax(logits, dim=1), labels)


class Dice(nn.Module):
    def forward(self, x, y):
        axes = list(range(2, len(x.shape)))
        hot = torch.zeros(x.shape).scatter_(1, y.view(y.shape[0], 1, *y.shape[1:]).long(), 1)
        return (x * hot).sum(axes) / (x + hot).sum(axes)
"""


def test_a_loss_of_pixels_is_given_maps_with_the_class_of_each(workspace):
    found, errors = shown(workspace, LOSSES)
    for name, scores, truth in (("Hard", "logits", "labels"), ("Focal", "logits", "labels"), ("Dice", "x", "y")):
        entries = found[name].spec.entries
        assert (len(entries[scores].dims), entries[truth].dims) == (4, ("B", "H", "W"))
        assert runs_in_eager(found[name]) is not None
    assert not errors
