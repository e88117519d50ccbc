"""The whole way, from an editor's keystroke to a traced shape: real server, real workers, real torch."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from editing import Editor, capabilities
from lsprotocol import types as lsp

from mase_server.daemon.trust import grant_trust

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = (sys.executable, "-m", "mase_server", "lsp")


@pytest.fixture
async def editor(tmp_path, monkeypatch):
    """An editor whose server keeps its things under `tmp_path`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    editor = Editor(tmp_path, can=capabilities(progress=True), options={"trusted": True, "interpreter": sys.executable})
    await editor.start(*SERVER)
    yield editor
    if editor.process.returncode is None:
        await editor.stop()


@pytest.fixture
async def saving_editor(tmp_path, monkeypatch):
    """The same editor with the setting that nothing is traced before a save."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    editor = Editor(tmp_path, options={"trusted": True, "interpreter": sys.executable, "update": "onSave"})
    await editor.start(*SERVER)
    yield editor
    await editor.stop()


def example(folder, name):
    return Path(shutil.copy(EXAMPLES / name, folder))


def at(text, line_text, after):
    """(line, character) behind `after` in the first line that holds `line_text`."""
    number = next(number for number, line in enumerate(text.split("\n")) if line_text in line)
    return number, text.split("\n")[number].index(after) + len(after)


def _texts(hints):
    return [text for _, text in sorted(hints.items())]


def _marked(text):
    """A hint as it is shown while the code that it depends on is not saved."""
    shape = text.lstrip(" :->")
    return f"{text.removesuffix(shape)}~{shape}"


async def test_an_example_shows_its_shapes_and_a_save_brings_fresh_ones(editor):
    path = example(editor.folder, "mlp.py")
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    text = path.read_text()
    assert (await editor.hints(path))[at(text, "logits = self.head(x)", "logits")] == ": f32[B, 5]"
    wider = text.replace("num_classes=5", "num_classes=7")
    editor.retype(path, text, wider)
    editor.save(path, wider)
    assert await editor.end_state(path) == "ready"
    assert (await editor.hints(path))[at(wider, "logits = self.head(x)", "logits")] == ": f32[B, 7]"


async def test_a_card_tells_operator_module_and_cost(editor):
    path = example(editor.folder, "mlp.py")
    editor.open(path)
    await editor.end_state(path)
    line, character = at(path.read_text(), "logits = self.head(x)", "logits")
    text = (await editor.hover(path, line, character - 1)).contents.value
    for fact in ("f32[B, 5]", "`[32, 5]` with B = 32", "`linear`", "Linear(in_features=32, out_features=5", "FLOPs"):
        assert fact in text


async def test_a_line_that_ran_many_times_lists_its_runs(editor):
    path = example(editor.folder, "resnet.py")
    editor.open(path)
    await editor.end_state(path)
    line, character = at(path.read_text(), "out = self.relu(self.bn1(self.conv1(x)))", "out")
    assert "f32[B, 64|128|256|…, " in (await editor.hints(path, line, line))[line, character]
    text = (await editor.hover(path, line, character - 1)).contents.value
    assert "8 times, see below" in text
    assert all(f"`layer{stage}.{block}`" in text for stage in (1, 2, 3, 4) for block in (0, 1))


async def test_a_broken_layer_is_a_diagnostic_at_its_line_and_mending_it_clears_it(editor):
    path = example(editor.folder, "mlp.py")
    text = path.read_text()
    broken = text.replace("nn.Linear(widths[-1], num_classes)", "nn.Linear(widths[-1] + 1, num_classes)")
    editor.open(path, broken)
    assert await editor.end_state(path) == "failed"
    report = await editor.diagnostics(path)
    assert at(broken, "logits = self.head(x)", "")[0] in [item.range.start.line for item in report.items]
    editor.retype(path, broken, text)
    editor.save(path, text)
    assert await editor.end_state(path) == "ready"
    assert not (await editor.diagnostics(path)).items


BRANCHES = """import torch
from torch import nn


# mase: x: f32[4, 8]
class Gate(nn.Module):
    def forward(self, x):
        größe = x.clone()
        if größe.abs().sum() > 0:
            x = x * 2
        for _ in range(2):
            if x.sum().abs() < 0 or x.shape[0] > 100:
                x = x + 1
        return x[: torch.arange(x.shape[0]).max().item()]
