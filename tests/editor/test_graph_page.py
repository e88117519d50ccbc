"""The page of the graph alone in a browser: all modules, the map, thick edges, weights, and what is exported."""

import base64
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
from lone_page import PAGES, last_said, lone_page, tell
from playwright.sync_api import Browser, Page, expect

#: A layout of thousands of boxes takes seconds on a busy machine.
PATIENCE_MS = 60_000
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with lone_page(browser, "graph", "worker-src blob:; img-src blob:") as page:
        tell(page, "layout", source=(PAGES / "layout.js").read_text())
        yield page


def operation(number: int, scope: int, inputs: list[int], **facts: Any) -> dict[str, Any]:
    told = {"row": number, "name": f"op_{number}", "op": "call_function", "target": "relu", "mase_op": "relu"}
    told |= {"family": "activation", "scope": scope, "value": 0, "flops": 10, "file": 0, "line": number + 1}
    told |= {"column": 0, "end_line": number + 1, "end_column": 4, "inputs": inputs, "format": None, "sqnr": None}
    told |= {"max_error": None, "note": None, "saturated": None, "parameters": 0, "bytes": 64, "kernel": None}
    told |= {"seconds": None, "moved": None, "bound": None}
    return told | facts


def graph(operations: list[dict[str, Any]], scopes: list[str], **facts: Any) -> dict[str, Any]:
    told = {"path": "/net.py", "model": "Net", "sha256": "", "stale": False, "complete": True, "passes": []}
    tables = {"values": [["f32", [4, 4], ["B", "4"]]], "files": [{"path": "/net.py", "library": False}]}
    columns = {name: [each[name] for each in operations] for name in operations[0]}
    return told | tables | {"scopes": [[path, "Block"] for path in scopes], "columns": columns} | facts


