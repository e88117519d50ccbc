"""Operators that take several operations: what the quantised graph gives, and what Verilator gives of them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.building import Build
from mase_server.hardware.composed.transposed import Axis, convolution_weights
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from mase_server.passes.verilog.told import prepare_graph
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR


class Calls(nn.Module):
    """Layers, and a function of them and the input."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x):
        return self.function(x, *self.layers)


def two(function):
    return Calls(lambda x, first, second: function(first(x), second(x)), nn.Linear(6, 5), nn.Linear(6, 5))


def after(layer, function, *more):
    return Calls(lambda x, first, *rest: function(first(x), *rest), layer, *more)


torch.manual_seed(0)
ROWS, IMAGES, LINES = (4, 6), (3, 2, 6, 5), (4, 3, 7)

#: Their roundings are those of the graph: nothing is lost before the last one.
EXACT = {
    "maximum": (two(torch.maximum), ROWS),
    "minimum": (two(torch.minimum), ROWS),
    "largest of a dimension": (after(nn.Conv1d(3, 5, 1), lambda x: x.max(2)[0]), LINES),
    "values of the largest": (after(nn.Conv1d(3, 5, 1), lambda x: x.max(dim=-1).values), LINES),
    "index of the largest": (after(nn.Conv1d(3, 5, 1), lambda x: x.argmax(2)), LINES),
    "index of the largest channel": (after(nn.Conv1d(3, 5, 1), lambda x: x.argmax(1, keepdim=True)), LINES),
    "class of a row": (after(nn.Linear(6, 5), lambda x: x.argmax(-1)), ROWS),
    "the largest and its index": (after(nn.Conv1d(3, 5, 1), lambda x: torch.mul(*x.max(2))), LINES),
    "index of the first of equal ones": (after(nn.Conv1d(3, 5, 1), lambda x: (x > 0.2).float().argmax(2)), LINES),
    "largest of rows": (after(nn.Conv1d(3, 5, 1), lambda x: x.topk(3).values), LINES),
    "largest of a class": (after(nn.Linear(6, 5), lambda x: torch.topk(x, 2, dim=1)[0]), ROWS),
    "smallest of rows": (after(nn.Conv1d(3, 5, 1), lambda x: x.topk(7, -1, False)[0]), LINES),
    "where an index says": (after(nn.Conv1d(3, 5, 1), lambda x: torch.where(x.max(2)[1] > 2, x[:, :, 0], 0.5)), LINES),
    "largest before a rounding": (Calls(lambda x, f: f(F.max_pool2d(x, 3, 2, 1)), nn.Conv2d(2, 4, 1)), IMAGES),
    "adaptive max": (after(nn.Conv2d(2, 4, 1), lambda x: F.adaptive_max_pool2d(x, (3, 1)).flatten(1)), IMAGES),
    "greater": (two(lambda x, y: x * (y > 0.3)), ROWS),
    "at least": (two(lambda x, y: x * (y >= x)), ROWS),
    "logic": (two(lambda x, y: x * ((y < x) | ~(x <= 0.51) & (y != x)).float()), ROWS),
    "where": (two(lambda x, y: torch.where(y > 0, x, y)), ROWS),
    "where, a number": (two(lambda x, y: torch.where(y > 0, x, 0.5)), ROWS),
    "filled": (two(lambda x, y: x.masked_fill(y > 0, 0.0)), ROWS),
    "slopes of channels": (after(nn.Conv2d(2, 5, 1), lambda x, layer: layer(x), nn.PReLU(5)), IMAGES),
    "einsum": (two(lambda x, y: torch.einsum("bi,bj->bij", x, y)), ROWS),
    "einsum of matrices": (two(lambda x, y: torch.einsum("bnk,bnd->bkd", x, y)), (3, 7, 6)),
    "einsum of heads": (two(lambda x, y: torch.einsum("bhid,bhjd->bhij", x, y)), (3, 2, 4, 6)),
    "transposed": (Calls(lambda x, f: f(x), nn.ConvTranspose2d(2, 4, 3, 2, 1, output_padding=1)), IMAGES),
    "transposed, cropped": (Calls(lambda x, f: f(x), nn.ConvTranspose2d(2, 3, 3, 2)), IMAGES),
    "transposed, even": (Calls(lambda x, f: f(x), nn.ConvTranspose2d(2, 4, 4, 2, 1, bias=False)), IMAGES),
    "transposed, uneven": (
        Calls(lambda x, f: f(x), nn.ConvTranspose2d(2, 6, (3, 2), (3, 1), (2, 0), dilation=(2, 1), groups=2)),
        IMAGES,
    ),
    "transposed, of one pixel": (Calls(lambda x, f: f(x), nn.ConvTranspose2d(6, 4, 3)), (4, 6, 1, 1)),
    "transposed, of rows": (Calls(lambda x, f: f(x), nn.ConvTranspose1d(3, 4, 2, 2)), LINES),
}

