"""What PyTorch's compilers make of a model in a real VS Code: each view beside the source, breaks, and comparisons."""

import re

import pytest
from playwright.sync_api import Locator, expect
from test_passes_in_the_editor import choose_action, line_of
from window import PATIENCE_MS, Window

EDITORS = ".editor-instance .monaco-editor"
#: Whole lines with the colour of what belongs together.
LIT = ".view-overlays .cdr[class*='ced-']"
NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x).relu()
        if h.sum() > 0:
            h = h + 1
        return self.last(h)


if __name__ == "__main__":
    Net()(torch.ones(2, 4))
"""
#: By its row in the list: the name of each view, how its text begins, and what it has for the last layer.
VIEWS = {
    "Dynamo": ("dynamo", "# Graph 1", "torch._C._nn.linear("),
    "ATen": ("aten", "# Graph 1", "torch.ops.aten.addmm"),
    "ATen in training": ("joint", "# Graph 1, joint", "torch.ops.aten.addmm"),
    "Inductor": ("inductor", "# AOT ID:", "extern_kernels.addmm"),
    "Exported program": ("export", "# exported with strict=False", "torch.ops.aten.linear"),
    "ONNX": ("onnx", "# exported with strict=False", "::Gemm("),
}


def document(window: Window, name: str) -> Locator:
    """An editor on the screen, by the end of its document's address."""
    return window.page.locator(f"{EDITORS}[data-uri$='{name}.py']")


def show(window: Window, view: str) -> Locator:
    """Choose a view from the list; the lines of its document."""
    window.command("MASE: Show What PyTorch's Compilers Make of It...")
    rows = window.page.locator(".quick-input-list .monaco-list-row:visible")
    rows.filter(has=window.page.get_by_text(view, exact=True)).first.click()
    name, first, _ = VIEWS[view]
    lines = document(window, f"Net.{name}").locator(".view-line")
    lines.filter(has_text=re.compile(first.replace(" ", r"\s"))).first.wait_for()
    return lines


def opened(window: Window, text: str = NET) -> None:
    window.write("net.py", text)
    window.open("net.py")
    window.expect_status("MASE: ready")


WHOLE = NET.replace("        if h.sum() > 0:\n            h = h + 1\n", "")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_opens_beside_the_source_and_each_side_lights_the_other(window: Window, view: str) -> None:
    opened(window, WHOLE)
    name, _, operator = VIEWS[view]
    lines = show(window, view)
    expect(window.page.locator(".tab.active", has_text="net.py")).to_have_count(1)
    window.go_to(line_of(window.path, "return self.last(h)"), 20)
    expect(document(window, f"Net.{name}").locator(LIT).first).to_be_visible(timeout=PATIENCE_MS)
    window.picture(f"compiled-{name}")
    window.go_to(1)
    expect(document(window, "net").locator(LIT)).to_have_count(0, timeout=PATIENCE_MS)
    lines.filter(has_text=operator).last.click()
    expect(document(window, "net").locator(LIT)).to_have_count(1, timeout=PATIENCE_MS)


def test_a_view_follows_saves_and_says_when_it_is_stale(window: Window) -> None:
    opened(window, WHOLE)
    lines = show(window, "Dynamo")
    window.replace("return self.last(h)", "return self.last(h).sin()")
    lines.filter(has_text=re.compile(r"\.sin\(\)")).first.wait_for()
    window.replace("return self.last(h).sin()", "return self.last(h) +")
    lines.filter(has_text=re.compile(r"#\sSTALE,\snet.py\scannot\sbe\straced\snow")).wait_for()
    window.picture("compiled-stale")
    window.replace("return self.last(h) +", "return self.last(h)")
    expect(lines.filter(has_text="STALE")).to_have_count(0, timeout=PATIENCE_MS)
    expect(lines.filter(has_text=re.compile(r"\.sin\(\)"))).to_have_count(0, timeout=PATIENCE_MS)


def test_a_click_in_the_lens_tells_breaks_and_a_quick_fix_removes_one(window: Window) -> None:
    opened(window)
    lens = window.page.locator(".codelens-decoration a:visible")
    lens.filter(has_text=re.compile("^breaks$")).click()
    lens.filter(has_text=re.compile(r"2 graphs, 1 break$")).wait_for()
    window.go_to(line_of(window.path, "if h.sum() > 0:"), 12)
    window.picture("compiled-break")
    choose_action(window, "Choose with `torch.where`")
    window.expect_line("h = torch.where(h.sum() > 0, h + 1, h)")
    window.picture("compiled-fixed")
    window.save()
    lens.filter(has_text=re.compile(r"1 graph, 0 breaks$")).wait_for()


def test_two_saves_are_compared_in_a_diff(window: Window) -> None:
    opened(window, WHOLE)
    show(window, "ATen")
    window.replace("return self.last(h)", "return self.last(h).sin()")
    window.command("MASE: Compare What PyTorch's Compilers Make of It...")
    rows = window.page.locator(".quick-input-list .monaco-list-row:visible")
    rows.filter(has=window.page.get_by_text("ATen", exact=True)).first.click()
    rows.filter(has=window.page.get_by_text("Before", exact=True)).first.click()
    window.page.locator(".tab.active", has_text="Net: Before ↔ ATen").wait_for()
    added = window.page.locator(".monaco-diff-editor .modified .view-line", has_text="torch.ops.aten.sin")
    added.first.wait_for()
    expect(window.page.locator(".monaco-diff-editor .original .view-line", has_text="aten.sin")).to_have_count(0)
    window.picture("compiled-diff")


def test_each_view_has_a_command_and_its_lines_tell_bytes_under_the_mouse(window: Window) -> None:
    opened(window, WHOLE)
    window.command("MASE: Show Inductor's Code")
    lines = document(window, "Net.inductor").locator(".view-line")
    lines.first.wait_for()
    source = line_of(window.path, "return self.last(h)")
    window.go_to(source, 20)
    call = lines.filter(has_text="extern_kernels.addmm(").last
    call.wait_for()
    call.click()
    call.hover()
    card = window.page.locator(".monaco-hover:visible", has_text="extern_kernels.addmm")
    card.filter(has_text=f"net.py:{source}").wait_for()
    window.picture("compiled-hover")
