"""Editors as they really are: each capability file is what a real editor sent with `initialize`.

`tests/clients` runs those editors; here a client that announces the same holds what the server owes to it, and that
nothing comes which it did not say it understands.
"""

import asyncio
import json
import os
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from editing import REFRESHES, Editor
from lsprotocol import types as lsp

from mase_server.lsp.server import make_converter as of_server

RECORDED = sorted(Path(__file__).with_name("clients").glob("*.json"))
TEXT = """# model Net
class Net:
    def forward(self, x):
        \"\"\"😋\"\"\"; y = f(x)  # => f32[B:2, 10]
        return g(y)  # !! expected 64 features, got 10 ~~ g(y) -> h(y)
"""
AFTER_Y = {"utf-8": 21, "utf-16": 19, "utf-32": 18}

#: Requests of the server -> where a client says that it answers them.
ANSWERED = {
    lsp.WORKSPACE_INLAY_HINT_REFRESH: ("workspace", "inlayHint", "refreshSupport"),
    lsp.WORKSPACE_CODE_LENS_REFRESH: ("workspace", "codeLens", "refreshSupport"),
    lsp.WORKSPACE_DIAGNOSTIC_REFRESH: ("workspace", "diagnostics", "refreshSupport"),
    lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH: ("workspace", "textDocumentContent"),
    lsp.WORKSPACE_CONFIGURATION: ("workspace", "configuration"),
    lsp.WINDOW_WORK_DONE_PROGRESS_CREATE: ("window", "workDoneProgress"),
    lsp.WINDOW_SHOW_DOCUMENT: ("window", "showDocument", "support"),
}


def said(capabilities, *keys):
    """What a client says of itself, by the protocol's own keys."""
    for key in keys:
        capabilities = (capabilities or {}).get(key)
    return capabilities


class Recorded(Editor):
    """A client that announces what a real editor did; with no workspace at all where `rootless`."""

    def __init__(self, folder, recorded, *, rootless=False, **arguments):
        self.said = recorded
        self.rootless = rootless
        super().__init__(folder, can=of_server().structure(recorded, lsp.ClientCapabilities), **arguments)

    async def initialize(self, process_id=None):
        if not self.rootless:
            return await super().initialize(process_id)
        params = lsp.InitializeParams(self.can, os.getpid(), root_uri=None, initialization_options=self.options)
        result = await self.client.initialize_async(params)
        self.client.initialized(lsp.InitializedParams())
        return result


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
async def recorded(request, tmp_path):
    """An editor with its file open; whatever it was sent that it does not understand is an error in the end."""
    capabilities = json.loads(request.param.read_text())["capabilities"]
    editor = Recorded(tmp_path, capabilities)
    editor.announced = (await editor.start()).capabilities
    path = tmp_path / "net.py"
    editor.open(path, TEXT)
    yield editor, path
    sent = {method for method, _ in editor.unread}
    assert not [method for method, keys in ANSWERED.items() if method in sent and not said(capabilities, *keys)]
    editor.unread.clear()
    await editor.stop()


async def test_it_sees_what_it_can_show(recorded):
    """One session for each editor: every start of a server costs a second."""
    editor, path = recorded
    offered = said(editor.said, "general", "positionEncodings") or ["utf-16"]
    encoding = editor.announced.position_encoding
    assert encoding in offered

    # Asked before the trace has ended: who cannot be told to ask again waits for it.
    hints = await asyncio.wait_for(editor.hints(path), 30)
    if not said(editor.said, "workspace", "inlayHint", "refreshSupport"):
        assert hints == {(3, AFTER_Y[encoding]): ": f32[B, 10]"}
    lenses = await editor.lenses(path)
    if not said(editor.said, "workspace", "codeLens", "refreshSupport"):
        assert "1,010 parameters" in lenses[1][0]
    assert await editor.end_state(path) == "failed"
    assert await editor.hints(path) == {(3, AFTER_Y[encoding]): ": f32[B, 10]"}

    await holds_what_is_wrong(editor, path)
    told = (await editor.hover(path, 3, AFTER_Y[encoding] - 1)).contents
    assert told.kind in (said(editor.said, "textDocument", "hover", "contentFormat") or ["markdown"])
    assert "| ---" not in told.value, "none of these draws tables"
    await every_command_is_one_it_can_run(editor, path)
    await a_document_of_ours_is_shown_or_named(editor, path)