def chain(blocks: int, each: int = 100, further: int = 0) -> dict[str, Any]:
    """Blocks of operations one behind the other. further: every second one also takes what was made so long before."""
    made = []
    for number in range(blocks * each):
        inputs = [number - 1] if number else []
        if further and number % 2 and number >= further:
            inputs.append(number - further)
        made.append(operation(number, number // each, inputs))
    return graph(made, [f"blocks.{block}" for block in range(blocks)])


def small() -> dict[str, Any]:
    """A layer and two operations; the edge between the first two carries ten thousand times as much."""
    layer = {"op": "call_module", "target": "fc", "mase_op": "linear", "family": "matmul", "parameters": 20}
    made = [
        operation(0, 0, [], **layer, bytes=1_000_000),
        operation(1, 0, [0], bytes=100),
        operation(2, 0, [1], bytes=100),
    ]
    return graph(made, [""])


def box(page: Page, ident: str) -> Any:
    return page.locator(f'.box[data-id="{ident}"]')


def view(page: Page) -> tuple[float, ...]:
    """Where the drawing is, and its scale."""
    told = page.locator("svg.graph > g").get_attribute("transform") or ""
    return tuple(float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", told))


def test_all_modules_open_however_many_there_are(page: Page) -> None:
    tell(page, "graph", graph=chain(30))
    expect(page.locator(".box")).to_have_count(31)
    page.get_by_role("button", name="Open all modules").click()
    expect(page.locator(".box")).to_have_count(3031, timeout=PATIENCE_MS)
    expect(page.locator(".notice")).to_have_text("")
    expect(page.locator(".progress")).to_be_hidden()
    page.get_by_role("button", name="Show all").click()
    stage = page.locator("svg.graph").bounding_box()
    assert stage is not None
    for ident in (":op_0", ":op_2999"):  # however long the drawing is
        place = box(page, ident).bounding_box()
        assert place is not None
        assert stage["y"] <= place["y"] <= stage["y"] + stage["height"]


def test_a_long_layout_says_so_and_can_be_stopped(page: Page) -> None:
    """Thousands of edges over many others take minutes, more than anybody waits."""
    tell(page, "graph", graph=chain(50, further=87))
    expect(page.locator(".box")).to_have_count(51, timeout=PATIENCE_MS)
    page.get_by_role("button", name="Open all modules").click()
    expect(page.get_by_text("Laying out 5,051 boxes…")).to_be_visible(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("The layout was stopped: the same modules are open as before.")).to_be_visible()
    expect(page.locator(".progress")).to_be_hidden()
    expect(page.locator(".box")).to_have_count(51)
    # The next layout does not wait for the one that was stopped.
    tell(page, "graph", graph=chain(2))
    page.get_by_role("button", name="Open all modules").click()
    expect(page.locator(".box")).to_have_count(203, timeout=PATIENCE_MS)
    # Esc stops it, too; a graph that was not drawn yet, e.g. after a reload, is then drawn with few open modules.
    opened = ["", "blocks", *(f"blocks.{block}" for block in range(50))]
    kept = {"path": "/net.py", "model": "Net", "open": opened, "view": {"x": 0, "y": 0, "scale": 1}, "mode": "family"}
    page.evaluate("state => sessionStorage.setItem('state', JSON.stringify(state))", kept)
    page.reload()
    tell(page, "layout", source=(PAGES / "layout.js").read_text())
    tell(page, "graph", graph=chain(50, further=87))
    expect(page.get_by_role("button", name="Stop")).to_be_visible(timeout=PATIENCE_MS)
    page.keyboard.press("Escape")
    expect(page.locator(".box")).to_have_count(51, timeout=PATIENCE_MS)
    expect(page.get_by_text("The layout was stopped: some modules were closed")).to_be_visible()


def test_the_map_shows_the_visible_part_and_moves_it(page: Page) -> None:
    tell(page, "graph", graph=small())
    expect(box(page, ":op_2")).to_be_visible()
    minimap, frame = page.locator(".minimap"), page.locator(".minimap .frame")
    expect(minimap).to_be_hidden()  # everything is in sight
    tell(page, "graph", graph=chain(1, 140))
    box(page, "blocks").locator(".title").click()
    box(page, "blocks.0").locator(".title").click()
    expect(box(page, ":op_139")).to_have_count(1)
    expect(minimap).to_be_visible()
    expect(minimap).to_have_attribute("aria-hidden", "true")
    assert minimap.locator("[tabindex], button, a, input").count() == 0
    canvas = page.locator(".minimap canvas")
    assert canvas.evaluate("it => it.getContext('2d').getImageData(0, 0, it.width, it.height).data.some(Boolean)")

    place = canvas.bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] - 2)
    expect(box(page, ":op_139")).to_be_in_viewport()
    expect(box(page, ":op_0")).not_to_be_in_viewport()
    held = frame.bounding_box()
    assert held is not None
    assert held["y"] + held["height"] == pytest.approx(place["y"] + place["height"], abs=2)
    before = view(page)
    page.mouse.move(held["x"] + held["width"] / 2, held["y"] + held["height"] / 2)
    page.mouse.down()
    assert view(page) == pytest.approx(before, abs=1)  # a frame does not jump when it is taken
    page.mouse.move(held["x"] + held["width"] / 2, place["y"])
    page.mouse.up()
    expect(box(page, ":op_0")).to_be_in_viewport()

    # It is hidden on request, which the extension keeps for other graphs.
    toggle = page.get_by_role("button", name="Map of the whole graph")
    expect(toggle).to_have_attribute("aria-pressed", "true")
    toggle.click()
    expect(minimap).to_be_hidden()
    assert last_said(page, "choose")["choices"] == {"minimap": False, "thick": False}
    tell(page, "choices", choices={"minimap": True, "thick": False})
    expect(minimap).to_be_visible()


def test_edges_are_thicker_the_more_bytes_they_carry(page: Page) -> None:
    tell(page, "graph", graph=small())
    widths = "lines => lines.map(line => getComputedStyle(line).strokeWidth)"
    lines = page.locator(".line")
    expect(lines).to_have_count(2)
    assert lines.evaluate_all(widths) == ["1.2px", "1.2px"]
    page.get_by_role("button", name="Thicker edges for more bytes").click()
    assert lines.evaluate_all(widths) == ["6px", "1px"]
    expect(page.locator(".legend")).to_contain_text("Bytes per edge100 B9.77 KiB977 KiB")
    assert last_said(page, "choose")["choices"] == {"minimap": True, "thick": True}
    page.get_by_role("button", name="Save as SVG").click()
    assert 'stroke-width="6px"' in last_said(page, "export")["data"]
    page.get_by_role("button", name="Thicker edges for more bytes").click()
    assert lines.evaluate_all(widths) == ["1.2px", "1.2px"]
    expect(page.locator(".legend")).not_to_contain_text("Bytes")


def parameter(name: str, random: bool = False) -> dict[str, Any]:
    figures = {"mean": 0.5, "std": 1.25, "min": -2, "max": 6, "zeros": 0.25, "not_finite": 0, "bins": [2, 0, 4, 5]}
    told = dict.fromkeys(figures) | {"bins": []} if random else figures
    return {"name": name, "dtype": "float32", "shape": [3, 4], "count": 12, "random": random} | told


def test_the_weights_of_a_layer_are_shown_on_demand(page: Page) -> None:
    tell(page, "graph", graph=small())
    pane, button = page.get_by_role("region", name="Weights"), page.get_by_label("Weights of the selection")
    box(page, ":op_1").locator(".title").click()
    expect(button).to_be_disabled()  # it is no layer
    box(page, ":op_0").locator(".title").click()
    page.keyboard.press("w")
    expect(pane.get_by_role("heading")).to_have_text("Weights of fc")
    expect(pane).to_contain_text("Reading the weights")
    assert last_said(page, "weights") == {"type": "weights", "of": "fc"}
    hostile = "fc.<img src=x onerror=alert(1)>"
    parameters = [parameter("fc.weight"), parameter(hostile, random=True)]
    tell(page, "weights", of="fc", statistics={"parameters": parameters, "total": 2, "weights": "weights of net.pt"})
    expect(pane).to_contain_text("From the weights of net.pt")
    expect(page.get_by_role("img", name="Histogram of fc.weight, from -2 to 6")).to_be_visible()
    heights = page.locator(".histogram .bar").evaluate_all("bars => bars.map(bar => +bar.getAttribute('height'))")
    assert [height / max(heights) for height in heights] == pytest.approx([0.4, 0, 0.8, 1])
    assert pane.locator("dl").first.inner_text().split() == (
        ["Count", "12", "Mean", "0.5", "Std", "1.25", "Min", "-2", "Max", "6", "Zeros", "25", "%"]
    )
    expect(pane.locator("figure").nth(1)).to_contain_text(f"{hostile} float32[3, 4]Random: the model loads no file")
    page.get_by_role("button", name="Close the weights").click()
    expect(pane).to_be_hidden()
    expect(page.locator("svg.graph")).to_be_focused()

    button.click()
    tell(page, "weights", of="other", problem="an answer to an older request")
    random = {"parameters": [parameter("fc.weight", random=True)], "total": 1, "weights": "random weights (seed 0)"}
    tell(page, "weights", of="fc", statistics=random)
    expect(pane).to_contain_text("Random weights (seed 0): the model loads no file that has their values")
    expect(page.locator(".histogram")).to_have_count(0)
    page.get_by_role("button", name="Close the weights").focus()
    page.keyboard.press("Escape")
    expect(pane).to_be_hidden()


def test_pictures_hold_names_as_text_whatever_is_in_them(page: Page) -> None:
    hostile = "a\x00\x1b</text><script>alert(1)</script>&\"'"
    tell(page, "graph", graph=graph([operation(0, 0, [], name=hostile, mase_op="", target=hostile)], [""]))
    expect(page.locator(".box")).to_have_count(1)
    page.get_by_role("button", name="Save as SVG").click()
    picture = ElementTree.fromstring(last_said(page, "export")["data"])
    drawn = {"svg", "g", "rect", "defs", "marker", "path", "title", "text"}
    assert {each.tag.removeprefix(SVG) for each in picture.iter()} <= drawn
    assert any("</text><script>" in (text.text or "") for text in picture.iter(f"{SVG}text"))
    page.evaluate("said.length = 0")
    page.get_by_role("button", name="Save as PNG").click()
    assert base64.b64decode(last_said(page, "export")["data"]).startswith(b"\x89PNG")