"""


async def test_a_branch_taken_because_of_a_value_says_so_at_its_own_line(editor):
    path = editor.folder / "gate.py"
    path.write_text(BRANCHES)
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    items = (await editor.diagnostics(path)).items
    assert {item.code for item in items} == {"value-taken"}
    assert {item.severity for item in items} == {lsp.DiagnosticSeverity.Information}
    lines = BRANCHES.split("\n")
    told = {lines[item.range.start.line][item.range.start.character : item.range.end.character] for item in items}
    assert told == {"größe.abs().sum() > 0", "x.sum().abs() < 0"}
    texts = " ".join(item.message for item in items)
    assert "`größe.abs().sum() > 0` was True" in texts
    assert "`x.sum().abs() < 0` was False" in texts


async def test_a_syntax_error_leaves_the_last_good_hints(editor):
    path = example(editor.folder, "mlp.py")
    editor.open(path)
    await editor.end_state(path)
    text, hints = path.read_text(), await editor.hints(path)
    editor.retype(path, text, text + "def (")
    editor.save(path, text + "def (")
    assert await editor.end_state(path) == "failed"
    assert await editor.hints(path) == {place: _marked(text) for place, text in hints.items()}
    [problem] = (await editor.diagnostics(path)).items
    assert (problem.code, problem.range.start.line) == ("syntax-error", text.count("\n"))


async def test_an_endless_loop_can_be_cancelled_and_the_next_save_traces(editor):
    path = example(editor.folder, "mlp.py")
    text = path.read_text()
    editor.open(path, "while True:\n    pass\n" + text)
    created = await editor.expect(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE)
    await editor.expect(lsp.PROGRESS)
    editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(created.token))
    assert await editor.end_state(path) == "superseded"
    editor.retype(path, "while True:\n    pass\n" + text, text)
    editor.save(path, text)
    assert await editor.end_state(path) == "ready"


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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()

    def forward(self, x):
        y = self.head(x)
        return y


if __name__ == "__main__":
    Net()(torch.randn(3, 8))
"""


async def test_a_module_shows_the_shapes_of_the_model_that_uses_it_and_its_save_retraces_that(editor):
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    helper.write_text(HELPER)
    editor.open(path, USER)
    assert await editor.end_state(path) == "ready"
    editor.open(helper)
    await editor.end_state(helper)
    assert (await editor.hints(helper))[at(HELPER, "return self.fc(h)", "self.fc(h)")] == " -> f32[B, 2]"
    wider = HELPER.replace("Linear(8, 2)", "Linear(8, 5)")
    editor.retype(helper, HELPER, wider)
    editor.save(helper, wider)
    assert await editor.end_state(path) == "ready"
    assert (await editor.hints(path))[at(USER, "y = self.head(x)", "y")] == ": f32[B, 5]"


async def test_an_error_inside_a_module_points_there_and_its_mending_clears_it(editor):
    helper, path = editor.folder / "helper.py", editor.folder / "net.py"
    helper.write_text(HELPER.replace("Linear(8, 2)", "Linear(9, 2)"))
    editor.open(path, USER)
    assert await editor.end_state(path) == "failed"
    [problem] = (await editor.diagnostics(path)).items
    assert problem.range.start.line == at(USER, "y = self.head(x)", "")[0]
    related = [(entry.location.uri, entry.location.range.start.line) for entry in problem.related_information]
    assert (helper.as_uri(), at(HELPER, "return self.fc(h)", "")[0]) in related
    helper.write_text(HELPER)  # another program saves it
    assert await editor.end_state(path) == "ready"
    assert not (await editor.diagnostics(path)).items


@pytest.mark.slow
async def test_a_library_file_shows_the_shapes_of_the_model_that_uses_it(editor):
    bert = pytest.importorskip("importlib.util").find_spec("transformers")
    library = Path(bert.origin).parent / "models" / "bert" / "modeling_bert.py"
    path = example(editor.folder, "bert_hf.py")
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    editor.open(library)
    assert await editor.end_state(library) == "no_model"
    assert await editor.end_state(path) == "ready"
    text = library.read_text()
    shown = await editor.hints(library)
    assert shown[at(text, "key_layer = self.key(hidden_states)", "key_layer")].startswith(": f32[B, ")


