"""As you type: unsaved text is traced after a silence, through the real server."""

import asyncio
import sys
from pathlib import Path

import pytest
from editing import FAKE_SERVER, Editor, capabilities
from lsprotocol import types as lsp

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = (sys.executable, "-m", "mase_server", "lsp")
OPTIONS = {"trusted": True, "interpreter": sys.executable, "updateDelay": 10}

NET = """\
import torch
from torch import nn

WIDTH = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, WIDTH)

    def forward(self, x):
        h = self.fc(x)
        y = h.relu()
        return y.sum(1)


if __name__ == "__main__":
    Net()(torch.zeros(4, 16))
"""


@pytest.fixture
async def typist(tmp_path, monkeypatch):
    """A function that starts an editor with the real server; its options are `OPTIONS` and those that are given."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    editors = []

    async def start(can=None, **options):
        editor = Editor(tmp_path, can=can, options=OPTIONS | options)
        editors.append(editor)
        await editor.start(*SERVER)
        return editor

    yield start
    for editor in editors:
        if editor.process.returncode is None:
            await editor.stop()


def texts(hints):
    return [text for _, text in sorted(hints.items())]


async def live_end(editor, path):
    """The status at the end of the next trace of unsaved text that was not ended by a key."""
    ends = {"ready", "failed", "crashed", "no_model"}
    return await editor.expect("mase/status", lambda s: s.uri == path.as_uri() and s.unsaved and s.state in ends)


async def saved_end(editor, path):
    """The next status that is of saved text."""
    ends = {"ready", "failed", "crashed", "no_model"}
    return await editor.expect("mase/status", lambda s: s.uri == path.as_uri() and not s.unsaved and s.state in ends)


async def doubted(editor, path):
    """The hints once the keys have paused, and what was not traced is marked."""
    async with asyncio.timeout(60):
        while True:
            shown = await editor.hints(path)
            if any("~" in text for text in shown.values()):
                return shown


async def opened(editor, name="net.py", text=NET):
    path = editor.folder / name
    editor.open(path, text)
    await editor.end_state(path)
    return path


async def test_what_is_typed_has_its_shapes_without_a_save(typist):
    editor = await typist()
    path = await opened(editor)
    typed = NET.replace("h.relu()", "h.relu()[:, :3]")
    editor.retype(path, NET, typed)
    status = await live_end(editor, path)
    assert status.state == "ready"
    assert texts(await editor.hints(path)) == [": f32[B, 16]", ": f32[B, 8]", ": f32[B, 3]", " -> f32[B]"]
    assert path.read_text() == NET
    assert [each.name for each in editor.folder.iterdir() if each.suffix == ".py"] == ["net.py"]


async def test_the_save_of_a_text_that_was_traced_adopts_its_trace(typist):
    editor = await typist()
    path = await opened(editor)
    typed = NET.replace("h.relu()", "h.relu()[:, :3]")
    editor.retype(path, NET, typed)
    live = await live_end(editor, path)
    editor.save(path, typed)
    saved = await saved_end(editor, path)
    assert (saved.generation, saved.state, saved.sha256) == (live.generation, "ready", live.sha256)
    assert texts(await editor.hints(path))[2] == ": f32[B, 3]"


async def test_a_save_while_its_text_is_traced_goes_on_with_that_trace(typist):
    editor = await typist()
    path = await opened(editor)
    typed = NET.replace("h.relu()", "h.relu()[:, :3]")
    editor.retype(path, NET, typed)
    running = await editor.expect("mase/status", lambda s: s.unsaved and s.state == "tracing")
    editor.save(path, typed)
    ended = await editor.expect("mase/status", lambda s: s.state == "ready" and s.generation > 1)
    assert (ended.generation, ended.unsaved) == (running.generation, False)


async def test_text_that_does_not_parse_keeps_the_hints_of_untouched_lines_and_is_not_traced(typist):
    editor = await typist()
    path = await opened(editor)
    before = await editor.hints(path)
    broken = NET.replace("y = h.relu()", "y = h.relu(")
    editor.retype(path, NET, broken)
    mended = broken.replace("y = h.relu(", "y = h.relu()[:, :3]")
    shown = await doubted(editor, path)
    untouched = {at: text for at, text in before.items() if at[0] < 13}
    assert {at: text for at, text in shown.items() if at[0] < 13} == untouched
    assert not any(at[0] == 13 for at in shown), "the edited line has no hint"
    editor.retype(path, broken, mended)
    assert (await live_end(editor, path)).generation == 2, "the broken text was not traced"
    assert texts(await editor.hints(path))[2] == ": f32[B, 3]"


async def test_a_comment_moves_the_hints_and_traces_nothing_but_a_comment_for_mase_does(typist):
    editor = await typist()
    path = await opened(editor)
    before = await editor.hints(path)
    commented = NET.replace("class Net", "# A net.\nclass Net")
    editor.retype(path, NET, commented)
    assert await editor.hints(path) == {(line + 1, column): text for (line, column), text in before.items()}
    asked = commented.replace("# A net.", "# mase: x: f32[3, 5, 16]")
    editor.retype(path, commented, asked)
    assert (await live_end(editor, path)).generation == 2
    assert texts(await editor.hints(path))[0] == ": f32[B, T, 16]"


async def test_the_newest_text_wins_however_many_came_before_it(typist):
    editor = await typist()
    path = await opened(editor)
    text = NET
    for width in range(1, 8):
        new = NET.replace("h.relu()", f"h.relu()[:, :{width}]")
        editor.retype(path, text, new)
        text = new
        await editor.expect("mase/status", lambda s: s.unsaved and s.state == "queued")
    while texts(await editor.hints(path))[2] != ": f32[B, 7]":
        await live_end(editor, path)
    editor.save(path, text)
    assert (await saved_end(editor, path)).state == "ready"
    assert texts(await editor.hints(path))[2] == ": f32[B, 7]"


MODULE_LEVEL = [
    ("WIDTH = 8", "WIDTH = 9"),
    ("WIDTH = 8", "WIDTH = 8\nprint(WIDTH)"),
    ("class Net(nn.Module):", "@print\nclass Net(nn.Module):"),
    ("class Net(nn.Module):", "class Net(nn.Module):\n    seen = print(WIDTH)"),
    ("def forward(self, x):", "def forward(self, x, width=print(1)):"),
    ("torch.zeros(4, 16)", "torch.zeros(5, 16)"),
]


async def test_code_that_runs_at_import_waits_for_the_save(typist):
    editor = await typist()
    path = await opened(editor)
    text = NET
    for old, new in MODULE_LEVEL:
        typed = NET.replace(old, new)
        editor.retype(path, text, typed)
        await doubted(editor, path)
        text = typed
    typed = NET.replace("WIDTH = 8", "WIDTH = 9")
    editor.retype(path, text, typed)
    editor.save(path, typed)
    saved = await saved_end(editor, path)
    assert saved.generation == 2, "no text before was traced"
    assert texts(await editor.hints(path))[1] == ": f32[B, 9]"


FUNCTIONS = [
    ("super().__init__()", "super().__init__()\n        self.act = nn.GELU()"),
    ("    def forward(", "    scale = 3\n\n    def helper(self, x, by=2):\n        return x * by\n\n    def forward("),
    (
        "class Net(",
        "class Other(nn.Module):\n    pass\n\n\ndef double(x: torch.Tensor, by=WIDTH):\n    return x\n\n\nclass Net(",
    ),
]


async def test_functions_and_classes_that_only_define_follow_typing(typist):
    editor = await typist()
    path = await opened(editor)
    text = NET
    for number, (old, new) in enumerate(FUNCTIONS, 2):
        typed = text.replace(old, new)
        editor.retype(path, text, typed)
        assert (await live_end(editor, path)).generation == number
        text = typed


async def test_code_that_runs_at_import_follows_typing_if_the_setting_says_so(typist):
    editor = await typist(updateRunsModule=True)
    path = await opened(editor)
    editor.retype(path, NET, NET.replace("WIDTH = 8", "WIDTH = 9"))
    await live_end(editor, path)
    assert texts(await editor.hints(path))[1] == ": f32[B, 9]"


async def test_with_updates_on_save_nothing_is_traced_before_it(typist):
    editor = await typist(update="onSave")
    path = await opened(editor)
    typed = NET.replace("h.relu()", "h.relu()[:, :3]")
    editor.retype(path, NET, typed)
    assert texts(await editor.hints(path)) == [": f32[B, 16]", ": f32[B, 8]", " -> ~f32[B]"], "marked at once"
    editor.save(path, typed)
    saved = await saved_end(editor, path)
    assert saved.generation == 2
    assert texts(await editor.hints(path))[2] == ": f32[B, 3]"


async def test_undone_text_shows_the_saved_shapes_as_saved(typist):
    editor = await typist()
    path = await opened(editor)
    before, typed = await editor.hints(path), NET.replace("h.relu()", "h.relu()[:, :3]")
    editor.retype(path, NET, typed)
    await live_end(editor, path)
    editor.retype(path, typed, NET)
    assert (await saved_end(editor, path)).state == "ready"
    assert await editor.hints(path) == before


HELPER = """\
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 2)

    def forward(self, h):
        return self.fc(h)
