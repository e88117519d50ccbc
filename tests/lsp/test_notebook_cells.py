"""What an editor sees in the cells of a notebook. The daemon behind the server is the fake one."""

import json

import pytest
from editing import REFRESHES, capabilities, marked
from lsprotocol import types as lsp
from notebook_editing import Notebook, as_json

IMPORTS = "# model Net\nwidth = 10"
NET = """\
class Net:
    def forward(self, x):  # => f32[B:2, 64]
        y = self.fc(x)  # => f32[B:2, 10]
        return y  # => f32[B:2, 10]"""
USE = "net = Net()\nout = net(x)  # => f32[B:2, 10]"
BROKEN = "z = f(out, 10)  # !! expected 64 features, got 10 ~~ 10 -> 64"
NET_HINTS = {(1, 23): ": f32[B, 64]", (2, 9): ": f32[B, 10]", (3, 16): " -> f32[B, 10]"}
USE_HINTS = {(1, 3): ": f32[B, 10]"}


def can(**more):
    told = capabilities(**more)
    sync = lsp.NotebookDocumentSyncClientCapabilities()
    told.notebook_document = lsp.NotebookDocumentClientCapabilities(sync)
    return told


@pytest.fixture
async def editor(new_editor):
    return await new_editor(can=can())


async def opened(editor, *texts):
    notebook = Notebook(editor, editor.folder / "net.ipynb", *texts)
    notebook.open()
    await editor.end_state(notebook)
    return notebook


async def all_hints(notebook):
    return [await notebook.editor.hints(cell) for cell in notebook.cells]


async def test_cells_show_hints_hovers_lenses_and_problems_of_their_own(editor):
    sync = editor.initialized.capabilities.notebook_document_sync
    assert [(each.notebook, [cell.language for cell in each.cells]) for each in sync.notebook_selector] == [
        ("jupyter-notebook", ["python"])
    ]
    assert sync.save
    notebook = await opened(editor, IMPORTS, NET, USE, BROKEN)
    imports, net, _, broken = notebook.cells
    assert await all_hints(notebook) == [{}, NET_HINTS, USE_HINTS, {}]
    hover = await editor.hover(net, 2, 8)
    assert "f32[B, 10]" in hover.contents.value
    assert hover.range == lsp.Range(lsp.Position(2, 8), lsp.Position(2, 9))
    assert await editor.hover(imports, 1, 1) is None
    assert [list(await editor.lenses(cell)) for cell in notebook.cells] == [[], [0], [], []]
    assert [len((await editor.diagnostics(cell)).items) for cell in notebook.cells] == [0, 0, 0, 1]
    [problem] = (await editor.diagnostics(broken)).items
    assert (problem.range.start, problem.code) == (lsp.Position(0, 0), "shape-mismatch")
    # The line above the first cell is the script's own: what is told of it is told at the cell's start.
    [related] = problem.related_information
    assert related.location == lsp.Location(imports.uri, lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0)))
    again = await editor.diagnostics(broken, (await editor.diagnostics(broken)).result_id)
    assert again.kind == "unchanged"
    assert (await editor.hints(net, 2, 2)) == {(2, 9): ": f32[B, 10]"}


async def test_a_fix_edits_the_cell_that_it_is_for(editor):
    notebook = await opened(editor, IMPORTS, NET, USE, BROKEN)
    broken = notebook.cells[3]
    actions = await editor.actions(broken, 0, 4)
    [fix] = [action for action in actions if action.title == "Use 64"]
    [change] = fix.edit.document_changes
    assert (change.text_document.uri, change.text_document.version) == (broken.uri, 1)
    [edit] = change.edits
    column = broken.text.index("10")
    assert edit == lsp.TextEdit(lsp.Range(lsp.Position(0, column), lsp.Position(0, column + 2)), "64")
    net = notebook.cells[1]
    [change] = [each for each in await editor.actions(net, 0, 7) if each.title.startswith("Write the assumed")]
    assert change.edit.document_changes[0].text_document.uri == net.uri
    assert change.edit.document_changes[0].edits[0].range.start == lsp.Position(0, 0)


async def test_hints_follow_what_is_typed_and_a_save_traces_the_cells_of_now(editor):
    notebook = await opened(editor, IMPORTS, NET, USE)
    imports, net, use = notebook.cells
    notebook.type(imports, 1, 10, 1, 10, "\nheight = 3\ndepth = 4")
    notebook.type(net, 2, 12, 2, 19, "self.fc2")
    left = {at: hint for at, hint in NET_HINTS.items() if at[0] != 2}
    assert await all_hints(notebook) == [{}, marked(left), marked(USE_HINTS)]
    notebook.type(net, 2, 12, 2, 20, "self.fc")
    assert await all_hints(notebook) == [{}, marked(NET_HINTS), marked(USE_HINTS)]
    notebook.type(net, 0, 0, 0, 0, "# a line more\n")
    below = {(line + 1, column): hint for (line, column), hint in NET_HINTS.items()}
    assert await all_hints(notebook) == [{}, marked(below), marked(USE_HINTS)]
    notebook.retype(use, "B:2, 10", "B:2, 12")
    assert await editor.hints(use) == {}
    notebook.save()
    assert await editor.end_state(notebook) == "ready"
    assert await all_hints(notebook) == [{}, below, {(1, 3): ": f32[B, 12]"}]


