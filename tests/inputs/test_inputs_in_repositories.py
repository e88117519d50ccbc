"""Mechanisms that whole repositories need: settings that name classes, missing packages, parts that agree in size.

Ground truth: what is found runs in plain eager PyTorch, and its shapes are worked by hand.
"""

import itertools

import pytest
import torch
from test_inputs_missing import traced
from test_inputs_packages import looked_at, put, runs_in_eager
from torch import nn

from mase_server.protocol.request import TraceRequest
from mase_server.tracing.importing.placeholders import MissingPackageError
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.clues import clue_of
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, plain_hooks
from mase_server.tracing.models.repairs import propose_arguments
from mase_server.tracing.recording.shadow import MetaMode, Shadows
from mase_server.worker.job import read_known_inputs

HEAD = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"


@pytest.fixture
def workspace(tmp_path):
    return tmp_path / "workspace"


def shown(workspace, text, name="net.py", **files):
    """The models of a file, and the errors that are told of it."""
    put(workspace, {name: HEAD + text, **files})
    found, problems = looked_at(workspace, name)
    return {each.name: each for each in found}, [each for each in problems if each.severity == "error"]


LAZY = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.LazyLinear(5)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.LazyLinear(7)

    def forward(self, x):
        return self.head(x)
"""


def test_layers_that_take_their_width_from_their_first_input_get_one(workspace):
    found, errors = shown(workspace, LAZY)
    assert errors == []
    assert [found[name].spec.entries["x"].dims[1] for name in ("Net", "Wide")] == [3, 64]


VIEWED = """
class Net(nn.Module):
    def forward(self, x):
        return F.interpolate(x.view(1, 2, 4, 4), scale_factor=1.5, mode="bilinear")


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(16, 4))

    def forward(self, x):
        return self.rows[x]
"""


def test_integers_are_guessed_only_where_no_floats_run(workspace):
    found, errors = shown(workspace, VIEWED)
    assert errors == []
    assert [found[name].spec.entries["x"].dtype for name in ("Net", "Rows")] == ["f32", "i64"]


SETTINGS = """
model:
  rate: 4.5e-6
  target: kit.coder.Coder
  params:
    width: 6
    parts:
      channels: 5
      depths: [1, 2]
"""
CODER = """
class Encoder(nn.Module):
    def __init__(self, *, channels, depths, **rest):
        super().__init__()
        self.layer = nn.Conv2d(channels, 3 * len(depths), 1)

    def forward(self, x):
        return self.layer(x)


class Coder(nn.Module):
    def __init__(self, parts, width):
        super().__init__()
        self.encoder, self.last = Encoder(**parts), nn.Conv2d(6, width, 1)

    def forward(self, x):
        return self.last(self.encoder(x))
"""


def test_settings_that_name_a_class_hold_its_arguments_at_any_depth(workspace):
    put(workspace, {"configs/coder.yaml": SETTINGS})
    found, _ = shown(workspace, CODER, "kit/coder.py")
    assert found["Coder"].arguments == {"parts": {"channels": 5, "depths": [1, 2]}, "width": 6}
    assert runs_in_eager(found["Coder"]).shape[:2] == (2, 6)


OPEN = """
width: 6
actor:
  class: kit.actor.Actor
  params:
    features: ${width}
    seen: ???
    bounds: [-5, 2]
"""
ACTOR = """
class Actor(nn.Module):
    def __init__(self, seen, features, bounds):
        super().__init__()
        self.bounds, self.layer = bounds, nn.Linear(seen, features)

    def forward(self, x):
        low, high = self.bounds
        return self.layer(x).clamp(low, high)
"""


def test_settings_may_refer_to_others_and_leave_some_open(workspace):
    put(workspace, {"configs/actor.yaml": OPEN})
    found, errors = shown(workspace, ACTOR, "kit/actor.py")
    assert found["Actor"].arguments.items() > {"features": 6, "bounds": [-5, 2]}.items()
    assert runs_in_eager(found["Actor"]).shape == (2, 6)
    assert not errors


def test_the_names_of_a_starred_import_of_a_missing_package_stand_for_themselves(workspace):
    text = """
from no_such_package.losses import *


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss, self.layer = Perceptual().eval(), nn.Linear(4, 5)

    def forward(self, x):
        return self.layer(x)
"""
    found, errors = shown(workspace, text)
    assert (list(found), errors) == (["Net"], [])


def test_what_a_class_may_have_of_a_missing_base_is_no_error(workspace):
    text = """
from no_such_package import Configs, option


class Mine(Configs):
    model: nn.Module
    device = Configs()


class Net(nn.Module):
    def forward(self, x):
        return x * 2


@option(Mine.model)
def make(c: Mine):
    return Net()


@Mine.calc(Mine.loader)
def load(c: Mine):
    return None
"""
    found, errors = shown(workspace, text)
    assert (list(found), errors) == (["Net"], [])


def test_a_class_with_a_forward_and_a_missing_base_is_shown_as_a_module(workspace):
    text = """
from no_such_package import BaseModel, Mixin


class Net(BaseModel, Mixin):
    def __init__(self, width=6):
        super().__init__(width)
        self.layer = nn.Linear(width, 3)

    def forward(self, x):
        return self.layer(x)


class Other(Net):
    def forward(self, x):
        return self.layer(x) * self.rate
"""
    payload = traced(workspace.parent, {"net.py": HEAD + text})
    assert "Net" in [model["name"] for model in payload["models"]]
    told = {each["code"]: each["message"] for each in payload["problems"] if each["severity"] == "warning"}
    assert "MASE treats its BaseModel as a plain nn.Module." in told["missing-package"]
    errors = [each["message"] for each in payload["problems"] if each["severity"] == "error"]
    assert len(errors) == 1
    assert errors[0].startswith("Other.rate is needed here, but no_such_package cannot")


def test_a_missing_base_does_not_disturb_other_metaclasses(workspace):
    text = """
