"""Passes in a real VS Code, by keyboard: choose, see, compare, take back. Expected texts are worked out by hand."""

import re
from pathlib import Path

from fake_project import wait_until
from playwright.sync_api import Locator, expect
from window import PATIENCE_MS, Window

FLOAT = "y: f32[B, T, 128] = y.transpose(1, 2)"
FIXED = "y: fixed(8,4)[B, T, 128] = y.transpose(1, 2)"
LENS = re.compile(r"quantize · .*SQNR ")


def line_of(path: Path, text: str) -> int:
    """The number of the first line with `text`, from 1."""
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def choose_action(window: Window, title: str) -> None:
    """Ctrl+. and down to the action with `title`, then Enter."""
    window.actions(title)
    focused = window.page.locator(".action-widget .monaco-list-row.focused")
    for _ in range(20):
        if title in (focused.text_content() or ""):
            break
        window.page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text(title)
    window.page.keyboard.press("Enter")


def form(window: Window, title: str) -> Locator:
    """The quick pick with this title, once it shows."""
    widget = window.page.locator(".quick-input-widget:visible")
    widget.get_by_text(title).first.wait_for()
    return widget


def wait_for_passes(window: Window, line: int) -> None:
    """The list of passes comes shortly after the first trace."""
    window.go_to(line, 20)
    for _ in range(120):
        window.page.keyboard.press("Control+.")
        window.page.locator(".action-widget .monaco-list-row, .monaco-editor-overlaymessage").first.wait_for()
        known = window.page.locator(".action-widget").get_by_text("MASE: Quantise").count()
        window.page.keyboard.press("Escape")
        window.page.locator(".action-widget").first.wait_for(state="hidden")
        if known:
            return


def go_to_class_with_passes(window: Window) -> None:
    """Put the cursor on the class of the MLP, once its passes are known."""
    path = window.open("mlp.py")
    window.expect_status("MASE: ready")
    wait_for_passes(window, line_of(path, "self.head = nn.Linear"))
    window.go_to(line_of(path, "class MLP"), 8)


def test_quantising_by_keyboard_changes_the_hints_and_undo_brings_them_back(window: Window) -> None:
    path = window.open("gpt.py")
    window.expect_status("MASE: ready")
    row = line_of(path, "class GPT(nn.Module)")
    wait_for_passes(window, line_of(path, "self.c_attn = "))
    window.go_to(row, 8)
    choose_action(window, "MASE: Quantise GPT")
    form(window, "Quantise GPT")
    window.picture("pass-form")
    window.page.keyboard.type("default")
    window.page.keyboard.press("Enter")
    window.page.locator(".quick-input-widget:visible").get_by_text("ternary").first.wait_for()
    window.page.keyboard.type("fixed(8,4)")
    window.page.locator(".quick-input-widget:visible").get_by_text("as typed").first.wait_for()
    window.picture("pass-argument")
    window.page.keyboard.press("Enter")
    form(window, "default=fixed(8,4)")
    window.picture("pass-form-filled")
    window.page.keyboard.press("Enter")
    window.go_to(43)
    window.expect_line(FIXED)
    window.expect_status("MASE: ready · 1 pass")
    window.picture("pass-applied")
    window.go_to(row)
    window.page.get_by_text(LENS).wait_for(timeout=3 * PATIENCE_MS)
    window.picture("pass-lens")
    window.command("MASE: Compare with the Original")
    window.page.locator(".modified .view-line", has_text="quantise").first.wait_for()
    expect(window.page.locator(".original .view-line", has_text="quantise")).to_have_count(0)
    window.page.keyboard.press("Alt+F5")
    window.page.keyboard.press("Alt+F5")
    window.page.locator(".modified .view-line", has_text="'fixed(8,4)')").first.wait_for()
    window.picture("pass-compare")
    window.page.keyboard.press("Control+F4")
    window.page.locator(".tab", has_text="gpt.py").first.click()
    window.go_to(row)
    window.command("MASE: Undo the Last Pass")
    window.go_to(43)
    window.expect_line(FLOAT)
    window.go_to(row)
    window.page.get_by_text("892 k parameters").wait_for()
    expect(window.page.get_by_text(LENS)).to_have_count(0, timeout=PATIENCE_MS)
    window.expect_status("MASE: ready")
    window.picture("pass-undone")
    window.command("Notifications: Show Notifications")
    window.picture("notifications")


def apply_from(window: Window, row: int, column: int, action: str) -> None:
    """Choose an action of passes there, and take its form as it stands."""
    window.go_to(row, column)
    choose_action(window, action)
    form(window, action.removeprefix("MASE: "))
    window.page.keyboard.press("Enter")


