"""The whole thing: real VS Code, the extension, the server, PyTorch. Expected shapes are worked out by hand."""

import re

import pytest
from playwright.sync_api import expect
from window import PATIENCE_MS, Window

#: A name for the picture, the theme, and the class that VS Code gives the window for it.
THEMES = [
    ("light", "Default Light Modern", "vs"),
    ("high-contrast", "Default High Contrast", "hc-black"),
    ("high-contrast-light", "Default High Contrast Light", "hc-light"),
    ("dark", "Default Dark Modern", "vs-dark"),
]
#: The colours of the letters of an element and of what is painted behind them.
COLOURS = """element => {
    let behind = element;
    const solid = each => !/, 0\\)|transparent/.test(getComputedStyle(each).backgroundColor);
    while (behind.parentElement && !solid(behind)) behind = behind.parentElement;
    return [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor];
}"""


def test_an_example_shows_its_shapes_and_a_hover_tells_the_rest(window: Window) -> None:
    """gpt.py runs with 4 heads on 128 channels, so 32 for each head."""
    window.open("gpt.py")
    window.expect_status("MASE: ready")
    window.go_to(43)
    window.expect_line("q: f32[B, 4, T, 32] = q.view(B, T, self.n_head, C // self.n_head)")
    window.expect_line("att: f32[B, 4, T, T] = (q @ k.transpose(-2, -1))")
    window.expect_line("y: f32[B, T, 128] = y.transpose(1, 2).contiguous().view(B, T, C)")
    window.picture("hints")
    card = window.hover("self.resid_dropout(self.c_proj(y))", "c_proj")
    expect(card).to_contain_text("f32[B, T, 128]")
    expect(card).to_contain_text("Linear(in_features=128, out_features=128, bias=True)")
    window.picture("editor")


def test_a_save_shows_fresh_shapes(window: Window) -> None:
    window.open("lenet.py")
    window.expect_line("x: f32[B, 84] = F.relu(self.fc2(x))")
    window.replace("nn.Linear(120, 84)", "nn.Linear(120, 96)")
    window.replace("nn.Linear(84, num_classes)", "nn.Linear(96, num_classes)")
    window.expect_line("x: f32[B, 96] = F.relu(self.fc2(x))")
    parameters = (6 * 25 + 6) + (16 * 6 * 25 + 16) + (400 * 120 + 120) + (120 * 96 + 96) + (96 * 10 + 10)
    window.page.get_by_text(f"{parameters / 1000:.1f} k parameters").wait_for()
    window.expect_status("MASE: ready")
    window.picture("after-save")


MISSING = """import torch
from torch import nn
from absent_mixer import Mix


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        y = self.fc(x)
        return y


class Main(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = Mix(8)
        self.fc = nn.Linear(self.mix.width + 1, 4)

    def forward(self, x):
        return self.fc(self.mix(x))
"""


def test_the_status_names_the_model_that_is_not_shown_and_what_would_help(window: Window) -> None:
    window.write("missing.py", MISSING)
    window.write("requirements.txt", "absent-mixer\n")
    window.open("missing.py")
    window.expect_status("MASE: 1 of 2 models not shown")
    expect(window.status).to_have_class(re.compile("warning-kind"))
    window.expect_line("y: f32[B, 4] = self.fc(x)")
    window.status.hover()
    told = window.page.get_by_text("Main (line 16) is not shown.")
    told.wait_for()
    expect(told).to_contain_text("It needs absent_mixer")
    expect(told).to_contain_text("pip install absent-mixer")
    window.picture("not-shown")
    expect(window.hover("class Main(nn.Module):", "Main")).to_contain_text("It needs absent_mixer")
    window.page.mouse.move(1, 1)
    expect(window.hover("def forward(self, x: f32[B, 8]):", "forward")).to_contain_text("f32[B, 4]")
    window.picture("forward")
    window.go_to(3)
    window.actions("Install absent-mixer into")
    window.page.keyboard.press("Escape")
    window.command("Problems: Focus on Problems View")
    problems = window.page.locator(".markers-panel .monaco-list-row", has_text="missing-package")
    expect(problems).to_have_count(1)
    expect(problems).to_contain_text("[Ln 3, Col 1]")
    window.command("MASE: Show Log")
    log = window.page.locator(".part.panel .view-lines")
    reason = r"missing\.py:16: Main is not shown\. It needs absent_mixer, .* decided by the import of the file"
    expect(log).to_contain_text(re.compile(reason.replace(" ", r"\s+")), timeout=PATIENCE_MS)
    expect(log).not_to_contain_text("WARNING")
    window.picture("log")
    window.page.keyboard.press("Control+j")  # hides the panel


def test_shapes_follow_typing_without_a_save(window: Window) -> None:
    path = window.open("lenet.py")
    window.expect_status("MASE: ready")
    before = path.read_text()
    row = next(row for row, line in enumerate(before.splitlines()) if "x = F.relu(self.fc2(x))" in line)
    window.go_to(row + 1)
    window.page.keyboard.press("Home")
    window.page.keyboard.type("x = x * 1\n")
    window.expect_line("x: f32[B, 120] = x * 1")
    window.expect_line("x: f32[B, 84] = F.relu(self.fc2(x))")
    window.expect_status("MASE: ready · live")
    assert path.read_text() == before
    window.save()
    window.expect_status("MASE: ready")


