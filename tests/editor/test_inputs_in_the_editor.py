"""The form for inputs in a real VS Code: see, change, write, compare, undo. Shapes are worked out by hand."""

import re

from fake_project import wait_until
from playwright.sync_api import FrameLocator, expect
from window import PATIENCE_MS, Window

NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self, width, classes=4):
        super().__init__()
        self.fc = nn.Linear(width, classes)

    def forward(self, x, scale=1.0):
        y = self.fc(x)
        return y * scale
"""


def form(window: Window) -> FrameLocator:
    """The form's page: a frame in a frame."""
    return window.page.frame_locator("iframe.webview").frame_locator("iframe#active-frame")


def test_inputs_are_seen_changed_named_compared_and_undone(window: Window) -> None:
    """A Linear(6, 4) has 6 * 4 + 4 parameters, whatever goes through it."""
    path = window.write("net.py", NET)
    window.open("net.py")
    window.page.get_by_text("guessed B=").first.wait_for()
    window.expect_status("MASE: ready")
    window.page.locator(".codelens-decoration").get_by_text("inputs", exact=True).click()
    page = form(window)
    field = page.locator("input[name='inputs.x']")
    expect(field).to_be_focused(timeout=PATIENCE_MS)
    expect(page.locator("fieldset").first).to_contain_text("assumed: found by search")
    expect(page.locator("input[name='inputs.scale']")).to_have_attribute("placeholder", "1.0 by default")
    expect(page.locator("#apply")).to_be_disabled()

    field.fill("f33[3, 6]")
    wrong = page.locator("[id='inputs.x-wrong']")
    expect(wrong).to_contain_text("unknown element type 'f33'", timeout=PATIENCE_MS)
    expect(page.locator("#state")).to_have_text("Not traced, because of x.")
    window.picture("inputs-wrong")
    field.fill("f32[3, 6]")
    page.locator("input[name='arguments.width']").fill("6")
    expect(page.locator("#outcome")).to_contain_text("f32[3, 4]", timeout=PATIENCE_MS)
    expect(page.locator("#outcome")).to_contain_text("28")
    traced = re.compile(r"^Traced Net with x: f32\[B=3, 6\] → f32\[3, 4\] in \d+\.\d\d s\.$")
    expect(page.locator("#state")).to_have_text(traced)
    expect(wrong).to_be_empty()
    expect(page.locator("#comment")).to_have_text("# mase: Net(width=6); x: f32[3, 6]")
    window.picture("inputs-form")
    field.press("Enter")
    window.expect_line("# mase: Net(width=6); x: f32[3, 6]")
    expect(window.page.get_by_text("guessed B=")).to_have_count(0, timeout=PATIENCE_MS)
    written = "# mase: Net(width=6); x: f32[3, 6]\n"
    assert path.read_text() == NET.replace("class Net", f"{written}class Net")

    page.get_by_role("button", name="New set").click()
    page.locator("#name").fill("wide")
    page.locator("input[name='arguments.width']").fill("9")
    field.fill("f32[1, 9]")
    expect(page.locator("#comment")).to_have_text("# mase[wide]: Net(width=9); x: f32[1, 9]", timeout=PATIENCE_MS)
    page.locator("#apply").click()
    window.page.get_by_text("inputs: wide, the only set").first.wait_for()
    window.expect_line("x: f32[B, 9]")
    window.picture("inputs-set")
    page.get_by_role("button", name="Compare").click()
    window.page.locator(".modified .view-line", has_text="f32[3, 4]").first.wait_for()
    window.page.locator(".original .view-line", has_text="f32[1, 4]").first.wait_for()
    window.picture("inputs-compared")
    window.page.keyboard.press("Control+F4")

    window.page.locator(".tab", has_text="net.py").first.click()
    window.page.keyboard.press("Control+z")
    window.page.keyboard.press("Control+z")
    window.expect_line("# mase", 0)
    window.page.keyboard.press("Control+s")  # the comparison beside it has a tab of its own, which is never dirty
    wait_until(lambda: path.read_text() == NET, "the file was what it had been")