import abc
import typing
from no_such_package import Registry


class Kind(type(nn.Module)):
    pass


class HasParameters(typing.Protocol):
    pass


class One(nn.Module, Registry, HasParameters):
    def forward(self, x):
        return x + 1


class Two(nn.Module, Registry, metaclass=Kind):
    def forward(self, x):
        return x + 2


class Three(nn.Module, Registry, abc.ABC):
    def forward(self, x):
        return x + 3
"""
    found, errors = shown(workspace, text)
    assert (sorted(found), errors) == (["One", "Three", "Two"], [])


def test_a_forward_may_log_with_a_missing_package_but_not_compute(workspace):
    text = """
from no_such_package import tracker


class Logs(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x):
        y = self.layer(x)
        tracker.debug("y", y)
        return y


class Computes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x):
        return tracker.smooth(self.layer(x))
"""
    found, _ = shown(workspace, text)
    assert runs_in_eager(found["Logs"]).shape == (2, 5)
    assert "the forward fails" in found["Computes"].found
    with pytest.raises(MissingPackageError):
        runs_in_eager(found["Computes"])


def test_hyperparameters_are_kept_without_lightning(workspace):
    text = """
from lightning_fabric.no_such_module import HyperparametersMixin


class Net(nn.Module, HyperparametersMixin):
    def __init__(self, width: int = 6):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(self.hparams.width, 3)

    def forward(self, x):
        return self.layer(x)
"""
    found, errors = shown(workspace, text)
    assert errors == []
    assert found["Net"].model.layer.in_features == 6


def test_channels_are_divided_by_the_groups_of_a_norm(workspace):
    text = """
class Net(nn.Module):
    def __init__(self, in_channels):
        super().__init__()
        self.norm = nn.GroupNorm(num_groups=32, num_channels=in_channels)

    def forward(self, x):
        return self.norm(x)
"""
    found, _ = shown(workspace, text)
    assert found["Net"].arguments == {"in_channels": 32}
    assert runs_in_eager(found["Net"]).shape[1] == 32


def test_blocks_are_counted_and_a_device_is_the_cpu(workspace):
    text = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Conv2d(width, width, 1)

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):
    def __init__(self, cfg, num_res_blocks, attention_resolutions):
        super().__init__()
        self.device = torch.device(cfg.MODEL.DEVICE)
        width = 12 if 4 in attention_resolutions else 6
        self.blocks = nn.Sequential(*[Block(width) for _ in range(num_res_blocks)])

    def forward(self, x):
        return self.blocks(x)
"""
    found, _ = shown(workspace, text)
    assert found["Net"].arguments["num_res_blocks"] == 2
    assert runs_in_eager(found["Net"]).shape[1] == 6


def test_unpacked_names_say_where_channels_are_and_partners_are_alike(workspace):
    text = """
class Finder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.layer = nn.MultiheadAttention(width, 2)

    def forward(self, maps, mask, queries, places):
        bs, c, h, w = maps.shape
        maps = maps.flatten(2).permute(2, 0, 1)
        places = places.flatten(2).permute(2, 0, 1)
        queries = queries.unsqueeze(1).repeat(1, bs, 1)
        keys = maps + places
        found, _ = self.layer(queries, keys, maps, key_padding_mask=mask.flatten(1))
        return found.transpose(0, 1)
"""
    found, _ = shown(workspace, text)
    assert found["Finder"].spec.entries["maps"].dims[:2] == ("B", 24)
    assert found["Finder"].spec.entries["places"].dims[:2] == ("B", 24)
    assert runs_in_eager(found["Finder"]).shape[2] == 24


def test_channels_that_a_forward_cuts_are_those_of_the_constructor(workspace):
    text = """
class Coupling(nn.Module):
    def __init__(self, in_channels=6):
        super().__init__()
        self.net = nn.Conv2d(in_channels // 2, in_channels // 2, 3, padding=1)

    def forward(self, input):
        kept, changed = input.chunk(2, 1)
        out = changed + self.net(kept).mean((2, 3), keepdim=True)
        return torch.cat([kept, out], 1)
"""
    found, _ = shown(workspace, text)
    assert found["Coupling"].spec.entries["input"].dims[:2] == ("B", 6)


PARTS = """
class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width, self.inner = width, nn.Linear(width, width)

    def forward(self, x):
        return self.inner(x)


class Patches(nn.Module):
    def __init__(self, d_model: int, patch_size: int):
        super().__init__()
        self.cut = nn.Conv2d(3, d_model, patch_size, stride=patch_size)

    def forward(self, x):
        return self.cut(x).flatten(2).transpose(1, 2)


class Head(nn.Module):
    def __init__(self, d_model: int, num_classes: int):
        super().__init__()
        self.layer = nn.Linear(d_model, num_classes)

    def forward(self, x):
        return self.layer(x)


class Vision(nn.Module):
    def __init__(self, layer: Layer, patches: Patches, head: Head):
        super().__init__()
        self.layer, self.patches, self.head = layer, patches, head
        self.first = nn.Parameter(torch.zeros(1, 1, layer.width))

    def forward(self, x):
        x = self.patches(x)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1)
        return self.head(self.layer(x)[:, 0])
"""


def test_models_among_the_arguments_get_sizes_that_agree(workspace):
    put(workspace, {"train.py": "from net import Layer\n\nlayer = Layer(width=48)\n"})
    found, _ = shown(workspace, PARTS)
    vision = found["Vision"]
    assert (vision.model.patches.cut.out_channels, vision.model.head.layer.in_features) == (48, 48)
    assert runs_in_eager(vision).shape == (2, vision.model.head.layer.out_features)


