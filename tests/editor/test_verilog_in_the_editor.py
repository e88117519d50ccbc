"""Hardware in a real VS Code: emitted by keyboard, beside the source, lit on both sides, followed, simulated."""

import re
from pathlib import Path

from playwright.sync_api import Locator, expect
from test_passes_in_the_editor import choose_action, form, line_of, wait_for_passes
from window import PATIENCE_MS, Window

EDITORS = ".editor-instance .monaco-editor"
HARDWARE = f"{EDITORS}[data-uri^='mase-verilog']"
PYTHON = f"{EDITORS}[data-uri$='.py']"
#: Whole lines with the colour of what belongs together.
LIT = ".view-overlays .cdr[class*='ced-']"
SIMULATION_MS = 3 * PATIENCE_MS


def verilog(window: Window) -> Locator:
    """The lines of the hardware on the screen."""
    return window.page.locator(f"{HARDWARE} .view-line")


def lit(window: Window, side: str) -> Locator:
    """The lines of one side that are lit."""
    return window.page.locator(f"{side} {LIT}")


def emitted(window: Window, path: Path) -> None:
    """Emit from the class, with the form as it stands."""
    wait_for_passes(window, line_of(path, "self.head = nn.Linear"))
    window.go_to(line_of(path, "class MLP"), 8)
    choose_action(window, "MASE: Emit the Verilog of MLP")
    expect(form(window, "Emit the Verilog of MLP")).to_contain_text("multipliers")
    window.picture("verilog-form")
    window.page.keyboard.press("Enter")
    verilog(window).filter(has_text=re.compile(r"module\smlp")).wait_for()


def test_hardware_opens_beside_lights_up_on_both_sides_and_follows_a_save(window: Window) -> None:
    """The MLP ends in 5 classes; made 7, its last layer has 7 in hardware too."""
    path = window.open("mlp.py")
    window.expect_status("MASE: ready")
    emitted(window, path)
    expect(window.page.locator(".tab.active", has_text="mlp.py")).to_have_count(1)
    window.picture("verilog-beside")
    use = line_of(path, "logits = self.head(x)")
    window.go_to(use, 24)
    instance = verilog(window).filter(has_text="head_i")
    instance.wait_for()
    expect(lit(window, HARDWARE).first).to_be_visible(timeout=PATIENCE_MS)
    expect(lit(window, PYTHON)).to_have_count(2)  # where it is made, and where it is used
    window.picture("verilog-highlight")

    window.replace("num_classes=5", "num_classes=7")
    size = verilog(window).filter(has_text="DATA_OUT_0_TENSOR_SIZE_DIM_0(7)")
    size.wait_for()
    expect(instance).to_be_visible()  # where it was scrolled to
    window.picture("verilog-followed")

    window.go_to(1)
    expect(lit(window, PYTHON)).to_have_count(0, timeout=PATIENCE_MS)
    size.click()
    expect(lit(window, PYTHON)).to_have_count(2, timeout=PATIENCE_MS)
    expect(lit(window, HARDWARE).first).to_be_visible()
    window.picture("verilog-reverse")
    window.command("MASE: Go to the Python of This Line")
    expect(window.page.locator("#status\\.editor\\.selection")).to_contain_text(f"Ln {use}")
    assert window.page.locator(f"{PYTHON} .lines-content").evaluate("element => element.offsetLeft") == 0


def simulated(window: Window, command: str) -> Locator:
    """The message of a command that simulates the hardware of the MLP."""
    path = window.open("mlp.py")
    window.expect_status("MASE: ready")
    emitted(window, path)
    window.command(command)
    notice = window.page.locator(".notification-list-item", has_text="0 mismatches")
    notice.wait_for(timeout=SIMULATION_MS)
    return notice


def test_a_simulation_reports_its_figures_and_closing_leaves_nothing(window: Window) -> None:
    notice = simulated(window, "MASE: Simulate the Verilog")
    told = re.compile(r"MLP: 100 vectors, 0 mismatches, [\d,.]+ cycles per vector \(estimate 2,048\)")
    expect(notice).to_contain_text(told)
    window.picture("verilog-simulated")
    window.command("MASE: Close the Verilog")
    expect(window.page.locator(".tab", has_text="MLP.sv")).to_have_count(0, timeout=PATIENCE_MS)
    expect(window.page.get_by_text(re.compile("^Verilog(:|$)"))).to_have_count(0, timeout=PATIENCE_MS)


def test_a_waveform_opens_the_picture_of_who_works(window: Window) -> None:
    notice = simulated(window, "MASE: Record a Waveform of the Verilog")
    window.page.locator(".tab", has_text="wave.activity.svg").wait_for()
    page = window.page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")
    page.locator("img").wait_for()
    window.picture("verilog-activity")
    notice.get_by_role("button", name="Open Waveform").click()
    window.page.locator(".tab", has_text="wave.vcd").wait_for()


def test_the_name_of_a_component_opens_its_source(window: Window) -> None:
    path = window.open("mlp.py")
    window.expect_status("MASE: ready")
    emitted(window, path)
    name = verilog(window).filter(has_text="fixed_linear").first.get_by_text("fixed_linear", exact=True)
    name.click()
    window.page.keyboard.press("F12")
    window.page.locator(".tab.active", has_text="fixed_linear.sv").wait_for()
    verilog(window).filter(has_text=re.compile(r"module\sfixed_linear")).wait_for()
    window.picture("verilog-component")


def test_what_is_too_large_offers_a_part_that_opens_beside_the_source(window: Window) -> None:
    """Four layers have a multiplier each; one is allowed."""
    window.configure(**{"mase.verilog.maxMultipliers": 1})
    path = window.open("mlp.py")
    window.expect_status("MASE: ready")
    wait_for_passes(window, line_of(path, "self.head = nn.Linear"))
    window.go_to(line_of(path, "class MLP"), 8)
    choose_action(window, "MASE: Emit the Verilog of MLP")
    form(window, "Emit the Verilog of MLP")
    window.page.keyboard.press("Enter")
    notice = window.notice("MLP")
    window.picture("verilog-refused")
    notice.get_by_text("Build layers.1").click()
    verilog(window).filter(has_text="layers_1_i").first.wait_for()
    expect(window.page.locator(".tab.active", has_text="mlp.py")).to_have_count(1)
    window.page.get_by_text(re.compile(r"^Verilog of layers\.1 alone")).first.wait_for()
    window.picture("verilog-part")
