"""The graph view in the real VS Code: what its SVG says, and that it and the code follow each other."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from fake_project import wait_until
from playwright.sync_api import FrameLocator, Locator, expect
from window import PATIENCE_MS, Window

#: gpt.py runs with four blocks of 128 channels, so 384 for queries, keys and values, and 512 inside the MLP.
ATTENTION = "blocks.0.attn"


class Graph:
    """The page of a graph, in VS Code's frame of a frame."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.page: FrameLocator = window.page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")
        self.surface = self.page.locator("svg.graph")

    def box(self, name: str) -> Locator:
        """A module by its path, an operation by ":" and its name."""
        return self.page.locator(f'.box[data-id="{name}"]')

    def shape(self, name: str) -> Locator:
        """What stands on the edges from an operation."""
        return self.page.locator(f'.shape[data-tensor="{name}"]')

    def expect_box(self, name: str, text: str) -> None:
        """Wait until a box is there, with these texts on it, one behind the other."""
        texts = self.box(name).locator("text")
        expect(texts).to_have_text(text.split(" "), timeout=PATIENCE_MS)

    def expect_shape(self, name: str, text: str) -> None:
        expect(self.shape(name).first).to_have_text(text, timeout=PATIENCE_MS)

    def expect_cursor(self, *names: str) -> None:
        """Wait until just these boxes are lit as what the editor's cursor is on."""
        self._expect_marked("cursor", names)

    def expect_selected(self, name: str) -> None:
        """Wait until the keyboard is at a box, also for a screen reader."""
        self._expect_marked("selected", [name])
        expect(self.surface).to_have_attribute("aria-activedescendant", self.box(name).get_attribute("id") or "")

    def _expect_marked(self, mark: str, names: Sequence[str]) -> None:
        marked = self.page.locator(f".box.{mark}")
        expect(marked).to_have_count(len(names), timeout=PATIENCE_MS)
        for name in names:
            expect(self.box(name)).to_have_class(re.compile(rf"\b{mark}\b"), timeout=PATIENCE_MS)

    def toggle(self, name: str) -> None:
        """Open or close a module by a click at its title."""
        self.bring(name).locator(".title").click()

    def select(self, name: str) -> None:
        """Click at an operation."""
        self.bring(name).locator(".title").click()

    def bring(self, name: str) -> Locator:
        """Move the drawing by the wheel until a box is in sight."""
        box = self.box(name)
        box.wait_for()
        stage, place = self.surface.bounding_box(), box.bounding_box()
        assert stage is not None
        assert place is not None
        middle = stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2
        self.window.page.mouse.move(*middle)
        self.window.page.mouse.wheel(place["x"] + 40 - middle[0], place["y"] - middle[1])
        return box

    def saved(self, format: str) -> Path:
        """The picture, saved as a person does it."""
        path = self.window.folder / f"picture.{format}"
        self.page.get_by_role("button", name=f"Save as {format.upper()}").click()
        field = self.window.page.locator(".quick-input-widget input[type=text]")
        # What VS Code proposes comes late, and would take the place of what was typed before.
        expect(field).to_have_value(re.compile(rf"\.{format}$"), timeout=PATIENCE_MS)
        field.fill(str(path))
        expect(field).to_have_value(str(path))
        field.press("Enter")
        wait_until(lambda: path.exists() and path.stat().st_size > 0, f"{path} was written")
        return path

    def view(self) -> tuple[float, float, float]:
        """Where the drawing is, and its scale."""
        told = self.surface.locator("> g").get_attribute("transform") or ""
        x, y, scale = (float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", told))
        return x, y, scale

    def corner(self, name: str) -> tuple[float, float]:
        """Where the upper left corner of a box is in the page."""
        matrix = self.box(name).evaluate("box => (({ e, f }) => [e, f])(box.getScreenCTM())")
        return round(matrix[0], 2), round(matrix[1], 2)

    @property
    def search(self) -> Locator:
        return self.page.get_by_role("searchbox")


def shown(window: Window) -> Graph:
    """The graph of the model in gpt.py, beside it."""
    window.open("gpt.py")
    window.expect_status("MASE: ready")
    window.command("MASE: Show the Graph")
    graph = Graph(window)
    graph.expect_box(":idx", "placeholder idx")
    return graph


def line_of(window: Window, text: str) -> int:
    [line] = [number for number, line in enumerate(window.path.read_text().splitlines(), 1) if text in line]
    return line


def expect_cursor(window: Window, line: int) -> None:
    """Wait until the editor's cursor is on that line."""
    expect(window.page.locator(".editor-instance .active-line-number")).to_have_text(f"{line}", timeout=PATIENCE_MS)


def test_modules_open_and_the_graph_and_the_code_follow_each_other(window: Window) -> None:
    graph = shown(window)
    expect(graph.box("blocks.3")).to_have_attribute("aria-expanded", "false")  # there are several of its class
    expect(graph.box(ATTENTION)).to_have_count(0)
    graph.expect_shape("idx", "i64[B, T]")
    graph.expect_shape("add", "f32[B, T, 128]")
    window.picture("graph")
    graph.bring("blocks.0")
    before = graph.corner("blocks.0")
    graph.box("blocks.0").locator(".title").click()
    graph.box(ATTENTION).wait_for()
    assert graph.corner("blocks.0") == before  # it opens where it is
    graph.toggle(ATTENTION)
    graph.expect_box(":blocks_0_attn_c_attn", "linear c_attn")
    graph.expect_shape("blocks_0_attn_c_attn", "f32[B, T, 384]")
    graph.expect_shape("split", "(3 of f32[B, T, 128])")

    # A click shows the line, and its operations are lit; Enter goes there.
    graph.select(":split")
    expect_cursor(window, line_of(window, "q, k, v = self.c_attn(x).split"))
    graph.expect_cursor(":split")
    window.picture("graph-open")
    graph.surface.press("ArrowUp")
    graph.expect_selected(":blocks_0_attn_c_attn")
    graph.surface.press("Enter")
    expect(window.page.locator(".editor-instance .monaco-editor.focused")).to_have_count(1)

    # The cursor moves, and what it is on is lit: inside of the blocks that are closed, those.
    window.go_to(line_of(window, "x = self.ln_f(x)"), 14)
    graph.expect_cursor(":ln_f")
    window.go_to(line_of(window, "h = F.gelu(self.c_fc(x))"), 15)
    graph.expect_cursor("blocks.0.mlp", "blocks.1", "blocks.2", "blocks.3")

    # A search opens what its match is in.
    graph.search.fill("gelu")
    expect(graph.page.locator(".count")).to_have_text("4 found")
    graph.search.press("Enter")
    graph.expect_box(":gelu", "gelu")
    graph.expect_selected(":gelu")
    graph.search.press("Shift+Enter")
    graph.expect_selected(":gelu_3")
    expect(graph.page.locator(".count")).to_have_text("4 of 4")


def test_a_save_changes_the_graph_in_place_and_pictures_of_it_are_saved(window: Window) -> None:
    graph = shown(window)
    graph.toggle("blocks.1")
    graph.toggle("blocks.1.mlp")
    graph.expect_shape("blocks_1_mlp_c_fc", "f32[B, T, 512]")
    graph.page.locator("[data-action=zoomIn]").click()
    graph.select(":blocks_1_mlp_c_fc")
    graph.expect_selected(":blocks_1_mlp_c_fc")
    (_, _, scale), corner = graph.view(), graph.corner(":blocks_1_mlp_c_fc")
    window.page.locator(".tab", has_text="gpt.py").click()
    window.replace("n_embd=128", "n_embd=160")
    graph.expect_shape("blocks_1_mlp_c_fc", "f32[B, T, 640]")
    assert graph.view()[2] == scale
    assert graph.corner(":blocks_1_mlp_c_fc") == corner
    graph.expect_selected(":blocks_1_mlp_c_fc")

    # What cannot be traced to its end is told, and the graph stays.
    window.replace("q, k, v = self.c_attn(x).split(C, dim=2)", "q, k, v = self.c_attn(x[0]).split(C, dim=2)")
    expect(graph.page.locator(".notice")).to_contain_text("has an error", timeout=PATIENCE_MS)
    graph.expect_shape("blocks_1_mlp_c_fc", "f32[B, T, 640]")

    # The colours are chosen, and the legend says what they mean.
    graph.page.locator("select.mode").select_option("cost")
    expect(graph.page.locator(".legend")).to_contain_text("FLOPs")
    window.picture("graph-costs")

    svg = graph.saved("svg")
    assert ">f32[B, T, 640]</text>" in svg.read_text()
    assert "var(--" not in svg.read_text()  # it needs no style sheet
    png = graph.saved("png")
    assert png.read_bytes().startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png.read_bytes()[16:24])
    assert width > 800
    assert height > width