async def test_an_editor_that_says_untrusted_is_believed_whatever_was_granted_before(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    grant_trust(tmp_path / "state" / "mase-server", str(tmp_path))
    editor = Editor(tmp_path, options={"trusted": False, "interpreter": sys.executable})
    await editor.start(*SERVER)
    path = tmp_path / "net.py"
    editor.open(path, f"import torch\nopen({str(tmp_path / 'ran')!r}, 'w')\nmodel = torch.nn.Linear(2, 2)\n")
    assert await editor.end_state(path) == "untrusted"
    await editor.stop()
    assert not (tmp_path / "ran").exists()


async def test_shutdown_leaves_no_process(editor, tmp_path):
    path = example(editor.folder, "mlp.py")
    editor.open(path)
    await editor.end_state(path)
    await editor.stop()
    mark = f"XDG_CACHE_HOME={tmp_path / 'cache'}".encode()
    others = [entry for entry in Path("/proc").glob("[0-9]*/environ") if entry.parent.name != str(os.getpid())]
    assert [entry.parent.name for entry in others if mark in read(entry)] == []


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


ASSUMED = """\
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width, num_classes, act=nn.ReLU):
        super().__init__()
        self.fc = nn.Linear(width, num_classes)
        self.act = act()

    def forward(self, x):
        y = self.act(self.fc(x))
        return y
"""


async def test_the_assumed_comment_reproduces_the_trace_and_is_then_no_assumption(saving_editor):
    editor = saving_editor
    path = editor.folder / "head.py"
    editor.open(path, ASSUMED)
    assert await editor.end_state(path) == "ready"
    before = await editor.hints(path)
    [model] = await editor.request("mase/models", {"path": str(path)})
    assert (model["inputs_from"], model["arguments_from"]) == ("search", "search")
    row = at(ASSUMED, "class Head", "")[0]
    actions = {action.title: action for action in await editor.actions(path, row, 0)}
    [change] = actions[
        "Write the assumed constructor arguments and inputs as a `# mase:` comment"
    ].edit.document_changes
    [edit] = change.edits
    lines = ASSUMED.splitlines(keepends=True)
    commented = "".join([*lines[: edit.range.start.line], edit.new_text, *lines[edit.range.start.line :]])
    editor.retype(path, ASSUMED, commented)
    moved = {(line + 1, column): _marked(text) for (line, column), text in before.items()}
    assert await editor.hints(path) == moved, "another comment may ask for other sizes"
    editor.save(path, commented)
    assert await editor.end_state(path) == "ready"
    [again] = await editor.request("mase/models", {"path": str(path)})
    assert (again["inputs_from"], again["arguments_from"]) == ("comment", "comment")
    assert (again["inputs"], again["arguments"]) == (model["inputs"], model["arguments"])
    assert await editor.hints(path) == {(line + 1, column): text for (line, column), text in before.items()}
    offered = [action.title for action in await editor.actions(path, row + 1, 0) or ()]
    more = "Add other inputs of Head as a named set in a comment..."
    assert [title for title in offered if not title.startswith("MASE: ")] == [more]


TWO_LINES = """import torch
from torch import nn

from parts import WIDTH


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


async def test_unsaved_code_marks_the_hints_that_depend_on_it_until_it_is_saved_or_undone(saving_editor):
    editor = saving_editor
    (editor.folder / "parts.py").write_text("WIDTH = 8\n")
    path = editor.folder / "net.py"
    editor.open(path, TWO_LINES)
    assert await editor.end_state(path) == "ready"
    shown = [": f32[B, 16]", ": f32[B, 8]", ": f32[B, 8]", " -> f32[B]"]
    assert _texts(await editor.hints(path)) == shown
    edited = TWO_LINES.replace("y = h.relu()", "y = h.relu()[:, :3]")
    editor.retype(path, TWO_LINES, edited)
    assert _texts(await editor.hints(path)) == [*shown[:2], " -> ~f32[B]"], "what ran before the edit is as it was"
    line, character = at(edited, "return y.sum(1)", "return ")
    assert "traced before the last edits" in (await editor.hover(path, line, character)).contents.value
    commented = TWO_LINES.replace("y = h.relu()", "# positive\n        y = h.relu()")
    editor.retype(path, edited, commented)
    assert _texts(await editor.hints(path)) == shown, "a comment changes nothing"
    wider = TWO_LINES.replace("nn.Linear(16, WIDTH)", "nn.Linear(16, WIDTH + 1)")
    editor.retype(path, commented, wider)
    assert _texts(await editor.hints(path)) == list(map(_marked, shown)), "the constructor decides on all"
    editor.save(path, wider)
    assert await editor.end_state(path) == "ready"
    assert _texts(await editor.hints(path)) == [text.replace("8]", "9]") for text in shown]


async def test_unsaved_code_of_another_file_marks_what_was_traced_with_it(saving_editor):
    editor = saving_editor
    path, parts = editor.folder / "net.py", editor.folder / "parts.py"
    editor.open(parts, "WIDTH = 8\n")
    editor.open(path, TWO_LINES)
    assert await editor.end_state(path) == "ready"
    editor.unread.clear()
    editor.retype(parts, "WIDTH = 8\n", "WIDTH = 80\n")
    await editor.expect(lsp.WORKSPACE_INLAY_HINT_REFRESH)
    assert _texts(await editor.hints(path))[1] == ": ~f32[B, 8]"
    editor.retype(parts, "WIDTH = 80\n", "WIDTH = 8\n")
    await editor.expect(lsp.WORKSPACE_INLAY_HINT_REFRESH)
    assert _texts(await editor.hints(path))[1] == ": f32[B, 8]"
