"""The real server process over stdio: what an editor sees. The daemon behind it is the fake one."""

import asyncio
import os
import re
import signal
import sys

import pytest
from editing import FAKE_SERVER, REFRESHES, Editor, capabilities, marked
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

NET = """\
# model Net
class Net:
    def forward(self, x, mask):  # => f32[B:2, 64] / f32[B:2, 128]; bool[B:2]
        y = self.fc(x)  # => f32[B:2, 10]
        z: Tensor = y * 2  # => f32[B:2, 10]
        return z  # => f32[B:2, 10]
"""
HINTS = {
    (2, 23): ": f32[B, 64|128]",
    (2, 29): ": bool[B]",
    (3, 9): ": f32[B, 10]",
    (4, 9): " f32[B, 10]",
    (5, 16): " -> f32[B, 10]",
}
BROKEN = """\
# model Net
class Net:
    def forward(self, x):  # => f32[B:2, 64]
        return self.fc(x, 10)  # !! expected 64 features, got 10 ~~ 10 -> 64
"""


def below(hints, line, by=1):
    return {(at + by if at >= line else at, character): text for (at, character), text in hints.items()}


async def opened(editor, text=NET, name="net.py"):
    path = editor.folder / name
    editor.open(path, text)
    return path, await editor.end_state(path)


async def test_hints_stand_behind_the_names(editor):
    path, state = await opened(editor)
    assert state == "ready"
    assert await editor.hints(path) == HINTS


async def test_only_the_lines_asked_for_get_hints(editor):
    path, _ = await opened(editor)
    assert await editor.hints(path, 3, 4) == {at: text for at, text in HINTS.items() if at[0] in {3, 4}}


async def test_a_hint_resolves_to_the_whole_card(editor):
    path, _ = await opened(editor)
    area = lsp.Range(lsp.Position(3, 0), lsp.Position(3, 99))
    [hint] = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(editor.id(path), area))
    resolved = await editor.client.inlay_hint_resolve_async(hint)
    assert resolved.tooltip.value == (await editor.hover(path, 3, 8)).contents.value


async def test_a_hint_of_an_older_trace_resolves_to_itself(editor):
    path, _ = await opened(editor)
    area = lsp.Range(lsp.Position(3, 0), lsp.Position(3, 99))
    [hint] = await editor.client.text_document_inlay_hint_async(lsp.InlayHintParams(editor.id(path), area))
    editor.change(path, (0, 0, 0, 0, "#"))
    editor.save(path, "#" + NET)
    await editor.end_state(path)
    assert (await editor.client.inlay_hint_resolve_async(hint)).tooltip is None


async def test_hints_move_with_the_text_and_leave_the_edited_line(editor):
    path, _ = await opened(editor)
    editor.change(path, (3, 0, 3, 0, "        # why\n"), (5, 10, 5, 10, "a"))
    # What ran once before the edited line stays sure; what ran twice, or comes after it, may have changed.
    doubted = marked({at: text for at, text in HINTS.items() if at == (2, 23) or at[0] > 4})
    expected = below({at: text for at, text in {**HINTS, **doubted}.items() if at[0] != 4}, 3)
    assert await editor.hints(path) == expected


async def test_hints_come_back_when_the_edit_is_undone(editor):
    path, _ = await opened(editor)
    editor.change(path, (3, 8, 5, 0, ""))
    assert await editor.hints(path) == marked({(2, 23): HINTS[2, 23], (2, 29): HINTS[2, 29]})
    deleted = "".join(line + "\n" for line in NET.split("\n")[3:5])[8:]
    editor.change(path, (3, 8, 3, 8, deleted))
    assert await editor.hints(path) == HINTS


async def test_the_first_request_after_a_save_is_answered_from_the_shifted_hints(editor):
    path, _ = await opened(editor)
    text = NET.replace("# model Net\n", "# model Net\n# hang\n")
    editor.change(path, (1, 0, 1, 0, "# hang\n"))
    editor.save(path, text)
    await editor.expect("mase/status", lambda status: status.state == "tracing" and status.generation == 2)
    assert await editor.hints(path) == below(HINTS, 1)


async def test_a_save_brings_fresh_hints(editor):
    path, _ = await opened(editor)
    text = NET.replace("y = self.fc(x)  # => f32[B:2, 10]", "y = self.fc(x)  # => f32[B:2, 77]")
    editor.retype(path, NET, text)
    assert (3, 9) not in await editor.hints(path)
    editor.save(path, text)
    assert await editor.end_state(path) == "ready"
    assert (await editor.hints(path))[3, 9] == ": f32[B, 77]"


