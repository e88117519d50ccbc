"""The cost table in a real VS Code: read from its page, sorted, filtered, both ways to the code, followed by a save."""

import csv
import re
from pathlib import Path

from fake_project import wait_until
from playwright.sync_api import FrameLocator, Locator, expect
from window import PATIENCE_MS, Window

#: gpt.py makes 4 blocks of 128 channels with 512 tokens; a head and the embedding of tokens share their weights.
CHANNELS, TOKENS, POSITIONS = 128, 512, 256
ATTENTION = CHANNELS * 3 * CHANNELS + 3 * CHANNELS + CHANNELS * CHANNELS + CHANNELS
MLP = 2 * CHANNELS * 4 * CHANNELS + 5 * CHANNELS
BLOCK = ATTENTION + MLP + 2 * 2 * CHANNELS
WHOLE = 4 * BLOCK + TOKENS * CHANNELS + POSITIONS * CHANNELS + 2 * CHANNELS
CURRENT_LINE = ".editor-instance [data-uri$='/gpt.py'] .line-numbers.active-line-number"


NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("=1+1", nn.Linear(8, 16))
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        return self.out(getattr(self, "=1+1")(8 * x))


if __name__ == "__main__":
    Net()(torch.randn(4, 8))
"""


class Table:
    """The page of the cost table, as a person reads it."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.frame: FrameLocator = window.page.frame_locator("iframe.webview").frame_locator("#active-frame")
        self.rows = self.frame.locator("tr[data-id]")
        self.row("").wait_for()

    def row(self, ident: str) -> Locator:
        return self.frame.locator(f"tr[data-id='{ident}']")

    def cell(self, ident: str, title: str) -> Locator:
        """A cell by the title of its column."""
        titles = [text.rstrip(" ▼▲") for text in self.frame.get_by_role("columnheader").all_inner_texts()]
        return self.row(ident).locator("th, td").nth(titles.index(title))

    def press(self, name: str) -> None:
        self.frame.get_by_role("button", name=name, exact=True).click()

    @property
    def shown(self) -> list[str]:
        return self.rows.evaluate_all("rows => rows.map(row => row.dataset.id)")


def line_of(path: Path, text: str) -> int:
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def expect_cursor(window: Window, line: int) -> None:
    """Wait until the cursor is on a line of the code, whoever has the keyboard."""
    expect(window.page.locator(CURRENT_LINE)).to_have_text(f"{line}", timeout=PATIENCE_MS)


def test_the_cost_table_is_sorted_leads_to_the_code_follows_the_cursor_and_every_save(window: Window) -> None:
    path = window.open("gpt.py")
    window.expect_status("MASE: ready")
    window.command("MASE: Show Costs")
    table = Table(window)
    expect(table.cell("", "Parameters")).to_have_text(f"{WHOLE:,}")
    expect(table.cell("blocks.0", "Parameters")).to_have_text(f"{BLOCK:,}")
    expect(table.cell("lm_head", "Parameters")).to_have_text(f"{TOKENS * CHANNELS:,}*")
    expect(table.cell("lm_head", "FLOPs")).to_have_text("33.6 M")  # 2 * 4 * 64 * 128 * 512
    expect(table.frame.get_by_text("wte and lm_head share count once in totals")).to_be_visible()

    table.press("FLOPs")
    assert table.shown[:7] == ["", "blocks", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "lm_head"]
    expect(table.frame.get_by_role("columnheader", name="FLOPs")).to_have_attribute("aria-sort", "descending")
    window.picture("costs")

    table.row("lm_head").click()
    expect_cursor(window, line_of(path, "self.lm_head(x)"))
    expect(table.row("lm_head")).to_have_attribute("aria-current", "true", timeout=PATIENCE_MS)
    window.page.keyboard.press("Control+1")  # back to the code
    window.go_to(line_of(path, "self.wpe(pos)"), 20)
    expect(table.row("wpe")).to_have_attribute("aria-current", "true", timeout=PATIENCE_MS)
    window.go_to(line_of(path, "self.c_fc(x)"), 25)  # in blocks that are closed
    expect(table.row("blocks.2")).to_have_attribute("aria-current", "true", timeout=PATIENCE_MS)

    filter_box = table.frame.get_by_role("searchbox")
    filter_box.fill("c_proj")
    expect(table.row("blocks.3.mlp.c_proj")).to_be_visible()
    filter_box.press("ArrowDown")
    window.page.keyboard.press("End")
    window.page.keyboard.press("Enter")
    proj = line_of(path, "self.resid_dropout(self.c_proj(y))")  # of blocks.3.attn, the cheapest
    expect_cursor(window, proj)

    window.replace("n_embd=128", "n_embd=64")
    expect(table.cell("blocks.0.mlp.c_proj", "Parameters")).to_have_text(f"{4 * 64 * 64 + 64:,}", timeout=PATIENCE_MS)
    expect(filter_box).to_have_value("c_proj")
    expect(table.frame.get_by_role("columnheader", name="FLOPs")).to_have_attribute("aria-sort", "descending")
    window.picture("costs-filtered")

    table.press("Copy")
    window.page.get_by_text("rows were copied to the clipboard").wait_for()
    copied = window.page.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[0].split("\t")[:4] == ["Path", "Type", "Parameters", "FLOPs"]
    assert copied[-1].split("\t")[:3] == ["blocks.3.attn.c_proj", "linear", f"{64 * 64 + 64}"]