def test_the_sizes_of_such_models_are_remembered_for_the_next_trace(workspace):
    put(workspace, {"train.py": "from net import Layer\n\nlayer = Layer(width=48)\n"})
    payload = traced(workspace.parent, {"net.py": HEAD + PARTS})
    request = TraceRequest(str(workspace / "net.py"), str(workspace), "", 1, scratch=str(workspace.parent / "scratch"))
    known = read_known_inputs(payload["fit"])
    hooks = plain_hooks(Shadows())
    hooks.remembered.update(known)
    again = {each.name: each for each in find_models(request, HEAD + PARTS, hooks) if isinstance(each, Found)}
    assert again["Vision"].model.patches.cut.out_channels == 48


def test_a_kernels_refusal_of_a_rank_changes_the_rank(workspace):
    text = """
class Periods(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 8, (5, 1), padding=(2, 0))

    def forward(self, x):
        x = F.pad(x, (0, 3 - x.shape[-1] % 3), mode="reflect")
        return self.layer(x.unflatten(-1, (-1, 3)))
"""
    found, _ = shown(workspace, text)
    assert found["Periods"].spec.entries["x"].dims[:2] == ("B", 1)
    assert runs_in_eager(found["Periods"]).shape[1] == 8


@pytest.mark.parametrize("line", ["torch.cat([x.sum(), x.sum()])", "self.layer(x.flatten(1)[:, :0])"])
def test_a_forward_that_always_fails_ends_the_search_and_not_the_trace(workspace, line):
    text = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layer = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x):
        x = self.first(x)
        return {line}
"""
    put(workspace, {"net.py": HEAD + text})
    looked_at(workspace, "net.py")


def test_sizes_of_zero_lead_to_no_other_sizes():
    def build(width):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x0 and 8x5)")

    with pytest.raises(RuntimeError) as raised:
        build(width=8)
    assert propose_arguments(clue_of(raised.value, build, {"width": 8}))


def test_an_assertion_about_unknown_values_is_taken_as_true_and_told(workspace):
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x):
        y = self.layer(x)
        assert (y == y).all(), "equal"
        return y
"""
    payload = traced(workspace.parent, {"net.py": HEAD + text})
    (model,) = payload["models"]
    assert model["rung"] == "meta"
    told = [each["message"] for each in payload["problems"] if each["code"] == "value-taken"]
    assert told == [
        "Branch taken because `(y == y).all()` was True: the graph holds only for inputs with the same answer."
    ]


SPECTRA = itertools.product((8, 16, 7), (2, 4, None), (5, 9), ((), (3,)), (True, False), (None, 20), (True, False))


@pytest.mark.filterwarnings("ignore:The length of signal")
def test_a_signal_of_a_spectrogram_has_the_shape_that_eager_gives_it():
    for n_fft, hop, frames, batch, center, length, onesided in SPECTRA:
        size = n_fft // 2 + 1 if onesided else n_fft
        spectrum = torch.randn(*batch, size, frames, dtype=torch.complex64)
        options = {"window": torch.ones(n_fft), "center": center, "length": length, "onesided": onesided}
        wanted = torch.istft(spectrum, n_fft, hop, **options)
        with MetaMode(Shadows()):
            found = torch.istft(torch.empty(spectrum.shape, dtype=spectrum.dtype, device="meta"), n_fft, hop, **options)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), (n_fft, hop, frames, batch, center, length)


@pytest.mark.parametrize("shape", [(4, 5), (2, 2, 5, 3)])
def test_a_spectrogram_of_another_size_is_refused_as_in_eager(shape):
    spectrum = torch.zeros(shape, dtype=torch.complex64)
    with pytest.raises(RuntimeError):
        torch.istft(spectrum, 16, window=torch.ones(16))
    with pytest.raises(RuntimeError), MetaMode(Shadows()):
        torch.istft(spectrum.to("meta"), 16, window=torch.ones(16, device="meta"))


COMPOSED = {
    "conf/config.yaml": (
        "defaults:\n  - sound: clear\n  - model: stack\n  - _self_\nmodel:\n  letters: ${alphabet}\nalphabet: 7\n"
    ),
    "conf/sound/clear.yaml": "# @package model\nsound_conf:\n  rate: 80\n  window: 0.5\n",
    "conf/model/stack.yaml": (
        "depth: 2\nlayers:\n  - width: 24\n    kernel: 3\n  - width: 48\n    kernel: 5\nletters: 1\n"
    ),
    "base.py": HEAD
    + """
class Base(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.bins = int(cfg.sound_conf["rate"] * cfg.sound_conf["window"])
""",
}
STACK = """
from base import Base


class Stack(Base):
    def __init__(self, cfg):
        super().__init__(cfg)
        width, parts = self.bins, []
        for each in cfg.layers[: cfg.depth]:
            parts.append(nn.Conv1d(width, each.width, each.kernel))
            width = each.width
        self.parts, self.last = nn.Sequential(*parts), nn.Conv1d(width, cfg.letters, 1)

    def forward(self, sound):
        return self.last(self.parts(sound))
"""


#: Of two files each names the other.
CIRCLE = {"conf/model/stack.yaml": "defaults:\n  - ..: config\n" + COMPOSED["conf/model/stack.yaml"]}