#: They have roundings of their own in between, much finer than the last one.
ROUNDED = {
    "log_softmax": (after(nn.Linear(6, 5), lambda x: F.log_softmax(x, -1)), ROWS),
    "softmax over rows": (after(nn.Linear(6, 5), lambda x: F.softmax(x, 1)), (4, 3, 6)),
    "group norm": (after(nn.Conv2d(2, 4, 3), lambda x, norm: norm(x), nn.GroupNorm(2, 4)), IMAGES),
    "instance norm": (after(nn.Conv2d(2, 4, 3), lambda x, norm: norm(x), nn.InstanceNorm2d(4)), IMAGES),
    "instance norm, scaled": (
        after(nn.Conv2d(2, 4, 3), lambda x, norm: norm(x), nn.InstanceNorm2d(4, affine=True)),
        IMAGES,
    ),
    "batch norm of vectors": (after(nn.Linear(6, 5), lambda x, norm: norm(torch.relu(x)), nn.BatchNorm1d(5)), ROWS),
    "norm of images": (after(nn.Conv2d(2, 4, 3), lambda x, norm: norm(x), nn.LayerNorm([4, 4, 3])), IMAGES),
    "normalize": (after(nn.Linear(6, 5), lambda x: F.normalize(x, dim=-1)), ROWS),
    "normalize channels": (after(nn.Conv2d(2, 4, 1), lambda x: F.normalize(x, dim=1)), IMAGES),
    "cosine": (two(F.cosine_similarity), ROWS),
    "glu": (after(nn.Linear(6, 8), F.glu), ROWS),
    "glu of channels": (after(nn.Conv1d(3, 6, 3), lambda x: F.glu(x, 1)), LINES),
    "bilinear": (after(nn.Conv2d(2, 3, 1), lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")), IMAGES),
    "bilinear, aligned": (
        after(nn.Conv2d(2, 3, 1), lambda x, up: up(x), nn.Upsample((7, 4), mode="bilinear", align_corners=True)),
        IMAGES,
    ),
    "linear": (after(nn.Conv1d(3, 4, 1), lambda x: F.interpolate(x, 11, mode="linear")), LINES),
    "uneven windows": (after(nn.Conv2d(2, 3, 1), lambda x: F.adaptive_avg_pool2d(x, (4, 3))), IMAGES),
    "means without a border": (
        after(nn.Conv2d(2, 3, 1), lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)),
        IMAGES,
    ),
    "quotient": (two(lambda x, y: x / (1 + y.abs())), ROWS),
    "quotient by a constant": (
        after(nn.Linear(6, 5), lambda x: x / torch.tensor([0.3, 1.0, -2.0, 5.0, 7.0])),
        ROWS,
    ),
}
CASES = {**EXACT, **ROUNDED}


def prepared(model, *inputs, names=("x",), precision="fixed(8,4)"):
    """A graph that is ready to be lowered; parameters that differ from channel to channel."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "layers.1" in name:
            nn.init.normal_(parameter)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d):
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 2)
    graph, *_ = prepare_graph(
        MaseGraph(model.eval(), dict(zip(names, inputs, strict=True))), Build(precision=precision)
    )
    return graph


def given(graph, *inputs):
    """What the hardware gives for real inputs, as numbers again, with its first format."""
    design = lower_graph(graph)
    assert not design.unsupported
    values = [each.out.format.encode(value.double()) for each, value in zip(design.inputs, inputs, strict=True)]
    results = integer_graph(design).model(*values)
    results = results if isinstance(results, tuple) else (results,)
    formats = [design.operations[name].out.format for name in design.outputs]
    return [format.decode(each).float() for format, each in zip(formats, results, strict=True)], formats[0]


@pytest.mark.parametrize("name", EXACT)
def test_the_integers_are_those_of_the_quantised_graph(name):
    model, shape = EXACT[name]
    values = torch.randn(shape)
    graph = prepared(model, values)
    (found,), _ = given(graph, values)
    assert torch.equal(found, graph.model(values).float())


@pytest.mark.parametrize("name", ROUNDED)
def test_others_are_off_by_one_step_at_most_and_seldom(name):
    model, shape = ROUNDED[name]
    torch.manual_seed(4)
    values = 4 * torch.randn(40, *shape[1:])  # to the length of a vector of few steps, hardware adds one
    graph = prepared(model, values)
    (found,), format = given(graph, values)
    difference = (found - graph.model(values)).abs()
    assert difference.max() <= 2.0**-format.fraction_width
    assert (difference == 0).float().mean() > 0.9


@VERILATOR
@pytest.mark.parametrize(
    "names",
    [
        ("log_softmax", "glu", "quotient", "cosine"),
        ("maximum", "logic", "where", "normalize"),
        ("transposed", "transposed, cropped", "group norm", "adaptive max"),
        ("transposed, uneven", "slopes of channels", "normalize channels"),
        ("bilinear", "means without a border", "uneven windows"),
        ("einsum of matrices",),
    ],
    ids="+".join,
)
def test_verilator_gives_the_same_integers(tmp_path, names):
    """Several beside each other, of one input: one program for all."""
    models = [CASES[name][0] for name in names]
    shape = CASES[names[0]][1]

    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(models)

        def forward(self, x):
            return tuple(part(x) for part in self.parts)

    design = lower_graph(prepared(Beside(), torch.randn(shape)))
    assert not design.unsupported
    check(emit_folder(design, fold_design(design, multipliers=60), "Beside", random_inputs(design, 8)), tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_as_hardware_puts_the_very_integers_into_a_graph(name):
    """Also where one node is several operations."""
    model, shape = CASES[name]
    values = torch.randn(shape)
    (wanted,), _ = given(prepared(model, values), values)
    graph, told = passes.as_hardware_transform_pass(prepared(model, values))
    assert told["without"] == {}
    assert torch.equal(graph.model(values).float(), wanted)


class Padded(nn.Module):
    """What comes after the end of a sentence is nobody's matter."""

    def __init__(self):
        super().__init__()
        self.words, self.query, self.key = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def scores(self, x):
        hidden = self.words(x)
        return self.query(hidden) @ self.key(hidden).transpose(1, 2), hidden

    def forward(self, x):
        scores, hidden = self.scores(x)
        return torch.softmax(scores.masked_fill((x == 0)[:, None], -1e9), -1) @ hidden


class Added(Padded):
    """The same with a mask that is added."""

    def forward(self, x):
        scores, hidden = self.scores(x)
        mask = torch.zeros(x.shape).masked_fill(x == 0, float("-inf"))
        return torch.softmax(scores + mask[:, None], -1) @ hidden


class Counted(Padded):
    """The mean of the words that there are."""

    def forward(self, x):
        kept = (x > 0).unsqueeze(-1).float()
        return (self.words(x) * kept).sum(1) / kept.sum(1).clamp(min=1)


def sentences():
    torch.manual_seed(5)
    words = torch.randint(1, 12, (30, 5))
    words[torch.arange(5) >= torch.randint(1, 6, (30, 1))] = 0
    return words


class Marked(Padded):
    """A flag that is added is no mask."""

    def forward(self, x):
        return self.query(self.words(x)) + (x > 3).unsqueeze(-1).float()


class Low(Padded):
    """A mask that is computed from flags, and added."""

    def forward(self, x):
        scores, hidden = self.scores(x)
        return torch.softmax(scores + ((1.0 - (x > 0).float()) * -10000.0)[:, None], -1) @ hidden


MASKED = [Padded(), Added(), Counted(), Marked(), Low()]


@pytest.mark.parametrize("model", MASKED, ids=[type(model).__name__.lower() for model in MASKED])
def test_masks_that_depend_on_the_inputs(model):
    words = sentences()
    graph = prepared(model, words)
    (found,), format = given(graph, words)
    difference = (found - graph.model(words)).abs()
    assert difference.max() <= 2 * 2.0**-format.fraction_width
    assert (difference == 0).float().mean() > 0.97
    as_hardware, _ = passes.as_hardware_transform_pass(prepared(model, words))
    assert torch.equal(as_hardware.model(words), found)


class Placed(Padded):
    """Words and their places, which have a smaller table."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(6, 8)

    def forward(self, x):
        places = torch.arange(x.shape[1]).unsqueeze(0).expand_as(x)
        return self.query(self.words(x) + self.places(places))


def test_an_input_is_as_wide_as_the_tables_that_it_is_an_index_of():
    words = sentences()
    graph = prepared(Placed(), words)
    assert [each.options["below"] for each in lower_graph(graph).inputs] == [12]
    (found,), _ = given(graph, words)
    assert torch.equal(found, graph.model(words))


def test_columns_of_one_input_may_be_indices_of_several_tables():
    class Columns(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(9, 4), nn.Embedding(5, 4)])

        def forward(self, x):
            return torch.cat([table(x[:, index]) for index, table in enumerate(self.tables)], 1)

    columns = torch.randint(0, 5, (7, 2))
    graph = prepared(Columns(), columns)
    assert [each.options["below"] for each in lower_graph(graph).inputs] == [5]
    (found,), _ = given(graph, columns)
    assert torch.equal(found, graph.model(columns))


def test_what_is_masked_out_decides_nothing():
    model, words = Padded(), sentences()
    graph = prepared(model, words)
    lengths = (words > 0).sum(1)
    alone = words[lengths == 2][:1]
    (before,), _ = given(graph, alone)
    changed = graph.module.get_parameter("words.weight")
    with torch.no_grad():
        changed[0] += 3
    (after_,), _ = given(graph, alone)
    assert torch.equal(before[:, :2], after_[:, :2])


@VERILATOR
def test_verilator_masks_as_well(tmp_path):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([Padded(), Counted()])

        def forward(self, x):
            return tuple(part(x) for part in self.parts)

    design = lower_graph(prepared(Both(), sentences()))
    assert not design.unsupported
    assert len(design.inputs) == 1
    check(emit_folder(design, fold_design(design, multipliers=30), "Both", random_inputs(design, 8)), tmp_path)


@pytest.mark.parametrize(
    ("model", "shape", "why"),
    [
        (after(nn.Conv1d(3, 5, 1), lambda x: x.min(2)[1].float()), LINES, "min"),
        (after(nn.Linear(6, 5), lambda x: F.normalize(x, p=1)), ROWS, "p=1"),
        (two(lambda x, y: torch.div(x, y, rounding_mode="floor")), ROWS, "rounds the quotient"),
        (two(lambda x, y: torch.einsum("bi,cj->bcij", x, y)), ROWS, "does not have the batch first"),
        (two(lambda x, y: torch.einsum("bi,bj->b", x, y)), ROWS, "sums one operand alone"),
        (after(nn.Linear(6, 5), lambda x: F.log_softmax(x, 0)), ROWS, "goes over the batch"),
    ],
)
def test_what_has_no_hardware_says_why(model, shape, why):
    told = lower_graph(prepared(model, torch.randn(shape))).unsupported
    assert any(why in each.why for each in told), told


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [(3, 2, 1, 1), (4, 2, 1, 1), (2, 3, 0, 2)])
def test_filters_of_a_transposed_convolution_are_its_own_put_in_another_order(kernel, stride, padding, dilation):
    """No product is made twice, and none with what is not there."""
    count = 4 * stride
    axis = Axis(kernel, stride, padding, dilation, 5, count)
    filters = convolution_weights(torch.arange(1.0, kernel + 1).expand(1, 1, 1, -1), (Axis(1, 1, 0, 1, 1, 1), axis), 1)
    assert sorted(each for each in filters.flatten().tolist() if each) == list(range(1, kernel + 1))


@VERILATOR
def test_an_input_may_have_fewer_numbers_than_its_reader_takes_at_once(tmp_path):
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x, t):
            return self.layer(torch.cat([x, t], 1))

    design = lower_graph(prepared(Joined(), torch.randn(4, 2), torch.randn(4, 1), names=("x", "t")))
    made = emit_folder(design, fold_design(design, multipliers=6), "Joined", random_inputs(design, 9))
    check(made, tmp_path)
