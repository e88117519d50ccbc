"""A workspace of two folders, each with a Python of its own that has torch and no server, or an old one."""

import json
from pathlib import Path

import pytest
from conftest import OpenWindow
from fake_project import wait_until
from playwright.sync_api import expect
from window import PATIENCE_MS

from tests.worker.pythons import make_python

#: Each Python has its own `flavour`, so a shape tells which one ran the file.
MODEL = """\
import torch
from flavour import WIDTH
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, WIDTH)

    def forward(self, x):
        y = self.fc(x)
        return y


if __name__ == "__main__":
    Net()(torch.rand(2, 8))
"""


def folder_with_a_python(root: Path, name: str, width: int) -> str:
    """A folder `name` with `{name}_model.py`, and the path of the Python chosen for it."""
    python, site = make_python(root / f"python-{name}", torch=True)
    (site / "flavour.py").write_text(f"WIDTH = {width}\n")
    (root / name).mkdir()
    (root / name / f"{name}_model.py").write_text(MODEL)
    choose(root / name, python)
    return python


def install_an_old_server(python: str) -> None:
    """What an interpreter has where somebody once installed the package; it would not start."""
    (site,) = (Path(python).parents[1] / "lib").glob("python*/site-packages")
    for name in ("mase_server", "mase_server-0.0.9.dist-info"):
        (site / name).mkdir()
    (site / "mase_server" / "__init__.py").write_text('__version__ = "0.0.9"\n')
    (site / "mase_server-0.0.9.dist-info" / "METADATA").write_text("Name: mase-server\nVersion: 0.0.9\n")


def choose(folder: Path, python: str) -> None:
    """Choose the Python of a folder in its settings."""
    settings = folder / ".vscode" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"mase.interpreter": python}))


def servers_of(pythons: list[str]) -> list[int]:
    """The processes of the server that the extension brings, run by one of these."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = line.read_text().split("\0")
        except OSError:
            continue  # it has ended
        if words[0] in pythons and any(word.endswith("bundled/start.py") for word in words):
            found.append(int(line.parent.name))
    return found


@pytest.mark.timeout(240)
def test_each_folder_has_its_own_python_and_another_choice_restarts_workers_alone(
    open_window: OpenWindow, tmp_path: Path
) -> None:
    pythons = [folder_with_a_python(tmp_path, "first", 16), folder_with_a_python(tmp_path, "second", 32)]
    install_an_old_server(pythons[0])
    workspace = tmp_path / "both.code-workspace"
    workspace.write_text(json.dumps({"folders": [{"path": "first"}, {"path": "second"}]}))
    window = open_window(workspace, "first/first_model.py")
    window.expect_line("y: f32[B, 16] = self.fc(x)")
    if not servers_of(pythons):  # VS Code told the settings of the folders after it had started the extension
        window.command("MASE: Restart Server")
        wait_until(lambda: bool(servers_of(pythons)), "the server runs in a Python of the folders")
    [server] = servers_of(pythons)
    window.open("second/second_model.py")
    window.expect_line("y: f32[B, 32] = self.fc(x)")
    window.status.hover()
    card = window.page.locator(".monaco-hover:visible")
    expect(card).to_contain_text(f"Python: {pythons[1]}", timeout=PATIENCE_MS)
    expect(card).to_contain_text(f"of the extension; newer than the installed 0.0.9 of {pythons[0]}")
    window.picture("two-folders")
    choose(tmp_path / "second", pythons[0])
    window.expect_line("y: f32[B, 16] = self.fc(x)")
    window.open("first/first_model.py")
    window.expect_line("y: f32[B, 16] = self.fc(x)")
    assert servers_of(pythons) == [server]
