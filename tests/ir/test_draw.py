"""The drawing: a well-formed SVG that shows every node once, nothing overlapping, edges from node to node."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx, nn

from mase_server import MaseGraph
from mase_server.ir.draw import COLOURS, draw, graph_svg
from mase_server.ir.layout import Cluster, Layout, Placed, build_cluster_tree
from mase_server.ops.types import FAMILIES
from tests.examples.cases import BY_FILE
from tests.ir.checkpoints import small

SVG = "{http://www.w3.org/2000/svg}"
XHTML = "{http://www.w3.org/1999/xhtml}"


def graph_of(name):
    case = BY_FILE[name]
    torch.manual_seed(0)
    return MaseGraph(case.build(case.load()).eval(), case.inputs(case.sizes))


@pytest.fixture(scope="module", params=["mlp.py", "multimodal.py", "bert_hf.py", "resnet.py", "vae.py"])
def graph(request):
    return graph_of(request.param)


def titles(text):
    return [one.text for one in ElementTree.fromstring(text).iter(f"{SVG}title")]


def test_every_node_is_drawn_once_with_a_tooltip(graph):
    found = [title.partition(":")[0] for title in titles(graph_svg(graph))]
    assert sorted(found) == sorted(node.name for node in graph.nodes)


def test_every_scope_is_a_box_that_folds_away_without_any_script(graph):
    root = ElementTree.fromstring(graph_svg(graph))
    boxes = [group for group in root.iter(f"{SVG}g") if group.get("class") == "c"]
    labels = {group.find(f"{SVG}text").text or "" for group in boxes}
    assert {node.meta["scope"].module_path for node in graph.nodes if "scope" in node.meta} <= labels
    for group in boxes:
        assert group.find(f"{SVG}foreignObject/{XHTML}input").get("type") == "checkbox"
        assert group.find(f"{SVG}g").get("class") == "i"
    assert not list(root.iter(f"{SVG}script"))


def test_shapes_on_the_edges_have_named_dimensions():
    text = graph_svg(graph_of("multimodal.py"))
    assert "f32[B, 3, H, W]" in text
    assert "i64[B, T]" in text
    assert "f32[B, T, 128]" in text


def test_a_tooltip_says_what_a_module_is_takes_and_gives():
    found = next(title for title in titles(graph_svg(graph_of("multimodal.py"))) if title.startswith("classifier:"))
    assert found.splitlines() == [
        "classifier: call_module classifier", "scope: (the model)",
        "Linear(in_features=128, out_features=30, bias=True)", "takes mean_1 f32[B, 128]", "gives f32[B, 30]",
    ]  # fmt: skip


def test_every_family_has_a_colour():
    assert set(FAMILIES) <= set(COLOURS)


def test_a_family_is_one_colour_and_is_in_the_legend():
    graph = graph_of("mlp.py")
    rects = [
        one.get("fill")
        for one in ElementTree.fromstring(graph_svg(graph)).iter(f"{SVG}rect")
        if one.get("class") == "b"
    ]
    linears = [node for node in graph.nodes if isinstance(graph.modules.get(str(node.target)), nn.Linear)]
    assert rects.count(COLOURS["matmul"]) == len(linears) + 1


def test_names_of_the_user_cannot_break_the_document():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.relu(x)

    Odd.__name__ = '<&">'
    text = graph_svg(MaseGraph(Odd(), {"x": torch.ones(2)}))
    assert "&lt;&amp;" in text
    assert ElementTree.fromstring(text) is not None


def test_a_graph_from_a_checkpoint_and_a_transformed_one_can_be_drawn(tmp_path):
    graph = small()
    graph.export(str(tmp_path / "graph"))
    loaded = MaseGraph.from_checkpoint(str(tmp_path / "graph"))
    assert len(titles(graph_svg(loaded))) == len(graph.nodes)
    node = next(node for node in graph.nodes if node.op == "call_module")
    with graph.fx_graph.inserting_after(node):
        graph.fx_graph.call_function(torch.relu, (node,))
    assert len(titles(graph_svg(graph))) == len(loaded.nodes) + 1


def test_the_default_file_is_mase_graph_svg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small().draw()
    assert ElementTree.parse("mase_graph.svg").getroot().tag == f"{SVG}svg"


def test_bert_base_is_under_two_megabytes(tmp_path):
    from transformers import BertConfig, BertModel

    with torch.device("meta"):
        model = BertModel(BertConfig()).eval()
    ids = torch.randint(0, 1000, (2, 16))
    graph = MaseGraph(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    draw(graph, tmp_path / "bert.svg")
    assert len(graph.nodes) > 200
    assert (tmp_path / "bert.svg").stat().st_size < 2_000_000


def test_without_igraph_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(ImportError) as caught:
        graph_svg(small())
    assert str(caught.value) == (
        "drawing a graph needs the package igraph for its layout: pip install igraph (or mase-server[draw])"
    )


# The layout


def boxes_of(placed, x=0.0, y=0.0):
    """(left, top, right, bottom, content) of everything in a cluster's own coordinates, one level deep."""
    for child, dx, dy in placed.children:
        width, height = (child.width, child.height) if isinstance(child, Placed) else (60.0, 30.0)
        yield x + dx, y + dy, x + dx + width, y + dy + height, child


