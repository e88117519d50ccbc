"""A model of which a part has no hardware: the rest is there, with streams in place of what is missing."""

import re

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.hardware.emission import emit_folder, random_inputs
from mase_server.hardware.folding import fold_design
from mase_server.hardware.lowering import lower_graph
from mase_server.hardware.twin import integer_graph
from mase_server.passes.verilog.told import arguments_of
from tests.hardware.simulating import check
from tests.hardware.test_emission import VERILATOR, make
from tests.hardware.test_lowering import config, quantised


class Middle(nn.Module):
    """What has no hardware stands between two layers, and one of them is also read beside it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.side = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x):
        x = F.relu(self.first(x))
        return self.second(torch.cumsum(x, 1)), self.side(x)


class Ends(nn.Module):
    """What has no hardware comes first and last."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.cumsum(self.layer(torch.cumsum(x, 1)), 1)


class Recurrent(nn.Module):
    """A layer without hardware that gives a tuple."""

    def __init__(self):
        super().__init__()
        self.layer, self.after = nn.Linear(4, 4), nn.Linear(12, 2)
        self.lstm = nn.LSTM(4, 6, batch_first=True, bidirectional=True)

    def forward(self, x):
        values, _ = self.lstm(self.layer(x))
        return self.after(F.relu(values))


class Two(nn.Module):
    """Two operators without hardware, one after the other, and one of them again beside."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = torch.cumsum(torch.flip(torch.cumprod(self.first(x), 1), (1,)), 1)
        return self.last(x)


class Mixing(nn.Module):
    """What is missing gives a tensor without samples, so no stream can stand for it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        return self.last(F.relu(torch.cumsum(x, 1).sum(0)))


class Values(fx.Interpreter):
    """The value of every node of a run."""

    def __init__(self, model):
        super().__init__(model)
        self.values = {}

    def run_node(self, n):
        self.values[n.name] = value = super().run_node(n)
        return value


def run(graph, *values):
    found = Values(graph.model)
    found.run(*values)
    return found.values


def results(design, values):
    """What the integers of a design are, given the values of the nodes that its inputs stand for."""
    inputs = [each.out.format.encode(values[each.nodes[0]]) for each in design.inputs]
    given = integer_graph(design).model(*inputs)
    given = given if isinstance(given, tuple) else (given,)
    return {
        name: design.operations[name].out.format.decode(integers).float()
        for name, integers in zip(design.outputs, given, strict=True)
    }


def rounded(design, name, values):
    """The value of the last node that an operation is."""
    return values[design.operations[name].nodes[-1]]


@pytest.mark.parametrize(
    ("model", "shape", "missing", "inputs", "outputs"),
    [
        (Middle(), (4,), ["cumsum"], ["x", "cumsum"], ["second", "side", "first"]),
        (Ends(), (4,), ["cumsum", "cumsum_1"], ["cumsum"], ["layer"]),
        (Recurrent(), (3, 4), ["lstm"], ["x", "getitem"], ["after", "layer"]),
        (Two(), (4,), ["cumprod", "cumsum"], ["x", "cumsum"], ["last", "first"]),
    ],
    ids=["middle", "ends", "tuple", "two"],
)
def test_the_rest_computes_what_the_quantised_graph_does(model, shape, missing, inputs, outputs):
    torch.manual_seed(3)
    graph = quantised(model, torch.randn(5, *shape), config())
    design = lower_graph(graph)
    assert [each.node for each in design.unsupported if each.operator != "flip"] == missing
    assert [each.name for each in design.inputs] == inputs
    assert list(design.outputs) == outputs
    values = run(graph, torch.randn(5, *shape))
    for name, found in results(design, values).items():
        assert torch.equal(found, rounded(design, name, values)), name


def test_the_page_says_which_ports_stand_in_place_of_what_is_missing():
    design = lower_graph(quantised(Middle(), torch.randn(2, 4), config()))
    page = emit_folder(design, fold_design(design), "Middle", random_inputs(design, 2)).files["README.md"]
    ports = dict(re.findall(r"^\| `(data_\w+)` \| ([^|]*) \|", page, re.M))
    assert ports["data_in_0"] == "x"
    assert ports["data_in_1"] == "the missing result of cumsum"
    assert {told for port, told in ports.items() if "out" in port} == {"second", "side", "first, for a missing node"}


