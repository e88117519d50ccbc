"""A big file under its time limit: finished models are shown as they are finished, the others are told."""

import sys

import pytest
from editing import Editor, capabilities

SERVER = (sys.executable, "-m", "mase_server", "lsp")
MANY = 60
HEAD = "import time\nimport torch\nfrom torch import nn\n\n"
CLASS = """
class Net{0}(nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(0.25)
        self.fc = nn.Linear(8, {0} + 1)

    def forward(self, x):
        y = self.fc(x)
        return y

"""
FACTORY = """
def net{0}():
    time.sleep(0.25)
    return nn.Sequential(nn.Linear(8, {0} + 1), nn.ReLU())

"""
CLASSES = HEAD + "".join(CLASS.format(number) for number in range(MANY))
CALLS = f"\nfor kind in [{', '.join(f'Net{number}' for number in range(MANY))}]:\n    kind()(torch.zeros(2, 8))\n"
FILES = {
    "classes": CLASSES,
    "called": CLASSES + CALLS,
    "factories": HEAD + "".join(FACTORY.format(number) for number in range(MANY)),
}
SECONDS = 6


@pytest.fixture
async def editor(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "workspace"
    folder.mkdir()
    can = capabilities(configuration=True, progress=True)
    options = {"trusted": True, "interpreter": sys.executable}
    editor = Editor(folder, can=can, options=options, settings={"limits": {"seconds": SECONDS}})
    await editor.start(*SERVER)
    yield editor
    await editor.stop()


@pytest.mark.parametrize("kind", FILES)
async def test_finished_models_are_shown_and_the_status_tells_how_many_are_not_and_which_limit_ended(editor, kind):
    path = editor.folder / "many.py"
    editor.open(path, FILES[kind])
    await editor.expect("mase/viewsChanged")
    assert 0 < len(await editor.lenses(path)) < MANY, "the first are shown while the others are made"
    status = await editor.expect("mase/status", lambda s: s.uri == path.as_uri() and s.state in ("ready", "crashed"))
    assert status.state == "ready"
    assert len(status.models) >= 5
    assert len(status.models) + len(status.unshown) == MANY
    assert {one.why for one in status.unshown} == {f"The time limit of {SECONDS} s was reached first."}
    assert {one.step for one in status.unshown} == {"Raise the setting mase.limits.seconds."}
    left = len(status.unshown)
    assert status.message.startswith(f"{left} models are not shown: ")
    assert status.message.endswith(
        f" and {left - 3} others. The time limit of {SECONDS} s was reached first."
        " Raise the setting mase.limits.seconds."
    )
    told = [told.message for method, told in editor.unread if method == "window/logMessage"]
    [line] = [text for text in told if "not shown" in text]
    assert line.startswith(f"many.py:{status.unshown[0].line}: {left} models are not shown: ")
    assert line.endswith(" [time-limit, decided by the limit of time]")
    if kind != "factories":
        line = FILES[kind].split("\n").index("        y = self.fc(x)")
        assert (await editor.hints(path, line, line))[line, 9] == ": f32[B, 1]", "with their symbols"


async def test_progress_names_file_and_model_in_a_constant_width_and_no_word_twice(editor):
    path = editor.folder / "many.py"
    editor.open(path, FILES["classes"])
    await editor.end_state(path)
    values = [told.value for method, told in editor.unread if method == "$/progress"]
    [title] = [value["title"] for value in values if value["kind"] == "begin"]
    texts = [value["message"] for value in values if value["kind"] in ("begin", "report")]
    assert title == "Tracing many.py"
    assert any("Net3" in text for text in texts)
    assert len({len(text) for text in texts}) == 1
    for text in texts:
        words = [word for word in f"{title} {text}".replace(":", " ").lower().split() if word.isalpha()]
        assert len(words) == len(set(words)), text
