"""`mase-server view`: the page in a real browser without an editor, as a file and following saves."""

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

COMMAND = [sys.executable, "-m", "mase_server", "view"]
#: A text that would end an element of the page, were it not escaped.
HOSTILE = '\n\nBREAKS = "</script><!-- <script>alert(1)</script> &amp; \\u2028"\n'


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that can load nothing from outside; whatever it complains about fails the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 850})
    context.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


def written(file: Path, *options: str, status: int = 0) -> str:
    """The address of the page that the command writes."""
    target = file.with_suffix(".html")
    done = subprocess.run([*COMMAND, file, "-o", target, *options], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return target.as_uri()


def line_of(page: Page, number: int) -> str:
    """A line of the source with its hints, as it is shown."""
    return page.locator(f'[data-line="{number}"] code').text_content() or ""


def test_a_written_page_shows_what_the_command_line_shows(page: Page, project: Path) -> None:
    file = project / "gpt.py"
    file.write_text(file.read_text() + HOSTILE)
    page.goto(written(file))
    shown = subprocess.run([sys.executable, "-m", "mase_server", "shapes", file], capture_output=True, text=True).stdout
    lines = [line for line in shown.rstrip("\n").split("\n") if not line.startswith("# GPT: ")]
    expect(page.locator(f'[data-line="{len(lines)}"]')).to_be_attached()
    assert [line_of(page, number) for number in range(1, len(lines) + 1)] == lines
    assert "att: f32[B, 4, T, T]" in shown


def test_a_line_and_its_operations_are_lit_both_ways(page: Page, project: Path) -> None:
    page.goto(written(project / "mlp.py"))
    graph = page.frame_locator("iframe[title=graph]")
    expect(graph.locator(".box")).to_have_count(12)
    page.locator('[data-line="19"]').click()
    expect(graph.locator(".box.cursor")).to_have_count(1)
    expect(page.locator(".details")).to_contain_text("linear → f32[B, 5] · 10.2 kFLOPs · head")
    graph.locator(".box", has_text="dropout").last.click()
    expect(page.locator(".row.chosen")).to_have_attribute("data-line", "18")
    page.get_by_role("tab", name="Costs").click()
    costs = page.frame_locator("iframe[title=costs]")
    expect(costs.locator("tbody tr", has_text="head")).to_contain_text("165")
    costs.locator("tbody tr", has_text="head").dblclick()
    expect(page.locator(".row.chosen")).to_have_attribute("data-line", "19")


def test_passes_and_problems_are_on_the_page(page: Page, project: Path) -> None:
    page.goto(written(project / "mlp.py", "--pass", "quantize(default='fixed(8,4)')"))
    assert "x: fixed(8,4)[B, 64|32] = torch.relu" in line_of(page, 17)
    page.get_by_role("tab", name="Passes").click()
    expect(page.locator(".side")).to_contain_text("1. quantize(default='fixed(8,4)')")
    bad = project / "bad.py"
    bad.write_text((project / "mlp.py").read_text().replace("nn.Linear(widths[-1],", "nn.Linear(7,"))
    page.goto(written(bad, status=1))
    page.get_by_role("tab", name="Problems (1)").click()
    page.locator(".list .problem", has_text="shape-mismatch").click()
    expect(page.locator(".row.chosen")).to_have_attribute("data-line", "19")


@pytest.fixture
def served(project: Path) -> Iterator[tuple[str, Path]]:
    """The address of a page that follows a file, and the file."""
    file = project / "mlp.py"
    with subprocess.Popen([*COMMAND, file, "--no-open"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0], file
        process.terminate()


def test_a_served_page_follows_saves(page: Page, served: tuple[str, Path]) -> None:
    address, file = served
    page.goto(address)
    expect(page.locator('[data-line="17"] .t-hint')).to_have_text(": f32[B, 64|32]", timeout=60_000)
    text = file.read_text()
    file.write_text(text.replace("(64, 32, 32)", "(48, 24)"))
    expect(page.locator('[data-line="17"] .t-hint')).to_have_text(": f32[B, 48|24]", timeout=60_000)
    expect(page.frame_locator("iframe[title=graph]").locator(".box")).to_have_count(9)
    file.write_text(text.replace("self.head(x)", "self.head(x"))
    expect(page.locator(".notice")).to_contain_text("The shapes are those of the last text", timeout=60_000)
    file.unlink()
    expect(page.locator(".notice")).to_have_text("mlp.py is gone; it will be shown when it is back.", timeout=60_000)


def test_a_served_page_is_only_for_who_knows_its_address(served: tuple[str, Path]) -> None:
    place = urlsplit(served[0])

    def ask(path: str, host: str = place.netloc, method: str = "GET") -> int:
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        connection.request(method, path, headers={"Host": host})
        return connection.getresponse().status

    assert ask(place.path) == 200
    assert ask("/") == ask("/sheet") == ask(place.path[:-2] + "/") == ask(place.path + "../..") == 404
    assert ask(place.path + "sheet", host="example.org") == 404
    assert ask(place.path, method="POST") == 501
