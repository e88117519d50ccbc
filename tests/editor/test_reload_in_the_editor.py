"""The window is loaded again: the pages of a model are there as they were, and live."""

import pytest
from playwright.sync_api import FrameLocator, expect
from window import PATIENCE_MS, Window

ATTENTION = ".box[data-id='blocks.0.attn']"
TYPED = "i64[B=2, T=8] < 512"


def page_of(window: Window, tab: str) -> FrameLocator:
    """The page of a tab, brought to the front: VS Code loads it when it is seen."""
    window.page.locator(".tab", has_text=tab).click()
    window.page.locator(".tab.active", has_text=tab).wait_for()
    return window.page.frame_locator("iframe.webview.ready").frame_locator("#active-frame")


def reload(window: Window) -> None:
    window.page.evaluate("window.before = true")
    window.command("Developer: Reload Window")
    window.page.wait_for_function("window.before === undefined")
    window.page.locator(".tab", has_text="gpt.py").wait_for()


@pytest.mark.timeout(240)
def test_the_pages_of_a_model_come_back_as_they_were_when_the_window_is_loaded_again(window: Window) -> None:
    """The graph with what was open in it, the costs with their order and filter, the form with what was typed."""
    window.open("gpt.py")
    window.expect_status("MASE: ready")
    window.command("MASE: Show the Graph")
    graph = page_of(window, "Graph of GPT")
    graph.locator(".box[data-id='blocks.0'] .title").click()
    graph.locator(ATTENTION).wait_for()
    view = graph.locator("svg.graph > g").get_attribute("transform")
    window.page.locator(".tab", has_text="gpt.py").click()
    window.command("MASE: Show Costs")
    costs = page_of(window, "Costs: GPT")
    costs.get_by_role("button", name="FLOPs", exact=True).click()
    costs.get_by_role("searchbox").fill("c_proj")
    costs.locator("tr[data-id='blocks.3.mlp.c_proj']").wait_for()
    window.page.locator(".tab", has_text="gpt.py").click()
    window.command("MASE: Change the Inputs of a Model")
    field = page_of(window, "Inputs of GPT").locator("input[name='inputs.idx']")
    field.fill(TYPED)

    reload(window)
    form = page_of(window, "Inputs of GPT")
    expect(form.locator("input[name='inputs.idx']")).to_have_value(TYPED, timeout=2 * PATIENCE_MS)
    expect(form.locator("#outcome")).to_contain_text("f32[2, 8, 512]", timeout=PATIENCE_MS)
    costs = page_of(window, "Costs: GPT")
    expect(costs.locator("tr[data-id='blocks.3.mlp.c_proj']")).to_be_visible(timeout=PATIENCE_MS)
    expect(costs.get_by_role("searchbox")).to_have_value("c_proj")
    expect(costs.get_by_role("columnheader", name="FLOPs")).to_have_attribute("aria-sort", "descending")
    graph = page_of(window, "Graph of GPT")
    graph.locator(ATTENTION).wait_for()
    expect(graph.locator("svg.graph > g")).to_have_attribute("transform", view or "")
    window.picture("reloaded")

    # They are told what is known anew, as before.
    window.page.locator(".tab", has_text="gpt.py").click()
    window.replace("n_embd=128", "n_embd=64")
    expect(graph.locator(".shape[data-tensor='add']").first).to_have_text("f32[B, T, 64]", timeout=PATIENCE_MS)
