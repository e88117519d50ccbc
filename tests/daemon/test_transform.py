"""What pipelines made lies over a snapshot: values, nodes and models as a plain look into the overlay finds them."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mase_server.daemon.graph_snapshot import GraphSnapshot, Transform
from mase_server.daemon.store import Entry, Store
from mase_server.protocol.snapshot import COLUMNS, MODEL_KEYS, TRANSFORM_NODES
from mase_server.protocol.wire import pack_blob

from .fake_child import overlay
from .test_calls import many
from .test_store import PATH, payload

STEP = {"pass": "quantize", "arguments": {"default": "fixed(8,4)"}}
NODE = ("fc1", "call_module", "fc1", "linear", "module", "matmul", 0, 0, 0, 128, 0, 5, 8, 5, 19,
        pack_blob({"module": "Linear()"}))  # fmt: skip


def traced(size=6, models=2):
    """A snapshot with `size` sites, rows and nodes, in turn of each model."""
    place = {"file_index": 0, "line": 1, "column": 6, "end_line": 1, "end_column": 9}
    facts = [{**dict.fromkeys(MODEL_KEYS, 0), "name": f"Net{index}", **place} for index in range(models)]
    made = payload([(line + 1, 0, line + 1, 1, "x", "binding") for line in range(size)], models=facts)
    made["rows"]["model"] = [row % models for row in range(size)]
    made["nodes"] = {name: [value] * size for name, value in zip(COLUMNS["nodes"], NODE, strict=True)}
    made["nodes"]["model"] = [row % models for row in range(size)]
    return GraphSnapshot(made)


def made_of(model, values, nodes=()):
    """An overlay: {row of rows: its format}, {row of nodes: (format, sqnr, max error, note, saturated)}."""
    nodes = {row: (*facts, None) if len(facts) == 4 else facts for row, facts in dict(nodes).items()}
    columns = zip(*((row, *facts) for row, facts in nodes.items()), strict=True) if nodes else [[]] * 6
    base = overlay(model, [STEP]) | {
        "rows": [list(values), [[text, [2], None] for text in values.values()]],
        "nodes": dict(zip(TRANSFORM_NODES, map(list, columns), strict=True)),
    }
    return Transform.from_wire(base)


def shown(snapshot):
    """The element type at each line."""
    store = Store()
    store.put(Entry(PATH, snapshot.sha256, snapshot))
    return [site.values[0].value[0] for site in store.view(PATH).sites(1, 99)]


FORMATS = st.dictionaries(st.integers(0, 5), st.sampled_from(["fixed(8,4)", "mxint(8,8)"]))


@given(FORMATS, FORMATS)
def test_a_row_shows_what_the_pipeline_of_its_own_model_made_of_it(first, second):
    snapshot = traced()
    over = snapshot.with_transforms({0: made_of(0, first), 1: made_of(1, second)})
    assert shown(over) == [(first, second)[row % 2].get(row, "f32") for row in range(6)]
    assert shown(snapshot) == ["f32"] * 6, "the snapshot without has changed"
    assert shown(over.with_transforms({})) == ["f32"] * 6


def test_a_value_keeps_the_original_only_where_it_differs():
    over = traced(models=1).with_transforms({0: made_of(0, {0: "fixed(8,4)", 1: "f32"})})
    values = [over.site(index).values[0] for index in range(3)]
    assert [value.original for value in values] == [["f32", [2], None], None, None]


def test_the_node_behind_a_value_tells_its_format_and_error():
    over = traced(models=1).with_transforms({0: made_of(0, {}, {2: ("fixed(8,4)", 38.5, 0.25, None)})})
    node, other = over.node(2), over.node(3)
    assert (node.format, node.sqnr, node.max_error, node.note) == ("fixed(8,4)", 38.5, 0.25, None)
    assert (other.format, other.sqnr, other.max_error, other.note) == (None, None, None, None)
    assert (node.mase_op, node.details) == ("linear", {"module": "Linear()"})


def test_a_node_of_another_model_tells_nothing():
    over = traced().with_transforms({1: made_of(1, {}, {2: ("fixed(8,4)", 1.0, 1.0, "gone")})})
    assert over.node(2).format is None


def test_a_model_tells_its_pipeline():
    one, two = traced().with_transforms({1: made_of(1, {})}).models(PATH)
    assert one.transform is None
    assert two.transform["texts"] == ["quantize(default='fixed(8,4)')"]
    assert not {"rows", "nodes"} & set(two.transform)


def test_an_overlay_of_a_model_that_is_not_there_is_left_out():
    assert traced().with_transforms({2: made_of(2, {}), -1: made_of(-1, {})}).transforms == {}


def test_undo_and_redo_build_no_index_anew():
    snapshot = traced(size=5000).prepare()
    over = snapshot.with_transforms({0: made_of(0, {0: "fixed(8,4)"})})
    assert over._tables is snapshot._tables
    assert over.index(PATH)._find_model_places is snapshot.index(PATH)._find_model_places


def test_an_overlay_of_ten_thousand_nodes_gives_the_collector_nothing_to_look_at():
    data = many(10_000)
    gc.collect()
    before = len(gc.get_objects())
    transform = Transform.from_wire(data)
    assert len(gc.get_objects()) - before < 50
    assert transform.node(9_999) == ("fixed(8,4)", 40.0, 0.1, None, None)


@pytest.mark.parametrize("column", ["row", "format", "note"])
def test_columns_that_do_not_fit_together_are_refused(column):
    data = many(3)
    data["nodes"][column].pop()
    with pytest.raises(ValueError, match=r"^the columns of a transform of model 0 are not of one length$"):
        Transform.from_wire(data)
