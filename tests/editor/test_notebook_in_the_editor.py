"""A notebook in a real VS Code: its cells show what a file would. Shapes are worked out by hand."""

import json

from playwright.sync_api import Locator, expect
from window import PATIENCE_MS, Window

IMPORTS = "%matplotlib inline\nimport torch\nfrom torch import nn\n\nclasses = 10"
NET = """\
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(6 * 12 * 12, classes)

    def forward(self, image):
        hidden = self.features(image)
        flat = hidden.flatten(1)
        return self.head(flat)"""
USE = "net = Net(classes)\nlogits = net(torch.randn(4, 1, 28, 28))\nlogits.shape"


def as_notebook(*cells: str) -> str:
    told = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell.splitlines(True)}
        for cell in cells
    ]
    told.insert(1, {"cell_type": "markdown", "metadata": {}, "source": ["# A small network"]})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": told, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


class Cells(Window):
    """The window's notebook: VS Code lays it over the place of an editor."""

    def __init__(self, window: Window) -> None:
        self.__dict__ = window.__dict__

    @property
    def lines(self) -> Locator:
        return self.page.locator(".notebookOverlay:visible .monaco-editor .view-line")

    def retype(self, old: str, new: str) -> None:
        """Edit the line that shows `old`, and save."""
        self.line(old).click()
        self.page.locator(".notebookOverlay .monaco-editor.focused").wait_for()
        self.line(old).click()  # the first one may only have given the cell the focus
        self.page.keyboard.press("Home")
        self.page.keyboard.press("Shift+End")
        self.page.keyboard.insert_text(new)
        self.save()


def test_cells_of_a_notebook_show_shapes_hovers_and_mistakes(window: Window) -> None:
    """Conv2d(1, 6, 5) makes 24 x 24 of 28 x 28, the pool 12 x 12 of it: 864 numbers."""
    window.write("net.ipynb", as_notebook(IMPORTS, NET, USE))
    window.open("net.ipynb")
    cells = Cells(window)
    cells.expect_line("def forward(self, image: f32[B, 1, 28, 28]):")
    cells.expect_line("hidden: f32[B, 6, 12, 12] = self.features(image)")
    cells.expect_line("flat: f32[B, 864] = hidden.flatten(1)")
    cells.expect_line("logits: f32[B, 10] = net(torch.randn(4, 1, 28, 28))")
    cells.expect_status("MASE: ready")
    parameters = (6 * 25 + 6) + (864 * 10 + 10)
    cells.page.locator(".notebookOverlay").get_by_text(f"{parameters:,} parameters").wait_for()
    cells.picture("notebook")
    card = cells.hover("return self.head(flat)", "head")
    expect(card).to_contain_text("Linear(in_features=864, out_features=10")
    cells.picture("notebook-hover")
    cells.page.keyboard.press("Escape")

    cells.retype("self.head = nn.Linear(6 * 12 * 12, classes)", "self.head = nn.Linear(6 * 12 * 13, classes)")
    squiggle = cells.page.locator(".notebookOverlay .squiggly-error")
    squiggle.first.wait_for()
    cells.expect_status("MASE: problem")
    cells.expect_line("flat: f32[B, 864] = hidden.flatten(1)")
    cells.picture("notebook-error")
    cells.retype("self.head = nn.Linear(6 * 12 * 13, classes)", "self.head = nn.Linear(6 * 12 * 12, classes)")
    expect(squiggle).to_have_count(0, timeout=PATIENCE_MS)
    cells.expect_status("MASE: ready")