async def holds_what_is_wrong(editor, path):
    """Pushed, unless it asks by itself and lets itself be asked to; never both."""
    asks = said(editor.said, "textDocument", "diagnostic") and said(
        editor.said, "workspace", "diagnostics", "refreshSupport"
    )
    assert (editor.announced.diagnostic_provider is not None) == bool(asks)
    if asks:
        items = (await editor.diagnostics(path)).items
    else:
        items = (await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)).diagnostics
    assert [item.message for item in items] == ["expected 64 features, got 10"]


async def every_command_is_one_it_can_run(editor, path):
    """What lenses and actions have executed is the server's own; edits are of the kind that it takes."""
    known = editor.announced.execute_command_provider.commands
    lenses = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id(path)))
    actions = [*await editor.actions(path, 1, 6), *await editor.actions(path, 4, 16)]
    commands = [lens.command.command for lens in lenses] + [each.command.command for each in actions if each.command]
    assert commands
    assert not set(commands) - set(known)
    [fix] = [each for each in actions if each.title == "Use h(y)"]
    lazy = "edit" in (said(editor.said, "textDocument", "codeAction", "resolveSupport", "properties") or [])
    edit = (await editor.client.code_action_resolve_async(fix)).edit if lazy else fix.edit
    versioned = said(editor.said, "workspace", "workspaceEdit", "documentChanges")
    assert (edit.document_changes is not None, edit.changes is not None) == (bool(versioned), not versioned)


async def a_document_of_ours_is_shown_or_named(editor, path):
    """Who cannot be made to show a file is told where it is."""
    shown = await editor.command("mase.showTransformed", {"uri": path.as_uri()})
    uri = shown["uri"]
    assert uri.startswith("file:")
    if said(editor.said, "window", "showDocument", "support"):
        assert (await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)).uri == uri
    else:
        told = (await editor.expect(lsp.WINDOW_SHOW_MESSAGE)).message
        assert told.endswith(f"is shown by opening {unquote(urlparse(uri).path)}")
        assert Path(unquote(urlparse(uri).path)).read_text() == shown["text"]


async def test_a_file_without_a_workspace_has_its_shapes(tmp_path):
    """Emacs and Neovim outside of a project, Helix in a folder without a marker: no root, no workspace folders."""
    editor = Recorded(tmp_path, {}, rootless=True)
    await editor.start()
    path = tmp_path / "net.py"
    editor.open(path, TEXT)
    assert await asyncio.wait_for(editor.hints(path), 30) == {(3, AFTER_Y["utf-16"]): ": f32[B, 10]"}
    assert not [method for method, _ in editor.unread if method in (*REFRESHES, lsp.WORKSPACE_CONFIGURATION)]
    editor.unread.clear()
    await editor.stop()


async def test_who_types_while_a_question_waits_is_told_that_its_range_is_of_another_text(tmp_path):
    editor = Recorded(tmp_path, {})
    await editor.start()
    path = tmp_path / "net.py"
    editor.open(path, TEXT + "# hang\n")
    waiting = asyncio.ensure_future(editor.hints(path))
    lenses = asyncio.ensure_future(editor.lenses(path))
    await editor.expect("mase/status", lambda status: status.state == "tracing")
    editor.change(path, (0, 0, 0, 0, "\n"))
    editor.save(path, "\n" + TEXT)
    with pytest.raises(Exception, match="the document was edited meanwhile"):
        await asyncio.wait_for(waiting, 30)
    assert list(await asyncio.wait_for(lenses, 30)) == [2], "lenses are of the whole document, and of the new one"
    editor.unread.clear()
    await editor.stop()
