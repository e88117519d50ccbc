"""A drawing with number formats, and the table of what quantisation did, against formats written by hand."""

import csv
import json
import re
from xml.etree import ElementTree

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server import MaseGraph, passes
from mase_server.ir.draw import FORMAT_COLOURS, UNROUNDED_COLOUR
from tests.ir.models import bert_inputs, bert_tiny


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


CONFIG = {"by": "name", "first": "fixed(8,4)", "second": "fixed(16,8)"}


def quantised():
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(3, 4)
    return model, x, passes.quantize_transform_pass(MaseGraph(model, {"x": x}), CONFIG)[0]


def rows_of(found):
    return {row["node"]: row for row in found["rows"]}


def test_formats_stand_on_the_edges_in_place_of_element_types(tmp_path):
    _, _, graph = quantised()
    _, found = passes.plot_graph_analysis_pass(graph, {"file_name": str(tmp_path / "graph.svg")})
    text = (tmp_path / "graph.svg").read_text()
    assert found == {"file": str(tmp_path / "graph.svg"), "nodes": len(graph.nodes)}
    assert {"fixed(8,4)[B, 4]", "fixed(8,4)[8, 4]", "fixed(8,4)[B, 8]", "fixed(16,8)[B, 2]", "f32[2, 8]"} <= set(
        re.findall(r">([^<>]*\[[^<>]*\])<", text)
    )


def test_boxes_are_coloured_by_format_and_the_legend_names_them(tmp_path):
    _, _, graph = quantised()
    passes.plot_graph_analysis_pass(graph, {"file_name": str(tmp_path / "graph.svg"), "colours": "format"})
    text = (tmp_path / "graph.svg").read_text()
    assert ElementTree.fromstring(text) is not None
    fills = re.findall(r'class="b"[^>]*fill="(#\w+)"', text)
    legend = re.findall(r'y="18">([^<]*)<', text)
    assert set(legend) == {"fixed(8,4)", "fixed(16,8)", "not rounded"}
    assert set(fills) == {*FORMAT_COLOURS[:2], UNROUNDED_COLOUR}


def test_other_colours_are_refused():
    with pytest.raises(ValueError, match="plot_graph: colours is 'red', expected family or format"):
        passes.plot_graph_analysis_pass(quantised()[2], {"colours": "red"})


def test_every_operator_has_the_formats_of_what_it_reads_and_gives():
    _, _, graph = quantised()
    _, found = passes.summarize_quantization_analysis_pass(graph)
    rows = rows_of(found)
    assert list(rows) == ["first", "tanh", "second"]
    eight, sixteen = "fixed(8,4)", "fixed(16,8)"
    assert rows["first"]["arguments"] == {"data_in_0": eight, "weight": eight, "bias": eight}
    assert (rows["first"]["original"], rows["first"]["format"], rows["first"]["layer"]) == ("f32", eight, "first")
    assert (rows["tanh"]["arguments"], rows["tanh"]["format"]) == ({"data_in_0": eight}, sixteen)
    assert rows["second"]["arguments"] == {"data_in_0": sixteen, "weight": sixteen, "bias": sixteen}
    # 24 elements of 8 bits go into tanh, 24 of 16 come out.
    assert (rows["tanh"]["bits_before"], rows["tanh"]["bits_after"]) == (32.0, 12.0)
    assert found["histogram"]["linear"] == {"total": 2, "changed": 2, "unchanged": 0}
    assert found["parameters"] == {"original_bytes": 4 * (40 + 18), "bytes": 40 + 2 * 18}
    assert found["sqnr"] > 20
    assert passes.summarize_quantization_analysis_pass(graph, {"measure": False})[1]["sqnr"] is None


