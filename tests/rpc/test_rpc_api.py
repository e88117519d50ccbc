"""What the functions answer about graphs that are made by hand, against tables worked by hand."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import NotRequired, TypedDict

import pytest
from rpc_answers import checked
from rpc_payloads import BLOCK
from rpc_serving import STUB, Served

from mase_server.daemon import api
from mase_server.daemon.api import API
from mase_server.daemon.methods import schema_of
from mase_server.simulation import simulate

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_graph_has_every_node_in_order_with_its_inputs(client, served):
    path = served.show("graph.py", blocks=2)
    graph = await client.result("mase/graph", path=path)
    columns = graph["columns"]
    assert columns["name"] == [
        "x", "linear_0_0", "relu_0_1", "linear_0_2", "linear_1_0", "relu_1_1", "linear_1_2",
    ]  # fmt: skip
    assert columns["row"] == list(range(7))
    assert columns["inputs"] == [[], [0], [1], [2], [3], [4], [5]]
    assert [graph["values"][index][2] for index in columns["value"]][:3] == [["B", "10"], ["B", "20"], ["B", "10"]]
    assert [graph["scopes"][index] for index in columns["scope"]][3] == ["blocks.0", "Block"]
    assert graph["files"] == [{"path": path, "library": False}]
    assert (graph["total"], graph["start"], graph["next"], graph["complete"]) == (7, 0, None, True)
    assert {len(column) for column in columns.values()} == {7}


async def test_pages_together_are_the_graph(client, served):
    path = served.show("pages.py", blocks=5)
    whole = await client.result("mase/graph", path=path)
    names, places, start = [], [], 0
    while start is not None:
        page = await client.result("mase/graph", path=path, start=start, count=6)
        names += page["columns"]["name"]
        places += [page["scopes"][index] for index in page["columns"]["scope"]]
        start = page["next"]
    assert names == whole["columns"]["name"]
    assert places == [whole["scopes"][index] for index in whole["columns"]["scope"]]


async def test_a_scope_is_a_module_with_all_below_it_and_not_its_namesakes(client, served):
    path = served.show("scopes.py", blocks=12)
    graph = await client.result("mase/graph", path=path, scope="blocks.1")
    assert graph["columns"]["name"] == ["linear_1_0", "relu_1_1", "linear_1_2"]
    assert (await client.result("mase/graph", path=path, scope="blocks"))["total"] == 36
    error, _ = await client.ask("mase/graph", {"path": path, "scope": "block"})
    assert (error["code"], error["message"]) == ("unknown-scope", "Net has no module 'block'")


async def test_of_several_models_one_is_meant(client, served):
    path = served.show("several.py", blocks=1, names=("Net", "Net"))
    first, second = [await client.result("mase/graph", path=path, model=title) for title in ("Net", "Net #2")]
    assert (first["columns"]["row"], second["columns"]["row"]) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert second["columns"]["inputs"][1] == [4]
    error, _ = await client.ask("mase/graph", {"path": path, "model": "Other"})
    assert (error["code"], error["data"]) == ("unknown-model", {"models": ["Net", "Net #2"]})


async def test_only_the_columns_that_are_asked_for_come(client, served):
    path = served.show("columns.py", blocks=1)
    graph = await client.result("mase/graph", path=path, columns=["name", "details", "format"])
    assert list(graph["columns"]) == ["row", "name", "details", "format"]
    assert graph["columns"]["details"][1] == {"input_nodes": [0], "bytes": 8, "args": [["data_in_0", "f32[2, 10]"]]}
    assert graph["columns"]["format"] == [None] * 4
    assert graph["values"] == graph["scopes"] == graph["files"] == []
    error, _ = await client.ask("mase/graph", {"path": path, "columns": ["colour"]})
    assert error["message"].startswith("a graph has no column 'colour'; did you mean 'column'?")


async def test_a_node_knows_the_parameters_that_it_reads_and_the_bytes_that_it_writes(client, served):
    """fc gives f32[2, 20], the others f32[2, 10]; two layers share a weight, and a pass inserted an operation."""
    path = served.show("sizes.py", blocks=1)
    served.daemon.store.snapshot(path).payload["weights"] = [
        {
            "name": ["blocks.0.fc.weight", "blocks.0.fc.bias", "blocks.0.out.weight", "x"],
            "elements": [200, 10, 200, 7], "bytes": [800, 40, 800, 28], "same": [0, 1, 0, 3],
        }
    ]  # fmt: skip
    graph = await client.result("mase/graph", path=path, columns=["parameters", "bytes"])
    assert graph["columns"]["parameters"] == [0, 210, 0, 200]  # an input may have the name of a parameter
    assert graph["columns"]["bytes"] == [80, 160, 80, 80]


@pytest.mark.parametrize(("start", "count"), [(-1, 5), (0, 0)])
async def test_a_page_that_cannot_be_is_refused(client, served, start, count):
    path = served.show("page.py")
    assert await client.code("mase/graph", path=path, start=start, count=count) == "invalid-params"


async def test_a_page_behind_the_end_is_empty(client, served):
    path = served.show("behind.py", blocks=1)
    graph = await client.result("mase/graph", path=path, start=99)
    assert (graph["columns"]["name"], graph["total"], graph["next"]) == ([], 4, None)


async def test_a_file_without_a_graph_says_why(client, served):
    path = served.write("fails.py", "raise ValueError('no')\n")
    await client.result("mase/open", path=path)
    error, _ = await client.ask("mase/graph", {"path": path})
    assert error["code"] == "no-graph"
    assert error["message"].startswith(f"{path} has no graph: ")


async def test_costs_are_summed_by_module_and_by_operator(client, served):
    path = served.show("costs.py", blocks=2)
    costs = await client.result("mase/costs", path=path)
    modules = {module["path"]: (module["type"], module["nodes"], module["flops"]) for module in costs["modules"]}
    assert modules == {
        "": ("Net", 7, 1020),
        "blocks": ("", 6, 1020),
        "blocks.0": ("Block", 3, 510),
        "blocks.1": ("Block", 3, 510),
        "blocks.0.fc": ("", 1, 200),
        "blocks.0.out": ("", 1, 300),
        "blocks.1.fc": ("", 1, 200),
        "blocks.1.out": ("", 1, 300),
    }
    operators = {(each["mase_op"], each["nodes"], each["flops"]) for each in costs["operators"]}
    assert operators == {("linear", 4, 1000), ("relu", 2, 20), ("placeholder", 1, 0)}
    assert sum(flops for _, _, flops, _ in BLOCK) == 510


async def test_tensors_come_line_by_line(client, served):
    path = served.show("tensors.py", blocks=1)
    told = await client.result("mase/tensors", path=path)
    assert [(site["line"], site["values"][0]["value"][1]) for site in told["sites"]] == [
        (2, [2, 20]), (3, [2, 10]), (4, [2, 10]),
    ]  # fmt: skip
    told = await client.result("mase/tensors", path=path, first=3, last=3)
    assert [site["line"] for site in told["sites"]] == [3]


@pytest.mark.parametrize("method", ["mase/tensors", "mase/traced"])
@pytest.mark.parametrize("first", [0, -(1 << 63)])
async def test_lines_before_the_first_are_nobodys_and_take_no_time(client, served, method, first):
    path = served.show("before.py", blocks=1)
    told = await client.result(method, path=path, first=first)
    assert told["sites"] == (await client.result(method, path=path))["sites"] != []


async def test_many_tensors_come_in_pages_without_a_gap(client, served):
    path = served.show("lines.py", blocks=4000)
    lines, start = [], 1
    while start is not None:
        told = await client.result("mase/tensors", path=path, first=start)
        assert len(told["sites"]) <= 5100
        lines += [site["line"] for site in told["sites"]]
        start = told["next"]
    assert lines == list(range(2, 12_002))


async def test_problems_of_one_file_and_of_all(client, served):
    path = served.show("problems.py", problems=[(3, "error", "cannot multiply")])
    [problem] = (await client.result("mase/problems", path=path))["problems"]
    assert (problem["line"], problem["severity"], problem["message"]) == (3, "error", "cannot multiply")
    assert problem in (await client.result("mase/problems"))["problems"]


async def test_two_models_are_compared_node_by_node(client, served):
    small, big = served.show("small.py", blocks=1), served.show("big2.py", blocks=2)
    told = await client.result("mase/compare", path=big, other={"path": small})
    assert (told["before"]["nodes"], told["after"]["nodes"]) == (4, 7)
    assert (told["added"], told["removed"], told["changed"]) == (["linear_1_0", "relu_1_1", "linear_1_2"], [], [])
    assert (await client.result("mase/compare", path=small, other={"path": big}))["removed"] == told["added"]
    assert (await client.result("mase/compare", path=big))["summary"] is None


async def test_inputs_are_told_and_set(client, served):
    path = served.show("inputs.py")
    [told] = (await client.result("mase/inputs", path=path))["inputs"]
    assert (told["model"], told["inputs_from"], told["text"]) == ("Net", "main", "mase: x: f32[B=2, 10]")
    traced = served.write("asked.py", "x = 1  # shape f32[2, 3]\n")
    await client.result("mase/open", path=traced)
    status = await client.result("mase/setInputs", path=traced, inputs=["x: f32[4, 8]"])
    assert (status["state"], status["generation"]) == ("ready", 2)
    options = served.daemon.file(traced).options
    assert (options.inputs, options.inputs_from) == (("x: f32[4, 8]",), "option")
    await client.result("mase/setInputs", path=traced, inputs=[])
    assert served.daemon.file(traced).options.inputs == ()


async def test_workers_are_listed_and_started_anew(client, served):
    path = served.write("worked.py", "x = 1  # shape f32[2, 3]\n")
    await client.result("mase/open", path=path)
    told = {worker["path"]: worker for worker in (await client.result("mase/workers"))["workers"]}
    assert told[path]["memory"] > 1 << 20
    assert await client.result("mase/restartWorkers", folder=str(served.folder)) == {"folders": [str(served.folder)]}
    served.daemon.retrace(path)
    status = await served.daemon.wait(path)
    assert status.state == "ready"
    again = {worker["path"]: worker for worker in (await client.result("mase/workers"))["workers"]}
    assert again[path]["pid"] != told[path]["pid"]
    assert await client.code("mase/restartWorkers", folder="/nowhere") == "not-open"


async def test_statistics_count_what_was_asked(client, served):
    before = (await client.result("mase/statistics"))["requests"]
    await client.code("mase/nothing")
    after = (await client.result("mase/statistics"))["requests"]
    assert (after["requests"] - before["requests"], after["errors"] - before["errors"]) == (2, 1)


@pytest.mark.parametrize("method", [method.name for method in API if method.executes])
async def test_what_executes_is_refused_in_a_folder_without_trust(client, served, method):
    path = served.write("untrusted.py", "open(__file__ + '.ran', 'w')\n")
    served.trusted = False
    given = {"path": path, "pass": "quantize", "steps": [], "inputs": [], "name": "/tmp/none", "sets": ["", ""]}
    given |= {"of": "", "before": {}}
    known = next(one for one in API if one.name == method).params
    error, _ = await client.ask(method, {key: value for key, value in given.items() if key in known})
    assert error["code"] == "untrusted"
    assert path in error["message"]
    assert not Path(f"{path}.ran").exists()


async def test_every_method_that_works_on_a_file_with_its_process_is_held_back_without_trust():
    reading = {
        "mase/info", "mase/models", "mase/nodeAt", "mase/roots", "mase/pickRoot", "mase/passes", "mase/pipeline",
        "mase/pipelineSettings", "mase/verilog", "mase/forgetVerilog", "mase/close", "mase/files", "mase/fileStatus",
        "mase/inputs", "mase/graph", "mase/tensors", "mase/problems", "mase/costs", "mase/compare", "mase/workers",
        "mase/costTable", "mase/devices",
        "mase/restartWorkers", "mase/statistics", "mase/traced", "mase/subscribe", "mase/unsubscribe", "mase/session",
    }  # fmt: skip
    assert {method.name for method in API if not method.executes} == reading


class Told(TypedDict):
    number: "int"
    text: "NotRequired[str]"


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, {"type": "integer"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Told, {
            "type": "object",
            "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
            "required": ["number"],
        }),
    ],
)  # fmt: skip
async def test_a_type_has_a_schema(kind, schema):
    assert schema_of(kind) == schema


async def test_a_type_without_a_schema_says_what_to_declare():
    with pytest.raises(TypeError, match="has no JSON schema; declare it as a plain type"):
        schema_of(Served)


async def test_a_simulation_without_a_result_is_answered_as_promised(tmp_path):
    async def failing(path, title, **order):
        return await simulate(tmp_path, cache=tmp_path / "cache")

    asked = SimpleNamespace(daemon=SimpleNamespace(simulations=SimpleNamespace(simulate=failing)))
    answer = checked("mase/simulate", await api.simulate(asked, {"path": "/w/net.py"}))
    assert (answer["status"], answer["latency"]) == ("failed", 0)


async def test_a_text_that_a_client_opens_stands_in_for_the_file_until_it_is_closed(client, served):
    path = served.write("buffer.py", STUB)
    typed = STUB + "# typed\n"
    opened = await client.result("mase/open", path=path, text=typed)
    assert (opened["state"], opened["unsaved"]) == ("ready", True)
    assert opened["sha256"] == opened["shown_sha256"] == hashlib.sha256(typed.encode()).hexdigest()
    again = await client.result("mase/open", path=path, text=typed)
    assert again["generation"] == opened["generation"], "the same text is not traced again"
    saved = await client.result("mase/open", path=path)
    assert (saved["state"], saved["unsaved"]) == ("ready", False)
    assert saved["sha256"] == hashlib.sha256(Path(path).read_bytes()).hexdigest()


async def test_a_text_needs_no_file_but_a_folder(client, served):
    path = str(served.folder / "nowhere.py")
    opened = await client.result("mase/open", path=path, text=STUB)
    assert (opened["state"], opened["unsaved"]) == ("ready", True)
    await client.result("mase/close", path=path)
    assert path not in [each["path"] for each in (await client.result("mase/files"))["files"]], "nothing is kept of it"
    assert await client.code("mase/open", path=str(served.folder / "none" / "x.py"), text=STUB) == "not-found"


async def test_an_editors_text_is_not_replaced(client, served):
    path = served.write("edited.py", STUB)
    served.daemon.opened(path)
    assert await client.code("mase/open", path=path, text=STUB) == "in-editor"
    served.daemon.closed(path)
