"""The store: views over many snapshots equal what a plain search through the payloads finds."""

import random
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mase_server.daemon.graph_snapshot import GraphSnapshot, ModelView
from mase_server.daemon.store import Entry, Store
from mase_server.protocol.records import ModelRecord
from mase_server.protocol.snapshot import COLUMNS, HEAD_KEYS, KINDS, MODEL_KEYS, Problem
from mase_server.protocol.wire import pack_blob

PATH = "/w/net.py"


def payload(sites=(), path=PATH, sha="1", files=None, **more):
    """A payload with one row a site; a site is (line, column, end_line, end_column, name, kind[, file])."""
    tables = {table: {name: [] for name in names} for table, names in COLUMNS.items()}
    for index, (line, column, end_line, end_column, name, kind, *file) in enumerate(sites):
        row = (file[0] if file else 0, line, column, end_line, end_column, name, KINDS.index(kind), "Net.forward")
        for key, value in zip(COLUMNS["sites"], row, strict=True):
            tables["sites"][key].append(value)
        for key, value in zip(COLUMNS["rows"], (index, 0, 0, 2, [0], -1), strict=True):
            tables["rows"][key].append(value)
    head = dict.fromkeys(HEAD_KEYS) | {
        "file": path, "sha256": sha, "generation": 1, "complete": True, "problems": [], "unshown": [],
        "models": [{"name": "Net"}], "values": [["f32", [2], None]], "scopes": [[0, "layers.0", "Block"]],
        "files": files or [{"path": path, "sha256": sha, "library": False}],
    }  # fmt: skip
    return {**head, **tables, **more}


def store_of(*payloads):
    store = Store()
    for one in payloads:
        store.put(Entry(one["file"], one["sha256"], GraphSnapshot(one), False, ()))
    return store


POSITIONS = st.tuples(st.integers(1, 30), st.integers(0, 20), st.integers(0, 4), st.integers(1, 9))
SITES = st.lists(
    POSITIONS.map(lambda p: (p[0], p[1], p[0] + p[2], p[1] + p[3], f"n{p[1]}", KINDS[sum(p) % 4])),
    unique_by=lambda site: site[:4],
    max_size=40,
)


@given(SITES, st.integers(1, 32), st.integers(0, 32), st.sets(st.sampled_from(KINDS)))
def test_sites_of_some_lines_are_those_that_start_there_in_order(sites, first, extra, kinds):
    view = store_of(payload(sites)).view(PATH)
    found = view.sites(first, first + extra, frozenset(kinds) or None)
    expected = [site for site in sites if first <= site[0] <= first + extra and (not kinds or site[5] in kinds)]
    assert sorted(site.extent for site in found) == sorted(site[:4] for site in expected)
    assert [(site.line, site.column) for site in found] == sorted((site[0], site[1]) for site in expected)


@given(SITES, st.integers(1, 35), st.integers(0, 32))
def test_at_finds_a_site_exactly_where_one_covers_the_position(sites, line, column):
    found = store_of(payload(sites)).view(PATH).at(line, column)
    covering = [site for site in sites if site[:2] <= (line, column) <= site[2:4]]
    inside = [site for site in covering if (line, column) < site[2:4]] or covering
    assert (found is None) == (not covering)
    if found is not None:
        size = (found.end_line - found.line, found.end_column - found.column)
        assert size == min((site[2] - site[0], site[3] - site[1]) for site in inside)


def test_a_name_beats_an_expression_of_the_same_extent():
    sites = [(1, 0, 1, 5, "", "expression"), (1, 0, 1, 5, "", "return")]
    assert store_of(payload(sites)).view(PATH).at(1, 2).kind == "return"


def test_a_value_tells_its_model_count_scopes_and_node():
    (site,) = store_of(payload([(1, 0, 1, 1, "x", "binding")])).view(PATH).sites(1, 1)
    (value,) = site.values
    assert (value.value, value.model, value.count, value.node) == (["f32", [2], None], "Net", 2, None)
    assert value.scopes == (("layers.0", "Block"),)


def test_a_module_of_two_models_shows_the_values_of_both():
    files = [{"path": path, "sha256": "m", "library": False} for path in ("/w/a.py", "/w/part.py")]
    site = (3, 4, 3, 5, "x", "binding", 1)
    one = payload([site], path="/w/a.py", files=files)
    two = payload([site], path="/w/b.py", files=files, models=[{"name": "Other"}])
    for traced in ((one, two), (two, one)):
        view = store_of(*traced).view("/w/part.py")
        (found,) = view.sites(1, 9)
        assert [value.model for value in found.values] == ["Net", "Other"], "in the same order, whichever ended last"
        assert view.at(3, 4).values == found.values


