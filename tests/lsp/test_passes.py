"""Passes as an editor has them: actions, commands, what is shown meanwhile and then. The daemon is the fake one."""

import asyncio
from pathlib import Path

import pytest
from editing import capabilities
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.uris import to_fs_path

NET = """\
# model Net
class Net:
    def forward(self, x):  # => f32[B:2, 10]
        y = self.fc(x)  # => f32[B:2, 10]
        return y  # => f32[B:2, 10]
"""
FLOAT = {(2, 23): ": f32[B, 10]", (3, 9): ": f32[B, 10]", (4, 16): " -> f32[B, 10]"}
FIXED = {at: text.replace("f32", "fixed(8,4)") for at, text in FLOAT.items()}
EMIT = "Emit the Verilog of Net..."
QUANTIZE = {"pass": "quantize", "arguments": {"default": "fixed(8,4)"}}


async def opened(editor, text=NET):
    path = editor.folder / "net.py"
    editor.open(path, text)
    assert await editor.end_state(path) == "ready"
    return path


async def titles(editor, path, line, only=None):
    actions = await editor.actions(path, line, 0, only) or ()
    return [action.title.removeprefix("MASE: ") for action in actions if action.title.startswith("MASE: ")]


async def apply(editor, path, **more):
    return await editor.command("mase.applyPass", {"uri": path.as_uri(), **QUANTIZE, **more})


async def test_a_class_offers_the_commonest_passes_and_the_others_behind_one_action(editor):
    path = await opened(editor)
    assert await titles(editor, path, 1) == ["Quantise Net...", "Prune Net...", "More passes for Net...", EMIT]
    assert await titles(editor, path, 0) == []


@pytest.mark.parametrize(
    ("only", "offered"),
    [
        ([lsp.CodeActionKind.QuickFix], False),
        ([lsp.CodeActionKind.Source], False),
        ([lsp.CodeActionKind.Refactor], True),
        (["refactor.rewrite.mase"], True),
    ],
)
async def test_passes_are_rewrites_and_no_fixes(editor, only, offered):
    path = await opened(editor)
    assert bool(await titles(editor, path, 1, only)) == offered


async def test_nothing_is_offered_where_the_text_was_edited_or_is_older_than_what_is_shown(editor):
    path = await opened(editor)
    editor.change(path, (1, 9, 1, 9, "(object)"))
    assert await titles(editor, path, 1) == []
    editor.change(path, (1, 9, 1, 17, ""))
    assert await titles(editor, path, 1) != []
    editor.change(path, (0, 0, 0, 0, "def (\n"))
    editor.save(path, "def (\n" + NET)
    await editor.end_state(path)
    assert await titles(editor, path, 2) == []


async def test_the_action_carries_out_what_it_says(editor):
    path = await opened(editor)
    action = next(each for each in await editor.actions(path, 1, 0) if each.title == "MASE: Quantise Net...")
    [given] = action.command.arguments
    assert given == {"path": str(path), "model": "Net", "only": [], "name": "Net", "pass": "quantize"}
    answer = await editor.command(action.command.command, {**given, "arguments": {"default": "fixed(8,4)"}})
    assert (answer["model"], answer["steps"]) == ("Net", ["quantize(default='fixed(8,4)')"])
    assert answer["info"] == "quantize did it"
    assert await editor.hints(path) == FIXED


async def test_an_applied_pass_is_there_with_every_save_and_undo_takes_it_back(editor):
    path = await opened(editor)
    await apply(editor, path)
    longer = NET + "\n# a comment\n"
    editor.retype(path, NET, longer)
    editor.save(path, longer)
    await editor.end_state(path)
    assert await editor.hints(path) == FIXED
    await editor.command("mase.undoPass", {"uri": path.as_uri()})
    assert await editor.hints(path) == FLOAT
    await editor.command("mase.redoPass", {"uri": path.as_uri()})
    assert await editor.hints(path) == FIXED
    await editor.command("mase.resetPasses", {"uri": path.as_uri()})
    assert await editor.hints(path) == FLOAT


async def test_with_a_pipeline_the_class_offers_what_can_be_done_with_it(editor):
    path = await opened(editor)
    await apply(editor, path)
    offered = await titles(editor, path, 1)
    assert offered[3:] == ["Undo quantize", "Compare Net with its original", "Pipeline of Net...", EMIT]
    await editor.command("mase.undoPass", {"uri": path.as_uri()})
    assert (await titles(editor, path, 1))[3:] == ["Pipeline of Net...", EMIT]


async def test_the_lens_tells_the_pipeline_what_it_saves_and_costs_and_how_to_take_it_back(editor):
    path = await opened(editor)
    assert len((await editor.lenses(path))[1]) == 1
    await apply(editor, path)
    assert (await editor.lenses(path))[1] == [
        "guessed B=2", "quantize · 8 bits · SQNR 38.2 dB (random weights)", "undo", "compare",
    ]  # fmt: skip