def levels(placed):
    yield placed
    for child, _, _ in placed.children:
        if isinstance(child, Placed):
            yield from levels(child)


@st.composite
def scoped_graphs(draw_from):
    """A random graph whose nodes are in random scopes."""
    graph, paths = fx.Graph(), {}
    nodes = [graph.placeholder("x")]
    paths[nodes[0]] = ""
    for _ in range(draw_from(st.integers(1, 18))):
        taken = draw_from(st.lists(st.sampled_from(nodes), max_size=3))
        node = graph.call_function(torch.stack, (taken,))
        paths[node] = draw_from(st.sampled_from(["", "a", "a.b", "a.b.c", "d", "d.e"]))
        nodes.append(node)
    nodes.append(graph.output(nodes[-1]))
    paths[nodes[-1]] = ""
    return nodes, paths


KINDS = {"a": "A", "a.b": "B", "a.b.c": "C", "d": "D", "d.e": "E"}


def laid_out(found):
    nodes, paths = found
    return Layout(nodes, dict.fromkeys(nodes, (60.0, 30.0, 30.0))).place(build_cluster_tree(nodes, paths, KINDS))


@given(scoped_graphs())
def test_nothing_overlaps_and_everything_is_inside_its_box(found):
    for placed in levels(laid_out(found)):
        rows = list(boxes_of(placed))
        for left, top, right, bottom, _ in rows:
            assert left >= -0.5
            assert top >= 0
            assert right <= placed.width + 0.5
            assert bottom <= placed.height + 0.5
        for one, other in itertools.combinations(rows, 2):
            apart = one[2] <= other[0] + 0.5 or other[2] <= one[0] + 0.5 or one[3] <= other[1] or other[3] <= one[1]
            assert apart, (one, other)


@given(scoped_graphs())
def test_every_node_is_placed_below_what_it_takes(found):
    for placed in levels(laid_out(found)):
        tops = {}
        for _, top, _, bottom, child in boxes_of(placed):
            inside = [child] if isinstance(child, fx.Node) else nodes_in(child)
            tops |= dict.fromkeys(inside, (top, bottom, child))
        for node, (top, _, child) in tops.items():
            for source in node.all_input_nodes:
                if source in tops and tops[source][2] is not child:
                    assert tops[source][1] <= top


def nodes_in(placed):
    return [
        node for child, _, _ in placed.children for node in ([child] if isinstance(child, fx.Node) else nodes_in(child))
    ]


@given(scoped_graphs())
def test_lines_go_down_and_cross_no_box_of_their_level(found):
    for placed in levels(laid_out(found)):
        rows = list(boxes_of(placed))
        for x0, start, bend, x1, straight, end in placed.lines:
            assert start <= bend <= straight <= end
            for left, top, right, bottom, _ in rows:
                for x, high, low in ((x0, start, bend), (x1, straight, end)):
                    crosses = left + 1 < x < right - 1 and high < bottom - 1 and low > top + 1
                    assert not crosses, (x, high, low, left, top, right, bottom)


@given(scoped_graphs())
def test_clusters_hold_every_node_once_in_order_and_by_scope(found):
    nodes, paths = found

    def walk(cluster):
        for child in cluster.children:
            if isinstance(child, Cluster):
                assert child.path.startswith(cluster.path)
                yield from walk(child)
            else:
                assert paths[child] == cluster.path
                yield child

    assert list(walk(build_cluster_tree(nodes, paths, KINDS))) == nodes


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser here")
def test_a_browser_draws_it(tmp_path):
    draw(graph_of("multimodal.py"), tmp_path / "graph.svg")
    size = re.search(r'width="(\d+)" height="(\d+)"', (tmp_path / "graph.svg").read_text()).groups()
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={','.join(size)}",
        f"--screenshot={tmp_path / 'graph.png'}", (tmp_path / "graph.svg").as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert Path(tmp_path / "graph.png").stat().st_size > 20_000