def test_a_module_met_at_two_contents_is_shown_as_the_newest_saw_it():
    site = (3, 4, 3, 5, "x", "binding", 1)
    old = payload([site], path="/w/a.py", files=[{"path": one, "sha256": "old", "library": False} for one in "am"])
    new = payload([site], path="/w/b.py", files=[{"path": one, "sha256": "new", "library": False} for one in "bm"])
    view = store_of(old, new).view("m")
    assert view.sha256 == "new"
    assert len(view.sites(1, 9)[0].values) == 1


def test_a_view_stays_whole_when_the_store_moves_on():
    store = store_of(payload([(1, 0, 1, 1, "old", "binding")]))
    view = store.view(PATH)
    store.put(Entry(PATH, "2", GraphSnapshot(payload([(1, 0, 1, 1, "new", "binding")], sha="2"))))
    assert [site.name for site in view.sites(1, 1)] == ["old"]
    assert [site.name for site in store.view(PATH).sites(1, 1)] == ["new"]


def test_changed_paths_hold_the_files_of_before_and_after():
    store = Store()
    files = [{"path": path, "sha256": "1", "library": False} for path in (PATH, "/w/gone.py")]
    assert store.put(Entry(PATH, "1", GraphSnapshot(payload(files=files)))) == {PATH, "/w/gone.py"}
    problem = Problem("/w/blamed.py", 1, 0, 1, 1, "error", "crashed", "text")
    changed = store.put(Entry(PATH, "2", GraphSnapshot(payload()), True, (problem,)))
    assert changed == {PATH, "/w/gone.py", "/w/blamed.py"}
    assert store.view("/w/blamed.py").problems() == [problem]
    assert store.view("/w/gone.py") is None
    assert store.drop(PATH) == {PATH, "/w/blamed.py"}
    assert store.view(PATH) is None


def test_a_problem_that_two_models_report_is_shown_once():
    problem = Problem("/w/part.py", 1, 0, 1, 1, "error", "shape-mismatch", "text")
    store = Store()
    store.put(Entry("/w/a.py", "1", None, False, (problem,)))
    store.put(Entry("/w/b.py", "1", None, False, (problem,)))
    assert store.view("/w/part.py").problems() == [problem]


def test_a_stale_view_says_which_text_its_hints_and_which_its_problems_speak_of():
    store = Store()
    problem = Problem(PATH, 1, 0, 1, 1, "error", "syntax-error", "text")
    store.put(Entry(PATH, "new", GraphSnapshot(payload(sha="old")), True, (problem,)))
    view = store.view(PATH)
    assert (view.stale, view.sha256, view.problems_sha256) == (True, "old", "new")


def test_a_view_of_a_model_has_every_key_of_its_record():
    places = {"file_index"}  # a view has the path in its place
    assert {*ModelRecord.__annotations__} - places <= {*ModelView.__dataclass_fields__}


def test_models_are_those_whose_class_stands_in_the_file():
    facts = dict.fromkeys(MODEL_KEYS, 0) | {"name": "Net", "line": 3, "future_key": 1}
    files = [{"path": path, "sha256": "1", "library": False} for path in (PATH, "/w/part.py")]
    models = [{**facts, "file_index": 0}, {**facts, "file_index": 1, "name": "Part"}]
    store = store_of(payload(files=files, models=models))
    assert [(model.name, model.line) for model in store.view(PATH).models()] == [("Net", 3)]
    assert [model.name for model in store.view("/w/part.py").models()] == ["Part"]


def test_a_node_is_unpacked_with_its_details():
    row = ("fc1", "call_module", "fc1", "linear", "module", "matmul", 0, 0, 0, 128, 0, 5, 8, 5, 19,
           pack_blob({"module": "Linear()"}))  # fmt: skip
    nodes = {name: [value] for name, value in zip(COLUMNS["nodes"], row, strict=True)}
    node = GraphSnapshot(payload(nodes=nodes)).node(0)
    assert (node.name, node.mase_op, node.model, node.flops) == ("fc1", "linear", "Net", 128)
    assert (node.file, node.line, node.scope, node.value) == (PATH, 5, ("layers.0", "Block"), ["f32", [2], None])
    assert node.details == {"module": "Linear()"}


def test_sixty_lines_of_a_huge_file_touch_sixty_lines_of_it():
    sites = [(line, column, line, column + 1, "x", "binding") for line in range(1, 5001) for column in (0, 4)]
    snapshot = GraphSnapshot(payload(sites)).prepare()
    made = []
    plain = snapshot.site
    snapshot.site = lambda index: made.append(index) or plain(index)
    store = Store()
    store.put(Entry(PATH, "1", snapshot))
    assert len(store.view(PATH).sites(2000, 2059)) == 120
    store.view(PATH).at(2500, 4)
    assert len(made) <= 120 + 4


