"""A page of the extension alone in a browser, under the extension's own policy: the host is a list of what it said."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import code_server
from playwright.sync_api import Browser, Page, Route

PAGES = code_server.ROOT / "mase_client_vscode" / "dist" / "pages"


@contextmanager
def lone_page(browser: Browser, name: str, allow: str = "") -> Iterator[Page]:
    """Open the page `name` of dist/pages; errors in it fail the test. allow: further parts of its policy."""
    address = f"http://{name}.test/"
    policy = f"default-src 'none'; script-src 'nonce-n'; style-src {address}; {allow}"
    html = f"""<!DOCTYPE html><html lang="en"><head><title>{name}</title>
<meta http-equiv="Content-Security-Policy" content="{policy}"><link rel="stylesheet" href="{address}{name}.css"></head>
<body><script nonce="n">
  window.said = [];
  window.acquireVsCodeApi = () => ({{
    postMessage: (message) => said.push(message),
    getState: () => JSON.parse(sessionStorage.getItem("state") ?? "null") ?? undefined,
    setState: (state) => sessionStorage.setItem("state", JSON.stringify(state)),
  }});
</script><script nonce="n" src="{address}{name}.js"></script></body></html>"""
    page = browser.new_page(viewport={"width": 900, "height": 500})
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)

    def answer(route: Route) -> None:
        known = PAGES / Path(route.request.url).name
        route.fulfill(path=known) if known.is_file() else route.fulfill(body=html, content_type="text/html")

    page.route(f"{address}**", answer)
    page.goto(address)
    yield page
    page.close()
    assert wrong == []


def tell(page: Page, kind: str = "table", **facts: Any) -> None:
    page.evaluate("message => postMessage(JSON.parse(message), '*')", json.dumps({"type": kind, **facts}))


def last_said(page: Page, kind: str) -> dict[str, Any]:
    """The last message of this type, once there is one."""
    return page.wait_for_function("kind => said.findLast(({ type }) => type === kind)", arg=kind).json_value()