@pytest.mark.parametrize("circle", [{}, CIRCLE], ids=["tree", "circle"])
def test_a_configuration_of_hydra_is_composed_of_the_files_that_its_defaults_name(workspace, circle):
    found, _ = shown(workspace, STACK, "stack.py", **COMPOSED | circle)
    model = found["Stack"].model
    layers = [(each.in_channels, each.out_channels) for each in model.modules() if isinstance(each, torch.nn.Conv1d)]
    assert layers == [(40, 24), (24, 48), (48, 7)]


EXPERIMENTS = {
    "config/default.py": (
        "from yacs.config import CfgNode as CN\n_C = CN()\n_C.NAME = 'run'\n_C.MODEL = CN()\n_C.MODEL.HEAD = CN()\n"
        "_C.MODEL.HEAD.KIND = 'deep'\n_C.MODEL.HEAD.WIDTH = 12\n"
    ),
    **{
        f"experiments/run_{index}.yaml": "NAME: run\nMODEL:\n  STEM: 5\n  HEAD:\n    WIDTH: 20\nTRAIN:\n  RATE: 1\n"
        for index in range(120)
    },
    "heads.py": HEAD
    + """
def make_head(config, width):
    assert config.KIND in ("flat", "deep")
    return nn.Conv2d(width, config.WIDTH if config.KIND == "deep" else 1, 1)
""",
}
POSES = """
from heads import make_head


class Poses(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.stem = nn.Conv2d(3, config.MODEL.STEM, 3)
        self.head = make_head(config.MODEL.HEAD, config.MODEL.STEM)

    def forward(self, image):
        return self.head(self.stem(image))
"""


def test_an_experiment_changes_the_defaults_that_are_written_elsewhere(workspace):
    found, _ = shown(workspace, POSES, "poses.py", **EXPERIMENTS)
    model = found["Poses"].model
    assert (model.stem.out_channels, model.head.out_channels) == (5, 20)


def test_a_class_of_its_modules_name_is_found_through_the_module(workspace):
    text = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Conv2d(3, width, 3)

    def forward(self, x):
        return self.layer(x)


class Depths(nn.Module):
    def __init__(self, block, widths):
        super().__init__()
        self.parts = nn.ModuleList(block(width) for width in widths)

    def forward(self, x):
        return sum(part(x).mean(1) for part in self.parts)
"""
    run = "from nets import Depths\nmodel = Depths.Depths(Depths.Block, [7, 9, 11])\n"
    found, _ = shown(workspace, text, "nets/Depths.py", **{"train.py": run})
    assert [part.layer.out_channels for part in found["Depths"].model.parts] == [7, 9, 11]


@pytest.mark.parametrize(
    ("made", "signature"),
    [
        ("nn.Conv1d(8, 8, tcn_options['kernel_size'])", "tcn_options"),
        ("Activated(**activation)", "activation"),
        ("nn.Conv1d(8, options['channels'][-1], 1)", "**options"),
    ],
)
def test_an_argument_that_is_read_by_words_is_a_mapping(workspace, made, signature):
    found, _ = shown(
        workspace,
        f"""
class Activated(nn.Module):
    def __init__(self, name, slope=0.1):
        super().__init__()
        self.layer = {{"relu": nn.ReLU, "tanh": nn.Tanh}}[name]()
        assert name == "relu" or name == "tanh"

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):
    def __init__(self, {signature}):
        super().__init__()
        self.first, self.made = nn.Conv1d(4, 8, 3), {made}

    def forward(self, x):
        return self.made(self.first(x))
""",
    )
    assert "Net" in found


def test_a_check_that_wants_one_of_two_options_gets_one(workspace):
    text = """
class Masked(nn.Module):
    def forward(self, guess, target, lengths=None, mask=None):
        if lengths is None and mask is None:
            raise RuntimeError("Should provide either lengths or mask")
        if mask is None:
            mask = torch.arange(target.size(1))[None] < lengths[:, None]
        mask = mask.unsqueeze(-1).expand_as(guess)
        return ((guess - target).abs() * mask).sum() / mask.sum()
"""
    found, _ = shown(workspace, text)
    assert "the forward fails" not in found["Masked"].found
    assert runs_in_eager(found["Masked"]).shape == ()


def test_a_version_that_a_build_writes_into_a_package_hides_nothing(workspace):
    text = """
from .version import __version__, git_version
from ._version import version_tuple

RELEASE = (2,) + tuple(int(part) for part in __version__.split("."))
NAME = "net " + __version__ + git_version


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5 if version_tuple >= (0, 0) else 6)

    def forward(self, x):
        return self.layer(x)
"""
    found, errors = shown(workspace, text, "kit/__init__.py")
    assert (list(found), errors) == (["Net"], [])


BRANCHED = """
class Stage(nn.Module):
    def __init__(self, in_planes, features, first=False):
        super().__init__()
        assert isinstance(in_planes, (list, tuple))
        self.count, self.features = len(in_planes), features
        self.layers = nn.ModuleList(nn.Conv2d(planes, features, 1) for planes in in_planes)
        if not first:
            self.join = nn.Conv2d(features, 8, 1)

    def forward(self, xs, output_shape):
        total = torch.zeros(xs[0].shape[0], self.features, *output_shape)
        for layer, x in zip(self.layers, xs):
            total = total + F.interpolate(layer(x), size=output_shape)
        return self.join(total) if self.count > 1 else total
"""
WHOLE = """
from net import Stage


class Whole:
    def __init__(self, config):
        self.stage = Stage([2 * config.width], 2 * config.width, first=True)
"""


def test_an_attribute_that_only_a_branch_of_the_constructor_sets_changes_its_test(workspace):
    put(workspace, {"whole.py": WHOLE})
    found, errors = shown(workspace, BRANCHED)
    assert errors == []
    assert "the forward fails" not in found["Stage"].found
    assert runs_in_eager(found["Stage"]).shape[1] == 8


ASSIGNED = """
_base_ = ["shared.py"]

