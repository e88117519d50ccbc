"""What was assumed, as an editor offers it: a comment above the class, for the text of now, on intact lines only."""

import pytest
from editing import capabilities
from lsprotocol import types as lsp

NET = """\
# model Net
class Net:
    def forward(self, x):  # => f32[B:2, 10]
        return x  # => f32[B:2, 10]
"""
WRITE = "Write the assumed inputs as a `# mase:` comment"
CHANGE = "Change the inputs of Net in a `# mase:` comment..."


async def opened(editor, text=NET):
    path = editor.folder / "net.py"
    editor.open(path, text)
    await editor.end_state(path)
    return path


async def offered(editor, path, line, character=0, only=None):
    actions = await editor.actions(path, line, character, only) or ()
    return {action.title: action for action in actions if not action.title.startswith("MASE: ")}


def inserted(edit):
    [document] = edit.document_changes
    [change] = document.edits
    assert change.range.start == change.range.end
    return change.range.start.line, change.new_text


async def test_both_comments_are_offered_anywhere_on_the_line_of_the_class_and_nowhere_else(editor):
    path = await opened(editor)
    assert set(await offered(editor, path, 1, 0)) == {WRITE, CHANGE}
    assert set(await offered(editor, path, 1, 9)) == {WRITE, CHANGE}
    assert not await offered(editor, path, 0)
    assert not await offered(editor, path, 2)


async def test_the_comment_goes_directly_above_the_class_of_the_present_text(editor):
    path = await opened(editor)
    editor.change(path, (0, 0, 0, 0, "import os\n"))
    actions = await offered(editor, path, 2)
    assert inserted(actions[WRITE].edit) == (2, "# mase: x: f32[B=2, 10]\n")


async def test_nothing_is_offered_once_the_line_of_the_class_was_edited(editor):
    path = await opened(editor)
    editor.change(path, (1, 9, 1, 9, "(object)"))
    assert not await offered(editor, path, 1)


@pytest.mark.parametrize(
    ("only", "titles"),
    [
        ([lsp.CodeActionKind.QuickFix], {WRITE}),
        ([lsp.CodeActionKind.Refactor], {CHANGE}),
        ([lsp.CodeActionKind.RefactorRewrite], {CHANGE}),
        ([lsp.CodeActionKind.Source], set()),
    ],
)
async def test_each_comment_has_its_kind(editor, only, titles):
    path = await opened(editor)
    assert set(await offered(editor, path, 1, only=only)) == titles


async def test_a_client_that_resolves_gets_the_edit_when_it_chooses(new_editor):
    editor = await new_editor(can=capabilities(lazy_edits=True))
    path = await opened(editor)
    action = (await offered(editor, path, 1))[WRITE]
    assert action.edit is None
    editor.change(path, (0, 0, 0, 0, "\n\n"))
    resolved = await editor.client.code_action_resolve_async(action)
    assert inserted(resolved.edit) == (3, "# mase: x: f32[B=2, 10]\n")


async def test_a_model_whose_class_changed_meanwhile_resolves_to_nothing(new_editor):
    editor = await new_editor(can=capabilities(lazy_edits=True))
    path = await opened(editor)
    action = (await offered(editor, path, 1))[WRITE]
    editor.change(path, (1, 6, 1, 9, "Web"))
    assert (await editor.client.code_action_resolve_async(action)).edit is None


async def test_arguments_without_a_text_form_are_told_instead(new_editor):
    text = NET.replace("class Net:", "class Net:  # no text: the argument layer has no text form")
    can = capabilities()
    can.text_document.code_action = lsp.CodeActionClientCapabilities(disabled_support=True)
    editor = await new_editor(can=can)
    path = await opened(editor, text)
    actions = await offered(editor, path, 1)
    assert actions[WRITE].disabled.reason == "The argument layer has no text form."
    assert actions[WRITE].edit is None
    assert inserted(actions[CHANGE].edit) == (1, "# mase: x: f32[B=2, 10]\n")


async def test_a_client_that_shows_no_disabled_actions_gets_none(editor):
    path = await opened(editor, NET.replace("class Net:", "class Net:  # no text: the argument has no text form"))
    assert set(await offered(editor, path, 1)) == {CHANGE}