async def test_errors_that_are_not_measured_yet_are_not_told(editor):
    path = await opened(editor)
    await apply(editor, path)
    held = asyncio.ensure_future(apply(editor, path, **{"pass": "late", "arguments": {}}))
    while "measuring…" not in " ".join((await editor.lenses(path))[1]):
        await editor.expect(lsp.WORKSPACE_CODE_LENS_REFRESH)
    card = (await editor.hover(path, 1, 7)).contents.value
    assert "| error of the output | measuring… |" in card
    assert "dB" not in card
    assert "Measured" not in card
    assert await editor.hints(path) == FIXED
    editor.change(path, (5, 0, 5, 0, "#"))
    editor.save(path, NET + "#")
    await held
    card = (await editor.hover(path, 1, 7)).contents.value
    assert "| error of the output | SQNR 38.2 dB (random weights) · max error 0.0123 |" in card
    assert "*Measured against the original: random inputs (seed 0); random weights (seed 0)*" in card


async def test_the_card_of_a_model_lists_its_passes_and_sizes_before_and_after(editor):
    path = await opened(editor)
    await apply(editor, path)
    card = (await editor.hover(path, 1, 7)).contents.value
    assert "1. `quantize(default='fixed(8,4)')`" in card
    assert "| size | 3.95 KiB → 1010 B · 4.0x smaller |" in card
    assert "| bits of weights | 32 bits → 8 bits |" in card
    assert "| parameters | 1,010 |" in card


async def test_the_card_of_a_value_tells_its_size_before_and_after(editor):
    path = await opened(editor)
    await apply(editor, path)
    card = (await editor.hover(path, 3, 8)).contents.value
    assert "fixed(8,4)[B, 10]" in card
    assert "| size | 20 elements · 80 B → 20 B |" in card
    assert "element type" not in card


async def test_a_pass_that_fails_says_why_and_changes_nothing(editor):
    path = await opened(editor)
    with pytest.raises(JsonRpcException, match=r"layer 'fc' has no weight; leave it out with only=\[...\]") as caught:
        await apply(editor, path, **{"pass": "fail", "arguments": {}})
    assert caught.value.code == lsp.LSPErrorCodes.RequestFailed.value
    assert await editor.hints(path) == FLOAT


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "name a file"),
        ({"uri": "file:///nowhere.py"}, "/nowhere.py has no model yet: open it"),
        ({"model": "Web"}, "net.py has no model 'Web'; it has Net"),
        ({"pass": "quantise"}, "there is no pass 'quantise'; there are fail, guess, hang, late, prune, quantize"),
    ],
)
async def test_a_command_that_names_nothing_there_is_says_what_there_is(editor, given, message):
    path = await opened(editor)
    with pytest.raises(JsonRpcException, match=message):
        await editor.command("mase.applyPass", {**({"uri": path.as_uri()} if given else {}), **QUANTIZE, **given})


async def test_nothing_to_undo_is_said(editor):
    path = await opened(editor)
    with pytest.raises(JsonRpcException, match="there is nothing to undo: no pass is applied to Net"):
        await editor.command("mase.undoPass", {"uri": path.as_uri()})


async def test_a_required_argument_is_asked_for(new_editor):
    editor = await new_editor(answer=lsp.MessageActionItem("mxint(8,32)"))
    path = await opened(editor)
    answer = await editor.command("mase.applyPass", {"uri": path.as_uri(), "pass": "quantize"})
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert question.message == "Quantise: the format"
    assert [action.title for action in question.actions] == ["fixed(8,4)", "mxint(8,32)"]
    assert answer["steps"] == ["quantize(default='mxint(8,32)')"]


async def test_whoever_gives_no_answer_wants_no_pass(editor):
    path = await opened(editor)
    assert await editor.command("mase.applyPass", {"uri": path.as_uri(), "pass": "quantize"}) is None
    await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert await editor.hints(path) == FLOAT


async def test_any_pass_of_the_menu_can_be_chosen(new_editor):
    editor = await new_editor(answer=lsp.MessageActionItem("prune"))
    path = await opened(editor)
    answer = await editor.command("mase.choosePass", {"uri": path.as_uri(), "only": ["fc"]})
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert [action.title for action in question.actions] == ["fail", "hang", "late", "prune", "quantize"]
    assert answer["steps"] == ["prune(only=['fc'])"]


async def test_a_running_pass_shows_progress_and_cancel_takes_it_back(new_editor):
    editor = await new_editor(can=capabilities(progress=True))
    path = await opened(editor)
    running = asyncio.ensure_future(apply(editor, path, **{"pass": "hang", "arguments": {}}))
    created = await editor.expect(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE)
    begun = (await editor.expect(lsp.PROGRESS)).value
    assert (begun["title"], begun["cancellable"], begun["percentage"]) == ("Hang: Net", True, 50)
    editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(created.token))
    assert await running is None
    assert (await editor.expect(lsp.PROGRESS)).value["kind"] == "end"
    assert await editor.hints(path) == FLOAT
    await apply(editor, path)
    assert await editor.hints(path) == FIXED