"""
USER = """\
import torch
from torch import nn

from helper import Head

model = nn.Sequential(nn.Linear(4, 8), Head())
y = model(torch.randn(3, 4))
"""


async def test_unsaved_text_stands_in_for_a_file_that_others_import(typist):
    editor = await typist()
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    editor.open(helper, HELPER)
    await editor.end_state(helper)
    editor.open(path, USER)
    assert await editor.end_state(path) == "ready"
    assert texts(await editor.hints(path)) == [": f32[B, 2]"]
    typed = HELPER.replace("Linear(8, 2)", "Linear(8, 5)")
    editor.retype(helper, HELPER, typed)
    live = await live_end(editor, path)
    assert texts(await editor.hints(path)) == [": f32[B, 5]"]
    await live_end(editor, helper)  # its own models decide what is shown in it
    assert texts(await editor.hints(helper))[-1] == " -> f32[B, 5]"
    editor.save(helper, typed)
    saved = await saved_end(editor, path)
    assert saved.generation == live.generation, "the traced text was saved: nothing depends on anything new"
    assert texts(await editor.hints(path)) == [": f32[B, 5]"]


#: A mistake whose fixes are traced before the trace ends.
MISTAKEN = """\
import torch
from torch import nn

from helper import Head


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 7)
        self.head = Head()

    def forward(self, x):
        h = self.first(x)
        return self.head(h)


