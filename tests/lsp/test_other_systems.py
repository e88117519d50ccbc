"""The whole way on systems that lack what Linux has, as far as that can be played here: a real server, real torch.

`other_system/sitecustomize.py` takes it away from the server and from each worker. What Windows itself does runs in
hosted CI, and the type checker reads the code for each system (`make types`).
"""

import sys
from pathlib import Path

import pytest
from editing import Editor

from mase_server.system import find_descendants
from tests.worker.serving import gone

EXAMPLES = Path(__file__).parents[2] / "examples"
LACKING = Path(__file__).parent / "other_system"
SERVER = (sys.executable, "-m", "mase_server", "lsp")


@pytest.fixture(params=["windows", "macos"])
async def editor(request, tmp_path, monkeypatch):
    """An editor whose server runs without what `request.param` lacks."""
    for name in ("CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(LACKING))
    monkeypatch.setenv("MASE_WITHOUT", request.param)
    editor = Editor(tmp_path, options={"trusted": True, "interpreter": sys.executable})
    await editor.start(*SERVER)
    yield editor
    if editor.process.returncode is None:
        await editor.stop()


def head_of(text):
    number = next(number for number, line in enumerate(text.split("\n")) if "logits = self.head(x)" in line)
    return number, text.split("\n")[number].index("logits") + len("logits")


async def test_hints_a_save_and_the_end_work_there_and_leave_no_process(editor):
    path = editor.folder / "mlp.py"
    text = (EXAMPLES / "mlp.py").read_text()
    path.write_text(text)
    editor.open(path)
    assert await editor.end_state(path) == "ready"
    assert (await editor.hints(path))[head_of(text)] == ": f32[B, 5]"
    wider = text.replace("num_classes=5", "num_classes=7")
    editor.retype(path, text, wider)
    editor.save(path, wider)
    assert await editor.end_state(path) == "ready"
    assert (await editor.hints(path))[head_of(wider)] == ": f32[B, 7]"
    below = find_descendants(editor.process.pid)
    assert below
    await editor.stop()
    assert gone(below)