if __name__ == "__main__":
    sites = [(line, column, line, column + 1, "x", "binding") for line in range(1, 5001) for column in (0, 4)]
    started = time.perf_counter()
    GraphSnapshot(payload(sites)).prepare()
    Path("/dev/stdout").write_text(f"{time.perf_counter() - started:.4f} s\n")


#: Two files that use one helper: each has a model, and the helper's class is a part of both.
HELPER = "/project/helper.py"


def using(path, names, **more):
    """A payload of a file whose models all have a Block of the helper, with one site there for each."""
    files = [{"path": path, "sha256": path, "library": False}, {"path": HELPER, "sha256": "h", "library": False}]
    found = payload([(3, 4, 3, 5, "y", "binding", 1)], path=path, sha=path, files=files)
    place = {"line": 2, "column": 6, "end_line": 2, "end_column": 11}
    found["models"] = [{"name": name, "file_index": 0} for name in names]
    found["scopes"] = [[index, "block", "Block"] for index in range(len(names))]
    found["classes"] = [{"name": "Block", "file_index": 1, **place}, {"name": "Own", "file_index": 0, **place}]
    return found | more


def test_a_class_that_models_of_two_files_use_names_both():
    view = store_of(using("/project/a.py", ["First"]), using("/project/b.py", ["Second"])).view(HELPER)
    [part] = view.parts()
    assert (part.name, part.line, part.roots) == ("Block", 2, ("First", "Second"))


def test_a_class_that_one_model_uses_is_nothing_to_choose_from():
    assert store_of(using("/project/a.py", ["First"])).view(HELPER).parts() == []


def test_models_shown_for_want_of_better_are_nothing_to_choose_from():
    models = [{"name": "First", "file_index": 0}, {"name": "Spare", "file_index": 0, "rest": True}]
    assert store_of(using("/project/a.py", ["First", "Spare"], models=models)).view(HELPER).parts() == []


def test_models_of_one_name_get_titles_of_their_own():
    [part] = store_of(using("/project/a.py", ["Net", "Other", "Net", "Net"])).view(HELPER).parts()
    assert part.roots == ("Net", "Other", "Net #2", "Net #3")


def test_what_is_picked_hides_other_values_of_a_site_but_never_the_site():
    store = store_of(using("/project/a.py", ["First"]), using("/project/b.py", ["Second"]))
    for picked, models in (("Second", ["Second"]), ("Gone", ["First", "Second"]), (None, ["First", "Second"])):
        store.pick(HELPER, picked)
        view = store.view(HELPER)
        [site] = view.sites(3, 3)
        assert [value.model for value in site.values] == ["First", "Second"]
        assert [value.model for value in view.as_picked(site).values] == models
        assert view.picked == picked


def test_a_pick_is_of_one_file():
    store = store_of(using("/project/a.py", ["First"]))
    store.pick(HELPER, "First")
    assert (store.view(HELPER).picked, store.view("/project/a.py").picked) == ("First", None)


def test_the_nodes_of_some_lines_are_those_that_a_search_through_all_finds():
    chosen = random.Random(0)
    lines = chosen.choices(range(1, 60), k=200)
    rows = [(chosen.choice([0, 0, 1, -1]), line, line + chosen.choice([0, 0, 3])) for line in lines]
    snapshot = with_nodes(rows)
    for first in range(0, 65, 3):
        for last in (first, first + 4):
            wanted = [at for at, (file, line, end) in enumerate(rows) if file == 0 and line <= last and end >= first]
            assert snapshot.nodes_on("/m.py", first, last) == wanted
    assert snapshot.nodes_on("/nowhere.py", 0, 99) == []


def test_the_modules_of_a_model_are_those_that_hold_a_node_and_those_they_are_in():
    snapshot = with_nodes([(0, 1, 1), (0, 2, 2), (0, 3, 3)])
    assert snapshot.modules(0) == {"a", "a.b", "a.b.fc0", "a.b.fc1", "a.b.fc2"}
    assert snapshot.modules(1) == frozenset()


def with_nodes(rows):
    """A snapshot whose nodes have these (file, line, end line); node i calls the module a.b.fci."""
    payload = {key: [] for key in HEAD_KEYS} | {name: {c: [] for c in columns} for name, columns in COLUMNS.items()}
    files = [{"path": path, "sha256": "0", "library": False} for path in ("/m.py", "/n.py")]
    payload |= {"file": "/m.py", "sha256": "0", "generation": 1, "complete": True, "files": files}
    payload["scopes"] = [[0, "", "Net"], [0, "empty", "Sequential"]]
    for at, (file, line, end_line) in enumerate(rows):
        row = dict.fromkeys(COLUMNS["nodes"], 0)
        row |= {"op": "call_module", "target": f"a.b.fc{at}", "file": file, "line": line, "end_line": end_line}
        for key, cell in row.items():
            payload["nodes"][key].append(cell)
    return GraphSnapshot(payload)