#: A model whose weights a file gives, and whose last layer stands far to the right.
NET = f"""import pathlib

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        h = self.fc(x)
        return {" + ".join(f"0.{number} * h.sum()" for number in range(9))} + self.out(h)


if __name__ == "__main__":
    net = Net()
    net.load_state_dict(torch.load(pathlib.Path(__file__).with_name("kept.pt")), strict=False)
    net(torch.randn(3, 8))
"""


def is_scrolled_sideways(window: Window) -> bool:
    """Does the code begin to the left of where the line numbers end?"""
    margin, lines = (
        window.page.locator(f".editor-instance .{part}").bounding_box() for part in ("margin", "view-lines")
    )
    assert margin is not None
    assert lines is not None
    return lines["x"] < margin["x"] + margin["width"] - 1


def test_weights_thick_edges_and_the_map_beside_a_long_line_in_one_group_with_the_costs(window: Window) -> None:
    values = torch.linspace(-1, 3, 32).reshape(4, 8)
    torch.save({"fc.weight": values}, window.folder / "kept.pt")
    window.write("net.py", NET)
    window.open("net.py")
    window.expect_status("MASE: ready")
    window.command("MASE: Show the Graph")
    graph = Graph(window)
    graph.expect_box(":out", "linear out")

    # Code far to the right is shown without scrolling sideways, with the focus too; its box is lit all the same.
    long = line_of(window, "self.out(h)")
    graph.select(":out")
    expect_cursor(window, long)
    graph.expect_cursor(":out")
    assert not is_scrolled_sideways(window)
    graph.surface.press("Enter")
    expect(window.page.locator(".editor-instance .monaco-editor.focused")).to_have_count(1)
    assert not is_scrolled_sideways(window)
    graph.expect_cursor(":out")

    # The weights that the model's file loads; those that it does not load are random.
    graph.select(":fc")
    graph.surface.press("w")
    pane = graph.page.get_by_role("region", name="Weights")
    expect(pane).to_contain_text("From the weights of kept.pt; 3 of 4 parameters random", timeout=PATIENCE_MS)
    weight, bias = pane.locator("figure").all()
    expect(weight.get_by_role("img", name="Histogram of fc.weight, from -1 to 3")).to_be_visible()
    figures = dict(zip(weight.locator("dt").all_inner_texts(), weight.locator("dd").all_inner_texts(), strict=True))
    told = {"Count": "32", "Mean": "1", "Std": f"{values.std():.3g}", "Min": "-1", "Max": "3", "Zeros": "0 %"}
    assert figures == told
    expect(bias).to_contain_text("Random: the model loads no file that has its values.")

    # Edges that are as thick as their bytes ask, and a map of what is out of sight.
    graph.page.get_by_role("button", name="Thicker edges for more bytes").click()
    expect(graph.page.locator(".legend")).to_contain_text("Bytes per edge")
    minimap = graph.page.locator(".minimap")
    for _ in range(8):
        graph.surface.press("+")
    expect(minimap).to_be_visible()
    before, place = graph.view(), minimap.bounding_box()
    assert place is not None
    window.page.mouse.click(place["x"] + place["width"] / 2, place["y"] + 3)
    assert graph.view() != pytest.approx(before)
    window.picture("graph-weights")

    # The costs open in the same group, although the graph has the focus, and so does the graph after them.
    groups = window.page.locator(".editor-group-container")
    graph.page.get_by_role("button", name="Show the costs").click()
    tabs = groups.nth(1).locator(".tab")
    expect(tabs).to_have_text(["Graph of Net", "Costs: Net"])
    expect(groups).to_have_count(2)
    window.command("View: Close Editor")
    window.command("View: Close Editor")
    expect(groups).to_have_count(1)
    window.command("MASE: Show Costs")
    expect(groups.nth(1).locator(".tab")).to_have_text(["Costs: Net"])
    graph.page.get_by_role("button", name="Graph").click()
    expect(tabs).to_have_text(["Costs: Net", "Graph of Net"])
    expect(groups).to_have_count(2)
    # A choice for all graphs is kept.
    graph.expect_box(":out", "linear out")
    expect(graph.page.get_by_role("button", name="Thicker edges")).to_have_attribute("aria-pressed", "true")