def test_a_layer_is_quantised_alone_and_the_pipeline_is_listed_kept_and_taken_back(window: Window) -> None:
    path = window.open("mlp.py")
    window.expect_status("MASE: ready")
    row = line_of(path, "self.head = nn.Linear")
    wait_for_passes(window, row)
    apply_from(window, row, 20, "MASE: Quantise layer head")
    window.expect_line("logits: fixed(8,", 2)
    window.expect_line("x: f32[B, 64|32] = torch.relu(layer(x))")
    window.page.get_by_text(LENS).first.wait_for(timeout=3 * PATIENCE_MS)
    card = window.hover("= self.head(x)", "logits")
    expect(card).to_contain_text("number format")
    expect(card).to_contain_text("max error")
    window.picture("pass-card")
    window.page.keyboard.press("Escape")
    window.go_to(line_of(path, "class MLP"), 8)
    choose_action(window, "MASE: Pipeline of MLP")
    listed = form(window, "Passes on MLP")
    # The form keeps what was typed into it last.
    expect(listed).to_contain_text(re.compile(r"1\. quantize\(.*only=\['head'\]\)"))
    window.picture("pass-pipeline")
    listed.get_by_text("Write to the settings").first.click()
    settings = window.root / ".vscode" / "settings.json"
    wait_until(settings.exists, "the settings were written")
    wait_until(lambda: "only=['head'])" in settings.read_text(), "the settings held the pipeline")
    window.expect_status("MASE: ready · 1 pass")
    window.expect_line("logits: fixed(8,", 2)
    window.page.get_by_text("undo", exact=True).first.click()
    window.expect_line("logits: f32[B, 5] = self.head(x)")
    window.picture("pass-lens-undone")


def test_more_passes_are_listed_and_one_that_cannot_work_says_what_to_do(window: Window) -> None:
    go_to_class_with_passes(window)
    choose_action(window, "MASE: More passes for MLP")
    listed = form(window, "Passes for MLP")
    expect(listed).to_contain_text("transforms")
    window.picture("pass-list")
    window.page.keyboard.type("quantize")
    window.page.keyboard.press("Enter")
    form(window, "Quantise MLP")
    window.page.keyboard.type("default")
    window.page.keyboard.press("Enter")
    form(window, "ternary")
    window.page.keyboard.type("fixed(8)")
    form(window, "as typed")
    window.page.keyboard.press("Enter")
    form(window, "default=fixed(8)")
    window.page.keyboard.press("Enter")
    notice = window.notice("fixed(8)")
    expect(notice.get_by_text("Change Arguments")).to_be_visible()
    window.picture("pass-refused")
    window.expect_line("logits: f32[B, 5] = self.head(x)")
    notice.get_by_text("Change Arguments").click()
    form(window, "Quantise MLP")


def test_the_code_opens_beside_the_source(window: Window) -> None:
    window.open("mlp.py")
    window.expect_status("MASE: ready")
    window.command("MASE: Show the Transformed Code")
    window.page.locator(".view-line", has_text="import torch.nn.functional as F").first.wait_for()
    window.picture("pass-code")


IDLE = '''\
def idle_transform_pass(graph, pass_args={"depth": 1}):
    """Change nothing."""
    return graph, {"changed": 0}
'''


def offered(window: Window, typed: str) -> Locator:
    """The passes that the list still shows after `typed`."""
    window.command("MASE: Apply a Pass...")
    form(window, "Passes for")
    window.page.keyboard.type(typed)
    return window.page.locator(".quick-input-list:visible .monaco-list-row")


def test_adapters_are_found_by_their_name_and_told_and_a_pass_without_effect_is_not_recorded(window: Window) -> None:
    """The head is Linear(32, 5): an adapter of rank 8 trains 8 * 32 + 5 * 8 numbers beside its 32 * 5 + 5."""
    window.write("own_passes.py", IDLE)
    go_to_class_with_passes(window)
    found = offered(window, "lora")
    expect(found.first).to_contain_text("Insert LoRA adapters")
    expect(found).to_have_count(1)  # nothing to merge yet
    window.page.keyboard.press("Enter")
    form(window, "Insert LoRA adapters")
    window.page.keyboard.press("Enter")
    window.page.get_by_text(re.compile(r"rank 8 · .* trainable")).first.wait_for(timeout=3 * PATIENCE_MS)
    expect(window.hover("= self.head(x)", "head")).to_contain_text("LoRA rank 8: 296 trainable of 461 parameters")
    window.picture("lora")
    window.page.mouse.move(1, 1)
    found = offered(window, "lora")
    expect(found.nth(0)).to_contain_text("Insert LoRA adapters")
    expect(found.nth(1)).to_contain_text("Merge LoRA adapters")
    window.page.keyboard.press("Escape")
    offered(window, "idle").first.wait_for()
    window.page.keyboard.press("Enter")
    form(window, "depth")
    window.page.keyboard.press("Enter")
    window.notice("it changes nothing here, so it was not applied")
    window.expect_status("MASE: ready · 1 pass")


STUCK = '''\
def stuck_transform_pass(graph, pass_args={"seconds": 600}):
    """Never come to an end."""
    while True:
        pass
'''


def test_a_pass_of_ones_own_that_does_not_end_is_cancelled_and_leaves_nothing(window: Window) -> None:
    window.write("own_passes.py", STUCK)
    go_to_class_with_passes(window)
    choose_action(window, "MASE: More passes for MLP")
    listed = form(window, "Passes for MLP")
    expect(listed).to_contain_text("your own")
    window.page.keyboard.type("stuck")
    window.page.keyboard.press("Enter")
    form(window, "seconds")
    window.page.keyboard.press("Enter")
    notice = window.notice("MLP")
    notice.get_by_text("Cancel").wait_for()
    window.picture("pass-running")
    notice.get_by_text("Cancel").click()
    expect(window.page.locator(".notification-list-item", has_text="MLP")).to_have_count(0, timeout=PATIENCE_MS)
    window.expect_status("MASE: ready")
    window.expect_line("logits: f32[B, 5] = self.head(x)")
    expect(window.page.get_by_text("undo", exact=True)).to_have_count(0)
    window.picture("pass-cancelled")