rate = 1e-4
width = 12
position = "sine"
levels = [1, 2]
model = dict(depth=3, head=dict(classes=7))
"""


def test_a_file_of_assignments_holds_settings(workspace):
    text = """
class Trunk(nn.Module):
    def __init__(self, args):
        super().__init__()
        if args.position not in ("sine", "learned"):
            raise ValueError(args.position)
        self.layers = nn.ModuleList(nn.Linear(args.width * level, 5) for level in args.levels)

    def forward(self, x):
        return self.layers[0](x)
"""
    put(workspace, {"configs/base/small.py": ASSIGNED})
    found, errors = shown(workspace, text)
    assert errors == []
    assert [layer.in_features for layer in found["Trunk"].model.layers] == [12, 24]
    assert runs_in_eager(found["Trunk"]).shape[-1] == 5


PADDED = """
class Padded:
    def __init__(self, tensors, mask):
        self.tensors, self.mask = tensors, mask


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 8, 3, stride=2)

    def forward(self, images: Padded):
        out = self.layer(images.tensors)
        mask = F.interpolate(images.mask[None].float(), size=out.shape[-2:]).to(torch.bool)[0]
        return out, mask


class Joined(nn.Sequential):
    def __init__(self):
        super().__init__(Body(), nn.Identity())

    def forward(self, images: Padded):
        out, mask = self[0](images)
        return out.masked_fill(mask[:, None], 0)
"""


def test_a_mask_that_is_resized_has_the_sides_of_the_images(workspace):
    found, errors = shown(workspace, PADDED)
    assert errors == []
    entries = dict(found["Joined"].spec.entries["images"].items)
    assert (entries["mask"].dims, entries["mask"].dtype) == (("B", "H", "W"), "bool")
    assert runs_in_eager(found["Joined"]).shape[:2] == (2, 8)


def test_columns_of_features_that_are_cast_to_indices_are_in_range(workspace):
    text = """
class Atoms(nn.Module):
    def __init__(self, width, sizes=((4, 2), 3)):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in sizes[0])
        self.kinds, self.rest = len(sizes[0]), sizes[1]
        self.layer = nn.Linear(self.rest, width)

    def forward(self, x):
        assert x.shape[1] == self.kinds + self.rest
        total = sum(table(x[:, i].long()) for i, table in enumerate(self.tables))
        return total + self.layer(x[:, self.kinds :])
"""
    found, _ = shown(workspace, text)
    assert "the forward fails" not in found["Atoms"].found
    assert runs_in_eager(found["Atoms"]).shape == (2, found["Atoms"].model.layer.out_features)


def test_a_convolution_that_took_a_batch_for_a_sample_gets_a_batch(workspace):
    text = """
class Squeeze(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.pool, self.layer = nn.AdaptiveAvgPool3d(1), nn.Conv3d(width, width, 1)

    def forward(self, x):
        kept = x
        for each in self.children():
            x = each(x)
        return x * kept
"""
    found, _ = shown(workspace, text)
    assert found["Squeeze"].spec.entries["x"].dims[:2] == ("B", 12)
    assert runs_in_eager(found["Squeeze"]).dim() == 5


def test_a_comment_that_makes_a_model_is_an_example(workspace):
    text = """
class Weighed(nn.Module):
    # Wraps a loss: criterion = Weighed(nn.BCEWithLogitsLoss(), rate=1.5), for example (see above).
    def __init__(self, loss_fcn, rate):
        super().__init__()
        self.loss_fcn, self.rate = loss_fcn, rate
        self.reduction = loss_fcn.reduction
        self.loss_fcn.reduction = "none"

    def forward(self, guess, true):
        loss = self.loss_fcn(guess, true) * true**self.rate
        return loss.mean() if self.reduction == "mean" else loss


# class Weighed(nn.Module):


class Taker(nn.Module):
    def __init__(self, first, last):
        super().__init__()
        self.layer = nn.Linear(first, last)

    def forward(self, x):
        return self.layer(x)


WIDTH = 6
# net = Taker(WIDTH, 2 * (WIDTH + 1))
# net = Taker(unknown, 3)
"""
    found, errors = shown(workspace, text)
    assert errors == []
    assert isinstance(found["Weighed"].model.loss_fcn, nn.BCEWithLogitsLoss)
    assert found["Weighed"].arguments["rate"] == 1.5
    assert runs_in_eager(found["Weighed"]).shape == ()
    assert found["Taker"].arguments == {"first": 6, "last": 14}


def test_a_constructor_reads_files_of_the_workspace_from_its_root(workspace):
    text = """
class Net(nn.Module):
    def __init__(self, cfg="cfg/net.cfg"):
        super().__init__()
        with open(cfg) as file:
            self.layers = nn.Sequential(*(nn.Linear(*map(int, line.split())) for line in file))

    def forward(self, x):
        return self.layers(x)
"""
    put(workspace, {"cfg/net.cfg": "6 8\n8 5\n", "kit/__init__.py": ""})
    found, errors = shown(workspace, text, "kit/models/net.py")
    assert errors == []
    assert found["Net"].model.layers[0].in_features == 6


CALLED = """
class Act(nn.Module):
    def __init__(self, count, activation):
        super().__init__()
        self.activation, self.bias = activation, nn.Parameter(torch.zeros(count))

    def forward(self, input):
        x = self.activation(input + self.bias)
        return x
"""


def test_what_a_forward_calls_is_no_class_of_modules(workspace):
    found, _ = shown(workspace, CALLED)
    assert isinstance(found["Act"].model.activation, nn.ReLU)
    assert torch.is_tensor(runs_in_eager(found["Act"]))


def test_a_forward_that_makes_a_module_of_a_tensor_does_not_end_the_trace(workspace):
    payload = traced(workspace.parent, {"net.py": HEAD + CALLED.replace("activation):", "activation=nn.ReLU):")})
    assert [model["name"] for model in payload["models"]] == ["Act"]
    assert [each for each in payload["problems"] if each["severity"] == "error"] == []


def test_boxes_have_sides_and_each_has_a_label(workspace):
    text = """
def corners(boxes):
    x, y, w, h = boxes.unbind(-1)
    return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)