async def test_typing_on_while_a_trace_runs_places_its_result_in_the_newest_text(editor):
    path, _ = await opened(editor)
    saved = NET.replace("64", "32")
    editor.retype(path, NET, saved)
    editor.save(path, saved)
    editor.change(path, (0, 0, 0, 0, "import os\n"))
    await editor.end_state(path)
    assert (await editor.hints(path))[3, 23] == ": ~f32[B, 32|128]"


async def test_another_program_that_writes_the_file_does_not_shift_the_hints(editor):
    path, _ = await opened(editor)
    path.write_text("# written by a formatter\n" + NET)
    await editor.request("mase/retrace", {"uri": path.as_uri()})
    assert await editor.hints(path) == HINTS


@pytest.mark.parametrize(
    ("encodings", "chosen"),
    [(None, "utf-16"), (["utf-8"], "utf-8"), (["utf-16", "utf-8", "utf-32"], "utf-32")],
)
async def test_positions_count_in_the_encoding_agreed(new_editor, encodings, chosen):
    editor = await new_editor(can=capabilities(encodings=encodings))
    assert editor.initialized.capabilities.position_encoding == chosen
    text = "# model Net\nif 1: '\U0001f600\U0001f600'; y = 1  # => f32[B:2]\n"
    path, _ = await opened(editor, text)
    line = text.split("\n")[1]
    place = len(
        line[: line.index("y =") + 1].encode({"utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(chosen, chosen))
    )
    place //= {"utf-8": 1, "utf-16": 2, "utf-32": 4}[chosen]
    assert await editor.hints(path) == {(1, place): ": f32[B]"}
    editor.change(path, (1, place - 1, 1, place, "w"))
    assert await editor.hints(path) == {}
    editor.change(path, (1, place - 1, 1, place, "y"))
    assert await editor.hints(path) == {(1, place): ": f32[B]"}


@pytest.mark.parametrize("end", ["\r\n", "\n"])
async def test_tabs_form_feeds_and_line_ends_do_not_shift_hints(editor, end):
    text = end.join(["# model Net", "\f", "if 1:", "\ty = 1  # => f32[B:2]", ""])
    path, _ = await opened(editor, text)
    assert await editor.hints(path) == {(3, 2): ": f32[B]"}


async def test_the_hover_is_on_the_name_and_only_there(editor):
    path, _ = await opened(editor)
    hover = await editor.hover(path, 3, 8)
    assert (hover.range.start.character, hover.range.end.character) == (8, 9)
    assert "f32[B, 10]" in hover.contents.value
    assert await editor.hover(path, 1, 0) is None
    editor.change(path, (3, 0, 3, 0, " "))
    assert await editor.hover(path, 3, 9) is None


async def test_a_stale_hover_says_so(editor):
    path, _ = await opened(editor)
    editor.change(path, (6, 0, 6, 0, "def ("))
    editor.save(path, NET + "def (")
    assert await editor.end_state(path) == "failed"
    assert "stale" in (await editor.hover(path, 3, 8)).contents.value
    assert await editor.hints(path) == marked(HINTS)
    report = await editor.diagnostics(path)
    assert [(d.code, d.range.start.line) for d in report.items] == [("syntax-error", 6)]


async def test_five_bad_saves_later_the_last_good_hints_are_still_there(editor):
    path, _ = await opened(editor)
    text = NET
    for _ in range(5):
        editor.change(path, (6, 0, 6, 0, "("))
        text += "("
        editor.save(path, text)
        await editor.end_state(path)
    assert await editor.hints(path) == marked(HINTS)


async def test_the_lens_stands_on_the_class_and_traces_again(editor):
    path, _ = await opened(editor)
    [lens] = await editor.client.text_document_code_lens_async(lsp.CodeLensParams(editor.id(path)))
    assert (lens.range.start.line, lens.range.start.character, lens.range.end.character) == (1, 6, 9)
    assert lens.command.title == "guessed B=2 · 1,010 parameters · 2.00 kFLOPs · traced in 12 ms"
    command = lsp.ExecuteCommandParams(lens.command.command, lens.command.arguments)
    await editor.client.workspace_execute_command_async(command)
    assert await editor.end_state(path) == "ready"


async def test_pulled_diagnostics_are_unchanged_until_they_change(editor):
    path, state = await opened(editor, BROKEN)
    assert state == "failed"
    report = await editor.diagnostics(path)
    [diagnostic] = report.items
    assert (diagnostic.message, diagnostic.code, diagnostic.source) == (
        "expected 64 features, got 10",
        "shape-mismatch",
        "mase",
    )
    assert diagnostic.related_information[0].message == "called from here"
    again = await editor.diagnostics(path, report.result_id)
    assert (again.kind, again.result_id) == ("unchanged", report.result_id)
    editor.change(path, (0, 0, 0, 0, "\n"))
    moved = await editor.diagnostics(path, report.result_id)
    assert [d.range.start.line for d in moved.items] == [4]
    editor.change(path, (4, 8, 4, 8, "#"))
    assert (await editor.diagnostics(path, moved.result_id)).items in ([], ())


async def test_an_old_client_is_sent_diagnostics_with_the_version_and_an_empty_list_on_close(new_editor):
    editor = await new_editor(can=capabilities(pull=False))
    path, _ = await opened(editor, BROKEN)
    pushed = await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert (pushed.uri, pushed.version, len(pushed.diagnostics)) == (path.as_uri(), 1, 1)
    editor.close(path)
    cleared = await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert (cleared.uri, len(cleared.diagnostics)) == (path.as_uri(), 0)


async def test_mended_diagnostics_are_taken_back(new_editor):
    editor = await new_editor(can=capabilities(pull=False))
    path, _ = await opened(editor, BROKEN)
    await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    editor.change(path, (0, 0, 4, 0, NET))
    editor.save(path, NET)
    assert await editor.end_state(path) == "ready"
    assert len((await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)).diagnostics) == 0


async def test_a_file_that_is_not_open_has_its_diagnostics_once_it_is_opened(editor):
    other = editor.folder / "other.py"
    other.write_text("import os\n")
    await opened(editor, NET + "# !! @other.py never used\n")
    editor.open(other)
    await editor.end_state(other)
    assert [item.message for item in (await editor.diagnostics(other)).items] == ["never used"]
    assert lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS not in [name for name, _ in editor.unread]


async def test_a_long_file_gives_all_its_hints_before_and_after_an_edit(editor):
    lines = [f"    y{number} = f(x)  # => f32[B:2, {number + 1}]\n" for number in range(450)]
    path, _ = await opened(editor, "# model Net\nclass Net:\n" + "".join(lines))
    shown = await editor.hints(path)
    assert len(shown) == 450
    assert shown[451, 8] == ": f32[B, 450]"
    editor.change(path, (100, 0, 100, 0, "\n"))
    assert await editor.hints(path) == below(shown, 100)


async def test_the_fix_is_a_preferred_quick_fix_for_the_present_version(editor):
    path, _ = await opened(editor, BROKEN)
    editor.change(path, (0, 0, 0, 0, "\n"))
    [action] = await editor.actions(path, 4, 10)
    assert (action.title, action.kind, action.is_preferred) == ("Use 64", "quickfix", True)
    [change] = action.edit.document_changes
    assert (change.text_document.uri, change.text_document.version) == (path.as_uri(), 2)
    [edit] = change.edits
    assert (edit.range.start.line, edit.range.start.character, edit.range.end.character) == (4, 26, 28)
    assert edit.new_text == "64"


async def test_a_fix_is_gone_once_its_line_was_edited(editor):
    path, _ = await opened(editor, BROKEN)
    editor.change(path, (3, 26, 3, 26, "1"))
    assert not await editor.actions(path, 3, 10)


async def test_no_fix_is_offered_away_from_its_problem_or_for_other_kinds(editor):
    path, _ = await opened(editor, BROKEN)
    assert not await editor.actions(path, 0, 0)
    assert not await editor.actions(path, 3, 10, only=[lsp.CodeActionKind.RefactorExtract])
    assert await editor.actions(path, 3, 10, only=[lsp.CodeActionKind.QuickFix])


async def test_a_client_that_resolves_gets_the_edit_when_it_is_chosen(new_editor):
    editor = await new_editor(can=capabilities(lazy_edits=True))
    path, _ = await opened(editor, BROKEN)
    [action] = await editor.actions(path, 3, 10)
    assert action.edit is None
    resolved = await editor.client.code_action_resolve_async(action)
    assert resolved.edit.document_changes[0].edits[0].new_text == "64"
    editor.change(path, (3, 26, 3, 26, "1"))
    assert (await editor.client.code_action_resolve_async(action)).edit is None


async def test_each_generation_has_one_end_state_after_its_refreshes(editor):
    path, _ = await opened(editor)
    for _ in range(2):  # once for the answers to refreshes that are under way, once for those asked again behind them
        await editor.hints(path)
    editor.unread.clear()
    editor.change(path, (0, 0, 0, 0, "#"))
    editor.save(path, "#" + NET)
    assert await editor.end_state(path) == "ready"
    seen = [method for method, _ in editor.unread]
    assert set(REFRESHES) <= set(seen)
    await editor.request("mase/retrace", {"uri": path.as_uri()})
    ends = [params for method, params in editor.unread if method == "mase/status" and params.generation == 3]
    assert [status.state for status in ends] == ["queued", "tracing", "ready"]


async def test_an_untrusted_folder_shows_its_state_and_runs_nothing(new_editor):
    editor = await new_editor(options={"trusted": False})
    path, state = await opened(editor)
    assert state == "untrusted"
    assert await editor.hints(path) == {}


async def test_a_client_that_says_nothing_of_trust_is_asked_once_and_the_answer_is_kept(new_editor):
    editor = await new_editor(options={}, answer=lsp.MessageActionItem("Trust"))
    path, state = await opened(editor)
    assert state == "untrusted"
    question = await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert str(editor.folder) in question.message
    assert await editor.end_state(path) == "ready"
    assert (await opened(editor, name="other.py"))[1] == "ready"
    later = await new_editor(options={})
    assert (await opened(later))[1] == "ready"


async def test_a_person_who_declines_is_not_asked_again(new_editor):
    editor = await new_editor(options={}, answer=None)
    await opened(editor)
    await editor.expect(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    assert (await opened(editor, name="other.py"))[1] == "untrusted"
    await editor.request("mase/info", {})
    assert lsp.WINDOW_SHOW_MESSAGE_REQUEST not in [method for method, _ in editor.unread]


async def test_expressions_get_hints_where_the_setting_asks_for_them(new_editor):
    editor = await new_editor(can=capabilities(configuration=True), settings={"hints": {"expressions": True}})
    path, _ = await opened(editor)
    assert await editor.hints(path) == {**HINTS, (3, 22): ": f32[B, 10]", (4, 25): ": f32[B, 10]"}
    editor.settings = {"hints": {"expressions": False}}
    editor.unread.clear()
    editor.client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    await editor.expect(lsp.WORKSPACE_INLAY_HINT_REFRESH)
    assert await editor.hints(path) == HINTS


@pytest.mark.parametrize(
    ("hints", "line", "shown"),
    [
        ({"detail": "shape"}, 3, {(3, 9): ": [B, 10]"}),
        ({"detail": "everything"}, 3, {(3, 9): ": f32[B, 10] · 80 B"}),
        ({"position": "line"}, 3, {(3, len(NET.splitlines()[3])): "  y: f32[B, 10]"}),
        ({"position": "line"}, 5, {(5, len(NET.splitlines()[5])): "  -> f32[B, 10]"}),
        ({"position": "line", "detail": "shape"}, 4, {(4, len(NET.splitlines()[4])): "  z: [B, 10]"}),
        ({"position": "above", "detail": 3}, 3, {(3, 9): ": f32[B, 10]"}),
    ],
)
async def test_settings_choose_the_place_and_the_detail_of_hints(new_editor, hints, line, shown):
    editor = await new_editor(can=capabilities(configuration=True), settings={"hints": hints})
    path, _ = await opened(editor)
    assert {place: text for place, text in (await editor.hints(path)).items() if place[0] == line} == shown


async def test_a_changed_interpreter_starts_the_folder_anew(new_editor):
    editor = await new_editor(can=capabilities(configuration=True), settings={"interpreter": "/one"})
    path, _ = await opened(editor)
    editor.settings = {"interpreter": "/two"}
    editor.client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    assert await editor.end_state(path) == "ready"


async def test_a_file_opened_while_the_editor_tells_another_interpreter_starts_anew_with_it(new_editor):
    editor = await new_editor(can=capabilities(configuration=True), settings={"interpreter": "/one"})
    await editor.expect(lsp.WORKSPACE_CONFIGURATION)
    editor.settings = {"interpreter": "/two"}
    editor.tells_settings.clear()
    editor.client.workspace_did_change_configuration(lsp.DidChangeConfigurationParams(None))
    await editor.expect(lsp.WORKSPACE_CONFIGURATION)
    path, _ = await opened(editor)
    editor.tells_settings.set()
    assert await editor.end_state(path) == "ready"


async def test_a_long_trace_shows_progress_that_can_be_cancelled(new_editor):
    editor = await new_editor(can=capabilities(progress=True))
    path = editor.folder / "net.py"
    editor.open(path, "# hang\n" + NET)
    created = await editor.expect(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE)
    begin = await editor.expect(lsp.PROGRESS)
    assert (begin.value["title"], begin.value["cancellable"]) == ("Tracing net.py", True)
    editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(created.token))
    assert await editor.end_state(path) == "superseded"
    assert (await editor.expect(lsp.PROGRESS)).value["kind"] == "end"


async def test_a_cancelled_request_says_that_it_was(editor):
    path = editor.folder / "net.py"
    editor.open(path, "# hang\n" + NET)
    await editor.expect("mase/status")
    waiting = editor.client.protocol.send_request_async("mase/retrace", {"uri": path.as_uri()}, msg_id="slow")
    editor.client.cancel_request(lsp.CancelParams("slow"))
    with pytest.raises(JsonRpcException) as caught:
        await asyncio.wait_for(waiting, 20)
    assert caught.value.code == lsp.LSPErrorCodes.RequestCancelled.value


async def test_the_custom_requests_answer_in_maps(editor):
    path, _ = await opened(editor)
    info = await editor.request("mase/info", {})
    assert (info.name, info.files) == ("mase-server", [str(path)])
    assert [model["name"] for model in await editor.request("mase/models", {"uri": path.as_uri()})] == ["Net"]
    editor.change(path, (0, 0, 0, 0, "\n"))
    at = await editor.request("mase/nodeAt", {"uri": path.as_uri(), "position": {"line": 4, "character": 8}})
    assert (at.name, at.kind, at.line, at.values[0].value) == ("y", "binding", 4, ["f32", [2, 10], ["B", "10"]])
    status = await editor.request("mase/retrace", {"uri": path.as_uri()})
    assert (status.state, status.path) == ("ready", str(path))


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("mase/nodeAt", {"path": "/x", "line": 1}, "mase/nodeAt: parameter 'column' is missing"),
        ("mase/models", {"path": 3}, "mase/models: path is 3, expected str"),
        ("mase/info", {"colour": "red"}, "mase/info has no parameter 'colour'; it takes methods?: bool"),
    ],
)
async def test_wrong_parameters_are_named(editor, method, params, message):
    with pytest.raises(JsonRpcException, match=f"^{re.escape(message)}") as caught:
        await editor.request(method, params)
    assert caught.value.code == lsp.ErrorCodes.InvalidParams.value