Net()(torch.randn(3, 4))
"""


async def test_an_imported_file_that_is_typed_while_the_first_trace_runs_is_followed(typist):
    """Nobody knows yet that the running trace depends on it."""
    editor = await typist()
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    editor.open(helper, HELPER)
    await editor.end_state(helper)
    editor.open(path, MISTAKEN)
    await editor.expect("mase/status", lambda s: s.uri == path.as_uri() and s.state == "tracing")
    editor.retype(helper, HELPER, HELPER.replace("Linear(8, 2)", "Linear(7, 5)"))
    await editor.expect("mase/status", lambda s: s.uri == path.as_uri() and s.state == "ready")
    assert texts(await editor.hints(path)) == [": f32[B, 4]", ": f32[B, 7]", " -> f32[B, 5]"]


async def test_an_imported_file_that_was_typed_while_its_user_was_closed_is_followed_when_that_is_opened_again(typist):
    """The trace of the closed file still runs, and sees what the one before it saw."""
    editor = await typist()
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    editor.open(helper, HELPER)
    await editor.end_state(helper)
    editor.open(path, MISTAKEN.replace("4, 7", "4, 8"))
    assert await editor.end_state(path) == "ready"
    editor.close(path)
    editor.open(path, MISTAKEN)
    await editor.expect("mase/status", lambda s: (s.uri, s.state, s.generation) == (path.as_uri(), "tracing", 2))
    editor.close(path)
    editor.retype(helper, HELPER, HELPER.replace("Linear(8, 2)", "Linear(7, 5)"))
    await editor.expect("mase/status", lambda s: s.uri == helper.as_uri() and s.unsaved and s.state == "queued")
    editor.open(path)
    await editor.expect("mase/status", lambda s: s.uri == path.as_uri() and s.state == "ready")
    assert texts(await editor.hints(path)) == [": f32[B, 4]", ": f32[B, 7]", " -> f32[B, 5]"]


async def test_closing_a_file_without_a_save_brings_its_saved_text_back(typist):
    editor = await typist()
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    editor.open(helper, HELPER)
    await editor.end_state(helper)
    editor.open(path, USER)
    await editor.end_state(path)
    editor.retype(helper, HELPER, HELPER.replace("Linear(8, 2)", "Linear(8, 5)"))
    await live_end(editor, path)
    editor.close(helper)
    await saved_end(editor, path)
    assert texts(await editor.hints(path)) == [": f32[B, 2]"]


async def test_an_editor_that_brings_back_unsaved_text_has_its_shapes(typist):
    editor = await typist()
    path = editor.folder / "net.py"
    path.write_text(NET)
    typed = NET.replace("h.relu()", "h.relu()[:, :3]")
    item = lsp.TextDocumentItem(path.as_uri(), "python", 1, typed)
    editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    assert (await live_end(editor, path)).state == "ready"
    assert texts(await editor.hints(path))[2] == ": f32[B, 3]"


async def test_an_editor_without_refresh_gets_the_new_hints_as_the_answer_to_its_request(typist):
    editor = await typist(can=capabilities(refresh=False))
    path = await opened(editor)
    editor.retype(path, NET, NET.replace("h.relu()", "h.relu()[:, :3]"))
    assert texts(await editor.hints(path))[2] == ": f32[B, 3]"


async def test_a_refused_side_effect_is_refused_in_typed_text(typist):
    editor = await typist()
    path = await opened(editor)
    victim = editor.folder / "victim.txt"
    victim.write_text("here")
    typed = NET.replace(
        "        h = self.fc(x)", f"        import os; os.remove({str(victim)!r})\n        h = self.fc(x)"
    )
    editor.retype(path, NET, typed)
    assert (await live_end(editor, path)).state == "failed"
    assert victim.read_text() == "here"
    editor.save(path, typed)
    await saved_end(editor, path)
    [problem] = (await editor.diagnostics(path)).items
    assert "refused" in problem.message


async def test_an_untrusted_folder_runs_nothing_that_is_typed(typist):
    editor = await typist(trusted=False)
    path = editor.folder / "net.py"
    editor.open(path, NET)
    assert await editor.end_state(path) == "untrusted"
    editor.retype(path, NET, NET.replace("h.relu()", f"(open({str(editor.folder / 'ran')!r}, 'w'), h)[1]"))
    await editor.hints(path)
    editor.save(path, NET)
    await editor.hints(path)
    assert not (editor.folder / "ran").exists()


GOOD = """\
# model Net


