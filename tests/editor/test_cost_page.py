"""The page of the cost table alone in a browser: by keyboard, told something new, and with eleven thousand rows."""

from collections.abc import Iterator
from typing import Any

import pytest
from lone_page import lone_page, tell
from playwright.sync_api import Browser, Page, expect

NOTHING: dict[str, Any] = {
    "shared": [],
    "formats": [],
    "bits": None,
    "sqnr": None,
    "max_error": None,
    "passes": "",
    "saturated": None,
    "kernels": None,
    "seconds": None,
    "moved": None,
    "bound": None,
    "held": None,
    "hardware": None,
}


def row(ident: str, parent: int, kind: str = "layer", flops: int = 0) -> dict[str, Any]:
    name = ident.replace("/", ".").rpartition(".")[2] or "Net"
    counted = {"nodes": 1, "parameters": 4, "parameter_bytes": 16, "flops": flops, "traffic": 8, "results": 8}
    return {"id": ident, "parent": parent, "name": name, "kind": kind, "type": "", "places": [], **counted, **NOTHING}


def small(flops: int = 10) -> list[dict[str, Any]]:
    """Net(stem, blocks(0(fc, out), 1(fc))), where blocks.1.fc is the dearest."""
    scopes = [row("", -1, "scope", 1000), row("stem", 0, flops=flops), row("blocks", 0, "scope", 900)]
    first = [row("blocks.0", 2, "scope", 300), row("blocks.0.fc", 3, flops=100), row("blocks.0.out", 3, flops=200)]
    return [*scopes, *first, row("blocks.1", 2, "scope", 600), row("blocks.1.fc", 6, flops=600)]


def large() -> list[dict[str, Any]]:
    blocks = [row("", -1, "scope", 1)]
    for block in range(1000):
        parent = len(blocks)
        blocks.append(row(f"b.{block}", 0, "scope", block))
        blocks += [row(f"b.{block}.fc{layer}", parent, flops=layer) for layer in range(10)]
    return blocks


def table(rows: list[dict[str, Any]], **facts: Any) -> dict[str, Any]:
    told = {"path": "/net.py", "model": "Net", "sha256": "", "generation": 1, "stale": False, "complete": True}
    told |= {"run": None, "older": False, "change": None}
    return {"table": {**told, "steps": [], "rows": rows}, **facts}


def shown(page: Page) -> list[str]:
    return page.locator("tr[data-id]").evaluate_all("rows => rows.map(row => row.dataset.id)")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with lone_page(browser, "costs") as page:
        yield page


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    tell(page, **table(small()))
    selected = page.locator("tr[aria-selected='true']")
    expect(page.locator("tr[data-id='']")).to_have_attribute("aria-level", "1")
    press(page, "/", "ArrowDown")  # the field, then the rows
    expect(page.locator("tr[data-id='']")).to_be_focused()
    press(page, "End", "ArrowLeft", "ArrowLeft")
    expect(selected).to_have_attribute("data-id", "blocks.1")
    expect(selected).to_have_attribute("aria-expanded", "false")
    assert shown(page) == ["", "stem", "blocks", "blocks.0", "blocks.0.fc", "blocks.0.out", "blocks.1"]
    press(page, "ArrowRight", "ArrowRight", "Enter")
    expect(page.locator("tr[data-id='blocks.1.fc']")).to_be_focused()
    assert page.evaluate("said.at(-1)") == {"type": "goto", "id": "blocks.1.fc", "focus": True}
    page.get_by_role("button", name="FLOPs").focus()
    press(page, "Enter")
    assert shown(page) == ["", "blocks", "blocks.1", "blocks.1.fc", "blocks.0", "blocks.0.out", "blocks.0.fc", "stem"]
    expect(page.get_by_role("button", name="FLOPs")).to_be_focused()
    press(page, "Control+c")
    copied = page.evaluate("said.at(-1)")
    assert (copied["type"], copied["rows"], copied["text"].count("\n")) == ("copy", 8, 8)
    press(page, "/")
    page.keyboard.insert_text("nowhere")
    expect(page.get_by_text('No row matches "nowhere"')).to_be_visible()
    press(page, "Escape")
    expect(page.locator("tr[data-id]")).to_have_count(8)


def test_news_change_the_numbers_and_nothing_that_a_person_chose(page: Page) -> None:
    rows = large()
    tell(page, **table(rows))
    page.get_by_role("button", name="FLOPs").click()
    page.get_by_role("button", name="Expand").click()
    scroll = page.locator(".scroll")
    scroll.evaluate("element => element.scrollTop = 4200")
    expect(page.locator("tr[data-id='b.981']")).to_be_visible()  # row 199: the largest first, eleven rows a block
    page.locator("tr[data-id='b.981'] .label").click()
    expect(page.locator("tr[data-id='b.981']")).to_be_focused()
    before = shown(page)
    assert len(before) < 60, "only rows in sight are elements"
    expect(page.get_by_text("11001 of 11001 rows")).to_be_visible()
    changed = [{**each, "parameters": 4321} for each in rows]
    tell(page, **table(changed, problem="stale"))
    expect(page.locator("tr[data-id='b.981']")).to_contain_text("4,321")
    expect(page.locator("tr[data-id='b.981']")).to_be_focused()
    expect(page.get_by_text("stale")).to_be_visible()
    assert (shown(page)[0], scroll.evaluate("element => element.scrollTop")) == (before[0], 4200)
    page.reload()  # as a hidden tab is
    tell(page, **table(changed))
    expect(page.locator("tr[data-id='b.981']")).to_have_attribute("aria-selected", "true")
    assert scroll.evaluate("element => element.scrollTop") == 4200
    expect(page.get_by_text("stale")).to_be_hidden()


def test_what_is_hidden_is_lit_at_what_hides_it_and_shown_when_a_link_asks(page: Page) -> None:
    tell(page, **table(small()))
    page.get_by_role("button", name="Collapse").click()
    tell(page, "cursor", ids=["blocks.0.fc", "stem"])
    lit = page.locator("tr[aria-current='true']")
    expect(lit).to_have_count(1)
    expect(lit).to_have_attribute("data-id", "")
    tell(page, "select", id="blocks.0.fc")
    expect(page.locator("tr[aria-selected='true']")).to_have_attribute("data-id", "blocks.0.fc")
    expect(lit).to_have_count(2)
    assert shown(page) == ["", "stem", "blocks", "blocks.0", "blocks.0.fc", "blocks.0.out", "blocks.1"]
    page.get_by_role("searchbox").fill("stem")
    tell(page, "select", id="blocks.0.out")
    expect(page.locator("tr[aria-selected='true']")).to_have_attribute("data-id", "blocks.0.out")
    expect(page.get_by_role("searchbox")).to_have_value("")
    tell(page, "nothing", problem="/net.py has no graph: failed")
    expect(page.get_by_text("/net.py has no graph: failed")).to_be_visible()
    expect(page.locator("table")).to_be_hidden()