def by_hand(model, x):
    """The same roundings, in eager PyTorch: halves to even, saturated."""

    def fixed(values, width, fraction):
        most = 2 ** (width - 1)
        return (values * 2**fraction).round().clamp(-most, most - 1) / 2**fraction

    def linear(values, layer, width, fraction):
        rounded = [fixed(each, width, fraction) for each in (values, layer.weight, layer.bias)]
        return fixed(F.linear(*rounded), width, fraction)

    first = linear(x, model.first, 8, 4)
    return first, linear(torch.tanh(first), model.second, 16, 8)


def test_measured_errors_are_those_of_eager_roundings():
    model, x, graph = quantised()
    _, found = passes.summarize_quantization_analysis_pass(graph, {"measure": True})
    first, output = by_hand(model, x)
    for name, mine, eager in (("first", first, model.first(x)), ("second", output, model(x))):
        noise, signal = (mine - eager).double().square().sum(), eager.double().square().sum()
        row = rows_of(found)[name]
        assert row["sqnr"] == pytest.approx(10 * torch.log10(signal / noise).item(), abs=1e-3)
        assert row["max_error"] == pytest.approx((mine - eager).abs().max().item(), rel=1e-4)
    assert found["sqnr"] == rows_of(found)["second"]["sqnr"]


def test_a_graph_that_is_given_is_the_original():
    _, x, graph = quantised()
    torch.manual_seed(0)
    other, _ = passes.quantize_transform_pass(MaseGraph(Net().eval(), {"x": x}), {**CONFIG, "second": "fixed(8,4)"})
    _, found = passes.summarize_quantization_analysis_pass(graph, {"original_graph": other, "measure": True})
    rows = rows_of(found)
    assert (rows["first"]["changed"], rows["first"]["sqnr"]) == (False, float("inf"))
    assert (rows["second"]["original"], rows["second"]["format"], rows["second"]["changed"]) == (
        "fixed(8,4)", "fixed(16,8)", True,
    )  # fmt: skip


def test_a_graph_that_was_not_quantised_has_nothing_changed():
    graph = MaseGraph(bert_tiny(), dict(bert_inputs()))
    _, found = passes.summarize_quantization_analysis_pass(graph, {"measure": True})
    assert {row["changed"] for row in found["rows"]} == {False}
    assert {row["sqnr"] for row in found["rows"]} == {float("inf")}
    assert found["parameters"]["bytes"] == found["parameters"]["original_bytes"]


def test_the_tables_are_saved(tmp_path):
    _, _, graph = quantised()
    _, found = passes.summarize_quantization_analysis_pass(graph, {"save_dir": str(tmp_path / "new"), "measure": True})
    with (tmp_path / "new" / "quantize_table.csv").open() as stream:
        table = list(csv.DictReader(stream))
    assert [row["node"] for row in table] == ["first", "tanh", "second"]
    assert table[0]["arguments"] == "data_in_0=fixed(8,4) weight=fixed(8,4) bias=fixed(8,4)"
    histogram = (tmp_path / "new" / "quantize_histogram.csv").read_text().splitlines()
    assert histogram == ["mase_op,total,changed,unchanged", "linear,2,2,0", "tanh,1,1,0"]
    saved = json.loads((tmp_path / "new" / "quantize_summary.json").read_text())
    assert saved["rows"] == found["rows"]


def test_infinity_is_saved_as_a_text(tmp_path):
    graph = MaseGraph(Net().eval(), {"x": torch.randn(3, 4)})
    passes.summarize_quantization_analysis_pass(graph, {"save_dir": str(tmp_path), "measure": True})
    assert json.loads((tmp_path / "quantize_summary.json").read_text())["sqnr"] == "inf"


def test_formats_are_told_behind_nodes_that_were_taken_together():
    model, x, graph = quantised()
    graph, _ = passes.raise_granularity_transform_pass(graph)
    graph, _ = passes.lower_granularity_transform_pass(graph)
    _, found = passes.summarize_quantization_analysis_pass(graph, {"measure": True})
    assert found["rows"][0]["format"] == "fixed(8,4)"
    assert found["max_error"] == pytest.approx((by_hand(model, x)[1] - model(x)).abs().max().item(), rel=1e-4)
