"""The graph view of a 10,000-node model: from the server's answer to the first picture, from a click to the next one,
and to the picture with all modules open.

The page is the extension's own (`make vsix` builds it), under its own policy, in a plain Chromium. The load of the
machine is printed, since it decides.

Usage: python benchmarks/graph.py [nodes]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from big import NODES, node_file
from editor import Editor
from figures import tell
from playwright.sync_api import Browser, Page, Route, sync_playwright
from rich.console import Console
from rich.table import Table

PAGES = Path(__file__).resolve().parents[1] / "mase_client_vscode" / "dist" / "pages"
COLUMNS = ["name", "op", "target", "mase_op", "family", "scope", "value", "flops", "file", "line", "column", "end_line"]
COLUMNS += ["end_column", "inputs", "format", "sqnr", "max_error", "note", "saturated", "parameters", "bytes"]
RUNS = 5
ALL_MS = 120_000
TYPES = {".js": "text/javascript", ".css": "text/css"}
POLICY = "default-src 'none'; script-src 'nonce-0'; style-src 'self'; worker-src blob:; img-src blob:"
#: The page's host is VS Code; here it is a list of what the page said.
HTML = f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="stylesheet" href="graph.css"></head><body>
<script nonce="0">
const said = [];
const host = {{ postMessage: (told) => said.push(told), getState: () => undefined, setState: () => {{}} }};
window.acquireVsCodeApi = () => host;
</script><script nonce="0" src="graph.js"></script></body></html>"""
PAINTED = "count => said.filter(({ type }) => type === 'painted')[count - 1]"


async def traced(nodes: int) -> tuple[dict[str, Any], float]:
    """`mase/graph` of a model with so many nodes, as the editor is told it, and the seconds that the answer took."""
    with tempfile.TemporaryDirectory(prefix="mase-graph-") as scratch:
        folder = Path(scratch).resolve()
        path = folder / "deep.py"
        path.write_text(node_file(16, nodes))
        async with Editor(folder) as editor:
            editor.open(path)
            await editor.settled(path)
            started = perf_counter()
            asked = {"path": str(path), "columns": COLUMNS}
            answer = await editor.client.protocol.send_request_async("mase/graph", asked)
            return plain(answer), perf_counter() - started


def plain(value: Any) -> Any:
    """pygls gives objects with names; the page wants maps."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def opened(browser: Browser) -> Page:
    """The page without a graph."""

    def serve(route: Route) -> None:
        name = route.request.url.rsplit("/", 1)[-1]
        if not name:
            route.fulfill(body=HTML, content_type="text/html")
        elif (PAGES / name).exists():
            route.fulfill(body=(PAGES / name).read_bytes(), content_type=TYPES[Path(name).suffix])
        else:
            route.fulfill(status=404)

    page = browser.new_page(viewport={"width": 640, "height": 800})
    page.route("**/*", serve)
    page.goto("http://page.local/")
    return page


def pictures(browser: Browser, graph: dict[str, Any]) -> tuple[dict[str, float], ...]:
    """What the page says of its first picture, of that after the first closed module was opened, and after all were."""
    page = opened(browser)
    page.evaluate("graph => { window.graph = graph; }", graph)
    post = "source => [{ type: 'layout', source }, { type: 'graph', graph }].forEach((told) => postMessage(told))"
    page.evaluate(post, (PAGES / "layout.js").read_text())
    first = page.wait_for_function(PAINTED, arg=1).json_value()
    page.locator(".box.closed .title").first.click()
    second = page.wait_for_function(PAINTED, arg=2).json_value()
    page.get_by_role("button", name="Open all modules").click()
    third = page.wait_for_function(PAINTED, arg=3, timeout=ALL_MS).json_value()
    page.close()
    return first, second, third


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="?", type=int, default=NODES)
    nodes = parser.parse_args().nodes
    if not (PAGES / "layout.js").exists():
        raise SystemExit(f"{PAGES} is not there yet: `make vsix` builds the pages")
    graph, seconds = asyncio.run(traced(nodes))
    graph |= {"passes": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        runs = [pictures(browser, graph) for _ in range(RUNS)]
        browser.close()
    table = Table("step", "boxes", "median", "worst", title=f"{nodes} nodes, load {os.getloadavg()[0]:.1f}, target 2 s")
    table.add_row("the server's answer", "", f"{1000 * seconds:.0f} ms", "")
    for name, told in zip(
        ("first picture", "a module opens", "all modules open"), zip(*runs, strict=True), strict=True
    ):
        times = [each["milliseconds"] for each in told]
        if name == "first picture":
            tell("graph/first", median(times))
        table.add_row(name, f"{told[0]['boxes']:.0f}", f"{median(times):.0f} ms", f"{max(times):.0f} ms")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