def test_the_links_of_a_hover_show_the_costs_and_go_to_the_module(window: Window) -> None:
    path = window.open("gpt.py")
    window.expect_status("MASE: ready")
    window.go_to(line_of(path, "h = F.gelu"))
    window.expect_line("h: f32[B, T, 512] = F.gelu(self.c_fc(x))")
    card = window.hover("F.gelu(self.c_fc(x))", "c_fc")
    expect(card).to_contain_text("show its costs")
    window.picture("hover-links")
    card.get_by_text("show its costs").click()
    table = Table(window)
    selected = table.frame.locator("tr[aria-selected='true']")
    expect(selected).to_have_attribute("data-id", "blocks.0.mlp.c_fc", timeout=PATIENCE_MS)
    window.page.keyboard.press("Escape")
    card = window.hover("F.gelu(self.c_fc(x))", "c_fc")
    card.get_by_text("go to blocks.0.mlp.c_fc").click()
    made = line_of(path, "self.c_fc = nn.Linear")
    expect_cursor(window, made)


def test_costs_on_a_picked_device_stand_in_lens_hover_table_graph_and_over_time(window: Window) -> None:
    path = window.open("gpt.py")
    window.expect_status("MASE: ready")
    lens = window.page.locator(".codelens-decoration a", has_text="est.")
    window.go_to(line_of(path, "class GPT("))
    window.page.locator(".codelens-decoration a", has_text="graph").first.wait_for()
    expect(lens).to_have_count(0)
    window.command("MASE: Show Costs on a Device...")
    window.choose("L4", "Training, AdamW", "As the model has them")
    expect(lens).to_have_text(re.compile(r"train, L4: fits, B <= \d+ · est\. [\d.]+ ms"), timeout=PATIENCE_MS)
    window.go_to(line_of(path, "h = F.gelu"))
    card = window.hover("F.gelu(self.c_fc(x))", "c_fc")
    expect(card).to_contain_text(re.compile(r"est\. [\d.]+ µs on L4, launch-bound .* held at the peak"))
    window.picture("hover-on-a-device")
    window.page.keyboard.press("Escape")
    lens.first.click()
    table = Table(window)
    expect(table.cell("lm_head", "Bound")).to_have_text("launch", timeout=PATIENCE_MS)
    expect(table.cell("lm_head", "Est. Time")).to_have_text(re.compile(r"^[\d.]+ µs$"))
    table.press("Moved")
    expect(table.frame.get_by_role("columnheader", name="Moved")).to_have_attribute("aria-sort", "descending")
    run = table.frame.locator("details.run")
    expect(run.locator("summary")).to_contain_text("Training with adamw on L4")
    expect(run.locator("summary")).to_contain_text("estimate")
    holders = run.get_by_role("listitem")
    expect(holders.first).to_contain_text("optimizer state")
    window.picture("costs-on-a-device")
    holders.filter(has_text="blocks.0.mlp.c_fc and 7 more").click()
    expect_cursor(window, line_of(path, "self.c_fc(x)"))
    curve = run.get_by_role("slider")
    curve.press("Home")
    expect(curve).to_have_attribute("aria-valuetext", re.compile(r"after operator 1\b"))
    curve.press("ArrowRight")
    expect(run.locator(".told")).to_contain_text("after operator 2")
    table.press("Graph")
    graph = window.page.frame_locator("iframe.webview.ready >> nth=-1").frame_locator("#active-frame")
    expect(graph.locator(".legend")).to_contain_text("matmul", timeout=PATIENCE_MS)
    graph.get_by_role("combobox").select_option("Estimated time")
    expect(graph.locator(".legend")).to_contain_text("µs")
    window.picture("graph-by-time")
    window.command("View: Close Editor")
    before = run.locator("summary").inner_text()
    window.page.keyboard.press("Control+1")
    window.replace("n_embd=128", "n_embd=256")
    window.go_to(line_of(path, "class GPT("))
    expect(run.locator("summary")).not_to_have_text(before, timeout=PATIENCE_MS)
    expect(run).not_to_have_class(re.compile("older"), timeout=PATIENCE_MS)
    expect(run.locator(".change")).to_contain_text(re.compile(r"This change: \+[\d.]+ MB peak.*, at lines "))
    window.picture("costs-of-a-change")
    run.get_by_role("button", name="Compare…").click()
    window.notice("Compare the costs of GPT").get_by_role("button", name="The text before").click()
    window.expect_line("this change: +")
    window.picture("costs-compared")
    window.command("View: Close Editor")
    table.press("Device…")
    window.choose("None")
    expect(run).to_be_hidden(timeout=PATIENCE_MS)
    expect(lens).to_have_count(0, timeout=PATIENCE_MS)