class Matcher(nn.Module):
    def forward(self, outputs, targets):
        batch, count = outputs["pred_logits"].shape[:2]
        probabilities = outputs["pred_logits"].flatten(0, 1).sigmoid()
        boxes = outputs["pred_boxes"].flatten(0, 1)
        labels = torch.cat([each["labels"] for each in targets])
        wanted = torch.cat([each["boxes"] for each in targets])
        for each in (corners(boxes), corners(wanted)):
            assert (each[:, 2:] >= each[:, :2]).all()
        cost = torch.cdist(boxes, wanted, p=1) - probabilities[:, labels]
        return cost.view(batch, count, -1).split([len(each["boxes"]) for each in targets], -1)[0]
"""
    found, _ = shown(workspace, text)
    targets = found["Matcher"].spec.entries["targets"].items
    assert [dict(each.items)["labels"].dims for each in targets] == [("N",), ("N",)]
    assert runs_in_eager(found["Matcher"]).dim() == 3


def test_a_graph_that_is_asked_for_weights_is_a_graph(workspace):
    text = """
class Graph(nn.Module):
    def __init__(self, in_dim=6, classes=3):
        super().__init__()
        self.first, self.last = nn.Linear(in_dim, 8), nn.Linear(8, classes)

    def forward(self, data):
        x, edge_index, batch = data.x, data.edge_index, data.batch
        weight = data.edge_weights.float() if "edge_weights" in data else None
        x = self.first(x).relu()
        sent = x[edge_index[0]] if weight is None else x[edge_index[0]] * weight[:, None]
        x = x.index_add(0, edge_index[1], sent)
        return self.last(torch.zeros(2, 8).index_add(0, batch, x))
"""
    found, _ = shown(workspace, text)
    entries = dict(found["Graph"].spec.entries["data"].items)
    assert (entries["x"].dims, list(entries)) == (("N", 6), ["x", "edge_index", "batch"])
    assert runs_in_eager(found["Graph"]).shape == (2, 3)


def test_features_that_only_a_constructor_names_stand_last(workspace):
    text = """
class Standardise(nn.Module):
    def __init__(self, num_features: int, affine=False):
        super().__init__()
        self.num_features = num_features
        self.scale = nn.Parameter(torch.ones(num_features)) if affine else None

    def forward(self, x):
        over = tuple(range(1, x.ndim - 1))
        x = (x - x.mean(over, keepdim=True)) / x.std(over, keepdim=True)
        return x if self.scale is None else x * self.scale
"""
    found, _ = shown(workspace, text)
    assert found["Standardise"].spec.entries["x"].dims == ("B", "T", found["Standardise"].model.num_features)


def test_modules_that_are_counted_are_a_number(workspace):
    text = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Conv2d(width, width, 1)

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):
    def __init__(self, first_modules, last_modules):
        super().__init__()
        parts = [nn.Conv2d(3, 6, 1)]
        for _ in range(first_modules):
            parts.append(Block(6))
        for _ in range(last_modules):
            parts.append(Block(6))
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return self.parts(x)
"""
    found, _ = shown(workspace, text)
    assert found["Net"].arguments == {"first_modules": 2, "last_modules": 2}
    assert runs_in_eager(found["Net"]).shape[1] == 6


def test_a_mask_that_is_filled_in_place_is_boolean(workspace):
    text = """
class Words(nn.Module):
    def __init__(self, width=8, count=20):
        super().__init__()
        self.table = nn.Embedding(count, width)

    def forward(self, x, lengths, m):
        x = self.table(x).transpose(1, 2)
        x.masked_fill_(m.to(lengths.device).unsqueeze(1), 0.0)
        return x
"""
    found, _ = shown(workspace, text)
    assert found["Words"].spec.entries["m"].dtype == "bool"
    assert runs_in_eager(found["Words"]).shape[:2] == (2, 8)


def test_a_record_that_is_changed_and_given_back_is_a_record(workspace):
    text = """
class Layer(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, data):
        x = self.norm(data.x)
        if hasattr(data, "bias"):
            x = x + data.bias
        x = x + torch.zeros(2, 12).index_add(0, data.batch, x)[data.batch]
        data.x = self.layer(x) + data.x
        return data
"""
    found, _ = shown(workspace, text)
    entries = dict(found["Layer"].spec.entries["data"].items)
    assert (list(entries), entries["x"].dims) == (["x", "batch"], ("N", 12))
    assert runs_in_eager(found["Layer"]).x.shape[1] == 12


def test_both_sides_of_a_map_are_solved_from_the_layer_behind_it(workspace):
    text = """
class Part(nn.Module):
    def __init__(self, width, size=(28, 28)):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width, 3, 2, 1), nn.UpsamplingBilinear2d(size)

    def forward(self, x):
        return x + self.up(self.down(x))


class Net(nn.Module):
    def __init__(self, depth, feat_dim, out_h, out_w):
        super().__init__()
        self.stem, self.part = nn.Conv2d(3, 8, 3, 2, 1), Part(8)
        self.body = nn.Sequential(*(nn.Conv2d(8, 8, 3, 1, 1) for _ in range(depth)), nn.MaxPool2d(4))
        self.head = nn.Linear(8 * out_h * out_w, feat_dim)

    def forward(self, x):
        return self.head(self.body(self.part(self.stem(x))).flatten(1))
"""
    found, errors = shown(workspace, text)
    assert errors == []
    assert [found["Net"].arguments[name] for name in ("out_h", "out_w")] == [7, 7]
    assert runs_in_eager(found["Net"]).shape[1] == found["Net"].arguments["feat_dim"]


