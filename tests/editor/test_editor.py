"""The whole thing: real VS Code, the extension, the server, PyTorch. Expected shapes are LeNet-5's, worked by hand."""

from pathlib import Path

from conftest import OpenWindow
from playwright.sync_api import expect

LENET = "lenet.py"


def test_an_example_shows_its_shapes_and_a_hover_tells_more(project: Path, open_window: OpenWindow) -> None:
    window = open_window(project, LENET)
    window.expect_status("MASE: ready")
    window.expect_line("x: f32[B, 6, 14, 14] = F.max_pool2d(F.relu(self.conv1(x)), 2)")
    window.expect_line("x: f32[B, 16, 5, 5] = F.max_pool2d(F.relu(self.conv2(x)), 2)")
    window.expect_line("x: f32[B, 400] = torch.flatten(x, 1)")
    window.picture("hints")
    card = window.hover("torch.flatten", "flatten")
    expect(card).to_contain_text("f32[B, 400]")
    window.picture("hover")


def test_a_save_shows_fresh_shapes(project: Path, open_window: OpenWindow) -> None:
    window = open_window(project, LENET)
    window.expect_line("x: f32[B, 84] = F.relu(self.fc2(x))")
    window.replace("nn.Linear(120, 84)", "nn.Linear(120, 96)")
    window.replace("nn.Linear(84, num_classes)", "nn.Linear(96, num_classes)")
    window.expect_line("x: f32[B, 96] = F.relu(self.fc2(x))")
    window.expect_status("MASE: ready")
    window.picture("after-save")


def test_a_shape_error_is_underlined_and_its_quick_fix_mends_it(project: Path, open_window: OpenWindow) -> None:
    window = open_window(project, LENET)
    window.expect_line("x: f32[B, 84] = F.relu(self.fc2(x))")
    window.replace("nn.Linear(84, num_classes)", "nn.Linear(85, num_classes)")
    window.page.locator(".squiggly-error").first.wait_for()
    window.picture("error")
    window.page.keyboard.press("F8")
    window.page.keyboard.press("Escape")
    window.page.keyboard.press("Control+.")
    window.page.locator(".action-widget .action-list-item, .action-widget .monaco-list-row").first.wait_for()
    window.picture("quick-fix")
    window.page.keyboard.press("Enter")
    window.expect_line("nn.Linear(84, num_classes)")
    window.save()
    expect(window.page.locator(".squiggly-error")).to_have_count(0)
    window.expect_status("MASE: ready")
    window.picture("fixed")