def test_after_passes_their_effects_are_shown_and_the_shown_rows_are_saved(window: Window) -> None:
    """A format that holds no more than 1 saturates; a name that a spreadsheet would compute is saved as a text."""
    steps = ["prune(weight={'sparsity': 0.5})", "quantize(default='fixed(8,7)', only=['=1+1'])"]
    window.configure(**{"mase.pipelines": {"Net": steps}})
    window.write("net.py", NET)
    window.open("net.py")
    window.expect_status("MASE: ready · 2 passes")
    window.command("MASE: Show Costs")
    table = Table(window)
    both = re.compile(r"^weight in fixed\(8,7\), .*; 50 % of the weight pruned$")
    expect(table.cell("=1+1", "Passes")).to_have_text(both, timeout=PATIENCE_MS)
    left = "50 % of the weight pruned; not quantised: it is outside of the selection"
    expect(table.cell("out", "Passes")).to_have_text(left)
    expect(table.cell("=1+1", "Saturated")).to_have_text(re.compile(r"[1-9][\d.]* %"), timeout=PATIENCE_MS)
    expect(table.cell("", "Saturated")).to_have_text(re.compile(r"[1-9][\d.]* %"))
    table.press("FLOPs")
    table.frame.get_by_role("searchbox").fill("linear")
    expect(table.rows).to_have_count(3)
    shown = table.shown
    path = window.folder / "costs.csv"
    table.press("CSV…")
    field = window.page.locator(".quick-input-widget input[type=text]")
    expect(field).to_have_value(re.compile(r"\.csv$"), timeout=PATIENCE_MS)
    field.fill(str(path))
    field.press("Enter")
    wait_until(lambda: path.exists() and path.stat().st_size > 0, f"{path} was written")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    titles = [text.rstrip(" ▼▲") for text in table.frame.get_by_role("columnheader").all_inner_texts()]
    assert list(rows[0]) == ["Path", "Type", *titles[1:]]
    assert shown == ["", "=1+1", "out"]  # the dearest first
    assert [row["Path"] for row in rows] == ["Net", "'=1+1", "out"]
    assert [row["FLOPs"] for row in rows][1:] == [f"{2 * 4 * 8 * 16}", f"{2 * 4 * 16 * 2}"]
    assert float(rows[1]["Saturated"]) > 0
