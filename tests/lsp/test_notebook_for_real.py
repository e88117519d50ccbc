"""A notebook through a real server, real workers and real torch: what its cells show is what running them gives."""

import sys

import pytest
import torch
from editing import Editor, capabilities
from lsprotocol import types as lsp
from notebook_editing import Notebook

SERVER = (sys.executable, "-m", "mase_server", "lsp")
IMPORTS = "%matplotlib inline\nimport torch\nfrom torch import nn\nfrom layers import WIDTH"
NET = """\
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(width * 12 * 12, 10)

    def forward(self, image):
        hidden = self.features(image)
        flat = hidden.flatten(1)
        return self.head(flat)"""
TRAIN = """\
!wget http://127.0.0.1/digits.zip
net = Net(WIDTH)
optimizer = torch.optim.SGD(net.parameters())
while True:
    digits = torch.randn(7, 1, 28, 28)
    loss = net(digits).logsumexp(1).mean()
    loss.backward()
    optimizer.step()"""
USE = "scores = net(torch.randn(7, 1, 28, 28)).softmax(1)\nbest = scores.argmax(1)\nbest.shape"


@pytest.fixture
async def editor(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    can = capabilities()
    can.notebook_document = lsp.NotebookDocumentClientCapabilities(lsp.NotebookDocumentSyncClientCapabilities())
    editor = Editor(tmp_path / "work", can=can, options={"trusted": True, "interpreter": sys.executable})
    editor.folder.mkdir()
    await editor.start(*SERVER)
    yield editor
    if editor.process.returncode is None:
        await editor.stop()


def eager(width):
    """The types that plain Python gives the names of the last cell."""
    names = {"WIDTH": width}
    training = "net = Net(WIDTH)"
    exec("\n".join(["import torch\nfrom torch import nn", NET, training, USE]), names)
    short = {torch.float32: "f32", torch.int64: "i64"}
    return {name: f": {short[names[name].dtype]}{list(names[name].shape)}" for name in ("scores", "best")}


async def test_cells_show_what_running_them_gives_and_follow_every_save(editor):
    """Modules lie beside the notebook; the loop has no end; what fails is told in its cell."""
    (editor.folder / "layers.py").write_text("WIDTH = 6\n")
    notebook = Notebook(editor, editor.folder / "digits.ipynb", IMPORTS, NET, TRAIN, USE)
    _, net, train, use = notebook.cells
    notebook.open()
    assert await editor.end_state(notebook) == "ready"
    assert set((await editor.hints(net)).values()) == {
        ": f32[B, 1, 28, 28]", ": f32[B, 6, 12, 12]", ": f32[B, 864]", " -> f32[B, 10]",
    }  # fmt: skip
    assert (await editor.hints(train))[4, 10] == ": f32[B, 1, 28, 28]"
    told = eager(6)
    assert await editor.hints(use) == {(0, 6): told["scores"], (1, 4): told["best"]}
    assert "Linear(in_features=864, out_features=10" in (await editor.hover(net, 9, 21)).contents.value
    [lens] = [titles for line, titles in (await editor.lenses(net)).items() if line == 0]
    parameters = (1 * 6 * 25 + 6) + (864 * 10 + 10)
    assert f"{parameters:,} parameters" in lens[0]

    # What is on a line is read from the script as Python, whatever magics stand in other cells.
    passes = [action.title for action in await editor.actions(net, 4, 14)]
    assert any("layer head" in title for title in passes), passes

    applied = []
    editor.client.feature(lsp.WORKSPACE_APPLY_EDIT)(
        lambda params: applied.append(params.edit) or lsp.ApplyWorkspaceEditResult(True)
    )
    wanted = {"path": str(notebook.path), "model": "Net", "set": "", "text": "image: f32[2, 1, 28, 28]"}
    assert await editor.command("mase.writeInputs", wanted)
    [change] = applied[0].document_changes
    assert (change.text_document.uri, change.text_document.version) == (net.uri, 1)
    assert change.edits[0].range == lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))

    notebook.retype(net, "width * 12 * 12, 10", "width * 12 * 13, 10")
    notebook.save()
    assert await editor.end_state(notebook) == "failed"
    [problem] = (await editor.diagnostics(net)).items
    assert (problem.range.start.line, problem.code) == (9, "shape-mismatch")
    assert not (await editor.diagnostics(use)).items
    [fix] = [each for each in await editor.actions(net, 9, 15) if each.is_preferred]
    [change] = fix.edit.document_changes
    assert (change.text_document.uri, change.edits[0].range.start.line) == (net.uri, 4)
    for edit in change.edits:
        start, end = edit.range.start, edit.range.end
        notebook.type(net, start.line, start.character, end.line, end.character, edit.new_text)
    notebook.save()
    assert await editor.end_state(notebook) == "ready"
    assert not (await editor.diagnostics(net)).items

    (editor.folder / "layers.py").write_text("WIDTH = 8\n")
    notebook.retype(net, "width * 12 * 12" if "width * 12 * 12" in net.text else "864", "width * 12 * 12")
    notebook.save()
    assert await editor.end_state(notebook) == "ready"
    assert (await editor.hints(net))[7, 14] == ": f32[B, 8, 12, 12]"


async def test_cells_have_the_shapes_of_what_is_typed_in_them(editor):
    """Functions and classes follow; a cell that does not parse waits."""
    (editor.folder / "layers.py").write_text("WIDTH = 6\n")
    notebook = Notebook(editor, editor.folder / "digits.ipynb", IMPORTS, NET, "net = Net(WIDTH)", USE)
    _, net, _, use = notebook.cells
    notebook.open()
    assert await editor.end_state(notebook) == "ready"
    notebook.retype(net, "hidden.flatten(1)", "hidden.flatten(1")
    while "~" not in "".join((await editor.hints(use)).values()):
        pass  # the keys have not paused yet
    notebook.retype(net, "hidden.flatten(1", "(hidden * 2).flatten(1)")
    notebook.retype(net, "(1, width, 5)", "(1, width, 3)")
    notebook.retype(net, "width * 12 * 12", "width * 13 * 13")
    ends = ("ready", "failed", "crashed")
    status = await editor.expect("mase/status", lambda s: s.unsaved and s.state in ends)
    assert status.state == "ready"
    assert set((await editor.hints(net)).values()) == {
        ": f32[B, 1, 28, 28]", ": f32[B, 6, 13, 13]", ": f32[B, 1014]", " -> f32[B, 10]",
    }  # fmt: skip
    notebook.save()
    saved = await editor.expect("mase/status", lambda s: not s.unsaved and s.generation == status.generation)
    assert saved.state == "ready"
