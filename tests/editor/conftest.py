"""What the editor tests share: the packaged extension, a browser, and one window for all who need none of their own.

A window costs ten seconds, a file in an open window one: so tests take `window` unless they need another folder, other
trust or another server from the first moment on.
"""

import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import code_server
import pytest
from fake_project import FakeProject
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from window import EXAMPLES, SIZE, Window

CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OpenWindow = Callable[..., Window]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.editor)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails tells what the extension wrote in its log: a picture alone seldom tells why."""
    report = yield
    server = getattr(item, "funcargs", {}).get("server")
    if report.failed and server is not None:
        report.sections.append(("The extension's log", server.last_log()))
    return report


@pytest.fixture(scope="package", autouse=True)
def tools() -> None:
    for path, target in ((code_server.ENTRY, "tools"), (code_server.VSIX, "vsix")):
        if not path.exists():
            pytest.fail(f"{path} is missing: run `make {target}`")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def context(browser: Browser) -> BrowserContext:
    """One for all windows: VS Code's own scripts are fetched and compiled once."""
    return browser.new_context(viewport=SIZE, device_scale_factor=2, permissions=["clipboard-read", "clipboard-write"])


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[code_server.CodeServer]:
    home = tmp_path_factory.mktemp("code-server")
    with code_server.running(home, **{"mase.interpreter": sys.executable}) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the examples, free to be edited."""
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))


class Shared:
    """The window that tests share; one that a failed test leaves behind is thrown away."""

    def __init__(self, opened: Callable[[], Window]) -> None:
        self._opened = opened
        self._window: Window | None = None
        self._number = 0

    def begin(self) -> Window:
        """The window, on a folder for this test alone."""
        self._window = self._window or self._opened()
        self._number += 1
        self._window.begin(f"models_{self._number}")
        return self._window

    def end(self, failed: str | None) -> None:
        """Make it fit for the next test, or leave a picture named after the one that failed and close it."""
        assert self._window is not None
        if failed is None:
            self._window.reset()
            return
        self._window.picture(f"failed-{failed}")
        self._window.close()
        self._window = None


@pytest.fixture(scope="package")
def shared(context: BrowserContext, server: code_server.CodeServer, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    def opened() -> Window:
        root = tmp_path_factory.mktemp("window") / "project"
        root.mkdir()
        window = Window(context.new_page(), server.url(root), root)
        window.command("View: Close Primary Side Bar")  # what is looked at are editors
        return window

    return Shared(opened)


@pytest.fixture
def window(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Window]:
    """The shared window, as if it had just been opened: no editors, no notices, no settings, a new folder."""
    failed_before = request.session.testsfailed
    yield shared.begin()
    shared.end(request.node.name if request.session.testsfailed > failed_before else None)


@pytest.fixture
def open_window(
    context: BrowserContext, server: code_server.CodeServer, request: pytest.FixtureRequest
) -> Iterator[OpenWindow]:
    """Opens windows on folders or workspaces, closes them; a test that fails leaves a picture of each."""
    windows: list[Window] = []

    def opened(folder: Path, file: str, on: code_server.CodeServer = server) -> Window:
        root = folder.parent if folder.is_file() else folder
        window = Window(context.new_page(), on.url(folder, ("openFile", root / file)), root)
        windows.append(window)
        window.showing(root / file)
        if folder.is_file():
            window.expect_folders()
        return window

    failed_before = request.session.testsfailed
    yield opened
    for number, window in enumerate(windows):
        if request.session.testsfailed > failed_before:
            window.picture(f"failed-{request.node.name}-{number}")
        window.close()


@pytest.fixture
def fake(tmp_path: Path) -> FakeProject:
    """A project whose server is the fake one."""
    return FakeProject(tmp_path / "project", tmp_path / "fake.jsonl")