async def test_cells_that_come_move_and_go_take_what_is_shown_with_them(editor):
    notebook = await opened(editor, IMPORTS, NET, USE, BROKEN)
    notebook.insert(1, notebook.cell("import os\n"))
    assert await all_hints(notebook) == [{}, {}, marked(NET_HINTS), marked(USE_HINTS), {}]
    assert len((await editor.diagnostics(notebook.cells[4])).items) == 1
    notebook.remove(1)
    gone = notebook.cells[2]
    notebook.remove(2)
    assert await all_hints(notebook) == [{}, marked(NET_HINTS), {}]
    assert await editor.hints(gone) == {}
    assert not (await editor.diagnostics(gone)).items
    notebook.move(2, 0)
    notebook.save()
    assert await editor.end_state(notebook) == "failed"
    assert await all_hints(notebook) == [{}, {}, NET_HINTS]
    assert len((await editor.diagnostics(notebook.cells[0])).items) == 1


async def test_diagnostics_are_pushed_to_cells_and_cleared_with_them(new_editor):
    editor = await new_editor(can=can(pull=False))
    notebook = Notebook(editor, editor.folder / "net.ipynb", IMPORTS, BROKEN, "y = 1", BROKEN)
    notebook.open()

    async def pushed(count):
        """{cell: diagnostics} of so many messages."""
        told = [await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS) for _ in range(count)]
        return {params.uri: [item.range.start.line for item in params.diagnostics] for params in told}

    _, first, _, second = notebook.cells
    assert await pushed(2) == {first.uri: [0], second.uri: [0]}
    notebook.remove(3)
    assert await pushed(1) == {second.uri: []}
    notebook.retype(first, "!! expected", "expected")
    notebook.save()
    assert await pushed(1) == {first.uri: []}
    notebook.retype(first, "expected", "!! expected")
    notebook.save()
    assert await pushed(1) == {first.uri: [0]}
    notebook.close()
    assert await pushed(1) == {first.uri: []}
    assert await editor.hints(first) == {}


async def test_commands_take_the_address_of_a_cell_and_files_beside_are_as_ever(editor):
    notebook = await opened(editor, IMPORTS, NET)
    for method in REFRESHES:
        await editor.expect(method)
    await editor.command("mase.retrace", notebook.cells[1].uri)
    assert await editor.end_state(notebook) == "ready"
    [model] = await editor.request("mase/models", {"uri": notebook.cells[1].uri})
    assert (model["name"], model["path"]) == ("Net", str(notebook.path))
    path = editor.folder / "net.py"
    editor.open(path, f"{IMPORTS}\n{NET}\n")
    assert await editor.end_state(path) == "ready"
    assert await editor.hints(path) == {(line + 2, column): hint for (line, column), hint in NET_HINTS.items()}


async def test_what_a_notebook_holds_beside_python_is_not_seen(editor):
    notebook = Notebook(editor, editor.folder / "mixed.ipynb")
    markdown = notebook.cell("# Net", "markdown")
    script = notebook.cell("echo 1", "shellscript")
    notebook.cells = [notebook.cell(IMPORTS), script, notebook.cell(NET)]
    notebook.path.write_text(as_json(notebook.cells))
    # A client tells of Python cells alone, as it was asked to.
    notebook.cells.remove(script)
    notebook.open()
    assert await editor.end_state(notebook) == "ready"
    assert await all_hints(notebook) == [{}, NET_HINTS]
    assert await editor.hints(markdown) == {}
    assert json.loads(notebook.path.read_text())["cells"][3]["source"] == ["echo 1"]


async def test_positions_in_cells_are_of_the_sessions_encoding(new_editor):
    editor = await new_editor(can=can(encodings=[lsp.PositionEncodingKind.Utf8]))
    notebook = await opened(editor, "# model Ü😀\n", "'ü😀'; y = f()  # => f32[B:2]")
    text = notebook.cells[1].text
    column = len(text[: text.index("y =") + 1].encode())
    assert await editor.hints(notebook.cells[1]) == {(0, column): ": f32[B]"}
    start = column - 1
    notebook.type(notebook.cells[1], 0, 0, 0, 0, "")
    hover = await editor.hover(notebook.cells[1], 0, start)
    assert hover.range.start.character == start