async def test_several_folders_have_their_own_settings(tmp_path, new_editor):
    editor = await new_editor(can=capabilities(configuration=True))
    added = [lsp.WorkspaceFolder((tmp_path / "more").as_uri(), "more")]
    change = lsp.DidChangeWorkspaceFoldersParams(lsp.WorkspaceFoldersChangeEvent(added, []))
    await editor.expect(lsp.WORKSPACE_CONFIGURATION)
    editor.client.workspace_did_change_workspace_folders(change)
    asked = await editor.expect(lsp.WORKSPACE_CONFIGURATION)
    assert [item.scope_uri for item in asked.items] == [tmp_path.as_uri(), (tmp_path / "more").as_uri(), None]


async def test_a_server_whose_stdin_ends_is_gone(tmp_path):
    editor = Editor(tmp_path)
    await editor.start()
    editor.process.stdin.close()
    assert await asyncio.wait_for(editor.process.wait(), 10) == 1


async def test_a_server_whose_editor_was_killed_is_gone(tmp_path):
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    editor = Editor(tmp_path)
    await editor.start(process_id=parent.pid)
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    assert await asyncio.wait_for(editor.process.wait(), 10) == 1


async def test_exit_without_shutdown_is_a_failure(tmp_path):
    editor = Editor(tmp_path)
    await editor.start()
    editor.client.exit(None)
    assert await asyncio.wait_for(editor.process.wait(), 10) == 1


async def test_what_prints_in_the_server_does_not_reach_the_wire(tmp_path):
    noisy = tmp_path / "noisy.py"
    noisy.write_text(FAKE_SERVER.read_text().replace("if __name__", NOISE + "if __name__"))
    for fake in FAKE_SERVER.parent.glob("fake_*.py"):
        (tmp_path / fake.name).write_text(fake.read_text())
    editor = Editor(tmp_path)
    await editor.start(sys.executable, str(noisy), str(tmp_path / ".state"))
    assert (await opened(editor))[1] == "ready"
    await editor.stop()


NOISE = """
import os
class Loud(FakeDaemon):
    def opened(self, path, options=None):
        print("noise", flush=True)
        os.system("echo more noise")
        super().opened(path, options)
FakeDaemon = Loud
"""
