"""Reading the source: roots, call sites, first consumers, and constructor arguments by name."""

import ast
import inspect
import textwrap
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.tracing.inputs.searching.choices import keys_of, parts_of
from mase_server.tracing.inputs.searching.consumers import ROWS, list_candidates
from mase_server.tracing.inputs.searching.forward import Wanted, first_use
from mase_server.tracing.models.arguments import Surroundings, build
from mase_server.tracing.models.classes import find_root_classes, model_classes
from mase_server.tracing.models.constructions import Constructions, get_class_origin
from mase_server.tracing.models.evaluation import UnknownNameError, evaluate_call
from mase_server.tracing.models.find import module_instances
from mase_server.tracing.models.guesses import usual_arguments
from mase_server.tracing.models.names import usual_argument
from mase_server.tracing.recording.shadow import Shadows

# ------------------------------------------------------------------------------------------------------- classes


def loaded(source):
    """(namespace, tree) of a file's text."""
    source = "import torch\nfrom torch import nn\n" + textwrap.dedent(source)
    namespace = {"__name__": "loaded_file"}
    exec(compile(source, "loaded_file.py", "exec"), namespace)
    return namespace, ast.parse(source)


FORWARD = "    def forward(self, x):\n        return x\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"class A(nn.Module):\n{FORWARD}class B(nn.Module):\n    part = A\n{FORWARD}", ["B"]),
        (f"class A(nn.Module):\n{FORWARD}class B(A):\n{FORWARD}", ["B"]),
        (f"class A(nn.Module):\n{FORWARD}class B(nn.Module):\n{FORWARD}", ["A", "B"]),
        (
            f"def make():\n    return A()\nclass A(nn.Module):\n{FORWARD}class B(nn.Module):\n    p = make\n{FORWARD}",
            ["B"],
        ),
        (f"class A(nn.Module):\n{FORWARD}class B(nn.Module):\n{FORWARD}def b():\n    return B(A, 2)\n", ["B"]),
        (f"class A(nn.Module):\n    n = 'B'\n{FORWARD}class Plain:\n    part = A\n", ["A"]),
        ("class NoForward(nn.Module):\n    pass\n", []),
    ],
)
def test_a_root_is_what_no_other_model_uses(source, expected):
    source = source.replace("p = make", "p = staticmethod(lambda: make())")
    namespace, tree = loaded(source)
    assert find_root_classes(model_classes(namespace, tree), tree) == expected


def test_models_in_variables_are_instances_and_their_parts_are_not():
    part = nn.Sequential(nn.Linear(2, 2))
    whole = nn.Sequential(part, nn.ReLU())
    names = {
        "part": part,
        "whole": whole,
        "again": whole,
        "relu": nn.Sequential(nn.ReLU()),
        "loss": nn.MSELoss(),
        "x": 3,
    }
    assert [instance.model for instance in module_instances(names, "/nowhere", {})] == [whole]


def test_the_origin_of_a_class_is_where_its_module_lies():
    folder = inspect.getsourcefile(Constructions).rsplit("/", 1)[0]
    assert get_class_origin(nn.Linear, folder) == "torch"
    assert get_class_origin(Constructions, folder) == "workspace"
    assert get_class_origin(Constructions, folder + "/elsewhere") == "library"
    assert get_class_origin(pytest.Item, "/") == "library"


# -------------------------------------------------------------------------------------------------- constructions


def test_arguments_are_recorded_before_the_constructor_can_change_them():
    class Net(nn.Module):
        def __init__(self, width, *rest, depth=2, **more):
            super().__init__()
            width += depth
            rest, more = (), {}
            self.changed = (width, rest, more)

    constructions = Constructions()
    with constructions.recording():
        net = Net(3, 4, depth=5, extra=6)
    assert constructions.of(net).bound() == {"width": 3, "rest": (4,), "depth": 5, "more": {"extra": 6}}
    assert constructions.of(Net(3)) is None


