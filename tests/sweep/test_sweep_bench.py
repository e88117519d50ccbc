"""The bench in this process, with real workers: it measures the text that is there, and keeps no more than it needs."""

import os
import sys

import pytest

from mase_server.sweep.bench import Bench
from mase_server.sweep.points import Point


@pytest.fixture
async def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = Bench(sys.executable)
    yield found
    await found.close()


def linear(out):
    layer = f"from torch import nn\nimport torch\n\nnet = nn.Sequential(nn.Linear(4, {out}))\n"
    return f"{layer}\n\nif __name__ == '__main__':\n    net(torch.ones(2, 4))\n"


async def test_a_changed_text_is_traced_again_also_where_it_is_imported(bench, project):
    net, parts = project / "net.py", project / "parts.py"
    net.write_text(net.read_text().replace("    net.load_state_dict(torch.load('net.pt'))\n", "").replace(
        '    net.load_state_dict(torch.load("net.pt"))\n', ""))  # fmt: skip
    point = Point(str(net))
    first = await bench.measure(point)
    parts.write_text("WIDTH = 32\n")
    second = await bench.measure(point)
    assert [each.figures["parameters"] for each in (first, second)] == [
        8 * 16 + 16 + 16 * 3 + 3,
        8 * 32 + 32 + 32 * 3 + 3,
    ]
    assert first.sources[str(net)] == second.sources[str(net)]
    assert first.sources[str(parts)] != second.sources[str(parts)]
    net.write_text("import torch\n")
    third = await bench.measure(point)
    assert (third.kind, third.figures) == ("trace", {})
    net.write_text(linear(5))
    fourth = await bench.measure(point)
    assert (fourth.error, fourth.figures["parameters"]) == ("", 25)


async def test_many_files_do_not_stay_on_the_bench(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("mase_server.sweep.bench._KEPT", 1)
    for out in (2, 3, 2):
        path = tmp_path / f"net{out}.py"
        path.write_text(linear(out))
        result = await bench.measure(Point(str(path)))
        assert (result.error, result.figures["parameters"]) == ("", 5 * out)
        assert [os.path.basename(file) for file, _ in bench._files] == [path.name]  # noqa: PTH119
        [daemon] = bench._daemons.values()
        assert [os.path.basename(each.path) for each in daemon.files() if each.open] == [path.name]  # noqa: PTH119


async def test_a_model_is_meant_by_its_title(bench, tmp_path):
    path = tmp_path / "two.py"
    path.write_text(linear(2) + "    other = nn.Sequential(nn.Linear(4, 7))\n    other(torch.ones(2, 4))\n")
    titles = [(await bench.measure(Point(str(path), title))) for title in ("", "other", "Net")]
    assert [each.figures.get("parameters") for each in titles] == [10, 35, None]
    assert titles[2].kind == "argument"
    assert titles[2].error.startswith(f"no model 'Net' is shown in {path}; did you mean 'net'? It has net, other")