def forward(self, x):  # => f32[B:2, 10]
    y = x.sum(1)  # => f32[B:2]
    z = 1
    return y  # => f32[B:2]
"""
BAD = GOOD.replace("z = 1", "z = 1  # !! no such size")


@pytest.fixture
async def follower(tmp_path):
    """A function that starts an editor with a fake daemon, which traces all that is typed. quiet: seconds."""
    editors = []

    async def start(quiet, **can):
        editor = Editor(tmp_path, can=capabilities(**can), options=OPTIONS)
        editors.append(editor)
        await editor.start(sys.executable, str(FAKE_SERVER), str(tmp_path / ".state"), f"--follow={quiet}")
        return editor

    yield start
    for editor in editors:
        await editor.stop()


async def codes(editor, path):
    return [item.message for item in (await editor.diagnostics(path)).items]


async def test_a_problem_of_unsaved_text_waits_until_the_keys_pause_but_not_for_the_save(follower):
    editor = await follower(quiet=1000)
    path = await opened(editor, text=GOOD)
    editor.retype(path, GOOD, BAD)
    assert await editor.end_state(path) == "failed"
    assert await codes(editor, path) == []
    editor.save(path, BAD)
    assert await editor.end_state(path) == "failed"
    assert await codes(editor, path) == ["no such size"]


async def test_a_problem_of_unsaved_text_appears_after_the_pause_without_being_asked_for(follower):
    editor = await follower(quiet=0.3)
    path = await opened(editor, text=GOOD)
    editor.unread.clear()
    editor.retype(path, GOOD, BAD)
    assert await editor.end_state(path) == "failed"
    while await codes(editor, path) != ["no such size"]:
        await editor.expect(lsp.WORKSPACE_DIAGNOSTIC_REFRESH)


async def test_a_problem_that_is_mended_disappears_while_keys_follow_each_other(follower):
    editor = await follower(quiet=1000)
    path = await opened(editor, text=BAD)
    assert await codes(editor, path) == ["no such size"]
    moved = BAD.replace("# model Net\n", "# model Net\n\nz = 1\n")
    editor.retype(path, BAD, moved)
    assert await editor.end_state(path) == "failed"
    assert await codes(editor, path) == ["no such size"], "it was there before: it stays"
    mended = moved.replace("  # !! no such size", "")
    editor.retype(path, moved, mended)
    assert await editor.end_state(path) == "ready"
    assert await codes(editor, path) == []


async def test_pushed_problems_wait_and_appear_alike(follower):
    editor = await follower(quiet=0.3, pull=False)
    path = await opened(editor, text=GOOD)
    editor.retype(path, GOOD, BAD)
    pushed = await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert [item.message for item in pushed.diagnostics] == ["no such size"]
    editor.retype(path, BAD, GOOD)
    assert not (await editor.expect(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)).diagnostics


async def test_hints_are_not_marked_between_two_keys(follower):
    editor = await follower(quiet=1000)
    path = await opened(editor, text=GOOD)
    before = await editor.hints(path)
    editor.retype(path, GOOD, GOOD.replace("x.sum(1)", "x.sum("))
    last = max(before)
    assert (await editor.hints(path))[last] == before[last]


EDITS = [
    ("nn.Linear(16, WIDTH)", "nn.Linear(16, WIDTH * 3)"),
    ("y = h.relu()", "y = torch.cat([h, h.relu()], 1)"),
    ("return y.sum(1)", "if y.shape[1] > 20:\n            y = y[:, :20]\n        return y, h"),
    ("h = self.fc(x)", "h = self.fc(x[:, :7])"),
    ("x[:, :7]", "x"),
    ("    def forward(self, x):", "    def halve(self, t):\n        return t[:, ::2]\n\n    def forward(self, x):"),
    ("h = self.fc(x)", "h = self.halve(self.fc(x))"),
    ("y.shape[1] > 20", "y.sum() > 20"),
    ("return t[:, ::2]", "return t[:, ::two]"),
]


def untimed(lenses):
    return {line: [title.partition("traced in")[0] for title in titles] for line, titles in lenses.items()}


async def test_typed_text_shows_what_the_same_text_shows_when_it_is_saved(typist):
    editor = await typist()
    (editor.folder / "typed").mkdir()
    (editor.folder / "saved").mkdir()
    typed, saved = await opened(editor, "typed/net.py"), await opened(editor, "saved/net.py")
    text = NET
    for old, new in EDITS:
        assert old in text
        before, text = text, text.replace(old, new, 1)
        editor.retype(saved, before, text)
        editor.save(saved, text)
        there = await saved_end(editor, saved)
        editor.retype(typed, before, text)
        here = await live_end(editor, typed)
        assert (here.state, here.models, here.message) == (there.state, there.models, there.message), new
        assert await editor.hints(typed) == await editor.hints(saved), new
        assert untimed(await editor.lenses(typed)) == untimed(await editor.lenses(saved)), new
        told = [(item.code, item.range, item.message) for item in (await editor.diagnostics(saved)).items]
        while [(item.code, item.range, item.message) for item in (await editor.diagnostics(typed)).items] != told:
            await editor.expect(lsp.WORKSPACE_DIAGNOSTIC_REFRESH)  # until the keys have paused
    assert typed.read_text() == NET


async def test_a_name_that_is_half_typed_takes_no_hints_away(typist):
    """`y.s` parses and fails; the next key comes before its error is shown."""
    editor = await typist()
    path = await opened(editor)
    before = await editor.hints(path)
    half, whole = NET.replace("y.sum(1)", "y.s"), NET.replace("y.sum(1)", "y.square()")
    editor.retype(path, NET, half)
    await editor.expect("mase/status", lambda s: s.unsaved and s.state == "tracing")
    assert set(before) - set(await editor.hints(path)) == {max(before)}
    editor.retype(path, half, whole)
    assert (await live_end(editor, path)).state == "ready"
    assert texts(await editor.hints(path))[-1] == " -> f32[B, 8]"
    nowhere = whole.replace("nn.Module", "nn.Modul")
    editor.retype(path, whole, nowhere)
    failed = await live_end(editor, path)
    assert (failed.state, failed.stale) == ("failed", True), "the class cannot be made: the last models stay"
    assert len(await doubted(editor, path)) == 4