def test_a_class_with_a_new_of_its_own_still_gets_its_arguments():
    class Base:
        def __new__(cls, value):
            made = object.__new__(cls)
            made.__dict__["seen"] = value
            return made

    class Net(nn.Module, Base):
        def __init__(self, value):
            super().__init__()

    with Constructions().recording():
        assert Net(7).seen == 7


# ---------------------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("f(3)", 3),
        ("def g():\n    width = 4\n    return f(width * 2)", 8),
        ("def g():\n    a = 2\n    b = a + 1\n    a = 99\n    return f(b)", 3),
        ("f([i * k for i in range(2)][1])", 10),
    ],
)
def test_a_call_is_evaluated_with_the_assignments_before_it(source, value):
    tree = ast.parse(source)
    (call,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "f"]
    assert evaluate_call(call, {"f": lambda x: x, "k": 10}, tree) == value


@pytest.mark.parametrize("source", ["f(unknown)", "def g(a):\n    f(a)", "a = b\nb = a\nf(b)"])
def test_a_call_with_unknown_names_is_never_run(source):
    tree = ast.parse(source)
    (call,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    with pytest.raises(UnknownNameError):
        evaluate_call(call, {"f": lambda x: pytest.fail("it ran")}, tree)


# ------------------------------------------------------------------------------------------------------ arguments


@dataclass
class TrunkConfig:
    vocab_size: int
    n_head: int = 2


def test_required_arguments_get_usual_values_and_optional_ones_stay():
    def build_it(in_channels, num_classes: int, config: TrunkConfig, hidden_sizes: list[int], flag: bool, kept=1): ...

    values = usual_arguments(build_it, Surroundings({}, ast.parse(""), Shadows()))
    assert values == {
        "in_channels": 3, "num_classes": 10, "config": TrunkConfig(1000), "hidden_sizes": [32, 64], "flag": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("vocab_size", 1000), ("num_heads", 4), ("d_model", 64), ("img_size", 32), ("patch_size", 4), ("depth", 2)],
)
def test_the_fields_usual_names_are_known(name, value):
    assert usual_argument(name) == value


def test_usual_widths_divide_by_usual_head_counts_and_images_by_patches():
    assert usual_argument("embed_dim") % usual_argument("n_heads") == 0
    assert usual_argument("image_size") % usual_argument("patch") == 0


@pytest.mark.parametrize(
    ("source", "source_word", "arguments"),
    [
        ("", "search", {"width": 64}),
        ("def g():\n    n = 5\n    return Net(n)\n", "usage", {"width": 5}),
        ("def build(w=7):\n    return Net(w)\n", "usage", {"width": 7}),
    ],
)
def test_arguments_come_from_call_sites_then_builders_then_names(source, source_word, arguments):
    head = "class Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n" + FORWARD
    namespace, tree = loaded(head + source)
    built = build(namespace["Net"], Surroundings(namespace, tree, Shadows()), None, [])
    assert (built.source, built.arguments) == (source_word, arguments)


def test_a_configuration_without_a_class_is_guessed_from_what_is_read():
    namespace, tree = loaded("""
        class Net(nn.Module):
            def __init__(self, opt):
                super().__init__()
                self.layer = nn.Linear(opt.hidden_dim, opt["num_classes"])
            def forward(self, x):
                return self.layer(x)
    """)
    built = build(namespace["Net"], Surroundings(namespace, tree, Shadows()), None, [])
    assert built.arguments == {"opt": {"hidden_dim": 64, "num_classes": 10}}


# ------------------------------------------------------------------------------------------------ first consumers


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(24, 24)

    def forward(self, hidden, memory):
        return self.query(memory) + hidden