def test_an_input_that_is_viewed_has_the_sizes_of_the_view(workspace):
    text = """
class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.points, self.head = nn.Conv1d(3, width, 1), nn.Conv1d(width + 16, 5, 1)

    def forward(self, xyz, cls_label):
        B, C, N = xyz.shape
        kinds = cls_label.view(B, 16, 1).repeat(1, 1, N)
        return self.head(torch.cat([kinds, self.points(xyz)], 1))
"""
    found, errors = shown(workspace, text)
    assert errors == []
    assert found["Net"].spec.entries["cls_label"].dims == ("B", 16)
    assert runs_in_eager(found["Net"]).shape[1] == 5


CRITERION = """
class Criterion(nn.Module):
    def __init__(self, width, matcher, crit):
        super().__init__()
        self.head = nn.Linear(width, 6)
        self.matcher = matcher
        self.crit = crit

    def forward(self, x):
        scores = self.head(x)
        wanted = self.matcher(scores)
        return self.crit(scores, wanted)
"""
MATCHER = """
import torch
from torch import nn


class BestMatcher(nn.Module):
    def __init__(self, bias: float):
        super().__init__()
        self.bias = bias

    @torch.no_grad()
    def forward(self, scores):
        return (scores + self.bias).argmax(-1)
"""


def test_an_argument_that_is_called_is_a_module_of_the_workspace_or_a_usual_one(workspace):
    found, errors = shown(workspace, CRITERION, **{"matching.py": MATCHER})
    arguments = found["Criterion"].arguments
    assert not errors
    assert "BestMatcher" in repr(arguments["matcher"])
    assert "CrossEntropyLoss" in repr(arguments["crit"])
    assert runs_in_eager(found["Criterion"]).shape == ()


READ_FROM_FILE = """
from pathlib import Path


class Net(nn.Module):
    def __init__(self, config_path):
        super().__init__()
        sizes = [int(word) for word in Path(config_path).read_text().split()]
        self.layers = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))

    def forward(self, x):
        return self.layers(x)


def load_model(model_path, weights_path):
    model = Net(model_path).to("cpu")
    with open(weights_path, "rb") as file:
        print(len(file.read()))
    return model
"""
CALLS_LOADER = """
import argparse

from net import load_model


def run():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="sizes/small.cfg")
    args = parser.parse_args()
    print(load_model(args.model, "small.weights"))
"""
README = """
```python
from net import load_model
model = load_model("<PATH_TO_YOUR_SIZES>/small.cfg", "<PATH_TO_YOUR_WEIGHTS>/small.weights")
```
"""


def test_a_builder_of_the_file_is_called_as_other_files_call_it(workspace):
    files = {"run.py": CALLS_LOADER, "README.md": README, "sizes/small.cfg": "12 5 3"}
    found, errors = shown(workspace, READ_FROM_FILE, **files)
    assert not errors
    assert [layer.in_features for layer in found["Net"].model.layers] == [12, 5]
    assert found["Net"].spec.entries["x"].dims[-1] == 12


FRAMES = """
class Net(nn.Module):
    def __init__(self, width, num_frames):
        super().__init__()
        self.num_frames, self.layer = num_frames, nn.Linear(width, width)

    def forward(self, x):
        B, N, C = x.shape
        return self.layer(x.view(B, N // self.num_frames, self.num_frames, C))
"""
MAKES_NET = """
from net import Net


class Video:
    def __init__(self, num_frames, width=24):
        self.net = Net(width, num_frames)
"""
ASKS = """
import argparse

from video import Video


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-frames", type=int, required=True)
    return parser.parse_args()


def main():
    args = parse_args()
    Video(args.num_frames)
"""


def test_a_number_that_a_command_line_has_to_give_is_guessed(workspace):
    found, errors = shown(workspace, FRAMES, **{"video.py": MAKES_NET, "run.py": ASKS})
    assert not errors
    made = found["Net"].model
    assert type(made.num_frames) is int
    assert made.layer.in_features == 24  # which the program gives
    assert "num_frames guessed" in found["Net"].found
    assert runs_in_eager(found["Net"]).shape[-1] == 24


@pytest.mark.parametrize(
    "given",
    [
        "self.words.weight = nn.Parameter(vectors, requires_grad=False)",
        "self.words.weight.data.copy_(torch.from_numpy(vectors))",
    ],
)
def test_vectors_of_all_words_are_as_many_as_an_embedding_has(workspace, given):
    text = f"""
class Net(nn.Module):
    def __init__(self, vocab_size, width, vectors):
        super().__init__()
        self.words = nn.Embedding(vocab_size, width)
        {given}
        self.rnn = nn.GRU(width, 8, batch_first=True)

    def forward(self, sentence):
        return self.rnn(self.words(sentence))[0]
"""
    found, errors = shown(workspace, text)
    assert not errors
    net, vectors = found["Net"], found["Net"].arguments["vectors"]
    assert net.model.words.weight.shape == tuple(vectors.shape) == (1000, 64)
    assert net.spec.entries["sentence"].dtype == "i64"
    assert runs_in_eager(net).shape[-1] == 8