def test_what_unsaved_code_may_change_is_marked_until_it_is_saved(window: Window) -> None:
    window.configure(**{"mase.update": "onSave"})
    path = window.open("lenet.py")
    window.expect_status("MASE: ready")
    window.go_to(2)
    window.page.keyboard.type("# ")
    window.expect_status("MASE: ready · unsaved")
    window.expect_line("x: f32[B, 84] = F.relu(self.fc2(x))")  # a comment changes nothing
    window.page.keyboard.press("Control+s")
    expect(window.status).not_to_have_text(re.compile("unsaved"))
    window.expect_status("MASE: ready")
    row = next(row for row, line in enumerate(path.read_text().splitlines()) if "x = F.relu(self.fc2(x))" in line)
    window.go_to(row + 1)
    window.page.keyboard.press("Home")
    window.page.keyboard.type("x = x * 1\n")
    window.expect_line("x: f32[B, 120] = F.relu(self.fc1(x))")  # it ran before the new line
    window.expect_line("x: ~f32[B, 84] = F.relu(self.fc2(x))")
    window.expect_status("MASE: ready · unsaved")
    window.picture("unsaved")
    window.save()
    window.expect_line("x: f32[B, 84] = F.relu(self.fc2(x))")


TOWERS = """import torch
from torch import nn


class Towers(nn.Module):
    def __init__(self, embed_dim: int, context_length: int, transformer_width: int, vocab_size: int, deep=False):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, transformer_width)
        self.positions = nn.Parameter(torch.zeros(context_length, transformer_width))
        self.layers = nn.ModuleList(nn.Linear(transformer_width, transformer_width) for _ in range(12))
        self.text = nn.Linear(transformer_width, embed_dim)
        self.deep = deep
        for value in self.parameters():
            nn.init.zeros_(value)

    def forward(self, text):
        x = self.tokens(text) + self.positions
        for layer in self.layers:
            x = layer(x)
        if self.deep:
            x = x.relu()
        return self.text(x)
"""


def test_guessed_sizes_differ_runs_are_one_row_and_code_that_did_not_run_says_why(window: Window) -> None:
    """All 48 positions are added. The parameters: of tokens and positions, weight and bias of layers and of text."""
    window.configure(**{"mase.dimNotRun": True})
    window.write("towers.py", TOWERS)
    window.open("towers.py")
    window.expect_line("x: f32[B, 48, 128] = self.tokens(text) + self.positions")
    window.expect_line("return self.text(x) -> f32[B, 48, 64]")
    window.expect_line("for value: 6 shapes in self.parameters():")
    card = window.hover("x: f32[B, 48, 128] = layer(x)", "layer")
    expect(card.locator("tr", has_text="12 times, all equal")).to_have_count(1, timeout=PATIENCE_MS)
    window.page.mouse.move(1, 1)
    expect(window.page.locator(".squiggly-inline-unnecessary").first).to_be_attached(timeout=PATIENCE_MS)
    card = window.hover("x = x.relu()", "relu")
    expect(card).to_contain_text("Not run with these inputs")
    expect(card).to_contain_text("self.deep")
    window.picture("not-run")
    window.page.mouse.move(1, 1)
    window.page.locator(".codelens-decoration").get_by_text("parameters").click()
    window.page.locator(".tab.active", has_text="Costs").wait_for()


BUILT = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(16, width)
        self.down = nn.Linear(width, 16)

    def forward(self, x):
        h = self.up(x)
        y = self.down(h)
        return y


def net_large():
    return Net(512)


def net_small():
    return Net(32)


def test():
    y = net_small()(torch.randn(3, 16))
    print(y.shape)