class Nest(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Dropout(0.1), nn.Conv2d(5, 6, 3))
        self.attend = Attend()
        self.layers = nn.ModuleList([nn.LSTM(9, 9), nn.LSTM(9, 9)])
        self.weight = nn.Parameter(torch.empty(11, 13))
        self.drop = nn.Dropout(0.1)
        self.table = nn.Embedding(17, 4)

    def helper(self, value):
        return self.table(value)

    def forward(self, image, memory, seq, direct, left, ids, batch, pair, data, looped, unused=None):
        _b, _c, _h, _w = image.shape
        image = image.float() / 255
        y = self.stem(image)
        z = self.attend(hidden=y, memory=self.drop(memory))
        for layer in self.layers:
            seq = layer(seq)
        d = F.linear(direct, self.weight)
        e = left @ self.weight
        f = self.helper(ids)
        g = self.table(batch["tokens"])
        first, second = pair
        k = self.attend.query(second)
        m = self.table(data.nodes)
        for item in looped:
            n = self.table(item)
        return y, z, seq, d, e, f, g, first, k, m, n


NEST = Nest()


@pytest.mark.parametrize(
    ("wanted", "path", "first"),
    [
        (Wanted("image"), "stem", ("B", 5, "H", "W")),
        (Wanted("memory"), "attend.query", ("B", 24)),
        (Wanted("seq"), "layer", ("T", "B", 9)),
        (Wanted("direct"), "self.weight", ("B", 13)),
        (Wanted("left"), "self.weight", ("B", 11)),
        (Wanted("ids"), "table", ("B", "T")),
        (Wanted("batch", "tokens"), "table", ("B", "T")),
        (Wanted("pair", 1), "attend.query", ("B", 24)),
        (Wanted("data", "nodes", True), "table", ("B", "T")),
        (Wanted("looped"), "table", ("B", "T")),
    ],
)
def test_the_first_layer_that_sees_an_input_says_what_it_is(wanted, path, first):
    use = first_use(NEST, wanted)
    assert use.path.endswith(path)
    assert list_candidates(use.layer)[0].dims == first


def test_an_unused_input_has_no_first_layer():
    assert first_use(NEST, Wanted("unused")) is None


def test_the_unpacked_shape_says_how_many_dimensions_there_are():
    assert first_use(NEST, Wanted("image")).dims == 4


def test_containers_are_read_from_the_source():
    assert keys_of(NEST, "batch") == {"tokens": False}
    assert keys_of(NEST, "data") == {"nodes": True}
    assert keys_of(NEST, "image") == {}
    assert (parts_of(NEST, "pair"), parts_of(NEST, "image")) == (2, 0)


LAYERS = [
    nn.Linear(12, 2), nn.Conv1d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3),
    nn.Embedding(9, 4), nn.EmbeddingBag(9, 4), nn.LSTM(5, 6), nn.GRU(5, 6, batch_first=True), nn.LSTMCell(5, 6),
    nn.BatchNorm1d(5), nn.BatchNorm2d(5), nn.BatchNorm3d(5), nn.GroupNorm(2, 4), nn.LayerNorm((3, 4)), nn.RMSNorm(4),
    nn.InstanceNorm2d(4), nn.TransformerEncoderLayer(8, 2), nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 1),
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_runs_on_its_first_candidate(layer):
    from mase_server.tracing.inputs.spec import Inputs, inputs_at

    (first, *_) = list_candidates(layer)
    layer.eval()(inputs_at(Inputs({"x": first}))["x"])


def test_every_kind_of_layer_of_the_table_is_tested():
    kinds = [kind for row in ROWS for kind in (row[0] if isinstance(row[0], tuple) else (row[0],))]
    asked_otherwise = (
        nn.Bilinear,
        nn.MultiheadAttention,
        nn.Transformer,
        nn.TransformerDecoder,
        nn.TransformerDecoderLayer,
    )
    untested = [kind for kind in kinds if not any(isinstance(layer, kind) for layer in LAYERS)]
    assert set(untested) <= {*asked_otherwise, nn.ConvTranspose1d, nn.ConvTranspose3d}