def test_a_file_that_was_found_in_the_workspace_is_not_told_to_be_absent(workspace):
    text = """
class Net(nn.Module):
    def __init__(self, cfg="cfg/net.cfg"):
        super().__init__()
        with open(cfg) as file:
            width = int(file.read())
        self.layer = nn.Linear(width, nn.widths_of_another_version[width])

    def forward(self, x):
        return self.layer(x)
"""
    put(workspace, {"cfg/net.cfg": "6", "kit/__init__.py": "", "kit/models/net.py": HEAD + text})
    _, problems = looked_at(workspace, "kit/models/net.py")
    told = " ".join(problem.message for problem in problems)
    assert "widths_of_another_version" in told
    assert "not here" not in told


DECODER = """
class Block(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        self.conv = nn.Conv2d(int(wide), int(narrow), 3, padding=1)

    def forward(self, x):
        return F.elu(self.conv(x))


class Decoder(nn.Module):
    def __init__(self, enc_ch, scales=range(2)):
        super().__init__()
        self.enc_ch, self.scales, own = enc_ch, scales, [8, 12, 20]
        self.up, self.join = nn.ModuleDict(), nn.ModuleDict()
        for level in range(2, -1, -1):
            wide = self.enc_ch[-1] if level == 2 else own[level + 1]
            self.up[f"{level}"] = Block(wide, own[level])
            more = self.enc_ch[level - 1] if level else 0
            self.join[f"{level}"] = Block(own[level] + more, own[level])

    def forward(self, features):
        x = features[-1]
        for level in range(2, -1, -1):
            x = [F.interpolate(self.up[f"{level}"](x), scale_factor=2)]
            if level:
                x += [features[level - 1]]
            x = self.join[f"{level}"](torch.cat(x, 1))
        return x
"""
ENCODER = """
import numpy as np


class Encoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.enc_ch = np.array([6, 10, 14])
        self.stem = nn.Conv2d(3, layers, 3)
"""
MAKES_DECODER = """
from decoder import Decoder


class Trainer:
    def __init__(self, options):
        self.models = {"encoder": load(options.encoder)}
        self.models["decoder"] = Decoder(self.models["encoder"].enc_ch, options.scales)
"""


def test_a_list_that_is_read_of_another_module_is_what_a_class_of_the_workspace_gives_it(workspace):
    others = {"encoder.py": HEAD + ENCODER, "trainer.py": HEAD + MAKES_DECODER}
    found, errors = shown(workspace, DECODER, "decoder.py", **others)
    assert not errors
    decoder = found["Decoder"]
    assert decoder.arguments["enc_ch"] == [6, 10, 14]
    assert [each.shape[1] for each in decoder.inputs["features"]] == [6, 10, 14]
    assert runs_in_eager(decoder).shape[1] == 8


def test_a_mistake_in_the_layers_of_a_list_is_not_avoided_by_leaving_them_all_out(workspace):
    text = """
class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        assert width % heads == 0
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        later = torch.ones(x.shape[1], x.shape[1]).triu(1).byte()
        width = x.shape[-1]
        return (self.layer(x) @ x.transpose(1, 2) / width).masked_fill(later, -1e9).softmax(-1) @ x


class Net(nn.Module):
    def __init__(self, width, heads, count):
        super().__init__()
        self.table = nn.Embedding(90, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(count)])

    def forward(self, tokens):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        return x
"""
    found, _ = shown(workspace, text)
    assert len(found["Net"].model.layers) > 0
    with pytest.raises(RuntimeError, match="boolean masks"):
        runs_in_eager(found["Net"])


def test_what_a_part_hands_on_as_its_arguments_is_what_the_inner_part_takes(workspace):
    text = """
class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width)

    def forward(self, query, key, mask=None):
        scores = self.query(query) @ key.transpose(1, 2)
        return scores.masked_fill(mask[:, None], -1e9).softmax(-1) @ key


class Sublayer(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(width)

    def forward(self, *args):
        return self.norm(self.inner(*args) + args[0])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = Sublayer(Attention(12), 12), Sublayer(nn.Linear(12, 12), 12)

    def forward(self, x, mask):
        return self.last(self.first(x, x, mask))
"""
    found, errors = shown(workspace, text)
    assert not errors
    assert {name: value.shape for name, value in found["Net"].inputs.items()} == {"x": (2, 16, 12), "mask": (2, 16)}
    assert runs_in_eager(found["Net"]).shape == (2, 16, 12)


def test_what_only_some_layers_of_a_list_take_is_followed_into_these(workspace):
    text = """
class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x, encoder_hidden_states):
        return x + self.conv(x), encoder_hidden_states


class Attention(nn.Module):
    def __init__(self, width, wide):
        super().__init__()
        self.key = nn.Linear(wide, width)

    def forward(self, x, encoder_hidden_states):
        keys = self.key(encoder_hidden_states)
        weights = (x.flatten(2).transpose(1, 2) @ keys.transpose(-2, -1)).softmax(-1)
        return x + (weights @ keys).transpose(1, 2).unflatten(2, x.shape[2:]), encoder_hidden_states


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.end = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 3, 1)
        self.blocks = nn.ModuleList([Residual(8), Attention(8, 12)])

    def forward(self, x, encoder_hidden_states):
        x = self.start(x)
        for number, block in enumerate(self.blocks):
            x, encoder_hidden_states = block(x, encoder_hidden_states)
        return self.end(x)
"""
    found, errors = shown(workspace, text)
    assert not errors
    assert format_inputs(found["Net"].spec) == "x: f32[B=2, 3, H=32, W=32]; encoder_hidden_states: f32[B, T=16, 12]"
    assert runs_in_eager(found["Net"]).shape == (2, 3, 32, 32)
