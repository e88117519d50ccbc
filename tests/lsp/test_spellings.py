"""An editor sees its own spelling of every URI, whatever the server calls the file that it names."""

from editing import Editor, capabilities
from lsprotocol import types as lsp
from test_protocol import HINTS, NET, opened

WRONG = "# !! @other.py it does not fit\n"


async def test_hints_and_problems_arrive_under_the_link_that_was_opened(new_editor):
    editor = await new_editor(can=capabilities(pull=False))
    real, link = editor.folder / "real.py", editor.folder / "link.py"
    real.write_text(NET)
    link.symlink_to("real.py")
    editor.open(link)
    assert await editor.end_state(link) == "ready"
    assert await editor.hints(link) == HINTS
    wrong = NET + "y = 1  # !! no such thing\n"
    editor.change(link, (len(NET.splitlines()), 0, len(NET.splitlines()), 0, "y = 1  # !! no such thing\n"))
    real.write_text(wrong)
    editor.client.text_document_did_save(lsp.DidSaveTextDocumentParams(editor.id(link)))
    assert await editor.end_state(link) == "failed"
    pushed = await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert (pushed.uri, pushed.diagnostics[0].message) == (link.as_uri(), "no such thing")
    assert {getattr(told, "uri", link.as_uri()) for _, told in editor.unread} == {link.as_uri()}
    editor.close(link)
    assert (await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)).diagnostics == ()


async def test_a_file_may_be_open_by_its_name_and_by_a_link(new_editor):
    editor = await new_editor()
    real, link = editor.folder / "real.py", editor.folder / "link.py"
    real.write_text(NET)
    link.symlink_to("real.py")
    editor.open(real)
    assert await editor.end_state(real) == "ready"
    editor.open(link)
    editor.change(link, (0, 0, 0, 0, "\n"))
    down = {(line + 1, column): text for (line, column), text in HINTS.items()}
    assert (await editor.hints(real), await editor.hints(link)) == (HINTS, down)
    await editor.request("mase/retrace", {"uri": real.as_uri()})
    assert (await editor.end_state(real), await editor.end_state(link)) == ("ready", "ready")
    editor.close(link)
    assert await editor.hints(real) == HINTS


async def test_a_linked_workspace_folder_is_named_as_the_editor_names_it(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    editor = Editor(tmp_path / "alias", can=capabilities(pull=False))
    await editor.start()
    (editor.folder / "other.py").write_text("x = 1\n")
    path, state = await opened(editor, NET + WRONG)
    assert state == "failed"
    editor.open(editor.folder / "other.py")
    pushed = await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert pushed.uri == (tmp_path / "alias" / "other.py").as_uri()
    assert await editor.hints(path) == HINTS
    editor.close(editor.folder / "other.py")
    cleared = await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert (cleared.uri, list(cleared.diagnostics)) == (pushed.uri, [])
    await editor.stop()


async def test_a_link_that_leads_elsewhere_when_it_is_saved_is_another_file(new_editor):
    editor = await new_editor()
    link = editor.folder / "link.py"
    (editor.folder / "real.py").write_text(NET)
    link.symlink_to("real.py")
    editor.open(link)
    assert await editor.end_state(link) == "ready"
    editor.save(link, NET)  # it replaces what is there by a file, as many editors do
    assert await editor.end_state(link) == "ready"
    files = (await editor.request("mase/info", {})).files
    assert str(link) in files
    assert await editor.hints(link) == HINTS


async def test_a_link_out_of_the_trusted_folder_leads_to_a_file_that_is_not_trusted(tmp_path):
    for name in ("work", "beside"):
        (tmp_path / name).mkdir()
    (tmp_path / "beside" / "net.py").write_text(NET)
    link = tmp_path / "work" / "net.py"
    link.symlink_to("../beside/net.py")
    editor = Editor(tmp_path / "work", answer=lsp.MessageActionItem("Trust"))
    await editor.start()
    editor.open(link)
    assert await editor.end_state(link) == "untrusted"
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert f" {tmp_path / 'beside'}." in question.message
    assert await editor.end_state(link) == "ready"
    assert await editor.hints(link) == HINTS
    await editor.stop()
