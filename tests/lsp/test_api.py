"""The API functions, whatever front serves them."""

import re

import pytest
from fake_daemon import FakeDaemon, payload_of

from mase_server.daemon.api import API, Api
from mase_server.daemon.status import FolderSettings
from mase_server.daemon.store import Entry, GraphSnapshot

NET = "# model Net\nclass Net:\n    def forward(self, x):  # => f32[B:2, 64] / f32[B:2, 128]\n        return x\n"
METHODS = {method.name: method for method in API}


class Nobody:
    def status_changed(self, status):
        pass

    def views_changed(self, paths):
        pass

    def progress(self, path, stage, message):
        pass

    def pass_progress(self, path, model, message, fraction):
        pass

    def pass_ended(self, path, model):
        pass


@pytest.fixture
def api(tmp_path):
    settings = FolderSettings(trusted=True)
    daemon = FakeDaemon(
        Nobody(), cache_dir=tmp_path, state_dir=tmp_path, settings_of=lambda folder: settings, folder_of=lambda path: ""
    )
    snapshot = GraphSnapshot(payload_of("/m.py", NET))
    daemon.store.put(Entry("/m.py", snapshot.sha256, snapshot))
    return Api(daemon)


async def test_info_names_the_traced_files(api):
    info = await METHODS["mase/info"].call(api, {})
    assert (info["name"], info["files"]) == ("mase-server", ["/m.py"])


async def test_models_are_those_of_one_file_or_of_all(api):
    [model] = await METHODS["mase/models"].call(api, {"path": "/m.py"})
    assert (model["name"], model["path"], model["complete"]) == ("Net", "/m.py", True)
    assert await METHODS["mase/models"].call(api, {}) == [model]
    assert await METHODS["mase/models"].call(api, {"path": "/other.py"}) == []


async def test_node_at_gives_every_value_of_a_place(api):
    found = await METHODS["mase/nodeAt"].call(api, {"path": "/m.py", "line": 3, "column": 22})
    assert (found["name"], found["kind"], found["stale"]) == ("x", "parameter", False)
    assert [value["value"][1] for value in found["values"]] == [[2, 64], [2, 128]]


@pytest.mark.parametrize("place", [("/m.py", 1, 0), ("/other.py", 3, 22)])
async def test_node_at_gives_nothing_where_nothing_is(api, place):
    params = dict(zip(("path", "line", "column"), place, strict=True))
    assert await METHODS["mase/nodeAt"].call(api, params) is None


async def test_retrace_waits_for_the_end(api, tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET)
    status = await METHODS["mase/retrace"].call(api, {"path": str(path)})
    assert (status["state"], status["path"]) == ("ready", str(path))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("mase/retrace", {}, "mase/retrace: parameter 'path' is missing; it takes path: str"),
        ("mase/retrace", {"path": 1}, "mase/retrace: path is 1, expected str"),
        (
            "mase/nodeAt",
            {"uri": "x"},
            "mase/nodeAt has no parameter 'uri'; it takes path: str, line: int, column: int",
        ),
    ],
)
async def test_wrong_parameters_are_named(api, name, params, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        await METHODS[name].call(api, params)


def test_every_method_is_named_once_and_described():
    assert len(METHODS) == len(API)
    assert all(method.name.startswith("mase/") and method.function.__doc__ for method in API)
