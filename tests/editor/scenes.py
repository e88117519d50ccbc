"""What the documentation's pictures show: each scene brings a window there and keeps what is then on the screen."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import FrameLocator, Locator, expect
from test_passes_in_the_editor import choose_action, form, line_of, wait_for_passes
from test_verilog_in_the_editor import HARDWARE, LIT, verilog
from window import PATIENCE_MS, Window

Keep = Callable[..., None]
#: Pixels from the top of the window, below which the first line begins.
HIGHEST = 58
#: Where the pointer opens and lights nothing: beside the tabs.
NOWHERE = (400, 12)


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture's name, the example it is taken in, the size of the window, and what happens there."""

    name: str
    file: str
    width: int
    height: int
    play: Callable[[Window, Keep], None]


def at_top(window: Window, line: int, caret: tuple[int, int] | None = None) -> None:
    """Scroll until `line` is the first on the screen; the caret stands at its beginning, or where it is said."""
    window.page.keyboard.press("Control+Home")
    window.go_to(*(caret or (line, 1)))
    numbers = window.page.locator(".editor-instance .monaco-editor .line-numbers", has_text=re.compile(rf"^{line}$"))
    for _ in range(60):
        box = numbers.first.bounding_box() if numbers.count() else None
        if box is not None and box["y"] < HIGHEST:
            break
        window.page.keyboard.press("Control+ArrowDown")


def away(window: Window) -> None:
    """The pointer where it opens nothing, and messages closed."""
    window.command("Notifications: Clear All Notifications")  # a click in the middle of the window
    window.page.mouse.move(*NOWHERE)
    expect(window.page.locator(".notification-toast")).to_have_count(0)
    expect(window.page.locator(".quick-input-widget:visible")).to_have_count(0)


def editor(window: Window, keep: Keep) -> None:
    """Shapes of the attention of a GPT."""
    at_top(window, 34)
    window.expect_line("att: f32[B, 4, T, T] = (q @ k.transpose(-2, -1))")
    away(window)
    keep()


def hover(window: Window, keep: Keep) -> None:
    """All that is known of one call."""
    at_top(window, 41)
    away(window)
    card = window.hover("self.resid_dropout(self.c_proj(y))", "c_proj")
    expect(card).to_contain_text("Linear(in_features=128, out_features=128, bias=True)")
    keep()


def error(window: Window, keep: Keep) -> None:
    """A wrong size, told at the line that it breaks."""
    window.replace("self._stage(256, 512, layers[3]", "self._stage(256, 384, layers[3]")
    window.expect_status("MASE: problem")
    at_top(window, line_of(window.path, "self.layer1 = "))
    window.page.locator(".squiggly-error").first.wait_for()
    window.command("Go to Next Problem (Error, Warning, Info)")
    window.page.locator(".marker-widget").wait_for()
    away(window)
    keep()


def quantised(window: Window, keep: Keep) -> None:
    """The same model in fixed point: formats in place of element types, and above the class what it costs."""
    row = line_of(window.path, "class MLP(nn.Module)")
    wait_for_passes(window, line_of(window.path, "self.head = "))
    window.go_to(row, 8)
    choose_action(window, "MASE: Quantise MLP")
    form(window, "Quantise MLP")
    window.page.keyboard.press("Enter")
    lens = window.page.get_by_text(re.compile(r"quantize · .*SQNR "))
    lens.wait_for(timeout=3 * PATIENCE_MS)
    window.go_to(row - 1)
    away(window)
    keep()


def hardware(window: Window, keep: Keep) -> None:
    """The Verilog of an MLP beside its source, the last layer lit on both sides."""
    wait_for_passes(window, line_of(window.path, "self.head = nn.Linear"))
    window.go_to(line_of(window.path, "class MLP"), 8)
    choose_action(window, "MASE: Emit the Verilog of MLP")
    form(window, "Emit the Verilog of MLP")
    window.page.keyboard.press("Enter")
    verilog(window).filter(has_text=re.compile(r"module\smlp")).wait_for()
    window.go_to(line_of(window.path, "logits = self.head(x)"), 24)
    verilog(window).filter(has_text="head_i").wait_for()
    expect(window.page.locator(f"{HARDWARE} {LIT}").first).to_be_visible(timeout=PATIENCE_MS)
    away(window)
    keep()


def show_view(window: Window, view: str, name: str) -> Locator:
    """Open what a compiler makes of the model beside the code; its lines."""
    window.command("MASE: Show What PyTorch's Compilers Make of It...")
    rows = window.page.locator(".quick-input-list .monaco-list-row:visible")
    rows.filter(has=window.page.get_by_text(view, exact=True)).first.click()
    lines = window.page.locator(f".editor-instance .monaco-editor[data-uri$='{name}.py'] .view-line")
    lines.first.wait_for(timeout=3 * PATIENCE_MS)
    return lines


