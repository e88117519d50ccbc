"""A new person's first minutes in a VS Code of their own: nothing runs before the folder is trusted; then one offer."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import code_server
import pytest
from conftest import OpenWindow
from playwright.sync_api import Locator, expect
from window import PATIENCE_MS, Window

#: Whoever runs this file, even its import alone, sets the time of another. (What it writes goes to a scratch folder.)
MODEL = """\
import os
import torch
from torch import nn

os.utime({canary!r}, (0, 0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 16)

    def forward(self, x):
        y = self.fc(x)
        return y


if __name__ == "__main__":
    Net()(torch.rand(2, 8))
"""
SETTINGS = {
    "mase.interpreter": sys.executable,
    "workbench.editor.useModal": "off",
    "security.workspace.trust.startupPrompt": "never",
    "security.workspace.trust.banner": "never",
    "workbench.welcomePage.walkthroughs.openOnInstall": True,
}
OFFER = "MASE shows the shapes of this model."


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[code_server.CodeServer]:
    """VS Code as somebody has it who has just installed the extension, asking whether folders are trusted."""
    with code_server.running(tmp_path_factory.mktemp("newcomer"), trust=True, **SETTINGS) as running:
        yield running


def done(window: Window, step: str) -> Locator:
    """The mark of a step of the walkthrough that was done."""
    return window.page.locator(f"[data-done-step-id$='#{step}'][aria-checked='true']")


@pytest.mark.timeout(240)
def test_nothing_runs_before_trust_and_the_walkthrough_is_offered_once_after_it(
    open_window: OpenWindow, newcomer: code_server.CodeServer, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    canary.touch()
    folder = tmp_path / "downloaded"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL.format(canary=str(canary)))
    window = open_window(folder, "model.py", on=newcomer)
    window.page.get_by_text("Restricted Mode").first.wait_for()
    window.command("Workspaces: Manage Workspace Trust")
    window.page.locator(".workspace-trust-editor").get_by_text("In Restricted Mode").first.wait_for()
    window.picture("untrusted")
    expect(window.status).to_have_count(0)
    expect(window.page.locator(".view-line", has_text="f32")).to_have_count(0)
    assert canary.stat().st_mtime > 0

    window.page.get_by_role("button", name="Trust", exact=True).first.click()
    window.page.locator(".tab", has_text="model.py").click()
    window.expect_line("y: f32[B, 16] = self.fc(x)")
    assert canary.stat().st_mtime == 0, "the canary tells nothing if running the file leaves it as it was"
    offer = window.notice(OFFER)
    window.picture("walkthrough-offered")
    offer.get_by_text("Show Me How").click()
    window.page.get_by_text("Get Started with MASE").first.wait_for()
    expect(done(window, "shapes")).to_have_count(1, timeout=PATIENCE_MS)
    window.picture("walkthrough")
    window.page.keyboard.press("Control+b")  # pictures stand beside the steps where there is room for them
    window.page.locator("button.getting-started-step[data-step-id$='#passes']").click()
    picture = window.page.locator(".getting-started-media img")
    expect(picture).to_have_attribute("srcset", re.compile("quantised"), timeout=PATIENCE_MS)
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    window.picture("walkthrough-pass")
    window.page.get_by_role("button", name="Apply a Pass", exact=True).click()
    window.page.locator(".tab.active", has_text="model.py").wait_for()
    expect(window.page.locator(".quick-input-widget:visible")).to_contain_text("Net", timeout=PATIENCE_MS)
    window.page.keyboard.press("Escape")

    window.page.reload()
    window.expect_line("y: f32[B, 16] = self.fc(x)")
    window.command("MASE: Trace This File Again")
    window.expect_status("MASE: ready")
    expect(window.page.get_by_text(OFFER)).to_have_count(0)
    window.command("MASE: Get Started")
    expect(done(window, "passes")).to_have_count(1, timeout=PATIENCE_MS)