def test_what_only_follows_something_missing_is_not_told_as_well():
    design = lower_graph(quantised(Mixing(), torch.randn(5, 4), config()))
    assert [each.node for each in design.unsupported] == ["cumsum"]
    assert design.outputs == ("first",)
    assert "last" not in design.operations


def test_a_layer_that_gives_a_tuple_is_told_by_its_own_name():
    design = lower_graph(quantised(Recurrent(), torch.randn(2, 3, 4), config()))
    assert [(each.operator, each.why.split(",")[0]) for each in design.unsupported] == [("lstm", "it goes both ways")]


def test_cut_streams_are_known():
    assert lower_graph(quantised(Middle(), torch.randn(2, 4), config())).cut == {"cumsum", "first"}


def test_a_whole_design_has_none():
    design = lower_graph(quantised(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4), config()))
    assert (design.unsupported, design.cut) == ((), frozenset())


def test_nothing_computes_a_model_without_any_hardware():
    class Nothing(nn.Module):
        def forward(self, x):
            return torch.cumsum(x, 1)

    design = lower_graph(quantised(Nothing(), torch.randn(2, 4), config()))
    assert design.outputs == ()
    with pytest.raises(ValueError, match="no part of the model has hardware"):
        integer_graph(design)


def emitted(model, *shape):
    design = lower_graph(quantised(model, torch.randn(2, *shape), config()))
    return emit_folder(design, fold_design(design), type(model).__name__, random_inputs(design, 20))


def test_the_text_says_what_is_missing_and_which_ports_are_in_its_place():
    about = [line for line in emitted(Middle(), 4).top.text.splitlines() if line.startswith("///")]
    assert about[2:] == [
        "/// It is incomplete. Without hardware:",
        "/// - cumsum (cumsum): there is no component for cumsum: each of its results needs the one before, and "
        "streams have no feedback; compute it outside of the hardware",
        "/// data_in_1 takes the missing result of cumsum.",
        "/// data_out_2 gives the part of first that a missing node would read.",
    ]


@pytest.mark.slow
@VERILATOR
@pytest.mark.parametrize(("model", "shape"), [(Middle(), (4,)), (Ends(), (4,))], ids=["middle", "ends"])
def test_verilator_gives_the_same_integers_of_the_rest(tmp_path, model, shape):
    check(emitted(model, *shape), tmp_path)
    assert make(tmp_path, "lint").stderr == ""


class Named(nn.Module):
    """Its inputs come in a dict."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, batch):
        return {"sum": self.left(batch["a"]) + self.right(batch["b"])}


def test_inputs_in_a_dict_are_inputs_of_their_own():
    torch.manual_seed(8)
    given = {"a": torch.randn(5, 3), "b": torch.randn(5, 4)}
    graph = passes.quantize_transform_pass(MaseGraph(Named().eval(), {"batch": given}), config())[0]
    design = lower_graph(graph)
    assert [each.out.shape for each in design.inputs] == [(3,), (4,)]
    assert design.unsupported == ()
    assert arguments_of(graph) | {"batch": ""} == {"batch": "", "getitem": "a", "getitem_1": "b"}
    values = run(graph, given)
    (found,) = results(design, values).values()
    assert torch.equal(found, graph.model(given)["sum"])


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x + torch.randn_like(x), "for randn_like: it draws random numbers"),
        (lambda x: torch.sort(x, 1)[0], "for sort: it returns indices of values"),
        (lambda x: torch.cumsum(x, 1), "for cumsum: each of its results needs the one before"),
        (torch.lgamma, "for lgamma; docs/hardware.md lists what there is"),
    ],
)
def test_the_reason_says_what_a_person_could_do(function, why):
    class Called(nn.Module):
        def forward(self, x):
            return function(x)

    (told,) = lower_graph(quantised(nn.Sequential(nn.Linear(4, 4), Called()), torch.randn(2, 4), config())).unsupported
    assert f"there is no component {why}" in told.why