"""


def test_the_line_above_a_class_is_one_of_80_columns_and_another_builder_can_be_picked(window: Window) -> None:
    path = window.write("built.py", BUILT)
    window.open("built.py")
    window.expect_line("h: f32[B, 32] = self.up(x)")
    expect(window.hover("class Net(nn.Module):", "Net")).to_contain_text("the inputs of test(), line ")
    window.page.mouse.move(1, 1)
    lens = window.page.locator(".codelens-decoration")
    lens.get_by_text("2 builders").wait_for()
    expect(lens).to_have_count(1)
    assert len(lens.text_content() or "") <= 80, lens.text_content()
    window.command("View: Split Editor Right")
    expect(lens).to_have_count(2)
    window.picture("lens-in-a-split")
    window.replace("return Net(32)", "return Net(48)")
    size = f"{16 * 48 + 48 + 48 * 16 + 16:,} parameters"
    expect(lens.filter(has_text=size)).to_have_count(2, timeout=PATIENCE_MS)  # both panes follow
    window.expect_line("h: f32[B, 48] = self.up(x)", 2)
    window.command("View: Close Editor")
    window.go_to(path.read_text().splitlines().index("class Net(nn.Module):") + 1, 8)
    window.command("MASE: Pick the Inputs to Show")
    window.page.locator(".quick-input-list .monaco-list-row", has_text="net_large()").click()
    window.expect_line("h: f32[B, 512] = self.up(x)")


def test_hints_stand_at_the_end_of_the_line_and_say_as_much_as_the_settings_ask_for(window: Window) -> None:
    window.open("lenet.py")
    window.expect_line("x: f32[B, 84] = F.relu(self.fc2(x))")
    window.configure(**{"mase.hints.position": "line"})
    window.expect_line("x = F.relu(self.fc2(x))  x: f32[B, 84]")
    window.configure(**{"mase.hints.position": "line", "mase.hints.detail": "shape"})
    window.expect_line("x = F.relu(self.fc2(x))  x: [B, 84]")
    window.picture("hints-at-the-end")
    card = window.hover("x = F.relu(self.fc2(x))", "fc2")
    rows = card.locator("tr").all_inner_texts()
    assert any("FLOPs" in row or "MACs" in row for row in rows[:2]), rows


def test_a_shape_error_is_underlined_and_its_quick_fix_mends_it(window: Window) -> None:
    """ResNet-18 ends in 512 channels."""
    window.open("resnet.py")
    window.expect_status("MASE: ready")
    window.replace("nn.Linear(512, num_classes)", "nn.Linear(256, num_classes)")
    squiggle = window.page.locator(".squiggly-error")
    squiggle.first.wait_for()
    window.expect_line("x: f32[B, 512] = torch.flatten(x, 1)")  # shapes up to the failing line
    window.command("Go to Next Problem (Error, Warning, Info)")
    window.page.locator(".marker-widget").wait_for()
    window.picture("error")
    window.page.keyboard.press("Escape")
    window.actions("512")
    window.picture("quick-fix")
    window.page.keyboard.press("Enter")
    window.expect_line("self.fc = nn.Linear(512, num_classes)")
    window.save()
    expect(squiggle).to_have_count(0, timeout=60_000)
    window.expect_line("return self.fc(x) -> f32[B, 1000]")
    window.expect_status("MASE: ready")
    window.picture("fixed")


@pytest.mark.timeout(180)
def test_hints_and_hover_can_be_read_in_every_kind_of_theme(window: Window) -> None:
    window.open("mlp.py")
    window.expect_status("MASE: ready")
    for name, theme, kind in THEMES:
        window.configure(**{"workbench.colorTheme": theme})
        window.page.locator(f".monaco-workbench.{kind}").wait_for(timeout=PATIENCE_MS)
        window.expect_line("logits: f32[B, 5] = self.head(x)")
        hint = window.line("logits: f32[B, 5]").locator("span", has_text=re.compile(r"f32\[B,\s5\]")).last
        letters, ground = hint.evaluate(COLOURS)
        assert letters != ground
        card = window.hover("= self.head(x)", "head")
        expect(card).to_contain_text("Linear(in_features=32, out_features=5, bias=True)")
        letters, ground = card.get_by_text("Linear(in_features=32").first.evaluate(COLOURS)
        assert letters != ground
        window.picture(f"theme-{name}")
        window.page.keyboard.press("Escape")
        window.page.mouse.move(3, 3)
        card.wait_for(state="hidden")


ASSUMED = """\
from torch import nn


class Head(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.fc = nn.Linear(embed_dim, 10)

    def forward(self, x):
        y = self.fc(x)
        return y
"""


def test_what_was_assumed_is_marked_and_a_quick_fix_writes_it_down(window: Window) -> None:
    window.write("head.py", ASSUMED)
    window.open("head.py")
    window.page.get_by_text("guessed B=").first.wait_for()
    window.expect_status("MASE: ready")
    window.go_to(4, 8)
    action = window.actions("Write the assumed constructor arguments and inputs")
    window.picture("assumed")
    action.click()
    window.expect_line("# mase: Head(embed_dim=")
    window.save()
    expect(window.page.get_by_text("guessed B=")).to_have_count(0)
    window.expect_line("y: f32[B, 10] = self.fc(x)")
    window.picture("written")


SHARED = """\
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        y = self.fc(x)
        return y


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(16)

    def forward(self, x):
        return self.block(x)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(64)

    def forward(self, x):
        return self.block(x)
"""


def test_a_lens_picks_one_of_the_models_that_use_a_class(window: Window) -> None:
    window.write("shared.py", SHARED)
    window.open("shared.py")
    window.expect_line("y: f32[B, 16|64] = self.fc(x)")
    window.page.get_by_text("shown for: Small | Large · pick one").click()
    window.page.locator(".quick-input-list .monaco-list-row").filter(has_text="Large").first.click()
    window.expect_line("y: f32[B, 64] = self.fc(x)")
    window.page.get_by_text("shown for: Large, of 2 models").wait_for()
    window.picture("picked")