async def test_the_pipeline_is_listed_with_what_can_be_done(new_editor):
    editor = await new_editor(answer=lsp.MessageActionItem("Undo"))
    path = await opened(editor)
    await apply(editor, path)
    answer = await editor.command("mase.pipeline", {"uri": path.as_uri()})
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert question.message == "Passes on Net: 1. quantize(default='fixed(8,4)')"
    assert [action.title for action in question.actions] == ["Undo", "Remove all", "Compare with the original"]
    assert (answer["steps"], answer["undone"]) == ([], ["quantize(default='fixed(8,4)')"])


async def test_the_settings_that_keep_a_pipeline_are_told(editor):
    path = await opened(editor)
    await apply(editor, path)
    form = {"Net": ["quantize(default='fixed(8,4)')"]}
    assert await editor.command("mase.writePipeline", {"uri": path.as_uri(), "show": False}) == form
    assert await editor.command("mase.writePipeline", {"uri": path.as_uri()}) == form
    message = await editor.expect(lsp.WINDOW_SHOW_MESSAGE)
    assert '"mase.pipelines": {"Net": ["quantize(default=\'fixed(8,4)\')"]}' in message.message


@pytest.mark.parametrize(
    ("name", "value", "answer"),
    [
        ("sparsity", "0.25", {"value": 0.25}),
        ("sparsity", "1.5", {"problem": "sparsity is '1.5', expected a number from 0 to 1"}),
        ("only", "fc1, fc2", {"value": ["fc1", "fc2"]}),
    ],
)
async def test_an_argument_is_judged_as_it_is_typed(editor, name, value, answer):
    path = await opened(editor)
    asked = {"uri": path.as_uri(), "pass": "prune", "argument": name, "value": value}
    told = await editor.request("mase/checkArgument", asked)
    assert told._asdict() == answer


async def test_what_lies_over_a_file_is_told_when_it_changes(editor):
    path = await opened(editor)
    await apply(editor, path)
    told = await editor.expect("mase/pipelines")
    assert (told.uri, told.pipelines._asdict()) == (path.as_uri(), {"Net": ["quantize(default='fixed(8,4)')"]})
    await editor.command("mase.undoPass", {"uri": path.as_uri()})
    assert (await editor.expect("mase/pipelines")).pipelines._asdict() == {}


async def test_a_client_without_graph_documents_gets_files_that_are_not_traced(editor):
    path = await opened(editor)
    await apply(editor, path)
    answer = await editor.command("mase.showTransformed", {"uri": path.as_uri()})
    shown = await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    assert shown.uri == answer["uri"]
    assert answer["text"] == "class Net:\n    # quantize(default='fixed(8,4)')\n"
    difference = await editor.command("mase.compare", {"uri": path.as_uri()})
    assert "+    # quantize(default='fixed(8,4)')" in difference["text"].splitlines()
    assert difference["uri"].endswith("/Net.diff")
    await editor.expect(lsp.WINDOW_SHOW_DOCUMENT)
    written = Path(to_fs_path(shown.uri))
    assert written.read_text() == answer["text"]
    editor.open(written, "# model Net\n" + answer["text"])
    editor.open(path.with_name("other.py"), NET)
    await editor.end_state(path.with_name("other.py"))
    assert not [told for method, told in editor.unread if method == "mase/status" and told.uri == written.as_uri()]


async def test_graph_documents_follow_passes_and_saves(new_editor):
    editor = await new_editor(can=capabilities(graphs=True))
    assert editor.initialized.capabilities.workspace.text_document_content.schemes == (
        "mase-graph", "mase-verilog", "mase-compiled",
    )  # fmt: skip
    path = await opened(editor)
    documents = await editor.command("mase.compare", {"uri": path.as_uri(), "show": False})

    async def text(which):
        params = lsp.TextDocumentContentParams(documents[which])
        return (await editor.client.workspace_text_document_content_async(params)).text

    assert documents["transformed"].startswith("mase-graph:")
    assert documents["transformed"].endswith("/Net.transformed.py")
    assert await text("original") == await text("transformed") == "class Net:\n"
    await apply(editor, path)
    refresh = await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
    assert refresh.uri == documents["transformed"]
    assert await text("transformed") == "class Net:\n    # quantize(default='fixed(8,4)')\n"
    assert await text("original") == "class Net:\n"
    editor.change(path, (0, 0, 0, 0, "import os\n"))
    editor.save(path, "import os\n" + NET)
    assert {(await editor.expect(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)).uri for _ in range(2)} == {
        documents["original"], documents["transformed"],
    }  # fmt: skip


async def test_a_graph_document_of_nothing_says_so(new_editor):
    editor = await new_editor(can=capabilities(graphs=True))
    params = lsp.TextDocumentContentParams("mase-graph:///nowhere.py/Net.transformed.py")
    assert "There is no graph of Net now" in (await editor.client.workspace_text_document_content_async(params)).text
    params = lsp.TextDocumentContentParams("mase-graph:nonsense")
    assert "has no document" in (await editor.client.workspace_text_document_content_async(params)).text
