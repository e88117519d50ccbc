"""What a run costs on a picked device, from the editor to a real child and back. Figures are worked out by hand."""

import sys

import pytest
import pytest_asyncio
from editing import Editor, capabilities
from lsprotocol import types as lsp

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = (sys.executable, "-m", "mase_server", "lsp")
NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        h = self.a(x)
        h = torch.relu(h)
        return self.b(h)


if __name__ == "__main__":
    Net()(torch.ones(64, 256))
"""
CLASS, A, RELU, B = 4, 10, 11, 12
#: 64 rows of 1024, with a weight and a bias, in f32.
MOVED = 4 * (64 * 256 + 256 * 1024 + 1024 + 64 * 1024)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    """(editor, net.py traced in it)"""
    folder = tmp_path_factory.mktemp("costs")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        environment.setenv("XDG_STATE_HOME", str(folder / "state"))
        (folder / "work").mkdir()
        can = capabilities()
        can.experimental = {"commands": {"commands": ["mase.showCosts"]}}
        editor = Editor(folder / "work", can=can, options={"trusted": True, "interpreter": sys.executable})
        editor.initialized = await editor.start(*SERVER)
        path = folder / "work" / "net.py"
        path.write_text(NET)
        editor.open(path)
        assert await editor.end_state(path) == "ready"
        yield editor, path
        await editor.stop()


async def titles(editor, path):
    return [title for texts in (await editor.lenses(path)).values() for title in texts]


async def lens(editor, path, accept):
    """The first lens that is accepted; the editor asks again whenever the server tells it to."""
    while not (found := [each for each in await titles(editor, path) if accept(each)]):
        await editor.expect(lsp.WORKSPACE_CODE_LENS_REFRESH)
    return found[0]


async def card(editor, path, line, column=8):
    return (await editor.hover(path, line, column)).contents.value


async def test_nothing_is_told_until_a_device_is_picked(session):
    editor, path = session
    assert not any("est." in each or "fits" in each for each in await titles(editor, path))
    assert "on a device" not in await card(editor, path, A)
    table = await editor.request("mase/costTable", {"path": str(path)})
    assert table.run is None
    assert {(each.seconds, each.moved, each.bound, each.held) for each in table.rows} == {(None,) * 4}


async def test_lens_hover_table_and_graph_tell_the_run_on_the_picked_device(session):
    editor, path = session
    picked = await editor.command("mase.pickDevice", {"uri": path.as_uri(), "device": "L4", "train": ""})
    assert picked == {"device": "L4", "train": "", "dtype": ""}
    text = await lens(editor, path, lambda each: "fits" in each)
    # Each of the three calls takes the 20 µs that lie between two operators.
    assert "est. 60 µs" in text
    assert await lens(editor, path, lambda each: "B <= " in each)
    hover = await card(editor, path, A)
    assert f"est. 20 µs on L4, launch-bound · 33.6 MFLOPs · {MOVED / 1e6:.2f} MB moved" in hover
    assert "held at the peak" in hover
    table = await editor.request("mase/costTable", {"path": str(path)})
    rows = {each.id: each for each in table.rows}
    assert (rows["a"].moved, rows["a"].bound, rows["a"].seconds) == (MOVED, "launch", 2e-5)
    assert rows["/relu"].moved == 2 * 4 * 64 * 1024
    assert rows[""].seconds == pytest.approx(6e-5) == table.run.seconds
    assert sum(rows[each].moved for each in ("a", "/relu", "b")) == rows[""].moved
    assert (table.run.device.name, table.older) == ("L4", False)
    graph = await editor.request("mase/graph", {"path": str(path), "columns": ["name", "seconds", "moved", "bound"]})
    columns = graph.columns
    told = dict(zip(columns.name, zip(columns.seconds, columns.moved, columns.bound, strict=True), strict=True))
    assert told["a"] == (2e-5, MOVED, "launch")
    assert told["x"] == (None, None, None)


async def test_costs_follow_a_save_and_the_mode(session):
    editor, path = session
    wider = NET.replace("1024", "2048")
    path.write_text(wider)
    editor.retype(path, NET, wider)
    editor.save(path, wider)
    assert await editor.end_state(path) == "ready"
    await editor.command("mase.pickDevice", {"uri": path.as_uri(), "device": "L4", "train": "sgd"})
    assert await lens(editor, path, lambda each: each.startswith("train, L4"))
    while "training with sgd" not in (told := await card(editor, path, CLASS, 7)):
        await editor.expect(lsp.WORKSPACE_CODE_LENS_REFRESH)
    assert "gradient" in told
    table = await editor.request("mase/costTable", {"path": str(path)})
    points = [(each.step, each.bytes, each.line) for each in table.run.curve]
    assert {line for _, _, line in points} >= {A + 1, RELU + 1, B + 1}
    assert max(size for _, size, _ in points) == table.run.peak_bytes
    # When most is held, the gradient of b's input is there, and all gradients of parameters.
    held = {(each.kind, each.line): each.bytes for each in table.run.at_peak}
    assert held["temporary", RELU + 1] == 4 * 64 * 2048
    assert held["gradient", A + 1] == 4 * (256 * 2048 + 2048)


async def test_a_save_is_compared_with_the_text_before_line_by_line(session):
    editor, path = session
    before = path.read_text()
    after = "\n" + before.replace("torch.relu(h)", "torch.relu(h.double()).float()")
    await lens(editor, path, lambda each: "B <= " in each)
    path.write_text(after)
    editor.retype(path, before, after)
    editor.save(path, after)
    assert await editor.end_state(path) == "ready"
    while "this change" not in (told := await card(editor, path, CLASS + 1, 7)):
        await editor.expect(lsp.WORKSPACE_CODE_LENS_REFRESH)
    # The line of b stays, but holds another temporary at the peak.
    assert f"time, at 1 line: {RELU + 2}" in told or f": {RELU + 2}, " in told
    change = (await editor.request("mase/costTable", {"path": str(path)})).change
    [line] = [each for each in change.lines if each.line == RELU + 2]
    assert line.before_line == RELU + 1
    assert line.moved[1] > line.moved[0]
    shown = await editor.command("mase.compareCosts", {"uri": path.as_uri(), "before": {"text": before}})
    await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    assert f"net.py:{RELU + 2}" in shown["text"]
    assert "this change: +" in shown["text"]


async def test_a_failure_is_told_once_and_no_device_ends_it_all(session):
    editor, path = session
    bad = {"uri": path.as_uri(), "device": "L4", "train": "sgdd"}
    await editor.command("mase.pickDevice", bad)
    assert await lens(editor, path, lambda each: each == "no costs on L4")
    log = await editor.expect(lsp.WINDOW_LOG_MESSAGE, lambda params: "no costs of Net on L4" in params.message)
    assert "there is no optimizer 'sgdd'" in log.message
    await editor.command("mase.pickDevice", {"uri": path.as_uri(), "device": ""})
    assert not any("L4" in each or "est." in each for each in await titles(editor, path))
    assert "on a device" not in await card(editor, path, A)
    assert (await editor.request("mase/costTable", {"path": str(path)})).run is None