def compiled(window: Window, keep: Keep) -> None:
    """Inductor's code of a GPT beside its source: what became of a line is lit, and told by a hover."""
    lines = show_view(window, "Inductor", "GPT.inductor")
    lines.filter(has_text="AOT ID").first.wait_for(timeout=3 * PATIENCE_MS)
    row = line_of(window.path, "x = x + self.attn(self.ln_1(x))")
    at_top(window, row - 8, (row, 13))
    lines.filter(has_text="cpp_fused").first.wait_for()
    away(window)
    card = window.hover("self.attn(self.ln_1(x))", "ln_1")
    expect(card).to_contain_text("fused into", timeout=PATIENCE_MS)
    keep()


def breaks(window: Window, keep: Keep) -> None:
    """A graph break at its line, with PyTorch's reason and advice, once a fix was found."""
    window.replace("logits = self.head(x)", "logits = self.head(x) * x.max().item()")
    window.expect_status("MASE: ready")
    at_top(window, 1)
    lens = window.page.locator(".codelens-decoration a:visible")
    lens.filter(has_text=re.compile("^breaks$")).click()
    lens.filter(has_text=re.compile("1 break$")).wait_for(timeout=3 * PATIENCE_MS)
    row = line_of(window.path, "logits = self.head(x) * x.max().item()")
    fix = window.page.locator(".action-widget").get_by_text("Keep it a tensor").first
    for _ in range(40):  # fixes are proved after the break is told
        window.go_to(row, 9)
        window.page.keyboard.press("Control+.")
        window.page.locator(".action-widget").first.wait_for()
        if fix.is_visible():
            break
        window.page.keyboard.press("Escape")
    fix.wait_for()
    window.page.keyboard.press("Escape")
    window.go_to(row, 1)
    away(window)
    card = window.hover("self.head(x) * x.max().item()", "head")
    expect(card).to_contain_text("keep it a tensor", timeout=PATIENCE_MS)
    keep()


def difference(window: Window, keep: Keep) -> None:
    """What quantising a model does to the operators that a compiler is given."""
    wait_for_passes(window, line_of(window.path, "self.head = "))
    window.go_to(line_of(window.path, "class MLP(nn.Module)"), 8)
    choose_action(window, "MASE: Quantise MLP")
    form(window, "Quantise MLP")
    window.page.keyboard.press("Enter")
    window.page.get_by_text(re.compile(r"quantize · .*SQNR ")).wait_for(timeout=3 * PATIENCE_MS)
    window.command("MASE: Compare What PyTorch's Compilers Make of It...")
    rows = window.page.locator(".quick-input-list .monaco-list-row:visible")
    for chosen in ("Dynamo", "With its passes"):
        rows.filter(has=window.page.get_by_text(chosen, exact=True)).first.click()
    after = window.page.locator(".monaco-diff-editor .modified .view-line")
    after.filter(has_text="mase_server.rounded").first.wait_for(timeout=3 * PATIENCE_MS)
    window.page.locator(".monaco-diff-editor .char-insert").first.wait_for()
    away(window)
    keep()


def page_of(window: Window) -> FrameLocator:
    """The page of ours that the window shows: a frame in a frame."""
    return window.page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")


def graph(window: Window, keep: Keep) -> None:
    """A GPT as a graph beside its code: one of its blocks open, shapes on the edges."""
    window.command("MASE: Show the Graph")
    page = page_of(window)
    page.locator('.box[data-id="blocks.0"] .title').click()
    page.locator('.box[data-id="blocks.0.attn"]').wait_for()
    # What was clicked stays where it is; drawn to the left, the graph is seen from side to side.
    window.page.mouse.move(660, 330)
    window.page.mouse.down()
    window.page.mouse.move(540, 330, steps=8)
    window.page.mouse.up()
    away(window)
    keep()


def costs(window: Window, keep: Keep) -> None:
    """What each part of a GPT costs, beside its code, the dearest first."""
    window.command("MASE: Show Costs")
    page = page_of(window)
    page.locator("tr[data-id='blocks']").wait_for()
    page.get_by_role("button", name="FLOPs", exact=True).click()
    expect(page.get_by_role("columnheader", name="FLOPs")).to_have_attribute("aria-sort", "descending")
    away(window)
    keep()


