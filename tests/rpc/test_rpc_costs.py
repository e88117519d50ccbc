"""The rows of a cost table of a graph that is made by hand, against sums worked by hand; see `rpc_payloads.BLOCK`."""

import pytest

from mase_server.building import Build
from mase_server.daemon.emissions import Emission
from mase_server.daemon.graph_snapshot import Transform
from mase_server.daemon.store import Entry

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: f32[2, 10] and f32[2, 20].
SMALL, LARGE = 80, 160


def shown(served, path, change=lambda snapshot: snapshot, stale=False):
    """Have the daemon hold a changed snapshot."""
    snapshot = change(served.daemon.store.snapshot(path))
    served.daemon.store.put(Entry(path, snapshot.sha256, snapshot, stale, snapshot.problems))


async def rows_of(client, path):
    table = await client.result("mase/costTable", path=path)
    return {row["id"]: row for row in table["rows"]}


async def test_every_scope_counts_all_below_it_and_stands_before_it(client, served):
    path = served.show("table.py", blocks=2)
    table = await client.result("mase/costTable", path=path)
    told = [(row["id"], row["kind"], row["parent"], row["nodes"], row["flops"]) for row in table["rows"]]
    assert told == [
        ("", "scope", -1, 7, 1020),
        ("blocks", "scope", 0, 6, 1020),
        ("blocks.0", "scope", 1, 3, 510),
        ("blocks.0.fc", "layer", 2, 1, 200),
        ("blocks.0/relu", "operator", 2, 1, 10),
        ("blocks.0.out", "layer", 2, 1, 300),
        ("blocks.1", "scope", 1, 3, 510),
        ("blocks.1.fc", "layer", 6, 1, 200),
        ("blocks.1/relu", "operator", 6, 1, 10),
        ("blocks.1.out", "layer", 6, 1, 300),
    ]
    assert [row["type"] for row in table["rows"]][:4] == ["Net", "", "Block", "linear"]
    assert [row["name"] for row in table["rows"]][:6] == ["Net", "blocks", "0", "fc", "relu", "out"]
    assert (table["model"], table["stale"], table["complete"], table["steps"]) == ("Net", False, True, [])


async def test_it_tells_the_same_sums_as_the_costs(client, served):
    path = served.show("same.py", blocks=3)
    costs = await client.result("mase/costs", path=path)
    rows = await rows_of(client, path)
    modules = {each["path"]: (each["nodes"], each["flops"]) for each in costs["modules"]}
    assert modules == {key: (rows[key]["nodes"], rows[key]["flops"]) for key in modules}


async def test_bytes_are_those_of_results_and_of_what_is_read_and_written(client, served):
    """Each node moves 8 bytes; fc gives [2, 20], the others [2, 10]. The input is no result."""
    rows = await rows_of(client, served.show("bytes.py", blocks=2))
    told = {key: (row["results"], row["traffic"]) for key, row in rows.items()}
    assert told["blocks.0.fc"] == (LARGE, 8)
    assert told["blocks.0"] == (LARGE + 2 * SMALL, 24)
    assert told[""] == (2 * (LARGE + 2 * SMALL), 56)


async def test_a_row_says_where_it_stands(client, served):
    path = served.show("places.py", blocks=1)
    rows = await rows_of(client, path)
    place = {"file": path, "line": 2, "column": 4, "end_line": 2, "end_column": 9}
    assert rows["blocks.0.fc"]["places"] == rows["blocks.0"]["places"] == [place]
    assert [each["line"] for each in rows["blocks.0/relu"]["places"]] == [3]


async def test_a_scope_stands_at_its_class(client, served):
    path = served.show("classes.py", blocks=2)
    place = {"line": 40, "column": 6, "end_line": 40, "end_column": 11}
    served.daemon.store.snapshot(path).payload["classes"] = [{"name": "Block", "file_index": 0, **place}]
    rows = await rows_of(client, path)
    assert rows["blocks.1"]["places"] == [{"file": path, **place}]


def weights(*rows):
    return dict(zip(("name", "elements", "bytes", "same"), map(list, zip(*rows, strict=True)), strict=True))


async def test_parameters_that_layers_share_count_once_and_are_told_at_each(client, served):
    path = served.show("shared.py", blocks=2)
    served.daemon.store.snapshot(path).payload["weights"] = [
        weights(
            ("scale", 1, 4, 0),
            ("blocks.0.fc.weight", 200, 800, 1),
            ("blocks.0.fc.bias", 10, 40, 2),
            ("blocks.0.out.weight", 200, 400, 3),
            ("blocks.1.fc.weight", 200, 800, 1),
            ("blocks.1.fc.bias", 7, 28, 5),
            ("blocks.1.idle.weight", 5, 20, 6),
        )
    ]
    rows = await rows_of(client, path)
    told = {key: (row["parameters"], row["parameter_bytes"]) for key, row in rows.items()}
    assert told[""] == (1 + 210 + 200 + 7 + 5, 4 + 840 + 400 + 28 + 20)
    assert told["blocks"] == (210 + 200 + 7 + 5, 840 + 400 + 28 + 20)
    assert (told["blocks.0"], told["blocks.1"]) == ((410, 1240), (212, 848))
    assert (told["blocks.0.fc"], told["blocks.1.fc"]) == ((210, 840), (207, 828))
    assert told["blocks.0/relu"] == (0, 0)
    assert {key: row["shared"] for key, row in rows.items() if row["shared"]} == {
        "blocks.0.fc": ["blocks.1.fc"],
        "blocks.1.fc": ["blocks.0.fc"],
    }
    # What a module has beside its layers, and a layer that never ran.
    assert (rows["/scale"]["kind"], told["/scale"]) == ("parameter", (1, 4))
    idle = rows["blocks.1.idle"]
    assert (idle["kind"], idle["nodes"], told["blocks.1.idle"]) == ("layer", 0, (5, 20))


async def test_where_nobody_told_the_parameters_none_are_told(client, served):
    rows = await rows_of(client, served.show("unknown.py", blocks=1))
    assert {(row["parameters"], row["parameter_bytes"]) for row in rows.values()} == {(None, None)}


def transform(sqnr=30.0):
    nodes = {"row": [1, 2], "format": ["fixed(8,4)", "fixed(8,4)"], "sqnr": [40.0, 35.5], "max_error": [0.1, 0.2]}
    told = {"model": 0, "steps": [{"pass": "quantize", "arguments": {}}], "formats": {"fixed(8,4)": 8.0}}
    told |= {"summary": {"sqnr": sqnr, "max_error": 0.5}, "inputs": "random", "weights": "", "complete": True}
    return {
        **told,
        "problem": None,
        "failed": None,
        "rows": [[], []],
        "nodes": {**nodes, "note": [None, None], "saturated": [None, None]},
    }


async def test_formats_and_errors_are_those_of_the_passes(client, served):
    """fc and relu of the only block are quantised, out is not."""
    path = served.show("quantised.py", blocks=1)
    shown(served, path, lambda snapshot: snapshot.with_transforms({0: Transform.from_wire(transform())}))
    rows = await rows_of(client, path)
    told = {key: (row["formats"], row["bits"], row["sqnr"], row["max_error"]) for key, row in rows.items()}
    assert told["blocks.0.fc"] == (["fixed(8,4)"], 8.0, 40.0, 0.1)
    assert told["blocks.0/relu"] == (["fixed(8,4)"], 8.0, 35.5, 0.2)
    assert told["blocks.0.out"] == (["f32"], None, None, None)
    assert told["blocks.0"] == (["fixed(8,4)", "f32"], None, 35.5, 0.2)
    assert told[""] == (["fixed(8,4)", "f32"], None, 30.0, 0.5)
    assert (await client.result("mase/costTable", path=path))["steps"] == ["quantize()"]


async def test_saturation_is_that_of_a_layer_the_worst_of_a_module_and_that_of_all_values_of_a_model(client, served):
    path, told = served.show("saturated.py", blocks=1), transform()
    told["nodes"]["saturated"] = [0.25, 0.0]
    told["summary"]["saturated"] = 0.125
    shown(served, path, lambda snapshot: snapshot.with_transforms({0: Transform.from_wire(told)}))
    found = {key: row["saturated"] for key, row in (await rows_of(client, path)).items()}
    assert found == {
        "": 0.125, "blocks": 0.25, "blocks.0": 0.25, "blocks.0.fc": 0.25, "blocks.0/relu": 0.0, "blocks.0.out": None,
    }  # fmt: skip


def operation(name, rows, scope, cycles):
    estimate = {"multipliers": 2, "luts": 30, "memory_bits": 100, "cycles": cycles, "latency": 0}
    return {"name": name, "rows": rows, "scope": scope, "estimate": estimate}


async def test_hardware_is_summed_and_the_slowest_says_how_many_cycles(client, served):
    """An operation that takes two nodes counts at the first; one of no node at its module."""
    path = served.show("hardware.py", blocks=1)
    operations = [operation("fc", [1, 2], "blocks.0.fc", 64), operation("out", [3], "blocks.0.out", 16)]
    operations += [operation("wait", [], "blocks.0", 8)]
    totals = {"multipliers": 6, "luts": 95, "memory_bits": 300, "interval": 64, "latency": 99, "bottlenecks": []}

    def built(stale, **more):
        def change(snapshot):
            told = {"operations": operations, "totals": totals, "refusal": None, "unsupported": [], **more}
            return snapshot.with_hardware({0: emission(snapshot, told, stale)})

        return change

    shown(served, path, built(stale=False))
    rows = await rows_of(client, path)
    told = {key: row["hardware"] and tuple(row["hardware"].values()) for key, row in rows.items()}
    assert told == {
        "": (6, 95, 300, 64),
        "blocks": (6, 90, 300, 64),
        "blocks.0": (6, 90, 300, 64),
        "blocks.0.fc": (2, 30, 100, 64),
        "blocks.0/relu": None,
        "blocks.0.out": (2, 30, 100, 16),
    }
    shown(served, path, built(stale=False, unsupported=[{"row": 3}]))
    assert {key for key, row in (await rows_of(client, path)).items() if row["hardware"]} == {"blocks.0.fc"}
    shown(served, path, built(stale=False, refusal="it is too large"))
    assert {row["hardware"] for row in (await rows_of(client, path)).values()} == {None}
    shown(served, path, built(stale=True))
    assert {row["hardware"] for row in (await rows_of(client, path)).values()} == {None}


def emission(snapshot, told, stale):
    places = {row: (index,) for index, each in enumerate(told["operations"]) for row in each["rows"]}
    return Emission(snapshot, 0, Build(), (), told, places, stale)


async def test_a_model_that_is_not_there_is_named(client, served):
    path = served.show("missing.py", blocks=1)
    error, _ = await client.ask("mase/costTable", {"path": path, "model": "Other"})
    assert (error["code"], error["message"]) == ("unknown-model", f"{path} has no model 'Other'; it has Net")