def device(window: Window, keep: Keep) -> None:
    """What a step of training a GPT needs on a device: memory over the step, what holds the peak, time of each part."""
    window.command("MASE: Show Costs on a Device...")
    window.choose("L4", "Training, AdamW", "As the model has them")
    lens = window.page.locator(".codelens-decoration a:visible", has_text="B <=")
    window.go_to(line_of(window.path, "class GPT("))
    lens.first.click(timeout=PATIENCE_MS)
    page = page_of(window)
    page.get_by_role("listitem").filter(has_text="line").first.click()
    page.get_by_role("button", name="Est. Time", exact=True).click()
    expect(page.get_by_role("columnheader", name="Est. Time")).to_have_attribute("aria-sort", "descending")
    away(window)
    keep()
    page.get_by_role("button", name="Device…", exact=True).click()
    window.choose("None")


def inputs(window: Window, keep: Keep) -> None:
    """The form of a model's inputs and constructor arguments, beside its code."""
    window.page.locator(".codelens-decoration a:visible", has_text="inputs").first.click()
    page = page_of(window)
    page.locator("input[name='inputs.x']").fill("f32[B=8, 16]")
    page.locator("input[name='arguments.num_classes']").fill("7")
    expect(page.locator("#outcome")).to_contain_text("f32[8, 7]", timeout=PATIENCE_MS)
    away(window)
    keep()


def film(window: Window, keep: Keep) -> None:
    """A stage made narrower: shapes follow the save, the layer that no longer fits says so, and a key mends it."""
    row = line_of(window.path, "self.layer4 = ")
    column = window.path.read_text().splitlines()[row - 1].index("512") + 1
    at_top(window, row - 3, (row, column))
    window.expect_line("x: f32[B, 512] = torch.flatten(x, 1)")
    window.page.mouse.move(*NOWHERE)
    keep(2000)
    for _ in "512":
        window.page.keyboard.press("Delete")
    keep(300)
    for digit in "384":
        window.page.keyboard.type(digit)
        keep(250)
    keep(700)
    window.save()
    window.expect_status("MASE: problem")
    window.expect_line("x: f32[B, 384] = torch.flatten(x, 1)")
    window.page.locator(".squiggly-error").first.wait_for()
    keep(2800)
    window.command("Go to Next Problem (Error, Warning, Info)")
    window.page.locator(".marker-widget").wait_for()
    keep(4000)
    window.page.keyboard.press("Escape")
    window.actions("384")
    keep(2600)
    window.page.keyboard.press("Enter")
    window.expect_line("self.fc = nn.Linear(384, num_classes)")
    keep(1000)
    window.save()
    expect(window.page.locator(".squiggly-error")).to_have_count(0, timeout=PATIENCE_MS)
    window.expect_line("return self.fc(x) -> f32[B, 1000]")
    window.expect_status("MASE: ready")
    keep(3500)


def typing(window: Window, keep: Keep) -> None:
    """A statement is typed, and the shape beside it follows at each pause; nothing is saved."""
    row = line_of(window.path, "x = self.ln_f(x)")
    at_top(window, row - 7, (row, 1))
    window.expect_line("logits: f32[B, T, 512] = self.lm_head(x)")
    window.page.mouse.move(*NOWHERE)
    window.page.keyboard.press("End")
    window.page.keyboard.press("Enter")
    keep(1500)
    steps = (
        ("best = (x @ self.wte.weight.T)", "best: f32[B, T, 512] = (x @ self.wte.weight.T)"),
        ("[:, -1]", "best: f32[B, 512] = (x @ self.wte.weight.T)[:, -1]"),
        (".topk(5).indices", "best: i64[B, 5] = (x @ self.wte.weight.T)[:, -1].topk(5).indices"),
    )
    for typed, shown in steps:
        for key in typed:
            window.page.keyboard.type(key)
            window.page.keyboard.press("Escape")  # no list of words over the code
            keep(90)
        window.expect_line(shown)
        keep(1600)
    keep(1500)


SCENES = (
    Scene("editor", "gpt.py", 1040, 460, editor),
    Scene("hover", "gpt.py", 1200, 520, hover),
    Scene("error", "resnet.py", 1040, 600, error),
    Scene("quantised", "mlp.py", 1040, 500, quantised),
    Scene("verilog", "mlp.py", 1240, 620, hardware),
    Scene("graph", "gpt.py", 1240, 620, graph),
    Scene("costs", "gpt.py", 1240, 620, costs),
    Scene("device", "gpt.py", 1240, 760, device),
    Scene("inputs", "mlp.py", 1240, 620, inputs),
    Scene("compiled", "gpt.py", 1400, 660, compiled),
    Scene("breaks", "mlp.py", 1040, 680, breaks),
    Scene("compared", "mlp.py", 1400, 620, difference),
    Scene("film", "resnet.py", 960, 590, film),
    Scene("typing", "gpt.py", 960, 420, typing),
)
